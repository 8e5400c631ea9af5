package dlock_test

import (
	"context"
	"iter"
	"log/slog"
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

func (h handler) Enabled(context.Context, slog.Level) bool { return true }

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

// othersGoOn triggers the callback and watches three other leases. Their TTL differs from the
// victim's, because renewals of equal TTL share one request of the driver.
func othersGoOn(
	t *testing.T, c *dlock.Client, m *tamper,
	trigger func(context.Context, *dlock.Client, *tamper),
) {
	t.Helper()
	const otherTTL = ttl + 2*time.Second
	begun := time.Now()
	renewed := takes(t, c, "renewed", dlock.WithTTL(otherTTL))
	lost := takes(t, c, "lost", dlock.WithTTL(otherTTL), dlock.WithoutRenewal())
	released := takes(t, c, "released", dlock.WithTTL(otherTTL))
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
	wantAt(t, "the loss", time.Since(begun), otherTTL-otherTTL/100-10*time.Millisecond, 0)
	time.Sleep(time.Minute)
	if err := renewed.Err(); err != nil {
		t.Error(err)
	}
	closing := time.Now()
	_ = c.Close()
	if took := time.Since(closing); took > 11*time.Second || !m.happened.Load() {
		t.Errorf("Close took %v; the callback was called: %t", took, m.happened.Load())
	}
}
