package pgbackend

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
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

// sweeper deletes the rows of names that are not used any more, in the background, page by page.
type sweeper struct {
	d       *driver
	timeout time.Duration
	ctx     context.Context // ends with the driver
	cancel  context.CancelFunc
	grants  atomic.Uint32
	pages   sync.WaitGroup

	mu     sync.Mutex // held for a page
	begun  bool
	after  []byte // the last name of the last page
	closed bool
}

func (s *sweeper) init(d *driver, timeout time.Duration) {
	s.d, s.timeout = d, timeout
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
		ctx, cancel := context.WithTimeout(s.ctx, s.timeout)
		defer cancel()
		_ = s.page(ctx) // the next one comes after some grants
	})
}

// page checks the next page. After the last page it begins again. s.mu must be held.
func (s *sweeper) page(ctx context.Context) error {
	var last []byte
	var count int
	err := s.d.do(ctx, func(ctx context.Context) error {
		return s.d.pool.QueryRow(ctx, s.d.sql.sweepPage, s.after, sweepPage,
			retention.Microseconds()).Scan(&last, &count)
	})
	if err != nil {
		return err
	}
	if count < sweepPage {
		last = []byte{}
	}
	s.after = last
	return nil
}

// close ends the page that is being checked, and begins no more.
func (s *sweeper) close() {
	s.cancel()
	s.mu.Lock() // after the page
	s.closed = true
	s.mu.Unlock()
	s.pages.Wait()
}
