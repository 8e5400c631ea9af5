package mysqlbackend

import (
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// reader returns the request of a reader that waits.
func reader(key string) *backend.Request {
	return &backend.Request{
		Key: key, Owner: raw.NewOwner(), TTL: time.Minute, Mode: backend.Shared, Queue: true,
	}
}

// TestWriterBecomesAnEntry lets readers wait for two writers, which turns the rows of the writers
// into rosters. The writers can still renew and release their grants, alone and in a batch.
func TestWriterBecomesAnEntry(t *testing.T) {
	onEach(t, func(t *testing.T, s *testenv.Server, open openFunc) {
		t.Helper()
		d, other := open(t, s), open(t, s)
		var writers []*backend.Grant
		var readers []*backend.Request
		for _, name := range []string{"/a", "/b"} {
			req := raw.Request(t, time.Minute)
			req.Key += name
			g := acquire(t, d, req)
			r := reader(g.Key)
			_, err := other.Acquire(t.Context(), r)
			raw.WantIs(t, "Acquire of a reader", err, backend.ErrNotAcquired)
			writers, readers = append(writers, g), append(readers, r)
		}
		for i, g := range writers {
			if _, err := d.Renew(t.Context(), g); err != nil {
				t.Errorf("Renew of writer %d: %v", i, err)
			}
		}
		for i, r := range d.RenewAll(t.Context(), writers) {
			if r.Err != nil {
				t.Errorf("RenewAll of writer %d: %v", i, r.Err)
			}
		}
		for i, g := range writers {
			info, err := other.Inspect(t.Context(), g.Key)
			if err != nil || len(info.Holders) != 1 || info.Holders[0].Fence != g.Fence<<12 ||
				info.Waiters != 1 {
				t.Errorf("Inspect: %+v, %v", info, err)
			}
			raw.Release(t, d, g)
			raw.Release(t, other, acquire(t, other, readers[i]))
		}
	})
}

// TestRosterChangesAreCounted lets many owners change one roster at once. Each of them is there at
// the end, and each has another fence.
func TestRosterChangesAreCounted(t *testing.T) {
	onEach(t, func(t *testing.T, s *testenv.Server, open openFunc) {
		t.Helper()
		const owners = 20
		d, key := open(t, s), raw.Request(t, time.Minute).Key
		grants := make([]*backend.Grant, owners)
		var all sync.WaitGroup
		for i := range grants {
			all.Go(func() { grants[i], _ = d.Acquire(t.Context(), reader(key)) })
		}
		all.Wait()
		fences := make(map[uint64]bool)
		for _, g := range grants {
			if g == nil {
				t.Fatal("a reader was refused")
			}
			fences[g.Fence] = true
		}
		info, err := d.Inspect(t.Context(), key)
		if err != nil || len(info.Holders) != owners || len(fences) != owners {
			t.Errorf("%d holders and %d fences, %v", len(info.Holders), len(fences), err)
		}
		for _, g := range grants {
			raw.Release(t, d, g)
		}
	})
}
