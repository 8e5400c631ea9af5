package membackend_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/conformance"
)

var (
	errReply = errors.New("the reply was lost")
	errReset = errors.New("connection reset")
)

var _ conformance.Faults = (*network)(nil)

// network stands between the processes of one case and the space, and can be
// broken.
type network struct {
	mu     sync.Mutex
	whole  chan struct{} // closed while requests get through
	reset  chan struct{} // closed when connections break
	lostIn int           // answers until one is lost; 0: none
}

func newNetwork() *network {
	n := &network{whole: make(chan struct{}), reset: make(chan struct{})}
	close(n.whole)
	return n
}

func (n *network) Cut(conformance.TB) (heal func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	whole := make(chan struct{})
	n.whole = whole
	return sync.OnceFunc(func() { close(whole) })
}

// Pause is a Cut: from outside a server that stands still looks the same.
func (n *network) Pause(t conformance.TB) (resume func()) { return n.Cut(t) }

func (n *network) DropReply(_ conformance.TB, nth int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lostIn = nth
}

// Restart keeps what the space holds, like a server with durable settings.
func (n *network) Restart(conformance.TB) {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.reset)
	n.reset = make(chan struct{})
}

// pass waits until the network is whole.
func (n *network) pass(ctx context.Context) error {
	n.mu.Lock()
	whole := n.whole
	n.mu.Unlock()
	select {
	case <-whole:
		return nil
	default:
	}
	select {
	case <-whole:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// answered tells whether this answer is the one that is lost.
func (n *network) answered() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lostIn--; n.lostIn == 0 {
		return errReply
	}
	n.lostIn = max(n.lostIn, 0)
	return nil
}

// send runs request where it arrives. What was given up on the way may have
// arrived all the same.
func (n *network) send(ctx context.Context, request func() error) error {
	if err := n.pass(ctx); err != nil {
		if rand.N(2) == 0 {
			_ = request()
		}
		return err
	}
	err := request()
	if lost := n.answered(); lost != nil {
		return lost
	}
	return err
}

// local is what the driver is.
type local interface {
	backend.Driver
	backend.Waiter
	backend.BatchRenewer
	backend.Inspector
	backend.Breaker
}

// remote is a driver whose requests go over a network, and whose terms therefore
// count from the sending.
type remote struct {
	local
	network *network
}

func (r *remote) Acquire(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
	sent := time.Now()
	var g *backend.Grant
	err := r.network.send(ctx, func() (err error) {
		g, err = r.local.Acquire(ctx, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	granted := *g
	granted.Term.Sent = sent
	return &granted, nil
}

func (r *remote) Renew(ctx context.Context, g *backend.Grant) (backend.Term, error) {
	renewal := r.RenewAll(ctx, []*backend.Grant{g})[0]
	return renewal.Term, renewal.Err
}

func (r *remote) RenewAll(ctx context.Context, gs []*backend.Grant) []backend.Renewal {
	sent := time.Now()
	var renewals []backend.Renewal
	err := r.network.send(ctx, func() error {
		renewals = r.local.RenewAll(ctx, gs)
		return nil
	})
	if err != nil {
		renewals = make([]backend.Renewal, len(gs))
	}
	for i := range renewals {
		if err != nil {
			renewals[i].Err = err
		}
		renewals[i].Term.Sent = sent
	}
	return renewals
}

func (r *remote) Release(ctx context.Context, g *backend.Grant) error {
	return r.network.send(ctx, func() error { return r.local.Release(ctx, g) })
}

func (r *remote) Wait(ctx context.Context, req *backend.Request, b *backend.Busy) (*backend.Grant, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.network.mu.Lock()
	reset := r.network.reset
	r.network.mu.Unlock()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-reset:
			cancel(errReset)
		case <-stop:
		}
	}()
	g, err := r.local.Wait(ctx, req, b)
	if err == nil {
		err = r.network.pass(ctx)
	}
	if err == nil {
		err = r.network.answered()
	}
	if errors.Is(context.Cause(ctx), errReset) {
		err = errReset
	}
	if err != nil {
		return nil, err
	}
	return g, nil
}

func (r *remote) Inspect(ctx context.Context, key string) (*backend.Info, error) {
	var info *backend.Info
	err := r.network.send(ctx, func() (err error) {
		info, err = r.local.Inspect(ctx, key)
		return err
	})
	return info, err
}

func (r *remote) Break(ctx context.Context, key, owner string) error {
	return r.network.send(ctx, func() error { return r.local.Break(ctx, key, owner) })
}
