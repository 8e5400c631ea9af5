package engine

import (
	"time"

	"github.com/dlock-go/dlock/backend"
)

// This file has the tables of states of acquisitions, tenures and leases. doc.go shows them.

// state is the state of an acquisition on the server, as far as the engine has learned. A state is
// about the grant, not about a lease: a hand-off ends a tenure and its leases, but the acquisition
// stays granted.
type state uint8

const (
	requesting state = iota // no grant yet; requests may be under way
	granted                 // the server's grant is in force, and a tenure stands on it
	kept                    // unlocked, but held on until the minimum hold is over
	orphaned                // ended by the clock, or a release had no answer; released later
	releasing               // its first release is under way
	settled                 // the release was answered; a repetition of it is planned
	repeating               // a repetition is under way
	gone                    // nothing is left to do
	states     = int(gone) + 1
)

var stateNames = [states]string{
	"requesting", "granted", "kept", "orphaned", "releasing", "settled", "repeating", "gone",
}

func (s state) String() string { return stateNames[s] }

// event is what happens to an acquisition.
type event uint8

const (
	grantEvent   event = iota // the server granted it and the grant is good
	keepEvent                 // its last lease was unlocked before its minimum hold was over
	orphanEvent               // its time is over by the clock
	lostEvent                 // the server reported that the grant is gone
	exportEvent               // the grant is another process's from now on
	releaseEvent              // a release of it begins
	silenceEvent              // a release had no answer
	settleEvent               // it is released or lost, but a request may still be executed
	finishEvent               // nothing is left to release
	events       = int(finishEvent) + 1
)

var eventNames = [events]string{
	"grant", "keep", "orphan", "lost", "export", "release", "silence", "settle", "finish",
}

func (e event) String() string { return eventNames[e] }

// none marks the cells of a table in which an event has no effect.
const none = 1<<8 - 1

// changes is the table of the states of an acquisition. An event without an effect came too late:
// for example a loss that is reported after the release has begun.
//
// An acquisition that was given up before its answer goes from requesting to releasing, because the
// server may have executed its request. A loss leads to settled instead of gone if an earlier
// request may still be executed: that request would acquire the lock again, for no holder. A first
// release without an answer leads back to orphaned, and a repetition without an answer back to
// settled. In both states the scheduler sends the next one. An orphan is finished without a release
// only if Close has begun and its lock-delay forbids a release: the server frees it at the end of
// its term.
var changes = [states][events]state{
	//           grant    keep  orphan    lost  export release    silence   settle   finish
	requesting: {granted, none, none, none, none, releasing, none, none, gone},
	granted:    {none, kept, orphaned, gone, gone, releasing, none, settled, none},
	kept:       {none, none, orphaned, gone, none, releasing, none, settled, none},
	orphaned:   {none, none, none, none, none, releasing, none, none, gone},
	releasing:  {none, none, none, none, none, none, orphaned, settled, gone},
	settled:    {none, none, none, none, none, repeating, none, none, none},
	repeating:  {none, none, none, none, none, none, settled, settled, gone},
	gone:       {none, none, none, none, none, none, none, none, none},
}

// on applies an event and reports whether it had an effect. Every change of state is one call of
// on. It removes a from the schedule if the new state has no next time. It also keeps the counts,
// so that Close and the scheduler need not go through the acquisitions. A grant that is not in
// force any more admits no reader. e.mu must be held.
func (a *acquisition) on(ev event) bool {
	next := changes[a.state][ev]
	if next == none {
		return false
	}
	a.engine.count(a.state, -1)
	a.engine.count(next, 1)
	if a.state == granted && a.lock.Mode == backend.Shared {
		a.closeToReaders()
	}
	a.state = next
	if next == releasing || next == repeating || next == gone {
		// Only an answer can be next, or nothing.
		a.unschedule()
	}
	return true
}

// count keeps e.live, e.open and e.freed. An acquisition that is requesting is not counted: its
// Lock is one of e.calls, for which Close waits as well. e.mu must be held.
func (e *Engine) count(s state, n int) {
	if s == granted || s == kept {
		e.live += n
	}
	if s != requesting && s != gone {
		e.open += n
	}
	if s == settled || s == repeating {
		e.freed += n
	}
}

// live reports whether leases stand on a, or its minimum hold is not over. Only such an acquisition
// has a deadline. e.mu must be held.
func (a *acquisition) live() bool { return a.state == granted || a.state == kept }

// tenureState is the state of a tenure. A tenure begins as pending if another goroutine has to take
// it, as after a hand-off.
type tenureState uint8

const (
	pending      tenureState = iota // its waiter has not taken it yet
	held                            // leases stand on it
	over                            // it was unlocked, lost, or closed
	tenureStates = int(over) + 1
)

var tenureStateNames = [tenureStates]string{"pending", "held", "over"}

func (s tenureState) String() string { return tenureStateNames[s] }

// tenureEvent is what happens to a tenure.
type tenureEvent uint8

const (
	takeEvent    tenureEvent = iota // its waiter takes it
	endEvent                        // it ends, for whatever reason
	tenureEvents = int(endEvent) + 1
)

var tenureEventNames = [tenureEvents]string{"take", "end"}

func (e tenureEvent) String() string { return tenureEventNames[e] }

// tenureChanges is the table of the states of a tenure. It ends once.
var tenureChanges = [tenureStates][tenureEvents]tenureState{
	//       take  end
	pending: {held, over},
	held:    {none, over},
	over:    {none, none},
}

// on applies an event and reports whether it had an effect. Every change of state is one call of
// on. The deadline of a tenure that ends stays what it is now. e.mu must be held.
func (t *tenure) on(ev tenureEvent, now time.Time) bool {
	next := tenureChanges[t.state][ev]
	if next == none {
		return false
	}
	if next == over {
		t.proven = t.acq.deadline(now)
	}
	t.state = next
	return true
}

// leaseState is the state of a lease.
type leaseState uint8

const (
	leaseHeld     leaseState = iota
	leaseDropped             // held, but unreachable for the user
	leaseEnded               // lost, exported or closed
	leaseUnlocked            // by the user
	leaseStates   = int(leaseUnlocked) + 1
)

var leaseStateNames = [leaseStates]string{"held", "dropped", "ended", "unlocked"}

func (s leaseState) String() string { return leaseStateNames[s] }

// leaseEvent is what happens to a lease.
type leaseEvent uint8

const (
	leaseDropEvent   leaseEvent = iota // the garbage collector finds it
	leaseEndEvent                      // it is lost, exported or closed
	leaseUnlockEvent                   // the user unlocks it
	leaseEvents      = int(leaseUnlockEvent) + 1
)

var leaseEventNames = [leaseEvents]string{"drop", "end", "unlock"}

func (e leaseEvent) String() string { return leaseEventNames[e] }

// leaseChanges is the table of the states of a lease. An Unlock may still come after its end, and
// while the garbage collector finds it. As Close begins, it may also come before the end.
var leaseChanges = [leaseStates][leaseEvents]leaseState{
	//             drop          end         unlock
	leaseHeld:     {leaseDropped, leaseEnded, leaseUnlocked},
	leaseDropped:  {none, leaseEnded, leaseUnlocked},
	leaseEnded:    {none, none, leaseUnlocked},
	leaseUnlocked: {none, none, none},
}

// on applies an event and reports whether it had an effect. Every change of state is one call of
// on. e.mu must be held.
func (l *Lease) on(ev leaseEvent) bool {
	next := leaseChanges[l.state][ev]
	if next == none {
		return false
	}
	l.state = next
	return true
}
