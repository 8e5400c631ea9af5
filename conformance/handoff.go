package conformance

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

var handoffCases = []Case{
	{
		Name: "HandoffNeedsNoTrip",
		Promise: "Unlock hands the lock off to the next waiter of the same client without a " +
			"request, as a new Lease with a greater fence.",
		run: handoffNeedsNoTrip,
	},
	{
		Name:    "HandoffIsBounded",
		Promise: "A grant is handed off at most as many times as WithLocalHandoff allows.",
		run:     handoffIsBounded,
	},
	{
		Name:    "HandoffCanBeTurnedOff",
		Promise: "With WithLocalHandoff(0) each holder has a separate grant.",
		run:     handoffCanBeTurnedOff,
	},
	{
		Name: "HandoffStarvesNoClient",
		Promise: "A process keeps a lock by hand-offs for at most 100 ms. Waiters of other " +
			"processes are served even if it never stops contending.",
		run: handoffStarvesNoClient,
	},
	{
		Name: "HandoffNeedsEqualLocks",
		Promise: "A grant is not handed off between locks with a different TTL, meta, " +
			"lock-delay, renewal, minimum hold or fairness.",
		run: handoffNeedsEqualLocks,
	},
	{
		Name: "LateUnlockAfterHandoffFreesNoLease",
		Promise: "A second Unlock of a lease that was handed off returns ErrNotHeld, and the new " +
			"holder keeps the lock.",
		run: lateUnlockAfterHandoffFreesNoLease,
	},
	{
		Name: "BreakAfterHandoffEndsTheNewLease",
		Promise: "After a hand-off, Break ends the present lease of the grant; a backend that " +
			"cannot break returns ErrUnsupported.",
		run: breakAfterHandoffEndsTheNewLease,
	},
	{
		Name: "HandoffToACancelledWaiterIsNotDropped",
		Promise: "A grant that is handed off to a waiter at the instant of its cancellation goes " +
			"to the next waiter or back to the server.",
		run: handoffToACancelledWaiterIsNotDropped,
	},
	{
		Name: "CancelledFrontLeavesItsPlace",
		Promise: "If the waiter at the head of a line gives up, the next waiter of its client is " +
			"served in its place.",
		run: cancelledFrontLeavesItsPlace,
	},
}

// grants records the successful acquisitions that an Observer receives.
type grants struct {
	mu     sync.Mutex
	events []dlock.Event
}

func (g *grants) observer() *dlock.Observer {
	return &dlock.Observer{Acquired: func(_ context.Context, e dlock.Event) {
		g.mu.Lock()
		defer g.mu.Unlock()
		if e.Err == nil {
			g.events = append(g.events, e)
		}
	}}
}

// local waits until the Observer has received the given number of acquisitions, and returns how
// many of them were hand-offs.
func (g *grants) local(f *fixture, acquired int) int {
	f.Helper()
	f.eventually(prompt, func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(g.events) >= acquired
	})
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.events) != acquired {
		f.Errorf("the Observer received %d acquisitions, want %d", len(g.events), acquired)
	}
	n := 0
	for _, e := range g.events {
		if e.Local {
			n++
		}
	}
	return n
}

const handoffMask = 1<<12 - 1

// relay lets goroutines of one client take turns, each with its own options. It calls look with
// each lease.
func (f *fixture) relay(
	c *dlock.Client, rounds int, look func(*dlock.Lease), opts ...[]dlock.Option,
) {
	f.Helper()
	s := newSection(f)
	parallel(len(opts), func(i int) {
		for range rounds {
			lease, err := c.Lock(f.ctx, f.name, opts[i]...)
			if err != nil {
				f.Errorf("Lock: %v", err)
				return
			}
			s.visit(lease, func() {
				look(lease)
				time.Sleep(100 * time.Microsecond) // so that the other goroutines wait in the line
			})
			f.unlock(lease)
		}
	})
	s.check(len(opts) * rounds)
}

func handoffNeedsNoTrip(f *fixture) {
	var g grants
	c, t := f.tapped(dlock.WithTTL(f.long()), dlock.WithObserver(g.observer()))
	handed := 0
	f.relay(c, 50, func(lease *dlock.Lease) {
		if lease.Fence()&handoffMask != 0 {
			handed++
		}
	}, nil, nil, nil)
	if n := g.local(f, 150); handed == 0 || n != handed {
		f.Errorf("150 leases: %d hand-offs according to the fences, %d according to the events",
			handed, n)
	}
	calls, _ := t.snapshot()
	if n := count(calls, acquire, wasGranted) + count(calls, wait, wasGranted); n > 150-handed {
		f.Errorf("150 leases, %d of them handed off, came from %d grants", handed, n)
	}
}

func handoffIsBounded(f *fixture) {
	const most = 3
	c := f.client(dlock.WithTTL(f.long()), dlock.WithLocalHandoff(most))
	f.relay(c, 40, func(lease *dlock.Lease) {
		if n := lease.Fence() & handoffMask; n > most {
			f.Errorf("hand-off number %d", n)
		}
	}, nil, nil, nil)
}

func handoffCanBeTurnedOff(f *fixture) {
	var g grants
	c := f.client(dlock.WithTTL(f.long()), dlock.WithLocalHandoff(0),
		dlock.WithObserver(g.observer()))
	f.relay(c, 20, func(lease *dlock.Lease) {
		if n := lease.Fence() & handoffMask; n != 0 {
			f.Errorf("hand-off number %d", n)
		}
	}, nil, nil)
	if n := g.local(f, 40); n != 0 {
		f.Errorf("%d leases were handed off", n)
	}
}

// handoffStarvesNoClient lets another client wait among many contenders, which have had a turn each
// before it begins.
func handoffStarvesNoClient(f *fixture) {
	busy, other := f.client(dlock.WithTTL(f.long())), f.client(dlock.WithTTL(f.long()))
	ctx, stop := context.WithCancel(f.ctx)
	defer stop()
	var turns atomic.Int32
	contending := f.contend(ctx, busy, func(*dlock.Lease) {
		turns.Add(1)
		time.Sleep(time.Millisecond)
	})
	for range 3 {
		before := turns.Load()
		f.eventually(prompt, func() bool { return turns.Load() >= before+4 })
		lease, err := other.Lock(f.ctx, f.name)
		if err != nil {
			f.Errorf("Lock of the other process: %v", err)
			break
		}
		f.unlock(lease)
	}
	stop()
	f.within(prompt, "the contenders stop", contending)
	f.chainsEnd()
}

// contend lets four goroutines of c lock the name of the case again and again, until ctx ends. It
// calls visit with each lease.
func (f *fixture) contend(
	ctx context.Context, c *dlock.Client, visit func(*dlock.Lease),
) (done <-chan struct{}) {
	return async(func() {
		parallel(4, func(int) {
			for ctx.Err() == nil {
				lease, err := c.Lock(ctx, f.name)
				if err != nil {
					continue
				}
				visit(lease)
				f.unlock(lease)
			}
		})
	})
}

// longestChain is the maximum age of a grant that is handed off, as WithLocalHandoff documents it.
const longestChain = 100 * time.Millisecond

// chainsEnd checks that only a young grant is handed off, with so many hand-offs that only the age
// ends a chain. The age counts from after the first Lock until before the last Unlock. So it does
// not depend on the speed of the machine: the core has measured a longer time.
func (f *fixture) chainsEnd() {
	f.Helper()
	c := f.client(dlock.WithTTL(f.long()), dlock.WithLocalHandoff(handoffMask))
	ctx, stop := context.WithCancel(f.ctx)
	defer stop()
	var owner string // of the present grant
	var begun, handed time.Time
	turns := 0
	done := f.contend(ctx, c, func(lease *dlock.Lease) {
		if o := lease.Owner(); o != owner {
			owner, begun = o, time.Now()
		} else if age := handed.Sub(begun); age >= longestChain {
			f.violation("a grant was handed off at the age of %v", age)
			stop()
		}
		if turns++; turns == 200 { // for longer than a chain may last
			stop()
		}
		time.Sleep(time.Millisecond)
		handed = time.Now()
	})
	f.within(2*prompt, "200 turns of a client", done)
}

func handoffNeedsEqualLocks(f *fixture) {
	others := map[string]dlock.Option{
		"TTL":               dlock.WithTTL(f.long() / 2),
		"meta":              dlock.WithMeta("another"),
		"without renewal":   dlock.WithoutRenewal(),
		"with minimum hold": dlock.WithMinHold(time.Millisecond),
	}
	if !f.caps.Session {
		others["lock-delay"] = dlock.WithLockDelay(time.Second)
	}
	if f.caps.Fair == backend.FairOptional {
		others["fair"] = dlock.WithFair()
	}
	for what, other := range others {
		c := f.client(dlock.WithTTL(f.long()))
		f.relay(c, 5, func(lease *dlock.Lease) {
			if n := lease.Fence() & handoffMask; n != 0 {
				f.Errorf("%s differs, but the hand-off number is %d", what, n)
			}
		}, nil, []dlock.Option{other})
	}
}

// handOff returns a lease and the next one, to which the grant was handed off. It repeats
// the attempt, because a hand-off needs a waiter in the line and a young grant at the time of
// the Unlock.
func (f *fixture) handOff(c *dlock.Client, name string) (old, next *dlock.Lease) {
	f.Helper()
	f.timed()
	for range 100 {
		old = f.lock(c, name)
		waiter := f.lockAsync(c, name)
		time.Sleep(5 * time.Millisecond)
		unlocked := time.Now()
		f.unlock(old)
		next = f.grantedBy(waiter, unlocked)
		if next.Fence()>>12 == old.Fence()>>12 {
			return old, next
		}
		f.unlock(next)
	}
	f.Fatalf("none of a hundred leases was handed off to the waiter")
	return nil, nil
}

func lateUnlockAfterHandoffFreesNoLease(f *fixture) {
	c, other := f.client(dlock.WithTTL(f.long())), f.client()
	old, next := f.handOff(c, f.name)
	f.isErr("Unlock of a lease that was handed off", old.Unlock(f.ctx), dlock.ErrNotHeld)
	f.isErr("Err of a lease that was handed off", old.Err(), dlock.ErrNotHeld)
	f.fenceGrew(old.Fence(), next.Fence())
	if err := next.Err(); err != nil {
		f.Errorf("Err of the new lease: %v", err)
	}
	if f.held(other, next); f.Failed() {
		return // other may have the lock
	}
	f.unlock(next)
	f.free(other, f.name)
}

func breakAfterHandoffEndsTheNewLease(f *fixture) {
	if f.breakUnsupported() {
		return
	}
	c, other := f.client(dlock.WithTTL(f.brief())), f.client()
	old, next := f.handOff(c, f.name)
	if err := other.Break(f.ctx, f.name, next.Owner()); err != nil {
		f.Fatalf("Break: %v", err)
	}
	f.doneBy(time.Now().Add(f.brief()), "the lease is lost", next.Lost())
	f.isErr("Err of the broken lease", next.Err(), dlock.ErrLost)
	f.isErr("Err of the lease before it", old.Err(), dlock.ErrNotHeld)
	f.isErr("Unlock of the broken lease", next.Unlock(f.ctx), dlock.ErrLost)
	f.free(other, f.name)
}

func handoffToACancelledWaiterIsNotDropped(f *fixture) {
	c, other := f.client(dlock.WithTTL(f.long())), f.client(dlock.WithTTL(f.long()))
	for i := range f.rounds(60) {
		lease := f.lock(c, f.name)
		waiter := f.lockAsync(c, f.name)
		time.Sleep(time.Duration(i%20) * 50 * time.Microsecond)
		unlocked := async(func() { f.unlock(lease) })
		time.Sleep(time.Duration(i%7) * 10 * time.Microsecond)
		waiter.cancel()
		<-unlocked
		if !f.within(prompt, "the cancelled Lock returns", waiter.done) {
			return
		}
		if waiter.err == nil {
			f.unlock(waiter.lease)
		} else if !errors.Is(waiter.err, context.Canceled) {
			f.Errorf("Lock: %v", waiter.err)
		}
		if i%10 == 0 {
			f.free(other, f.name)
		}
	}
	f.free(other, f.name)
}

func cancelledFrontLeavesItsPlace(f *fixture) {
	f.timed()
	variants := [][]dlock.Option{nil}
	if f.caps.Fair != backend.FairNo {
		variants = append(variants, []dlock.Option{dlock.WithFair()})
	}
	for _, opts := range variants {
		opts = append(opts, dlock.WithTTL(f.long()))
		lease := f.lock(f.client(opts...), f.name)
		c, t := f.tapped(opts...)
		head := f.lockAsync(c, f.name)
		t.await(acquire, 1, wasBusy)
		next := f.lockAsync(c, f.name)
		time.Sleep(20 * time.Millisecond) // so that it is behind the head
		head.cancel()
		f.doneBy(time.Now(), "the cancelled Lock returns", head.done)
		unlocked := time.Now()
		f.unlock(lease)
		f.unlock(f.grantedBy(next, unlocked))
	}
}
