package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

var cancelCases = []Case{
	{
		Name: "CancelledAcquireIsUndone",
		Promise: "If Lock is cancelled while the server executes its request, Lock returns at " +
			"once and releases the grant in the background.",
		run: cancelledAcquireIsUndone,
	},
	{
		Name: "CancellationAtAnyInstant",
		Promise: "A Lock that is cancelled at any instant of its request holds nothing " +
			"afterwards, and other holders keep their grants.",
		run: cancellationAtAnyInstant,
	},
	{
		Name: "CancellationAgainstARelease",
		Promise: "A waiter that is cancelled at the instant of the release either returns the " +
			"lease or gives it back.",
		run: cancellationAgainstARelease,
	},
	{
		Name: "LostReplyOfAcquireIsRepeated",
		Promise: "If the answer to an Acquire is lost, Lock repeats it as the same owner and " +
			"gets the lease; TryLock returns ErrUncertain and undoes it.",
		run: lostReplyOfAcquireIsRepeated,
	},
	{
		Name: "LateExecutionIsUndone",
		Promise: "A request that the server executes after the client gave it up, at most " +
			"Capabilities.Late later, is undone as well.",
		run: lateExecutionIsUndone,
	},
	{
		Name: "LateExecutionIsUndoneSoon",
		Promise: "A request that the server executes shortly after its release is undone soon, " +
			"long before Capabilities.Late or the term has passed.",
		run: lateExecutionIsUndoneSoon,
	},
	{
		Name:    "LostReplyOfWaitIsNoGhost",
		Promise: "If the answer of a Wait is lost or late, the waiter continues and gets the lock.",
		run:     lostReplyOfWaitIsNoGhost,
	},
	{
		Name: "UnavailableIsReportedAfterATerm",
		Promise: "If the server cannot be reached, Lock retries for one term and then returns " +
			"ErrUnavailable; TryLock returns it at once.",
		run: unavailableIsReportedAfterATerm,
	},
	{
		Name: "HangingServerBoundsRequests",
		Promise: "If the server never answers, TryLock and Unlock return after the term or 5 s, " +
			"whichever is less.",
		run: hangingServerBoundsRequests,
	},
	{
		Name:    "UnavailableWaiterRecovers",
		Promise: "A waiter continues after the server was unavailable for less than a term.",
		run:     unavailableWaiterRecovers,
	},
}

func cancelledAcquireIsUndone(f *fixture) {
	f.timed()
	for _, fault := range []hook{hang, stop(200 * time.Millisecond)} {
		c, t := f.tapped(dlock.WithTTL(f.long()))
		other := f.client()
		executed := make(chan struct{}) // closed when the request is executed but not answered
		t.onAfter(acquire, times(1, func(ctx context.Context, owner string) error {
			close(executed)
			return fault(ctx, owner)
		}))
		waiter := f.lockAsync(c, f.name)
		f.within(prompt, "the request is executed", executed)
		waiter.cancel()
		if !f.doneBy(time.Now(), "the cancelled Lock returns", waiter.done) {
			return
		}
		if waiter.err == nil { // the grant arrived at the same instant
			f.unlock(waiter.lease)
		} else {
			f.isErr("Lock", waiter.err, context.Canceled)
		}
		f.free(other, f.name)
	}
}

func cancellationAtAnyInstant(f *fixture) {
	c, other := f.client(dlock.WithTTL(f.long())), f.client(dlock.WithTTL(f.long()))
	s := newSection(f)
	visits := 0
	for i := range f.rounds(150) {
		ctx, cancel := context.WithTimeout(f.ctx, time.Duration(i)*20*time.Microsecond)
		lease, err := c.Lock(ctx, f.name)
		switch {
		case err == nil:
			s.visit(lease, func() {})
			visits++
			f.unlock(lease)
		case !errors.Is(err, context.DeadlineExceeded):
			f.Errorf("Lock: %v", err)
		}
		cancel()
		if i%10 == 0 {
			lease := f.lock(other, f.name)
			s.visit(lease, func() {})
			visits++
			f.unlock(lease)
		}
	}
	f.free(other, f.name)
	s.check(visits)
}

func cancellationAgainstARelease(f *fixture) {
	holder, c := f.client(dlock.WithTTL(f.long())), f.client(dlock.WithTTL(f.long()))
	other := f.client()
	for i := range f.rounds(60) {
		lease := f.lock(holder, f.name)
		waiter := f.lockAsync(c, f.name)
		time.Sleep(time.Duration(i%10) * 200 * time.Microsecond)
		unlocked := async(func() { f.unlock(lease) })
		time.Sleep(time.Duration(i%20) * 50 * time.Microsecond)
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
		f.free(other, f.name)
	}
}

func lostReplyOfAcquireIsRepeated(f *fixture) {
	c, t := f.tapped(dlock.WithTTL(f.long()))
	other := f.client()
	t.onAfter(acquire, times(2, fail(errReply)))
	lease := f.lock(c, f.name)
	calls, _ := t.snapshot()
	for _, call := range calls {
		if call.op == acquire && call.owner != lease.Owner() {
			f.Errorf("requests of the owners %q and %q", call.owner, lease.Owner())
		}
	}
	f.held(other, lease)
	f.unlock(lease)

	t.onAfter(acquire, times(1, fail(errReply)))
	_, err := c.TryLock(f.ctx, f.name)
	f.isErr("TryLock without an answer", err, dlock.ErrUncertain)
	f.free(other, f.name)
}

// cancelledRequest begins a Lock, cancels it before the server executes its request, and returns
// the request.
func (f *fixture) cancelledRequest(c *dlock.Client, t *tap) *backend.Request {
	f.Helper()
	f.timed()
	owner := make(chan string, 1)
	t.onBefore(acquire, times(1, func(ctx context.Context, asked string) error {
		owner <- asked
		return hang(ctx, asked)
	}))
	waiter := f.lockAsync(c, f.name)
	req := f.request(f.long())
	select {
	case req.Owner = <-owner:
	case <-waiter.done: // without sending a request
		f.Fatalf("Lock: %v", waiter.err)
	}
	cancelled := time.Now()
	waiter.cancel()
	f.doneBy(cancelled, "the cancelled Lock returns", waiter.done)
	return req
}

func lateExecutionIsUndone(f *fixture) {
	late := min(f.span(300*time.Millisecond), maxLate)
	c, t := f.tappedLate(late, dlock.WithTTL(f.long()))
	f.untilExecuted(func() (executed bool) {
		req := f.cancelledRequest(c, t)
		t.await(release, 1, ofOwner(req.Owner, backend.ErrNotHeld))
		executed = f.executeLate(t.inner, req)
		f.unlock(f.lockBy(f.client(), time.Now().Add(t.Capabilities().Late), f.name,
			dlock.WithTTL(f.long())))
		return executed
	})
}

// ofOwner returns a condition for calls of owner that returned err.
func ofOwner(owner string, err error) func(call) bool {
	return func(c call) bool { return c.owner == owner && errors.Is(c.err, err) }
}

// lateExecutionIsUndoneSoon uses a Late of one hour and a long term. So only an early repetition of
// the release can undo the request in time.
func lateExecutionIsUndoneSoon(f *fixture) {
	c, t := f.tappedLate(time.Hour, dlock.WithTTL(f.long()))
	other := f.client(dlock.WithTTL(f.long()))
	for range 3 {
		answers := 1
		f.untilExecuted(func() (executed bool) {
			req := f.cancelledRequest(c, t)
			t.await(release, answers, ofOwner(req.Owner, backend.ErrNotHeld))
			answers += 2 // the backoff doubles with each repetition
			executed = f.executeLate(t.inner, req)
			f.unlock(f.lockBy(other, time.Now(), f.name))
			return executed
		})
	}
}

// untilExecuted repeats an attempt at a late execution until the server has executed the request.
func (f *fixture) untilExecuted(attempt func() (executed bool)) {
	f.Helper()
	for range 5 {
		if attempt() {
			return
		}
	}
	f.Errorf("the server has not executed any late request")
}

// executeLate makes the server execute an acquisition that its process has given up, and reports
// whether it did. If the process's repeated release is faster, the acquisition is already undone,
// and executed is false.
func (f *fixture) executeLate(d backend.Driver, req *backend.Request) (executed bool) {
	f.Helper()
	var err error
	answered := f.eventually(prompt, func() bool {
		_, err = f.acquire(d, req)
		// The server may reserve the lock for a moment for a waiter that has left.
		return !errors.Is(err, backend.ErrNotAcquired)
	})
	undone := errors.Is(err, backend.ErrLost) || errors.Is(err, backend.ErrUnavailable)
	if !answered || err != nil && !undone {
		f.Fatalf("Acquire: %v", err)
	}
	return err == nil
}

func lostReplyOfWaitIsNoGhost(f *fixture) {
	variants := [][]dlock.Option{nil}
	if f.caps.Fair != backend.FairNo {
		variants = append(variants, []dlock.Option{dlock.WithFair()})
	}
	for _, opts := range variants {
		holder := f.client(append(opts, dlock.WithTTL(f.long()))...)
		// The waiter's own term limits how long it relies on one Wait.
		c, t := f.tapped(append(opts, dlock.WithTTL(f.brief()))...)
		t.onAfter(wait, times(1, fail(errReply)))
		lease := f.lock(holder, f.name)
		waiter := f.lockAsync(c, f.name)
		t.await(acquire, 1, wasBusy)
		f.unlock(lease)
		f.unlock(f.grantedBy(waiter, time.Now().Add(f.brief())))
		f.free(f.client(), f.name)
	}
}

func unavailableIsReportedAfterATerm(f *fixture) {
	c, t := f.tapped(dlock.WithTTL(f.brief()))
	t.onBefore(acquire, unavailable())
	var tried, waited error
	begun := time.Now()
	if f.doneBy(begun, "TryLock returns", async(func() { _, tried = c.TryLock(f.ctx, f.name) })) {
		f.isErr("TryLock", tried, dlock.ErrUnavailable)
	}
	begun = time.Now()
	done := async(func() { _, waited = c.Lock(f.ctx, f.name) })
	if f.doneBy(begun.Add(f.brief()), "Lock returns", done) {
		f.isErr("Lock", waited, dlock.ErrUnavailable)
	}
	if took := time.Since(begun); took < f.brief()/2 {
		f.Errorf("Lock gave up after %v, but the term is %v", took, f.brief())
	}
	t.onBefore(acquire, nil)
	f.free(f.client(), f.name)
}

func hangingServerBoundsRequests(f *fixture) {
	c, t := f.tapped(dlock.WithTTL(f.brief()))
	lease := f.lock(c, f.name+"/held")
	for _, o := range []op{acquire, renew, release} {
		t.onBefore(o, hang)
	}
	var tried, unlocked error
	due := f.requestBound() // at first the lease is not lost, so Unlock sends a request
	done := async(func() { unlocked = lease.Unlock(f.ctx) })
	if f.doneBy(due, "Unlock returns", done) && unlocked == nil {
		f.Errorf("Unlock without an answer: nil")
	}
	due = f.requestBound()
	done = async(func() { _, tried = c.TryLock(f.ctx, f.name) })
	if f.doneBy(due, "TryLock returns", done) &&
		!errors.Is(tried, dlock.ErrUncertain) && !errors.Is(tried, dlock.ErrUnavailable) {
		f.Errorf("TryLock without an answer: %v", tried)
	}
	for _, o := range []op{acquire, renew, release} {
		t.onBefore(o, nil)
	}
	other := f.client()
	f.unlock(f.lockWithin(other, f.brief()+prompt, f.name+"/held", dlock.WithTTL(f.long())))
	f.unlock(f.lockWithin(other, f.brief()+prompt, f.name, dlock.WithTTL(f.long())))
}

// requestBound returns the time by which a request with a brief term must have returned if it
// begins now.
func (f *fixture) requestBound() time.Time { return time.Now().Add(min(f.brief(), serverBound)) }

func unavailableWaiterRecovers(f *fixture) {
	holder := f.client(dlock.WithTTL(f.long()))
	c, t := f.tapped(dlock.WithTTL(f.brief()))
	lease := f.lock(holder, f.name)
	waiter := f.lockAsync(c, f.name)
	t.await(acquire, 1, wasBusy)
	t.onBefore(acquire, times(2, unavailable()))
	t.onBefore(wait, times(2, unavailable()))
	f.unlock(lease)
	f.unlock(f.grantedBy(waiter, time.Now().Add(f.brief())))
}
