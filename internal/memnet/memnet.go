// Package memnet puts a network that can be broken between membackend and the cases of package
// conformance. It needs no server. Only tests import it.
package memnet

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/membackend"
)

// late is Capabilities.Late of the drivers: a request may arrive until late after its context has
// ended.
const late = 200 * time.Millisecond

// Prefix begins all names of the tests. It is needed because all tests share one space of
// membackend.
const Prefix = "conformance/"

// Harness is a conformance.Harness with all abilities that need no server. Its space is the space
// without a name.
type Harness struct {
	*network
	t conformance.TB
	// Wrap is applied to each new driver. It may be nil.
	Wrap func(backend.Driver) backend.Driver
}

// New returns a Harness for the cases that t runs.
func New(t conformance.TB) *Harness { return &Harness{t: t, network: newNetwork()} }

// Driver implements conformance.Harness.
func (h *Harness) Driver(context.Context) (backend.Driver, error) {
	var d backend.Driver = &remote{
		local:   confined{membackend.New(nil).(local), h.t},
		network: h.network,
	}
	if h.Wrap != nil {
		d = h.Wrap(d)
	}
	return d, nil
}

// Close implements conformance.Harness.
func (h *Harness) Close() {}

// Prefix returns the prefix of all names.
func (h *Harness) Prefix() string { return Prefix }

// Apart implements conformance.Apart.
func (h *Harness) Apart(t conformance.TB) conformance.Harness {
	return &Harness{t: t, network: newNetwork(), Wrap: h.Wrap}
}

// Foreign implements conformance.Foreigner.
func (h *Harness) Foreign(t conformance.TB, key string) (intact func() bool) {
	foreign.Store(key, true)
	t.Cleanup(func() { foreign.Delete(key) })
	return func() bool {
		_, ok := foreign.Load(key)
		return ok
	}
}

// LockEntry implements conformance.EntryLocker.
func (h *Harness) LockEntry(_ conformance.TB, key string) (unlock func()) {
	unlocked := make(chan struct{})
	locked.Store(key, unlocked)
	return sync.OnceFunc(func() {
		locked.Delete(key)
		close(unlocked)
	})
}

// Kept implements conformance.Keeper. The space keeps nothing that List does not return.
func (h *Harness) Kept(t conformance.TB, prefix string) int {
	n := 0
	for _, err := range membackend.New(nil).(local).List(t.Context(), prefix) {
		if err != nil {
			t.Errorf("List: %v", err)
		}
		n++
	}
	return n
}

// foreign and locked are sets of keys of the space: foreign has the keys with a foreign value,
// locked the keys of locked entries. The value of a locked key is a channel that is closed when the
// entry is unlocked.
var foreign, locked sync.Map

// changeable waits until the entry of key is not locked.
func changeable(ctx context.Context, key string) error {
	unlocked, ok := locked.Load(key)
	if !ok {
		return nil
	}
	select {
	case <-unlocked.(chan struct{}):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// confined is a driver that fails the test if a case uses a key without Prefix.
type confined struct {
	local
	t conformance.TB
}

func (c confined) check(key string) {
	if !strings.HasPrefix(key, Prefix) {
		c.t.Errorf("key %q does not begin with %q", key, Prefix)
	}
}

func (c confined) Acquire(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
	c.check(req.Key)
	return c.local.Acquire(ctx, req)
}

func (c confined) Renew(ctx context.Context, g *backend.Grant) (backend.Term, error) {
	c.check(g.Key)
	return c.local.Renew(ctx, g)
}

func (c confined) Release(ctx context.Context, g *backend.Grant) error {
	c.check(g.Key)
	return c.local.Release(ctx, g)
}

func (c confined) AcquireAll(
	ctx context.Context, reqs []*backend.Request,
) (grants []*backend.Grant, failed int, err error) {
	for _, req := range reqs {
		c.check(req.Key)
	}
	return c.local.AcquireAll(ctx, reqs)
}

func (c confined) ReleaseAll(ctx context.Context, gs []*backend.Grant) []error {
	for _, g := range gs {
		c.check(g.Key)
	}
	return c.local.ReleaseAll(ctx, gs)
}

func (c confined) Inspect(ctx context.Context, key string) (*backend.Info, error) {
	c.check(key)
	return c.local.Inspect(ctx, key)
}

func (c confined) List(ctx context.Context, prefix string) iter.Seq2[*backend.Info, error] {
	c.check(prefix)
	return c.local.List(ctx, prefix)
}

func (c confined) Break(ctx context.Context, key, owner string) error {
	c.check(key)
	return c.local.Break(ctx, key, owner)
}

func (c confined) Downgrade(ctx context.Context, g *backend.Grant) (*backend.Grant, error) {
	c.check(g.Key)
	return c.local.Downgrade(ctx, g)
}

func (c confined) Adopt(
	ctx context.Context, ticket string, req *backend.Request,
) (*backend.Grant, error) {
	c.check(req.Key)
	return c.local.Adopt(ctx, ticket, req)
}

var (
	errReply = errors.New("the reply was lost")
	errReset = errors.New("connection reset")
)

var (
	_ conformance.Faults      = (*Harness)(nil)
	_ conformance.Apart       = (*Harness)(nil)
	_ conformance.Delayer     = (*Harness)(nil)
	_ conformance.Foreigner   = (*Harness)(nil)
	_ conformance.EntryLocker = (*Harness)(nil)
	_ conformance.Keeper      = (*Harness)(nil)
)

// network is the connection between the processes of one case and the space. It can be broken.
type network struct {
	mu     sync.Mutex
	whole  chan struct{} // closed while requests get through
	reset  chan struct{} // closed when connections break
	lostIn int           // the answer that is lost, counted from now; 0: none
	kept   *keptBack     // takes the next request; nil: the request passes
}

// keptBack is a request that arrives late.
type keptBack struct {
	due     chan struct{}  // closed when it arrives
	arrived sync.WaitGroup // until it has been executed
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

// Pause is a Cut: a client cannot distinguish a stopped server from a broken network.
func (n *network) Pause(t conformance.TB) (resume func()) { return n.Cut(t) }

func (n *network) DropReply(_ conformance.TB, nth int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lostIn = nth
}

// Delay keeps back the next request, as one open connection would. The requests that follow it
// pass, as over another connection.
func (n *network) Delay(conformance.TB) (deliver func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	kept := &keptBack{due: make(chan struct{})}
	n.kept = kept
	return sync.OnceFunc(func() {
		n.mu.Lock()
		if n.kept == kept {
			n.kept = nil
		}
		n.mu.Unlock()
		close(kept.due)
		kept.arrived.Wait()
	})
}

// keepBack returns the keptBack that delays this request, or nil if the request passes.
func (n *network) keepBack() *keptBack {
	n.mu.Lock()
	defer n.mu.Unlock()
	kept := n.kept
	n.kept = nil
	if kept != nil {
		kept.arrived.Add(1)
	}
	return kept
}

// Restart breaks the connections. The space keeps its locks, like a server with durable settings.
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

// answered returns errReply if this answer is lost.
func (n *network) answered() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.lostIn--; n.lostIn == 0 {
		return errReply
	}
	n.lostIn = max(n.lostIn, 0)
	return nil
}

// send executes request when it arrives. A request that is given up on its way is executed or not,
// at random.
func (n *network) send(ctx context.Context, request func() error) error {
	if kept := n.keepBack(); kept != nil {
		go func() {
			defer kept.arrived.Done()
			<-kept.due
			_ = request()
		}()
		<-ctx.Done()
		return ctx.Err()
	}
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

// local is the set of interfaces that membackend's driver implements.
type local interface {
	backend.Driver
	backend.Waiter
	backend.BatchRenewer
	backend.Combiner
	backend.Inspector
	backend.Breaker
	backend.Downgrader
	backend.Mover
	backend.Watcher
}

// remote is a driver with a network between it and the space. Its terms therefore count from the
// sending of a request.
type remote struct {
	local
	network *network
}

func (r *remote) Capabilities() backend.Capabilities {
	caps := r.local.Capabilities()
	caps.Late = late
	return caps
}

func (r *remote) Acquire(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
	if _, ok := foreign.Load(req.Key); ok {
		return nil, backend.ErrConflict
	}
	if err := changeable(ctx, req.Key); err != nil {
		return nil, err
	}
	return r.grant(ctx, func() (*backend.Grant, error) {
		// Without the Bound of ctx, the space executes the request at the time of its arrival.
		return r.local.Acquire(context.Background(), req)
	})
}

// grant sends a request whose answer is a grant.
func (r *remote) grant(
	ctx context.Context, request func() (*backend.Grant, error),
) (*backend.Grant, error) {
	sent := time.Now()
	var g *backend.Grant
	err := r.network.send(ctx, func() (err error) {
		g, err = request()
		return err
	})
	if err != nil {
		return nil, err
	}
	granted := *g
	granted.Term.Sent = sent
	return &granted, nil
}

func (r *remote) AcquireAll(
	ctx context.Context, reqs []*backend.Request,
) (grants []*backend.Grant, failed int, err error) {
	for i, req := range reqs {
		if _, ok := foreign.Load(req.Key); ok {
			return nil, i, backend.ErrConflict
		}
		if err := changeable(ctx, req.Key); err != nil {
			return nil, i, err
		}
	}
	sent := time.Now()
	err = r.network.send(ctx, func() (err error) {
		grants, failed, err = r.local.AcquireAll(context.Background(), reqs)
		return err
	})
	if err != nil {
		return nil, failed, err
	}
	for i, g := range grants {
		granted := *g
		granted.Term.Sent = sent
		grants[i] = &granted
	}
	return grants, 0, nil
}

func (r *remote) Downgrade(ctx context.Context, g *backend.Grant) (*backend.Grant, error) {
	return r.grant(ctx, func() (*backend.Grant, error) {
		return r.local.Downgrade(context.Background(), g)
	})
}

func (r *remote) Export(ctx context.Context, g *backend.Grant) (ticket string, err error) {
	sent := r.network.send(ctx, func() error {
		ticket, err = r.local.Export(context.Background(), g)
		return err
	})
	return ticket, sent
}

func (r *remote) Adopt(
	ctx context.Context, ticket string, req *backend.Request,
) (*backend.Grant, error) {
	return r.grant(ctx, func() (*backend.Grant, error) {
		return r.local.Adopt(context.Background(), ticket, req)
	})
}

func (r *remote) Renew(ctx context.Context, g *backend.Grant) (backend.Term, error) {
	if err := changeable(ctx, g.Key); err != nil {
		return backend.Term{}, err
	}
	sent := time.Now()
	var term backend.Term
	err := r.network.send(ctx, func() (err error) {
		term, err = r.local.Renew(context.WithoutCancel(ctx), g)
		return err
	})
	term.Sent = sent
	return term, err
}

// RenewAll renews each grant with a locked entry on its own, so that it does not delay the other
// grants.
func (r *remote) RenewAll(ctx context.Context, gs []*backend.Grant) []backend.Renewal {
	renewals := make([]backend.Renewal, len(gs))
	var free []*backend.Grant
	var places []int
	var all sync.WaitGroup
	for i, g := range gs {
		if _, ok := locked.Load(g.Key); ok {
			all.Go(func() { renewals[i].Term, renewals[i].Err = r.Renew(ctx, g) })
			continue
		}
		free, places = append(free, g), append(places, i)
	}
	for i, renewal := range r.renewFree(ctx, free) {
		renewals[places[i]] = renewal
	}
	all.Wait()
	return renewals
}

func (r *remote) renewFree(ctx context.Context, gs []*backend.Grant) []backend.Renewal {
	if len(gs) == 0 {
		return nil
	}
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
	if err := changeable(ctx, g.Key); err != nil {
		return err
	}
	return r.network.send(ctx, func() error { return r.local.Release(context.Background(), g) })
}

func (r *remote) ReleaseAll(ctx context.Context, gs []*backend.Grant) (errs []error) {
	for _, g := range gs {
		if err := changeable(ctx, g.Key); err != nil {
			return slices.Repeat([]error{err}, len(gs))
		}
	}
	err := r.network.send(ctx, func() error {
		errs = r.local.ReleaseAll(context.Background(), gs)
		return nil
	})
	if err != nil {
		return slices.Repeat([]error{err}, len(gs))
	}
	return errs
}

func (r *remote) Wait(
	ctx context.Context, req *backend.Request, b *backend.Busy,
) (*backend.Grant, error) {
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
