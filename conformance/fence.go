package conformance

import (
	"context"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

var fenceCases = []Case{
	{
		Name: "FenceIncreasesAcrossRelease",
		Promise: "Each grant of a name has a greater fence than the previous one, whichever " +
			"process gets it, also after clean releases.",
		run: fenceIncreasesAcrossRelease,
	},
	{
		Name:    "FenceIncreasesAcrossRestartOfClients",
		Promise: "The fence continues to increase after every client was closed and opened again.",
		run:     fenceIncreasesAcrossRestartOfClients,
	},
	{
		Name:    "FenceIncreasesAcrossExpiry",
		Promise: "The fence increases after a term that expired.",
		run:     fenceIncreasesAcrossExpiry,
	},
	{
		Name: "FenceIncreasesAcrossBreak",
		Promise: "The fence increases after a Break; a backend that cannot break returns " +
			"ErrUnsupported.",
		run: fenceIncreasesAcrossBreak,
	},
	{
		Name: "FenceFollowsTheOrderOfGrants",
		Promise: "If many processes contend, the fences of their grants are unique and increase " +
			"in the order of the grants.",
		run: fenceFollowsTheOrderOfGrants,
	},
	{
		Name: "FenceOfALeaseIsItsGrants",
		Promise: "Lease.Fence is the driver's fence << 12 plus the number of the hand-off, and " +
			"is below 2^63.",
		run: fenceOfALeaseIsItsGrants,
	},
	{
		Name:    "FencesOfDifferentNamesAreIndependent",
		Promise: "The fences of one name increase, whatever happens to other names meanwhile.",
		run:     fencesOfDifferentNamesAreIndependent,
	},
	{
		Name: "FencesGrowAcrossKinds",
		Mode: backend.Shared | backend.Permit,
		Promise: "If a name is a semaphore first and a lock for readers and writers later, each " +
			"fence is above all earlier ones.",
		run: fencesGrowAcrossKinds,
	},
}

// fences checks that each fence is greater than the previous one.
type fences struct {
	f    *fixture
	last uint64
}

func (s *fences) next(what string, fence uint64) {
	s.f.Helper()
	if s.f.caps.Fencing != backend.FenceNone && fence <= s.last {
		s.f.violation("%s: the fence is %d after %d", what, fence, s.last)
	}
	s.last = fence
}

func fenceIncreasesAcrossRelease(f *fixture) {
	drivers := []backend.Driver{f.driver(), f.driver(), f.driver()}
	s := fences{f: f}
	for i := range 30 {
		d := drivers[i%len(drivers)]
		g := f.grant(d, f.try(f.long()))
		s.next("after a release", g.Fence)
		f.release(d, g)
	}
}

func fenceIncreasesAcrossRestartOfClients(f *fixture) {
	s := fences{f: f}
	for range 5 {
		f.closeAll()
		d := f.driver()
		g := f.grant(d, f.try(f.long()))
		s.next("after a restart of the client", g.Fence)
		f.release(d, g)
	}
}

func fenceIncreasesAcrossExpiry(f *fixture) {
	s := fences{f: f}
	other := f.driver()
	for range 2 {
		d, closeDriver := f.open()
		g := f.grant(d, f.try(f.short()))
		s.next("after a release", g.Fence)
		closeDriver()
		_, fence := f.takeOver(other, endOf(g.Term))
		s.next("after an expiry", fence)
	}
}

func fenceIncreasesAcrossBreak(f *fixture) {
	if f.breakUnsupported() {
		return
	}
	d, other := f.driver(), f.driver()
	s := fences{f: f}
	for range 5 {
		g := f.grant(d, f.try(f.long()))
		s.next("after a break", g.Fence)
		if err := other.(backend.Breaker).Break(f.ctx, f.name, g.Owner); err != nil {
			f.Fatalf("Break: %v", err)
		}
	}
}

func fenceFollowsTheOrderOfGrants(f *fixture) {
	drivers := []backend.Driver{f.driver(), f.driver(), f.driver(), f.driver()}
	const rounds = 8
	fence := fences{f: f} // guarded by the lock under test
	guard := make(chan struct{}, 1)
	parallel(2*len(drivers), func(i int) {
		d := drivers[i%len(drivers)]
		for served := 0; served < rounds; {
			g, err := f.acquire(d, f.try(f.long()))
			if err != nil {
				if _, busy := err.(*backend.Busy); !busy { //nolint:errorlint // never wrapped
					f.Errorf("Acquire: %v", err)
					return
				}
				time.Sleep(time.Millisecond)
				continue
			}
			select {
			case guard <- struct{}{}:
			default: // the guard is the other holder's
				f.violation("two holders at the same time")
				return
			}
			fence.next("under contention", g.Fence)
			<-guard
			f.release(d, g)
			served++
		}
	})
}

func fenceOfALeaseIsItsGrants(f *fixture) {
	c, t := f.tapped()
	lease := f.lock(c, f.name, dlock.WithTTL(f.long()))
	defer f.unlock(lease)
	calls, _ := t.snapshot()
	for _, call := range calls {
		if call.grant != nil && lease.Fence() != call.grant.Fence<<12 {
			f.Errorf("Lease.Fence is %d, but the fence of the grant is %d",
				lease.Fence(), call.grant.Fence)
		}
	}
	if lease.Fence() >= 1<<63 {
		f.Errorf("fence %d, want less than 2^63", lease.Fence())
	}
}

func fencesOfDifferentNamesAreIndependent(f *fixture) {
	c := f.client(dlock.WithTTL(f.long()))
	a, b := fences{f: f}, fences{f: f}
	for range 10 {
		first, second := f.lock(c, f.name+"/a"), f.lock(c, f.name+"/b")
		a.next("of a", first.Fence())
		b.next("of b", second.Fence())
		f.unlock(second)
		f.unlock(first)
	}
}

func fencesGrowAcrossKinds(f *fixture) {
	c, other := f.client(), f.client()
	kinds := []struct {
		what string
		lock func(context.Context) (*dlock.Lease, error)
	}{
		{"a permit", f.semaphore(c, 2).TryAcquire},
		{"the holder of a mutex", f.mutex(other).TryLock},
		{"a reader", f.rwMutex(c).TryRLock},
		{"a writer", f.rwMutex(other).TryLock},
	}
	s := fences{f: f}
	var permit uint64
	for range 2 {
		for i, kind := range kinds {
			lease := f.soon(kind.what, kind.lock)
			if i == 0 {
				permit = lease.Fence()
			}
			s.next(kind.what, lease.Fence())
			f.unlock(lease)
		}
		resource := s.last // the highest fence so far: the resource refuses lower ones
		if f.caps.Fencing != backend.FenceNone && permit >= resource {
			f.violation("the resource has seen %d, and accepts the fence %d of an old permit",
				resource, permit)
		}
	}
}
