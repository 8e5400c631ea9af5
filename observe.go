package dlock

import (
	"context"
	"log/slog"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/engine"
)

// Observer is a set of functions that a client calls when leases begin, are renewed and
// end. Any of them may be nil.
//
// Events arrive asynchronously: the client calls the functions one at a time, in the order
// of the events, on a goroutine of the client's, shortly after each event. When a function
// runs, the lease may have changed already; the [Event] describes it as it was.
//
// A function that blocks delays later events and log lines, and nothing else: no lease,
// Lock or Unlock depends on it. When 4,096 events wait, further events are dropped, and a
// log record then has their number. A panic costs one event and is logged once for each
// function. Close waits for a function that blocks, but 100 ms at most.
type Observer struct {
	// Attempt is called when Lock or TryLock begins. The context is the caller's and may
	// have ended already.
	Attempt func(context.Context, Event)
	// Acquired is called when Lock or TryLock ends, with a lease or with Event.Err. The
	// context is the caller's and may have ended already.
	Acquired func(context.Context, Event)
	// Renewed is called when a renewal was answered or failed. If Event.Err is not nil, the
	// lease is at risk but not lost yet.
	Renewed func(Event)
	// Ended is called when a lease has ended; after an Unlock, when the release has an
	// outcome. Event.Err is nil after an Unlock; otherwise it is the reason, as in
	// [Lease.Err]. On ZooKeeper the next lease can begin before the release is answered.
	Ended func(Event)
}

// Event describes a lease, or an attempt to acquire one, at the time of the event. Fields
// that do not apply are zero: an attempt that failed has no owner, fence and deadline.
//
// Backend and Name have the same values as in an [Error]; Name has no prefix. Mode is the mode at
// that time, so it is Shared after a [Lease.Downgrade]. Waited is the duration of the Lock or
// TryLock, and only Acquired has it. Held is the time since the lease began. Owner, Fence and
// Deadline are the values of the methods of [Lease].
type Event struct {
	Backend, Name, Owner string
	Mode                 backend.Mode
	Fence                uint64
	Waited, Held         time.Duration
	Local                bool // granted inside this process, without a request
	Deadline             time.Time
	Err                  error
}

// kinds returns the kinds of notes that the observer and the logger handle.
func (c *config) kinds() (kinds engine.Kind) {
	if o := c.observer; o != nil {
		for kind, wanted := range map[engine.Kind]bool{
			engine.Attempt: o.Attempt != nil, engine.Acquired: o.Acquired != nil,
			engine.Renewed: o.Renewed != nil, engine.Ended: o.Ended != nil,
		} {
			if wanted {
				kinds |= kind
			}
		}
	}
	if c.logger != nil {
		kinds |= engine.Message
	}
	return kinds
}

// notify passes a note of the engine to the observer or to the logger. It runs on the
// engine's goroutine for notes.
func (c *Client) notify(n *engine.Note) {
	o := c.config.observer
	switch n.Kind {
	case engine.Attempt:
		o.Attempt(n.Context, c.event(n))
	case engine.Acquired:
		o.Acquired(n.Context, c.event(n))
	case engine.Renewed:
		o.Renewed(c.event(n))
	case engine.Ended:
		o.Ended(c.event(n))
	case engine.Message:
		c.log(n)
	}
}

func (c *Client) event(n *engine.Note) Event {
	return Event{
		Backend: c.backend, Name: n.Lock.Name, Owner: n.Owner, Mode: n.Mode,
		Fence: n.Fence, Waited: n.Waited, Held: n.Held, Local: n.Local, Deadline: n.Deadline,
		Err: n.Err,
	}
}

// log writes a record. It has a context without values, because the event belongs to the client and
// not to a call; a handler that takes attributes from contexts finds none.
func (c *Client) log(n *engine.Note) {
	attrs := make([]slog.Attr, 0, 4)
	if n.Lock != nil {
		attrs = append(attrs, slog.String("name", n.Lock.Name))
	}
	attrs = append(append(attrs, slog.String("backend", c.backend)), n.Attrs...)
	if n.Err != nil {
		attrs = append(attrs, slog.Any("error", n.Err))
	}
	c.config.logger.LogAttrs(context.Background(), n.Level, n.Text, attrs...)
}
