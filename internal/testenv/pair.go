package testenv

import (
	"context"
	"sync/atomic"

	"github.com/dlock-go/dlock/internal/testenv/group"
	"github.com/dlock-go/dlock/internal/testenv/recipe"
	"github.com/dlock-go/dlock/internal/testenv/server"
)

// Pair is a primary and its standby, which has a copy of the data. The URL has both. The methods of
// [Server] affect both, apart from Restart. A test that promotes the standby must not run in
// parallel with another test that uses the pair.
type Pair struct {
	*Server

	synchronous bool
	primary     atomic.Int32 // the number of the primary among the members
}

// newPair returns the pair that own has started.
func newPair(s *Server, synchronous bool) *Pair {
	return &Pair{Server: s, synchronous: synchronous}
}

// Primary returns the server that accepts changes.
func (p *Pair) Primary() *Server { return p.members[p.primary.Load()] }

// Standby returns the other server. After [Pair.Promote] it is the former primary.
func (p *Pair) Standby() *Server { return p.members[1-p.primary.Load()] }

// Promote makes the standby the primary, as an operator does. It returns when the standby accepts
// changes, for which it waits for no other server. Promote does not end the former primary.
func (p *Pair) Promote(tb TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), server.BootTimeout)
	defer cancel()
	standby := p.Standby()
	standby.must(tb, "promote", recipe.PostgresPromote(ctx, standby.URL))
	p.primary.Store(1 - p.primary.Load())
}

// Rejoin replaces the former primary and its data by a new standby of the primary.
func (p *Pair) Rejoin(tb TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), server.BootTimeout)
	defer cancel()
	g := p.instance.Control.(*group.Group)
	p.Standby().must(tb, "rejoin",
		recipe.PostgresRejoin(ctx, g, int(1-p.primary.Load()), p.synchronous))
}

// Unfollow ends the stream of changes to the standby, which the standby does not begin again.
func (p *Pair) Unfollow(tb TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), server.BootTimeout)
	defer cancel()
	standby := p.Standby()
	standby.must(tb, "unfollow", recipe.PostgresUnfollow(ctx, standby.URL))
}

// Restart kills the primary, promotes the standby, and makes the former primary the standby.
func (p *Pair) Restart(tb TB) {
	tb.Helper()
	p.Primary().Kill(tb)
	p.Promote(tb)
	p.Rejoin(tb)
}
