package filebackend

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// disk is a lock file. synced is the content that survives a power cut for certain.
type disk struct {
	file, synced []byte
	highest      uint64 // highest fence granted so far
	syncs        int
}

var epoch = time.UnixMicro(backend.FenceEpoch)

// grant writes the next record and returns its offset and its bytes.
func (d *disk) grant(t *testing.T, boot string, now time.Time) (offset int, b []byte) {
	t.Helper()
	writes := d.next(t, boot, now)
	for _, w := range writes {
		offset, b = d.write(t, w)
		if w.reservation {
			d.sync(w, b)
		}
	}
	d.highest = writes[len(writes)-1].fence
	return offset, b
}

// sync makes everything survive a power cut, and then confirms w, a reservation with the bytes b.
func (d *disk) sync(w placed, b []byte) {
	d.syncs++
	d.synced = d.file
	d.file = overlay(d.file, (w.slot+1)*slotSize-confirmSize, confirmation(b))
}

// next returns the records that the next grant writes.
func (d *disk) next(t *testing.T, boot string, now time.Time) []placed {
	t.Helper()
	c, err := parse(d.file)
	if err != nil {
		t.Fatal(err)
	}
	r := c.next(boot, now)
	if r.fence <= d.highest {
		t.Fatalf("fence %d after %d", r.fence, d.highest)
	}
	r.key, r.owner, r.meta = "key", strings.Repeat("f", 32), "meta"
	return c.writes(r)
}

// write writes a record without a sync.
func (d *disk) write(t *testing.T, w placed) (offset int, b []byte) {
	t.Helper()
	b, err := w.encode()
	if err != nil {
		t.Fatal(err)
	}
	d.file = overlay(d.file, w.slot*slotSize, b)
	return w.slot * slotSize, b
}

// overlay returns file with b written at offset.
func overlay(file []byte, offset int, b []byte) []byte {
	out := make([]byte, max(len(file), offset+len(b)))
	copy(out, file)
	copy(out[offset:], b)
	return out
}

// check fails the test unless the next fence is higher than all earlier fences, although the clock
// has gone back.
func check(t *testing.T, file []byte, boot string, highest uint64, what string) {
	t.Helper()
	c, err := parse(file)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if highest > 0 && c.latest == nil {
		t.Fatalf("%s: no record is readable", what)
	}
	if fence := c.next(boot, epoch).fence; fence <= highest {
		t.Fatalf("%s: fence %d after %d", what, fence, highest)
	}
}

// TestCrashAtEveryByte writes grants, some of them reservations, and stops each write at each byte.
// The file stays readable, and no fence is granted twice in the same boot. After a power cut, which
// loses all unsynced bytes, no fence is granted twice in the next boot either.
func TestCrashAtEveryByte(t *testing.T) {
	t.Parallel()
	var d disk
	now := epoch.Add(time.Hour)
	for step := range 12 {
		if step%5 == 4 {
			now = now.Add(time.Minute) // beyond the ceiling
		}
		before := d
		offset, b := d.grant(t, "boot", now)
		for k := range len(b) {
			what := fmt.Sprintf("step %d, byte %d", step, k)
			check(t, overlay(before.file, offset, b[:k]), "boot", before.highest, what)
			garbage := append(bytes.Clone(b[:k]), bytes.Repeat([]byte{0xaa}, len(b)-k)...)
			if k >= len(magic) {
				file := overlay(before.file, offset, garbage)
				check(t, file, "boot", before.highest, what+", then garbage")
			}
			zeros := overlay(overlay(before.synced, offset, make([]byte, len(b))), offset, b[:k])
			check(t, zeros, "another", before.highest, what+", after a power cut")
		}
		check(t, d.file, "boot", d.highest, "written")
		check(t, d.synced, "another", d.highest, "after a power cut")
	}
}

// TestReservationThatWasNotSynced simulates a process that dies between the write of a reservation
// and its sync. The next processes do not rely on this reservation, so after a power cut their
// fences are not granted again.
func TestReservationThatWasNotSynced(t *testing.T) {
	t.Parallel()
	var d disk
	now := epoch.Add(time.Hour)
	for range 3 {
		d.grant(t, "boot", now)
	}
	for range 3 {
		now = now.Add(time.Minute) // beyond the ceiling
		writes := d.next(t, "boot", now)
		if len(writes) != 1 || !writes[0].reservation {
			t.Fatalf("%d writes, want a reservation", len(writes))
		}
		d.write(t, writes[0]) // then the process is killed
		for range 3 {
			d.grant(t, "boot", now)
			check(t, d.synced, "another", d.highest, "after a power cut")
		}
	}
}

// TestCertainReservationIsKept kills a process between the write of a reservation and its sync, and
// stops the write of the next reservation. After a power cut, the reservation before both is there.
func TestCertainReservationIsKept(t *testing.T) {
	t.Parallel()
	var d disk
	now := epoch.Add(time.Hour)
	for range 2 {
		d.grant(t, "boot", now)
		now = now.Add(time.Minute) // beyond the ceiling
	}
	d.write(t, d.next(t, "boot", now)[0]) // then the process is killed
	now = now.Add(time.Minute)
	for _, w := range d.next(t, "boot", now) {
		torn := overlay(d.synced, w.slot*slotSize, bytes.Repeat([]byte{0xaa}, 64))
		check(t, torn, "another", d.highest, fmt.Sprintf("slot %d is torn", w.slot))
		_, b := d.write(t, w)
		d.sync(w, b)
	}
}

// TestBootsThatTakeTurns lets two boots write a file in turns. Their fences increase, and stay
// close to the clock.
func TestBootsThatTakeTurns(t *testing.T) {
	t.Parallel()
	var d disk
	now := epoch.Add(time.Hour)
	for i := range 10_000 {
		now = now.Add(2 * time.Millisecond)
		d.grant(t, fmt.Sprint("boot", i%2), now)
		check(t, d.synced, "another", d.highest, "after a power cut")
	}
	limit := uint64(now.UnixMicro()-backend.FenceEpoch) + ahead + minAhead
	if d.highest > limit {
		t.Errorf("the fence is %d, want at most %d", d.highest, limit)
	}
}

// TestReservations checks that a busy lock needs one sync for many grants.
func TestReservations(t *testing.T) {
	t.Parallel()
	var d disk
	reservations := 0
	for i := range 1000 {
		d.grant(t, "boot", epoch.Add(time.Hour+time.Duration(i)*time.Millisecond))
		c, err := parse(d.file)
		if err != nil {
			t.Fatal(err)
		}
		if c.latest.reservation {
			reservations++
		}
	}
	if reservations != 1 || d.syncs != 1 {
		t.Errorf("%d reservations and %d syncs in a second, want 1", reservations, d.syncs)
	}
}

func TestRecordRoundTrip(t *testing.T) {
	t.Parallel()
	want := record{
		fence: 1, ceiling: 2, since: epoch.Add(time.Microsecond), reservation: true,
		boot: "b", key: strings.Repeat("k", 512), owner: strings.Repeat("0", 32),
		meta: strings.Repeat("é", slotSize),
	}
	b, err := want.encode()
	if err != nil {
		t.Fatal(err)
	}
	got := decode(b)
	if got == nil || len(b) > slotSize {
		t.Fatalf("decode of %d bytes failed", len(b))
	}
	if !strings.HasPrefix(want.meta, got.meta) || len(got.meta)%2 != 0 ||
		len(got.meta) < slotSize/2 {
		t.Errorf("meta has %d bytes and is not a prefix of whole characters", len(got.meta))
	}
	got.meta = want.meta
	if !got.since.Equal(want.since) {
		t.Errorf("since = %v, want %v", got.since, want.since)
	}
	got.since = want.since
	if *got != want {
		t.Errorf("decode(encode(r)) = %+v, want %+v", got, want)
	}
	want.key = strings.Repeat("k", slotSize)
	if _, err := want.encode(); !errors.Is(err, backend.ErrInvalidName) {
		t.Errorf("encode of a key that does not fit: %v", err)
	}
}

func TestParseForeign(t *testing.T) {
	t.Parallel()
	for _, file := range []string{
		"x", "a note\n", "dlock-2\n", "\x00\x00x",
		strings.Repeat("\x00", fileSize+1), strings.Repeat("x", 2*fileSize),
	} {
		if _, err := parse([]byte(file)); !errors.Is(err, backend.ErrConflict) {
			t.Errorf("parse(%.16q): %v, want ErrConflict", file, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	r := &record{fence: 7, ceiling: 9, key: "k", owner: "o"}
	b, err := r.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(overlay(b, slotSize, b))
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, file []byte) {
		c, err := parse(file)
		if err != nil {
			return
		}
		next := c.next("boot", epoch)
		if c.latest != nil && c.latest.ceiling < 1<<62 &&
			next.fence <= min(c.latest.fence, c.latest.ceiling) {
			t.Fatalf("fence %d after %+v", next.fence, c.latest)
		}
	})
}
