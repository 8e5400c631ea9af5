package redisbackend

import (
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
	// notices has at most one element, the newest notice. Only the hub sends, with its mu held. It
	// is nil unless the request is fair and may leave a queue entry.
	notices chan notice
	// fence is the fence of the latest grant that an answer or a notice has reported; 0 means none.
	// Acquire and Wait store it without the hub's mu.
	fence atomic.Uint64
}

// notice is the server's message that it has granted the queue entry of an acquisition. The zero
// notice means that messages may be missing, so that the waiter must make another attempt.
type notice struct {
	fence   uint64
	attempt int64 // the last attempt that refreshed the entry before the grant
}

func newAcquisition(req *backend.Request) *acquisition {
	a := &acquisition{name: req.Key, lost: req.Lost}
	if req.Fair && req.Queue {
		a.notices = make(chan notice, 1)
	}
	return a
}

// position is the State of a Busy: from where on the messages of the server matter to a waiter. The
// driver does not change it after it has returned the Busy.
type position struct {
	*acquisition
	lock    string    // the key of the lock
	sent    time.Time // when the answered Acquire was sent
	attempt int64     // the number of that Acquire; 0 without a queue entry
	// changed is closed if a release was published after sent. It is nil if the driver was not
	// subscribed at that time.
	changed chan struct{}
}

// grant returns the grant that the server has given to req, and stores its fence. lose compares
// that fence.
func (p *position) grant(req *backend.Request, fence uint64) *backend.Grant {
	p.fence.Store(fence)
	return &backend.Grant{Request: *req, Term: newTerm(req, p.sent), Fence: fence}
}

// admit registers an acquisition before its request is sent, so that no message about it arrives
// too early. It registers a repeated Acquire only once. The returned position marks from where on
// messages count.
//
// The hub numbers the attempts of all acquisitions together. If each acquisition counted its own, a
// refused one would begin with 1 again after it was forgotten. Its next attempt would then have the
// number of an older message.
func (h *hub) admit(req *backend.Request, lock string) position {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.acquisitions[req.Owner]
	if a == nil || a.name != req.Key {
		a = newAcquisition(req)
		h.acquisitions[req.Owner] = a
	}
	p := position{acquisition: a, lock: lock}
	if a.notices != nil {
		h.attempts++
		p.attempt = h.attempts
	} else if t := h.topics[lock]; t != nil && t.state == topicSubscribed {
		p.changed = t.changed
	}
	return p
}

// forget removes an acquisition: later messages about it have no effect.
func (h *hub) forget(owner string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.acquisitions, owner)
}

// notify replaces the notice of a fair waiter by n. The hub's mu must be held, so that there is
// only one sender and notify does not block.
func (a *acquisition) notify(n notice) {
	if a.notices == nil {
		return
	}
	select {
	case <-a.notices:
	default:
	}
	a.notices <- n
}

// lose ends the acquisition of owner, whose grant with a fence was broken. It reports the loss
// through Request.Lost, and ends a Wait that has not received the grant yet. A message about an
// older grant has no effect on a newer one.
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
