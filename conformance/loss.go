package conformance

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

var lossCases = []Case{
	{Name: "LossIsToldBeforeOthersCanHold", Promise: "A lease that cannot be renewed is lost at its deadline, by Lost, Err and its context, before anybody else is granted the lock.", run: lossIsToldBeforeOthersCanHold},
	{Name: "ErrComparesClocks", Promise: "Err and a fresh context tell the loss from the moment of the deadline, by the clock.", run: errComparesClocks},
	{Name: "OnceLostAlwaysLost", Promise: "A renewal whose answer comes after the deadline does not bring the lease back; what it proved is released.", run: onceLostAlwaysLost},
	{Name: "DeadlineCountsFromSending", Promise: "The deadline is counted from before the request was sent, not from its answer, at the acquire and at each renewal.", run: deadlineCountsFromSending},
	{Name: "LateAcquireIsNoLease", Promise: "A grant whose answer comes when its term is over is not handed out as a lease.", run: lateAcquireIsNoLease},
	{Name: "VanishedGrantIsLost", Promise: "A grant that is gone from the server is lost with the next renewal; Unlock says ErrLost.", run: vanishedGrantIsLost},
	{Name: "UnlockLearnsOfTheLoss", Promise: "Where Unlock is the first to learn that the grant is gone, it says ErrLost, and from then on Err does, not ErrNotHeld.", run: unlockLearnsOfTheLoss},
	{Name: "BreakTellsTheHolder", Promise: "Break ends the holder's lease with ErrLost and lets the next waiter in; where the backend cannot break, it is ErrUnsupported.", run: breakTellsTheHolder},
	{Name: "DoJoinsTheLoss", Promise: "Do returns ErrLost if the lease ended before its function returned, also where that returned nil.", run: doJoinsTheLoss},
	{Name: "DroppedLeaseIsFreed", Promise: "A Lease that is dropped without Unlock is renewed no more, and its lock is free at the end of its term.", run: droppedLeaseIsFreed},
	{Name: "LockDelayFollowsALoss", Promise: "With WithLockDelay a lost lock stays closed for the delay; an Unlock frees it at once. Where grants live with a connection it is ErrUnsupported.", run: lockDelayFollowsALoss},
	{Name: "MinHoldKeepsTheLock", Promise: "With WithMinHold Unlock returns at once and the lock is freed at start + d, no sooner.", run: minHoldKeepsTheLock},
	{Name: "MaxHoldEndsTheLease", Promise: "With WithMaxHold the lease is lost at start + d however it is renewed, and others get the lock.", run: maxHoldEndsTheLease},
	{Name: "LossIsObservedOnce", Promise: "Observer.Ended is told once of each lease, with ErrLost after a loss and nil after an Unlock.", run: lossIsObservedOnce},
}

// unavailable is a server that refuses.
func unavailable() hook { return fail(fmt.Errorf("%w: refused", backend.ErrUnavailable)) }

func lossIsToldBeforeOthersCanHold(f *fixture) {
	for _, fault := range []hook{unavailable(), hang, fail(errors.New("unknown"))} {
		c, t := f.tapped(dlock.WithTTL(f.brief()))
		lease := f.lock(c, f.name)
		ctx, cancel := lease.Context(f.ctx)
		waiter := f.lockAsync(f.client(dlock.WithTTL(f.long())), f.name)
		t.onBefore(renew, fault)
		t.onBefore(release, fault)
		if f.caps.Session { // nothing but a release frees it there
			t.onBefore(release, nil)
		}
		next := f.grantedBy(waiter, time.Now().Add(f.brief()))
		if err := lease.Err(); !errors.Is(err, dlock.ErrLost) {
			f.violation("Err when another process holds: %v, want ErrLost", err)
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

func errComparesClocks(f *fixture) {
	c := f.client(dlock.WithTTL(f.short()), dlock.WithoutRenewal())
	lease := f.lock(c, f.name)
	if err := lease.Err(); err != nil && time.Now().Before(lease.Deadline()) {
		f.Errorf("Err before the deadline: %v", err)
	}
	time.Sleep(time.Until(lease.Deadline()))
	f.isErr("Err at the deadline", lease.Err(), dlock.ErrLost)
	ctx, cancel := lease.Context(f.ctx)
	defer cancel()
	f.isErr("the cause of a fresh context's end", context.Cause(ctx), dlock.ErrLost)
	f.isErr("Unlock", lease.Unlock(f.ctx), dlock.ErrLost)
}

func onceLostAlwaysLost(f *fixture) {
	c, t := f.tapped(dlock.WithTTL(f.short()))
	f.free(c, f.name) // the connection is made
	gate := make(chan struct{})
	t.onAfter(renew, func(context.Context, string) error { // executed, and answered too late
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
	time.Sleep(nap) // in which a wrong one would come back
	f.isErr("Err after the late answer", lease.Err(), dlock.ErrLost)
	f.isErr("Extend after the loss", lease.Extend(f.ctx), dlock.ErrLost)
	f.isErr("Unlock after the loss", lease.Unlock(f.ctx), dlock.ErrLost)
	if err := next.Err(); err != nil {
		f.Errorf("Err of the next holder: %v", err)
	}
	f.held(f.client(), next)
	f.unlock(next)
}

func deadlineCountsFromSending(f *fixture) {
	const late = 300 * time.Millisecond // more than the margin
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
	if lease, err = c.Lock(ctx, f.name); err == nil { // a later attempt may have succeeded
		if !time.Now().Before(lease.Deadline()) {
			f.Errorf("Lock: a lease that has ended")
		}
		f.unlock(lease)
	}
	f.free(f.client(), f.name)
}

// vanish releases the grant of lease behind the core's back, as an operator would.
func (f *fixture) vanish(t *tap, lease *dlock.Lease, ttl time.Duration) {
	f.Helper()
	req := f.try(ttl)
	req.Owner = lease.Owner()
	if err := f.tryRelease(f.ctx, t.inner, &backend.Grant{Request: *req}); err != nil {
		f.Fatalf("Release behind the core: %v", err)
	}
}

func vanishedGrantIsLost(f *fixture) {
	c, t := f.tapped(dlock.WithTTL(f.brief()))
	lease := f.lock(c, f.name)
	f.vanish(t, lease, f.brief())
	f.doneBy(lease.Deadline(), "the lease is lost", lease.Lost())
	f.isErr("Err", lease.Err(), dlock.ErrLost)
	f.isErr("Unlock", lease.Unlock(f.ctx), dlock.ErrLost)
	f.isErr("Unlock again", lease.Unlock(f.ctx), dlock.ErrNotHeld)
	f.free(f.client(), f.name)
}

func unlockLearnsOfTheLoss(f *fixture) {
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

func breakTellsTheHolder(f *fixture) {
	if f.unsupported("Break", f.caps.Break, func(c *dlock.Client) error { return c.Break(f.ctx, f.name, "") }) {
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
		f.doneBy(time.Now().Add(f.brief()), "the holder is told", lease.Lost())
		f.isErr("Err", lease.Err(), dlock.ErrLost)
		f.isErr("Unlock", lease.Unlock(f.ctx), dlock.ErrLost)
		f.unlock(next)
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
	for done := waiter.done; done != nil; {
		select {
		case <-done:
			done = nil
		case <-f.ctx.Done():
			f.Fatalf("the lock of a dropped lease is never free")
		case <-time.After(nap):
			runtime.GC()
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
	f.notBefore("granted before the delay was over", deadline.Add(delay), time.Now())
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
	f.notBefore("freed before the minimum hold was over", before.Add(least), time.Now())
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
		f.Errorf("lost %v before the maximum hold was over", early)
	}
	f.isErr("Err", lease.Err(), dlock.ErrLost)
	next := f.grantedBy(waiter, time.Now().Add(f.brief()))
	f.isErr("Unlock", lease.Unlock(f.ctx), dlock.ErrLost)
	f.unlock(next)
}

func lossIsObservedOnce(f *fixture) {
	var unlocked, lost, other atomic.Int32
	c, t := f.tapped(dlock.WithTTL(f.brief()), dlock.WithObserver(&dlock.Observer{Ended: func(e dlock.Event) {
		switch {
		case e.Err == nil:
			unlocked.Add(1)
		case errors.Is(e.Err, dlock.ErrLost):
			lost.Add(1)
		default:
			other.Add(1)
		}
	}}))
	f.unlock(f.lock(c, f.name))
	lease := f.lock(c, f.name)
	f.vanish(t, lease, f.brief())
	f.doneBy(lease.Deadline(), "the lease is lost", lease.Lost())
	f.isErr("Unlock", lease.Unlock(f.ctx), dlock.ErrLost)
	if !f.eventually(prompt, func() bool { return lost.Load() == 1 }) || unlocked.Load() != 1 || other.Load() != 0 {
		f.Errorf("Ended was told of %d unlocks, %d losses, %d others, want 1, 1, 0", unlocked.Load(), lost.Load(), other.Load())
	}
}
