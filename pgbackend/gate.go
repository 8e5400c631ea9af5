package pgbackend

import (
	"context"
	"sync"
	"sync/atomic"
)

// lane has the slots and the gates of one class of requests. Renewals have a lane of their own,
// because any number of other requests would make them wait until leases are lost.
type lane struct {
	slots     chan struct{} // one for each request under way
	abandoned *atomic.Int32 // requests under way whose callers have gone
	gates     gates
	editions  editions
	skips     bool // an update does not wait for a locked row
}

func newLane(slots int) *lane {
	return &lane{slots: make(chan struct{}, slots), abandoned: new(atomic.Int32)}
}

// abandon counts a request whose caller has gone. It reports false if there are too many of them.
func (l *lane) abandon() bool {
	if int(l.abandoned.Add(1)) <= (cap(l.slots)+1)/2 {
		return true
	}
	l.abandoned.Add(-1)
	return false
}

// drain takes all slots, unless ctx ends before they are free.
func (l *lane) drain(ctx context.Context) {
	for range cap(l.slots) {
		select {
		case l.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
	}
}

// gates let one edit of a name in at a time, so that the edits of one lane do not make each other
// begin again. It is safe for concurrent use.
type gates struct {
	mu    sync.Mutex
	gates map[string]*gate
}

// gate exists while there are edits of its name.
type gate struct {
	turn  chan struct{} // has room for one edit
	edits int           // in the gate and in front of it
}

// enter waits for the turn of an edit. The caller calls leave at its end.
func (g *gates) enter(ctx context.Context, key string) (leave func(), err error) {
	g.mu.Lock()
	if g.gates == nil {
		g.gates = make(map[string]*gate)
	}
	own := g.gates[key]
	if own == nil {
		own = &gate{turn: make(chan struct{}, 1)}
		g.gates[key] = own
	}
	own.edits++
	g.mu.Unlock()
	select {
	case own.turn <- struct{}{}:
		return func() { <-own.turn; g.forget(key, own) }, nil
	case <-ctx.Done():
		g.forget(key, own)
		return nil, ctx.Err()
	}
}

// forget removes an edit, and the gate with its last one.
func (g *gates) forget(key string, own *gate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if own.edits--; own.edits == 0 {
		delete(g.gates, key)
	}
}
