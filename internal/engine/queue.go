package engine

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// line is the local queue of one key. It exists while an acquisition stands at its front, or a
// waiter that received its turn and has no acquisition yet. The other waiters have sent no
// request: on the server one process is one contender. e.mu guards it.
type line struct {
	key         string
	first, last *waiter
}

// waiter is a Lock that waits in a line.
type waiter struct {
	lock       *Lock
	line       *line
	joined     time.Time
	turn       chan turn // of one element
	prev, next *waiter
}

// turnKind is what a waiter receives when it reaches the front.
type turnKind uint8

const (
	requestTurn turnKind = iota // to send requests
	silentTurn                  // the same, and the server has not answered for a TTL
	entryTurn                   // an acquisition that may have a queue entry on the server
	grantTurn                   // a tenure of an acquisition that is granted
)

// turn is what a waiter receives.
type turn struct {
	kind   turnKind
	acq    *acquisition // of entryTurn and grantTurn
	tenure *tenure      // of grantTurn
}

// join stands in the line of l. The waiter is nil if the caller is at the front. A caller that
// does not wait gets errHeldHere instead of a place. e.mu must be held.
func (e *Engine) join(l *Lock, wait bool) (*line, *waiter, error) {
	ln := e.lines[l.Key]
	switch {
	case ln == nil:
		return e.newLine(l.Key), nil, nil
	case !wait:
		return nil, nil, errHeldHere
	}
	w := &waiter{lock: l, line: ln, joined: time.Now(), turn: make(chan turn, 1), prev: ln.last}
	if ln.last == nil {
		ln.first = w
	} else {
		ln.last.next = w
	}
	ln.last = w
	return ln, w, nil
}

// newLine makes the line of a key. It reuses the line that ended last, because an uncontended lock
// makes a line each time: this saves one of 10 allocations and 5 % of the time on mem:. e.mu must
// be held.
func (e *Engine) newLine(key string) *line {
	ln := e.spare
	e.spare = nil
	if ln == nil {
		ln = new(line)
	}
	ln.key = key
	e.lines[key] = ln
	return ln
}

// remove takes w out of its line. e.mu must be held.
func (w *waiter) remove() {
	if w.prev == nil {
		w.line.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		w.line.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next = nil, nil
}

// serve gives t to the first waiter of ln, or ends the line. e.mu must be held.
func (e *Engine) serve(ln *line, t turn) {
	w := ln.first
	if w == nil {
		delete(e.lines, ln.key)
		e.spare = ln
		return
	}
	w.remove()
	w.turn <- t
}

// leave takes a from the front of its line, if it still stands there. e.mu must be held.
func (a *acquisition) leave(kind turnKind) {
	if ln := a.line; ln != nil {
		a.line = nil
		a.engine.serve(ln, turn{kind: kind})
	}
}

// takePlace removes a, or the waiter of its tenure, from the front of the line and returns the
// line. e.mu must be held.
func (a *acquisition) takePlace() *line {
	place := &a.line
	if a.tenure != nil {
		place = &a.tenure.line // it ended before the caller took it
	}
	ln := *place
	*place = nil
	return ln
}

// await blocks until w has its turn, ctx ends or Close begins. done is the channel of ctx, which
// the caller has read before w joined the line, because a user's context may block.
func (e *Engine) await(ctx context.Context, done <-chan struct{}, w *waiter) (turn, error) {
	select {
	case t := <-w.turn:
		return t, nil
	case <-done:
		e.abandon(w)
		return turn{}, ContextError(ctx)
	case <-e.closing.Done():
		e.abandon(w)
		return turn{}, backend.ErrClosed
	}
}

// abandon takes w out of its line. If w has received its turn in the same instant, the turn
// passes to the next waiter.
func (e *Engine) abandon(w *waiter) {
	e.mu.Lock()
	defer e.unlock()
	select {
	case t := <-w.turn:
		switch t.kind {
		case grantTurn:
			t.acq.discard(time.Now())
		case entryTurn:
			t.acq.giveUp(nil)
		default:
			e.serve(w.line, t)
		}
	default:
		w.remove()
	}
}

// discard frees an acquisition with a tenure that no lease will stand on. e.mu must be held.
func (a *acquisition) discard(now time.Time) {
	switch {
	case !a.live(): // the tenure was lost before its waiter took it
		a.engine.serve(a.takePlace(), turn{kind: requestTurn})
	case !a.handOff(now):
		a.tenure.end(backend.ErrNotHeld)
		a.releaseInBackground()
	}
}

// handOff gives the grant to the first waiter of the line without a request, if Settings.Handoff
// and the age of the grant allow it. It reports whether it did. a must be granted, e.mu must be
// held.
func (a *acquisition) handOff(now time.Time) bool {
	w := a.line.firstWaiter()
	if w == nil || !a.canHandOff(now) || !sameGrant(a.tenure.lock, w.lock) {
		return false
	}
	w.remove()
	a.tenure.end(backend.ErrNotHeld) // no lease stands on it
	t := a.begin(w.lock, now, int(a.tenure.local)+1)
	a.schedule()
	w.turn <- turn{grantTurn, a, t}
	return true
}

// firstWaiter returns the first waiter of ln, or nil. ln may be nil.
func (ln *line) firstWaiter() *waiter {
	if ln == nil {
		return nil
	}
	return ln.first
}

const (
	// handoffPart and maxHandoff limit how long a process keeps a lock by hand-offs, so that
	// other processes get their turn.
	handoffPart = 10
	maxHandoff  = 100 * time.Millisecond
)

// canHandOff reports whether the grant is young enough for a hand-off. e.mu must be held.
func (a *acquisition) canHandOff(now time.Time) bool {
	l := a.tenure.lock
	return int(a.tenure.local) < l.Handoff &&
		elapsed(a.term.Sent, now) < (a.term.TTL-l.LockDelay)/2 &&
		elapsed(a.first.start, now) < min(l.TTL/handoffPart, maxHandoff)
}

// allowsHandoff reports whether a lock with these settings takes part in hand-offs.
func (s *Settings) allowsHandoff() bool {
	return s.Handoff > 0 && !s.Fair && !s.NoRenewal && s.MinHold == 0
}

// sameGrant reports whether a grant for one of the locks serves the other as well.
func sameGrant(a, b *Lock) bool {
	return a.allowsHandoff() && b.allowsHandoff() &&
		a.TTL == b.TTL && a.LockDelay == b.LockDelay && a.Meta == b.Meta
}

// sameEntry reports whether a queue entry for one of the locks serves the other as well.
func sameEntry(a, b *Lock) bool {
	return a.TTL == b.TTL && a.LockDelay == b.LockDelay && a.Fair == b.Fair && a.Meta == b.Meta
}

// transferEntry gives a, with its queue entry on the server, to the first waiter of the line. It
// reports whether it did. e.mu must be held.
func (a *acquisition) transferEntry() bool {
	w := a.line.firstWaiter()
	if w == nil || a.engine.closing.Err() != nil || a.reason != nil ||
		!a.request.Queue || !sameEntry(a.lock, w.lock) {
		return false
	}
	w.remove()
	a.lock = w.lock
	w.turn <- turn{kind: entryTurn, acq: a}
	return true
}
