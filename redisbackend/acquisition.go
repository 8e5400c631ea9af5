package redisbackend

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// acquisition is what the driver keeps of one (Key, Owner). It exists so that a message of the
// server reaches the waiter or the holder that it is about.
//
// It is registered from its first request until its end: see admit and forget. In between it has no
// state: the server alone decides whether the acquisition is queued or granted, and the core acts
// on each answer. A process can hold many locks, so an acquisition does not keep its keys: the
// driver makes them from the name again.
type acquisition struct {
	name string      // Request.Key
	lost func(error) // Request.Lost, or nil
	// fence is the fence of the latest grant that an answer or a notice has reported; 0 means none.
	// Acquire and Wait store it without the hub's mu.
	fence atomic.Uint64
	// The hub's mu must be held for the following fields. newest is the newest notice that Wait has
	// not taken; nil means none. arrived, of one element, wakes Wait for it; nil: Wait was not
	// called.
	newest  *notice
	arrived chan struct{}
}

// notice is the server's message that it has granted the queue entry of an acquisition. The zero
// notice means that messages may be missing, so that the waiter must make another attempt.
type notice struct {
	fence   uint64
	attempt int64 // the last attempt that refreshed the entry before the grant
}

// position is the State of a Busy: from where on the messages of the server matter to a waiter. The
// driver does not change it after it has returned the Busy.
type position struct {
	*acquisition
	sent    time.Time // when the answered Acquire was sent
	attempt int64     // the number of that Acquire; 0 without a queue entry
}

// grant returns the grant that the server has given to req for ttl, and stores its fence. lose
// compares that fence.
func (p *position) grant(req *backend.Request, fence uint64, ttl time.Duration) *backend.Grant {
	p.fence.Store(fence)
	return &backend.Grant{Request: *req, Term: newTerm(ttl, p.sent), Fence: fence}
}

// admit registers an acquisition before its request is sent, so that no message about it arrives
// too early. It registers a repeated Acquire only once. The returned position marks from where on
// messages count.
//
// The hub numbers the attempts of all acquisitions together. If each acquisition counted its own, a
// refused one would begin with 1 again after it was forgotten. Its next attempt would then have the
// number of an older message.
func (h *hub) admit(req *backend.Request) position {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.acquisitions[req.Owner]
	if a == nil || a.name != req.Key {
		a = &acquisition{name: req.Key, lost: req.Lost}
		h.acquisitions[req.Owner] = a
	}
	p := position{acquisition: a}
	if req.Queue {
		h.attempts++
		p.attempt = h.attempts
	}
	return p
}

// forget removes an acquisition: later messages about it have no effect.
func (h *hub) forget(owner string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.acquisitions, owner)
}

// notify replaces the notice for the waiter of a by n. The hub's mu must be held. The former notice
// is not missed: after n the waiter either makes an attempt, which shows what the server has
// granted, or has the newest grant.
func (a *acquisition) notify(n notice) {
	a.newest = &n
	signal(a.arrived) // no effect without a waiter, or if it is awake
}

// signal sends to a channel of one element, unless it is full or nil.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// await returns the next notice for the waiter of a. It blocks until there is one, or ctx ends. A
// notice may be about an earlier attempt; Wait compares their numbers. One goroutine at a time
// waits for an acquisition.
func (h *hub) await(ctx context.Context, a *acquisition) (notice, error) {
	for {
		n, arrived := h.take(a)
		if n != nil {
			return *n, nil
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			return notice{}, ctx.Err()
		}
	}
}

// take returns the newest notice for the waiter of a if there is one, and otherwise the channel on
// which the next one is signalled.
func (h *hub) take(a *acquisition) (*notice, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := a.newest
	a.newest = nil
	if a.arrived == nil {
		a.arrived = make(chan struct{}, 1)
	}
	return n, a.arrived
}

// lose ends the acquisition of owner, whose grant with a fence was broken. It reports the loss
// through Request.Lost, and ends a Wait that has not received the grant yet. A message about an
// older grant has no effect on a newer one. Request.Lost is code of the core and may block, so h.mu
// must not be held.
func (h *hub) lose(owner string, fence uint64) {
	h.mu.Lock()
	a := h.acquisitions[owner]
	if a == nil || a.fence.Load() > fence {
		h.mu.Unlock()
		return
	}
	delete(h.acquisitions, owner)
	a.notify(notice{})
	h.mu.Unlock()
	if a.lost != nil {
		a.lost(backend.ErrLost)
	}
}
