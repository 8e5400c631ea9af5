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
	{
		Name: "GhostOfAWaiterIsFound",
		Promise: "A waiter whose request lost its answer, and so may have left a queue entry, " +
			"gets the lock next; other processes get it afterwards.",
		Faults: true,
		run:    ghostOfAWaiterIsFound,
	},
	{
		Name: "StoppedWaiterIsPassed",
		Promise: "If the process of the first waiter is stopped with its connection open, it " +
			"delays no hand-off by more than its own term.",
		Faults: true,
		run:    stoppedWaiterIsPassed,
	},
}

func ghostOfAWaiterIsFound(f *fixture) {
	away := f.apart()
	ttl := dlock.WithTTL(f.ttl(2 * time.Second))
	leaves := []func(c *dlock.Client, t *tap, nth int, fair bool){
		f.loseAnswer, f.loseAnswerAndGiveUp,
	}
	if !f.caps.Session {
		leaves = append(leaves, f.leaveGhost)
	}
	for nth := range 2 {
		for i, opts := range f.queueing() {
			for _, leave := range leaves {
				holder, _ := f.tappedOf(away, dlock.WithTTL(f.long()))
				c, t := f.tapped(append(opts, ttl)...)
				f.unlock(f.lockWithin(c, prompt, f.name)) // opens the connection
				lease := f.lockWithin(holder, prompt, f.name)
				leave(c, t, nth+1, i > 0)
				waiter := f.lockAsync(c, f.name)
				t.await(acquire, 1, wasBusy)
				f.unlock(lease)
				err := f.granted(waiter, prompt).Unlock(f.ctx)
				if err != nil && !errors.Is(err, dlock.ErrUncertain) {
					f.Errorf("Unlock (its answer may be lost): %v", err)
				}
				f.unlock(f.lockWithin(holder, prompt, f.name))
				f.settle(c)
			}
		}
	}
}

// loseAnswer drops the nth answer from now on.
func (f *fixture) loseAnswer(_ *dlock.Client, _ *tap, nth int, _ bool) {
	f.faults.DropReply(f, nth)
}

// loseAnswerAndGiveUp drops the nth answer from now on, and begins a Lock that it cancels.
func (f *fixture) loseAnswerAndGiveUp(c *dlock.Client, t *tap, nth int, _ bool) {
	f.faults.DropReply(f, nth)
	begun := t.number(acquire)
	ghost := f.lockAsync(c, f.name)
	f.eventually(prompt, func() bool { return t.number(acquire) > begun })
	time.Sleep(nap)
	ghost.cancel()
	f.within(prompt, "the cancelled Lock returns", ghost.done)
}

// leaveGhost drops the nth answer from now on, and sends an Acquire. If the Acquire loses its
// answer, its process never undoes it, as if the server had executed it after the release.
func (f *fixture) leaveGhost(_ *dlock.Client, t *tap, nth int, fair bool) {
	ghost := f.request(f.ttl(2 * time.Second))
	ghost.Fair = fair
	f.faults.DropReply(f, nth)
	ctx, cancel := context.WithTimeout(f.ctx, prompt)
	defer cancel()
	if _, err := t.inner.Acquire(ctx, ghost); err == nil || errors.Is(err, backend.ErrNotAcquired) {
		f.undo(t.inner, ghost) // a different answer was lost, so this is no ghost
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
		trial := f.lockWithin(stopped, prompt, f.name) // shows how long the server keeps a grant
		term := max(f.brief(), time.Until(trial.Deadline()))
		if f.caps.Session {
			term = prompt // the term of the session, which no grant shows
		}
		f.unlock(trial)
		own := f.long()
		if i > 0 { // behind the head of a queue, only a waiter's own poll detects an expiry
			own = 2 * f.brief()
		}
		opts = append(opts, dlock.WithTTL(own), dlock.WithLocalHandoff(0))
		first, _ := f.tapped(opts...)
		second, _ := f.tapped(opts...)
		lease := f.lock(first, f.name)
		waiter := f.lockAsync(stopped, f.name)
		t.await(acquire, 1, wasBusy)
		time.Sleep(10 * nap) // time to begin waiting
		heal := faults.Cut(f)
		lease = f.passOn(lease, []*dlock.Client{second, first}, 4, time.Now().Add(term))
		waiter.cancel()
		f.unlock(lease)
		heal()
		f.within(prompt, "the stopped Lock returns", waiter.done)
	}
}

// passOn passes the lock from client to client, n times. Each client must get it by due. It returns
// the last lease.
func (f *fixture) passOn(
	lease *dlock.Lease, cs []*dlock.Client, n int, due time.Time,
) *dlock.Lease {
	f.Helper()
	for i := range n {
		next := f.lockAsync(cs[i%len(cs)], f.name)
		time.Sleep(10 * nap) // time to begin waiting; harmless if it has not begun yet
		f.unlock(lease)
		lease = f.grantedBy(next, due)
	}
	return lease
}

var foreignCases = []Case{
	{
		Name: "ForeignValueIsAConflict",
		Promise: "If the key has a value that dlock did not write, Acquire returns ErrConflict, " +
			"Release returns ErrNotHeld, and no request changes the value.",
		run: foreignValueIsAConflict,
	},
	{
		Name: "LockedEntryCostsNoOtherLease",
		Promise: "While the server cannot change the entries of some locks, the client that " +
			"holds them keeps its other leases.",
		run: lockedEntryCostsNoOtherLease,
	},
	{
		Name:    "FreeNamesAreForgotten",
		Promise: "After the retention time the server keeps nothing for free names.",
		run:     freeNamesAreForgotten,
	},
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
		check("Release after the refusal",
			d.Release(f.ctx, &backend.Grant{Request: *req}),
			backend.ErrNotHeld)
	}
	for _, r := range renewers {
		_, err := r.renew(f.ctx, d, nothing)
		check(r.name, err, backend.ErrLost, backend.ErrConflict)
	}
	if b, ok := d.(backend.Breaker); ok && f.caps.Break {
		check("Break", b.Break(f.ctx, f.name, ""), backend.ErrNotHeld, backend.ErrConflict)
		err := b.Break(f.ctx, f.name, newOwner())
		check("Break of an owner", err, backend.ErrNotHeld, backend.ErrConflict)
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
	// The locked entries are of readers, as many as a driver may have connections for renewals,
	// and of two writers.
	const locks, readers, locked = 20, 4, 6
	able := ability[EntryLocker](f)
	// Repeated observations lengthen this term to 4 s at most. A defect that costs a lease with a
	// term of 2 s could remain hidden with a term of 8 s.
	ttl := min(f.ttl(2*time.Second), f.clamped(4*time.Second))
	c := f.client(dlock.WithTTL(ttl))
	leases := make([]*dlock.Lease, locks)
	for i := range leases {
		name := f.name + string(rune('a'+i))
		if i < readers && f.caps.Modes&backend.Shared != 0 {
			leases[i] = f.read(c, name)
			continue
		}
		leases[i] = f.lock(c, name)
	}
	var unlocks []func()
	for _, lease := range leases[:locked] {
		unlocks = append(unlocks, f.lockEntry(able, lease.Name()))
	}
	time.Sleep(2 * ttl)
	for i, lease := range leases[locked:] {
		if err := lease.Err(); err != nil {
			f.Errorf("Err of lease %d, whose entry is not locked: %v", locked+i, err)
		}
	}
	for _, unlock := range unlocks {
		unlock()
	}
	for i, lease := range leases {
		ctx, cancel := context.WithTimeout(f.ctx, prompt)
		left := time.Until(lease.Deadline())
		if err := lease.Unlock(ctx); err != nil && i >= locked {
			f.Errorf("Unlock of lease %d, %v before its deadline: %v", i, left, err)
		}
		cancel()
	}
	other := f.client()
	for _, lease := range leases[:locked] {
		f.unlock(f.lockWithin(other, prompt, lease.Name(), dlock.WithTTL(f.long())))
	}
}

// lockEntry locks an entry, and records how long that takes. It opens a connection, as the driver
// does for concurrent renewals. The probe opens none, so it does not measure this.
func (f *fixture) lockEntry(able EntryLocker, key string) (unlock func()) {
	f.Helper()
	defer func(begun time.Time) { f.noteStood(time.Since(begun)) }(time.Now())
	return able.LockEntry(f, key)
}

// read acquires a lock as a reader.
func (f *fixture) read(c *dlock.Client, name string) *dlock.Lease {
	f.Helper()
	m, err := c.RWMutex(name)
	if err != nil {
		f.Fatalf("RWMutex: %v", err)
	}
	lease, err := m.RLock(f.ctx)
	if err != nil {
		f.Fatalf("RLock: %v", err)
	}
	return lease
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
		f.Errorf("the server keeps %d entries for %d free names", n, names)
	}
}
