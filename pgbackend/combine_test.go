package pgbackend

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// pairOf returns requests for the second and the first of two names. Their rows are in the table,
// also in this order.
func pairOf(t *testing.T, d *driver) (second, first *backend.Request) {
	t.Helper()
	second, first = raw.Request(t, time.Minute), raw.Request(t, time.Minute)
	second.Key += "/b"
	first.Key += "/a"
	second.Queue, first.Queue = false, false
	for _, req := range []*backend.Request{second, first} {
		raw.Release(t, d, raw.Acquire(t, d, req))
	}
	return second, first
}

// TestSetMeetsAnotherChange acquires two names while another client takes the first one.
func TestSetMeetsAnotherChange(t *testing.T) {
	t.Parallel()
	s := testenv.NewPostgres(t)
	d, conn := opened(t, s.URL), connected(t, s.URL)
	second, first := pairOf(t, d)
	exec(t, conn, `BEGIN`)
	exec(t, conn, `UPDATE dlock SET owner = 'x', expires = clock_timestamp() + interval '1 hour',
		version = version + 1 WHERE name = $1`, name(first.Key))
	type answer struct {
		failed int
		err    error
	}
	answered := make(chan answer)
	go func() {
		_, failed, err := d.AcquireAll(t.Context(), []*backend.Request{second, first})
		answered <- answer{failed, err}
	}()
	awaitLocked(t, s.URL)
	other := connected(t, s.URL)
	exec(t, other, `SELECT FROM dlock WHERE name = $1 FOR UPDATE NOWAIT`, name(second.Key))
	exec(t, conn, `COMMIT`)
	got := <-answered
	raw.WantIs(t, "AcquireAll of a lock that was taken meanwhile", got.err, backend.ErrNotAcquired)
	if got.failed != 1 {
		t.Errorf("the error is about request %d, want 1", got.failed)
	}
	raw.Release(t, d, raw.Acquire(t, d, second))
}

// TestLockedRowDelaysNoOtherRelease releases two locks while another client has locked the row of
// one. No statement waits for it, because the answers come together.
func TestLockedRowDelaysNoOtherRelease(t *testing.T) {
	t.Parallel()
	s := testenv.Postgres(t)
	d, conn := opened(t, s.URL), connected(t, s.URL)
	second, first := pairOf(t, d)
	grants, _, err := d.AcquireAll(t.Context(), []*backend.Request{second, first})
	if err != nil {
		t.Fatal(err)
	}
	exec(t, conn, `BEGIN`)
	exec(t, conn, `SELECT FROM dlock WHERE name = $1 FOR UPDATE`, name(first.Key))
	errs := d.ReleaseAll(t.Context(), grants)
	raw.WantIs(t, "ReleaseAll of the other lock", errs[0], nil)
	raw.WantIs(t, "ReleaseAll of the lock with a locked row", errs[1], errLocked)
	exec(t, conn, `COMMIT`)
	raw.Release(t, d, grants[1])
}

// TestRepeatedSetWithAShorterTerm repeats an AcquireAll when the rows have longer terms already.
func TestRepeatedSetWithAShorterTerm(t *testing.T) {
	t.Parallel()
	d := opened(t, testenv.Postgres(t).URL)
	second, first := pairOf(t, d)
	reqs := []*backend.Request{second, first}
	var fences [2]uint64
	for range 2 {
		grants, _, err := d.AcquireAll(t.Context(), reqs)
		if err != nil {
			t.Fatal(err)
		}
		for i, g := range grants {
			if fences[i] > 0 && g.Fence != fences[i] {
				t.Errorf("fence %d after %d", g.Fence, fences[i])
			}
			fences[i], reqs[i].TTL = g.Fence, reqs[i].TTL/2
		}
	}
	for _, req := range reqs {
		raw.Release(t, d, &backend.Grant{Request: *req})
	}
}

// TestTooManyLocksInOneStep checks that the core acquires very many locks one by one.
func TestTooManyLocksInOneStep(t *testing.T) {
	t.Parallel()
	d := opened(t, testenv.Postgres(t).URL)
	_, _, err := d.AcquireAll(t.Context(), make([]*backend.Request, maxBatch+1))
	raw.WantIs(t, "AcquireAll", err, backend.ErrUnsupported)
}
