package conformance

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// op is a method of a driver.
type op int

const (
	acquire op = iota
	renew
	release
	wait
)

func (o op) String() string { return [...]string{"acquire", "renew", "release", "wait"}[o] }

// call is one request of the core to its driver. A batch of renewals is one call per grant.
type call struct {
	op    op
	owner string
	begun time.Time
	busy  *backend.Busy
	grant *backend.Grant
	term  backend.Term // from the answer
	err   error
}

// hook runs before or after a call. owner is the owner of the request, or of the first request of
// a batch. The error of a hook before the call is the answer, and the driver is not called. The
// error of a hook after the call replaces the answer, as if it had been lost. A hook returns when
// ctx ends.
type hook func(ctx context.Context, owner string) error

// tap is a driver that forwards the core's calls to another driver. It records the calls, and
// disturbs them with the hooks of a case.
type tap struct {
	f          *fixture
	inner      backend.Driver
	connection int // the number of inner in the case

	life  context.Context // ends with kill
	end   context.CancelFunc
	alive sync.RWMutex  // read-locked by each call
	close func() error  // of inner, once
	late  time.Duration // the minimum of Capabilities.Late

	mu            sync.Mutex
	begun         []call
	answered      []call
	changed       chan struct{} // closed at each change of begun or answered
	before, after [4]hook
	answers       func(call) // called with each answer, if it is not nil
	watched       func()     // of the newest Watch: the lock may have changed; nil: there is none

	inspections atomic.Int32 // answers to Inspect
}

func newTap(f *fixture, inner backend.Driver, late time.Duration) *tap {
	t := &tap{
		f: f, inner: inner, connection: f.connection(inner), late: late,
		changed: make(chan struct{}), close: sync.OnceValue(inner.Close),
	}
	t.life, t.end = context.WithCancel(context.Background())
	return t
}

// onBefore sets the hook before op; nil removes it.
func (t *tap) onBefore(o op, h hook) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.before[o] = h
}

// onAfter sets the hook after op; nil removes it.
func (t *tap) onAfter(o op, h hook) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.after[o] = h
}

// kill simulates the death of the process: it closes the connection, and later requests are not
// executed. The grants of the process expire, or end with the connection.
func (t *tap) kill() {
	if err := t.Close(); err != nil {
		t.f.Errorf("Close of the driver: %v", err)
	}
}

// Close also serves as kill, because it sends no request to the server.
func (t *tap) Close() error {
	t.end()
	t.alive.Lock()
	defer t.alive.Unlock()
	return t.close()
}

// await waits for n answers to o that meet cond; a nil cond accepts any answer. It ends the case if
// they do not arrive within twice prompt.
func (t *tap) await(o op, n int, cond func(call) bool) {
	t.f.Helper()
	timeout := time.NewTimer(2 * prompt)
	defer timeout.Stop()
	for {
		calls, changed := t.snapshot()
		seen := count(calls, o, cond)
		if seen >= n {
			return
		}
		select {
		case <-changed:
		case <-timeout.C:
			t.f.Fatalf("connection %d: %d such answers to %s, want %d", t.connection, seen, o, n)
		case <-t.f.ctx.Done():
			t.f.Fatalf("connection %d: %d such answers to %s at the end of the case, want %d",
				t.connection, seen, o, n)
		}
	}
}

// snapshot returns the answered calls, and a channel that is closed at the next change.
func (t *tap) snapshot() ([]call, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.answered, t.changed
}

// number returns the number of calls of o that have begun.
func (t *tap) number(o op) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return count(t.begun, o, nil)
}

// since returns the number of calls of o for owner that began after at.
func (t *tap) since(o op, owner string, at time.Time) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return count(t.begun, o, func(c call) bool { return c.owner == owner && c.begun.After(at) })
}

func count(calls []call, o op, cond func(call) bool) int {
	n := 0
	for _, c := range calls {
		if c.op == o && (cond == nil || cond(c)) {
			n++
		}
	}
	return n
}

// wasBusy is true for a refused attempt, wasGranted for a successful attempt, and succeeded for any
// call without an error.
func wasBusy(c call) bool    { return c.busy != nil }
func wasGranted(c call) bool { return c.grant != nil }
func succeeded(c call) bool  { return c.err == nil }

// do runs one call between its hooks.
func (t *tap) do(
	ctx context.Context, o op, owners []string, fn func(ctx context.Context) error,
) error {
	return t.doAll(ctx, o, owners, func(ctx context.Context) []error {
		return []error{fn(ctx)}
	})[0]
}

// doAll runs one call with an answer to each of its requests. The error of a hook is the answer to
// all of them.
func (t *tap) doAll(
	ctx context.Context, o op, owners []string, fn func(ctx context.Context) []error,
) []error {
	t.alive.RLock()
	defer t.alive.RUnlock()
	all := func(err error) []error { return slices.Repeat([]error{err}, len(owners)) }
	if t.life.Err() != nil {
		return all(t.dead(o))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(t.life, cancel)()
	before, after := t.begin(o, owners)
	if before != nil {
		if err := before(ctx, owners[0]); err != nil {
			return all(err)
		}
	}
	answered := t.f.send(t.connection, o, owners[0])
	errs := fn(ctx)
	answered(ofBatch(errs))
	if after != nil {
		if err := after(ctx, owners[0]); err != nil {
			return all(err)
		}
	}
	return errs
}

// dead returns the error of a call after kill. A release returns ErrNotHeld, so that the core does
// not repeat it.
func (t *tap) dead(o op) error {
	if o == release {
		return backend.ErrNotHeld
	}
	return fmt.Errorf("%w: the process was killed", backend.ErrUnavailable)
}

func (t *tap) begin(o op, owners []string) (before, after hook) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, owner := range owners {
		t.begun = append(t.begun, call{op: o, owner: owner, begun: time.Now()})
	}
	t.change()
	return t.before[o], t.after[o]
}

func (t *tap) answer(c call) {
	t.mu.Lock()
	t.answered = append(t.answered, c)
	t.change()
	answers := t.answers
	t.mu.Unlock()
	if answers != nil {
		answers(c)
	}
}

// onAnswer sets a function that is called with each answer, as soon as the answer arrives.
func (t *tap) onAnswer(answers func(call)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.answers = answers
}

func (t *tap) change() {
	close(t.changed)
	t.changed = make(chan struct{})
}

func (t *tap) Acquire(ctx context.Context, req *backend.Request) (g *backend.Grant, err error) {
	err = t.do(ctx, acquire, []string{req.Owner}, func(ctx context.Context) error {
		g, err = t.inner.Acquire(ctx, req)
		return err
	})
	return t.answerGrant(acquire, req, g, err)
}

// AcquireAll is one call for each of reqs. The hooks are called once.
func (t *tap) AcquireAll(
	ctx context.Context, reqs []*backend.Request,
) (grants []*backend.Grant, failed int, err error) {
	c, ok := t.inner.(backend.Combiner)
	if !ok {
		return nil, 0, backend.ErrUnsupported
	}
	owners := make([]string, len(reqs))
	for i, req := range reqs {
		owners[i] = req.Owner
	}
	err = t.do(ctx, acquire, owners, func(ctx context.Context) error {
		grants, failed, err = c.AcquireAll(ctx, reqs)
		return err
	})
	for i, req := range reqs {
		var g *backend.Grant
		if err == nil {
			g = grants[i]
		}
		_, _ = t.answerGrant(acquire, req, g, err)
	}
	if err != nil {
		grants = nil
	}
	return grants, failed, err
}

// answerGrant records the answer to an Acquire or a Wait. It drops the grant if the answer
// was lost.
func (t *tap) answerGrant(
	o op, req *backend.Request, g *backend.Grant, err error,
) (*backend.Grant, error) {
	if err != nil {
		g = nil
	}
	busy, _ := err.(*backend.Busy) //nolint:errorlint // never wrapped
	c := call{op: o, owner: req.Owner, busy: busy, grant: g, err: err}
	if g != nil {
		c.term = g.Term
	}
	t.answer(c)
	return g, err
}

func (t *tap) Renew(ctx context.Context, g *backend.Grant) (term backend.Term, err error) {
	err = t.do(ctx, renew, []string{g.Owner}, func(ctx context.Context) error {
		term, err = t.inner.Renew(ctx, g)
		return err
	})
	t.answer(call{op: renew, owner: g.Owner, term: term, err: err})
	return term, err
}

// RenewAll renews the grants one by one if the driver has no RenewAll.
func (t *tap) RenewAll(ctx context.Context, gs []*backend.Grant) []backend.Renewal {
	if len(gs) == 0 {
		return nil
	}
	owners := make([]string, len(gs))
	for i, g := range gs {
		owners[i] = g.Owner
	}
	renewals, errs := make([]backend.Renewal, len(gs)), make([]error, len(gs))
	errs = t.doAll(ctx, renew, owners, func(ctx context.Context) []error {
		copy(renewals, renewAll(ctx, t.inner, gs))
		for i, r := range renewals {
			errs[i] = r.Err
		}
		return errs
	})
	for i, err := range errs {
		if err != nil {
			renewals[i] = backend.Renewal{Err: err}
		}
		t.answer(call{op: renew, owner: gs[i].Owner, term: renewals[i].Term, err: err})
	}
	return renewals
}

func renewAll(ctx context.Context, d backend.Driver, gs []*backend.Grant) []backend.Renewal {
	if b, ok := d.(backend.BatchRenewer); ok {
		return b.RenewAll(ctx, gs)
	}
	renewals := make([]backend.Renewal, len(gs))
	for i, g := range gs {
		renewals[i].Term, renewals[i].Err = d.Renew(ctx, g)
	}
	return renewals
}

func (t *tap) Release(ctx context.Context, g *backend.Grant) error {
	begun := time.Now()
	err := t.do(ctx, release, []string{g.Owner}, func(ctx context.Context) error {
		return t.inner.Release(ctx, g)
	})
	t.answer(call{op: release, owner: g.Owner, begun: begun, err: err})
	return err
}

// ReleaseAll releases the grants one by one if the driver has no ReleaseAll.
func (t *tap) ReleaseAll(ctx context.Context, gs []*backend.Grant) []error {
	c, ok := t.inner.(backend.Combiner)
	if !ok {
		errs := make([]error, len(gs))
		for i, g := range gs {
			errs[i] = t.Release(ctx, g)
		}
		return errs
	}
	begun := time.Now()
	owners := make([]string, len(gs))
	for i, g := range gs {
		owners[i] = g.Owner
	}
	errs := t.doAll(ctx, release, owners, func(ctx context.Context) []error {
		return c.ReleaseAll(ctx, gs)
	})
	for i, g := range gs {
		t.answer(call{op: release, owner: g.Owner, begun: begun, err: errs[i]})
	}
	return errs
}

// ReleaseThen does not call sent if the driver has no ReleaseThen.
func (t *tap) ReleaseThen(ctx context.Context, g *backend.Grant, sent func()) error {
	p, ok := t.inner.(backend.Pipeliner)
	if !ok {
		return t.Release(ctx, g)
	}
	begun := time.Now()
	err := t.do(ctx, release, []string{g.Owner}, func(ctx context.Context) error {
		return p.ReleaseThen(ctx, g, sent)
	})
	t.answer(call{op: release, owner: g.Owner, begun: begun, err: err})
	return err
}

// Wait blocks until ctx ends if the driver has no Wait, so that the core polls.
func (t *tap) Wait(
	ctx context.Context, req *backend.Request, b *backend.Busy,
) (g *backend.Grant, err error) {
	err = t.do(ctx, wait, []string{req.Owner}, func(ctx context.Context) error {
		if w, ok := t.inner.(backend.Waiter); ok {
			g, err = w.Wait(ctx, req, b)
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	})
	return t.answerGrant(wait, req, g, err)
}

func (t *tap) Capabilities() backend.Capabilities {
	caps := t.inner.Capabilities()
	caps.Late = max(caps.Late, t.late)
	return caps
}

func (t *tap) Inspect(ctx context.Context, key string) (*backend.Info, error) {
	if i, ok := t.inner.(backend.Inspector); ok {
		defer t.inspections.Add(1)
		return i.Inspect(ctx, key)
	}
	return nil, backend.ErrUnsupported
}

func (t *tap) List(ctx context.Context, prefix string) iter.Seq2[*backend.Info, error] {
	if i, ok := t.inner.(backend.Inspector); ok {
		return i.List(ctx, prefix)
	}
	return func(yield func(*backend.Info, error) bool) { yield(nil, backend.ErrUnsupported) }
}

func (t *tap) Break(ctx context.Context, key, owner string) error {
	if b, ok := t.inner.(backend.Breaker); ok {
		return b.Break(ctx, key, owner)
	}
	return backend.ErrUnsupported
}

func (t *tap) Downgrade(ctx context.Context, g *backend.Grant) (*backend.Grant, error) {
	if d, ok := t.inner.(backend.Downgrader); ok {
		return d.Downgrade(ctx, g)
	}
	return nil, backend.ErrUnsupported
}

func (t *tap) Export(ctx context.Context, g *backend.Grant) (ticket string, err error) {
	if m, ok := t.inner.(backend.Mover); ok {
		return m.Export(ctx, g)
	}
	return "", backend.ErrUnsupported
}

func (t *tap) Adopt(
	ctx context.Context, ticket string, req *backend.Request,
) (*backend.Grant, error) {
	if m, ok := t.inner.(backend.Mover); ok {
		return m.Adopt(ctx, ticket, req)
	}
	return nil, backend.ErrUnsupported
}

func (t *tap) Watch(ctx context.Context, key string, changed func()) error {
	t.mu.Lock()
	t.watched = changed
	t.mu.Unlock()
	if w, ok := t.inner.(backend.Watcher); ok {
		return w.Watch(ctx, key, changed)
	}
	return backend.ErrUnsupported
}

// signal lets the newest Watch report that the lock may have changed. It does nothing if the core
// polls.
func (t *tap) signal() {
	t.mu.Lock()
	changed := t.watched
	t.mu.Unlock()
	if changed != nil {
		changed()
	}
}

// hang is a hook that does not answer until the request is given up.
func hang(ctx context.Context, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

// fail returns a hook that answers with err.
func fail(err error) hook {
	return func(context.Context, string) error { return err }
}

// times returns a hook that calls h for the first n calls, and does nothing for the later ones.
func times(n int, h hook) hook {
	var mu sync.Mutex
	return func(ctx context.Context, owner string) error {
		mu.Lock()
		n--
		spent := n < 0
		mu.Unlock()
		if spent {
			return nil
		}
		return h(ctx, owner)
	}
}

// stop returns a hook that delays a call for d even if its context ends, as if the process was
// stopped meanwhile.
func stop(d time.Duration) hook {
	return func(context.Context, string) error {
		time.Sleep(d)
		return nil
	}
}

// errReply replaces a lost answer, so that the outcome is unknown.
var errReply = fmt.Errorf("conformance: the reply was lost")
