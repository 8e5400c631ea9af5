package dlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// closer is a script whose Close fails.
type closer struct {
	*script
	err error
}

func (c closer) Close() error { return errors.Join(c.script.Close(), c.err) }

// TestBackgroundReleasesGoOn checks that each background release frees its slot. There are more
// waiters than slots, so a slot that stays taken would stop the releases.
func TestBackgroundReleasesGoOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const waiters = 200
		d := newScript()
		d.acquires = repeat(waiters, busy(backend.Busy{Queued: true}))
		c := open(t, d)
		for n := range waiters {
			ctx, cancel := context.WithCancel(t.Context())
			waiter := lockBehind(ctx, c, "x")
			synctest.Wait()
			cancel()
			wantErr(t, (<-waiter).err, context.Canceled)
			synctest.Wait()
			if releases := len(d.of("release")); releases != n+1 {
				t.Fatalf("%d of %d queue entries are released", releases, n+1)
			}
		}
	})
}

// TestUnlockDuringARenewal checks a renewal during Unlock. The renewal returns ErrLost because a
// release without an answer has freed the lock. This is not a loss.
func TestUnlockDuringARenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, r := newScript(), &recorder{}
		released, renewed := make(chan struct{}), make(chan struct{})
		d.renews = []renewStep{func(context.Context, *backend.Grant) (backend.Term, error) {
			<-released
			return backend.Term{}, backend.ErrLost
		}}
		d.releases = []releaseStep{func(context.Context, *backend.Grant) error {
			close(released)
			<-renewed
			return errServer
		}, releaseFails(backend.ErrNotHeld)}
		c := open(t, d, dlock.WithTTL(ttl), r.option())
		lease := takes(t, c, "x")
		time.Sleep(ttl / 2)
		unlocked := make(chan error)
		go func() { unlocked <- lease.Unlock(t.Context()) }()
		synctest.Wait() // until the answer to the renewal has been handled
		close(renewed)
		if err := <-unlocked; err != nil {
			t.Errorf("Unlock: %v", err)
		}
		wantErr(t, lease.Err(), dlock.ErrNotHeld)
		wantNoErr(t, lease.Err(), dlock.ErrLost)
		synctest.Wait()
		if ends := r.of("ended"); len(ends) != 1 || ends[0].Err != nil {
			t.Errorf("the observer received %v", ends)
		}
	})
}

// TestTinyTerm checks that a renewal for a few nanoseconds ends the lease and does not crash the
// process.
func TestTinyTerm(t *testing.T) {
	t.Parallel()
	for _, term := range []time.Duration{-1, 0, 1, 2, 14, time.Microsecond} {
		synctest.Test(t, func(t *testing.T) {
			d := newScript()
			answer := func(context.Context, *backend.Grant) (backend.Term, error) {
				return termOf(term), nil
			}
			d.renews = repeat(1000, renewStep(answer))
			lease := takes(t, open(t, d, dlock.WithTTL(ttl)), "x")
			time.Sleep(ttl)
			wantErr(t, lease.Err(), dlock.ErrLost)
		})
	}
}

func TestCloseReturnsTheDriversError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := open(t, closer{newScript(), errServer})
		err := c.Close()
		wantErr(t, err, errServer)
		if e, ok := errors.AsType[*dlock.Error](err); !ok || e.Op != "close" {
			t.Errorf("the error is %#v", err)
		}
		if err := c.Close(); err != nil {
			t.Errorf("Close again: %v", err)
		}
	})
}

// endless is a driver whose Release and Close do not return before the end of the test.
type endless struct {
	*script
	over chan struct{}
}

func (e endless) Release(context.Context, *backend.Grant) error {
	<-e.over
	return errServer
}

func (e endless) Close() error {
	<-e.over
	return nil
}

// TestDriverThatDoesNotReturn checks that such a driver delays Close by 1 s for its requests and by
// 5 s for its own Close.
func TestDriverThatDoesNotReturn(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		end  func(c *dlock.Client, ended context.Context) error
		want time.Duration
	}{
		"Close": {
			func(c *dlock.Client, _ context.Context) error { return c.Close() },
			11 * time.Second,
		},
		"Shutdown": {(*dlock.Client).Shutdown, 6 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := endless{newScript(), make(chan struct{})}
				defer close(d.over)
				c := open(t, d)
				takes(t, c, "x")
				ended, cancel := context.WithCancel(t.Context())
				cancel()
				begun := time.Now()
				wantErr(t, test.end(c, ended), dlock.ErrUnavailable)
				wantAt(t, "returned", time.Since(begun), test.want, 0)
			})
		})
	}
}

// TestCloseWaitsForRequests checks that Close gives up unanswered requests and waits until they
// have returned. It closes the driver after them.
func TestCloseWaitsForRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const slow = 300 * time.Millisecond
		d := newScript()
		returned := false
		d.releases = repeat(100, releaseStep(func(ctx context.Context, _ *backend.Grant) error {
			<-ctx.Done()
			time.Sleep(slow)
			returned = true
			return ctx.Err()
		}))
		c := open(t, d, dlock.WithTTL(time.Hour))
		ctx, cancel := context.WithCancel(t.Context())
		d.acquires = []acquireStep{busy(backend.Busy{Queued: true})}
		waiter := lockBehind(ctx, c, "x")
		synctest.Wait()
		cancel() // its release begins in the background
		<-waiter
		closes(t, c)
		if !returned {
			t.Error("Close returned while a release was still running")
		}
	})
}

// TestCloseDoesNotWaitForLockDelays checks that Close does not wait for lock-delays, because they
// end by themselves.
func TestCloseDoesNotWaitForLockDelays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		c := open(t, d, dlock.WithTTL(ttl), dlock.WithLockDelay(3*time.Second))
		lost := takes(t, c, "lost", dlock.WithoutRenewal())
		<-lost.Lost()
		wantAt(t, "closed", closes(t, c), 0, 0)
		wantStory(t, d, "acquire close")
	})
}

// TestLossByTheServerIsErrLost checks that Err wraps ErrLost whatever cause the driver reports.
func TestLossByTheServerIsErrLost(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{errServer, dlock.ErrLost, errors.Join(dlock.ErrLost, errServer)} {
		synctest.Test(t, func(t *testing.T) {
			d, r := newScript(), &recorder{}
			lease := takes(t, open(t, d, r.option()), "x")
			d.of("acquire")[0].req.Lost(cause)
			<-lease.Lost()
			synctest.Wait()
			ends := r.of("ended")
			if len(ends) != 1 {
				t.Fatalf("the observer received %v", ends)
			}
			wantErr(t, ends[0].Err, dlock.ErrLost, cause)
			wantErr(t, lease.Err(), dlock.ErrLost)
		})
	}
}
