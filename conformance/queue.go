package conformance

import (
	"time"

	"github.com/dlock-go/dlock/backend"
)

var queueCases = []Case{
	{
		Name: "ExpiredLockGoesToTheQueue",
		Promise: "When a holder's term ends, an attempt without a queue entry does not overtake " +
			"fair waiters.",
		run: expiredLockGoesToTheQueue,
	},
	{
		Name:    "RefreshKeepsThePlace",
		Promise: "A fair waiter that repeats its request keeps its place before a later waiter.",
		run:     refreshKeepsThePlace,
	},
	{
		Name: "ShortTermShortensNoOtherEntry",
		Promise: "A fair waiter with a short term does not shorten the place of a waiter with a " +
			"long term.",
		run: shortTermShortensNoOtherEntry,
	},
	{
		Name: "LeavingTheQueueOfAFreeLockWakesTheNext",
		Promise: "If a holder's term has ended and the first fair waiter gives up, the second " +
			"one gets the lock at once.",
		run: leavingTheQueueOfAFreeLockWakesTheNext,
	},
	{
		Name: "BrokenLockGoesToTheQueue",
		Promise: "Break grants the lock to the first fair waiter at once, and an attempt without " +
			"a queue entry does not overtake it.",
		run: brokenLockGoesToTheQueue,
	},
}

// withQueue ends a case about the order of waiters if the server has no queue.
func (f *fixture) withQueue() {
	f.Helper()
	if f.caps.Fair == backend.FairNo {
		f.inapplicable("the server has no queue")
	}
}

// fairRequest returns a request for a place in the queue.
func (f *fixture) fairRequest(ttl time.Duration) *backend.Request {
	req := f.request(ttl)
	req.Fair = true
	return req
}

func expiredLockGoesToTheQueue(f *fixture) {
	f.withQueue()
	f.withoutSession()
	d, other, third := f.driver(), f.driver(), f.driver()
	req := f.fairRequest(f.long())
	g := f.grant(d, f.try(f.brief()))
	end := time.Now().Add(g.Term.TTL)
	f.refused(other, req)
	for time.Now().Before(end.Add(10 * nap)) { // until shortly after the end of the term
		f.refused(third, f.try(f.long()))
		time.Sleep(nap)
	}
	var err error
	if !f.eventually(prompt, func() bool { // a server can end terms late
		f.refused(third, f.try(f.long()))
		g, err = f.acquire(other, req)
		return err == nil
	}) {
		f.Fatalf("Acquire of the waiter long after the term: %v", err)
	}
	f.release(other, g)
}

func refreshKeepsThePlace(f *fixture) {
	f.withQueue()
	d, other, third := f.driver(), f.driver(), f.driver()
	g := f.grant(d, f.try(f.long()))
	first, second := f.fairRequest(f.long()), f.fairRequest(f.long())
	f.refused(other, first)
	f.refused(third, second)
	f.refused(other, first)
	f.release(d, g)
	f.refused(third, second)
	f.release(other, f.grantSoon(other, first))
	f.release(third, f.grantSoon(third, second))
}

func shortTermShortensNoOtherEntry(f *fixture) {
	f.withQueue()
	d, other, third := f.driver(), f.driver(), f.driver()
	g := f.grant(d, f.try(f.long()))
	first, second := f.fairRequest(f.long()), f.fairRequest(f.brief())
	f.refused(other, first)
	f.refused(third, second)
	time.Sleep(second.TTL + 10*nap) // the place of second expires
	f.release(d, g)
	f.refused(third, f.try(f.long()))
	f.release(other, f.grantSoon(other, first))
	f.undo(third, second)
}

func leavingTheQueueOfAFreeLockWakesTheNext(f *fixture) {
	f.withQueue()
	f.withoutSession()
	d, other, third := f.driver(), f.driver(), f.driver()
	w := f.waitable(third)
	g := f.grant(d, f.try(f.brief()))
	end := time.Now().Add(g.Term.TTL)
	first, second := f.fairRequest(f.long()), f.fairRequest(f.long())
	f.refused(other, first)
	busy := f.busy(third, second)
	time.Sleep(time.Until(end) + 10*nap) // no request, because it would pass the lock on
	f.undo(other, first)
	f.awaitTurn(third, w, second, busy)
}

func brokenLockGoesToTheQueue(f *fixture) {
	f.withQueue()
	if !f.caps.Break {
		f.inapplicable("the driver breaks no lock")
	}
	d, other, third := f.driver(), f.driver(), f.driver()
	w := f.waitable(other)
	for _, attempt := range []bool{false, true} { // an attempt can itself pass the lock on
		g := f.grant(d, f.try(f.long()))
		req := f.fairRequest(f.long())
		busy := f.busy(other, req)
		if err := third.(backend.Breaker).Break(f.ctx, f.name, g.Owner); err != nil {
			f.Fatalf("Break: %v", err)
		}
		if attempt {
			f.refused(third, f.try(f.long()))
		}
		f.awaitTurn(other, w, req, busy)
	}
}
