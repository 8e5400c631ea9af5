package dlock_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// grantAtWait returns a Wait that the server ends with a grant. Its term began age ago.
func (s *script) grantAtWait(age time.Duration) waitStep {
	return func(
		ctx context.Context, req *backend.Request, _ *backend.Busy,
	) (*backend.Grant, error) {
		grant, err := s.grant(ctx, req)
		grant.Term.Sent = grant.Term.Sent.Add(-age)
		return grant, err
	}
}

// TestCloseWhileAGrantIsConfirmed checks a Close during the renewal of a grant that its waiter has
// not accepted yet.
func TestCloseWhileAGrantIsConfirmed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.acquires = []acquireStep{busy(backend.Busy{})}
		d.waits = []waitStep{d.grantAtWait(0)}
		d.renews = []renewStep{renewHangs}
		c := open(t, d, dlock.WithTTL(ttl))
		waiter := lockBehind(t.Context(), c, "x",
			dlock.WithoutRenewal(), dlock.WithMinHold(time.Minute))
		synctest.Wait()
		begun := time.Now()
		closes(t, c)
		wantAt(t, "closed", time.Since(begun), 0, 0) // the waiter has no minimum hold to keep
		wantErr(t, (<-waiter).err, dlock.ErrClosed)
		wantStory(t, d, "acquire wait renew release close")
	})
}

// TestLossWhileAGrantIsConfirmed checks that the waiter keeps its place in the local line. This
// holds even if the lost grant is released on the server before the waiter continues.
func TestLossWhileAGrantIsConfirmed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		var lost func(error)
		d.acquires = []acquireStep{
			acquireFails(errServer),
			func(_ context.Context, req *backend.Request) (*backend.Grant, error) {
				lost = req.Lost
				return nil, &backend.Busy{}
			},
		}
		d.waits = []waitStep{d.grantAtWait(0)}
		d.renews = []renewStep{func(context.Context, *backend.Grant) (backend.Term, error) {
			lost(backend.ErrLost)
			time.Sleep(time.Second) // during this time the release is repeated
			return backend.Term{}, errServer
		}}
		c := open(t, d, dlock.WithTTL(ttl))
		first := lockBehind(t.Context(), c, "x", dlock.WithoutRenewal())
		time.Sleep(100 * time.Millisecond)
		second := lockBehind(t.Context(), c, "x", dlock.WithoutRenewal())
		got := <-first
		if got.err != nil {
			t.Fatal(got.err)
		}
		synctest.Wait()
		select {
		case <-second:
			t.Error("two waiters of one client hold the lock")
		default:
		}
		frees(t, got.lease)
		frees(t, (<-second).lease)
	})
}

// TestCloseRepeatsAReleaseWithALockDelay checks that Close releases an unlocked lock despite its
// lock-delay. A lock-delay applies only to a loss.
func TestCloseRepeatsAReleaseWithALockDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.releases = repeat(100, releaseFails(errServer))
		c := open(t, d, dlock.WithTTL(100*time.Millisecond))
		lease := takes(t, c, "x", dlock.WithLockDelay(time.Minute))
		wantErr(t, lease.Unlock(t.Context()), dlock.ErrUncertain)
		d.mu.Lock()
		d.releases = nil
		d.mu.Unlock()
		n := len(d.of("release"))
		closes(t, c)
		if len(d.of("release")) == n {
			t.Error("Close did not repeat the release")
		}
	})
}

// TestLossesInARow checks that a waiter backs off if the server takes away each grant at once.
func TestLossesInARow(t *testing.T) {
	for name, step := range map[string]acquireStep{
		"lost answers": acquireFails(backend.ErrLost),
		"broken grants": func(_ context.Context, req *backend.Request) (*backend.Grant, error) {
			req.Lost(backend.ErrLost)
			return &backend.Grant{Request: *req, Term: termOf(req.TTL), Fence: 1}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.acquires = repeat(1000, step)
				c := open(t, d, dlock.WithTTL(ttl))
				ctx, cancel := context.WithTimeout(t.Context(), ttl)
				defer cancel()
				_, err := c.Lock(ctx, "x")
				wantErr(t, err, context.DeadlineExceeded)
				acquires := d.of("acquire")
				if n := len(acquires); n > 30 {
					t.Errorf("the server received %d requests", n)
				}
				for i, acquire := range acquires[1:] {
					if pause := acquire.at - acquires[i].at; pause > ttl/10+ttl/100 {
						t.Errorf("backoff %d is %v", i, pause)
					}
				}
			})
		})
	}
}

// TestWaitThatIsBusy checks that the engine backs off if the driver's Wait returns *Busy at once.
func TestWaitThatIsBusy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.acquires = []acquireStep{busy(backend.Busy{})}
		d.waits = repeat(5000, waitFails(&backend.Busy{}))
		c := open(t, d, dlock.WithTTL(ttl))
		ctx, cancel := context.WithTimeout(t.Context(), ttl)
		defer cancel()
		_, err := c.Lock(ctx, "x")
		wantErr(t, err, context.DeadlineExceeded)
		if n := len(d.of("wait")); n > 300 {
			t.Errorf("Wait was called %d times", n)
		}
	})
}

// TestLostLeaseIsReleasedByItsLastUnlock checks that a lost lock is released by the last Unlock of
// its leases. The holder of another lease may not have detected the loss yet.
func TestLostLeaseIsReleasedByItsLastUnlock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		c := open(t, d, dlock.WithTTL(ttl))
		outer := takes(t, c, "x", dlock.WithReentrant(), dlock.WithMaxHold(time.Second))
		ctx, cancel := outer.Context(t.Context())
		defer cancel()
		inner, err := c.Lock(ctx, "x", dlock.WithReentrant())
		if err != nil {
			t.Fatal(err)
		}
		<-inner.Lost()
		wantErr(t, inner.Unlock(t.Context()), dlock.ErrLost)
		synctest.Wait()
		wantStory(t, d, "acquire")
		wantErr(t, outer.Unlock(t.Context()), dlock.ErrLost)
		synctest.Wait()
		wantStory(t, d, "acquire release")
	})
}

// TestCloseInTheBodyOfAListThatFails checks that Close in the body of a List does not wait for the
// loop.
func TestCloseInTheBodyOfAListThatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.inspect = func(context.Context) (*backend.Info, error) { return nil, errServer }
		c := open(t, d)
		for _, err := range c.List(t.Context(), "") {
			wantErr(t, err, errServer)
			wantAt(t, "closed", closes(t, c), 0, 0)
		}
		wantStory(t, d, "close")
	})
}

// TestTryLockThatIsTakenBack checks that TryLock makes only one attempt, even if its grant is lost
// at once.
func TestTryLockThatIsTakenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.acquires = []acquireStep{
			func(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
				req.Lost(backend.ErrLost)
				return d.grant(ctx, req)
			},
		}
		c := open(t, d, dlock.WithTTL(ttl))
		_, err := c.TryLock(t.Context(), "x")
		wantErr(t, err, dlock.ErrNotAcquired)
		synctest.Wait()
		wantStory(t, d, "acquire release")
		takes(t, c, "x") // the place in the local line is free
	})
}

// TestTryLockThatIsTakenBackAtItsEnd checks that TryLock returns the end of its context, not
// ErrNotAcquired.
func TestTryLockThatIsTakenBackAtItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		ctx, cancel := context.WithCancel(t.Context())
		d.acquires = []acquireStep{
			func(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
				cancel()
				req.Lost(backend.ErrLost)
				return d.grant(ctx, req)
			},
		}
		_, err := open(t, d).TryLock(ctx, "x")
		wantErr(t, err, context.Canceled)
		wantNoErr(t, err, dlock.ErrNotAcquired)
	})
}

// TestShutdownDuringClose checks that the context of Shutdown also limits its wait for a Close
// under way.
func TestShutdownDuringClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := open(t, newScript())
		takes(t, c, "x", dlock.WithMinHold(time.Minute))
		closed := make(chan time.Duration)
		go func() { closed <- closes(t, c) }()
		synctest.Wait()
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantErr(t, c.Shutdown(ctx), context.DeadlineExceeded)
		wantAt(t, "shut down", time.Since(begun), time.Second, 0)
		wantAt(t, "closed", <-closed, time.Minute, 0)
		if err := c.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestRenewalsThatEndTheirGoroutine checks that a renewal which ends its goroutine does not stop
// the renewals of other locks.
func TestRenewalsThatEndTheirGoroutine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		exit := func(context.Context, *backend.Grant) (backend.Term, error) {
			runtime.Goexit()
			return backend.Term{}, nil
		}
		d.renews = repeat(40, renewStep(exit))
		c := open(t, d, dlock.WithTTL(ttl))
		leases := make([]*dlock.Lease, 40)
		for i := range leases {
			leases[i] = takes(t, c, fmt.Sprint(i))
		}
		time.Sleep(2 * ttl)
		for _, lease := range leases {
			if err := lease.Err(); err != nil {
				t.Fatal(err)
			}
			frees(t, lease)
		}
	})
}
