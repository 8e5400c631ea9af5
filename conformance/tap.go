package conformance

import (
	"context"
	"fmt"
	"iter"
	"sync"
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

// call is one request that the core made of its driver. A batch of renewals is
// one call per grant.
type call struct {
	op    op
	owner string
	begun time.Time
	busy  *backend.Busy
	grant *backend.Grant
	term  backend.Term // as answered
	err   error
}

// hook is run before or after a call; owner is that of the request, or of the first
// of a batch. Before: an error is the answer and the driver is not asked. After: an
// error replaces the answer, as if that had been lost. It returns when ctx ends.
type hook func(ctx context.Context, owner string) error

// tap is a driver that listens to what the core asks of another one, and disturbs
// it where a case wants that.
type tap struct {
	f          *fixture
	inner      backend.Driver
	connection int // its number in the case

	life  context.Context // ends with kill
	end   context.CancelFunc
	alive sync.RWMutex  // read-locked by each call
	close func() error  // of inner, once
	late  time.Duration // the least Capabilities.Late

	mu            sync.Mutex
	begun         []call
	answered      []call
	changed       chan struct{} // closed at each change of begun or answered
	before, after [4]hook
	answers       func(call) // called with each answer, if it is not nil
}

func newTap(f *fixture, inner backend.Driver, late time.Duration) *tap {
	t := &tap{f: f, inner: inner, connection: f.connection(inner), late: late, changed: make(chan struct{}), close: sync.OnceValue(inner.Close)}
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

// kill ends the process: its connection is closed and nothing it asks is
// executed any more. What it held expires, or ends with the connection.
func (t *tap) kill() {
	if err := t.Close(); err != nil {
		t.f.Errorf("Close of the driver: %v", err)
	}
}

// Close is also kill, for that asks the server nothing either.
func (t *tap) Close() error {
	t.end()
	t.alive.Lock()
	defer t.alive.Unlock()
	return t.close()
}

// await waits until n answers of op have come that meet cond, nil being any; false if
// they did not come soon.
func (t *tap) await(o op, n int, cond func(call) bool) bool {
	t.f.Helper()
	timeout := time.NewTimer(2 * prompt)
	defer timeout.Stop()
	for {
		calls, changed := t.snapshot()
		seen := count(calls, o, cond)
		if seen >= n {
			return true
		}
		select {
		case <-changed:
		case <-timeout.C:
			t.f.Errorf("connection %d: %d such answers to %s, want %d", t.connection, seen, o, n)
			return false
		case <-t.f.ctx.Done():
			t.f.Errorf("connection %d: %d such answers to %s at the end of the case, want %d", t.connection, seen, o, n)
			return false
		}
	}
}

// snapshot returns the answered calls and what tells that there are more.
func (t *tap) snapshot() ([]call, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.answered, t.changed
}

// number counts the calls of op that have begun.
func (t *tap) number(o op) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return count(t.begun, o, nil)
}

// since counts the calls of op for owner that began after at.
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

// wasBusy is met by a refused attempt, wasGranted by a successful one.
func wasBusy(c call) bool    { return c.busy != nil }
func wasGranted(c call) bool { return c.grant != nil }
func succeeded(c call) bool  { return c.err == nil }

// do runs one call between its hooks.
func (t *tap) do(ctx context.Context, o op, owners []string, fn func(ctx context.Context) error) error {
	t.alive.RLock()
	defer t.alive.RUnlock()
	if t.life.Err() != nil {
		return t.dead(o)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(t.life, cancel)()
	before, after := t.begin(o, owners)
	if before != nil {
		if err := before(ctx, owners[0]); err != nil {
			return err
		}
	}
	answered := t.f.send(t.connection, o, owners[0])
	err := fn(ctx)
	answered(err)
	if after != nil {
		if err := after(ctx, owners[0]); err != nil {
			return err
		}
	}
	return err
}

// dead is the answer of a killed process. Its releases pass for done: nobody is
// left to repeat them.
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

// onAnswer sets what is called with each answer, as soon as it has come.
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

// answerGrant drops the grant of an answer that was lost.
func (t *tap) answerGrant(o op, req *backend.Request, g *backend.Grant, err error) (*backend.Grant, error) {
	if err != nil {
		g = nil
	}
	busy, _ := err.(*backend.Busy) //nolint:errorlint // a driver returns it as it is
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

// RenewAll renews one by one where the driver cannot do otherwise.
func (t *tap) RenewAll(ctx context.Context, gs []*backend.Grant) []backend.Renewal {
	if len(gs) == 0 {
		return nil
	}
	owners := make([]string, len(gs))
	for i, g := range gs {
		owners[i] = g.Owner
	}
	renewals := make([]backend.Renewal, len(gs))
	if err := t.do(ctx, renew, owners, func(ctx context.Context) error {
		copy(renewals, renewAll(ctx, t.inner, gs))
		return nil
	}); err != nil {
		for i := range renewals {
			renewals[i] = backend.Renewal{Err: err}
		}
	}
	for i, g := range gs {
		t.answer(call{op: renew, owner: g.Owner, term: renewals[i].Term, err: renewals[i].Err})
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
	err := t.do(ctx, release, []string{g.Owner}, func(ctx context.Context) error { return t.inner.Release(ctx, g) })
	t.answer(call{op: release, owner: g.Owner, begun: begun, err: err})
	return err
}

// ReleaseThen of a driver that has none tells nothing before the answer.
func (t *tap) ReleaseThen(ctx context.Context, g *backend.Grant, sent func()) error {
	p, ok := t.inner.(backend.Pipeliner)
	if !ok {
		return t.Release(ctx, g)
	}
	begun := time.Now()
	err := t.do(ctx, release, []string{g.Owner}, func(ctx context.Context) error { return p.ReleaseThen(ctx, g, sent) })
	t.answer(call{op: release, owner: g.Owner, begun: begun, err: err})
	return err
}

// Wait of a driver that has none lets the core poll.
func (t *tap) Wait(ctx context.Context, req *backend.Request, b *backend.Busy) (g *backend.Grant, err error) {
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

// The hooks that the cases use.

// hang answers nothing until the request is given up.
func hang(ctx context.Context, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

// fail answers with err.
func fail(err error) hook {
	return func(context.Context, string) error { return err }
}

// times does h for the first n calls and nothing for those that follow.
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

// stop holds a call back for d, whatever becomes of its context: the process was
// stopped meanwhile.
func stop(d time.Duration) hook {
	return func(context.Context, string) error {
		time.Sleep(d)
		return nil
	}
}

// errReply is an answer whose loss leaves the outcome unknown.
var errReply = fmt.Errorf("conformance: the reply was lost")
