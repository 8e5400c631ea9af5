package conformance

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

var handoffCases = []Case{
	{Name: "HandoffNeedsNoTrip", Promise: "Unlock passes the lock to the next waiter of the same client without a trip, as a new Lease with a greater fence of its own.", run: handoffNeedsNoTrip},
	{Name: "HandoffIsBounded", Promise: "A grant is passed on no more often than WithLocalHandoff says.", run: handoffIsBounded},
	{Name: "HandoffCanBeTurnedOff", Promise: "With WithLocalHandoff(0) each holder has a grant of its own.", run: handoffCanBeTurnedOff},
	{Name: "HandoffStarvesNobody", Promise: "Waiters of other processes are served although one process never stops contending.", run: handoffStarvesNobody},
	{Name: "HandoffNeedsEqualLocks", Promise: "A grant is not passed on between locks of different TTL, meta, lock-delay, renewal, minimum hold or fairness.", run: handoffNeedsEqualLocks},
	{Name: "LateUnlockAfterHandoffFreesNobody", Promise: "A second Unlock of a lease that was passed on is ErrNotHeld, and the new holder keeps the lock.", run: lateUnlockAfterHandoffFreesNobody},
	{Name: "BreakAfterHandoffEndsTheNewLease", Promise: "Break ends whichever lease lives on the grant; where the backend cannot break, Break is ErrUnsupported.", run: breakAfterHandoffEndsTheNewLease},
	{Name: "HandoffToACancelledWaiterIsNotDropped", Promise: "A grant that is passed to a waiter in the instant of its cancellation goes to the next or back to the server.", run: handoffToACancelledWaiterIsNotDropped},
	{Name: "CancelledHeadLeavesItsPlace", Promise: "When the waiter that asks the server gives up, the next one of its client is served in its place.", run: cancelledHeadLeavesItsPlace},
}

// grants records what an Observer is told of acquisitions.
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

// local waits until the Observer was told of so many acquisitions, and returns how many of them were
// handed off.
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
		f.Errorf("the Observer was told of %d acquisitions, want %d", len(g.events), acquired)
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

// relay has goroutines of one client take turns, each with its options, and looks
// at each lease.
func (f *fixture) relay(c *dlock.Client, rounds int, look func(*dlock.Lease), opts ...[]dlock.Option) {
	f.Helper()
	s := newSection(f)
	parallel(len(opts), func(i int) {
		for range rounds {
			lease, err := c.Lock(f.ctx, f.name, opts[i]...)
			if err != nil {
				f.Errorf("Lock: %v", err)
				return
			}
			s.visit(lease, func() { look(lease) })
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
		time.Sleep(100 * time.Microsecond) // so that the others queue
	}, nil, nil, nil)
	if told := g.local(f, 150); handed == 0 || told != handed {
		f.Errorf("of 150 leases %d were handed off by their fence, %d by their event", handed, told)
	}
	calls, _ := t.snapshot()
	if n := count(calls, acquire, wasGranted) + count(calls, wait, wasGranted); n > 150-handed {
		f.Errorf("150 leases, %d of them handed over, came from %d grants", handed, n)
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
	c := f.client(dlock.WithTTL(f.long()), dlock.WithLocalHandoff(0), dlock.WithObserver(g.observer()))
	f.relay(c, 20, func(lease *dlock.Lease) {
		if n := lease.Fence() & handoffMask; n != 0 {
			f.Errorf("hand-off number %d", n)
		}
	}, nil, nil)
	if n := g.local(f, 40); n != 0 {
		f.Errorf("%d leases were handed over", n)
	}
}

func handoffStarvesNobody(f *fixture) {
	busy, other := f.client(dlock.WithTTL(f.long())), f.client(dlock.WithTTL(f.long()))
	ctx, stop := context.WithCancel(f.ctx)
	contending := async(func() {
		parallel(4, func(int) {
			for ctx.Err() == nil {
				lease, err := busy.Lock(ctx, f.name)
				if err != nil {
					continue
				}
				time.Sleep(time.Millisecond)
				f.unlock(lease)
			}
		})
	})
	for range 3 {
		lease, err := other.Lock(f.ctx, f.name)
		if err != nil {
			f.Errorf("Lock of the other process: %v", err)
			break
		}
		f.unlock(lease)
	}
	stop()
	f.within(prompt, "the contenders stop", contending)
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
				f.Errorf("%s differs, and the hand-off number is %d", what, n)
			}
		}, nil, []dlock.Option{other})
	}
}

// handOver returns a lease and the one it was passed on to. It repeats what may
// miss by a hair: that the waiter stands in the queue when the first lease, still
// young, is unlocked.
func (f *fixture) handOver(c *dlock.Client, name string) (old, next *dlock.Lease) {
	f.Helper()
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
	f.Fatalf("no lease of a hundred was handed over to the waiter beside it")
	return nil, nil
}

func lateUnlockAfterHandoffFreesNobody(f *fixture) {
	c, other := f.client(dlock.WithTTL(f.long())), f.client()
	old, next := f.handOver(c, f.name)
	f.isErr("Unlock of a lease that was passed on", old.Unlock(f.ctx), dlock.ErrNotHeld)
	f.isErr("Err of a lease that was passed on", old.Err(), dlock.ErrNotHeld)
	f.fenceGrew(old.Fence(), next.Fence())
	if err := next.Err(); err != nil {
		f.Errorf("Err of the new lease: %v", err)
	}
	f.held(other, next)
	f.unlock(next)
	f.free(other, f.name)
}

func breakAfterHandoffEndsTheNewLease(f *fixture) {
	if f.unsupported("Break", f.caps.Break, func(c *dlock.Client) error { return c.Break(f.ctx, f.name, "") }) {
		return
	}
	c, other := f.client(dlock.WithTTL(f.brief())), f.client()
	old, next := f.handOver(c, f.name)
	if err := other.Break(f.ctx, f.name, next.Owner()); err != nil {
		f.Fatalf("Break: %v", err)
	}
	f.doneBy(time.Now().Add(f.brief()), "the holder is told", next.Lost())
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

func cancelledHeadLeavesItsPlace(f *fixture) {
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
		time.Sleep(20 * time.Millisecond) // so that it stands behind the head
		head.cancel()
		f.doneBy(time.Now(), "the cancelled Lock returns", head.done)
		unlocked := time.Now()
		f.unlock(lease)
		f.unlock(f.grantedBy(next, unlocked))
	}
}
