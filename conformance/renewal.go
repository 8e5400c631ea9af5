package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

var renewalCases = []Case{
	{
		Name: "LeaseIsRenewed",
		Promise: "A lease that is held for more than its term is renewed, not lost, and no other " +
			"client gets the lock.",
		run: leaseIsRenewed,
	},
	{
		Name:    "RenewNeverCreates",
		Promise: "Renew of a grant that is gone returns ErrLost and does not create it again.",
		run:     renewNeverCreates,
	},
	{
		Name: "RenewIsOwnerChecked",
		Promise: "Renew of an old grant returns ErrLost while another owner holds the lock, and " +
			"does not prolong that owner's term.",
		run: renewIsOwnerChecked,
	},
	{
		Name:    "RenewWorksWithoutState",
		Promise: "Renew and Release work on a Grant that was rebuilt without its State.",
		run:     renewWorksWithoutState,
	},
	{
		Name:    "RenewProlongsTheTerm",
		Promise: "The server keeps a renewed grant for its term after the renewal.",
		run:     renewProlongsTheTerm,
	},
	{
		Name: "RenewAllAnswersEach",
		Promise: "RenewAll answers for each grant in its place, and a lost grant does not affect " +
			"the held ones.",
		run: renewAllAnswersEach,
	},
	{
		Name:    "UnlockStopsRenewal",
		Promise: "After Unlock has returned, the lease is no longer renewed.",
		run:     unlockStopsRenewal,
	},
	{
		Name:    "RenewalOutlivesTheAcquireContext",
		Promise: "The lease continues, and is renewed, after the context of its Lock has ended.",
		run:     renewalOutlivesTheAcquireContext,
	},
	{
		Name: "WithoutRenewalTheLeaseEnds",
		Promise: "With WithoutRenewal there are no renewals, the lease is lost at its deadline, " +
			"and the lock is free after the term.",
		run: withoutRenewalTheLeaseEnds,
	},
	{
		Name: "ExtendProvesTheLease",
		Promise: "Extend renews the lease at once and so moves its deadline; after the end of " +
			"the lease it returns the lease's error.",
		run: extendProvesTheLease,
	},
	{
		Name: "FailedRenewalIsRepeated",
		Promise: "A renewal that fails or loses its answer is repeated in time and observed, and " +
			"the lease is not lost.",
		run: failedRenewalIsRepeated,
	},
	{
		Name:    "HoldingCostsNoGoroutines",
		Promise: "Held locks cost no goroutine each, and they are renewed together.",
		run:     holdingCostsNoGoroutines,
	},
	{
		Name:    "WaitersDoNotStarveRenewals",
		Promise: "Renewals are in time, however many waiters there are.",
		run:     waitersDoNotStarveRenewals,
	},
}

func leaseIsRenewed(f *fixture) {
	c, t := f.tapped(dlock.WithTTL(f.brief()))
	lease := f.lock(c, f.name)
	deadline, fence := lease.Deadline(), lease.Fence()
	t.await(renew, 4, succeeded) // one per third of a term, so the first term is over
	if err := lease.Err(); err != nil {
		f.Errorf("Err: %v", err)
	}
	if !lease.Deadline().After(deadline) || lease.Fence() != fence {
		f.Errorf("deadline %v after %v, fence %d after %d",
			lease.Deadline(), deadline, lease.Fence(), fence)
	}
	f.held(f.client(), lease)
	f.unlock(lease)
}

func renewNeverCreates(f *fixture) {
	d, other := f.driver(), f.driver()
	g := f.grant(d, f.try(f.long()))
	f.release(d, g)
	for _, r := range renewers {
		_, err := f.renewBy(r, d, g)
		f.isErr(r.name+" of a released grant", err, backend.ErrLost)
		f.release(other, f.grant(other, f.try(f.long())))
	}
}

func renewIsOwnerChecked(f *fixture) {
	d, other, third := f.driver(), f.driver(), f.driver()
	old := f.grant(d, f.try(f.long()))
	f.release(d, old)
	holder, closeHolder := f.open()
	renewOld := func(check func(what string, err error)) {
		for _, stranger := range []backend.Driver{d, other} {
			for _, r := range renewers {
				_, err := f.renewBy(r, stranger, old)
				check(r.name+" of an old grant", err)
			}
		}
	}
	g := f.grant(holder, f.try(f.long())) // its term must not end before the renewals
	renewOld(func(what string, err error) { f.isErr(what, err, backend.ErrLost) })
	f.release(holder, g)
	g = f.grant(holder, f.try(f.short())) // its term must not become longer
	renewOld(func(string, error) {})
	closeHolder()
	f.takeOver(third, endOf(g.Term))
}

func renewWorksWithoutState(f *fixture) {
	d := f.driver()
	g := f.grant(d, f.try(f.long()))
	rebuilt := &backend.Grant{Request: g.Request, Term: g.Term, Fence: g.Fence}
	for _, r := range renewers {
		if term, err := f.renewBy(r, d, rebuilt); err != nil || term.TTL < g.TTL {
			f.Errorf("%s: %v, %v", r.name, term, err)
		}
	}
	f.refused(f.driver(), f.try(f.long()))
	f.release(d, rebuilt)
	f.isErr("Release again", f.tryRelease(f.ctx, d, g), backend.ErrNotHeld)
}

func renewProlongsTheTerm(f *fixture) {
	for _, r := range renewers {
		renewsBy(f, r)
	}
}

// renewsBy checks that r alone keeps a lock for longer than its term.
func renewsBy(f *fixture, r renewer) {
	d, other := f.driver(), f.driver()
	g := f.grant(d, f.try(f.brief()))
	end := endOf(g.Term)
	for time.Now().Before(end.Add(100 * time.Millisecond)) {
		before := time.Now()
		term, err := f.renewBy(r, d, g)
		if err != nil {
			f.Fatalf("Renew: %v", err)
		}
		if !f.caps.Session && (term.Sent.Before(before) || term.Sent.After(time.Now())) {
			f.Errorf("Term.Sent is not between the call and the return of the renewal")
		}
		time.Sleep(g.Term.TTL / 10)
	}
	f.refused(other, f.try(f.long()))
	f.release(d, g)
}

func renewAllAnswersEach(f *fixture) {
	d, other := f.driver(), f.driver()
	var gs []*backend.Grant
	for i := range 7 {
		req := f.try(f.long())
		req.Key = fmt.Sprintf("%s/%d", f.name, i)
		gs = append(gs, f.grant(d, req))
	}
	free, taken := gs[0], gs[3]
	f.release(d, free)
	f.release(d, taken)
	req := f.try(f.long())
	req.Key = taken.Key
	next := f.grant(other, req)
	// In the second part, all locks are held, but one of them by another owner.
	for _, part := range [][]*backend.Grant{gs, gs[1:]} {
		renewals := f.renewAll(d, part)
		if len(renewals) != len(part) {
			f.Fatalf("%d answers for %d grants", len(renewals), len(part))
		}
		for i, r := range renewals {
			switch g := part[i]; {
			case g == free || g == taken:
				what := fmt.Sprintf("renewal %d of %d, of a released grant", i, len(part))
				f.isErr(what, r.Err, backend.ErrLost)
			case r.Err != nil || r.Term.TTL < g.TTL:
				f.Errorf("renewal %d of %d: term %v, error %v", i, len(part), r.Term, r.Err)
			}
		}
	}
	f.release(other, next)
	for _, g := range gs {
		if g != free && g != taken {
			f.release(d, g)
		}
	}
}

func unlockStopsRenewal(f *fixture) {
	c, t := f.tapped(dlock.WithTTL(f.brief()))
	first, second := f.lock(c, f.name+"/unlocked"), f.lock(c, f.name+"/held")
	t.await(renew, 2, succeeded)
	f.unlock(first)
	unlocked := time.Now()
	owner := second.Owner()
	before, _ := t.snapshot()
	seen := count(before, renew, func(c call) bool { return c.owner == owner })
	t.await(renew, seen+3, func(c call) bool { return c.owner == owner })
	if n := t.since(renew, first.Owner(), unlocked); n != 0 {
		f.Errorf("%d renewals after Unlock", n)
	}
	f.unlock(second)
}

func renewalOutlivesTheAcquireContext(f *fixture) {
	c, t := f.tapped(dlock.WithTTL(f.brief()))
	ctx, cancel := context.WithCancel(f.ctx)
	lease, err := c.Lock(ctx, f.name)
	cancel()
	if err != nil {
		f.Fatalf("Lock: %v", err)
	}
	t.await(renew, 4, succeeded)
	if err := lease.Err(); err != nil {
		f.Errorf("Err: %v", err)
	}
	f.unlock(lease)
}

func withoutRenewalTheLeaseEnds(f *fixture) {
	c, t := f.tapped(dlock.WithTTL(f.short()), dlock.WithoutRenewal())
	other := f.client(dlock.WithTTL(f.long()))
	lease := f.lock(c, f.name)
	waiter := f.lockAsync(other, f.name)
	f.doneBy(lease.Deadline(), "the lease is lost", lease.Lost())
	f.isErr("Err", lease.Err(), dlock.ErrLost)
	f.unlock(f.grantedBy(waiter, lease.Deadline()))
	if n := t.number(renew); n != 0 {
		f.Errorf("%d renewals", n)
	}
	f.isErr("Unlock after the loss", lease.Unlock(f.ctx), dlock.ErrLost)
}

func extendProvesTheLease(f *fixture) {
	c, t := f.tapped(dlock.WithTTL(f.long()), dlock.WithoutRenewal())
	lease := f.lock(c, f.name)
	deadline := lease.Deadline()
	time.Sleep(5 * time.Millisecond) // so that the next deadline differs
	if err := lease.Extend(f.ctx); err != nil {
		f.Errorf("Extend: %v", err)
	}
	if !lease.Deadline().After(deadline) || t.number(renew) != 1 {
		f.Errorf("deadline %v after %v, %d renewals", lease.Deadline(), deadline, t.number(renew))
	}
	f.unlock(lease)
	f.isErr("Extend after Unlock", lease.Extend(f.ctx), dlock.ErrNotHeld)
}

func failedRenewalIsRepeated(f *fixture) {
	failed := make(chan error, 100)
	observer := &dlock.Observer{Renewed: func(e dlock.Event) {
		if e.Err != nil {
			failed <- e.Err
		}
	}}
	c, t := f.tapped(dlock.WithTTL(f.ttl(2*f.brief())), dlock.WithObserver(observer))
	t.onBefore(renew, times(1, fail(fmt.Errorf("%w: refused", backend.ErrUnavailable))))
	t.onAfter(renew, times(2, fail(errReply)))
	lease := f.lock(c, f.name)
	t.await(renew, 2, succeeded)
	if err := lease.Err(); err != nil {
		f.Errorf("Err: %v", err)
	}
	f.held(f.client(), lease)
	f.unlock(lease)
	if n := len(failed); n != 3 {
		f.Errorf("%d failures were observed, want 3", n)
	}
}

func holdingCostsNoGoroutines(f *fixture) {
	const locks, atATime = 300, 20
	// The term is long enough for a distant server on which the driver renews one by one.
	c, t := f.tapped(dlock.WithTTL(f.ttl(8 * time.Second)))
	base := f.goroutines()
	leases := make([]*dlock.Lease, locks)
	parallel(atATime, func(i int) {
		for ; i < locks; i += atATime {
			lease, err := c.Lock(f.ctx, fmt.Sprintf("%s/%d", f.name, i))
			if err != nil {
				f.Errorf("Lock: %v", err)
				return
			}
			leases[i] = lease
		}
	})
	if f.Failed() {
		return
	}
	if !f.eventually(prompt, func() bool { return f.goroutines()-base < locks/5 }) {
		f.Errorf("%d held locks cost %d goroutines", locks, f.goroutines()-base)
	}
	t.await(renew, locks, succeeded)
	for _, lease := range leases {
		if err := lease.Err(); err != nil {
			f.Errorf("Err: %v", err)
		}
	}
	parallel(atATime, func(i int) {
		for ; i < locks; i += atATime {
			f.unlock(leases[i])
		}
	})
}

func waitersDoNotStarveRenewals(f *fixture) {
	const waiters = 150
	other := f.client(dlock.WithTTL(f.long()))
	c, t := f.tapped()
	lease := f.lock(c, f.name, dlock.WithTTL(f.brief()))
	obstacles := make([]*dlock.Lease, waiters)
	for i := range obstacles {
		obstacles[i] = f.lock(other, fmt.Sprintf("%s/%d", f.name, i))
	}
	ctx, cancel := context.WithCancel(f.ctx)
	all := async(func() {
		parallel(waiters, func(i int) {
			_, err := c.Lock(ctx, fmt.Sprintf("%s/%d", f.name, i), dlock.WithTTL(f.long()))
			if !errors.Is(err, context.Canceled) {
				f.Errorf("Lock: %v", err)
			}
		})
	})
	t.await(acquire, waiters, wasBusy)
	calls, _ := t.snapshot()
	t.await(renew, count(calls, renew, succeeded)+4, succeeded)
	if err := lease.Err(); err != nil {
		f.Errorf("Err: %v", err)
	}
	cancel()
	f.within(prompt, "all waiters end", all)
	f.unlockUncertainly(lease) // behind the releases of all waiters
	for _, lease := range obstacles {
		f.unlock(lease)
	}
}
