package conformance

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

var lossCases = []Case{
	{
		Name: "LossComesBeforeTheNextHolder",
		Promise: "A lease that cannot be renewed is lost at its deadline, by Lost, Err and its " +
			"context, before another client gets the lock.",
		run: lossComesBeforeTheNextHolder,
	},
	{
		Name:    "ErrComparesClocks",
		Promise: "From the deadline on, Err and a new context report the loss, by the clocks.",
		run:     errComparesClocks,
	},
	{
		Name: "OnceLostAlwaysLost",
		Promise: "A renewal with an answer after the deadline does not bring the lease back, and " +
			"the renewed grant is released.",
		run: onceLostAlwaysLost,
	},
	{
		Name: "DeadlineCountsFromSending",
		Promise: "The deadline counts from before the request was sent, not from its answer, for " +
			"the acquisition and for each renewal.",
		run: deadlineCountsFromSending,
	},
	{
		Name:    "LateAcquireIsNoLease",
		Promise: "A grant with an answer after the end of its term is not returned as a lease.",
		run:     lateAcquireIsNoLease,
	},
	{
		Name: "VanishedGrantIsLost",
		Promise: "If a grant is gone from the server, the next renewal detects the loss, and " +
			"Unlock returns ErrLost, with a reason.",
		run: vanishedGrantIsLost,
	},
	{
		Name: "UnlockReportsTheLoss",
		Promise: "If Unlock is the first to detect that the grant is gone, it returns ErrLost, " +
			"and Err then returns ErrLost, not ErrNotHeld.",
		run: unlockReportsTheLoss,
	},
	{
		Name: "BreakEndsTheLease",
		Promise: "Break ends the holder's lease with ErrLost and a reason, and the next waiter " +
			"gets the lock; a backend that cannot break returns ErrUnsupported.",
		run: breakEndsTheLease,
	},
	{
		Name: "DoJoinsTheLoss",
		Promise: "Do returns ErrLost if the lease ended before its function returned, even if " +
			"the function returned nil.",
		run: doJoinsTheLoss,
	},
	{
		Name: "DroppedLeaseIsFreed",
		Promise: "A Lease that is dropped without Unlock is no longer renewed, and its lock is " +
			"free at the end of its term.",
		run: droppedLeaseIsFreed,
	},
	{
		Name: "LockDelayFollowsALoss",
		Promise: "With WithLockDelay a lost lock stays locked for the delay, but Unlock frees it " +
			"at once; with grants that live with a connection it is ErrUnsupported.",
		run: lockDelayFollowsALoss,
	},
	{
		Name: "MinHoldKeepsTheLock",
		Promise: "With WithMinHold Unlock returns at once, and the lock is freed at start + d, " +
			"no sooner.",
		run: minHoldKeepsTheLock,
	},
	{
		Name: "MaxHoldEndsTheLease",
		Promise: "With WithMaxHold the lease is lost at start + d in spite of renewals, and " +
			"another client gets the lock.",
		run: maxHoldEndsTheLease,
	},
	{
		Name: "LossIsObservedOnce",
		Promise: "Observer.Ended receives each lease once, with ErrLost after a loss and nil " +
			"after an Unlock.",
		run: lossIsObservedOnce,
	},
}

// unavailable returns a hook that fails each call, as if the server refused connections.
func unavailable() hook { return fail(fmt.Errorf("%w: refused", backend.ErrUnavailable)) }

func lossComesBeforeTheNextHolder(f *fixture) {
	for _, fault := range []hook{unavailable(), hang, fail(errors.New("unknown"))} {
		c, t := f.tapped(dlock.WithTTL(f.brief()))
		lease := f.lock(c, f.name)
		ctx, cancel := lease.Context(f.ctx)
		waiter := f.lockAsync(f.client(dlock.WithTTL(f.long())), f.name)
		t.onBefore(renew, fault)
		t.onBefore(release, fault)
		if f.caps.Session { // only a release frees the lock
			t.onBefore(release, nil)
		}
		next := f.grantedBy(waiter, time.Now().Add(f.brief()))
		if err := lease.Err(); !errors.Is(err, dlock.ErrLost) {
			f.violation("Err while another process holds the lock: %v, want ErrLost", err)
		}
		f.within(prompt, "Lost is closed", lease.Lost())
		f.within(prompt, "the context ends", ctx.Done())
		f.isErr("the cause of the context's end", context.Cause(ctx), dlock.ErrLost)
		cancel()
		t.onBefore(release, nil)
		f.isErr("Unlock after the loss", lease.Unlock(f.ctx), dlock.ErrLost)
		if err := next.Err(); err != nil {
			f.Errorf("Err of the next holder: %v", err)
		}
		f.unlock(next)
	}
}

// errComparesClocks has several leases, because a goroutine of the core also ends each one at its
// deadline, and may be first.
func errComparesClocks(f *fixture) {
	c := f.client(dlock.WithTTL(f.short()), dlock.WithoutRenewal())
	var leases []*dlock.Lease
	var ends []time.Time
	for i := range 6 {
		lease := f.lock(c, fmt.Sprintf("%s/%d", f.name, i))
		end := lease.Deadline()
		if err := lease.Err(); err != nil && time.Now().Before(end) {
			f.Errorf("Err before the deadline: %v", err)
		}
		leases, ends = append(leases, lease), append(ends, end)
		time.Sleep(nap)
	}
	for i, lease := range leases {
		awaitExactly(ends[i])
		if i%2 == 0 {
			f.isErr("Err at the deadline", lease.Err(), dlock.ErrLost)
		}
		ctx, cancel := lease.Context(f.ctx)
		defer cancel()
		f.isErr("the cause of a fresh context's end", context.Cause(ctx), dlock.ErrLost)
	}
	for _, lease := range leases {
		f.isErr("Unlock", lease.Unlock(f.ctx), dlock.ErrLost)
	}
}

// awaitExactly returns at the time end, before the timers of that time have woken a goroutine. It
// does not sleep for the last milliseconds. On a slow machine it may be late.
func awaitExactly(end time.Time) {
	time.Sleep(time.Until(end) - nap/2)
	for time.Now().Before(end) {
	}
}

func onceLostAlwaysLost(f *fixture) {
	c, t := f.tapped(dlock.WithTTL(f.short()))
	f.free(c, f.name) // opens the connection
	gate := make(chan struct{})
	t.onAfter(renew, func(context.Context, string) error { // the answer comes too late
		<-gate
		return nil
	})
	lease := f.lock(c, f.name)
	if !f.doneBy(lease.Deadline(), "the lease is lost", lease.Lost()) {
		close(gate)
		return
	}
	close(gate)
	t.onAfter(renew, nil)
	t.await(renew, 1, succeeded)
	other := f.client(dlock.WithTTL(f.long()))
	next := f.lockBy(other, time.Now().Add(f.short()), f.name)
	time.Sleep(nap) // a lease that is wrongly restored would be back by then
	f.isErr("Err after the late answer", lease.Err(), dlock.ErrLost)
	if !f.eventually(prompt, func() bool { return t.number(release) > 0 }) {
		f.Errorf("the renewed grant is not released")
	}
	f.isErr("Extend after the loss", lease.Extend(f.ctx), dlock.ErrLost)
	f.isErr("Unlock after the loss", lease.Unlock(f.ctx), dlock.ErrLost)
	if err := next.Err(); err != nil {
		f.Errorf("Err of the next holder: %v", err)
	}
	f.held(f.client(), next)
	f.unlock(next)
}

func deadlineCountsFromSending(f *fixture) {
	const late = 300 * time.Millisecond // longer than the margin of the deadline
	c, t := f.tapped(dlock.WithTTL(f.ttl(3*time.Second)), dlock.WithoutRenewal())
	t.onAfter(acquire, stop(late))
	t.onAfter(renew, stop(late))
	check := func(what string, deadline time.Time) {
		calls, _ := t.snapshot()
		if over := deadline.Sub(endOf(calls[len(calls)-1].term)); over > 0 {
			f.violation("%s: the deadline is %v after the end of the term", what, over)
		}
	}
	lease := f.lock(c, f.name)
	check("acquire", lease.Deadline())
	if err := lease.Extend(f.ctx); err != nil {
		f.Errorf("Extend: %v", err)
	}
	check("renewal", lease.Deadline())
	f.unlock(lease)
}

func lateAcquireIsNoLease(f *fixture) {
	c, t := f.tapped(dlock.WithTTL(f.short()))
	t.onAfter(acquire, times(1, stop(f.short()+200*time.Millisecond)))
	lease, err := c.TryLock(f.ctx, f.name)
	if err == nil {
		f.Errorf("TryLock: a lease that ended %v ago", time.Since(lease.Deadline()))
	}
	t.onAfter(acquire, times(1, stop(f.short()+200*time.Millisecond)))
	ctx, cancel := context.WithTimeout(f.ctx, f.short()+prompt)
	defer cancel()
	if lease, err = c.Lock(ctx, f.name); err == nil { // a later attempt can succeed
		if !time.Now().Before(lease.Deadline()) {
			f.Errorf("Lock: a lease that has ended")
		}
		f.unlock(lease)
	}
	f.free(f.client(), f.name)
}

// vanish releases the grant of lease without the core, as an operator does.
func (f *fixture) vanish(t *tap, lease *dlock.Lease, ttl time.Duration) {
	f.Helper()
	req := f.try(ttl)
	req.Owner = lease.Owner()
	if err := f.tryRelease(f.ctx, t.inner, &backend.Grant{Request: *req}); err != nil {
		f.Fatalf("Release without the core: %v", err)
	}
}

func vanishedGrantIsLost(f *fixture) {
	c, t := f.tapped(dlock.WithTTL(f.brief()))
	lease := f.lock(c, f.name)
	f.vanish(t, lease, f.brief())
	f.doneBy(lease.Deadline(), "the lease is lost", lease.Lost())
	f.hasReason("Err", lease.Err())
	f.hasReason("Unlock", lease.Unlock(f.ctx))
	f.isErr("Unlock again", lease.Unlock(f.ctx), dlock.ErrNotHeld)
	f.free(f.client(), f.name)
}

func unlockReportsTheLoss(f *fixture) {
	c, t := f.tapped(dlock.WithTTL(f.long()))
	other := f.client(dlock.WithTTL(f.long()))
	lease := f.lock(c, f.name)
	f.vanish(t, lease, f.long())
	next := f.lock(other, f.name)
	f.isErr("Unlock", lease.Unlock(f.ctx), dlock.ErrLost)
	if err := lease.Err(); !errors.Is(err, dlock.ErrLost) || errors.Is(err, dlock.ErrNotHeld) {
		f.Errorf("after Unlock Err is %v, want ErrLost and not ErrNotHeld", err)
	}
	f.held(f.client(), next)
	f.unlock(next)
}

func breakEndsTheLease(f *fixture) {
	if f.breakUnsupported() {
		return
	}
	c, other := f.client(dlock.WithTTL(f.brief())), f.client(dlock.WithTTL(f.long()))
	for _, anyone := range []bool{false, true} {
		lease := f.lock(c, f.name)
		waiter := f.lockAsync(other, f.name)
		owner := lease.Owner()
		if anyone {
			owner = ""
		}
		if err := f.client().Break(f.ctx, f.name, owner); err != nil {
			f.Fatalf("Break: %v", err)
		}
		next := f.grantedBy(waiter, time.Now())
		f.doneBy(time.Now().Add(f.brief()), "the lease is lost", lease.Lost())
		f.hasReason("Err", lease.Err())
		f.hasReason("Unlock", lease.Unlock(f.ctx))
		f.unlock(next)
	}
}

// hasReason checks that err is ErrLost and that its text has a reason.
func (f *fixture) hasReason(what string, err error) {
	f.Helper()
	f.isErr(what, err, dlock.ErrLost)
	if err != nil && strings.HasSuffix(err.Error(), dlock.ErrLost.Error()) {
		f.Errorf("%s: %v, without a reason", what, err)
	}
}

func doJoinsTheLoss(f *fixture) {
	c, t := f.tapped(dlock.WithTTL(f.brief()))
	mine := errors.New("the function's own error")
	for _, own := range []error{nil, mine} {
		err := c.Do(f.ctx, f.name, func(ctx context.Context, lease *dlock.Lease) error {
			f.vanish(t, lease, f.brief())
			f.doneBy(time.Now().Add(f.brief()), "the context ends", ctx.Done())
			return own
		})
		f.isErr("Do", err, dlock.ErrLost)
		if own != nil {
			f.isErr("Do", err, mine)
		}
	}
}

func droppedLeaseIsFreed(f *fixture) {
	c, t := f.tapped(dlock.WithTTL(f.brief()))
	func() { _ = f.lock(c, f.name) }()
	waiter := f.lockAsync(f.client(dlock.WithTTL(f.long())), f.name)
	var owner string
	for _, call := range func() []call { calls, _ := t.snapshot(); return calls }() {
		owner = call.owner
	}
	collections := 0
	for done := waiter.done; done != nil; {
		select {
		case <-done:
			done = nil
		case <-f.ctx.Done():
			f.Fatalf("the lock of a dropped lease does not become free")
		case <-time.After(nap):
			runtime.GC()
			collections++
		}
		if n := t.number(renew); n > 15 && collections > 200 {
			waiter.cancel()
			f.Fatalf("%d renewals of a dropped lease, in spite of %d collections", n, collections)
		}
	}
	freed := time.Now()
	f.unlock(f.granted(waiter, prompt))
	if n := t.since(renew, owner, freed); n != 0 {
		f.Errorf("%d renewals after the lock was free", n)
	}
}

func lockDelayFollowsALoss(f *fixture) {
	delay := f.span(time.Second)
	if f.unsupported("WithLockDelay", !f.caps.Session, func(c *dlock.Client) error {
		_, err := c.Mutex(f.name, dlock.WithLockDelay(delay))
		return err
	}) {
		return
	}
	other := f.client(dlock.WithTTL(f.long()))
	opts := []dlock.Option{dlock.WithTTL(f.short()), dlock.WithLockDelay(delay)}
	f.unlock(f.lock(f.client(opts...), f.name))
	f.free(other, f.name)

	c, t := f.tapped(opts...)
	lease := f.lock(c, f.name)
	deadline := lease.Deadline()
	t.kill()
	next := f.lockBy(other, deadline.Add(delay), f.name)
	f.notBefore("the lock is granted before the lock-delay ends", deadline.Add(delay), time.Now())
	if !deadline.Before(time.Now().Add(-delay)) {
		f.Errorf("the lease's own deadline includes the delay")
	}
	f.unlock(next)
}

func minHoldKeepsTheLock(f *fixture) {
	least := f.span(800 * time.Millisecond)
	c, other := f.client(), f.client(dlock.WithTTL(f.long()))
	before := time.Now()
	lease := f.lock(c, f.name, dlock.WithMinHold(least), dlock.WithTTL(f.brief()))
	f.unlock(lease)
	f.isErr("Err after Unlock", lease.Err(), dlock.ErrNotHeld)
	f.held(other, lease)
	next := f.lockBy(other, time.Now().Add(least), f.name)
	f.notBefore("the lock is freed before the minimum hold ends", before.Add(least), time.Now())
	f.unlock(next)
}

func maxHoldEndsTheLease(f *fixture) {
	most := f.span(600 * time.Millisecond)
	c, other := f.client(), f.client(dlock.WithTTL(f.long()))
	before := time.Now()
	lease := f.lock(c, f.name, dlock.WithMaxHold(most), dlock.WithTTL(f.brief()))
	waiter := f.lockAsync(other, f.name)
	f.doneBy(time.Now().Add(most), "the lease is lost", lease.Lost())
	if early := most - time.Since(before); early > 0 {
		f.Errorf("the lease was lost %v before the maximum hold ends", early)
	}
	f.isErr("Err", lease.Err(), dlock.ErrLost)
	next := f.grantedBy(waiter, time.Now().Add(f.brief()))
	f.isErr("Unlock", lease.Unlock(f.ctx), dlock.ErrLost)
	f.unlock(next)
}

func lossIsObservedOnce(f *fixture) {
	var unlocked, lost, other atomic.Int32
	observer := &dlock.Observer{Ended: func(e dlock.Event) {
		switch {
		case e.Err == nil:
			unlocked.Add(1)
		case errors.Is(e.Err, dlock.ErrLost):
			lost.Add(1)
		default:
			other.Add(1)
		}
	}}
	c, t := f.tapped(dlock.WithTTL(f.brief()), dlock.WithObserver(observer))
	f.unlock(f.lock(c, f.name))
	lease := f.lock(c, f.name)
	f.vanish(t, lease, f.brief())
	f.doneBy(lease.Deadline(), "the lease is lost", lease.Lost())
	f.isErr("Unlock", lease.Unlock(f.ctx), dlock.ErrLost)
	f.unlock(f.lock(c, f.name)) // its end comes after all events of the lost lease
	if !f.eventually(prompt, func() bool { return unlocked.Load() == 2 }) ||
		lost.Load() != 1 || other.Load() != 0 {
		f.Errorf("Ended received %d unlocks, %d losses and %d other ends, want 2, 1 and 0",
			unlocked.Load(), lost.Load(), other.Load())
	}
}
