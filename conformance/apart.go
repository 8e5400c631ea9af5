package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

var apartCases = []Case{
	{Name: "GhostOfAWaiterIsFound", Promise: "A process that left a place in the queue by a request whose answer was lost, and goes on waiting, gets the lock after the holder, and other processes after it.", Faults: true, run: ghostOfAWaiterIsFound},
	{Name: "StoppedWaiterIsPassed", Promise: "A first waiter that is stopped, with its connection open, delays no hand-off by more than its own term.", Faults: true, run: stoppedWaiterIsPassed},
}

func ghostOfAWaiterIsFound(f *fixture) {
	away := f.apart()
	ttl := dlock.WithTTL(f.ttl(2 * time.Second))
	leaves := []func(c *dlock.Client, t *tap, nth int, fair bool){f.loseAnswer, f.loseAnswerAndGiveUp}
	if !f.caps.Session {
		leaves = append(leaves, f.leaveGhost)
	}
	for nth := range 2 {
		for i, opts := range f.queueing() {
			for _, leave := range leaves {
				holder, _ := f.tappedOf(away, dlock.WithTTL(f.long()))
				c, t := f.tapped(append(opts, ttl)...)
				f.unlock(f.lockWithin(c, prompt, f.name)) // the connection is made
				lease := f.lockWithin(holder, prompt, f.name)
				leave(c, t, nth+1, i > 0)
				waiter := f.lockAsync(c, f.name)
				t.await(acquire, 1, wasBusy)
				f.unlock(lease)
				if err := f.granted(waiter, prompt).Unlock(f.ctx); err != nil && !errors.Is(err, dlock.ErrUncertain) {
					f.Errorf("Unlock, whose answer may be lost: %v", err)
				}
				f.unlock(f.lockWithin(holder, prompt, f.name))
				f.settle(c)
			}
		}
	}
}

// loseAnswer loses the nth answer to what follows.
func (f *fixture) loseAnswer(_ *dlock.Client, _ *tap, nth int, _ bool) { f.faults.DropReply(f, nth) }

// loseAnswerAndGiveUp loses the nth answer to a Lock that is cancelled.
func (f *fixture) loseAnswerAndGiveUp(c *dlock.Client, t *tap, nth int, _ bool) {
	f.faults.DropReply(f, nth)
	begun := t.number(acquire)
	ghost := f.lockAsync(c, f.name)
	f.eventually(prompt, func() bool { return t.number(acquire) > begun })
	time.Sleep(nap)
	ghost.cancel()
	f.within(prompt, "the cancelled Lock returns", ghost.done)
}

// leaveGhost loses the nth answer to a request that its process then never undoes, as if the
// server had executed it after the release.
func (f *fixture) leaveGhost(_ *dlock.Client, t *tap, nth int, fair bool) {
	ghost := f.request(f.ttl(2 * time.Second))
	ghost.Fair = fair
	f.faults.DropReply(f, nth)
	ctx, cancel := context.WithTimeout(f.ctx, prompt)
	defer cancel()
	if _, err := t.inner.Acquire(ctx, ghost); err == nil || errors.Is(err, backend.ErrNotAcquired) {
		f.undo(t.inner, ghost) // it was another answer that was lost, so this is no ghost
	}
}

func stoppedWaiterIsPassed(f *fixture) {
	for i, opts := range f.queueing() {
		away := f.apart()
		faults, ok := away.(Faults)
		if !ok {
			f.inapplicable("the other Harness has no Faults")
		}
		stopped, t := f.tappedOf(away, append(opts, dlock.WithTTL(f.brief()))...)
		trial := f.lockWithin(stopped, prompt, f.name) // how long the server keeps what it grants
		term := max(f.brief(), time.Until(trial.Deadline()))
		if f.caps.Session {
			term = prompt // that of the session, which no grant shows
		}
		f.unlock(trial)
		own := f.long()
		if i > 0 { // a waiter behind the head of a queue hears of no expiry but by its own poll
			own = 2 * f.brief()
		}
		opts = append(opts, dlock.WithTTL(own), dlock.WithLocalHandoff(0))
		first, _ := f.tapped(opts...)
		second, _ := f.tapped(opts...)
		lease := f.lock(first, f.name)
		waiter := f.lockAsync(stopped, f.name)
		t.await(acquire, 1, wasBusy)
		time.Sleep(10 * nap) // in which it begins to wait
		heal := faults.Cut(f)
		lease = f.passOn(lease, []*dlock.Client{second, first}, 4, time.Now().Add(term))
		waiter.cancel()
		f.unlock(lease)
		heal()
		f.within(prompt, "the stopped Lock returns", waiter.done)
	}
}

// passOn hands the lock from client to client, n times, all of them by due.
func (f *fixture) passOn(lease *dlock.Lease, cs []*dlock.Client, n int, due time.Time) *dlock.Lease {
	f.Helper()
	for i := range n {
		next := f.lockAsync(cs[i%len(cs)], f.name)
		time.Sleep(10 * nap) // in which it begins to wait; no harm if it does not yet
		f.unlock(lease)
		lease = f.grantedBy(next, due)
	}
	return lease
}

var foreignCases = []Case{
	{Name: "ForeignValueIsAConflict", Promise: "Where a value that is not dlock's stands under the key, Acquire is ErrConflict, and no request changes the value.", run: foreignValueIsAConflict},
	{Name: "LockedEntryCostsNoOtherLease", Promise: "While the entry of one lock cannot be changed, the client that holds it keeps its other leases.", run: lockedEntryCostsNoOtherLease},
	{Name: "FreeNamesAreForgotten", Promise: "After their retention time the server keeps nothing of names that are free.", run: freeNamesAreForgotten},
}

func foreignValueIsAConflict(f *fixture) {
	able := ability[Foreigner](f)
	d := f.driver()
	intact := able.Foreign(f, f.name)
	nothing := &backend.Grant{Request: *f.try(f.long())}
	check := func(what string, err error, allowed ...error) {
		f.Helper()
		ok := false
		for _, target := range allowed {
			ok = ok || errors.Is(err, target)
		}
		if !ok {
			f.Errorf("%s: error %v, want one of %v", what, err, allowed)
		}
		if !intact() {
			f.Fatalf("%s has changed the foreign value", what)
		}
	}
	for _, req := range []*backend.Request{f.try(f.long()), f.request(f.long())} {
		_, err := d.Acquire(f.ctx, req)
		check("Acquire", err, backend.ErrConflict)
		check("Release of it", d.Release(f.ctx, &backend.Grant{Request: *req}), backend.ErrNotHeld, backend.ErrConflict)
	}
	for _, r := range renewers {
		_, err := r.renew(f.ctx, d, nothing)
		check(r.name, err, backend.ErrLost, backend.ErrConflict)
	}
	if b, ok := d.(backend.Breaker); ok && f.caps.Break {
		check("Break", b.Break(f.ctx, f.name, ""), backend.ErrNotHeld, backend.ErrConflict)
		check("Break of an owner", b.Break(f.ctx, f.name, newOwner()), backend.ErrNotHeld, backend.ErrConflict)
	}
	c := f.client(dlock.WithTTL(f.long()))
	_, err := c.TryLock(f.ctx, f.name)
	check("TryLock", err, dlock.ErrConflict)
	if f.within(prompt, "Lock returns", async(func() { _, err = c.Lock(f.ctx, f.name) })) {
		check("Lock", err, dlock.ErrConflict)
	}
	f.free(c, f.name+"/neighbour")
}

func lockedEntryCostsNoOtherLease(f *fixture) {
	const locks, locked = 20, 7
	able := ability[EntryLocker](f)
	// A repeated observation has no longer terms: a defect that costs a lease in one of 2 s may not in one of 8 s.
	ttl := min(f.ttl(2*time.Second), f.clamped(4*time.Second))
	c := f.client(dlock.WithTTL(ttl))
	leases := make([]*dlock.Lease, locks)
	for i := range leases {
		leases[i] = f.lock(c, f.name+string(rune('a'+i)))
	}
	unlock := able.LockEntry(f, leases[locked].Name())
	time.Sleep(2 * ttl)
	for i, lease := range leases {
		if err := lease.Err(); err != nil && i != locked {
			f.Errorf("Err of lease %d, whose entry is not locked: %v", i, err)
		}
	}
	unlock()
	for i, lease := range leases {
		ctx, cancel := context.WithTimeout(f.ctx, prompt)
		left := time.Until(lease.Deadline())
		if err := lease.Unlock(ctx); err != nil && i != locked {
			f.Errorf("Unlock of lease %d, %v before its deadline: %v", i, left, err)
		}
		cancel()
	}
	f.unlock(f.lockWithin(f.client(), prompt, leases[locked].Name(), dlock.WithTTL(f.long())))
}

func freeNamesAreForgotten(f *fixture) {
	const names, atATime = 200, 10
	able := ability[Keeper](f)
	c := f.client(dlock.WithTTL(f.long()))
	parallel(atATime, func(i int) {
		for ; i < names; i += atATime {
			lease, err := c.Lock(f.ctx, fmt.Sprintf("%s/%d", f.name, i))
			if err != nil {
				f.Errorf("Lock: %v", err)
				return
			}
			f.unlock(lease)
		}
	})
	if n := able.Kept(f, f.name+"/"); n != 0 {
		f.Errorf("the server keeps %d entries of %d names that are free", n, names)
	}
}
