package pgbackend

import (
	"context"
	"sync"
)

// gates let one request of a name in at a time. settleOne uses them, because it can wait for a row
// for as long as statementTimeout, and releases of one name would take all slots meanwhile. It is
// safe for concurrent use.
type gates struct {
	mu    sync.Mutex
	gates map[string]*gate
}

// gate exists while there are requests for its name, which it calls edits. gates.mu guards the
// count.
type gate struct {
	turn  chan struct{} // has room for one edit
	edits int           // in the gate and in front of it
}

// enter waits for the turn of an edit. The caller calls leave at its end. If ctx ends before, enter
// returns its error and no leave.
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

// forget removes an edit, and the gate with its last edit. So the map does not grow with the names
// that were ever in use.
func (g *gates) forget(key string, own *gate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if own.edits--; own.edits == 0 {
		delete(g.gates, key)
	}
}
