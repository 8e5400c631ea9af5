package pgbackend

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// A row stays for its fence. When it has been free for the retention time, the fence of a new row,
// which is the server's time, is greater than all earlier ones, unless the clock was set back by
// more than that time.
const (
	retention = 24 * time.Hour
	// sweepEvery grants one page is checked. A page has more rows than that, so the table keeps up
	// with names that are used once.
	sweepEvery = 125
	sweepPage  = 500
)

// sweeper deletes the rows of names that are not used any more, in the background, page by page. At
// most one page of a driver is under way. Several drivers may check the same page: each row is
// deleted once, and none waits for another driver.
type sweeper struct {
	d      *driver
	ctx    context.Context // ends with the driver
	cancel context.CancelFunc
	grants atomic.Uint32
	pages  sync.WaitGroup

	mu     sync.Mutex // held for a page
	begun  bool
	after  []byte // the last name of the last page
	closed bool
}

func (s *sweeper) init(d *driver) {
	s.d = d
	s.ctx, s.cancel = context.WithCancel(context.Background())
}

// onGrant begins a page after some grants, unless one is being checked. The first page begins at
// the key of the grant, so that processes that end soon check different pages.
func (s *sweeper) onGrant(key string) {
	if s.grants.Add(1)%sweepEvery != 0 || !s.mu.TryLock() {
		return
	}
	if s.closed {
		s.mu.Unlock()
		return
	}
	if !s.begun {
		s.begun, s.after = true, name(key)
	}
	s.pages.Go(func() {
		defer s.mu.Unlock()
		_ = s.page(s.ctx) // the next one comes after some grants
	})
}

// page checks the next page. After the last page it begins again. s.mu must be held.
func (s *sweeper) page(ctx context.Context) error {
	type page struct {
		last  []byte
		count int
	}
	p, err := call(ctx, s.d, s.d.main,
		func(ctx context.Context, conn *pgx.Conn) (p page, err error) {
			err = conn.QueryRow(ctx, s.d.sql.sweepPage,
				s.after, sweepPage, retention.Microseconds()).Scan(&p.last, &p.count)
			return p, err
		})
	if err != nil {
		return err
	}
	if p.count < sweepPage {
		p.last = []byte{}
	}
	s.after = p.last
	return nil
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
