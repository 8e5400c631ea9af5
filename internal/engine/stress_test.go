package engine

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/membackend"
)

const (
	lateness = 20 * time.Millisecond // of a request whose context has ended
	term     = time.Second
)

var errWild = errors.New("the wild driver failed")

// wild is a driver of membackend that fails in all the ways in which a driver can fail. It refuses
// requests, loses requests and answers, executes requests late, repeats losses, wakes waiters
// without a reason, panics, and ends goroutines.
type wild struct {
	backend.Driver
	backend.Waiter
	backend.Breaker

	mu     sync.Mutex
	random *rand.Rand
	tame   bool
	late   sync.WaitGroup
}

func newWild(space string, seed uint64) *wild {
	d := membackend.New(&membackend.Options{Space: space})
	return &wild{
		Driver: d, Waiter: d.(backend.Waiter), Breaker: d.(backend.Breaker),
		random: rand.New(rand.NewPCG(seed, 1)), //nolint:gosec // it must repeat
	}
}

func (w *wild) Capabilities() backend.Capabilities {
	caps := w.Driver.Capabilities()
	caps.Late = lateness
	return caps
}

// roll returns a random number below 100 and a delay. It returns 100 once w is tame.
func (w *wild) roll() (int, time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delay := time.Duration(w.random.IntN(3_000_000))
	if w.tame {
		return 100, 0
	}
	return w.random.IntN(100), delay
}

func (w *wild) calmDown() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tame = true
}

// trip makes one request. The request may be executed after trip has returned.
func (w *wild) trip(ctx context.Context, request func()) error {
	dice, delay := w.roll()
	time.Sleep(delay)
	switch {
	case dice < 3:
		return fmt.Errorf("%w: refused", backend.ErrUnavailable)
	case dice < 5:
		<-ctx.Done()
		return ctx.Err()
	case dice < 8:
		w.late.Go(func() {
			time.Sleep(5 * delay)
			request()
		})
		return errWild
	case dice < 10:
		panic("wild")
	case dice < 12:
		runtime.Goexit()
	}
	request()
	switch {
	case dice < 16:
		return errWild
	case dice < 18:
		<-ctx.Done()
		return ctx.Err()
	case dice < 20:
		panic("wild")
	}
	time.Sleep(delay)
	return nil
}

func (w *wild) Acquire(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
	var grant *backend.Grant
	var err error
	mine := *req
	mine.Lost = func(err error) {
		req.Lost(err)
		w.late.Go(func() {
			time.Sleep(time.Millisecond)
			req.Lost(err)
		})
	}
	sent := time.Now()
	if fault := w.trip(ctx, func() { grant, err = w.Driver.Acquire(ctx, &mine) }); fault != nil {
		return nil, fault
	}
	if grant != nil {
		again := *grant
		again.Term.Sent = sent
		return &again, nil
	}
	return nil, err
}

func (w *wild) Renew(ctx context.Context, g *backend.Grant) (backend.Term, error) {
	var term backend.Term
	var err error
	sent := time.Now()
	if fault := w.trip(ctx, func() { term, err = w.Driver.Renew(ctx, g) }); fault != nil {
		return backend.Term{}, fault
	}
	term.Sent = sent
	return term, err
}

func (w *wild) Release(ctx context.Context, g *backend.Grant) error {
	var err error
	if fault := w.trip(ctx, func() { err = w.Driver.Release(ctx, g) }); fault != nil {
		return fault
	}
	return err
}

func (w *wild) Wait(
	ctx context.Context, req *backend.Request, b *backend.Busy,
) (*backend.Grant, error) {
	switch dice, delay := w.roll(); {
	case dice < 5:
		return nil, nil
	case dice < 8:
		time.Sleep(delay)
		return nil, errWild
	case dice < 10:
		panic("wild")
	case dice < 12:
		runtime.Goexit()
	}
	return w.Waiter.Wait(ctx, req, b)
}

// piped is a wild driver that calls sent before or after its request, at random.
type piped struct{ *wild }

func (p piped) ReleaseThen(ctx context.Context, g *backend.Grant, sent func()) error {
	if dice, _ := p.roll(); dice < 50 {
		sent()
	} else {
		defer sent()
	}
	return p.Release(ctx, g)
}

// judge checks the leases on one name.
type judge struct {
	mu     sync.Mutex
	holder *Lease
	fence  uint64
	breaks int
	since  int // the value of breaks when holder entered
	served int
}

// enter checks that no other lease on the name is held, except a lease that was broken, and that
// fences grow.
func (j *judge) enter(t *testing.T, l *Lease) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.holder != nil && j.breaks == j.since && j.holder.Err() == nil {
		t.Errorf("%s and %s hold the lock", j.holder.Owner(), l.Owner())
	}
	if l.Fence() <= j.fence {
		t.Errorf("the fence %d is followed by %d", j.fence, l.Fence())
	}
	j.holder, j.fence, j.since = l, l.Fence(), j.breaks
	j.served++
}

func (j *judge) leave(l *Lease) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.holder == l {
		j.holder = nil
	}
}

func (j *judge) breakNow(ctx context.Context, w *wild, name string) {
	j.mu.Lock()
	j.breaks++
	j.mu.Unlock()
	_ = w.Break(ctx, name, "")
}

// stress is the state of one run.
type stress struct {
	judges  [2]judge
	wilds   []*wild
	engines []*Engine
}

// settings returns random settings for one Lock.
func settings(r *rand.Rand) *Settings {
	s := &Settings{TTL: term, Handoff: 16, Reentrant: r.IntN(3) == 0}
	switch r.IntN(10) {
	case 0:
		s.LockDelay = 100 * time.Millisecond
	case 1:
		s.MinHold = 20 * time.Millisecond
	case 2:
		s.MaxHold = 10 * time.Millisecond
	case 3:
		s.NoRenewal = true
	case 4, 5:
		s.Fair = true
	case 6:
		s.Handoff = 0
	}
	return s
}

// labour makes one attempt to lock, work and unlock. The driver may end the goroutine.
func (s *stress) labour(t *testing.T, e *Engine, r *rand.Rand) {
	t.Helper()
	defer func() { _ = recover() }()
	n := r.IntN(len(s.judges))
	l := &Lock{fmt.Sprint(n), fmt.Sprint(n), settings(r)}
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(200_000_000)))
	defer cancel()
	if r.IntN(2) == 0 {
		ctx = t.Context()
	}
	var ref Ref
	if e.Acquire(ctx, l, r.IntN(4) > 0, &ref) != nil {
		return
	}
	defer runtime.KeepAlive(&ref)
	s.judges[n].enter(t, ref.Lease())
	defer s.work(t, &ref, l, n, r)
}

// work holds the lease, at random with another lease on the same tenure, and unlocks.
func (s *stress) work(t *testing.T, ref *Ref, l *Lock, n int, r *rand.Rand) {
	t.Helper()
	lease := ref.Lease()
	e := lease.tenure.acq.engine
	ctx, cancel := lease.Context(t.Context(), ref)
	defer cancel()
	hold := time.Duration(r.IntN(10_000_000))
	if r.IntN(10) == 0 {
		hold *= 300
	}
	select {
	case <-time.After(hold):
	case <-ctx.Done():
	}
	switch r.IntN(10) {
	case 0:
		s.judges[n].breakNow(ctx, s.wilds[r.IntN(len(s.wilds))], l.Name)
	case 1:
		_ = lease.Extend(ctx)
	}
	var inner Ref
	if l.Reentrant && e.Acquire(ctx, l, true, &inner) == nil {
		defer s.unlock(t, inner.Lease(), nil, r)
	}
	s.unlock(t, lease, &s.judges[n], r)
}

func (s *stress) unlock(t *testing.T, l *Lease, j *judge, r *rand.Rand) {
	t.Helper()
	if j != nil {
		j.leave(l)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(50_000_000)))
	defer cancel()
	_ = l.Unlock(ctx)
}

// TestStress runs engines over drivers that fail in all ways, with cancelled contexts, breaks and
// Close. It checks that there is one holder at a time, that fences grow, that each waiter is
// served, and that nothing is left.
func TestStress(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { runStress(t, seed) })
		})
	}
}

func runStress(t *testing.T, seed uint64) {
	t.Helper()
	s := &stress{}
	space := crand.Text()
	for i := range uint64(3) {
		w := newWild(space, 10*seed+i)
		var d backend.Driver = w
		if i == 0 {
			d = piped{w}
		}
		s.wilds, s.engines = append(s.wilds, w), append(s.engines, New(Config{Driver: d}))
	}
	var workers sync.WaitGroup
	for i, e := range s.engines {
		for j := range uint64(5) {
			r := rand.New(rand.NewPCG(seed, 10*uint64(i)+j)) //nolint:gosec // it must repeat
			workers.Go(func() {
				for range 12 {
					done := make(chan struct{})
					go func() { defer close(done); s.labour(t, e, r) }()
					<-done
				}
			})
		}
	}
	if seed%3 == 0 { // Close during the work
		time.Sleep(time.Duration(seed) * 10 * time.Millisecond)
		closeEngine(t, s.engines[0])
	}
	workers.Wait()
	for i, w := range s.wilds {
		w.calmDown()
		closeEngine(t, s.engines[i])
		w.late.Wait() // no more requests begin
	}
	time.Sleep(2 * term)
	sound := membackend.New(&membackend.Options{Space: space})
	for info, err := range sound.(backend.Inspector).List(t.Context(), "") {
		t.Errorf("a lock is left: %+v, %v", info, err)
	}
	if n := s.judges[0].served + s.judges[1].served; n < 10 {
		t.Errorf("the locks were held %d times, want at least 10", n)
	}
}

// closeEngine closes e and checks that nothing is left of any acquisition. A wild driver may need
// more than the 5 s of Close.
func closeEngine(t *testing.T, e *Engine) {
	t.Helper()
	if e.closing.Err() == nil {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := e.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	lines := len(e.lines)
	if e.idle != nil {
		lines--
	}
	if e.live+e.open+int(e.calls.Load())+lines+len(e.due)+e.unsent()+e.sending != 0 {
		t.Errorf("left: %d live, %d open, %d calls, %d lines, %d due, %d waiting, %d sending",
			e.live, e.open, e.calls.Load(), lines, len(e.due), e.unsent(), e.sending)
	}
}

// unsent returns the number of releases that wait for a sender.
func (o *outbox) unsent() int { return len(o.fresh) + len(o.repeated) }
