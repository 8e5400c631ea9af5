package pgbackend

import (
	"runtime"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestCloseInABlackHole closes a driver with a request that does not arrive.
func TestCloseInABlackHole(t *testing.T) {
	t.Parallel()
	h := testenv.NewHarness[testenv.TB](t, testenv.Postgres(t))
	d := opened(t, h.URL()+"?timeout=1m")
	req := raw.Request(t, time.Hour)
	g := raw.Acquire(t, d, req)
	heal := h.Cut(t)
	failed := make(chan error)
	go func() {
		_, err := d.Renew(t.Context(), g)
		failed <- err
	}()
	for len(d.renewals.slots) == 0 {
		runtime.Gosched()
	}
	begun := time.Now()
	if err := d.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if took := time.Since(begun); took > patience { // the request lasts for a minute
		t.Errorf("Close took %v", took)
	}
	if err := <-failed; err == nil {
		t.Error("Renew through a black hole: nil")
	}
	heal()
	other := opened(t, h.URL())
	raw.Release(t, other, g)
}

// TestSweepWaitsForNoRow sweeps while a name that was free for a day is locked again.
func TestSweepWaitsForNoRow(t *testing.T) {
	t.Parallel()
	s := testenv.NewPostgres(t)
	d, conn := opened(t, s.URL), connected(t, s.URL)
	req := raw.Request(t, time.Minute)
	raw.Release(t, d, raw.Acquire(t, d, req))
	exec(t, conn, `UPDATE dlock SET expires = expires - interval '2 days'`)
	exec(t, conn, `BEGIN`)
	exec(t, conn, `UPDATE dlock SET owner = 'x', expires = now() + interval '1 day'`)
	sweep(t, d) // skips the row
	exec(t, conn, `COMMIT`)
	_ = raw.Busy(t, d, req)
}

// sweep checks the first page of the table.
func sweep(t *testing.T, d *driver) {
	t.Helper()
	d.sweeper.mu.Lock()
	defer d.sweeper.mu.Unlock()
	d.sweeper.after = []byte{}
	if err := d.sweeper.page(t.Context()); err != nil {
		t.Errorf("page: %v", err)
	}
}

// TestTablesWithTheNamesOfQueries uses tables with the words of the statements as their names, so
// that no query of WITH hides the table. The sweep meets a lock that is taken meanwhile.
func TestTablesWithTheNamesOfQueries(t *testing.T) {
	t.Parallel()
	s := testenv.NewPostgres(t)
	conn := connected(t, s.URL)
	for _, table := range []string{
		"updated", "asked", "locked", "page", "stale", "deleted",
		"held", "fast", "unsettled", "next", "stored", "wanted", "taken", "made",
	} {
		d := opened(t, s.URL+"?table="+table)
		g := raw.Acquire(t, d, raw.Request(t, time.Minute))
		raw.WantIs(t, "RenewAll in "+table,
			d.RenewAll(t.Context(), []*backend.Grant{g})[0].Err, nil)
		raw.Release(t, d, g)
		second, first := raw.Request(t, time.Minute), raw.Request(t, time.Minute)
		second.Key += "/second"
		grants, _, err := d.AcquireAll(t.Context(), []*backend.Request{second, first})
		raw.WantIs(t, "AcquireAll in "+table, err, nil)
		for _, err := range d.ReleaseAll(t.Context(), grants) {
			raw.WantIs(t, "ReleaseAll in "+table, err, nil)
		}
		shared := []*backend.Request{second, first}
		crowd(t, d.takes, len(shared), func(i int) {
			raw.Release(t, d, raw.Acquire(t, d, shared[i]))
		})
		exec(t, conn, `UPDATE `+table+` SET expires = expires - interval '2 days'`)
		exec(t, conn, `BEGIN`)
		exec(t, conn, `UPDATE `+table+` SET owner = 'x', expires = now() + interval '1 day'`)
		sweep(t, d)
		exec(t, conn, `COMMIT`)
		_ = raw.Busy(t, d, raw.Request(t, time.Minute))
	}
}
