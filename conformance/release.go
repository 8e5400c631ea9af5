package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

var releaseCases = []Case{
	{
		Name: "UnlockFreesAtOnce",
		Promise: "After Unlock has returned nil, another process gets the lock at its first " +
			"attempt.",
		run: unlockFreesAtOnce,
	},
	{
		Name: "SecondUnlockIsErrNotHeld",
		Promise: "A second Unlock returns ErrNotHeld and does not free the lock of the present " +
			"holder.",
		run: secondUnlockIsErrNotHeld,
	},
	{
		Name:    "UnlockWorksOnADeadContext",
		Promise: "Unlock frees the lock even if its context has ended.",
		run:     unlockWorksOnADeadContext,
	},
	{
		Name: "ReleaseIsOwnerChecked",
		Promise: "A late Release of an old grant returns ErrNotHeld and does not affect the " +
			"present holder.",
		run: releaseIsOwnerChecked,
	},
	{
		Name: "ReleaseOfNothingIsErrNotHeld",
		Promise: "Release returns ErrNotHeld if the owner has nothing under the key, whether the " +
			"lock is free or held by another owner.",
		run: releaseOfNothingIsErrNotHeld,
	},
	{
		Name:    "ReleaseFindsItsEntryByOwner",
		Promise: "Release without State finds the grant and the queue entry of the owner.",
		run:     releaseFindsItsEntryByOwner,
	},
	{
		Name: "ContendedReleaseIsAnswered",
		Promise: "When processes take turns, the first request of each release succeeds, and no " +
			"wake-up disturbs it.",
		run: contendedReleaseIsAnswered,
	},
	{
		Name: "LostReplyOfUnlockIsNil",
		Promise: "If the answer to a release is lost and the next answer is ErrNotHeld, Unlock " +
			"before the deadline returns nil.",
		run: lostReplyOfUnlockIsNil,
	},
	{
		Name: "UnansweredUnlockIsRepeated",
		Promise: "An Unlock without an answer returns ErrUncertain, and the release is repeated " +
			"in the background until it is answered.",
		run: unansweredUnlockIsRepeated,
	},
	{
		Name: "CloseReleases",
		Promise: "Close ends every lease with ErrClosed and releases its lock; a second Close " +
			"returns nil, and Lock returns ErrClosed.",
		run: closeReleases,
	},
	{
		Name: "CloseUndoesLateRequests",
		Promise: "Close also undoes a request that was given up and that the server executes " +
			"later, within Capabilities.Late.",
		run: closeUndoesLateRequests,
	},
	{
		Name: "CloseWakesWaiters",
		Promise: "Close wakes the waiters with ErrClosed, and leaves nothing of them on the " +
			"server.",
		run: closeWakesWaiters,
	},
	{
		Name:    "ClientsLeaveNothing",
		Promise: "Twenty clients that lock, wait and close leave no goroutines and no locks.",
		run:     clientsLeaveNothing,
	},
}

func unlockFreesAtOnce(f *fixture) {
	c, other := f.client(dlock.WithTTL(f.long())), f.client(dlock.WithTTL(f.long()))
	for range 20 {
		f.unlock(f.lock(c, f.name))
		lease, err := other.TryLock(f.ctx, f.name)
		if err != nil {
			f.Fatalf("TryLock right after Unlock: %v", err)
		}
		f.unlock(lease)
	}
}

func secondUnlockIsErrNotHeld(f *fixture) {
	c, other := f.client(dlock.WithTTL(f.long())), f.client(dlock.WithTTL(f.long()))
	lease := f.lock(c, f.name)
	f.unlock(lease)
	f.isErr("the second Unlock", lease.Unlock(f.ctx), dlock.ErrNotHeld)
	next := f.lock(other, f.name)
	f.isErr("the third Unlock", lease.Unlock(f.ctx), dlock.ErrNotHeld)
	f.isErr("Err", lease.Err(), dlock.ErrNotHeld)
	f.held(c, next)
	f.unlock(next)
}

func unlockWorksOnADeadContext(f *fixture) {
	c, other := f.client(dlock.WithTTL(f.long())), f.client()
	ctx, cancel := context.WithCancel(f.ctx)
	lease, err := c.Lock(ctx, f.name)
	if err != nil {
		f.Fatalf("Lock: %v", err)
	}
	cancel()
	if err := lease.Unlock(ctx); err != nil && !errors.Is(err, dlock.ErrUncertain) {
		f.Errorf("Unlock on a dead context: %v", err)
	}
	f.free(other, f.name)
}

func releaseIsOwnerChecked(f *fixture) {
	d, other := f.driver(), f.driver()
	old := f.grant(d, f.try(f.long()))
	f.release(d, old)
	g := f.grant(other, f.try(f.long()))
	rebuilt := &backend.Grant{Request: old.Request}
	for _, stranger := range []backend.Driver{d, other} {
		f.isErr("Release of an old grant", f.tryRelease(f.ctx, stranger, old), backend.ErrNotHeld)
		f.isErr("Release of an old grant without State",
			f.tryRelease(f.ctx, stranger, rebuilt), backend.ErrNotHeld)
	}
	f.refused(d, f.try(f.long()))
	f.release(other, g)
}

func releaseOfNothingIsErrNotHeld(f *fixture) {
	d, other := f.driver(), f.driver()
	nothing := &backend.Grant{Request: *f.try(f.long())}
	f.isErr("Release of a free lock", f.tryRelease(f.ctx, d, nothing), backend.ErrNotHeld)
	g := f.grant(other, f.try(f.long()))
	f.isErr("Release of another owner's lock", f.tryRelease(f.ctx, d, nothing), backend.ErrNotHeld)
	f.refused(d, f.try(f.long()))
	f.release(other, g)
}

func releaseFindsItsEntryByOwner(f *fixture) {
	d, other, third := f.driver(), f.driver(), f.driver()
	g := f.grant(d, f.try(f.long()))
	req := f.request(f.long())
	req.Fair = f.caps.Fair != backend.FairNo
	busy := f.busy(other, req)
	err := f.tryRelease(f.ctx, other, &backend.Grant{Request: *req})
	if busy.Queued && err != nil {
		f.Errorf("Release of a queue entry: %v", err)
	}
	err = f.tryRelease(f.ctx, other, &backend.Grant{Request: *req})
	f.isErr("Release of a queue entry again", err, backend.ErrNotHeld)
	f.release(d, &backend.Grant{Request: g.Request})
	f.release(third, f.grant(third, f.try(f.long())))
}

func contendedReleaseIsAnswered(f *fixture) {
	const clients, rounds = 2, 300
	f.noteTerm(5 * time.Second) // a server closes connections that are idle for too long
	cs := make([]*dlock.Client, clients)
	for i := range cs {
		c, t := f.tapped(dlock.WithTTL(f.long()), dlock.WithLocalHandoff(0),
			dlock.WithPollInterval(2*time.Millisecond))
		t.onAnswer(f.releaseSucceeds)
		cs[i] = c
	}
	takeTurns(f, cs, 1, rounds)
}

// releaseSucceeds fails if c is a release that failed. The failure has no excuse if neither the
// machine nor the server stood still during the release or during a wake-up before it.
func (f *fixture) releaseSucceeds(c call) {
	const wakeUp, punctual = 2 * time.Second, 200 * time.Millisecond
	switch {
	case c.op != release || c.err == nil:
	case f.stoodSince(c.begun.Add(-wakeUp), 1) < punctual:
		f.violation("Release: %v", c.err)
	default:
		f.Errorf("Release: %v", c.err)
	}
}

func lostReplyOfUnlockIsNil(f *fixture) {
	c, t := f.tapped(dlock.WithTTL(f.long()))
	other := f.client()
	for n := range 3 {
		t.onAfter(release, times(n, fail(errReply)))
		f.unlock(f.lock(c, f.name))
		f.free(other, f.name)
	}
}

func unansweredUnlockIsRepeated(f *fixture) {
	for _, fault := range []hook{hang, fail(errors.New("unknown"))} {
		c, t := f.tapped(dlock.WithTTL(f.long()))
		lease := f.lock(c, f.name)
		t.onBefore(release, fault)
		ctx, cancel := context.WithTimeout(f.ctx, 100*time.Millisecond)
		var err error
		due := time.Now().Add(serverBound)
		done := async(func() { err = lease.Unlock(ctx) })
		if f.doneBy(due, "Unlock returns", done) {
			f.isErr("Unlock without an answer", err, dlock.ErrUncertain)
		}
		cancel()
		f.isErr("Err", lease.Err(), dlock.ErrNotHeld)
		f.held(f.client(), lease)
		t.onBefore(release, nil)
		f.unlock(f.lockWithin(f.client(), prompt, f.name, dlock.WithTTL(f.long())))
	}
}

func closeReleases(f *fixture) {
	c, other := f.client(dlock.WithTTL(f.long())), f.client()
	lease := f.lock(c, f.name)
	another := f.lock(c, f.name+"/another")
	ctx, cancel := lease.Context(f.ctx)
	defer cancel()
	if err := c.Close(); err != nil {
		f.Errorf("Close: %v", err)
	}
	for _, l := range []*dlock.Lease{lease, another} {
		f.isErr("Err", l.Err(), dlock.ErrClosed)
		f.within(prompt, "Lost is closed", l.Lost())
		f.free(other, l.Name())
	}
	f.isErr("the cause of the context's end", context.Cause(ctx), dlock.ErrClosed)
	if err := c.Close(); err != nil {
		f.Errorf("Close again: %v", err)
	}
	_, err := c.Lock(f.ctx, f.name)
	f.isErr("Lock after Close", err, dlock.ErrClosed)
	_, err = c.TryLock(f.ctx, f.name)
	f.isErr("TryLock after Close", err, dlock.ErrClosed)
}

func closeUndoesLateRequests(f *fixture) {
	if f.caps.Session {
		return // Close ends the connection, and with it every late grant
	}
	late := min(f.span(time.Second), maxLate)
	for _, answered := range []bool{true, false} { // first release answered before Close begins
		f.untilExecuted(func() (executed bool) { return f.executeLateAtClose(late, answered) })
	}
}

// executeLateAtClose makes the server execute a request that was given up, while its client closes.
// It reports whether the server executed it. If answered is true, the first release of the request
// is answered before Close begins.
func (f *fixture) executeLateAtClose(late time.Duration, answered bool) (executed bool) {
	f.Helper()
	c, t := f.tappedLate(late, dlock.WithTTL(f.long()))
	executor := f.driver()
	req := f.cancelledRequest(c, t)
	if answered {
		t.await(release, 1, ofOwner(req.Owner, backend.ErrNotHeld))
	}
	closing := time.Now()
	closed := async(func() {
		if err := c.Close(); err != nil {
			f.Errorf("Close: %v", err)
		}
	})
	t.await(release, 1, nil)
	time.Sleep(late / 5)
	executed = f.executeLate(executor, req) // a release may undo it immediately
	f.doneBy(closing.Add(serverBound), "Close returns", closed)
	f.free(f.client(), f.name)
	return executed
}

func closeWakesWaiters(f *fixture) {
	holder, next := f.client(dlock.WithTTL(f.long())), f.client(dlock.WithTTL(f.long()))
	c, t := f.tapped(dlock.WithTTL(f.long()))
	lease := f.lock(holder, f.name)
	waiters := make([]*pending, 10)
	for i := range waiters {
		waiters[i] = f.lockAsync(c, f.name)
	}
	t.await(acquire, 1, wasBusy)
	closing := time.Now()
	closed := async(func() {
		if err := c.Close(); err != nil {
			f.Errorf("Close: %v", err)
		}
	})
	for _, waiter := range waiters {
		if f.doneBy(closing, "a waiter ends with Close", waiter.done) {
			f.isErr("Lock of a waiter", waiter.err, dlock.ErrClosed)
		}
	}
	f.doneBy(closing.Add(serverBound), "Close returns", closed)
	f.unlock(lease)
	f.free(next, f.name)
}

// clientsLeaveNothing checks the goroutines while the case still runs. The checks at the end of
// every case detect locks that are left behind.
func clientsLeaveNothing(f *fixture) {
	base := f.goroutines()
	for i := range 20 {
		c := f.client()
		lease := f.lock(c, f.name)
		ctx, cancel := context.WithTimeout(f.ctx, 5*time.Millisecond)
		if _, err := c.Lock(ctx, f.name); !errors.Is(err, context.DeadlineExceeded) {
			f.Errorf("Lock of a held lock: %v", err)
		}
		cancel()
		if i%2 == 0 {
			f.unlock(lease)
		}
		f.lock(c, fmt.Sprintf("%s/%d", f.name, i))
		if err := c.Close(); err != nil {
			f.Errorf("Close: %v", err)
		}
	}
	if !f.eventually(prompt, func() bool { return f.goroutines() <= base }) {
		f.Errorf("%d goroutines, %d before:\n%s", f.goroutines(), base, f.profile())
	}
}
