package pgbackend

import (
	"context"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestCloseInABlackHole closes a driver whose requests were given up, and do not arrive.
func TestCloseInABlackHole(t *testing.T) {
	t.Parallel()
	h := testenv.NewHarness[testenv.TB](t, testenv.Postgres(t))
	d := opened(t, h.URL())
	req := raw.Request(t, time.Minute)
	g := raw.Acquire(t, d, req)
	heal := h.Cut(t)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := d.Renew(ctx, g); err == nil {
		t.Error("Renew through a black hole: nil")
	}
	begun := time.Now()
	if err := d.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if took := time.Since(begun); took > 10*time.Second { // pgx alone takes 15 s
		t.Errorf("Close took %v", took)
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
	d.sweeper.mu.Lock()
	defer d.sweeper.mu.Unlock()
	d.sweeper.after = []byte{}
	if err := d.sweeper.page(t.Context()); err != nil { // skips the row
		t.Errorf("page: %v", err)
	}
	exec(t, conn, `COMMIT`)
	_ = raw.Busy(t, d, req)
}
