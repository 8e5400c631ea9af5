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
	{Name: "UnlockFreesAtOnce", Promise: "When Unlock has returned nil, another process gets the lock with its first attempt.", run: unlockFreesAtOnce},
	{Name: "SecondUnlockIsErrNotHeld", Promise: "A second Unlock is ErrNotHeld and does not free the lock of whoever holds it by then.", run: secondUnlockIsErrNotHeld},
	{Name: "UnlockWorksOnADeadContext", Promise: "Unlock frees the lock although its context has ended.", run: unlockWorksOnADeadContext},
	{Name: "ReleaseIsOwnerChecked", Promise: "A late Release of an old grant is ErrNotHeld and leaves the present holder alone.", run: releaseIsOwnerChecked},
	{Name: "ReleaseOfNothingIsErrNotHeld", Promise: "Release where there is nothing of the owner is ErrNotHeld, free or held by another.", run: releaseOfNothingIsErrNotHeld},
	{Name: "ReleaseFindsItsEntryByOwner", Promise: "Release without State finds what the owner holds, and what it has queued.", run: releaseFindsItsEntryByOwner},
	{Name: "ContendedReleaseIsAnswered", Promise: "Where processes take turns, the server does what a release asks the first time: no wake-up gets in its way.", run: contendedReleaseIsAnswered},
	{Name: "LostReplyOfUnlockIsNil", Promise: "When the answer to a release is lost and the next one is ErrNotHeld, Unlock before the deadline is nil.", run: lostReplyOfUnlockIsNil},
	{Name: "UnansweredUnlockIsRepeated", Promise: "An Unlock that gets no answer is ErrUncertain, and the release is repeated behind the caller until it is answered.", run: unansweredUnlockIsRepeated},
	{Name: "CloseReleases", Promise: "Close ends every lease with ErrClosed and releases its lock; a second Close is nil, and Lock then is ErrClosed.", run: closeReleases},
	{Name: "CloseUndoesLateRequests", Promise: "Close also undoes a request that was given up and that the server executes only later, as late as Capabilities.Late says.", run: closeUndoesLateRequests},
	{Name: "CloseWakesWaiters", Promise: "Close wakes those who wait, with ErrClosed, and leaves nothing of them.", run: closeWakesWaiters},
	{Name: "ClientsLeaveNothing", Promise: "Twenty clients that lock, wait and close leave neither goroutines nor locks.", run: clientsLeaveNothing},
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
		f.isErr("Release of an old grant without State", f.tryRelease(f.ctx, stranger, rebuilt), backend.ErrNotHeld)
	}
	f.refused(d, f.try(f.long()))
	f.release(other, g)
}

func releaseOfNothingIsErrNotHeld(f *fixture) {
	d, other := f.driver(), f.driver()
	nothing := &backend.Grant{Request: *f.try(f.long())}
	f.isErr("Release of a free lock", f.tryRelease(f.ctx, d, nothing), backend.ErrNotHeld)
	g := f.grant(other, f.try(f.long()))
	f.isErr("Release of another's lock", f.tryRelease(f.ctx, d, nothing), backend.ErrNotHeld)
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
	f.isErr("Release of a queue entry again", f.tryRelease(f.ctx, other, &backend.Grant{Request: *req}), backend.ErrNotHeld)
	f.release(d, &backend.Grant{Request: g.Request})
	f.release(third, f.grant(third, f.try(f.long())))
}

func contendedReleaseIsAnswered(f *fixture) {
	const clients, rounds = 2, 300
	f.noteTerm(5 * time.Second) // a connection that is idle for longer than a server allows is closed
	cs := make([]*dlock.Client, clients)
	for i := range cs {
		c, t := f.tapped(dlock.WithTTL(f.long()), dlock.WithLocalHandoff(0), dlock.WithPollInterval(2*time.Millisecond))
		t.onAnswer(f.releaseSucceeds)
		cs[i] = c
	}
	takeTurns(f, cs, 1, rounds)
}

// releaseSucceeds fails for a release that failed. Nothing excuses that where neither the machine nor the server
// stood still while the release, or a wake-up before it, was under way.
func (f *fixture) releaseSucceeds(c call) {
	const wakeUp, punctual = 2 * time.Second, 200 * time.Millisecond
	switch {
	case c.op != release || c.err == nil:
	case f.stoodSince(c.begun.Add(-wakeUp)) < punctual:
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
		if f.doneBy(time.Now().Add(serverBound), "Unlock returns", async(func() { err = lease.Unlock(ctx) })) {
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
		return // there Close ends the connection, and with it whatever it may still be granted
	}
	late := min(f.span(time.Second), maxLate)
	for _, answered := range []bool{true, false} { // the first release, when Close begins
		f.untilExecuted(func() (executed bool) { return f.executeLateAtClose(late, answered) })
	}
}

// executeLateAtClose has the server execute a request, which was given up, while its client closes. The
// first release of the request may be answered before that.
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
	executed = f.executeLate(executor, req) // only now; a release may undo it as it is executed
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

// clientsLeaveNothing leaves the judgement to what every case is judged by in
// the end, and looks at the goroutines while the case still runs.
func clientsLeaveNothing(f *fixture) {
	base := f.goroutines()
	for i := range 20 {
		c, err := dlock.New(f.dial(f.harness), dlock.WithTTL(f.long()))
		if err != nil {
			f.Fatalf("New: %v", err)
		}
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
