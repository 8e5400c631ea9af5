package dlock_test

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"reflect"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// tamper runs a test's code inside one callback, for the lock named victim.
type tamper struct {
	callback string
	armed    atomic.Bool
	happened atomic.Bool
	run      func()
}

func (m *tamper) with(callback, name string) {
	if m.callback == callback && name == "victim" && m.armed.Load() {
		m.happened.Store(true)
		m.run()
	}
}

// tampered is a script with a tamper in its methods.
type tampered struct {
	*script
	*tamper
}

func (d tampered) Acquire(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
	d.with("Acquire", req.Key)
	if d.callback == "Wait" && req.Key == "victim" {
		return nil, &backend.Busy{}
	}
	return d.script.Acquire(ctx, req)
}

func (d tampered) Wait(
	ctx context.Context, req *backend.Request, b *backend.Busy,
) (*backend.Grant, error) {
	d.with("Wait", req.Key)
	return d.script.Wait(ctx, req, b)
}

func (d tampered) Renew(ctx context.Context, g *backend.Grant) (backend.Term, error) {
	d.with("Renew", g.Key)
	return d.script.Renew(ctx, g)
}

func (d tampered) Release(ctx context.Context, g *backend.Grant) error {
	d.with("Release", g.Key)
	return d.script.Release(ctx, g)
}

func (d tampered) Inspect(_ context.Context, key string) (*backend.Info, error) {
	d.with("Inspect", key)
	return &backend.Info{Key: key}, nil
}

func (d tampered) List(_ context.Context, prefix string) iter.Seq2[*backend.Info, error] {
	return func(yield func(*backend.Info, error) bool) {
		d.with("List", prefix)
		yield(&backend.Info{Key: prefix}, nil)
	}
}

func (d tampered) Break(_ context.Context, key, _ string) error {
	d.with("Break", key)
	return nil
}

func (d tampered) Downgrade(_ context.Context, g *backend.Grant) (*backend.Grant, error) {
	d.with("Downgrade", g.Key)
	shared := *g
	shared.Mode, shared.Term = backend.Shared, termOf(g.TTL)
	return &shared, nil
}

func (d tampered) Export(_ context.Context, g *backend.Grant) (string, error) {
	d.with("Export", g.Key)
	return "ticket", nil
}

func (d tampered) Adopt(
	ctx context.Context, _ string, req *backend.Request,
) (*backend.Grant, error) {
	d.with("Adopt", req.Key)
	return d.script.Acquire(ctx, req)
}

func (d tampered) AcquireAll(
	ctx context.Context, reqs []*backend.Request,
) (grants []*backend.Grant, failed int, err error) {
	for _, req := range reqs {
		d.with("AcquireAll", req.Key)
		g, _ := d.grant(ctx, req)
		grants = append(grants, g)
	}
	return grants, 0, nil
}

func (d tampered) ReleaseAll(_ context.Context, gs []*backend.Grant) []error {
	for _, g := range gs {
		d.with("ReleaseAll", g.Key)
	}
	return make([]error, len(gs))
}

func (d tampered) Watch(ctx context.Context, key string, changed func()) error {
	d.with("Watch", key)
	changed()
	<-ctx.Done()
	return ctx.Err()
}

func (d tampered) Close() error {
	d.with("Close", "victim")
	return d.script.Close()
}

// tamperedBatch is a tampered driver that renews in batches.
type tamperedBatch struct{ tampered }

func (d tamperedBatch) RenewAll(_ context.Context, gs []*backend.Grant) []backend.Renewal {
	for _, g := range gs {
		d.with("RenewAll", g.Key)
	}
	return proveAll(gs)
}

// tamperedPipe is a tampered driver whose server executes requests in the order of their sending.
type tamperedPipe struct{ tampered }

func (d tamperedPipe) ReleaseThen(ctx context.Context, g *backend.Grant, sent func()) error {
	d.with("ReleaseThen", g.Key)
	sent()
	return d.script.Release(ctx, g)
}

// driver returns a driver that runs m in m.callback. Its type decides which methods the engine
// calls.
func (m *tamper) driver() backend.Driver {
	d := tampered{newScript(), m}
	d.caps.Modes, d.caps.Move = backend.Exclusive|backend.Shared, true
	switch m.callback {
	case "RenewAll":
		return tamperedBatch{d}
	case "ReleaseThen":
		return tamperedPipe{d}
	}
	return d
}

func (m *tamper) observer() *dlock.Observer {
	return &dlock.Observer{
		Attempt:  func(_ context.Context, e dlock.Event) { m.with("Observer.Attempt", e.Name) },
		Acquired: func(_ context.Context, e dlock.Event) { m.with("Observer.Acquired", e.Name) },
		Renewed:  func(e dlock.Event) { m.with("Observer.Renewed", e.Name) },
		Ended:    func(e dlock.Event) { m.with("Observer.Ended", e.Name) },
	}
}

// handler is a slog.Handler with a tamper.
type handler struct {
	slog.Handler
	*tamper
}

func (h handler) Enabled(context.Context, slog.Level) bool {
	h.with("Enabled of the logger", "victim")
	return true
}

func (h handler) Handle(context.Context, slog.Record) error {
	h.with("logger", "victim")
	return nil
}

// parent is a user's own context type with a tamper.
type parent struct {
	context.Context //nolint:containedctx // it is one
	*tamper
}

func (p parent) Value(key any) any {
	p.with("parent context", "victim")
	return p.Context.Value(key)
}

func (p parent) Deadline() (time.Time, bool) {
	p.with("Deadline of a context", "victim")
	return p.Context.Deadline()
}

func (p parent) Done() <-chan struct{} {
	p.with("Done of a context", "victim")
	p.with("Done of a context in Unlock", "victim")
	return p.Context.Done()
}

func (p parent) Err() error {
	p.with("Err of a context", "victim")
	return p.Context.Err()
}

// callbacks maps each function of a user or a driver to an action that makes the client call it. A
// nil action means that Close makes the call.
var callbacks = map[string]func(ctx context.Context, c *dlock.Client, m *tamper){
	"Acquire": tryVictim,
	"Wait": func(ctx context.Context, c *dlock.Client, _ *tamper) {
		_, _ = c.Lock(ctx, "victim")
	},
	"Renew":       holdVictim,
	"RenewAll":    holdVictim,
	"Release":     tryVictim,
	"ReleaseThen": tryVictim,
	"Inspect": func(ctx context.Context, c *dlock.Client, _ *tamper) {
		_, _ = c.Inspect(ctx, "victim")
	},
	"List":         listVictim,
	"body of List": listVictim,
	"Break": func(ctx context.Context, c *dlock.Client, _ *tamper) {
		_ = c.Break(ctx, "victim", "")
	},
	"Close":             nil,
	"Observer.Attempt":  tryVictim,
	"Observer.Acquired": tryVictim,
	"Observer.Renewed":  holdVictim,
	"Observer.Ended":    tryVictim,
	"logger":            loseVictim,
	"Do": func(ctx context.Context, c *dlock.Client, m *tamper) {
		_ = c.Do(ctx, "victim", func(context.Context, *dlock.Lease) error {
			m.with("Do", "victim")
			return nil
		})
	},
	"Downgrade": func(ctx context.Context, c *dlock.Client, _ *tamper) {
		if lease, err := c.TryLock(ctx, "victim"); err == nil {
			_ = lease.Downgrade(ctx)
			_ = lease.Unlock(ctx)
		}
	},
	"Export":          moveVictim,
	"Adopt":           moveVictim,
	"AcquireAll":      lockVictims,
	"ReleaseAll":      lockVictims,
	"Watch":           observeVictim,
	"body of Observe": observeVictim,
	"Elect": func(ctx context.Context, c *dlock.Client, m *tamper) {
		_ = c.Elect(ctx, "victim", func(context.Context, *dlock.Lease) error {
			m.with("Elect", "victim")
			return nil
		})
	},
	"Enabled of the logger": loseVictim,
	"Deadline of a context": lockInParent,
	"Done of a context":     lockInParent,
	"Err of a context":      lockInParent,
	"Done of a context in Unlock": func(ctx context.Context, c *dlock.Client, m *tamper) {
		if lease, err := c.TryLock(ctx, "victim"); err == nil {
			_ = lease.Unlock(parent{ctx, m})
		}
	},
	"parent context": func(ctx context.Context, c *dlock.Client, m *tamper) {
		lease, err := c.Lock(ctx, "victim")
		if err != nil {
			return
		}
		m.armed.Store(false)
		_, cancel := lease.Context(parent{ctx, m})
		m.armed.Store(true)
		_ = lease.Unlock(ctx)
		m.armed.Store(false)
		cancel()
	},
}

func tryVictim(ctx context.Context, c *dlock.Client, _ *tamper) {
	if lease, err := c.TryLock(ctx, "victim"); err == nil {
		_ = lease.Unlock(ctx)
	}
}

func holdVictim(ctx context.Context, c *dlock.Client, _ *tamper) {
	if lease, err := c.TryLock(ctx, "victim"); err == nil {
		<-ctx.Done()
		runtime.KeepAlive(lease)
	}
}

func loseVictim(ctx context.Context, c *dlock.Client, _ *tamper) {
	if lease, err := c.TryLock(ctx, "victim", dlock.WithMaxHold(time.Second)); err == nil {
		<-lease.Lost()
	}
}

func lockInParent(ctx context.Context, c *dlock.Client, m *tamper) {
	_, _ = c.Lock(parent{ctx, m}, "victim")
}

func lockVictims(ctx context.Context, c *dlock.Client, _ *tamper) {
	if all, err := c.LockAll(ctx, []string{"victim", "another victim"}); err == nil {
		_ = all.Unlock(ctx)
	}
}

func moveVictim(ctx context.Context, c *dlock.Client, _ *tamper) {
	lease, err := c.TryLock(ctx, "victim")
	if err != nil {
		return
	}
	handle, err := lease.Export(ctx)
	if err != nil {
		return
	}
	if adopted, err := c.Adopt(ctx, handle); err == nil {
		_ = adopted.Unlock(ctx)
	}
}

func observeVictim(ctx context.Context, c *dlock.Client, m *tamper) {
	for _, err := range c.Observe(ctx, "victim") {
		_ = err
		m.with("body of Observe", "victim")
	}
}

func listVictim(ctx context.Context, c *dlock.Client, m *tamper) {
	for _, err := range c.List(ctx, "victim") {
		if err == nil {
			m.with("body of List", "victim")
		}
	}
}

// misdeeds are the things that a callback does instead of returning.
var misdeeds = map[string]func(c *dlock.Client, end <-chan struct{}) func(){
	"blocks": func(_ *dlock.Client, end <-chan struct{}) func() { return func() { <-end } },
	"panics": func(*dlock.Client, <-chan struct{}) func() {
		return func() { panic("a callback's") }
	},
	"goexit": func(*dlock.Client, <-chan struct{}) func() { return runtime.Goexit },
	"calls back": func(c *dlock.Client, _ <-chan struct{}) func() {
		return func() {
			if lease, err := c.TryLock(context.Background(), "callback"); err == nil {
				_ = lease.Unlock(context.Background())
			}
			_, _ = c.Inspect(context.Background(), "callback")
		}
	},
}

// TestCallbacksAreComplete checks that callbacks has each method of a driver that a client calls,
// and each field of an Observer.
func TestCallbacksAreComplete(t *testing.T) {
	t.Parallel()
	// Capabilities is called once, before there is a client.
	names := map[string]bool{"Capabilities": true}
	for name := range callbacks {
		names[name] = true
	}
	for _, part := range []reflect.Type{
		reflect.TypeFor[backend.Driver](), reflect.TypeFor[backend.Waiter](),
		reflect.TypeFor[backend.BatchRenewer](), reflect.TypeFor[backend.Pipeliner](),
		reflect.TypeFor[backend.Combiner](), reflect.TypeFor[backend.Inspector](),
		reflect.TypeFor[backend.Breaker](), reflect.TypeFor[backend.Downgrader](),
		reflect.TypeFor[backend.Mover](), reflect.TypeFor[backend.Watcher](),
	} {
		for method := range part.Methods() {
			if !names[method.Name] {
				t.Errorf("callbacks has no %s, a method of %v", method.Name, part)
			}
		}
	}
	for field := range reflect.TypeFor[dlock.Observer]().Fields() {
		if name := "Observer." + field.Name; !names[name] {
			t.Errorf("callbacks has no %s", name)
		}
	}
}

// TestCallbacksCostNoOtherLease checks that a misbehaving callback affects no other lease of its
// client. The other leases are renewed, lost and released in time, and Close returns.
func TestCallbacksCostNoOtherLease(t *testing.T) {
	t.Parallel()
	for callback, trigger := range callbacks {
		for misdeed, run := range misdeeds {
			t.Run(callback+" "+misdeed, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					end := make(chan struct{})
					m := &tamper{callback: callback}
					c := open(t, m.driver(), dlock.WithTTL(ttl), dlock.WithObserver(m.observer()),
						dlock.WithLogger(slog.New(handler{slog.DiscardHandler, m})))
					m.run = run(c, end)
					othersGoOn(t, c, m, trigger)
					close(end)
				})
			})
		}
	}
}

// othersGoOn triggers the callback and watches other leases. Their TTL is the victim's. The times
// of renewals are random, and so many leases are renewed that some of them are in its batch.
func othersGoOn(
	t *testing.T, c *dlock.Client, m *tamper,
	trigger func(context.Context, *dlock.Client, *tamper),
) {
	t.Helper()
	begun := time.Now()
	var renewed []*dlock.Lease
	for i := range 10 {
		renewed = append(renewed, takes(t, c, fmt.Sprint("renewed ", i)))
	}
	lost := takes(t, c, "lost", dlock.WithoutRenewal())
	released := takes(t, c, "released")
	m.armed.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if trigger != nil {
		go func() {
			defer func() { _ = recover() }()
			trigger(ctx, c, m)
		}()
		time.Sleep(ttl/2 - time.Millisecond)
		if !m.happened.Load() {
			t.Fatal("the callback was not called")
		}
	}
	unlocking := time.Now()
	frees(t, released)
	wantAt(t, "unlocked", time.Since(unlocking), 0, 0)
	<-lost.Lost()
	wantAt(t, "the loss", time.Since(begun), life, 0)
	time.Sleep(time.Minute)
	for _, lease := range renewed {
		if err := lease.Err(); err != nil {
			t.Error(err)
		}
	}
	closing := time.Now()
	_ = c.Close()
	if took := time.Since(closing); took > 11*time.Second || !m.happened.Load() {
		t.Errorf("Close took %v; the callback was called: %t", took, m.happened.Load())
	}
}
