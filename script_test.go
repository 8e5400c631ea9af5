package dlock_test

import (
	"context"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A step is the answer of a script to one call of the core.
type (
	acquireStep func(context.Context, *backend.Request) (*backend.Grant, error)
	waitStep    func(context.Context, *backend.Request, *backend.Busy) (*backend.Grant, error)
	renewStep   func(context.Context, *backend.Grant) (backend.Term, error)
	releaseStep func(context.Context, *backend.Grant) error
)

// script is a driver with scripted answers. Each call takes the next step of its list; if the list
// is empty, the lock is granted, renewed and released. A script does not exclude a second holder.
type script struct {
	opened    time.Duration // TTL of the URL that opened it
	caps      backend.Capabilities
	acquires  []acquireStep
	waits     []waitStep
	renews    []renewStep
	releases  []releaseStep
	renewAll  func(gs []*backend.Grant) []backend.Renewal
	inspect   func(ctx context.Context) (*backend.Info, error)
	breakLock func(ctx context.Context) error

	begun time.Time
	mu    sync.Mutex
	calls []call
	fence uint64
}

// call is one call that the core made.
type call struct {
	op    string
	at    time.Duration // since newScript
	owner string
	state any // State that Wait and Release received
	size  int // number of grants for RenewAll
	req   *backend.Request
}

// newScript returns a script with all capabilities.
func newScript() *script {
	return &script{begun: time.Now(), caps: backend.Capabilities{
		Modes: backend.Exclusive, Fair: backend.FairOptional, Fencing: backend.FenceVolatile,
		Inspect: true, List: true, Break: true, Notify: true,
	}}
}

// next records a call and returns its step.
func next[S any](s *script, c call, steps *[]S, otherwise S) S {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.at = time.Since(s.begun)
	s.calls = append(s.calls, c)
	if steps == nil || len(*steps) == 0 {
		return otherwise
	}
	step := (*steps)[0]
	*steps = (*steps)[1:]
	return step
}

// grantAll forgets the steps for Acquire that are left.
func (s *script) grantAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acquires = nil
}

func (s *script) Acquire(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
	return next(s, call{op: "acquire", owner: req.Owner, req: req}, &s.acquires, s.grant)(ctx, req)
}

func (s *script) Wait(
	ctx context.Context, req *backend.Request, b *backend.Busy,
) (*backend.Grant, error) {
	c := call{op: "wait", owner: req.Owner, req: req, state: b.State}
	return next(s, c, &s.waits, waitForEver)(ctx, req, b)
}

func (s *script) Renew(ctx context.Context, g *backend.Grant) (backend.Term, error) {
	return next(s, call{op: "renew", owner: g.Owner}, &s.renews, prove)(ctx, g)
}

func (s *script) Release(ctx context.Context, g *backend.Grant) error {
	return next(s, call{op: "release", owner: g.Owner, state: g.State}, &s.releases, free)(ctx, g)
}

func (s *script) Inspect(ctx context.Context, _ string) (*backend.Info, error) {
	return s.inspect(ctx)
}

func (s *script) List(ctx context.Context, _ string) iter.Seq2[*backend.Info, error] {
	return func(yield func(*backend.Info, error) bool) { yield(s.inspect(ctx)) }
}

func (s *script) Break(ctx context.Context, _, _ string) error { return s.breakLock(ctx) }

func (s *script) Capabilities() backend.Capabilities { return s.caps }

func (s *script) Close() error {
	return next(s, call{op: "close"}, nil, func() error { return nil })()
}

// batching is a script that renews in batches; its renews are not used.
type batching struct{ *script }

func (b batching) RenewAll(_ context.Context, gs []*backend.Grant) []backend.Renewal {
	return next(b.script, call{op: "renew-all", size: len(gs)}, nil, b.renewAll)(gs)
}

// grant is the step that grants the lock, with the next fence.
func (s *script) grant(_ context.Context, req *backend.Request) (*backend.Grant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fence++
	term := termOf(req.TTL)
	return &backend.Grant{Request: *req, Term: term, Fence: s.fence, State: "granted"}, nil
}

func termOf(ttl time.Duration) backend.Term { return backend.Term{Sent: time.Now(), TTL: ttl} }

func prove(_ context.Context, g *backend.Grant) (backend.Term, error) { return termOf(g.TTL), nil }

func free(context.Context, *backend.Grant) error { return nil }

func waitForEver(ctx context.Context, _ *backend.Request, _ *backend.Busy) (*backend.Grant, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// of returns the calls with the name op, or all calls if op is empty.
func (s *script) of(op string) []call {
	s.mu.Lock()
	defer s.mu.Unlock()
	isOther := func(c call) bool { return op != "" && c.op != op }
	return slices.DeleteFunc(slices.Clone(s.calls), isOther)
}

// story returns the names of all calls in their order, joined by spaces.
func (s *script) story() string {
	var ops []string
	for _, c := range s.of("") {
		ops = append(ops, c.op)
	}
	return strings.Join(ops, " ")
}
