package dlock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// silentNode is a driver with several nodes, one of which does not answer releases. It counts the
// releases under way there.
type silentNode struct {
	*script

	mu             sync.Mutex
	underWay, most int
}

func (d *silentNode) Release(ctx context.Context, g *backend.Grant) error {
	if g.Key == "elsewhere" {
		return d.script.Release(ctx, g)
	}
	d.count(1)
	defer d.count(-1)
	return releaseHangs(ctx, g)
}

func (d *silentNode) count(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.underWay += n
	d.most = max(d.most, d.underWay)
}

// peak returns the largest number of releases that were under way at once.
func (d *silentNode) peak() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.most
}

// TestReleasesOfASilentNodeDelayNoOther checks that 4,000 unanswered releases do not delay a later
// release on another node for longer than it takes to begin them, 64 each 100 ms. At most 3,200 of
// them are under way at once, because each lasts for 5 s; 64 more can begin as others end.
func TestReleasesOfASilentNodeDelayNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const orphans, limit = 4000, 3200 + 64
		d := newScript()
		d.acquires = repeat(orphans+1, busy(backend.Busy{Queued: true}))
		node := &silentNode{script: d}
		c := open(t, node)
		ctx, cancel := context.WithCancel(t.Context())
		var waiters []<-chan result
		for i := range orphans {
			waiters = append(waiters, lockBehind(ctx, c, fmt.Sprint(i)))
		}
		synctest.Wait()
		elsewhere, leave := context.WithCancel(t.Context())
		waiter := lockBehind(elsewhere, c, "elsewhere")
		synctest.Wait()
		cancel()
		for _, waiter := range waiters {
			<-waiter
		}
		leave()
		<-waiter
		begun := time.Since(d.begun)
		time.Sleep(10 * time.Second)
		if releases := d.of("release"); len(releases) != 1 || releases[0].at-begun > 7*time.Second {
			t.Errorf("the releases of the other node are %v, after %v", releases, begun)
		}
		if most := node.peak(); most > limit {
			t.Errorf("%d releases were under way at once, want at most %d", most, limit)
		}
	})
}

// TestRepeatedReleasesDelayNoOther has far more releases of a silent node than are under way at
// once. They have no end, but another release does not wait for them.
func TestRepeatedReleasesDelayNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const orphans = 6_000
		d := newScript()
		d.acquires = repeat(orphans, busy(backend.Busy{Queued: true}))
		c := open(t, &silentNode{script: d})
		ctx, cancel := context.WithCancel(t.Context())
		var waiters []<-chan result
		for i := range orphans {
			waiters = append(waiters, lockBehind(ctx, c, fmt.Sprint(i)))
		}
		synctest.Wait()
		cancel()
		for _, waiter := range waiters {
			<-waiter
		}
		time.Sleep(20 * time.Second)
		d.mu.Lock()
		d.acquires = []acquireStep{busy(backend.Busy{Queued: true})}
		d.mu.Unlock()
		elsewhere, leave := context.WithCancel(t.Context())
		waiter := lockBehind(elsewhere, c, "elsewhere")
		synctest.Wait()
		leave()
		<-waiter
		time.Sleep(time.Second)
		if len(d.of("release")) != 1 {
			t.Error("the release on the other node was not sent within a second")
		}
	})
}

// TestCloseReleasesManyLocks has a server that takes 50 ms for a request.
func TestCloseReleasesManyLocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const locks = 10_000
		d := newScript()
		d.releases = repeat(locks, releaseStep(func(context.Context, *backend.Grant) error {
			time.Sleep(50 * time.Millisecond)
			return nil
		}))
		c := open(t, d)
		for i := range locks {
			takes(t, c, fmt.Sprint(i))
		}
		closes(t, c)
		if n := len(d.of("release")); n != locks {
			t.Errorf("Close has released %d locks, want %d", n, locks)
		}
	})
}

// TestSecondUnlockDuringTheFirst checks that a second Unlock does not change the first one. The
// ErrLost of a renewal in flight is ignored.
func TestSecondUnlockDuringTheFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, r := newScript(), &recorder{}
		released, renewed := make(chan struct{}), make(chan struct{})
		d.renews = []renewStep{func(context.Context, *backend.Grant) (backend.Term, error) {
			<-released
			return backend.Term{}, backend.ErrLost
		}}
		d.releases = []releaseStep{func(context.Context, *backend.Grant) error {
			<-renewed
			return errServer
		}, releaseFails(backend.ErrNotHeld)}
		lease := takes(t, open(t, d, dlock.WithTTL(ttl), r.option()), "x")
		time.Sleep(ttl / 2)
		first := make(chan error, 1)
		go func() { first <- lease.Unlock(t.Context()) }()
		synctest.Wait()
		wantErr(t, lease.Unlock(t.Context()), dlock.ErrNotHeld)
		close(released)
		synctest.Wait() // until the answer to the renewal has been handled
		close(renewed)
		if err := <-first; err != nil {
			t.Errorf("the first Unlock: %v", err)
		}
		synctest.Wait()
		wantNoErr(t, lease.Err(), dlock.ErrLost)
		if ends := r.of("ended"); len(ends) != 1 || ends[0].Err != nil {
			t.Errorf("the observer received %v", ends)
		}
	})
}
