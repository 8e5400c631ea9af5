package engine

import "github.com/dlock-go/dlock/backend"

// state is the state of an acquisition on the server, as far as the engine has learned.
type state uint8

const (
	requesting state = iota // no grant yet; requests may be under way
	granted                 // the server's grant is in force, and a tenure stands on it
	kept                    // unlocked, but held on until the minimum hold is over
	orphaned                // its leases ended by the clock; its release is planned
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

// none marks the cells of changes in which an event has no effect.
const none = state(states)

// changes is the table of states, which doc.go shows. An event without an effect came too late:
// for example a loss that is reported after the release has begun.
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
// on. It removes a from the schedule if the new state has no next time. e.mu must be held.
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

// count keeps e.live, e.open and e.freed. e.mu must be held.
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

// live reports whether leases stand on a, or its minimum hold is not over. e.mu must be held.
func (a *acquisition) live() bool { return a.state == granted || a.state == kept }
