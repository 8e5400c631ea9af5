package filebackend

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dlock-go/dlock/backend"
)

// A lock file is two slots, a page each, so that a torn write of one leaves the
// other. Each may hold a record: the last grant that was written there. The file is
// written by the holder of the lock alone, one slot in one write.
//
// A power cut may take back whatever was not synced. So each record carries a
// ceiling: no fence above it is given before a record with a higher one is on the
// disk. The record that was synced is the reservation; its slot stays as it is, and
// the grants below its ceiling are written to the other one, unsynced, until the next
// reservation takes that slot and the two change roles. The first grant below a
// ceiling writes the reservation once more, since it cannot know whether that was
// synced. After another boot, or
// where a slot is unreadable, the counter goes on above the ceiling.
const (
	slotSize = 4096
	fileSize = 2 * slotSize

	// magic begins every slot.
	magic = "dlock-1\n"
	// fixedSize is what precedes the texts of a record: magic, checksum, length,
	// fence, ceiling, since, reservation.
	fixedSize = len(magic) + 4 + 4 + 8 + 8 + 8 + 1
	// maxTexts bounds the texts before the meta, which gets the rest of the slot.
	maxTexts = 1024
	// ahead is how many fences, that is microseconds, a reservation covers.
	ahead = uint64(10 * time.Second / time.Microsecond)
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// record is one grant.
type record struct {
	fence, ceiling uint64
	since          time.Time // to the microsecond
	reservation    bool
	boot           string // of the machine, when it was written
	key, owner     string
	meta           string
}

// encode returns the record as it stands in a slot. A meta that is too long is cut.
func (r *record) encode() ([]byte, error) {
	if len(r.boot)+len(r.key)+len(r.owner) > maxTexts {
		return nil, fmt.Errorf("%w: %.32q… is too long for a lock file", backend.ErrInvalidName, r.key)
	}
	b := make([]byte, 0, min(slotSize, fixedSize+4*2+len(r.boot)+len(r.key)+len(r.owner)+len(r.meta)))
	b = append(b, magic...)
	b = append(b, make([]byte, 8)...) // checksum and length, below
	b = binary.BigEndian.AppendUint64(b, r.fence)
	b = binary.BigEndian.AppendUint64(b, r.ceiling)
	b = binary.BigEndian.AppendUint64(b, uint64(r.since.UnixMicro()))
	if r.reservation {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	for _, text := range []string{r.boot, r.key, r.owner} {
		b = appendText(b, text)
	}
	b = appendText(b, cut(r.meta, slotSize-len(b)-2))
	body := b[len(magic)+4:]
	binary.BigEndian.PutUint32(body, uint32(len(b)))
	binary.BigEndian.PutUint32(b[len(magic):], crc32.Checksum(body, castagnoli))
	return b, nil
}

func appendText(b []byte, text string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(text))), text...)
}

// cut returns at most limit bytes of text and no half character.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}

// decode returns the record of a slot, or nil.
func decode(slot []byte) *record {
	if len(slot) < fixedSize || string(slot[:len(magic)]) != magic {
		return nil
	}
	sum := binary.BigEndian.Uint32(slot[len(magic):])
	body := slot[len(magic)+4:]
	length := int(binary.BigEndian.Uint32(body)) - len(magic) - 4
	if length < fixedSize-len(magic)-4 || length > len(body) || crc32.Checksum(body[:length], castagnoli) != sum {
		return nil
	}
	fixed, texts := body[4:fixedSize-len(magic)-4], body[fixedSize-len(magic)-4:length]
	r := &record{
		fence:       binary.BigEndian.Uint64(fixed),
		ceiling:     binary.BigEndian.Uint64(fixed[8:]),
		since:       time.UnixMicro(int64(binary.BigEndian.Uint64(fixed[16:]))),
		reservation: fixed[24] == 1,
	}
	for _, text := range []*string{&r.boot, &r.key, &r.owner, &r.meta} {
		var ok bool
		if *text, texts, ok = cutText(texts); !ok {
			return nil
		}
	}
	return r
}

func cutText(b []byte) (text string, rest []byte, ok bool) {
	if len(b) < 2 {
		return "", nil, false
	}
	length := int(binary.BigEndian.Uint16(b))
	if b = b[2:]; len(b) < length {
		return "", nil, false
	}
	return string(b[:length]), b[length:], true
}

// contents is what a lock file says.
type contents struct {
	latest  *record // nil in a new file
	damaged bool    // a slot is unreadable, or being written
	fresh   bool    // a slot is empty: the file's name may not be on the disk
	free    int     // the slot that the next record goes to
}

// placed is a record and the slot that it goes to.
type placed struct {
	*record
	slot int
}

// parse reads the bytes of a lock file. ErrConflict: it is none.
func parse(file []byte) (contents, error) {
	var c contents
	var reservation *record
	for i := range 2 {
		slot := file[min(i*slotSize, len(file)):min((i+1)*slotSize, len(file))]
		r := decode(slot)
		if r == nil {
			empty := len(bytes.Trim(slot, "\x00")) == 0
			c.fresh, c.damaged = c.fresh || empty, c.damaged || !empty
			continue
		}
		if r.reservation && (reservation == nil || r.fence > reservation.fence) {
			reservation, c.free = r, 1-i
		}
		if c.latest == nil || r.fence > c.latest.fence {
			c.latest = r
			if reservation == nil {
				c.free = 1 - i
			}
		}
	}
	if c.latest == nil && !unfinished(file) || len(file) > fileSize {
		return contents{}, fmt.Errorf("%w: it is not a lock file of dlock", backend.ErrConflict)
	}
	return c, nil
}

// unfinished tells whether file is what a crash leaves of the first write: the
// magic, or a beginning of it and no more.
func unfinished(file []byte) bool {
	written := bytes.TrimRight(file, "\x00")
	return bytes.HasPrefix(written, []byte(magic)) || strings.HasPrefix(magic, string(written))
}

// next returns the record that succeeds c in this boot of the machine, with its
// fences. Where boot is empty nothing is known of earlier boots, and each record
// is a reservation for itself.
func (c contents) next(boot string, now time.Time) *record {
	r := &record{boot: boot, since: now, fence: 1}
	if micros := now.UnixMicro() - backend.FenceEpoch; micros > 1 {
		r.fence = uint64(micros)
	}
	if last := c.latest; last != nil {
		if boot != "" && last.boot == boot && !c.damaged {
			r.fence, r.ceiling = max(r.fence, last.fence+1), last.ceiling
		} else {
			r.fence = max(r.fence, last.ceiling+1)
		}
	}
	if r.fence > r.ceiling {
		r.reservation, r.ceiling = true, r.fence
		if boot != "" {
			r.ceiling += ahead
		}
	}
	return r
}

// writes returns what is to be written for r to be the latest record: r, and before it the reservation that
// it relies on, unless another record has relied on that already. The process that wrote the
// reservation may have died, or the disk may have failed, before it was on the disk.
func (c contents) writes(r *record) []placed {
	if last := c.latest; last != nil && last.reservation && !r.reservation {
		return []placed{{last, 1 - c.free}, {r, c.free}}
	}
	return []placed{{r, c.free}}
}
