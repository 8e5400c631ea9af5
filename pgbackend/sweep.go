package pgbackend

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// The sweep deletes the rows of names that have not been used for long. A row stays for its fence.
// When it has been free for the retention time, the fence of a new row, which is the server's time,
// is greater than all earlier ones, unless the clock was set back by more than that time.
//
// Each acquisition pays for four rows of the table on average, whichever process makes it. So the
// whole table is checked in the time in which a quarter as many names are acquired as it has rows.
// The table then stays below 4/3 of the names of the last day (retention).
const (
	retention = 24 * time.Hour
	sweepOdds = 125 // one in so many acquisitions sweeps
	sweepPage = 500 // rows that a sweep checks
)

// sweeper checks the next page of the table in the background. A driver has at most one page under
// way. Several drivers check different pages, one after the other, and none waits for another one.
type sweeper struct {
	d      *driver
	ctx    context.Context // ends with the driver
	cancel context.CancelFunc
	pages  sync.WaitGroup

	mu     sync.Mutex // held for a page
	closed bool
}

func (s *sweeper) init(d *driver) {
	s.d = d
	s.ctx, s.cancel = context.WithCancel(context.Background())
}

// onGrant begins a page after one in sweepOdds grants, unless one is being checked. The caller does
// not wait for it.
func (s *sweeper) onGrant() {
	if rand.N(sweepOdds) > 0 || !s.mu.TryLock() {
		return
	}
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.pages.Go(func() {
		defer s.mu.Unlock()
		_, _ = s.page(s.ctx) // a later page finds what this one leaves
	})
}

// page checks the next page, unless another driver is checking it. It reports whether this was the
// last page; then the next one is the first. s.mu must be held.
func (s *sweeper) page(ctx context.Context) (last bool, err error) {
	return call(ctx, s.d, s.d.main,
		func(ctx context.Context, conn *pgx.Conn) (last bool, err error) {
			err = conn.QueryRow(ctx, s.d.sql.sweepPage,
				[]byte(sweepCursor), sweepPage, retention.Microseconds()).Scan(&last)
			return last, err
		})
}

// close ends the page that is being checked, and begins no more. It does not wait for the server,
// because call returns as soon as its context ends.
func (s *sweeper) close() {
	s.cancel()
	s.mu.Lock() // after the page
	s.closed = true
	s.mu.Unlock()
	s.pages.Wait()
}
