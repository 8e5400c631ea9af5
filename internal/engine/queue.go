package engine

import (
	"time"

	"github.com/dlock-go/dlock/backend"
)

// line is the local queue of one key. At its front stands an acquisition, or a waiter that received
// its turn and has no acquisition yet. The other waiters have sent no request: on the server one
// process is one contender. A shared acquisition or a permit stays at the front until its grant. An
// exclusive one stays until its release begins, or until its loss, its Export or its Downgrade.
// e.mu guards the line. It exists while it has a front, a waiter, or a shared grant that readers
// may join, and then until another line ends: see lineOf.
type line struct {
	lock        *Lock        // has the key, and the mode and limit of the front or of the last one
	isTaken     bool         // there is a front
	writers     int32        // waiters for an exclusive lock
	readers     *acquisition // the newest shared grant, which readers may join; nil: there is none
	first, last *waiter
}

// waiter is a Lock that waits in a line. A channel of turns would cost one more allocation than
// turn and served.
type waiter struct {
	lock       *Lock
	line       *line
	joined     time.Time
	turn       turn          // does not change once served is closed
	served     chan struct{} // closed when the waiter has received its turn
	prev, next *waiter
}

// turnKind is what a waiter receives, mostly when it reaches the front.
type turnKind uint8

const (
	requestTurn turnKind = iota // to send requests
	silentTurn                  // the same, and the server has not answered for a TTL of the front
	entryTurn                   // an acquisition that may have a queue entry on the server
	grantTurn                   // a tenure of an acquisition that is granted
)

// turn is what a waiter receives.
type turn struct {
	kind    turnKind
	gap     time.Duration // of requestTurn: the pause before the first request
	silence *silence      // of silentTurn
	acq     *acquisition  // of entryTurn and grantTurn
	tenure  *tenure       // of grantTurn
}

// place is what a Lock receives when it comes to the line of its key: a waiter, a tenure of a grant
// that it shares, or the front of the line. The front of no line is for a request outside of it.
type place struct {
	line   *line
	waiter *waiter
	tenure *tenure
}

// join stands in the line of l. A caller that does not wait may get errHeldHere instead of a place.
// A reader shares a grant only while the front is empty and no waiter stands in the line, so it
// overtakes no writer of this client. e.mu must be held.
func (e *Engine) join(l *Lock, wait bool) (place, error) {
	ln := e.lineOf(l)
	switch {
	case !ln.isTaken && ln.first == nil && ln.readers.canAdmit(l):
		return place{tenure: ln.readers.admit(l)}, nil
	case !ln.isTaken && !wait && l.mode() == backend.Exclusive && ln.readers != nil:
		return place{}, errHeldHere
	case !ln.isTaken:
		ln.take(l)
		return place{line: ln}, nil
	case ln.isOutside(l, wait):
		return place{}, nil
	case !wait:
		return place{}, errHeldHere
	}
	return place{waiter: ln.append(l)}, nil
}

// take puts l at the front of ln. e.mu must be held.
func (ln *line) take(l *Lock) { ln.lock, ln.isTaken = l, true }

// isOutside reports whether l sends its request at once although there is a lock at the front. A
// semaphore and a mutex of one name are a conflict, and so are two semaphores with different
// limits: the server reports it. The limit of a mutex is 0. A caller that does not wait may get a
// permit, or share the lock with other readers, while another caller of this client requests it. It
// does not overtake a writer that waits in ln. e.mu must be held.
func (ln *line) isOutside(l *Lock, wait bool) bool {
	if l.Limit != ln.lock.Limit {
		return true
	}
	return !wait && l.mode() == ln.lock.mode() && l.mode() != backend.Exclusive &&
		ln.writers == 0
}

// append adds a waiter at the end of ln. e.mu must be held.
func (ln *line) append(l *Lock) *waiter {
	w := &waiter{lock: l, line: ln, joined: time.Now(), served: make(chan struct{}), prev: ln.last}
	if ln.last == nil {
		ln.first = w
	} else {
		ln.last.next = w
	}
	ln.last = w
	ln.countWriter(w, 1)
	return w
}

// countWriter adds n to the number of writers in ln if w is one. e.mu must be held.
func (ln *line) countWriter(w *waiter, n int32) {
	if w.lock.mode() == backend.Exclusive {
		ln.writers += n
	}
}

// lineOf returns the line for l, and makes it if there is none. It reuses the line that ended
// last, because an uncontended lock ends its line each time: this saves an allocation and 9 % of
// the time of a pair of Lock and Unlock on mem:. The caller must give it a front. e.mu must be
// held.
func (e *Engine) lineOf(l *Lock) *line {
	ln, idle := e.lines[l.Key], e.idle
	if ln == nil {
		if ln = idle; ln == nil {
			ln = new(line)
		} else {
			delete(e.lines, ln.lock.Key)
		}
		ln.lock = l
		e.lines[l.Key] = ln
	}
	if ln == idle {
		e.idle = nil
	}
	return ln
}

// endLine makes ln idle if it is empty, and forgets the line that was idle. e.mu must be held.
func (e *Engine) endLine(ln *line) {
	if ln.isTaken || ln.first != nil || ln.readers != nil || e.idle == ln {
		return
	}
	if e.idle != nil {
		delete(e.lines, e.idle.lock.Key)
	}
	e.idle = ln
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
	w.line.countWriter(w, -1)
}

// serve gives t to the first waiter of ln, or leaves the front empty. ln may be nil. e.mu must be
// held.
func (e *Engine) serve(ln *line, t turn) {
	if ln == nil {
		return
	}
	w := ln.first
	if w == nil {
		ln.isTaken = false
		e.endLine(ln)
		return
	}
	ln.take(w.lock)
	w.receive(t)
}

// receive takes w out of its line and gives it t. e.mu must be held.
func (w *waiter) receive(t turn) {
	w.remove()
	w.turn = t
	close(w.served)
}

// leave takes a from the front of its line, if it still stands there, and gives t to the first
// waiter. A second call has no effect, so each way in which a can end may call it. e.mu must be
// held.
func (a *acquisition) leave(t turn) {
	ln := a.line
	a.line = nil
	a.engine.serve(ln, t)
}

// takePlace removes a, or the waiter of its tenure t, from the front of the line and returns the
// line. It returns nil if the caller has no place there. t is nil if the caller has received none.
// e.mu must be held.
func (a *acquisition) takePlace(t *tenure) *line {
	place := &a.line
	if t != nil {
		place = &t.line
	}
	ln := *place
	*place = nil
	return ln
}

// handOff gives the grant to the first waiter of the line without a request, if Settings.Handoff
// and the age of the grant allow it. It reports whether it did. a must be granted. The waiter gets
// a pending tenure, which its Lock takes. Until then the scheduler renews the grant for it. e.mu
// must be held.
func (a *acquisition) handOff(now time.Time) bool {
	w := a.nextWaiter()
	if w == nil || !a.canHandOff(now) || !sameGrant(a.tenure.lock, w.lock) {
		return false
	}
	a.tenure.end(backend.ErrNotHeld) // no lease stands on it
	t := a.begin(w.lock, now, int(a.tenure.local)+1)
	a.schedule()
	w.receive(turn{kind: grantTurn, acq: a, tenure: t})
	return true
}

// nextWaiter returns the waiter that a hand-off serves, or nil. The front of a line of permits
// requests another permit, so the waiter behind it is served; it overtakes the front. e.mu must be
// held.
func (a *acquisition) nextWaiter() *waiter {
	if a.lock.mode() == backend.Permit {
		return a.engine.lines[a.lock.Key].firstWaiter()
	}
	return a.line.firstWaiter()
}

// open leaves the front of the line if the grant of a leaves room for another one, so that the next
// waiter sends its own request. Readers at the front of the line join the grant. e.mu must be held.
func (a *acquisition) open(now time.Time) {
	ln := a.line
	if ln == nil || a.mode == backend.Exclusive {
		return
	}
	if a.mode == backend.Shared && a.pin == loose {
		ln.readers = a
		for w := ln.first; w != nil && a.canAdmit(w.lock); w = ln.first {
			w.receive(turn{kind: grantTurn, acq: a, tenure: a.admit(w.lock)})
		}
	}
	a.leave(turn{kind: requestTurn})
}

// canAdmit reports whether a reader may share the grant of a, which may be nil. The limits of
// a hand-off count here, so that a stream of readers does not keep a writer of another process
// waiting. e.mu must be held.
func (a *acquisition) canAdmit(l *Lock) bool {
	return a != nil && a.state == granted && a.pin == loose && l.mode() == backend.Shared &&
		sameGrant(a.lock, l) && a.lock.MaxHold == 0 && l.MaxHold == 0 &&
		a.isYoung(a.engine.now())
}

// admit begins a tenure of a reader on the grant of a. e.mu must be held.
func (a *acquisition) admit(l *Lock) *tenure { return a.begin(l, a.engine.now(), 0) }

// closeToReaders ends the sharing of the grant of a. e.mu must be held.
func (a *acquisition) closeToReaders() {
	if ln := a.engine.lines[a.lock.Key]; ln != nil && ln.readers == a {
		ln.readers = nil
		a.engine.endLine(ln)
	}
}

// firstWaiter returns the first waiter of ln, or nil. ln may be nil. e.mu must be held.
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

const (
	// gapPart, pollGapPart and minGap are for servers without an order of waiters, which grant a
	// free lock to the first request. Waiters of other processes notice a release later than this
	// one. So a process that has kept a lock leaves it free for a fiftieth of that time, or a
	// twentieth if waiters poll. Without this gap, waiters of file: waited for up to ten seconds,
	// and of memcached: for a minute. A pause that is shorter than minGap would gain nothing: no
	// other process wakes in it.
	gapPart     = 50
	pollGapPart = 20
	minGap      = 100 * time.Microsecond
)

// turnAfterRelease is what the next waiter of the line receives after the release of a. e.mu must
// be held.
func (a *acquisition) turnAfterRelease() turn {
	e, t := a.engine, turn{kind: requestTurn}
	if a.tenure == nil || a.mode != backend.Exclusive || e.caps.Fair != backend.FairNo {
		return t
	}
	part := time.Duration(gapPart)
	if e.waiter == nil {
		part = pollGapPart
	}
	if gap := min(elapsed(a.first.start, e.now()), maxHandoff) / part; gap >= minGap {
		t.gap = gap
	}
	return t
}

// canHandOff reports whether the grant may be handed off once more. e.mu must be held.
func (a *acquisition) canHandOff(now time.Time) bool {
	return a.pin == loose && int(a.tenure.local) < a.tenure.lock.Handoff && a.isYoung(now)
}

// isYoung reports whether the grant is young enough for another holder in this process. The age
// counts from the first tenure, so a chain of hand-offs ends. e.mu must be held.
func (a *acquisition) isYoung(now time.Time) bool {
	l := a.tenure.lock
	return elapsed(a.term.Sent, now) < (a.term.TTL-l.LockDelay)/2 &&
		elapsed(a.first.start, now) < min(l.TTL/handoffPart, maxHandoff)
}

// allowsHandoff reports whether a lock with these settings takes part in hand-offs.
func (s *Settings) allowsHandoff() bool {
	return s.Handoff > 0 && !s.Fair && !s.NoRenewal && s.MinHold == 0
}

// sameGrant reports whether a grant for one of the locks serves the other as well. The server has
// stored the TTL, with the lock-delay, and the meta of the grant, so the next holder must have the
// same.
func sameGrant(a, b *Lock) bool {
	return a.allowsHandoff() && b.allowsHandoff() && sameKind(a, b) &&
		a.TTL == b.TTL && a.LockDelay == b.LockDelay && a.Meta == b.Meta
}

// sameKind reports whether two locks of one key are of one kind.
func sameKind(a, b *Lock) bool { return a.mode() == b.mode() && a.Limit == b.Limit }

// sameEntry reports whether a queue entry for one of the locks serves the other as well.
func sameEntry(a, b *Lock) bool {
	return sameKind(a, b) &&
		a.TTL == b.TTL && a.LockDelay == b.LockDelay && a.Fair == b.Fair && a.Meta == b.Meta
}

// transferEntry gives a, with its queue entry on the server, to the first waiter of the line. It
// reports whether it did. The request stays as it is, because sameEntry covers all that it
// contains. An owner whose loss the server has reported is not used again. Neither is one with an
// attempt that had no answer: the server may have granted it, and each waiter that repeated the
// attempt would prolong that grant. e.mu must be held.
func (a *acquisition) transferEntry() bool {
	w := a.line.firstWaiter()
	if w == nil || a.engine.closing.Err() != nil || a.reason != nil || a.uncertain ||
		a.notProlonged || !a.request.Queue || !sameEntry(a.lock, w.lock) {
		return false
	}
	a.lock = w.lock
	w.receive(turn{kind: entryTurn, acq: a})
	return true
}
