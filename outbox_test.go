package dlock_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// silentNode is a driver with several nodes, one of which does not answer releases.
type silentNode struct{ *script }

func (d silentNode) Release(ctx context.Context, g *backend.Grant) error {
	if g.Key == "elsewhere" {
		return d.script.Release(ctx, g)
	}
	return releaseHangs(ctx, g)
}

// TestReleasesOfASilentNodeDelayNoOther checks that 2,000 unanswered releases do not delay a later
// release on another node.
func TestReleasesOfASilentNodeDelayNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const orphans = 2000
		d := newScript()
		d.acquires = repeat(orphans+1, busy(backend.Busy{Queued: true}))
		c := open(t, silentNode{d})
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
		time.Sleep(time.Minute)
		if releases := d.of("release"); len(releases) != 1 || releases[0].at-begun > 4*time.Second {
			t.Errorf("the releases of the other node are %v, after %v", releases, begun)
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
