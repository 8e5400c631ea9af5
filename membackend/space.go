package membackend

import (
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// space is a set of locks: what a server is to the other drivers.
type space struct {
	mu      sync.Mutex              // guards the space and all its acquisitions
	fence   uint64                  // of the newest grant, for all keys
	holders map[string]*acquisition // by key; a key with waiters always has a holder
	sweepAt int                     // the number of holders at which the next sweep is due
}

// minSwept is the number of locks below which a sweep is not worth its time.
const minSwept = 1024

// spaces contains every space by its name. A space is never dropped, because its fences must go on
// from the last one.
var spaces sync.Map

// openSpace returns the space with this name, and makes it at its first use.
func openSpace(name string) *space {
	s, _ := spaces.LoadOrStore(name, &space{holders: map[string]*acquisition{}})
	return s.(*space)
}

// acquire makes one attempt to get the lock. s.mu must be held.
func (s *space) acquire(req *backend.Request, now time.Time) (*backend.Grant, error) {
	holder := s.currentHolder(req.Key, now)
	switch {
	case holder == nil:
		s.sweep(now)
		a := newAcquisition(req, now)
		s.grantTo(a, now)
		return &a.grant, nil
	case holder.grant.Owner == req.Owner:
		again := holder.grant // a copy: a grant is immutable once it is returned
		again.Term = holder.prolong(req.TTL, now)
		return &again, nil
	case req.Fair && req.Queue:
		own := holder.enqueue(req, now)
		return nil, holder.busy(position{own, queued}, now)
	}
	return nil, holder.busy(position{holder, held}, now)
}

// renew prolongs the term of g if its owner holds the lock. s.mu must be held.
func (s *space) renew(g *backend.Grant, now time.Time) (backend.Term, error) {
	holder := s.currentHolder(g.Key, now)
	if holder == nil || holder.grant.Owner != g.Owner {
		return backend.Term{}, backend.ErrLost
	}
	return holder.prolong(g.TTL, now), nil
}

// release removes the grant or the queue entry of an owner. s.mu must be held.
func (s *space) release(g *backend.Grant, now time.Time) error {
	holder := s.currentHolder(g.Key, now)
	switch {
	case holder == nil:
		return backend.ErrNotHeld
	case holder.grant.Owner != g.Owner:
		return holder.removeEntry(g.Owner, now)
	}
	s.removeHolder(holder, now)
	return nil
}

// currentHolder returns the holder of key at now, or nil. It removes a holder with an expired term.
// A timer could do so earlier, but no request would be answered differently. s.mu must be held.
func (s *space) currentHolder(key string, now time.Time) *acquisition {
	holder := s.holders[key]
	if holder != nil && holder.isExpired(now) {
		return s.removeHolder(holder, now)
	}
	return holder
}

// grantTo makes a the holder of its key, with the next fence. s.mu must be held.
func (s *space) grantTo(a *acquisition, now time.Time) {
	s.fence++
	a.grant.Fence = s.fence
	a.since = now
	a.become(held)
	s.holders[a.grant.Key] = a
}

// removeHolder removes a grant and wakes the waiters. It grants the lock to the first queue entry
// that has not expired, and returns the new holder, or nil if there is none. s.mu must be held.
func (s *space) removeHolder(holder *acquisition, now time.Time) *acquisition {
	holder.become(gone)
	for i, a := range holder.queue {
		if !a.isExpired(now) {
			a.queue = holder.queue[i+1:]
			s.grantTo(a, now)
			return a
		}
		a.become(gone)
	}
	delete(s.holders, holder.grant.Key)
	return nil
}

// sweep removes all expired holders if their number has doubled since the last sweep. Without it a
// name that expires and is never used again would use memory for ever. s.mu must be held.
func (s *space) sweep(now time.Time) {
	if len(s.holders) < s.sweepAt {
		return
	}
	for _, holder := range s.holders {
		if holder.isExpired(now) {
			s.removeHolder(holder, now)
		}
	}
	s.sweepAt = max(minSwept, 2*len(s.holders))
}
