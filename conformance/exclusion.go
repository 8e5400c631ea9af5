package conformance

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock"
)

var exclusionCases = []Case{
	{
		Name: "OneHolderAtATime",
		Promise: "Among contending clients and goroutines, one at a time holds the lock, each is " +
			"served, and fences increase in the order of the grants.",
		run: func(f *fixture) { contend(f, 4, 4, 10) },
	},
	{
		Name: "OneHolderAtATimeWithoutHandoff",
		Promise: "Without hand-offs inside a process, one contender at a time holds the lock, " +
			"each is served, and fences increase.",
		run: func(f *fixture) { contend(f, 4, 2, 10, dlock.WithLocalHandoff(0)) },
	},
	{
		Name: "OneHolderAtATimeFair",
		Promise: "With WithFair, one contender at a time holds the lock, each is served, and " +
			"fences increase; a backend without queues returns ErrUnsupported.",
		run: oneHolderAtATimeFair,
	},
	{
		Name:    "OneHolderAmongTryLocks",
		Promise: "TryLock never creates a second holder, however many clients try at once.",
		run:     oneHolderAmongTryLocks,
	},
	{
		Name: "OneHolderAcrossDeaths",
		Promise: "For its holder, a lease ends before the server grants the lock to another " +
			"process, even if holders die.",
		run: oneHolderAcrossDeaths,
	},
	{
		Name: "EveryWaiterIsServedOnce",
		Promise: "Each of a hundred waiters of two clients gets the lock once, and none is " +
			"forgotten.",
		run: everyWaiterIsServedOnce,
	},
}

// contend lets clients with these options take turns.
func contend(f *fixture, clients, goroutines, rounds int, opts ...dlock.Option) {
	cs := make([]*dlock.Client, clients)
	for i := range cs {
		cs[i] = f.client(append(opts,
			dlock.WithTTL(f.long()), dlock.WithPollInterval(20*time.Millisecond))...)
	}
	takeTurns(f, cs, goroutines, rounds)
}

// takeTurns lets goroutines of each client take the lock and free it at once, for the given number
// of rounds each.
func takeTurns(f *fixture, cs []*dlock.Client, goroutines, rounds int) {
	s := newSection(f)
	var turns atomic.Int32
	parallel(len(cs)*goroutines, func(i int) {
		for range f.rounds(rounds) {
			turns.Add(1)
			lease, err := cs[i%len(cs)].Lock(f.ctx, f.name)
			if err != nil {
				f.Errorf("Lock: %v", err)
				return
			}
			s.visit(lease, func() {})
			f.unlock(lease)
		}
	})
	s.check(int(turns.Load()))
}

func oneHolderAtATimeFair(f *fixture) {
	f.withQueue()
	contend(f, 4, 2, 10, dlock.WithFair())
}

func oneHolderAmongTryLocks(f *fixture) {
	const wanted = 8
	s := newSection(f)
	cs := []*dlock.Client{f.client(), f.client(), f.client()}
	parallel(2*len(cs), func(i int) {
		for served := 0; served < wanted; {
			lease, err := cs[i%len(cs)].TryLock(f.ctx, f.name, dlock.WithTTL(f.long()))
			if errors.Is(err, dlock.ErrNotAcquired) {
				time.Sleep(time.Millisecond)
				continue
			}
			if err != nil {
				f.Errorf("TryLock: %v", err)
				return
			}
			s.visit(lease, func() {})
			f.unlock(lease)
			served++
		}
	})
	s.check(2 * len(cs) * wanted)
}

func oneHolderAcrossDeaths(f *fixture) {
	const deaths = 3
	s := newSection(f)
	var visits sync.WaitGroup
	for range deaths {
		c, t := f.tapped(dlock.WithTTL(f.short()))
		lease := f.lockWithin(c, f.short()+prompt, f.name)
		if f.caps.Session { // the lease ends with the connection
			s.visit(lease, func() {})
		} else {
			entered := make(chan struct{})
			visits.Go(func() { s.stay(lease, entered, lease.Lost()) })
			<-entered
		}
		t.kill()
	}
	visits.Wait()
	s.check(deaths)
}

func everyWaiterIsServedOnce(f *fixture) {
	holder := f.client()
	lease := f.lock(holder, f.name, dlock.WithTTL(f.long()))
	cs := []*dlock.Client{f.client(), f.client()}
	s := newSection(f)
	const waiters = 100
	served := async(func() {
		parallel(waiters, func(i int) {
			lease, err := cs[i%len(cs)].Lock(f.ctx, f.name, dlock.WithTTL(f.long()))
			if err != nil {
				f.Errorf("Lock: %v", err)
				return
			}
			s.visit(lease, func() {})
			f.unlock(lease)
		})
	})
	f.unlock(lease)
	if f.within(2*prompt, "all waiters are served", served) {
		s.check(waiters)
	}
}

// unsupported reports whether a feature is not claimed. If so, it checks that use
// returns ErrUnsupported.
func (f *fixture) unsupported(what string, claimed bool, use func(c *dlock.Client) error) bool {
	f.Helper()
	if claimed {
		return false
	}
	f.isErr(what+", which the driver does not claim", use(f.client()), dlock.ErrUnsupported)
	return true
}

// breakUnsupported reports whether the driver cannot break a lock. If so, it checks that Break
// returns ErrUnsupported.
func (f *fixture) breakUnsupported() bool {
	f.Helper()
	return f.unsupported("Break", f.caps.Break, func(c *dlock.Client) error {
		return c.Break(f.ctx, f.name, "")
	})
}
