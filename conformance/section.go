package conformance

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// section is a critical section that detects a second holder.
type section struct {
	f      *fixture
	inside atomic.Int32

	mu        sync.Mutex
	intervals []interval // in the order of entry
}

// interval is a time for which a holder considered its lease valid.
type interval struct {
	from, to time.Time
	fence    uint64
}

func newSection(f *fixture) *section { return &section{f: f} }

// visit enters the section with lease, runs fn inside, and leaves.
func (s *section) visit(lease *dlock.Lease, fn func()) {
	i := s.enter(lease)
	if n := s.inside.Add(1); n != 1 {
		s.f.violation("%d holders are in the critical section", n)
	}
	fn()
	s.leave(i, time.Now())
	s.inside.Add(-1)
}

// stay enters the section with lease and stays until left is closed, at the latest when the lease
// is over. Time for which the machine stood still after the lease's deadline does not count.
func (s *section) stay(lease *dlock.Lease, entered chan<- struct{}, left <-chan struct{}) {
	i := s.enter(lease)
	close(entered)
	select {
	case <-left:
	case <-s.f.ctx.Done():
		s.f.Errorf("the holder was not told that its lease is over")
	}
	end := lease.Deadline()
	late := time.Since(end) - wakeUps*(s.f.meter.Worst(end)+wakeUp)
	s.leave(i, end.Add(max(0, late)))
}

const (
	// wakeUps is the number of goroutines that run, one after the other, until a holder knows that
	// its lease is over.
	wakeUps = 3
	// wakeUp is the time that a goroutine may need to begin to run on a machine that does not stand
	// still.
	wakeUp = 150 * time.Millisecond
)

func (s *section) enter(lease *dlock.Lease) (visit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.intervals = append(s.intervals, interval{from: time.Now(), fence: lease.Fence()})
	return len(s.intervals) - 1
}

func (s *section) leave(visit int, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.intervals[visit].to = at
}

// check checks the complete history: there were n visits, one after the other, with
// increasing fences.
func (s *section) check(n int) {
	s.f.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.intervals) != n {
		s.f.Errorf("%d visits of the critical section, want %d", len(s.intervals), n)
	}
	for i := 1; i < len(s.intervals); i++ {
		last, next := s.intervals[i-1], s.intervals[i]
		if next.from.Before(last.to) {
			s.f.violation("visit %d began %v before the end of the previous visit",
				i, last.to.Sub(next.from))
		}
		if s.f.caps.Fencing != backend.FenceNone && next.fence <= last.fence {
			s.f.violation("visit %d has the fence %d, the previous visit %d",
				i, next.fence, last.fence)
		}
	}
}
