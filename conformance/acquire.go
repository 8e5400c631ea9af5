package conformance

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
)

var acquireCases = []Case{
	{Name: "AcquireGrantsAFreeLock", Promise: "Acquire of a free lock is a Grant of that key and owner, with a term that counts from within the call and lasts no less than was asked for.", run: acquireGrantsAFreeLock},
	{Name: "AcquireIsIdempotentByOwner", Promise: "Asked again by the same Owner, Acquire answers with its Grant again, with the same fence or a higher one.", run: acquireIsIdempotentByOwner},
	{Name: "AcquireOfAHeldLockIsBusy", Promise: "Acquire of a held lock is *Busy, an ErrNotAcquired, and says no longer a term than the holder's.", run: acquireOfAHeldLockIsBusy},
	{Name: "AcquireAfterReleaseIsGranted", Promise: "A released lock can be had at once, by its old holder under a new Owner and by others.", run: acquireAfterReleaseIsGranted},
	{Name: "AcquireHasOneWinner", Promise: "Of many owners that ask at once, exactly one is granted the lock.", run: acquireHasOneWinner},
	{Name: "AcquireRoundsTermsUp", Promise: "A term that the server cannot count in is rounded up, never down and never to for ever.", run: acquireRoundsTermsUp},
	{Name: "AbandonedGrantExpires", Promise: "What a dead process held is free after its term (with its connection, where grants live with that), and no sooner.", run: abandonedGrantExpires},
	{Name: "DeadContextEndsRequests", Promise: "A request on a context that has ended returns at once, and what it may have done can be undone.", run: deadContextEndsRequests},
	{Name: "TryLeavesNoQueueEntry", Promise: "Acquire without Queue leaves nothing behind when the lock is busy.", run: tryLeavesNoQueueEntry},
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
		f.Errorf("Term.Sent is not between call and return")
	}
	if g.Term.TTL < req.TTL {
		f.Errorf("Term.TTL is %v, less than the %v asked for", g.Term.TTL, req.TTL)
	}
	if fenced := f.caps.Fencing != backend.FenceNone; fenced != (g.Fence > 0) || g.Fence >= backend.MaxFence {
		f.Errorf("fence %d, with fencing %v", g.Fence, f.caps.Fencing)
	}
}

func acquireIsIdempotentByOwner(f *fixture) {
	d, other := f.driver(), f.driver()
	req := f.request(f.long())
	g := f.grant(d, req)
	for range 3 {
		again := f.grant(d, req)
		if again.Fence < g.Fence {
			f.violation("fence %d after %d", again.Fence, g.Fence)
		}
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
		f.Errorf("Queued, although the request did not ask for it")
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
		// Found by its owner, on whichever connection.
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
		f.Errorf("Term.TTL is %v, less than the %v asked for", g.Term.TTL, ttl)
	}
	if g.Term.TTL > ttl+time.Second {
		f.Errorf("Term.TTL is %v for %v", g.Term.TTL, ttl)
	}
	term, err := f.renew(d, g)
	if err != nil || term.TTL < ttl {
		f.Errorf("Renew: term %v for %v, error %v", term.TTL, ttl, err)
	}
	closeDriver()
	f.takeOver(f.driver(), endOf(term))
}

// endOf returns when a term is over.
func endOf(t backend.Term) time.Time { return t.Sent.Add(t.TTL) }

// takeOver acquires what an abandoned grant leaves, soon after the end of its term, and
// releases it. It returns when it was granted.
func (f *fixture) takeOver(d backend.Driver, end time.Time) (at time.Time, fence uint64) {
	f.Helper()
	var g *backend.Grant
	if !f.eventually(time.Until(end)+prompt, func() bool {
		var err error
		g, err = f.acquire(d, f.try(f.long()))
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
				f.Logf("Wait on a dead context: look again")
			}
		}
	})
	if !f.within(prompt, "requests on a dead context return", done) {
		return
	}
	if err := f.tryRelease(f.ctx, d, &backend.Grant{Request: *req}); err != nil && !errors.Is(err, backend.ErrNotHeld) {
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
		f.isErr("Release of a failed try", f.tryRelease(f.ctx, other, &backend.Grant{Request: *req}), backend.ErrNotHeld)
	}
	f.refused(other, f.try(f.long()))
	f.release(d, g)
	f.release(third, f.grant(third, f.try(f.long())))
}
