package membackend

import (
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// space is a set of locks: what a server is to the other drivers. A request reads the clock once
// and passes the reading on as now, so that all its steps agree on what has expired.
type space struct {
	mu      sync.Mutex       // guards the space and all its locks
	fence   uint64           // of the newest grant, for all keys
	locks   map[string]*lock // by key; each has a holder
	sweepAt int              // the number of locks at which the next sweep is due
	watches map[*watch]bool  // of Watch
	broken  []*acquisition   // removed by a Break that is under way: see isBroken
}

// minSwept is the number of locks below which a sweep is not worth its time.
const minSwept = 1024

// spaces contains every space by its name. A space is never dropped, because its fences must go on
// from the last one.
var spaces sync.Map

// openSpace returns the space with this name, and makes it at its first use.
func openSpace(name string) *space {
	s, _ := spaces.LoadOrStore(name, &space{locks: map[string]*lock{}})
	return s.(*space)
}

// acquire makes one attempt to get the lock. A repetition by the holder comes first: it gets its
// grant again, with a new term, whatever the queue is. Any other request is granted only if the
// queue is empty, so that no stream of readers overtakes a writer. A caller that does not wait
// leaves no entry. s.mu must be held.
func (s *space) acquire(req *backend.Request, now time.Time) (*backend.Grant, error) {
	if s.isBroken(req) {
		return nil, errBroken
	}
	l := s.current(req.Key, now)
	if l == nil {
		s.sweep(now)
		return s.newLock(req, now), nil
	}
	if err := l.conflict(req); err != nil {
		return nil, err
	}
	switch a := find(l.holders, req.Owner); {
	case a != nil:
		again := a.grant // a copy: a grant is immutable once it is returned
		again.Term = a.prolong(req.TTL, now)
		return &again, nil
	case len(l.queue) == 0 && l.admits(req.Mode):
		a = newAcquisition(req, now)
		s.grantTo(l, a, now)
		return &a.grant, nil
	case !req.Queue:
		return nil, l.busy(nil, req.Mode, now)
	}
	return nil, l.busy(l.enqueue(req, now), req.Mode, now)
}

// renew prolongs the term of g if its owner holds the lock. A queue entry of the owner does not
// count, because a renewal must not become a grant. s.mu must be held.
func (s *space) renew(g *backend.Grant, now time.Time) (backend.Term, error) {
	if l := s.current(g.Key, now); l != nil {
		if a := find(l.holders, g.Owner); a != nil {
			return a.prolong(g.TTL, now), nil
		}
	}
	return backend.Term{}, backend.ErrLost
}

// release removes the grant or the queue entry of an owner. It does so for an entry, too, because
// its waiter may stand in front of readers that are admitted without it. s.mu must be held.
func (s *space) release(g *backend.Grant, now time.Time) error {
	l := s.current(g.Key, now)
	if l == nil || !l.remove(g.Owner) {
		return backend.ErrNotHeld
	}
	s.settle(l, now)
	return nil
}

// current returns the lock of key at now, or nil if it is free. It removes holders and queue
// entries with an expired term. A timer could do so earlier, but no request would be answered
// differently. s.mu must be held.
func (s *space) current(key string, now time.Time) *lock {
	l := s.locks[key]
	if l != nil && l.removeExpired(now) {
		s.settle(l, now)
		if len(l.holders) == 0 {
			return nil
		}
	}
	return l
}

// newLock makes the lock of req.Key, with req as its holder. s.mu must be held.
func (s *space) newLock(req *backend.Request, now time.Time) *backend.Grant {
	l := new(lock)
	l.holders = l.one[:0]
	l.first.refresh(req, now)
	s.locks[req.Key] = l
	s.grantTo(l, &l.first, now)
	return &l.first.grant
}

// grantTo makes a a holder of l, with the next fence. The waiter that become wakes receives the
// grant from grantOf, when s.mu is free. s.mu must be held.
func (s *space) grantTo(l *lock, a *acquisition, now time.Time) {
	s.fence++
	a.grant.Fence = s.fence
	a.since = now.UnixNano()
	a.become(held)
	l.holders = append(l.holders, a)
	s.tell(l.key())
}

// settle follows a removal: it grants l to the entries at the front of its queue, as far as they
// are admitted, and forgets l if it is free. It must run before s.mu is unlocked: each lock in the
// table has a holder, and busy relies on it. s.mu must be held.
func (s *space) settle(l *lock, now time.Time) {
	for len(l.queue) > 0 && l.admits(l.queue[0].grant.Mode) {
		a := l.queue[0]
		l.queue = l.queue[1:]
		s.grantTo(l, a, now)
	}
	s.tell(l.key())
	switch {
	case len(l.holders) == 0:
		delete(s.locks, l.key())
	case len(l.queue) > 0:
		l.queue[0].wake() // its Wait ends with the terms of the former holders
	}
}

// sweep removes all expired holders if the number of locks has doubled since the last sweep.
// Without it a name that expires and is never used again would use memory for ever. s.mu must be
// held.
func (s *space) sweep(now time.Time) {
	if len(s.locks) < s.sweepAt {
		return
	}
	for key := range s.locks {
		s.current(key, now)
	}
	s.sweepAt = max(minSwept, 2*len(s.locks))
}
