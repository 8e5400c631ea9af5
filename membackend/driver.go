package membackend

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// minTTL is the shortest TTL. The core ends a lease 10 ms and 1 % before the end of its term, and
// this leaves the holder most of the term.
const minTTL = 50 * time.Millisecond

// driver is one client of a space. It keeps nothing of an acquisition: the space does so, as a
// server would. Each method locks the space, reads the clock once and changes the space in one
// step, so that no request is ever half executed.
type driver struct {
	space  *space
	closed atomic.Bool
}

var (
	_ backend.Driver       = (*driver)(nil)
	_ backend.Waiter       = (*driver)(nil)
	_ backend.BatchRenewer = (*driver)(nil)
	_ backend.Combiner     = (*driver)(nil)
	_ backend.Inspector    = (*driver)(nil)
	_ backend.Breaker      = (*driver)(nil)
	_ backend.Downgrader   = (*driver)(nil)
	_ backend.Mover        = (*driver)(nil)
	_ backend.Watcher      = (*driver)(nil)
)

func newDriver(opts Options) *driver { return &driver{space: openSpace(opts.Space)} }

// Acquire implements backend.Driver. Its outcome is never unknown. It does not check ctx, because
// it blocks for nothing but the mutex. The term begins when the core began the request, not when
// the mutex is free: a process that is stopped in between gets a grant with the time that is left.
// If none is left, the core refuses the grant and releases it.
func (d *driver) Acquire(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
	if err := d.checkOpen(); err != nil {
		return nil, err
	}
	now := backend.Began(ctx)
	d.space.mu.Lock()
	defer d.space.mu.Unlock()
	return d.space.acquire(req, now)
}

// Renew implements backend.Driver. It finds the grant by its owner and needs no State. It returns
// ErrLost if the owner has no grant, also after the end of the term: it never makes a grant.
func (d *driver) Renew(_ context.Context, g *backend.Grant) (backend.Term, error) {
	if err := d.checkOpen(); err != nil {
		return backend.Term{}, err
	}
	d.space.mu.Lock()
	defer d.space.mu.Unlock()
	return d.space.renew(g, time.Now())
}

// RenewAll implements backend.BatchRenewer. The space is locked once for all grants. Each grant has
// its own answer, so a grant that is lost does not affect the rest.
func (d *driver) RenewAll(_ context.Context, gs []*backend.Grant) []backend.Renewal {
	renewals := make([]backend.Renewal, len(gs))
	closed := d.checkOpen()
	d.space.mu.Lock()
	defer d.space.mu.Unlock()
	now := time.Now()
	for i, g := range gs {
		if renewals[i].Err = closed; closed == nil {
			renewals[i].Term, renewals[i].Err = d.space.renew(g, now)
		}
	}
	return renewals
}

// Release implements backend.Driver. It finds the grant or the queue entry by its owner. When it
// returns, the next waiters are holders already, although their Wait has not returned.
func (d *driver) Release(ctx context.Context, g *backend.Grant) error {
	if err := d.checkOpen(); err != nil {
		return err
	}
	now := backend.Began(ctx)
	d.space.mu.Lock()
	defer d.space.mu.Unlock()
	return d.space.release(g, now)
}

// Capabilities implements backend.Driver. Late is 0: no request is executed after its return.
// MaxTTL is 0, which is no limit. Session is false, because a grant outlives the driver that
// acquired it. The fences are volatile, because they begin again with each process.
func (d *driver) Capabilities() backend.Capabilities {
	return backend.Capabilities{
		Modes:   backend.Exclusive | backend.Shared | backend.Permit,
		Fair:    backend.FairAlways,
		Fencing: backend.FenceVolatile,
		Inspect: true,
		List:    true,
		Break:   true,
		Move:    true,
		Notify:  true,
		MinTTL:  minTTL,
	}
}

// Close implements backend.Driver. Other drivers of the space, and all its grants, stay. It does
// not block. A Wait or a Watch that is under way goes on until its context ends.
func (d *driver) Close() error {
	d.closed.Store(true)
	return nil
}

// checkOpen returns an error after Close. The contract rules out such a call, but a closed client
// must not acquire a lock.
func (d *driver) checkOpen() error {
	if d.closed.Load() {
		return errClosed
	}
	return nil
}
