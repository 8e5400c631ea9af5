package dlock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// TestUnlockOnADeadContext, or on one that ends with the lease.
func TestUnlockOnADeadContext(t *testing.T) {
	t.Parallel()
	for name, derive := range map[string]func(*testing.T, *dlock.Lease) context.Context{
		"cancelled": func(t *testing.T, _ *dlock.Lease) context.Context {
			t.Helper()
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return ctx
		},
		"of the lease": func(t *testing.T, lease *dlock.Lease) context.Context {
			t.Helper()
			ctx, cancel := lease.Context(t.Context())
			t.Cleanup(cancel)
			return ctx
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.releases = []releaseStep{func(ctx context.Context, _ *backend.Grant) error {
					time.Sleep(time.Second)
					return ctx.Err()
				}}
				lease := takes(t, open(t, d), "x")
				if err := lease.Unlock(derive(t, lease)); err != nil {
					t.Error(err)
				}
				wantAt(t, "returned", time.Since(d.begun), time.Second, 0)
				wantStory(t, d, "acquire release")
			})
		})
	}
}

// TestUnlockWhoseContextEnds: that ends the waiting, not the release.
func TestUnlockWhoseContextEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		var answered atomic.Bool
		d.releases = []releaseStep{func(ctx context.Context, _ *backend.Grant) error {
			time.Sleep(3 * time.Second)
			answered.Store(ctx.Err() == nil)
			return ctx.Err()
		}}
		lease := takes(t, open(t, d), "x")
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		err := lease.Unlock(ctx)
		wantErr(t, err, dlock.ErrUncertain, context.Canceled)
		wantAt(t, "returned", time.Since(d.begun), time.Second, 0)
		wantErr(t, lease.Err(), dlock.ErrNotHeld)
		wantErr(t, lease.Unlock(ctx), dlock.ErrNotHeld)
		time.Sleep(time.Hour)
		wantStory(t, d, "acquire release")
		if !answered.Load() {
			t.Error("the release was cancelled")
		}
	})
}

func TestSecondUnlock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		lease := takes(t, open(t, d), "x")
		frees(t, lease)
		for range 3 {
			wantErr(t, lease.Unlock(t.Context()), dlock.ErrNotHeld)
		}
		wantStory(t, d, "acquire release")
	})
}

func TestUnlockFromManySides(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		lease := takes(t, open(t, d), "x")
		errs := make(chan error)
		for range 10 {
			go func() { errs <- lease.Unlock(t.Context()) }()
		}
		unlocked := 0
		for range 10 {
			if err := <-errs; err == nil {
				unlocked++
			} else {
				wantErr(t, err, dlock.ErrNotHeld)
			}
		}
		if unlocked != 1 {
			t.Errorf("%d of them unlocked it", unlocked)
		}
		wantStory(t, d, "acquire release")
	})
}

// TestNotHeldAtUnlock: after an unknown answer it means that the request before
// did it, but only as long as nobody else can have had the lock.
func TestNotHeldAtUnlock(t *testing.T) {
	for _, test := range []struct {
		name  string
		held  time.Duration // before Unlock
		steps []releaseStep
		want  error
		took  time.Duration
	}{
		{"the first to learn of a loss", 0, []releaseStep{releaseFails(backend.ErrNotHeld)}, dlock.ErrLost, 0},
		{"lost", 0, []releaseStep{releaseFails(backend.ErrLost)}, dlock.ErrLost, 0},
		{
			"after an unknown answer", 0,
			[]releaseStep{releaseFails(errServer), releaseFails(backend.ErrNotHeld)},
			nil, 50 * time.Millisecond,
		},
		{
			"after an unknown answer and the deadline", life - 20*time.Millisecond,
			[]releaseStep{releaseFails(errServer), releaseFails(backend.ErrNotHeld)},
			dlock.ErrLost, 50 * time.Millisecond,
		},
		{
			"after a request that was not executed", 0,
			[]releaseStep{releaseFails(errUnavailable), releaseFails(backend.ErrNotHeld)},
			dlock.ErrLost, 50 * time.Millisecond,
		},
		{"released after the deadline", life - 20*time.Millisecond, []releaseStep{releaseFails(errServer)}, nil, 50 * time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.releases = test.steps
				lease := takes(t, open(t, d), "x", dlock.WithTTL(ttl), dlock.WithoutRenewal())
				time.Sleep(test.held)
				begun := time.Now()
				if err := lease.Unlock(t.Context()); !errors.Is(err, test.want) {
					t.Errorf("the error is %v, want %v", err, test.want)
				}
				wantAt(t, "returned", time.Since(begun), test.took, 0)
				time.Sleep(time.Hour)
				if n := len(d.of("release")); n > 2 {
					t.Errorf("%d releases", n)
				}
			})
		})
	}
}

// TestUnlockWithoutAnAnswer: one attempt of at most 5 s, the rest behind.
func TestUnlockWithoutAnAnswer(t *testing.T) {
	for _, test := range []struct {
		name string
		ttl  time.Duration
		step releaseStep
		took time.Duration
		want []error
	}{
		{"silent", time.Minute, releaseHangs, 5 * time.Second, []error{dlock.ErrUncertain}},
		{"silent, short TTL", 2 * time.Second, releaseHangs, 2 * time.Second, []error{dlock.ErrUncertain}},
		{"fails", time.Minute, releaseFails(errServer), 5 * time.Second, []error{dlock.ErrUncertain, errServer}},
		{"unreachable", time.Minute, releaseFails(errUnavailable), 5 * time.Second, []error{dlock.ErrUncertain, errServer}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.releases = repeat(40, test.step)
				lease := takes(t, open(t, d), "x", dlock.WithTTL(test.ttl))
				err := lease.Unlock(t.Context())
				wantErr(t, err, test.want...)
				wantNoErr(t, err, context.DeadlineExceeded, dlock.ErrLost)
				wantAt(t, "returned", time.Since(d.begun), test.took, 0)
				time.Sleep(time.Hour)
				n := len(d.of("release"))
				time.Sleep(time.Hour)
				if n != 41 || len(d.of("release")) != n {
					t.Errorf("%d releases, then %d", n, len(d.of("release")))
				}
			})
		})
	}
}

func TestRepeatedReleasesBackOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.releases = repeat(1000, releaseFails(errUnavailable))
		lease := takes(t, open(t, d), "x")
		wantErr(t, lease.Unlock(t.Context()), dlock.ErrUncertain)
		time.Sleep(time.Minute)
		if n := len(d.of("release")); n < 20 || n > 300 {
			t.Errorf("%d releases in a minute", n)
		}
	})
}

// TestReleasesOfAShortTermBackOff by a tenth of it at most, as long as Unlock waits.
func TestReleasesOfAShortTermBackOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const term = 2 * time.Second
		d := newScript()
		d.releases = repeat(1000, releaseFails(errUnavailable))
		lease := takes(t, open(t, d), "x", dlock.WithTTL(term))
		wantErr(t, lease.Unlock(t.Context()), dlock.ErrUncertain)
		releases := d.of("release")
		var longest time.Duration
		for i := range releases[1:] {
			longest = max(longest, releases[i+1].at-releases[i].at)
		}
		if longest != term/10 {
			t.Errorf("%d releases in %v, the longest pause is %v", len(releases), term, longest)
		}
	})
}

// TestUnlockThatFailsLetsTheNextAsk: a local waiter is not stuck behind it.
func TestUnlockThatFailsLetsTheNextAsk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.releases = repeat(1000, releaseFails(errUnavailable))
		c := open(t, d, dlock.WithLocalHandoff(0))
		lease := takes(t, c, "x")
		waiter := lockBehind(t.Context(), c, "x")
		synctest.Wait()
		wantErr(t, lease.Unlock(t.Context()), dlock.ErrUncertain)
		if got := <-waiter; got.err != nil {
			t.Error(got.err)
		}
	})
}

// ordered is a server that executes requests in the order in which they are sent.
type ordered struct{ *script }

func (o ordered) ReleaseThen(ctx context.Context, g *backend.Grant, sent func()) error {
	sent()
	return o.Release(ctx, g)
}

// TestNextWaiterAsksBehindTheRelease: it has the lock while the release is not answered, and may be
// repeated.
func TestNextWaiterAsksBehindTheRelease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.releases = []releaseStep{func(context.Context, *backend.Grant) error {
			time.Sleep(time.Second)
			return errors.New("no answer")
		}}
		c := open(t, ordered{d}, dlock.WithLocalHandoff(0))
		lease := takes(t, c, "x")
		next := make(chan *dlock.Lease)
		go func() {
			l, err := c.Lock(t.Context(), "x")
			if err != nil {
				t.Error(err)
			}
			wantAt(t, "the next has the lock", time.Since(d.begun), 0, 0)
			next <- l
		}()
		synctest.Wait()
		unlocked := make(chan error)
		go func() { unlocked <- lease.Unlock(t.Context()) }()
		l := <-next
		if err := <-unlocked; err != nil {
			t.Error(err)
		}
		if l.Err() != nil || l.Fence() <= lease.Fence() {
			t.Errorf("Err %v, fence %d after %d", l.Err(), l.Fence(), lease.Fence())
		}
		frees(t, l)
		wantStory(t, d, "acquire release acquire release release")
	})
}
