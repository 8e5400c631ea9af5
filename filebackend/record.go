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

// The reason for two slots and for reservations is that a crash at any byte of any write, and a
// power cut at any time, leave a file with a usable counter.
//
// A lock file has two slots of a page each, so that a torn write of one slot leaves the other one.
// A slot may have a record: the last grant that was written there. Only the holder of the lock
// writes the file, one slot in one write.
//
// A power cut may undo every write that was not synced. So each record has a ceiling: no fence
// above it is granted before a record with a higher ceiling is on the disk. A synced record is a
// reservation. Its slot stays as it is, and grants up to its ceiling are written to the other slot,
// unsynced. The next reservation takes that other slot, and the two slots change roles.
//
// When a reservation is on the disk, its process confirms it at the end of the slot. The process
// may have died before, or the disk may have failed. So the next grant writes an unconfirmed
// reservation again, and syncs it, before it writes the other slot. After another boot, or if a
// slot is unreadable, the counter continues above the ceiling. These are the slots after each
// grant; R is a reservation, and in brackets a record that was written again:
//
//	grant                              slot 0  slot 1  synced
//	first                              R1              R1
//	second                             R1      2
//	above the ceiling                  R1      R3      R3
//	the same, and its process dies     R4      R3      perhaps
//	above the ceiling                  [R4]    R5      R4, then R5
//
// A record has these fields. Numbers are big-endian.
//
//	offset  size  field
//	0       8     magic
//	8       4     checksum (CRC-32C) of all bytes after it
//	12      4     length of the record
//	16      8     fence
//	24      8     ceiling
//	32      8     since, in microseconds since 1970
//	40      1     1 for a reservation, otherwise 0
//	41            boot, key, owner and meta, each with its length in 2 bytes before it
//
// The last 5 bytes of a slot are 1 and the checksum of its record if that is confirmed.
const (
	slotSize = 4096
	fileSize = 2 * slotSize

	// magic begins every slot. Another layout of the record would have another number.
	magic = "dlock-1\n"
	// fixedSize is the size of the fields before the texts of a record: magic, checksum, length,
	// fence, ceiling, since, reservation.
	fixedSize = len(magic) + 4 + 4 + 8 + 8 + 8 + 1
	// maxTexts limits the texts before the meta: a boot, a key of a prefix and a name of 512 bytes
	// each, and an owner. The meta gets the rest of the slot.
	maxTexts = 64 + 1024 + 64
	// confirmSize is the size of a confirmation.
	confirmSize = 5
	// ahead is how far a reservation reaches beyond the clock, in fences, which are microseconds.
	ahead = uint64(10 * time.Second / time.Microsecond)
	// minAhead is the minimum number of fences that a reservation covers, if they are ahead of the
	// clock.
	minAhead = 1024
)

// checksum returns the CRC-32C of body. The first call of MakeTable builds the table, for about
// 0.2 ms, and any other call returns it.
func checksum(body []byte) uint32 {
	return crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli))
}

// record is one grant, as it is stored in the lock file.
type record struct {
	fence, ceiling uint64
	since          time.Time // to the microsecond
	reservation    bool      // it is synced before its fence is granted
	boot           string    // the bootID of the machine when it was written
	key, owner     string
	meta           string
}

// encode returns the bytes of the record in a slot. It cuts a meta that is too long, and returns
// ErrInvalidName if the other texts are too long.
func (r *record) encode() ([]byte, error) {
	if len(r.boot)+len(r.key)+len(r.owner) > maxTexts {
		return nil, fmt.Errorf("%w: %.32q… is too long for a lock file",
			backend.ErrInvalidName, r.key)
	}
	texts := len(r.boot) + len(r.key) + len(r.owner) + len(r.meta)
	b := make([]byte, 0, min(slotSize, fixedSize+4*2+texts))
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
	b = appendText(b, cut(r.meta, slotSize-confirmSize-len(b)-2))
	body := b[len(magic)+4:]
	binary.BigEndian.PutUint32(body, uint32(len(b)))
	binary.BigEndian.PutUint32(b[len(magic):], checksum(body))
	return b, nil
}

// appendText appends the length of a text, in 16 bits, and the text.
func appendText(b []byte, text string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(text))), text...)
}

// cut returns at most limit bytes of text, and only whole characters.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}

// decode returns the record of a slot, or nil if the slot is empty or unreadable.
func decode(slot []byte) *record {
	if len(slot) < fixedSize || string(slot[:len(magic)]) != magic {
		return nil
	}
	sum := binary.BigEndian.Uint32(slot[len(magic):])
	body := slot[len(magic)+4:]
	length := int(binary.BigEndian.Uint32(body)) - len(magic) - 4
	if length < fixedSize-len(magic)-4 || length > len(body) ||
		checksum(body[:length]) != sum {
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

// cutText is the inverse of appendText. rest is what follows the text.
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

// confirmation returns the confirmation of the record at the beginning of slot.
func confirmation(slot []byte) []byte {
	return append([]byte{1}, slot[len(magic):len(magic)+4]...)
}

// isConfirmed reports whether the record of slot was on the disk when it was granted.
func isConfirmed(slot []byte) bool {
	return len(slot) == slotSize &&
		bytes.Equal(slot[slotSize-confirmSize:], confirmation(slot))
}

// contents are the contents of a lock file.
type contents struct {
	latest    *record // the record with the highest fence; nil in a new file
	confirmed bool    // the newest reservation is on the disk
	damaged   bool    // a slot is unreadable, or is being written
	fresh     bool    // a slot is empty: the file's name may not be on the disk
	free      int     // the slot for the next record
}

// placed is a record with its slot.
type placed struct {
	*record
	slot int
}

// parse returns the contents of a lock file. It returns ErrConflict if the file is not a lock file:
// the driver then does not write to it.
func parse(file []byte) (contents, error) {
	var c contents
	var reservation *record // the newest one
	for i := range 2 {
		slot := file[min(i*slotSize, len(file)):min((i+1)*slotSize, len(file))]
		r := decode(slot)
		if r == nil { // zeros are a slot that was never written, other bytes a torn write
			empty := len(bytes.Trim(slot, "\x00")) == 0
			c.fresh, c.damaged = c.fresh || empty, c.damaged || !empty
			continue
		}
		if r.reservation && (reservation == nil || r.fence > reservation.fence) {
			reservation, c.free, c.confirmed = r, 1-i, isConfirmed(slot)
		}
		if c.latest == nil || r.fence > c.latest.fence {
			c.latest = r
			if reservation == nil {
				c.free = 1 - i
			}
		}
	}
	if c.latest == nil && !isUnfinished(file) || len(file) > fileSize {
		return contents{}, fmt.Errorf("%w: it is not a lock file of dlock", backend.ErrConflict)
	}
	return c, nil
}

// isUnfinished reports whether a crash during the first write may have left this file: it begins
// with the magic, or is a beginning of the magic, perhaps followed by zeros.
func isUnfinished(file []byte) bool {
	written := bytes.TrimRight(file, "\x00")
	return bytes.HasPrefix(written, []byte(magic)) || strings.HasPrefix(magic, string(written))
}

// next returns the record after c in this boot of the machine, without its texts. If boot is empty,
// nothing is known about earlier boots, so every record is a reservation for itself. The fence
// follows the clock, so that a new file continues above a removed one; it increases even if the
// clock was set back.
//
// The ceiling follows the clock, too. With two boots that take turns, as a machine and a container
// with its own boot ID may, each of them continues above the ceiling of the other one. A ceiling
// relative to the fence would drive the fences away from the clock.
func (c contents) next(boot string, now time.Time) *record {
	clock := uint64(max(now.UnixMicro()-backend.FenceEpoch, 1))
	r := &record{boot: boot, since: now, fence: clock}
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
			r.ceiling = max(clock+ahead, r.fence+minAhead)
		}
	}
	return r
}

// writes returns the records to write so that r becomes the latest one. An unconfirmed reservation
// comes first, also if r is a reservation itself: r takes the slot of the only one that is certain.
func (c contents) writes(r *record) []placed {
	if last := c.latest; last != nil && last.reservation && !c.confirmed {
		return []placed{{last, 1 - c.free}, {r, c.free}}
	}
	return []placed{{r, c.free}}
}
