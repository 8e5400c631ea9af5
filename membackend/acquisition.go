package membackend

import (
	"time"

	"github.com/dlock-go/dlock/backend"
)

// state is the state of an acquisition in the space. The table has the events, and a dot for those
// that cannot happen.
//
//	        enqueue  grant  remove
//	absent  queued   held   .
//	queued  .        held   gone
//	held    .        .      gone
//	gone    .        .      .
//
// The events are:
//
//   - enqueue: a waiter finds the lock taken
//   - grant: the holders leave room for it, and no entry of the queue is in front of it
//   - remove: it is released or broken, or its term is over
//
// An acquisition that is gone never returns: a repeated Acquire of its owner makes another one,
// with another fence.
type state uint8

const (
	absent state = iota // new: the space does not have it yet
	queued              // it has a queue entry
	held                // it holds the lock
	gone                // the space does not have it any more; this is final
)

// acquisition is what the space keeps of one (Key, Owner). space.mu guards it, and must be held for
// every method but lose. Requests find an acquisition through the lock of its key, so there is no
// registry. A Grant that was returned is a pointer to grant, which the core reads without
// space.mu: a change of a held grant is another acquisition in its place, see replace.
type acquisition struct {
	state   state
	grant   backend.Grant // immutable once the state is held
	since   int64         // when it became a holder, in Unix ns: a time.Time would be larger
	expires time.Time     // the end of its term, or of its queue entry
	secret  *string       // of its ticket; nil: it was not exported
	changed chan struct{} // closed when the waiter should act; nil if no waiter needs it
}

// newAcquisition returns an absent acquisition with a term from now on.
func newAcquisition(req *backend.Request, now time.Time) *acquisition {
	a := &acquisition{}
	a.refresh(req, now)
	return a
}

// refresh gives a the term and the settings of a new request. The state must be absent or queued.
// An entry that is not refreshed expires after a TTL. The core repeats its Acquire about every
// third of the TTL, so only the entry of a waiter that has died or was stopped expires.
func (a *acquisition) refresh(req *backend.Request, now time.Time) {
	a.grant.Request, a.grant.Term = *req, backend.Term{Sent: now, TTL: req.TTL}
	a.expires = now.Add(req.TTL)
}

// become changes the state, and wakes the waiter. Every change of state is one call of become, so
// no change leaves a waiter asleep.
func (a *acquisition) become(next state) {
	a.state = next
	a.wake()
}

// wake ends the present Wait of the waiter. A Wait that begins later with the same *Busy ends at
// once, because the channel is the State of the *Busy.
func (a *acquisition) wake() {
	if a.changed != nil {
		close(a.changed)
		a.changed = nil
	}
}

// isExpired reports whether the term of a, or of its queue entry, is over at now. The end itself
// does not belong to the term.
func (a *acquisition) isExpired(now time.Time) bool { return !now.Before(a.expires) }

// prolong returns a term from now on, and keeps the grant until its end. It never shortens the
// grant: now is the beginning of the request, and a later request may have been executed before.
func (a *acquisition) prolong(ttl time.Duration, now time.Time) backend.Term {
	if end := now.Add(ttl); end.After(a.expires) {
		a.expires = end
	}
	return backend.Term{Sent: now, TTL: ttl}
}

// lose reports the loss of a removed grant. space.mu must not be held, because Lost is code of the
// core: it takes the mutex of the engine. Only a Break calls lose. The end of a term is no loss
// that a driver has to report, because the core ends the lease before it.
func (a *acquisition) lose(err error) {
	if a.grant.Lost != nil {
		a.grant.Lost(err)
	}
}
