package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/membackend"
)

// errLostReply is the error of a request whose answer was lost.
var errLostReply = errors.New("connection reset by the simulation")

// unreliable is a driver of membackend with a simulated network. The network delays requests, and
// loses some requests and answers.
type unreliable struct {
	backend.Driver
	waiter  backend.Waiter
	mu      sync.Mutex
	random  *rand.Rand
	perfect bool
}

func newUnreliable(space string, seed uint64) *unreliable {
	d := membackend.New(&membackend.Options{Space: space})
	return &unreliable{
		Driver: d, waiter: d.(backend.Waiter),
		random: rand.New(rand.NewPCG(seed, 0)), //nolint:gosec // must be reproducible
	}
}

// heal makes the network perfect from now on.
func (u *unreliable) heal() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.perfect = true
}

// trip sends one request over the network.
func (u *unreliable) trip(ctx context.Context, request func()) error {
	u.mu.Lock()
	delay, dice, perfect := time.Duration(u.random.IntN(3_000_000)), u.random.IntN(100), u.perfect
	u.mu.Unlock()
	switch {
	case perfect:
		request()
		return nil
	case dice < 4:
		return fmt.Errorf("%w: refused by the simulation", backend.ErrUnavailable)
	case dice < 8:
		<-ctx.Done() // the request is lost
		return ctx.Err()
	}
	time.Sleep(delay)
	request()
	switch {
	case dice < 12:
		return errLostReply
	case dice < 16:
		<-ctx.Done() // the answer is lost
		return ctx.Err()
	}
	time.Sleep(delay)
	return nil
}

func (u *unreliable) Acquire(
	ctx context.Context, req *backend.Request,
) (grant *backend.Grant, err error) {
	sent := time.Now()
	if fault := u.trip(ctx, func() { grant, err = u.Driver.Acquire(ctx, req) }); fault != nil {
		return nil, fault
	}
	if grant != nil {
		term := backend.Term{Sent: sent, TTL: req.TTL}
		grant = &backend.Grant{Request: grant.Request, Term: term, Fence: grant.Fence}
	}
	return grant, err
}

func (u *unreliable) Renew(ctx context.Context, g *backend.Grant) (term backend.Term, err error) {
	sent := time.Now()
	if fault := u.trip(ctx, func() { term, err = u.Driver.Renew(ctx, g) }); fault != nil {
		return backend.Term{}, fault
	}
	term.Sent = sent
	return term, err
}

func (u *unreliable) Release(ctx context.Context, g *backend.Grant) (err error) {
	if fault := u.trip(ctx, func() { err = u.Driver.Release(ctx, g) }); fault != nil {
		return fault
	}
	return err
}

func (u *unreliable) Wait(
	ctx context.Context, req *backend.Request, b *backend.Busy,
) (*backend.Grant, error) {
	return u.waiter.Wait(ctx, req, b)
}

// site is the state that the locks of a simulation protect.
type site struct {
	inside [2]atomic.Int64
	fences [2]atomic.Uint64
	works  atomic.Int64
}

// work works under the lock of name i for d, or until its context ends.
func (s *site) work(ctx context.Context, t *testing.T, i int, lease *dlock.Lease, d time.Duration) {
	t.Helper()
	if n := s.inside[i].Add(1); n != 1 {
		t.Errorf("%d holders of one lock", n)
	}
	if last := s.fences[i].Swap(lease.Fence()); last >= lease.Fence() {
		t.Errorf("the fence after %d is %d", last, lease.Fence())
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	s.inside[i].Add(-1)
	s.works.Add(1)
}

// TestSimulation checks that a lock never has more than one holder over a network that loses
// requests and answers. Fences rise, each waiter is served, and nothing stays on the server.
func TestSimulation(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { simulate(t, seed) })
		})
	}
}

func simulate(t *testing.T, seed uint64) {
	t.Helper()
	const lockTTL = 2 * time.Second
	space, s := t.Name(), &site{}
	var drivers []*unreliable
	var clients []*dlock.Client
	var workers sync.WaitGroup
	for i := range 3 {
		d := newUnreliable(space, seed*10+uint64(i))
		opts := []dlock.Option{dlock.WithTTL(lockTTL)}
		if seed%2 == 1 {
			opts = append(opts, dlock.WithFair())
		}
		c := open(t, d, opts...)
		drivers, clients = append(drivers, d), append(clients, c)
		for j := range 4 {
			random := rand.New(rand.NewPCG(seed, uint64(i*10+j))) //nolint:gosec // reproducible
			workers.Go(func() {
				for range 10 {
					labour(t, c, s, random)
				}
			})
		}
	}
	workers.Wait()
	if n := s.works.Load(); n < 30 {
		t.Errorf("the lock was held only %d times", n)
	}
	for _, d := range drivers {
		d.heal()
	}
	time.Sleep(2 * lockTTL)
	fresh := open(t, membackend.New(&membackend.Options{Space: space}))
	for info, err := range fresh.List(t.Context(), "") {
		t.Errorf("the server still has %+v, %v", info, err)
	}
	for _, c := range clients {
		closes(t, c)
	}
}

// labour makes one attempt to work: it waits without a limit, waits with a limit, or does not wait.
func labour(t *testing.T, c *dlock.Client, s *site, random *rand.Rand) {
	t.Helper()
	i := random.IntN(2)
	hold := time.Duration(random.IntN(int(200 * time.Millisecond)))
	ctx := t.Context()
	do := c.Do
	switch random.IntN(4) {
	case 0:
		do = c.TryDo
	case 1:
		limited, cancel := context.WithTimeout(ctx, 3*hold)
		defer cancel()
		ctx = limited
	}
	err := do(ctx, fmt.Sprint(i), func(ctx context.Context, lease *dlock.Lease) error {
		s.work(ctx, t, i, lease, hold)
		return nil
	})
	if err == nil || errors.Is(err, ctx.Err()) {
		return
	}
	for _, expected := range []error{
		dlock.ErrNotAcquired, dlock.ErrLost, dlock.ErrUnavailable, dlock.ErrUncertain,
	} {
		if errors.Is(err, expected) {
			return
		}
	}
	t.Errorf("an unexpected error: %v", err)
}
