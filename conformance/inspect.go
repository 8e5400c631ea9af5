package conformance

import (
	"errors"
	"slices"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

var inspectCases = []Case{
	{
		Name: "InspectShowsTheHolder",
		Promise: "Inspect shows the holder's owner, meta, fence and remaining time, and no " +
			"holder of a free lock; otherwise it returns ErrUnsupported.",
		run: inspectShowsTheHolder,
	},
	{
		Name:    "InspectCountsQueueEntries",
		Promise: "Inspect counts the queue entries, or reports -1 if it cannot count them.",
		run:     inspectCountsQueueEntries,
	},
	{
		Name: "ListShowsHeldLocks",
		Promise: "List shows every held name with the literal prefix and no free name, and a " +
			"loop can break early; otherwise it returns ErrUnsupported.",
		run: listShowsHeldLocks,
	},
	{
		Name: "BreakNamesItsOwner",
		Promise: "Break of a free lock, or of an owner that does not hold it, returns ErrNotHeld " +
			"and changes nothing.",
		run: breakNamesItsOwner,
	},
	{
		Name:    "BreakDoesNotWaitForALockDelay",
		Promise: "A broken lock is free at once, even with a lock-delay.",
		run:     breakDoesNotWaitForALockDelay,
	},
}

func inspectShowsTheHolder(f *fixture) {
	if f.unsupported("Inspect", f.caps.Inspect, func(c *dlock.Client) error {
		_, err := c.Inspect(f.ctx, f.name)
		return err
	}) {
		return
	}
	c, other := f.client(), f.client()
	lease := f.lock(c, f.name, dlock.WithTTL(f.long()), dlock.WithMeta("the meta é ✓"))
	info, err := other.Inspect(f.ctx, f.name)
	if err != nil {
		f.Fatalf("Inspect: %v", err)
	}
	if info.Key != f.name || info.Mode != backend.Exclusive || len(info.Holders) != 1 {
		f.Fatalf("Inspect of a held lock: %+v", info)
	}
	h := info.Holders[0]
	if h.Owner != lease.Owner() || h.Meta != "the meta é ✓" || h.Fence != lease.Fence() {
		f.Errorf("the holder is %+v, want owner %q and fence %d", h, lease.Owner(), lease.Fence())
	}
	if h.TTL > f.long()+time.Second || h.TTL == 0 {
		f.Errorf("time left: %v of %v", h.TTL, f.long())
	}
	// The clocks of the server and of the client may differ.
	if age := time.Since(h.Since); age < -time.Minute || age > time.Minute {
		f.Errorf("held since %v", h.Since)
	}
	f.unlock(lease)
	info, err = other.Inspect(f.ctx, f.name)
	if err != nil || info.Key != f.name || len(info.Holders) != 0 {
		f.Errorf("Inspect of a free lock: %+v, %v", info, err)
	}
}

func inspectCountsQueueEntries(f *fixture) {
	if f.unsupported("Inspect", f.caps.Inspect, func(c *dlock.Client) error {
		_, err := c.Inspect(f.ctx, f.name)
		return err
	}) {
		return
	}
	var opts []dlock.Option
	if f.caps.Fair != backend.FairNo {
		opts = append(opts, dlock.WithFair())
	}
	opts = append(opts, dlock.WithTTL(f.long()))
	c, holder := f.client(), f.client(opts...)
	lease := f.lock(holder, f.name)
	waiting := func(want int) {
		var n int
		if !f.eventually(prompt, func() bool {
			info, err := c.Inspect(f.ctx, f.name)
			if err != nil {
				f.Fatalf("Inspect: %v", err)
			}
			n = info.Waiters
			return n == want || n == -1
		}) {
			f.Errorf("%d waiters, want %d or -1", n, want)
		}
	}
	waiting(0)
	first, second := f.lockAsync(f.client(opts...), f.name), f.lockAsync(f.client(opts...), f.name)
	waiting(2)
	second.cancel()
	waiting(1)
	first.cancel()
	waiting(0)
	f.within(prompt, "the cancelled Lock returns", first.done)
	f.within(prompt, "the cancelled Lock returns", second.done)
	f.unlock(lease)
}

func listShowsHeldLocks(f *fixture) {
	list := func(c *dlock.Client, prefix string) (names []string, err error) {
		for info, err := range c.List(f.ctx, prefix) {
			if err != nil {
				return nil, err
			}
			if len(info.Holders) > 0 {
				names = append(names, info.Key)
			}
		}
		slices.Sort(names)
		return names, nil
	}
	if f.unsupported("List", f.caps.List, func(c *dlock.Client) error {
		_, err := list(c, f.name)
		return err
	}) {
		return
	}
	c, other := f.client(dlock.WithTTL(f.long())), f.client()
	names := []string{
		f.name + "*", f.name + "*a", f.name + "/b", f.name + "[c]", f.name + "a", f.name + "é",
	}
	var leases []*dlock.Lease
	for _, name := range names {
		leases = append(leases, f.lock(c, name))
	}
	for prefix, want := range map[string][]string{
		f.name:       names,
		f.name + "*": names[:2],
		f.name + "[": names[3:4],
		f.name + "é": names[5:],
		f.name + "?": nil,
	} {
		if got, err := list(other, prefix); err != nil || !slices.Equal(got, want) {
			f.Errorf("List(%q) = %q, %v, want %q", prefix, got, err, want)
		}
	}
	for _, err := range other.List(f.ctx, f.name) {
		if err != nil {
			f.Errorf("List: %v", err)
		}
		break // the loop panics if List continues it
	}
	for _, lease := range leases {
		f.unlock(lease)
	}
	if got, err := list(other, f.name); err != nil || len(got) > 0 {
		f.Errorf("List of free locks = %q, %v", got, err)
	}
}

func breakNamesItsOwner(f *fixture) {
	if f.breakUnsupported() {
		return
	}
	c, other := f.client(dlock.WithTTL(f.long())), f.client()
	f.isErr("Break of a free lock", other.Break(f.ctx, f.name, ""), dlock.ErrNotHeld)
	lease := f.lock(c, f.name)
	f.isErr("Break of an owner that does not hold",
		other.Break(f.ctx, f.name, newOwner()), dlock.ErrNotHeld)
	f.held(other, lease)
	if err := lease.Err(); err != nil {
		f.Errorf("Err: %v", err)
	}
	f.unlock(lease)
	f.isErr("Break of a former owner", other.Break(f.ctx, f.name, lease.Owner()), dlock.ErrNotHeld)
}

func breakDoesNotWaitForALockDelay(f *fixture) {
	if f.caps.Session {
		f.inapplicable("grants live with their session, and have no lock-delay")
	}
	if f.breakUnsupported() {
		return
	}
	c, other := f.client(), f.client()
	lease := f.lock(c, f.name, dlock.WithTTL(f.long()), dlock.WithLockDelay(f.long()))
	if err := other.Break(f.ctx, f.name, lease.Owner()); err != nil {
		f.Fatalf("Break: %v", err)
	}
	f.free(other, f.name)
	if err := lease.Unlock(f.ctx); !errors.Is(err, dlock.ErrLost) {
		f.Errorf("Unlock of a broken lease: %v", err)
	}
}
