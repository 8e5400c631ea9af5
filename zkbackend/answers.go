package zkbackend

import (
	"encoding/binary"
	"sync"
)

const (
	// sizeField is the length of the number with which each message begins. It is the length of the
	// rest.
	sizeField = 4

	// answerHead is the length of what follows in an answer: the number of its request, the
	// transaction and an error, of four, eight and four bytes.
	answerHead = 16

	// countField is the length of the number with which a list or the data of a node begins.
	countField = 4

	// maxAnswer limits the length of an answer. It is enough for a list of some 100,000 nodes,
	// which takes at most five times as much memory, 40 MiB.
	maxAnswer = 8 << 20

	// maxMulti limits the length of the answer to a multi request, which is kept to be checked. The
	// multi requests of this driver have two results.
	maxMulti = 64 << 10
)

// stage is the part of an answer that is being collected in order to be checked.
//
//	stage      part                                event                            next
//	sizeStage  its length                          the length is within the limits  headStage
//	headStage  request, transaction and error      its kind has a further check     bodyStage
//	                                               it has none                      sizeStage
//	bodyStage  a number of children or bytes, or   the check has passed             sizeStage
//	           all results of a multi request
//
// What remains of a checked answer is skipped, see answers.rest.
type stage uint8

const (
	sizeStage stage = iota
	headStage
	bodyStage
)

// answers divides the bytes that are read on a connection into answers. It checks in each what the
// client library does not check: the library would panic, in a goroutine of its own, or allocate
// memory for whatever number it finds.
type answers struct {
	stage stage
	head  []byte // what was collected of the present answer
	need  int    // length of head for the check of the stage
	kind  uint32 // of the request, in bodyStage
	rest  int    // number of bytes to skip

	mu    sync.Mutex
	kinds map[uint32]uint32 // by number: the unanswered requests whose answers have a further check
}

// expect takes a request that is about to be written.
func (a *answers) expect(request []byte) {
	switch k := operation(request); k {
	case opGetData, opChildren, opMulti:
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.kinds == nil {
			a.kinds = make(map[uint32]uint32)
		}
		a.kinds[binary.BigEndian.Uint32(request[numberAt:])] = k
	}
}

// takeKind returns the kind of the request with that number and forgets it. It is 0 if the answer
// has no further check.
func (a *answers) takeKind(number uint32) (kind uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	kind = a.kinds[number]
	delete(a.kinds, number)
	return kind
}

// take takes what was read. It returns how many answers to pings begin in p, and an error if the
// connection must not be used any further. Only the goroutine that reads may call it.
func (a *answers) take(p []byte) (pings int, err error) {
	for len(p) > 0 {
		if skip := min(a.rest, len(p)); skip > 0 {
			a.rest, p = a.rest-skip, p[skip:]
			continue
		}
		if a.stage == sizeStage {
			a.need = sizeField
		}
		part := min(a.need-len(a.head), len(p))
		a.head, p = append(a.head, p[:part]...), p[part:]
		if len(a.head) < a.need {
			continue
		}
		isPing, err := a.check()
		if err != nil {
			return pings, err
		}
		if isPing {
			pings++
		}
	}
	return pings, nil
}

// check checks the collected part of an answer and begins the next stage.
func (a *answers) check() (isPing bool, err error) {
	switch a.stage {
	case sizeStage:
		if a.size() < answerHead || a.size() > maxAnswer {
			return false, errMalformed
		}
		a.stage, a.need = headStage, sizeField+answerHead
		return false, nil
	case headStage:
		return a.checkHead()
	default:
		return false, a.checkBody()
	}
}

// size returns the length of the present answer without the number that holds it.
func (a *answers) size() int { return int(binary.BigEndian.Uint32(a.head)) }

// finish begins the next answer. What was not collected of the present one is skipped.
func (a *answers) finish() {
	a.rest = sizeField + a.size() - len(a.head)
	a.stage, a.head = sizeStage, a.head[:0]
}

// checkHead checks the head of an answer, and reports whether it answers a ping. An error has no
// body.
func (a *answers) checkHead() (isPing bool, err error) {
	number := binary.BigEndian.Uint32(a.head[sizeField:])
	kind := a.takeKind(number)
	failed := binary.BigEndian.Uint32(a.head[sizeField+answerHead-4:]) != 0
	body := a.size() - answerHead
	switch {
	case kind == 0 || failed:
		a.finish()
		return int32(number) == xidPing, nil
	case body < countField || kind == opMulti && body > maxMulti:
		return false, errMalformed
	case kind == opMulti:
		a.need += body
	default:
		a.need += countField
	}
	a.stage, a.kind = bodyStage, kind
	return false, nil
}

// checkBody checks the collected part of a body.
func (a *answers) checkBody() error {
	body := a.head[sizeField+answerHead:]
	if a.kind == opMulti && !hasWholeResults(body) ||
		a.kind != opMulti && !a.fits(binary.BigEndian.Uint32(body)) {
		return errMalformed
	}
	a.finish()
	return nil
}

// fits reports whether the answer is long enough for that number of children, or of bytes of data.
// -1 stands for no data.
func (a *answers) fits(count uint32) bool {
	rest := uint32(a.size() - answerHead - countField)
	if a.kind == opChildren {
		return count <= rest/countField // each child is a length and a name
	}
	return int32(count) <= int32(rest)
}

// hasWholeResults reports whether the results of a multi request are complete up to their end mark.
// The library reads the head of a result without a check whether it is there.
func hasWholeResults(p []byte) bool {
	const (
		head = 9  // of a result: its kind, whether it is the end mark, and an error
		end  = 4  // where the second of these is
		stat = 68 // length of the metadata of a node
	)
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
