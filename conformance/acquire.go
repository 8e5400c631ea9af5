package conformance

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
)

var acquireCases = []Case{
	{
		Name: "AcquireGrantsAFreeLock",
		Promise: "Acquire of a free lock returns a Grant of that key and owner; its term begins " +
			"within the call and is at least as long as requested.",
		run: acquireGrantsAFreeLock,
	},
	{
		Name: "AcquireIsIdempotentByOwner",
		Promise: "A repeated Acquire by the same Owner returns its Grant again, with the same " +
			"fence or a higher one.",
		run: acquireIsIdempotentByOwner,
	},
	{
		Name: "AcquireOfAHeldLockIsBusy",
		Promise: "Acquire of a held lock returns *Busy, which is an ErrNotAcquired and does not " +
			"report a longer term than the holder's.",
		run: acquireOfAHeldLockIsBusy,
	},
	{
		Name: "EachRefusalHasTheRemainingTime",
		Promise: "If *Busy reports the remaining time of the holder's term, it does so until the " +
			"end of the term, so that no waiter sleeps past that end.",
		run: eachRefusalHasTheRemainingTime,
	},
	{
		Name: "AcquireAfterReleaseIsGranted",
		Promise: "A released lock can be acquired at once, by its old holder with a new Owner " +
			"and by other processes.",
		run: acquireAfterReleaseIsGranted,
	},
	{
		Name:    "AcquireHasOneWinner",
		Promise: "If many owners request a lock at once, exactly one of them gets it.",
		run:     acquireHasOneWinner,
	},
	{
		Name: "AcquireRoundsTermsUp",
		Promise: "A term that is not a multiple of the server's time unit is rounded up, never " +
			"down and never to an unlimited term.",
		run: acquireRoundsTermsUp,
	},
	{
		Name: "AbandonedGrantExpires",
		Promise: "The lock of a dead process is free after its term and no sooner; if grants " +
			"live with a connection, the lock is free when the connection ends.",
		run: abandonedGrantExpires,
	},
	{
		Name: "DeadContextEndsRequests",
		Promise: "A request on a context that has ended returns at once, and Release can undo " +
			"its possible effect.",
		run: deadContextEndsRequests,
	},
	{
		Name:    "TryLeavesNoQueueEntry",
		Promise: "Acquire without Queue leaves nothing on the server if the lock is busy.",
		run:     tryLeavesNoQueueEntry,
	},
}

func acquireGrantsAFreeLock(f *fixture) {
	d := f.driver()
	req := f.try(f.long())
	before := time.Now()
	g := f.grant(d, req)
	after := time.Now()
	defer f.release(d, g)
	if g.Key != req.Key || g.Owner != req.Owner || g.Mode != backend.Exclusive {
		f.Errorf("the grant is of key %q, owner %q, mode %v", g.Key, g.Owner, g.Mode)
	}
	if !f.caps.Session && (g.Term.Sent.Before(before) || g.Term.Sent.After(after)) {
		f.Errorf("Term.Sent is not between the call and the return of Acquire")
	}
	if g.Term.TTL < req.TTL {
		f.Errorf("Term.TTL is %v, less than the requested %v", g.Term.TTL, req.TTL)
	}
	fenced := f.caps.Fencing != backend.FenceNone
	if fenced != (g.Fence > 0) || g.Fence >= backend.MaxFence {
		f.Errorf("fence %d, with fencing %v", g.Fence, f.caps.Fencing)
	}
}

func acquireIsIdempotentByOwner(f *fixture) {
	d, other := f.driver(), f.driver()
	req := f.request(f.long())
	g := f.grant(d, req)
	for range 3 {
		again := f.grant(d, req)
		f.sameGrant(g, again)
		g = again
	}
	f.refused(other, f.try(f.long()))
	f.release(d, g)
	f.release(other, f.grant(other, f.try(f.long())))
}

func acquireOfAHeldLockIsBusy(f *fixture) {
	d, other := f.driver(), f.driver()
	g := f.grant(d, f.try(f.long()))
	defer f.release(d, g)
	busy := f.busy(other, f.try(f.long()))
	if !errors.Is(busy, backend.ErrNotAcquired) {
		f.Errorf("%v is not an ErrNotAcquired", busy)
	}
	if busy.RetryAfter < 0 || busy.RetryAfter > g.Term.TTL+time.Second {
		f.Errorf("RetryAfter is %v, the holder's term %v", busy.RetryAfter, g.Term.TTL)
	}
	if busy.Queued {
		f.Errorf("Queued is set, although the request did not have Queue")
	}
}

func eachRefusalHasTheRemainingTime(f *fixture) {
	d, other := f.driver(), f.driver()
	for range 3 {
		g := f.grant(d, f.try(f.short()))
		req := f.try(f.long())
		if f.busy(other, req).RetryAfter == 0 {
			f.release(d, g)
			f.inapplicable("the server does not report the remaining time")
		}
		next, missing := f.requestUntilGranted(other, req)
		if missing > 0 {
			f.Errorf("%d refusals have no RetryAfter", missing)
		}
		f.release(other, next)
	}
}

// requestUntilGranted requests a lock until its holder's term is over, without a pause in the last
// 100 ms. It returns the grant, and the number of refusals without a RetryAfter.
func (f *fixture) requestUntilGranted(
	d backend.Driver, req *backend.Request,
) (g *backend.Grant, missing int) {
	f.Helper()
	for {
		g, err := f.acquire(d, req)
		busy, ok := errors.AsType[*backend.Busy](err)
		switch {
		case err == nil:
			return g, missing
		case !ok:
			f.Fatalf("Acquire: %v", err)
		case busy.RetryAfter <= 0:
			missing++
		case busy.RetryAfter > 100*time.Millisecond:
			time.Sleep(nap)
		}
	}
}

func acquireAfterReleaseIsGranted(f *fixture) {
	d, other := f.driver(), f.driver()
	for range 5 {
		f.release(d, f.grant(d, f.try(f.long())))
		f.release(d, f.grant(d, f.try(f.long())))
		f.release(other, f.grant(other, f.try(f.long())))
	}
}

func acquireHasOneWinner(f *fixture) {
	drivers := []backend.Driver{f.driver(), f.driver(), f.driver(), f.driver()}
	for round := range 5 {
		key := f.name + string(rune('0'+round))
		var winners atomic.Int32
		var won atomic.Pointer[backend.Grant]
		parallel(4*len(drivers), func(i int) {
			req := f.try(f.long())
			req.Key = key
			g, err := f.acquire(drivers[i%len(drivers)], req)
			switch {
			case err == nil:
				winners.Add(1)
				won.Store(g)
			case !errors.Is(err, backend.ErrNotAcquired):
				f.Errorf("Acquire: %v", err)
			}
		})
		if n := winners.Load(); n != 1 {
			f.violation("%d owners were granted the lock", n)
			return
		}
		// The server finds the grant by its owner, so any connection can release it.
		g := *won.Load()
		for _, d := range drivers {
			if d.Release(f.ctx, &g) == nil {
				break
			}
		}
	}
}

func acquireRoundsTermsUp(f *fixture) {
	ttl := f.short() + 123456789*time.Nanosecond
	if f.caps.MaxTTL > 0 && ttl > f.caps.MaxTTL {
		ttl = f.caps.MaxTTL
	}
	d, closeDriver := f.open()
	g := f.grant(d, f.try(ttl))
	if g.Term.TTL < ttl {
		f.Errorf("Term.TTL is %v, less than the requested %v", g.Term.TTL, ttl)
	}
	if g.Term.TTL > ttl+time.Second {
		f.Errorf("Term.TTL is %v for a requested TTL of %v", g.Term.TTL, ttl)
	}
	term, err := f.renew(d, g)
	if err != nil || term.TTL < ttl {
		f.Errorf("Renew: term %v for a requested TTL of %v, error %v", term.TTL, ttl, err)
	}
	closeDriver()
	f.takeOver(f.driver(), endOf(term))
}

// endOf returns the end of a term.
func endOf(t backend.Term) time.Time { return t.Sent.Add(t.TTL) }

// takeOver acquires the lock of an abandoned grant soon after the end of its term, and releases it.
// It returns the time and the fence of the new grant.
func (f *fixture) takeOver(d backend.Driver, end time.Time) (at time.Time, fence uint64) {
	f.Helper()
	return f.takeOverKey(d, f.name, end)
}

// takeOverKey is takeOver for another lock of the case.
func (f *fixture) takeOverKey(
	d backend.Driver, key string, end time.Time,
) (at time.Time, fence uint64) {
	f.Helper()
	var g *backend.Grant
	if !f.eventually(time.Until(end)+prompt, func() bool {
		// A grant long before the end is noticed a little later, and costs fewer requests.
		time.Sleep(min(time.Until(end)/10, 5*nap))
		req := f.try(f.long())
		req.Key = key
		var err error
		g, err = f.acquire(d, req)
		if err != nil && !errors.Is(err, backend.ErrNotAcquired) {
			f.Fatalf("Acquire: %v", err)
		}
		return err == nil
	}) {
		f.Fatalf("the lock of a dead process is not free %v after its term", prompt)
	}
	at = time.Now()
	f.inTime("the lock of a dead process is free", end, at)
	f.release(d, g)
	return at, g.Fence
}

func abandonedGrantExpires(f *fixture) {
	d, closeDriver := f.open()
	other := f.driver()
	g := f.grant(d, f.try(f.short()))
	f.refused(other, f.try(f.long()))
	closeDriver()
	end := endOf(g.Term)
	at, _ := f.takeOver(other, end)
	if !f.caps.Session {
		f.notBefore("the lock of a dead process is granted", end, at)
	}
}

func deadContextEndsRequests(f *fixture) {
	d, other := f.driver(), f.driver()
	ctx, cancel := context.WithCancel(f.ctx)
	cancel()
	req := f.request(f.long())
	done := async(func() {
		g := &backend.Grant{Request: *req}
		if granted, err := d.Acquire(ctx, req); err == nil {
			g = granted
		}
		_, _ = d.Renew(ctx, g)
		_ = d.Release(ctx, g)
		if w, ok := d.(backend.Waiter); ok {
			if _, err := w.Wait(ctx, req, &backend.Busy{RetryAfter: minutes}); err == nil {
				f.Logf("Wait on a dead context: nil")
			}
		}
	})
	if !f.within(prompt, "requests on a dead context return", done) {
		return
	}
	err := f.tryRelease(f.ctx, d, &backend.Grant{Request: *req})
	if err != nil && !errors.Is(err, backend.ErrNotHeld) {
		f.Errorf("Release: %v", err)
	}
	f.release(other, f.grant(other, f.try(f.long())))
}

func tryLeavesNoQueueEntry(f *fixture) {
	d, other, third := f.driver(), f.driver(), f.driver()
	g := f.grant(d, f.try(f.long()))
	for range 5 {
		req := f.try(f.long())
		req.Fair = f.caps.Fair != backend.FairNo
		f.refused(other, req)
		err := f.tryRelease(f.ctx, other, &backend.Grant{Request: *req})
		f.isErr("Release of a failed try", err, backend.ErrNotHeld)
	}
	f.refused(other, f.try(f.long()))
	f.release(d, g)
	f.release(third, f.grant(third, f.try(f.long())))
}
