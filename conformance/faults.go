package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

var faultCases = []Case{
	{
		Name: "LostRepliesLeaveNoGhost",
		Promise: "Whichever answer is lost while a client locks and unlocks, the lock stays " +
			"exclusive and is free afterwards.",
		Faults: true,
		run:    lostRepliesLeaveNoGhost,
	},
	{
		Name:    "LostReplyToATryIsUndone",
		Promise: "A TryLock that loses its answer leaves nothing on the server.",
		Faults:  true,
		run:     lostReplyToATryIsUndone,
	},
	{
		Name:    "LostReplyOfRenewalCostsNoLease",
		Promise: "A renewal that loses its answer is repeated, and the lease continues.",
		Faults:  true,
		run:     lostReplyOfRenewalCostsNoLease,
	},
	{
		Name: "LostReplyOfUnlockIsNotWaitedFor",
		Promise: "If Unlock loses its answer, the next waiter of the same client gets the lock " +
			"within a term, with a greater fence.",
		Faults: true,
		run:    lostReplyOfUnlockIsNotWaitedFor,
	},
	{
		Name:    "LostReplyWhileWaitingDelaysOnly",
		Promise: "A lost wake-up or a lost answer delays a waiter by at most one term.",
		Faults:  true,
		run:     lostReplyWhileWaitingDelaysOnly,
	},
	{
		Name: "OpeningReturnsFromABlackHole",
		Promise: "Opening a driver through a black hole returns ErrUnavailable within 10 s, if " +
			"the opening sends a request.",
		Faults: true,
		run:    openingReturnsFromABlackHole,
	},
	{
		Name:    "DriverReturnsFromABlackHole",
		Promise: "Every request of a driver through a black hole returns when its context ends.",
		Faults:  true,
		run:     driverReturnsFromABlackHole,
	},
	{
		Name: "LockReturnsFromABlackHole",
		Promise: "Through a black hole, Lock ends with its context and TryLock after the lesser " +
			"of the term and 5 s, and both leave nothing.",
		Faults: true,
		run:    lockReturnsFromABlackHole,
	},
	{
		Name: "HolderInABlackHoleLosesInTime",
		Promise: "A holder that is cut off loses its lease before its term ends; after the cut, " +
			"another client gets the lock with a greater fence.",
		Faults: true,
		run:    holderInABlackHoleLosesInTime,
	},
	{
		Name: "UnlockIntoABlackHoleIsRepeated",
		Promise: "An Unlock that is cut off returns ErrUncertain, and the lock is free soon " +
			"after the cut ends.",
		Faults: true,
		run:    unlockIntoABlackHoleIsRepeated,
	},
	{
		Name:    "WaiterOutlivesABlackHole",
		Promise: "A waiter that was cut off for less than its term gets the lock afterwards.",
		Faults:  true,
		run:     waiterOutlivesABlackHole,
	},
	{
		Name:    "ShortPauseCostsNoLease",
		Promise: "If the server stops for a third of the term, no holder loses its lease.",
		Faults:  true,
		Alone:   true,
		run:     shortPauseCostsNoLease,
	},
	{
		Name: "LongPauseIsReportedInTime",
		Promise: "If the server stops for longer than the term, the holder loses its lease " +
			"before its term ends.",
		Faults: true,
		Alone:  true,
		run:    longPauseIsReportedInTime,
	},
	{
		Name: "TermCountsFromSending",
		Promise: "Term.Sent is from before the request was written, so a late answer does not " +
			"make the term longer.",
		Faults: true,
		Alone:  true,
		run:    termCountsFromSending,
	},
	{
		Name: "RestartKeepsExclusion",
		Promise: "A restart of the server ends no lease silently: afterwards there is one " +
			"holder, waiters continue, and fences increase.",
		Faults: true,
		Alone:  true,
		run:    restartKeepsExclusion,
	},
	{
		Name:    "ClientsReconnect",
		Promise: "After a restart of the server every client can lock, wait and be woken again.",
		Faults:  true,
		Alone:   true,
		run:     clientsReconnect,
	},
}

func lostRepliesLeaveNoGhost(f *fixture) {
	opts := []dlock.Option{dlock.WithTTL(f.long()), dlock.WithLocalHandoff(0)}
	c, other := f.client(opts...), f.client(opts...)
	s := newSection(f)
	visit := func(c *dlock.Client) {
		lease := f.lock(c, f.name)
		s.visit(lease, func() {})
		f.unlockUncertainly(lease)
	}
	const answers = 6
	visit(c) // opens the connection, so that only answers to Lock and Unlock are lost
	for nth := range answers {
		f.faults.DropReply(f, nth+1)
		visit(c)
		visit(c)
		visit(other)
	}
	s.check(1 + 3*answers)
	f.settle(other)
}

// unlockUncertainly frees a lock whose Unlock may lose an answer. If locks end with their
// connection, a lost answer, which closes the connection, may also have cost the lock.
func (f *fixture) unlockUncertainly(lock interface{ Unlock(context.Context) error }) {
	f.Helper()
	err := lock.Unlock(f.ctx)
	switch {
	case err == nil, errors.Is(err, dlock.ErrUncertain):
	case f.isTied() && errors.Is(err, dlock.ErrLost):
	default:
		f.Errorf("Unlock: %v", err)
	}
}

// settle sends requests until DropReply has no answer left to drop.
func (f *fixture) settle(c *dlock.Client) {
	f.Helper()
	for i := range 5 {
		name := fmt.Sprintf("%s/settle%d", f.name, i)
		lease := f.lock(c, name, dlock.WithTTL(f.long()))
		f.unlockUncertainly(lease)
	}
}

func lostReplyToATryIsUndone(f *fixture) {
	c, other := f.client(dlock.WithTTL(f.long())), f.client(dlock.WithTTL(f.long()))
	for nth := range 3 {
		f.unlock(f.lock(c, f.name))
		f.faults.DropReply(f, nth+1)
		lease, err := c.TryLock(f.ctx, f.name)
		switch {
		case err == nil:
			_ = lease.Unlock(f.ctx) // its answer may be the lost one
		case !errors.Is(err, dlock.ErrUncertain) && !errors.Is(err, dlock.ErrUnavailable):
			f.Errorf("TryLock: %v", err)
		}
		f.settle(other)
		f.unlock(f.lock(other, f.name))
	}
}

func lostReplyOfRenewalCostsNoLease(f *fixture) {
	f.untied()
	ttl := f.ttl(3 * time.Second)
	c, t := f.tapped(dlock.WithTTL(ttl))
	lease := f.lock(c, f.name)
	for nth := range 2 {
		f.faults.DropReply(f, nth+1)
		before, _ := t.snapshot()
		t.await(renew, count(before, renew, succeeded)+2, succeeded)
	}
	if err := lease.Err(); err != nil {
		f.Errorf("Err: %v", err)
	}
	other := f.client()
	switch _, err := other.TryLock(f.ctx, f.name); {
	case err == nil && lease.Err() == nil:
		f.violation("a second holder")
	case err == nil:
		f.Errorf("TryLock of a held lock: nil")
	}
	f.unlockUncertainly(lease)
	f.settle(other)
}

func lostReplyWhileWaitingDelaysOnly(f *fixture) {
	holder := f.client(dlock.WithTTL(f.long()))
	c, t := f.tapped(dlock.WithTTL(f.brief()))
	for nth := range 4 {
		lease := f.lock(holder, f.name)
		busy, _ := t.snapshot()
		waiter := f.lockAsync(c, f.name)
		t.await(acquire, count(busy, acquire, wasBusy)+1, wasBusy)
		f.faults.DropReply(f, nth+1)
		f.unlockUncertainly(lease)
		next := f.grantedBy(waiter, time.Now().Add(f.brief()))
		_ = next.Unlock(f.ctx)
		f.settle(holder)
	}
}

func lostReplyOfUnlockIsNotWaitedFor(f *fixture) {
	c := f.client(dlock.WithTTL(f.brief()), dlock.WithLocalHandoff(0))
	other := f.client(dlock.WithTTL(f.long()))
	for nth := range 4 {
		lease := f.lock(c, f.name)
		waiter := f.lockAsync(c, f.name)
		f.faults.DropReply(f, nth+1)
		f.unlockUncertainly(lease)
		next := f.grantedBy(waiter, time.Now().Add(f.brief()))
		f.fenceGrew(lease.Fence(), next.Fence())
		_ = next.Unlock(f.ctx)
		f.settle(other)
	}
}

// openingBound is the time limit for opening a driver.
const openingBound = 10 * time.Second

func openingReturnsFromABlackHole(f *fixture) {
	heal := f.faults.Cut(f)
	defer heal()
	var d backend.Driver
	var err error
	due := time.Now().Add(openingBound)
	done := async(func() { d, err = f.harness.Driver(f.ctx) })
	if !f.doneBy(due, "opening returns", done) {
		return
	}
	if err == nil {
		f.onClose(func() { _ = d.Close() })
	} else {
		f.isErr("opening", err, backend.ErrUnavailable)
	}
}

func driverReturnsFromABlackHole(f *fixture) {
	d, waiting := f.driver(), f.driver()
	g := f.grant(d, f.try(f.long()))
	req := f.request(f.long())
	busy := f.busy(waiting, req)
	heal := f.faults.Cut(f)
	requests := map[string]func(context.Context) error{
		"Acquire": func(ctx context.Context) error {
			_, err := d.Acquire(ctx, f.try(f.long()))
			return err
		},
		"Renew": func(ctx context.Context) error {
			_, err := d.Renew(ctx, g)
			return err
		},
		"Release": func(ctx context.Context) error {
			return waiting.Release(ctx, &backend.Grant{Request: *req, State: busy.State})
		},
	}
	if i, ok := d.(backend.Inspector); ok {
		requests["Inspect"] = func(ctx context.Context) error {
			_, err := i.Inspect(ctx, f.name)
			return err
		}
	}
	if w, ok := waiting.(backend.Waiter); ok {
		requests["Wait"] = func(ctx context.Context) error {
			for ctx.Err() == nil { // Wait may return early, without a reason
				if _, err := w.Wait(ctx, req, busy); err != nil {
					return err
				}
				time.Sleep(nap)
			}
			return ctx.Err()
		}
	}
	for what, request := range requests {
		end := time.Now().Add(200 * time.Millisecond)
		ctx, cancel := context.WithDeadline(f.ctx, end)
		var err error
		done := async(func() { err = request(ctx) })
		if f.doneBy(end, what+" returns", done) && err == nil && !f.caps.Session {
			f.Errorf("%s through a black hole: nil", what)
		}
		cancel()
	}
	heal()
	f.undo(waiting, req)
	f.undo(d, &g.Request)
}

// undo releases a possible grant or queue entry of req, with as many attempts as necessary. It
// reports whether there was one.
func (f *fixture) undo(d backend.Driver, req *backend.Request) (found bool) {
	f.Helper()
	var err error
	if !f.eventually(prompt, func() bool {
		ctx, cancel := context.WithTimeout(f.ctx, serverBound)
		defer cancel()
		err = f.tryRelease(ctx, d, &backend.Grant{Request: *req})
		return err == nil || errors.Is(err, backend.ErrNotHeld)
	}) {
		f.Errorf("Release: %v", err)
	}
	return err == nil
}

// undoLate undoes a request that the server has just received and may not have executed yet. Like
// the core, it repeats a release that has found nothing until Capabilities.Late is over.
func (f *fixture) undoLate(d backend.Driver, req *backend.Request) {
	f.Helper()
	begun := time.Now()
	for !f.undo(d, req) && time.Since(begun)-f.stoodSince(begun, 1) < f.caps.Late {
		time.Sleep(nap)
	}
}

func lockReturnsFromABlackHole(f *fixture) {
	c := f.client(dlock.WithTTL(f.brief()))
	f.unlock(f.lock(c, f.name))
	heal := f.faults.Cut(f)
	end := time.Now().Add(200 * time.Millisecond)
	ctx, cancel := context.WithDeadline(f.ctx, end)
	defer cancel()
	var waited, tried error
	done := async(func() { _, waited = c.Lock(ctx, f.name) })
	if f.doneBy(end, "Lock ends with its context", done) {
		f.isErr("Lock", waited, context.DeadlineExceeded)
	}
	due := f.requestBound()
	done = async(func() { _, tried = c.TryLock(f.ctx, f.name) })
	if f.doneBy(due, "TryLock returns", done) &&
		!errors.Is(tried, dlock.ErrUncertain) && !errors.Is(tried, dlock.ErrUnavailable) {
		f.Errorf("TryLock: %v", tried)
	}
	heal()
	f.unlock(f.lockWithin(f.client(dlock.WithTTL(f.long())), f.brief()+prompt, f.name))
}

func holderInABlackHoleLosesInTime(f *fixture) {
	c, other := f.client(dlock.WithTTL(f.brief())), f.client(dlock.WithTTL(f.long()))
	lease := f.lock(c, f.name)
	heal := f.faults.Cut(f)
	healed := false
	defer func() {
		if !healed {
			heal()
		}
	}()
	f.doneBy(lease.Deadline(), "the lease is lost", lease.Lost())
	f.isErr("Err", lease.Err(), dlock.ErrLost)
	heal()
	healed = true
	next := f.lockWithin(other, f.brief()+prompt, f.name)
	f.fenceGrew(lease.Fence(), next.Fence())
	f.isErr("Unlock", lease.Unlock(f.ctx), dlock.ErrLost)
	f.held(f.client(), next)
	f.unlock(next)
}

func unlockIntoABlackHoleIsRepeated(f *fixture) {
	c := f.client(dlock.WithTTL(f.long()))
	lease := f.lock(c, f.name)
	heal := f.faults.Cut(f)
	ctx, cancel := context.WithTimeout(f.ctx, 100*time.Millisecond)
	defer cancel()
	var err error
	due := time.Now().Add(serverBound)
	done := async(func() { err = lease.Unlock(ctx) })
	if f.doneBy(due, "Unlock returns", done) {
		f.isErr("Unlock", err, dlock.ErrUncertain)
	}
	heal()
	f.unlock(f.lock(f.client(), f.name, dlock.WithTTL(f.long())))
}

func waiterOutlivesABlackHole(f *fixture) {
	holder := f.client(dlock.WithTTL(f.long()))
	c, t := f.tapped(dlock.WithTTL(f.ttl(3 * time.Second)))
	lease := f.lock(holder, f.name)
	waiter := f.lockAsync(c, f.name)
	t.await(acquire, 1, wasBusy)
	heal := f.faults.Cut(f)
	ctx, cancel := context.WithTimeout(f.ctx, 100*time.Millisecond)
	err := lease.Unlock(ctx) // the wake-up cannot arrive
	cancel()
	if err == nil {
		f.Errorf("Unlock through a black hole: nil")
	}
	heal()
	f.unlock(f.granted(waiter, f.ttl(3*time.Second)+prompt))
}

func shortPauseCostsNoLease(f *fixture) {
	ttl := f.ttl(3 * time.Second)
	c, t := f.tapped(dlock.WithTTL(ttl))
	lease := f.lock(c, f.name)
	resume := f.faults.Pause(f)
	time.Sleep(ttl / 3)
	resume()
	t.await(renew, 2, succeeded)
	if err := lease.Err(); err != nil {
		f.Errorf("Err: %v", err)
	}
	f.held(f.client(), lease)
	f.unlock(lease)
}

func longPauseIsReportedInTime(f *fixture) {
	c, other := f.client(dlock.WithTTL(f.brief())), f.client(dlock.WithTTL(f.long()))
	lease := f.lock(c, f.name)
	resume := f.faults.Pause(f)
	f.doneBy(lease.Deadline(), "the lease is lost", lease.Lost())
	f.isErr("Err", lease.Err(), dlock.ErrLost)
	resume()
	next := f.lockWithin(other, f.brief()+prompt, f.name)
	f.fenceGrew(lease.Fence(), next.Fence())
	f.unlock(next)
}

func termCountsFromSending(f *fixture) {
	// A repeated observation does not lengthen the pause, because the driver's timeout would
	// expire. Only a machine that stands still for the whole pause sends the request after it.
	const pause = 300 * time.Millisecond
	f.noteTerm(allowance * pause)
	d := f.driver()
	f.release(d, f.grant(d, f.try(f.long()))) // opens the connection
	late := func(what string, request func() (backend.Term, error)) {
		resume := f.faults.Pause(f)
		var term backend.Term
		var err error
		done := async(func() { term, err = request() })
		time.Sleep(pause)
		resumed := time.Now()
		resume()
		if !f.within(prompt, what+" is answered", done) {
			return
		}
		if err != nil {
			f.Errorf("%s: %v", what, err)
		}
		if term.Sent.After(resumed) {
			f.Errorf("%s: Term.Sent is %v after the server resumed, not from before the request",
				what, term.Sent.Sub(resumed))
		}
	}
	req := f.try(f.long())
	g := &backend.Grant{Request: *req}
	late("Acquire", func() (backend.Term, error) {
		granted, err := d.Acquire(f.ctx, req)
		if err != nil {
			return backend.Term{}, err
		}
		g = granted
		return g.Term, nil
	})
	late("Renew", func() (backend.Term, error) { return d.Renew(f.ctx, g) })
	late("RenewAll", func() (backend.Term, error) {
		renewals := renewAll(f.ctx, d, []*backend.Grant{g})
		return renewals[0].Term, renewals[0].Err
	})
	f.release(d, g)
}

func restartKeepsExclusion(f *fixture) {
	c := f.client(dlock.WithTTL(f.ttl(20 * time.Second)))
	other, t := f.tapped(dlock.WithTTL(f.long()))
	lease := f.lock(c, f.name)
	waiter := f.lockAsync(other, f.name)
	t.await(acquire, 1, wasBusy)
	f.restart()
	kept := f.caps.Fencing == backend.FenceDurable && !f.caps.Session
	if err := lease.Err(); kept && err != nil {
		f.Errorf("a server that keeps its data lost the lease: %v", err)
	}
	err := lease.Unlock(f.ctx)
	lost := !kept && errors.Is(err, dlock.ErrLost)
	if err != nil && !lost && !errors.Is(err, dlock.ErrUncertain) {
		f.Errorf("Unlock: %v", err)
	}
	next := f.granted(waiter, prompt)
	f.fenceGrew(lease.Fence(), next.Fence())
	f.held(f.client(), next)
	f.unlock(next)
}

func clientsReconnect(f *fixture) {
	f.timed()
	ttl := f.ttl(minutes)
	c := f.client(dlock.WithTTL(ttl))
	other, t := f.tapped(dlock.WithTTL(ttl))
	f.unlock(f.lock(c, f.name))
	f.unlock(f.lock(other, f.name))
	for range 2 {
		f.restart()
		lease := f.lock(c, f.name)
		busy, _ := t.snapshot()
		waiter := f.lockAsync(other, f.name)
		t.await(acquire, count(busy, acquire, wasBusy)+1, wasBusy)
		unlocked := time.Now()
		f.unlock(lease)
		f.unlock(f.grantedBy(waiter, unlocked))
	}
}
