package membackend

import (
	"context"
	"slices"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// position is the State of a *Busy: the waiter waits until acq leaves the state. With a queue entry
// that is its own acquisition, which is queued; otherwise it is the holder's, which is held. A
// change between Acquire and Wait is not missed, because no acquisition returns to a state.
type position struct {
	acq   *acquisition
	state state
}

// Wait implements backend.Waiter. The timer covers the end of the holder's term: an expired holder
// stays in the space until a request finds it.
func (d *driver) Wait(
	ctx context.Context, req *backend.Request, b *backend.Busy,
) (*backend.Grant, error) {
	if err := d.checkOpen(); err != nil {
		return nil, err
	}
	expired := time.NewTimer(b.RetryAfter)
	defer expired.Stop()
	p, _ := b.State.(position)
	changed := d.space.subscribe(p)
	defer d.space.unsubscribe(p)
	select {
	case <-changed:
	case <-expired.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return d.space.grantOf(req), nil
}

// subscribe returns a channel that is closed when the acquisition has left the state of p. The zero
// position has no such channel. Each subscribe needs an unsubscribe.
func (s *space) subscribe(p position) <-chan struct{} {
	if p.acq == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.state == held {
		p.acq.waiters++ // Inspect counts the queue entries and these
	}
	if p.acq.state != p.state {
		left := make(chan struct{})
		close(left)
		return left
	}
	if p.acq.changed == nil {
		p.acq.changed = make(chan struct{})
	}
	return p.acq.changed
}

// unsubscribe is the inverse of subscribe.
func (s *space) unsubscribe(p position) {
	if p.acq == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.state == held {
		p.acq.waiters--
	}
}

// grantOf returns the grant that req received as the first of the queue, with the term of its queue
// entry. It returns nil if req does not hold the lock: another Acquire is necessary.
func (s *space) grantOf(req *backend.Request) *backend.Grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	holder := s.currentHolder(req.Key, time.Now())
	if holder == nil || holder.grant.Owner != req.Owner {
		return nil
	}
	return &holder.grant
}

// enqueue appends an entry for req to the queue of holder a, or refreshes the entry of its owner.
// It returns the entry. space.mu must be held.
func (a *acquisition) enqueue(req *backend.Request, now time.Time) *acquisition {
	a.removeExpiredEntries(now)
	for _, entry := range a.queue {
		if entry.grant.Owner == req.Owner {
			entry.refresh(req, now)
			return entry
		}
	}
	entry := newAcquisition(req, now)
	entry.become(queued)
	a.queue = append(a.queue, entry)
	return entry
}

// removeEntry removes the queue entry of an owner from the queue of holder a, and wakes its waiter.
// space.mu must be held.
func (a *acquisition) removeEntry(owner string, now time.Time) error {
	a.removeExpiredEntries(now)
	i := slices.IndexFunc(a.queue, func(entry *acquisition) bool {
		return entry.grant.Owner == owner
	})
	if i < 0 {
		return backend.ErrNotHeld
	}
	a.queue[i].become(gone)
	a.queue = slices.Delete(a.queue, i, i+1)
	return nil
}

// removeExpiredEntries removes the entries that were not refreshed in time. A waiter that still
// waits at one wakes up and gets a new entry with its next Acquire. space.mu must be held.
func (a *acquisition) removeExpiredEntries(now time.Time) {
	a.queue = slices.DeleteFunc(a.queue, func(entry *acquisition) bool {
		if !entry.isExpired(now) {
			return false
		}
		entry.become(gone)
		return true
	})
}
