package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock"
)

// allCases are the cases of several locks at once.
var allCases = []Case{
	{
		Name:    "AllLocksAreHeld",
		Promise: "LockAll holds each of its locks, with a lease of its own, until Unlock.",
		run:     allLocksAreHeld,
	},
	{
		Name: "AllOrNothing",
		Promise: "A LockAll that does not get one of its locks leaves none of the rest " +
			"locked.",
		run: allOrNothing,
	},
	{
		Name: "AnyOrderOfNames",
		Promise: "Calls of LockAll with the same names in any order do not wait for each other " +
			"for ever, and exclude each other.",
		run: anyOrderOfNames,
	},
	{
		Name: "ManyLockAllsGetTheirTurns",
		Promise: "Of many clients that lock the same names in different orders, and of others " +
			"whose names overlap, each gets its locks again and again.",
		run: manyLockAllsGetTheirTurns,
	},
	{
		Name: "MissingLockIsWaitedForAlone",
		Promise: "While a LockAll waits for one lock, another client gets each of the rest of " +
			"its names within the time of an attempt.",
		run: missingLockIsWaitedForAlone,
	},
	{
		Name:    "LossOfOneIsTheLossOfAll",
		Promise: "A MultiLease is lost when one of its leases is lost.",
		run:     lossOfOneIsTheLossOfAll,
	},
	{
		Name:    "NamesOfLockAllAreChecked",
		Promise: "No name, too many names and an invalid name are errors; a name counts once.",
		run:     namesOfLockAllAreChecked,
	},
	{
		Name:    "LockAllIsALockOfEach",
		Promise: "The fence of each lease is greater than its name's earlier fences.",
		run:     lockAllIsALockOfEach,
	},
	{
		Name:    "CloseEndsLockAll",
		Promise: "Close ends a LockAll that waits, and the leases of one that does not.",
		run:     closeEndsLockAll,
	},
	{
		Name: "OppositeOrdersDoNotDeadlock",
		Promise: "Two clients that lock the same names in opposite orders, again and again, " +
			"exclude each other from each name, both make progress, and leave nothing locked.",
		run: oppositeOrdersDoNotDeadlock,
	},
	{
		Name: "LostRepliesLeaveNoHalf",
		Promise: "Whichever answer is lost during a LockAll and its Unlock, all of its locks are " +
			"free afterwards.",
		Faults: true,
		run:    lostRepliesLeaveNoHalf,
	},
	{
		Name: "DeadHolderOfSeveralFreesAll",
		Promise: "The locks of a process that died with several locks are all free at the end " +
			"of their terms.",
		run: deadHolderOfSeveralFreesAll,
	},
}

// turnsTime is the time limit of ManyLockAllsGetTheirTurns. Without progress the calls never end.
const turnsTime = 4 * prompt

// attemptAnswers is the number of answers, one after the other, until a lock is free again that a
// LockAll of three names had in an attempt, and another client has it.
const attemptAnswers = 8

// several returns n names of locks that begin with the name of the case.
func (f *fixture) several(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("%s/%d", f.name, i))
	}
	return names
}

// lockAllOf locks all names, which must succeed soon.
func (f *fixture) lockAllOf(c *dlock.Client, names []string) *dlock.MultiLease {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.ctx, prompt)
	defer cancel()
	m, err := c.LockAll(ctx, names)
	if err != nil {
		f.Fatalf("LockAll: %v", err)
	}
	return m
}

// unlockAll unlocks m, which must succeed.
func (f *fixture) unlockAll(m *dlock.MultiLease) {
	f.Helper()
	if err := m.Unlock(f.ctx); err != nil {
		f.Errorf("Unlock of several leases: %v", err)
	}
}

func allLocksAreHeld(f *fixture) {
	c, other := f.client(), f.client()
	names := f.several(4)
	m := f.lockAllOf(c, names)
	for i, lease := range m.Leases() {
		if lease.Name() != names[i] {
			f.Errorf("lease %d is of %q, want %q", i, lease.Name(), names[i])
		}
		f.held(other, lease)
	}
	if err := m.Err(); err != nil || !m.Deadline().After(time.Now()) {
		f.Errorf("Err: %v, Deadline: %v", err, m.Deadline())
	}
	f.unlockAll(m)
	f.isErr("Err after Unlock", m.Err(), dlock.ErrNotHeld)
	for _, name := range names {
		f.free(other, name)
	}
}

func allOrNothing(f *fixture) {
	c, other := f.client(), f.client()
	names := f.several(3)
	for _, taken := range names {
		lease := f.lock(other, taken)
		ctx, cancel := context.WithTimeout(f.ctx, f.lengthened(50*time.Millisecond))
		_, err := c.LockAll(ctx, names)
		cancel()
		f.isErr("LockAll with a lock that is taken", err, context.DeadlineExceeded)
		for _, name := range names {
			if name != taken {
				f.unlock(f.lockWithin(other, prompt, name))
			}
		}
		f.unlock(lease)
	}
	f.unlockAll(f.lockAllOf(c, names))
}

func anyOrderOfNames(f *fixture) {
	names := f.several(3)
	orders := [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}}
	var inside [3]atomic.Int32
	var all sync.WaitGroup
	for _, order := range orders {
		c := f.client(dlock.WithTTL(f.long()))
		all.Go(func() {
			var mine []string
			for _, i := range order {
				mine = append(mine, names[i])
			}
			for range 10 {
				m, err := c.LockAll(f.ctx, mine)
				if err != nil {
					f.Errorf("LockAll: %v", err)
					return
				}
				for i := range inside {
					if n := inside[i].Add(1); n > 1 {
						f.violation("%d holders of %s", n, names[i])
					}
				}
				time.Sleep(time.Millisecond)
				for i := range inside {
					inside[i].Add(-1)
				}
				f.unlockAll(m)
			}
		})
	}
	all.Wait()
}

func manyLockAllsGetTheirTurns(f *fixture) {
	names := f.several(3)
	ctx, cancel := context.WithTimeout(f.ctx, turnsTime)
	defer cancel()
	var inside [3]atomic.Int32
	lock := func(c *dlock.Client, order []int) bool {
		var mine []string
		for _, i := range order {
			mine = append(mine, names[i])
		}
		m, err := c.LockAll(ctx, mine)
		if err != nil {
			f.Errorf("LockAll: %v", err)
			return false
		}
		for _, i := range order {
			if n := inside[i].Add(1); n > 1 {
				f.violation("%d holders of %s", n, names[i])
			}
		}
		for _, i := range order {
			inside[i].Add(-1)
		}
		f.unlockAll(m)
		return true
	}
	for _, orders := range [][][]int{
		{
			{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {2, 0, 1}, {0, 2, 1}, {1, 2, 0}, {0, 1, 2}, {2, 1, 0},
		},
		{{0, 1}, {1, 2}, {2, 0}, {1, 0}, {2, 1}, {0, 2}},
	} {
		var all sync.WaitGroup
		for _, order := range orders {
			c := f.client(dlock.WithTTL(f.long()))
			all.Go(func() {
				for range 5 {
					if !lock(c, order) {
						return
					}
				}
			})
		}
		all.Wait()
	}
}

func missingLockIsWaitedForAlone(f *fixture) {
	f.timed()
	c, t := f.tapped()
	other := f.client()
	names := f.several(3)
	taken := f.lock(other, names[1])
	var m *dlock.MultiLease
	var err error
	done := async(func() { m, err = c.LockAll(f.ctx, names) })
	t.await(acquire, 1, wasBusy)
	for range 3 { // it may have each for the time of one attempt
		for _, name := range []string{names[0], names[2]} {
			begun := time.Now()
			lease := f.lockWithin(other, prompt, name)
			f.inTimeOf(bound, attemptAnswers, "another client has the lock", begun, time.Now())
			f.unlock(lease)
		}
	}
	f.unlock(taken)
	if f.within(prompt, "LockAll returns", done) && err == nil {
		f.unlockAll(m)
	} else {
		f.Errorf("LockAll: %v", err)
	}
}

func lossOfOneIsTheLossOfAll(f *fixture) {
	if f.breakUnsupported() {
		return
	}
	c, other := f.client(dlock.WithTTL(f.brief())), f.client()
	names := f.several(3)
	m := f.lockAllOf(c, names)
	ctx, cancel := m.Context(f.ctx)
	defer cancel()
	if err := other.Break(f.ctx, names[1], ""); err != nil {
		f.Fatalf("Break: %v", err)
	}
	f.within(f.brief()+prompt, "the context ends", ctx.Done())
	f.isErr("Err", m.Err(), dlock.ErrLost)
	f.within(prompt, "Lost is closed", m.Lost())
	f.isErr("Unlock", m.Unlock(f.ctx), dlock.ErrLost)
	for _, name := range names {
		f.unlock(f.lockWithin(other, f.brief()+prompt, name))
	}
}

func namesOfLockAllAreChecked(f *fixture) {
	c := f.client()
	for what, names := range map[string][]string{
		"no name": nil, "too many names": f.several(10_000), "an empty name": {f.name, ""},
		"a control character": {f.name, f.name + "\x01"},
	} {
		if _, err := c.LockAll(f.ctx, names); err == nil {
			f.Errorf("%s: no error", what)
		} else if len(err.Error()) > 1000 {
			f.Errorf("%s: the error has %d bytes", what, len(err.Error()))
		}
	}
	m := f.lockAllOf(c, []string{f.name, f.name + "/b", f.name})
	if n := len(m.Leases()); n != 2 {
		f.Errorf("%d leases of two names", n)
	}
	f.unlockAll(m)
}

func lockAllIsALockOfEach(f *fixture) {
	c, other := f.client(), f.client()
	names := f.several(2)
	first := f.lock(other, names[1])
	f.unlock(first)
	m := f.lockAllOf(c, names)
	f.fenceGrew(first.Fence(), m.Leases()[1].Fence())
	for _, lease := range m.Leases() { // one by one
		f.unlock(lease)
	}
	next := f.lockWithin(other, prompt, names[1])
	f.fenceGrew(m.Leases()[1].Fence(), next.Fence())
	f.unlock(next)
}

func closeEndsLockAll(f *fixture) {
	c, waiter, other := f.client(dlock.WithTTL(f.long())), f.client(), f.client()
	names := f.several(2)
	m := f.lockAllOf(c, names)
	var err error
	done := async(func() { _, err = waiter.LockAll(f.ctx, names) })
	time.Sleep(nap)
	_ = waiter.Close()
	if f.within(prompt, "LockAll returns", done) {
		f.isErr("LockAll of a closed client", err, dlock.ErrClosed)
	}
	_ = c.Close()
	f.isErr("Err", m.Err(), dlock.ErrClosed)
	for _, name := range names {
		f.unlock(f.lockWithin(other, prompt, name))
	}
	if strings.Contains(fmt.Sprint(m.Unlock(f.ctx)), "panic") {
		f.Errorf("Unlock after Close panics")
	}
}

func oppositeOrdersDoNotDeadlock(f *fixture) {
	names := f.several(3)
	var sections []*section
	for range names {
		sections = append(sections, newSection(f))
	}
	var sets atomic.Int32
	parallel(2, func(i int) {
		c := f.client()
		order := slices.Clone(names)
		if i == 1 {
			slices.Reverse(order)
		}
		for range f.rounds(40) {
			m := f.lockAllOf(c, order)
			leases := m.Leases()
			if i == 1 {
				slices.Reverse(leases)
			}
			sections[0].visit(leases[0], func() {
				sections[1].visit(leases[1], func() {
					sections[2].visit(leases[2], func() { sets.Add(1) })
				})
			})
			f.unlockAll(m)
		}
	})
	for _, s := range sections {
		s.check(int(sets.Load()))
	}
	c := f.client()
	for _, name := range names {
		lease, err := c.TryLock(f.ctx, name)
		if err != nil {
			f.Errorf("TryLock of a name that is free again: %v", err)
			continue
		}
		f.unlock(lease)
	}
}

func lostRepliesLeaveNoHalf(f *fixture) {
	const answers = 8
	c, other := f.client(), f.client()
	names := f.several(3)
	f.unlockAll(f.lockAllOf(c, names)) // opens the connection
	for nth := range answers {
		f.faults.DropReply(f, nth+1)
		m := f.lockAllOf(c, names)
		f.unlockUncertainly(m)
		f.settle(c)
		for _, name := range names {
			f.unlock(f.lock(other, name))
		}
	}
}

func deadHolderOfSeveralFreesAll(f *fixture) {
	c, t := f.tapped(dlock.WithTTL(f.short()))
	other := f.client()
	names := f.several(3)
	m := f.lockAllOf(c, names)
	t.kill()
	due := m.Leases()[0].Deadline()
	for _, lease := range m.Leases() {
		if at := lease.Deadline(); at.After(due) {
			due = at
		}
	}
	if f.caps.Session {
		due = time.Now()
	}
	for _, name := range names {
		f.unlock(f.lockBy(other, due, name))
	}
}
