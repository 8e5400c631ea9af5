package conformance

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// combineCases are the cases of backend.Combiner.
var combineCases = []Case{
	{
		Name: "AllAreGrantedInOneStep",
		Promise: "AcquireAll grants each of its requests as Acquire does, in their order, and " +
			"ReleaseAll frees all of them.",
		Combine: true,
		run:     allAreGrantedInOneStep,
	},
	{
		Name: "OneTakenLeavesNone",
		Promise: "AcquireAll with one lock that is taken returns that lock's refusal and index, " +
			"and acquires no other lock.",
		Combine: true,
		run:     oneTakenLeavesNone,
	},
	{
		Name: "OneOfAnotherKindLeavesNone",
		Promise: "AcquireAll with a name that has a reader is refused, and with the name of a " +
			"semaphore returns ErrConflict; it acquires no other lock.",
		Combine: true,
		Mode:    backend.Shared | backend.Permit,
		run:     oneOfAnotherKindLeavesNone,
	},
	{
		Name: "RepeatedAcquireAllIsTheSame",
		Promise: "A repeated AcquireAll returns the same grants with new terms, for which the " +
			"server keeps them. It acquires a lock again that was released meanwhile.",
		Combine: true,
		run:     repeatedAcquireAllIsTheSame,
	},
	{
		Name: "LostReplyOfAcquireAllIsRepeated",
		Promise: "After a lost reply to AcquireAll, all locks or none are taken, a repetition " +
			"returns all grants, and a Release of each frees its lock.",
		Combine: true,
		Faults:  true,
		run:     lostReplyOfAcquireAllIsRepeated,
	},
	{
		Name: "ReleaseAllAnswersEach",
		Promise: "ReleaseAll returns ErrNotHeld for the grants that are gone, and releases the " +
			"others.",
		Combine: true,
		run:     releaseAllAnswersEach,
	},
	{
		Name: "ReleaseAllWakesWaiters",
		Promise: "ReleaseAll wakes a waiter of each of its locks, and AcquireAll does not " +
			"overtake these waiters if the server has a queue.",
		Combine: true,
		run:     releaseAllWakesWaiters,
	},
	{
		Name: "AllWaitForAQueue",
		Promise: "AcquireAll does not get a lock with a waiter whose holder has expired, if the " +
			"server has a queue.",
		Combine: true,
		run:     allWaitForAQueue,
	},
}

// tries returns a request without a queue entry for each of n names of the case.
func (f *fixture) tries(n int) (reqs []*backend.Request) {
	for _, name := range f.several(n) {
		req := f.try(f.long())
		req.Key = name
		reqs = append(reqs, req)
	}
	return reqs
}

// grantAll sends an AcquireAll for reqs, which must succeed.
func (f *fixture) grantAll(d backend.Driver, reqs []*backend.Request) []*backend.Grant {
	f.Helper()
	sent := time.Now()
	grants, _, err := f.acquireAll(d, reqs)
	if err != nil || len(grants) != len(reqs) {
		f.Fatalf("AcquireAll of %d free locks: %d grants, %v", len(reqs), len(grants), err)
	}
	for i, g := range grants {
		if g == nil || g.Key != reqs[i].Key || g.Owner != reqs[i].Owner {
			f.Fatalf("grant %d is %+v", i, g)
		}
		if g.Term.Sent.Before(sent.Add(-reqs[i].TTL)) || g.Term.Sent.After(time.Now()) ||
			g.Term.TTL <= 0 {
			f.Errorf("the term of grant %d is %+v", i, g.Term)
		}
	}
	return grants
}

// releaseAll releases all grants, which must be held.
func (f *fixture) releaseAll(d backend.Driver, gs []*backend.Grant) {
	f.Helper()
	for i, err := range f.tryReleaseAll(d, gs) {
		if err != nil {
			f.Errorf("ReleaseAll: %v for grant %d", err, i)
		}
	}
}

// areFree checks that no lock of reqs has a holder or a queue entry, except the lock with the index
// taken.
func (f *fixture) areFree(d backend.Driver, reqs []*backend.Request, taken int) {
	f.Helper()
	for i, req := range reqs {
		if i == taken {
			continue
		}
		err := f.tryRelease(f.ctx, d, &backend.Grant{Request: *req})
		f.isErr("Release of a lock that was not granted", err, backend.ErrNotHeld)
		other := f.try(f.long())
		other.Key = req.Key
		f.release(d, f.grant(d, other))
	}
}

func allAreGrantedInOneStep(f *fixture) {
	d, other := f.driver(), f.driver()
	var last []*backend.Grant
	for range 2 {
		reqs := f.tries(5)
		grants := f.grantAll(d, reqs)
		for i, g := range grants {
			again := f.try(f.long())
			again.Key = g.Key
			f.refused(other, again)
			if last != nil {
				f.fenceGrew(last[i].Fence, g.Fence)
			}
			if term, err := f.renew(d, g); err != nil || term.TTL <= 0 {
				f.Errorf("Renew: %+v, %v", term, err)
			}
		}
		last = grants
		f.releaseAll(d, grants)
		f.areFree(other, reqs, -1)
	}
	single := f.try(f.long())
	single.Key = last[2].Key
	g := f.grant(other, single)
	f.fenceGrew(last[2].Fence, g.Fence)
	f.release(other, g)
}

func oneTakenLeavesNone(f *fixture) {
	d, other := f.driver(), f.driver()
	for taken := range 5 {
		reqs := f.tries(5)
		obstacle := f.try(f.long())
		obstacle.Key = reqs[taken].Key
		g := f.grant(other, obstacle)
		grants, failed, err := f.acquireAll(d, reqs)
		busy, ok := errors.AsType[*backend.Busy](err)
		if !ok || failed != taken || len(grants) != 0 || busy.Queued {
			f.Errorf("AcquireAll with lock %d taken: %d grants, error %v about %d",
				taken, len(grants), err, failed)
		}
		f.areFree(other, reqs, taken)
		f.release(other, g)
		f.releaseAll(d, f.grantAll(d, reqs))
	}
}

func oneOfAnotherKindLeavesNone(f *fixture) {
	d, other := f.driver(), f.driver()
	for mode, want := range map[backend.Mode]error{
		backend.Shared: backend.ErrNotAcquired, backend.Permit: backend.ErrConflict,
	} {
		reqs := f.tries(3)
		obstacle := f.try(f.long())
		obstacle.Key, obstacle.Mode = reqs[1].Key, mode
		if mode == backend.Permit {
			obstacle.Limit = 2
		}
		g := f.grant(other, obstacle)
		_, failed, err := f.acquireAll(d, reqs)
		f.isErr("AcquireAll with a lock of mode "+mode.String(), err, want)
		if failed != 1 {
			f.Errorf("the error is about request %d, want 1", failed)
		}
		f.areFree(other, reqs, 1)
		f.release(other, g)
		f.releaseAll(d, f.grantAll(d, reqs))
	}
}

func repeatedAcquireAllIsTheSame(f *fixture) {
	d, other := f.driver(), f.driver()
	f.allAreProlonged(d)
	reqs := f.tries(4)
	first := f.grantAll(d, reqs)
	again := f.grantAll(d, reqs)
	for i, g := range again {
		f.sameGrant(first[i], g)
	}
	f.release(d, again[2])
	f.releaseAll(d, f.grantAll(d, reqs))
	f.areFree(other, reqs, -1)
}

// allAreProlonged checks that the server keeps the locks of a repeated AcquireAll for its terms.
func (f *fixture) allAreProlonged(d backend.Driver) {
	f.Helper()
	if f.caps.Session {
		return // the session keeps them
	}
	reqs := f.tries(3)
	for _, req := range reqs {
		req.TTL = f.ttl(2 * time.Second)
	}
	first := f.grantAll(d, reqs)
	time.Sleep(reqs[0].TTL / 2)
	for i, again := range f.grantAll(d, reqs) {
		f.prolonged(first[i], again)
		f.keyKeptUntil(again.Key, endOf(again.Term))
	}
}

func lostReplyOfAcquireAllIsRepeated(f *fixture) {
	d, other := f.driver(), f.driver()
	for nth := range 3 {
		reqs := f.tries(4)
		f.releaseAll(d, f.grantAll(d, reqs)) // opens the connection
		f.faults.DropReply(f, nth+1)
		for range nth + 1 { // one of these answers is lost, or a part of it
			_ = f.attemptAll(d, reqs)
			f.allOrNone(other, reqs)
		}
		if !f.eventually(prompt, func() bool { return f.attemptAll(d, reqs) == nil }) {
			f.Fatalf("AcquireAll does not succeed after a lost reply")
		}
		for _, req := range reqs {
			taken := f.try(f.long())
			taken.Key = req.Key
			f.refused(other, taken)
		}
		for _, req := range slices.Backward(reqs) {
			f.undo(d, req)
		}
		f.areFree(other, reqs, -1)
	}
}

// allOrNone checks with d that all locks of reqs are taken, or soon none.
func (f *fixture) allOrNone(d backend.Driver, reqs []*backend.Request) {
	f.Helper()
	taken := 0
	if !f.eventually(prompt, func() bool {
		taken = 0
		for _, req := range reqs {
			look := f.try(f.long())
			look.Key = req.Key
			if _, err := f.acquire(d, look); errors.Is(err, backend.ErrNotAcquired) {
				taken++
			} else {
				f.undo(d, look)
			}
		}
		return taken == 0 || taken == len(reqs)
	}) {
		f.violation("AcquireAll without an answer has taken %d of %d locks", taken, len(reqs))
	}
}

// attemptAll is one AcquireAll for reqs.
func (f *fixture) attemptAll(d backend.Driver, reqs []*backend.Request) error {
	ctx, cancel := context.WithTimeout(f.ctx, serverBound)
	defer cancel()
	_, _, err := d.(backend.Combiner).AcquireAll(ctx, reqs)
	return err
}

func releaseAllAnswersEach(f *fixture) {
	d, other := f.driver(), f.driver()
	reqs := f.tries(5)
	grants := f.grantAll(d, reqs)
	f.release(d, grants[1])
	f.release(d, grants[4])
	theirs := f.try(f.long())
	theirs.Key = reqs[1].Key
	g := f.grant(other, theirs)
	for i, err := range f.tryReleaseAll(d, grants) {
		var want error
		if i == 1 || i == 4 {
			want = backend.ErrNotHeld
		}
		if !errors.Is(err, want) {
			f.Errorf("ReleaseAll: %v for grant %d, want %v", err, i, want)
		}
	}
	f.areFree(other, reqs, 1)
	f.release(other, g)
}

func releaseAllWakesWaiters(f *fixture) {
	d, other := f.driver(), f.driver()
	reqs := f.tries(3)
	grants := f.grantAll(d, reqs)
	var waiters []*backend.Request
	var woken []<-chan struct{}
	for _, req := range reqs {
		w := f.fairRequest(f.long())
		w.Key = req.Key
		busy := f.busy(other, w)
		waiters = append(waiters, w)
		if f.caps.Notify {
			woken = append(woken, async(func() {
				_, _ = other.(backend.Waiter).Wait(f.ctx, w, busy)
			}))
		}
	}
	f.releaseAll(d, grants)
	if f.caps.Fair == backend.FairAlways {
		err := f.attemptAll(d, reqs)
		f.isErr("AcquireAll of locks with waiters", err, backend.ErrNotAcquired)
	}
	for _, done := range woken {
		f.within(prompt, "Wait returns after the release", done)
	}
	for _, w := range waiters {
		f.release(other, f.grantSoon(other, w))
	}
	f.releaseAll(d, f.grantAll(d, reqs))
}

func allWaitForAQueue(f *fixture) {
	f.withQueue()
	f.withoutSession()
	d, other := f.driver(), f.driver()
	reqs := f.tries(3)
	first, waiting := f.try(f.brief()), f.fairRequest(f.long())
	first.Key, waiting.Key = reqs[1].Key, reqs[1].Key
	g := f.grant(d, first)
	end := time.Now().Add(g.Term.TTL)
	f.refused(other, waiting)
	overtake := func() {
		f.isErr("AcquireAll of a lock with a waiter", f.attemptAll(d, reqs), backend.ErrNotAcquired)
	}
	for time.Now().Before(end.Add(10 * nap)) { // until shortly after the end of the term
		overtake()
		time.Sleep(nap)
	}
	var err error
	if !f.eventually(prompt, func() bool { // a server can end terms late
		overtake()
		g, err = f.acquire(other, waiting)
		return err == nil
	}) {
		f.Fatalf("Acquire of the waiter long after the term: %v", err)
	}
	f.areFree(d, reqs, 1)
	f.release(other, g)
}
