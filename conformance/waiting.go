package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

var waitingCases = []Case{
	{
		Name: "ReleaseWakesAWaiter",
		Promise: "A waiter in another process gets the lock soon after its release, long before " +
			"the end of the term.",
		run: releaseWakesAWaiter,
	},
	{
		Name:    "ReleaseBeforeWaitIsNotMissed",
		Promise: "A release between the *Busy answer and Wait ends Wait at once.",
		run:     releaseBeforeWaitIsNotMissed,
	},
	{
		Name: "ReleaseDuringWaitIsNotMissed",
		Promise: "A release at any instant while Wait begins ends Wait at once, even for the " +
			"first Wait on a name.",
		run: releaseDuringWaitIsNotMissed,
	},
	{
		Name: "WaitersOfOneConnectionMissNoRelease",
		Promise: "A release ends the Wait of every waiter on a connection, even if a waiter " +
			"began to wait after another one.",
		run: waitersOfOneConnectionMissNoRelease,
	},
	{
		Name: "NextRequestFollowsARelease",
		Promise: "ReleaseThen calls sent at most once, and an Acquire after that is granted, or " +
			"woken by the release.",
		run: nextRequestFollowsARelease,
	},
	{
		Name:    "WaitEndsWithItsContext",
		Promise: "Wait returns the context's error as soon as the context ends.",
		run:     waitEndsWithItsContext,
	},
	{
		Name: "WaitEndsAtTheHoldersExpiry",
		Promise: "A waiter gets the lock of a dead holder soon after the holder's term, without " +
			"any message.",
		run: waitEndsAtTheHoldersExpiry,
	},
	{
		Name:    "LockEndsWithItsContext",
		Promise: "Lock returns as soon as its context ends, with the context's error in an *Error.",
		run:     lockEndsWithItsContext,
	},
	{
		Name:    "LockOnADeadContextAcquiresNothing",
		Promise: "Lock and TryLock on a context that has ended acquire nothing.",
		run:     lockOnADeadContextAcquiresNothing,
	},
	{
		Name: "TryLockDoesNotWait",
		Promise: "TryLock of a held lock returns ErrNotAcquired at once and leaves nothing on " +
			"the server.",
		run: tryLockDoesNotWait,
	},
	{
		Name:    "TryLockOfAHeldNameMakesNoTrip",
		Promise: "TryLock sends no request while the same client holds the name.",
		run:     tryLockOfAHeldNameMakesNoTrip,
	},
	{
		Name:    "CancelledWaiterIsNoGhost",
		Promise: "A waiter that gave up does not delay the waiters behind it.",
		run:     cancelledWaiterIsNoGhost,
	},
	{
		Name:    "DeadWaiterDelaysNoMoreThanATerm",
		Promise: "A waiter whose process died delays the waiters behind it by at most one term.",
		run:     deadWaiterDelaysNoMoreThanATerm,
	},
	{
		Name: "LateAnswersKeepNoLock",
		Promise: "A waiter whose answers become later than its term delays the next holder by " +
			"at most one term.",
		run: lateAnswersKeepNoLock,
	},
	{
		Name: "FairWaitersAreServedInOrder",
		Promise: "With WithFair, clients are served in the order in which they began to wait; " +
			"without the capability it is ErrUnsupported.",
		run: fairWaitersAreServedInOrder,
	},
	{
		Name:    "FairTryDoesNotOvertake",
		Promise: "An attempt without a queue entry does not overtake fair waiters.",
		run:     fairTryDoesNotOvertake,
	},
	{
		Name: "OnlyTheFrontSendsRequests",
		Promise: "Of a client's many waiters for one name, only one sends requests, and seldom, " +
			"even while another client inspects the lock.",
		run: onlyTheFrontSendsRequests,
	},
	{
		Name:    "WaitersAreNotGoroutines",
		Promise: "Waiting costs no goroutines except the callers' own.",
		run:     waitersAreNotGoroutines,
	},
}

func releaseWakesAWaiter(f *fixture) {
	f.timed()
	holder := f.client(dlock.WithTTL(f.long()))
	c, t := f.tapped(dlock.WithTTL(f.long()))
	h := handoffs{f: f}
	for n := range 8 {
		lease := f.lock(holder, f.name)
		busy, _ := t.snapshot()
		waiter := f.lockAsync(c, f.name)
		t.await(acquire, count(busy, acquire, wasBusy)+1, wasBusy)
		if n > 2 { // in the first rounds, the waiter may not wait yet
			time.Sleep(asleep)
		}
		unlocked := time.Now()
		f.unlock(lease)
		next := f.grantedBy(waiter, unlocked)
		if n > 2 {
			h.note(unlocked)
		}
		f.unlock(next)
	}
	h.check(t.inner)
}

// waitable returns the driver as a Waiter. The case does not apply if the core has to poll.
func (f *fixture) waitable(d backend.Driver) backend.Waiter {
	f.Helper()
	if !f.caps.Notify { // on this server, even if the driver can notify on other servers
		f.inapplicable("the driver does not notify, so the core polls")
	}
	w, ok := d.(backend.Waiter)
	if !ok {
		f.Fatalf("the driver claims Notify, but is no Waiter")
	}
	return w
}

func releaseBeforeWaitIsNotMissed(f *fixture) {
	f.timed()
	d, other := f.driver(), f.driver()
	w := f.waitable(other)
	for i := range f.rounds(40) {
		held, req := f.try(f.long()), f.request(f.long())
		held.Key = fmt.Sprintf("%s/%d", f.name, i/4) // four rounds per name: new, then known
		req.Key, req.Fair = held.Key, f.caps.Fair != backend.FairNo && i%2 == 1
		g := f.grant(d, held)
		busy := f.busy(other, req)
		f.release(d, g)
		f.awaitTurn(other, w, req, busy)
	}
}

// awaitTurn waits for a lock that is free or becomes free at once, and releases it again. With a
// queue, Wait may return before req's turn.
func (f *fixture) awaitTurn(
	d backend.Driver, w backend.Waiter, req *backend.Request, busy *backend.Busy,
) {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.ctx, prompt)
	defer cancel()
	begun := time.Now()
	for {
		answered := f.send(f.connection(d), wait, req.Owner)
		g, err := w.Wait(ctx, req, busy)
		answered(err)
		if err != nil {
			f.Fatalf("Wait, which a release must end at once: %v", err)
		}
		if g == nil {
			if g, err = f.acquire(d, req); err != nil && !errors.As(err, &busy) {
				f.Fatalf("Acquire after Wait: %v", err)
			}
		}
		if g != nil {
			if g.Owner != req.Owner || !time.Now().Before(g.Term.Sent.Add(g.Term.TTL)) {
				f.Errorf("granted to %q with the term %v: a wrong owner, or the term is over",
					g.Owner, g.Term)
			}
			f.inTime("the waiter is granted the lock", begun, time.Now())
			f.release(d, g)
			return
		}
	}
}

func releaseDuringWaitIsNotMissed(f *fixture) {
	f.timed()
	d, other := f.driver(), f.driver()
	w := f.waitable(other)
	h := handoffs{f: f}
	for i := range f.rounds(150) {
		held, req := f.try(f.long()), f.request(f.long())
		held.Key = fmt.Sprintf("%s/%d", f.name, i)
		req.Key, req.Fair = held.Key, f.caps.Fair != backend.FairNo && i%2 == 1
		g := f.grant(d, held)
		busy := f.busy(other, req)
		sleeps := i%15 == 0
		var freed time.Time
		released := async(func() {
			// The release comes at some time from before the first byte to after the last byte
			// of Wait.
			for begun := time.Now(); time.Since(begun) < time.Duration(i%50)*20*time.Microsecond; {
			}
			if sleeps {
				time.Sleep(asleep)
			}
			freed = time.Now()
			f.release(d, g)
		})
		f.awaitTurn(other, w, req, busy)
		<-released
		if sleeps {
			h.note(freed)
		}
	}
	h.check(d)
}

// nextRequestFollowsARelease does not apply if the server does not execute requests in order.
func nextRequestFollowsARelease(f *fixture) {
	f.timed()
	d := f.driver()
	w := f.waitable(d)
	p, ok := d.(backend.Pipeliner)
	if !ok {
		f.inapplicable("the driver is no Pipeliner")
	}
	for range 20 {
		g, next := f.grant(d, f.try(f.long())), f.request(f.long())
		sent, returned := make(chan struct{}, 2), false
		released := async(func() {
			if err := p.ReleaseThen(f.ctx, g, func() { sent <- struct{}{} }); err != nil {
				f.Errorf("ReleaseThen of a held lock: %v", err)
			}
		})
		select {
		case <-sent:
		case <-released:
			returned = true
		}
		after, err := f.acquire(d, next)
		if busy, ok := errors.AsType[*backend.Busy](err); ok {
			f.awaitTurn(d, w, next, busy)
		} else if err != nil {
			f.Fatalf("Acquire: %v", err)
		} else {
			f.release(d, after)
		}
		<-released
		if n := len(sent); n > 1 || n > 0 && !returned {
			f.Errorf("ReleaseThen called sent more than once")
		}
	}
}

func waitersOfOneConnectionMissNoRelease(f *fixture) {
	d, other := f.driver(), f.driver()
	w := f.waitable(other)
	for i := range 10 {
		held, first, second := f.try(f.long()), f.request(f.long()), f.request(f.long())
		held.Key = fmt.Sprintf("%s/%d", f.name, i)
		first.Key, second.Key = held.Key, held.Key
		g := f.grant(d, held)
		place, late := f.busy(other, first), f.busy(other, second)
		waited := async(func() {
			_, _ = w.Wait(f.ctx, first, place)
			f.undo(other, first)
		})
		time.Sleep(5 * time.Millisecond) // so that first waits before the release
		f.release(d, g)
		f.awaitTurn(other, w, second, late)
		if !f.within(prompt, "Wait of the first one ends", waited) {
			return
		}
	}
}

func waitEndsWithItsContext(f *fixture) {
	d, other := f.driver(), f.driver()
	w := f.waitable(other)
	g := f.grant(d, f.try(f.long()))
	defer f.release(d, g)
	for _, fair := range []bool{false, f.caps.Fair != backend.FairNo} {
		req := f.request(f.long())
		req.Fair = fair
		busy := f.busy(other, req)
		ctx, cancel := context.WithCancel(f.ctx)
		var err error
		done := async(func() {
			for err == nil { // Wait may return early, without a reason
				if _, err = w.Wait(ctx, req, busy); err == nil {
					_, again := f.acquire(other, req)
					errors.As(again, &busy)
				}
			}
		})
		time.Sleep(50 * time.Millisecond) // so that it waits; harmless if it does not wait yet
		cancel()
		if f.doneBy(time.Now(), "Wait ends with its context", done) {
			f.isErr("Wait", err, context.Canceled)
		}
		f.undo(other, req)
	}
}

func waitEndsAtTheHoldersExpiry(f *fixture) {
	dead, t := f.tapped(dlock.WithTTL(f.brief()))
	c, waiting := f.tapped(dlock.WithTTL(f.long()))
	lease := f.lock(dead, f.name)
	waiter := f.lockAsync(c, f.name)
	waiting.await(acquire, 1, wasBusy)
	end := lease.Deadline()
	t.kill()
	next := f.grantedBy(waiter, end)
	if !f.caps.Session {
		f.notBefore("the lock of the dead holder is granted", end, time.Now())
	}
	f.unlock(next)
}

func lockEndsWithItsContext(f *fixture) {
	holder, c := f.client(), f.client(dlock.WithTTL(f.long()))
	lease := f.lock(holder, f.name, dlock.WithTTL(f.long()))
	defer f.unlock(lease)
	end := time.Now().Add(100 * time.Millisecond)
	ctx, cancel := context.WithDeadline(f.ctx, end)
	defer cancel()
	var err error
	done := async(func() { _, err = c.Lock(ctx, f.name) })
	if f.doneBy(end, "Lock ends with its deadline", done) {
		f.isErr("Lock", err, context.DeadlineExceeded)
		if e, ok := errors.AsType[*dlock.Error](err); !ok || e.Name != f.name || e.Op == "" {
			f.Errorf("Lock: %#v is not an *Error of this name", err)
		}
	}
	waiter := f.lockAsync(c, f.name)
	waiter.cancel()
	if f.doneBy(time.Now(), "Lock ends with its cancellation", waiter.done) {
		f.isErr("Lock", waiter.err, context.Canceled)
	}
}

func lockOnADeadContextAcquiresNothing(f *fixture) {
	c, t := f.tapped()
	ctx, cancel := context.WithCancel(f.ctx)
	cancel()
	_, err := c.Lock(ctx, f.name)
	f.isErr("Lock on a dead context", err, context.Canceled)
	_, err = c.TryLock(ctx, f.name)
	f.isErr("TryLock on a dead context", err, context.Canceled)
	if n := t.number(acquire); n != 0 {
		f.Fatalf("the client sent %d requests", n)
	}
	f.free(f.client(), f.name)
}

func tryLockDoesNotWait(f *fixture) {
	holder, c, next := f.client(), f.client(), f.client()
	lease := f.lock(holder, f.name, dlock.WithTTL(f.long()))
	done := async(func() {
		for range 10 {
			f.held(c, lease)
		}
	})
	if f.within(prompt, "ten TryLocks return", done) {
		f.unlock(lease)
		f.free(next, f.name)
	}
}

func tryLockOfAHeldNameMakesNoTrip(f *fixture) {
	c, t := f.tapped()
	lease := f.lock(c, f.name, dlock.WithTTL(f.long()))
	defer f.unlock(lease)
	asked := t.number(acquire)
	for range 10 {
		f.held(c, lease)
	}
	if n := t.number(acquire) - asked; n != 0 {
		f.Errorf("the client sent %d requests", n)
	}
}

func cancelledWaiterIsNoGhost(f *fixture) {
	f.timed()
	variants := [][]dlock.Option{nil}
	if f.caps.Fair != backend.FairNo {
		variants = append(variants, []dlock.Option{dlock.WithFair()})
	}
	for _, opts := range variants {
		opts = append(opts, dlock.WithTTL(f.long()))
		holder := f.client(opts...)
		first, firstTap := f.tapped(opts...)
		second, secondTap := f.tapped(opts...)
		lease := f.lock(holder, f.name)
		ghost := f.lockAsync(first, f.name)
		firstTap.await(acquire, 1, wasBusy)
		waiter := f.lockAsync(second, f.name)
		secondTap.await(acquire, 1, wasBusy)
		ghost.cancel()
		f.doneBy(time.Now(), "the cancelled Lock returns", ghost.done)
		unlocked := time.Now()
		f.unlock(lease)
		f.unlock(f.grantedBy(waiter, unlocked))
	}
}

func deadWaiterDelaysNoMoreThanATerm(f *fixture) {
	opts := []dlock.Option{dlock.WithTTL(f.brief())}
	if f.caps.Fair != backend.FairNo {
		opts = append(opts, dlock.WithFair())
	}
	holder := f.client(opts...)
	first, firstTap := f.tapped(opts...)
	second, secondTap := f.tapped(opts...)
	lease := f.lock(holder, f.name)
	f.lockAsync(first, f.name)
	firstTap.await(acquire, 1, wasBusy)
	waiter := f.lockAsync(second, f.name)
	secondTap.await(acquire, 1, wasBusy)
	firstTap.kill()
	f.unlock(lease)
	f.unlock(f.grantedBy(waiter, time.Now().Add(f.brief())))
}

func fairWaitersAreServedInOrder(f *fixture) {
	f.withQueue()
	fair := []dlock.Option{dlock.WithFair(), dlock.WithTTL(f.long())}
	lease := f.lock(f.client(), f.name, fair...)
	l := &line{f: f}
	for i := range inLine {
		c, t := f.tapped()
		l.join(t, i, f.lockAsync(c, f.name, fair...))
	}
	f.unlock(lease)
	l.check()
}

// inLine is the number of waiters in the cases about their order.
const inLine = 6

// line checks the order in which waiters are served.
type line struct {
	f      *fixture
	served []<-chan struct{}
	mu     sync.Mutex
	order  []int // the groups of the waiters that were served
}

// join adds a waiter, which has begun to wait, and waits until it is in the queue. The waiter must
// be served after the waiters of all lower groups. It unlocks as soon as it is served.
func (l *line) join(t *tap, group int, p *pending) {
	l.f.Helper()
	t.await(acquire, 1, wasBusy)
	l.served = append(l.served, async(func() {
		<-p.done
		if p.err != nil {
			l.f.Errorf("Lock: %v", p.err)
			return
		}
		l.mu.Lock()
		l.order = append(l.order, group)
		l.mu.Unlock()
		l.f.unlock(p.lease)
	}))
}

// check waits until all waiters have been served, and checks their order.
func (l *line) check() {
	l.f.Helper()
	for _, done := range l.served {
		l.f.within(prompt, "a waiter is served", done)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.IsSorted(l.order) {
		l.f.Errorf("the waiters were served in the order %d", l.order)
	}
}

func fairTryDoesNotOvertake(f *fixture) {
	f.withQueue()
	d, other, third := f.driver(), f.driver(), f.driver()
	g := f.grant(d, f.try(f.long()))
	req := f.request(f.long())
	req.Fair = true
	busy := f.busy(other, req)
	if !busy.Queued {
		f.Errorf("a fair request has no queue entry")
	}
	f.release(d, g)
	late := f.try(f.long())
	late.Fair = true
	f.refused(third, late)
	f.release(other, f.grant(other, req))
}

func onlyTheFrontSendsRequests(f *fixture) {
	holder := f.client()
	lease := f.lock(holder, f.name, dlock.WithTTL(f.long()))
	c, t := f.tapped(dlock.WithTTL(f.long()))
	var mu sync.Mutex
	waiting, most := 0, 0
	waits := func(n int) hook {
		return func(context.Context, string) error {
			mu.Lock()
			defer mu.Unlock()
			waiting += n
			most = max(most, waiting)
			return nil
		}
	}
	t.onBefore(wait, waits(1))
	t.onAfter(wait, waits(-1))
	const waiters = 200
	ctx, cancel := context.WithCancel(f.ctx)
	all := async(func() {
		parallel(waiters, func(int) {
			if _, err := c.Lock(ctx, f.name); !errors.Is(err, context.Canceled) {
				f.Errorf("Lock: %v", err)
			}
		})
	})
	t.await(acquire, 1, wasBusy)
	begun := time.Now()
	for range 20 { // as often as a client attempts again if Wait returns at once
		time.Sleep(50 * time.Millisecond)
		if _, err := holder.Inspect(f.ctx, f.name); f.caps.Inspect && err != nil {
			f.Errorf("Inspect: %v", err)
		}
	}
	asked, took := t.number(acquire), time.Since(begun)
	cancel()
	f.within(prompt, "all waiters end", all)
	f.unlock(lease)
	allowed := 10 + 2*took.Seconds() // a client that is not woken attempts again now and then
	if !f.caps.Notify {
		allowed = 300 * max(1, took.Seconds()) // polls with the default backoff and jitter
	}
	mu.Lock()
	defer mu.Unlock()
	if float64(asked) > allowed || most > 1 {
		f.Errorf("%d waiters sent %d requests in %v, and up to %d waited on the server at a time",
			waiters, asked, took, most)
	}
}

func waitersAreNotGoroutines(f *fixture) {
	holder, c := f.client(), f.client(dlock.WithTTL(f.long()))
	lease := f.lock(holder, f.name, dlock.WithTTL(f.long()))
	const waiters = 500
	base := f.goroutines()
	ctx, cancel := context.WithCancel(f.ctx)
	var begun atomic.Int32
	all := async(func() {
		parallel(waiters, func(int) {
			begun.Add(1)
			_, _ = c.Lock(ctx, f.name)
		})
	})
	f.eventually(prompt, func() bool { return begun.Load() == waiters })
	time.Sleep(50 * time.Millisecond) // until the last ones wait in the line
	if n := f.goroutines() - base - waiters; n > 25 {
		f.Errorf("%d waiters cost %d goroutines in addition to their own", waiters, n)
	}
	cancel()
	f.within(prompt, "all waiters end", all)
	f.unlock(lease)
}

// lateAnswersKeepNoLock loses all answers to a waiter, whose requests the server goes on to
// execute. So it has the lock without knowing it, until it gives up. If nothing can be lost that
// ends its Wait, it gets that answer, and with it the lock.
func lateAnswersKeepNoLock(f *fixture) {
	ttl := f.ttl(4500 * time.Millisecond)
	holder, other := f.client(), f.client()
	c, t := f.tapped(dlock.WithTTL(ttl))
	lost := make(chan struct{}) // an attempt was executed, and has no answer
	signal := sync.OnceFunc(func() { close(lost) })
	t.onAfter(acquire, func(ctx context.Context, _ string) error {
		if t.number(acquire) == 1 {
			return nil
		}
		signal()
		<-ctx.Done()
		return ctx.Err()
	})
	t.onAfter(wait, func(ctx context.Context, _ string) error {
		if calls, _ := t.snapshot(); calls[0].busy.Reliable {
			signal()
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	})
	lease := f.lock(holder, f.name)
	waiter := f.lockAsync(c, f.name)
	t.await(acquire, 1, wasBusy)
	due := time.Now().Add(ttl) // the waiter has had no answer for a term then
	f.unlock(lease)
	f.within(prompt, "an attempt has no answer", lost)
	next := f.lockAsync(other, f.name)
	<-waiter.done
	if waiter.err == nil {
		f.unlock(waiter.lease)
	}
	granted := f.granted(next, time.Until(due)+prompt)
	f.inTimeOf(ttl/6, 2, "the next client has the lock", due, time.Now())
	f.unlock(granted)
}
