package zkbackend

import (
	"encoding/binary"
	"errors"
	"sync"
)

const (
	// sizeField is the length of the length, with which each message begins.
	sizeField = 4
	// answerHead is what follows it in an answer: its number, the transaction, and an error.
	answerHead = 16
	// countField is the length of the number with which a list or the data of a node begins.
	countField = 4
	// maxAnswer bounds an answer. It has room for a list of some 100,000 nodes: the list takes five times as much memory
	// at most, 40 MiB.
	maxAnswer = 8 << 20
	// maxMulti bounds the answer to a multi request, which is kept to be checked: those of this driver have two results.
	maxMulti = 64 << 10
)

var errMalformed = errors.New("the answer is not that of a ZooKeeper server")

// answers cuts what is read on a connection into answers, and checks in each what the client library does not: the library would
// panic, in a goroutine of its own, or allocate memory for whatever number it finds.
type answers struct {
	head []byte // of one that has just begun
	need int    // how long head is to be for the next check; 0: sizeField
	kind uint32 // of the request; 0 as long as it is not known, or where nothing more is checked
	left int    // of one that was checked

	mu    sync.Mutex
	asked map[uint32]uint32 // the kinds of the requests without an answer, if their answers are checked, by number
}

// expect takes a request.
func (a *answers) expect(request []byte) {
	switch k := kind(request); k {
	case opGetData, opChildren, opMulti:
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.asked == nil {
			a.asked = make(map[uint32]uint32)
		}
		a.asked[binary.BigEndian.Uint32(request[sizeField:])] = k
	}
}

// answered returns the kind of the request with that number, and forgets it; 0 if the answer is not checked.
func (a *answers) answered(number uint32) (kind uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	kind = a.asked[number]
	delete(a.asked, number)
	return kind
}

// take takes what was read, and returns how many answers to pings begin in it.
func (a *answers) take(p []byte) (pings int, err error) {
	for len(p) > 0 {
		if skip := min(a.left, len(p)); skip > 0 {
			a.left, p = a.left-skip, p[skip:]
			continue
		}
		a.need = max(a.need, sizeField)
		part := min(a.need-len(a.head), len(p))
		a.head, p = append(a.head, p[:part]...), p[part:]
		if len(a.head) < a.need {
			continue
		}
		ping, err := a.check()
		if err != nil {
			return pings, err
		}
		if ping {
			pings++
		}
		if len(a.head) == a.need { // nothing more is checked
			a.left, a.head, a.need, a.kind = sizeField+a.size()-len(a.head), a.head[:0], 0, 0
		}
	}
	return pings, nil
}

// size returns the length of the present answer.
func (a *answers) size() int { return int(binary.BigEndian.Uint32(a.head)) }

// check checks as much of an answer as there is. It sets need to more if there is more to check.
func (a *answers) check() (ping bool, err error) {
	switch {
	case len(a.head) == sizeField:
		if a.size() < answerHead || a.size() > maxAnswer {
			return false, errMalformed
		}
		a.need += answerHead
		return false, nil
	case a.kind == 0:
		return a.checkHead()
	case a.kind == opMulti && wholeResults(a.head[sizeField+answerHead:]):
		return false, nil
	case a.kind != opMulti && a.fits(binary.BigEndian.Uint32(a.head[sizeField+answerHead:])):
		return false, nil
	}
	return false, errMalformed
}

// checkHead checks the head of an answer.
func (a *answers) checkHead() (ping bool, err error) {
	number := binary.BigEndian.Uint32(a.head[sizeField:])
	kind, failed := a.answered(number), binary.BigEndian.Uint32(a.head[sizeField+answerHead-4:]) != 0
	body := a.size() - answerHead
	switch {
	case kind == 0 || failed:
		return int32(number) == xidPing, nil
	case body < countField || kind == opMulti && body > maxMulti:
		return false, errMalformed
	case kind == opMulti:
		a.need += body
	default:
		a.need += countField
	}
	a.kind = kind
	return false, nil
}

// fits reports whether the answer is long enough for as many children, or for as many bytes of data. Minus one stands for no data.
func (a *answers) fits(count uint32) bool {
	rest := uint32(a.size() - answerHead - countField)
	if a.kind == opChildren {
		return count <= rest/countField // each is a length and a name
	}
	return int32(count) <= int32(rest)
}

// wholeResults reports whether the results of a multi request are followed by their end. The library reads a result's
// head without looking whether it is there.
func wholeResults(p []byte) bool {
	const head, end, stat = 9, 4, 68 // the head is a kind, whether it is the end, and an error
	for len(p) >= head {
		kind, size := binary.BigEndian.Uint32(p), uint64(0)
		if p[end] != 0 {
			return true
		}
		p = p[head:]
		switch {
		case kind == opCreate && len(p) >= sizeField:
			size = sizeField + uint64(binary.BigEndian.Uint32(p))
		case kind == opSetData:
			size = stat
		case kind == opError:
			size = 4
		case kind != opDelete:
			return false
		}
		if size > uint64(len(p)) {
			return false
		}
		p = p[size:]
	}
	return false
}
