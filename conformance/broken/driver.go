package broken

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/measure"
)

// flaw changes some methods of a driver. A nil function leaves its method unchanged. next is the
// driver that is wrapped.
type flaw struct {
	acquire  func(ctx context.Context, next *driver, req *backend.Request) (*backend.Grant, error)
	renew    func(ctx context.Context, next *driver, g *backend.Grant) (backend.Term, error)
	renewAll func(ctx context.Context, next *driver, gs []*backend.Grant) []backend.Renewal
	release  func(ctx context.Context, next *driver, g *backend.Grant) error
	// acquireAll and releaseAll are the methods of Combiner. Without them, a flaw of Acquire or of
	// Release makes the core acquire or release the locks one by one.
	acquireAll func(
		ctx context.Context, next *driver, reqs []*backend.Request,
	) (grants []*backend.Grant, failed int, err error)
	releaseAll func(ctx context.Context, next *driver, gs []*backend.Grant) []error
	wait       func(
		ctx context.Context, next *driver, req *backend.Request, b *backend.Busy,
	) (*backend.Grant, error)
	inspect   func(ctx context.Context, next *driver, key string) (*backend.Info, error)
	list      func(ctx context.Context, next *driver, prefix string) iter.Seq2[*backend.Info, error]
	breakLock func(ctx context.Context, next *driver, key, owner string) error
	downgrade func(ctx context.Context, next *driver, g *backend.Grant) (*backend.Grant, error)
	export    func(ctx context.Context, next *driver, g *backend.Grant) (string, error)
	adopt     func(
		ctx context.Context, next *driver, ticket string, req *backend.Request,
	) (*backend.Grant, error)
	watch func(ctx context.Context, next *driver, key string, changed func()) error

	capabilities func(backend.Capabilities) backend.Capabilities
	close        func(next *driver) error

	// The methods of Pipeliner and of the optional interfaces for benchmarks.
	releaseThen func(ctx context.Context, next *driver, g *backend.Grant, sent func()) error
	floor       func(ctx context.Context, next *driver, key, owner string) error
	counters    func() measure.Counts
	sweep       func(ctx context.Context, next *driver, keys []string) error
}

// driver is a driver with a flaw. An empty flaw forwards every call.
type driver struct {
	backend.Driver
	flaw *flaw
	next *driver // the driver without the flaw; nil in a driver that forwards
}

// wrap returns d with a flaw.
func wrap(d backend.Driver, f *flaw) backend.Driver {
	b := &driver{Driver: d, flaw: f, next: &driver{Driver: d, flaw: &flaw{}}}
	switch {
	case f.releaseThen != nil:
		return pipeliner{b}
	case f.floor != nil:
		return floor{b}
	case f.counters != nil:
		return counters{b}
	case f.sweep != nil:
		return sweeper{b}
	}
	return b
}

func (d *driver) Acquire(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
	if d.flaw.acquire != nil {
		return d.flaw.acquire(ctx, d.next, req)
	}
	return d.Driver.Acquire(ctx, req)
}

func (d *driver) Renew(ctx context.Context, g *backend.Grant) (backend.Term, error) {
	if d.flaw.renew != nil {
		return d.flaw.renew(ctx, d.next, g)
	}
	return d.Driver.Renew(ctx, g)
}

// RenewAll has the flaw of Renew as well.
func (d *driver) RenewAll(ctx context.Context, gs []*backend.Grant) []backend.Renewal {
	if d.flaw.renewAll != nil {
		return d.flaw.renewAll(ctx, d.next, gs)
	}
	if b, ok := d.Driver.(backend.BatchRenewer); ok && d.flaw.renew == nil {
		return b.RenewAll(ctx, gs)
	}
	renewals := make([]backend.Renewal, len(gs))
	for i, g := range gs {
		renewals[i].Term, renewals[i].Err = d.Renew(ctx, g)
	}
	return renewals
}

func (d *driver) Release(ctx context.Context, g *backend.Grant) error {
	if d.flaw.release != nil {
		return d.flaw.release(ctx, d.next, g)
	}
	return d.Driver.Release(ctx, g)
}

func (d *driver) AcquireAll(
	ctx context.Context, reqs []*backend.Request,
) (grants []*backend.Grant, failed int, err error) {
	if d.flaw.acquireAll != nil {
		return d.flaw.acquireAll(ctx, d.next, reqs)
	}
	if c, ok := d.Driver.(backend.Combiner); ok && d.flaw.acquire == nil {
		return c.AcquireAll(ctx, reqs)
	}
	return nil, 0, backend.ErrUnsupported
}

func (d *driver) ReleaseAll(ctx context.Context, gs []*backend.Grant) []error {
	if d.flaw.releaseAll != nil {
		return d.flaw.releaseAll(ctx, d.next, gs)
	}
	if c, ok := d.Driver.(backend.Combiner); ok && d.flaw.release == nil {
		return c.ReleaseAll(ctx, gs)
	}
	errs := make([]error, len(gs))
	for i, g := range gs {
		errs[i] = d.Release(ctx, g)
	}
	return errs
}

// Wait blocks until ctx ends if the driver has no Wait, so that the core polls.
func (d *driver) Wait(
	ctx context.Context, req *backend.Request, b *backend.Busy,
) (*backend.Grant, error) {
	if d.flaw.wait != nil {
		return d.flaw.wait(ctx, d.next, req, b)
	}
	if w, ok := d.Driver.(backend.Waiter); ok {
		return w.Wait(ctx, req, b)
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

func (d *driver) Inspect(ctx context.Context, key string) (*backend.Info, error) {
	if d.flaw.inspect != nil {
		return d.flaw.inspect(ctx, d.next, key)
	}
	if i, ok := d.Driver.(backend.Inspector); ok {
		return i.Inspect(ctx, key)
	}
	return nil, backend.ErrUnsupported
}

func (d *driver) List(ctx context.Context, prefix string) iter.Seq2[*backend.Info, error] {
	if d.flaw.list != nil {
		return d.flaw.list(ctx, d.next, prefix)
	}
	if i, ok := d.Driver.(backend.Inspector); ok {
		return i.List(ctx, prefix)
	}
	return func(yield func(*backend.Info, error) bool) { yield(nil, backend.ErrUnsupported) }
}

func (d *driver) Break(ctx context.Context, key, owner string) error {
	if d.flaw.breakLock != nil {
		return d.flaw.breakLock(ctx, d.next, key, owner)
	}
	if b, ok := d.Driver.(backend.Breaker); ok {
		return b.Break(ctx, key, owner)
	}
	return backend.ErrUnsupported
}

func (d *driver) Downgrade(ctx context.Context, g *backend.Grant) (*backend.Grant, error) {
	if d.flaw.downgrade != nil {
		return d.flaw.downgrade(ctx, d.next, g)
	}
	if b, ok := d.Driver.(backend.Downgrader); ok {
		return b.Downgrade(ctx, g)
	}
	return nil, backend.ErrUnsupported
}

func (d *driver) Export(ctx context.Context, g *backend.Grant) (ticket string, err error) {
	if d.flaw.export != nil {
		return d.flaw.export(ctx, d.next, g)
	}
	if m, ok := d.Driver.(backend.Mover); ok {
		return m.Export(ctx, g)
	}
	return "", backend.ErrUnsupported
}

func (d *driver) Adopt(
	ctx context.Context, ticket string, req *backend.Request,
) (*backend.Grant, error) {
	if d.flaw.adopt != nil {
		return d.flaw.adopt(ctx, d.next, ticket, req)
	}
	if m, ok := d.Driver.(backend.Mover); ok {
		return m.Adopt(ctx, ticket, req)
	}
	return nil, backend.ErrUnsupported
}

func (d *driver) Watch(ctx context.Context, key string, changed func()) error {
	if d.flaw.watch != nil {
		return d.flaw.watch(ctx, d.next, key, changed)
	}
	if w, ok := d.Driver.(backend.Watcher); ok {
		return w.Watch(ctx, key, changed)
	}
	return backend.ErrUnsupported
}

func (d *driver) Capabilities() backend.Capabilities {
	caps := d.Driver.Capabilities()
	if d.flaw.capabilities != nil {
		caps = d.flaw.capabilities(caps)
	}
	return caps
}

func (d *driver) Close() error {
	if d.flaw.close != nil {
		return d.flaw.close(d.next)
	}
	return d.Driver.Close()
}

// holder returns the owner that holds key, or "" if there is none or it is unknown.
func (d *driver) holder(ctx context.Context, key string) string {
	info, err := d.Inspect(ctx, key)
	if err != nil || len(info.Holders) == 0 {
		return ""
	}
	return info.Holders[0].Owner
}

type pipeliner struct{ *driver }

func (d pipeliner) ReleaseThen(ctx context.Context, g *backend.Grant, sent func()) error {
	return d.flaw.releaseThen(ctx, d.next, g, sent)
}

type floor struct{ *driver }

func (d floor) Floor(ctx context.Context, key, owner string) error {
	return d.flaw.floor(ctx, d.next, key, owner)
}

type counters struct{ *driver }

func (d counters) Counters(context.Context) (measure.Counts, error) {
	return d.flaw.counters(), nil
}

type sweeper struct{ *driver }

func (d sweeper) Sweep(ctx context.Context, keys []string) error {
	return d.flaw.sweep(ctx, d.next, keys)
}

// table is a map that the drivers of one Harness share. It is safe for concurrent use.
type table[V any] struct {
	mu     sync.Mutex
	values map[string]V
}

func (t *table[V]) get(key string) (V, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v, ok := t.values[key]
	return v, ok
}

func (t *table[V]) set(key string, v V) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.values == nil {
		t.values = map[string]V{}
	}
	t.values[key] = v
}

// add adds n to the count of key and returns the new count.
func add(t *table[uint64], key string, n uint64) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.values == nil {
		t.values = map[string]uint64{}
	}
	t.values[key] += n
	return t.values[key]
}

// fromNow returns a term of ttl that begins now.
func fromNow(ttl time.Duration) backend.Term {
	return backend.Term{Sent: time.Now(), TTL: ttl}
}

// inNewTerm returns g with a term that begins now.
func inNewTerm(g *backend.Grant) *backend.Grant {
	again := *g
	again.Term = fromNow(g.Term.TTL)
	return &again
}

// withTTL returns g with another TTL.
func withTTL(g *backend.Grant, ttl time.Duration) *backend.Grant {
	changed := *g
	changed.TTL = ttl
	return &changed
}

// request returns req with another TTL.
func request(req *backend.Request, ttl time.Duration) *backend.Request {
	changed := *req
	changed.TTL = ttl
	return &changed
}
