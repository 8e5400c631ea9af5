package conformance

import (
	"fmt"

	"github.com/dlock-go/dlock/backend/measure"
)

// measureCases check the optional interfaces of a driver for benchmarks.
var measureCases = []Case{
	{
		Name: "FloorIsNoLock",
		Promise: "Floor can run repeatedly, and at the same time with other keys, and does not " +
			"affect the lock of that name.",
		run: floorIsNoLock,
	},
	{
		Name: "CountersCount",
		Promise: "Counters counts every command since its last call and an open connection, or " +
			"reports -1 for an unknown number.",
		run: countersCount,
	},
	{
		Name:    "SweepSparesHeldLocks",
		Promise: "Sweep does not change a held lock, and a free one can be locked after it.",
		run:     sweepSparesHeldLocks,
	},
}

func floorIsNoLock(f *fixture) {
	floor, ok := f.driver().(measure.Floor)
	if !ok {
		f.inapplicable("the driver is no Floor")
	}
	lease := f.lock(f.client(), f.name)
	parallel(8, func(worker int) {
		key := fmt.Sprint(f.name, "/", worker)
		if worker == 0 {
			key = f.name
		}
		for range 5 {
			if err := floor.Floor(f.ctx, key, newOwner()); err != nil {
				f.Errorf("Floor: %v", err)
			}
		}
	})
	f.unlock(lease)
}

func countersCount(f *fixture) {
	const pairs = 20
	counters, ok := f.driver().(measure.Counters)
	if !ok {
		f.inapplicable("the driver is no Counters")
	}
	before, err := counters.Counters(f.ctx)
	if err != nil {
		f.Fatalf("Counters: %v", err)
	}
	c := f.client()
	for range pairs {
		f.unlock(f.lock(c, f.name))
	}
	after, err := counters.Counters(f.ctx)
	if err != nil {
		f.Fatalf("Counters: %v", err)
	}
	if before.Commands >= 0 && after.Commands < before.Commands+2*pairs {
		f.Errorf("%d pairs of Lock and Unlock counted as %d commands",
			pairs, after.Commands-before.Commands)
	}
	if after.Connections == 0 {
		f.Errorf("Counters counts no connection")
	}
}

func sweepSparesHeldLocks(f *fixture) {
	sweeper, ok := f.driver().(measure.Sweeper)
	if !ok {
		f.inapplicable("the driver is no Sweeper")
	}
	c, free := f.client(), f.name+"/free"
	lease := f.lock(c, f.name)
	f.unlock(f.lock(c, free))
	if err := sweeper.Sweep(f.ctx, []string{f.name, free, f.name + "/unknown"}); err != nil {
		f.Fatalf("Sweep: %v", err)
	}
	if err := lease.Extend(f.ctx); err != nil {
		f.Errorf("Extend of a held lock after Sweep: %v", err)
	}
	other := f.client()
	f.held(other, lease)
	f.free(other, free)
	f.unlock(lease)
	f.free(other, f.name)
}
