package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// closes calls Close, which must succeed, and returns its duration.
func closes(t *testing.T, c *dlock.Client) time.Duration {
	t.Helper()
	begun := time.Now()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	return time.Since(begun)
}

func TestCloseEndsAndReleasesEveryLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		c := open(t, d)
		var leases []*dlock.Lease
		for i := range 200 {
			leases = append(leases, takes(t, c, fmt.Sprint(i)))
		}
		ctx, cancel := leases[0].Context(t.Context())
		defer cancel()
		wantAt(t, "closed", closes(t, c), 0, 0)
		wantErr(t, context.Cause(ctx), dlock.ErrClosed)
		for _, lease := range leases {
			<-lease.Lost()
			wantErr(t, lease.Err(), dlock.ErrClosed)
			wantErr(t, lease.Extend(t.Context()), dlock.ErrClosed)
			wantErr(t, lease.Unlock(t.Context()), dlock.ErrClosed)
		}
		calls := d.of("")
		n := len(d.of("release"))
		if n != 200 || calls[len(calls)-1].op != "close" || len(d.of("close")) != 1 {
			t.Errorf("%d releases, the last call is %s", n, calls[len(calls)-1].op)
		}
		wantAt(t, "closed again", closes(t, c), 0, 0)
		if len(d.of("")) != len(calls) {
			t.Error("the driver was called after its Close")
		}
	})
}

func TestCloseWakesWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		c := open(t, d)
		takes(t, c, "held")
		local := queueUp(t, c, "held", 3)
		d.acquires = []acquireStep{busy(backend.Busy{Queued: true, State: "entry"})}
		heads := queueUp(t, c, "taken", 1)
		d.acquires = repeat(1000, acquireFails(errUnavailable))
		heads = append(heads, queueUp(t, c, "away", 1)...)
		wantAt(t, "closed", closes(t, c), 0, 0)
		for _, waiter := range append(local, heads...) {
			got := <-waiter
			wantErr(t, got.err, dlock.ErrClosed)
			wantNoErr(t, got.err, dlock.ErrUncertain, context.Canceled)
		}
		states := map[any]int{}
		for _, release := range d.of("release") {
			states[release.state]++
		}
		if len(states) != 2 || states["entry"] != 1 || states["granted"] != 1 {
			t.Errorf("the releases have the states %v", states)
		}
	})
}

func TestCallsAfterClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		c := open(t, d)
		m, err := c.Mutex("x")
		if err != nil {
			t.Fatal(err)
		}
		closes(t, c)
		ctx := t.Context()
		work := func(context.Context, *dlock.Lease) error { t.Error("the work ran"); return nil }
		_, lockErr := m.Lock(ctx)
		_, tryErr := m.TryLock(ctx)
		_, inspectErr := c.Inspect(ctx, "x")
		var listErr error
		for _, listErr = range c.List(ctx, "") {
		}
		for i, err := range []error{
			lockErr, tryErr, inspectErr, listErr, c.Break(ctx, "x", ""),
			c.Do(ctx, "x", work), c.TryDo(ctx, "x", work),
		} {
			if !errors.Is(err, dlock.ErrClosed) {
				t.Errorf("call %d: %v", i, err)
			}
		}
		wantStory(t, d, "close")
	})
}

// TestCloseOfAServerThatDoesNotAnswer checks that Close takes at most 5 s if the server does not
// answer.
func TestCloseOfAServerThatDoesNotAnswer(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, c *dlock.Client){
		"releases hang": func(t *testing.T, c *dlock.Client) {
			t.Helper()
			for i := range 200 {
				takes(t, c, fmt.Sprint(i))
			}
		},
		"a release behind hangs": func(t *testing.T, c *dlock.Client) {
			t.Helper()
			wantErr(t, takes(t, c, "x").Unlock(t.Context()), dlock.ErrUncertain)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.releases = repeat(1000, releaseStep(releaseHangs))
				c := open(t, d)
				prepare(t, c)
				if took := closes(t, c); took > 5*time.Second {
					t.Errorf("Close took %v", took)
				}
			})
		})
	}
}

func TestCloseWaitsForMinimumHolds(t *testing.T) {
	for _, unlocked := range []bool{true, false} {
		t.Run(fmt.Sprintf("unlocked=%v", unlocked), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				c := open(t, d, dlock.WithTTL(ttl))
				lease := takes(t, c, "x", dlock.WithMinHold(time.Minute))
				time.Sleep(time.Second)
				if unlocked {
					frees(t, lease)
				}
				wantAt(t, "closed", closes(t, c), 59*time.Second, 0)
				releases := d.of("release")
				if len(releases) != 1 || releases[0].at != time.Minute || len(d.of("renew")) < 15 {
					t.Errorf("the calls are %s", d.story())
				}
				want := dlock.ErrClosed
				if unlocked {
					want = dlock.ErrNotHeld
				}
				wantErr(t, lease.Err(), want)
			})
		})
	}
}

// TestCloseHasItsTimeAfterAMinimumHold checks that Close gives a release 5 s, even if the release
// is not due before the end of a minimum hold.
func TestCloseHasItsTimeAfterAMinimumHold(t *testing.T) {
	for name, test := range map[string]struct {
		step releaseStep
		want time.Duration
	}{
		"slow": {func(ctx context.Context, _ *backend.Grant) error {
			time.Sleep(3 * time.Second)
			return ctx.Err()
		}, time.Minute + 3*time.Second},
		"silent": {releaseHangs, time.Minute + 5*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.releases = repeat(100, test.step)
				c := open(t, d)
				takes(t, c, "x", dlock.WithMinHold(time.Minute))
				wantAt(t, "closed", closes(t, c), test.want, 0)
			})
		})
	}
}

// TestReturnedCallsDoNotDelayClose checks that Close does not wait for calls that have
// returned, with or without an error.
func TestReturnedCallsDoNotDelayClose(t *testing.T) {
	for _, answer := range []error{nil, errServer} {
		t.Run(fmt.Sprint(answer), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.inspect = func(context.Context) (*backend.Info, error) {
					return &backend.Info{}, answer
				}
				d.breakLock = func(context.Context) error { return answer }
				c := open(t, d)
				ctx := t.Context()
				lease := takes(t, c, "x")
				_, _ = c.TryLock(ctx, "x")
				_, _ = c.Inspect(ctx, "x")
				for range 2 {
					for _, err := range c.List(ctx, "") {
						_ = err
						break
					}
				}
				_ = c.Break(ctx, "x", "")
				_ = lease.Extend(ctx)
				frees(t, lease)
				_ = lease.Extend(ctx)
				_ = lease.Unlock(ctx)
				wantAt(t, "closed", closes(t, c), 0, 0)
			})
		})
	}
}

// TestCallsDuringClose checks that calls during Close fail at once and do not delay Close.
func TestCallsDuringClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := open(t, newScript())
		lease := takes(t, c, "x", dlock.WithMinHold(time.Minute))
		closed := make(chan time.Duration)
		go func() { closed <- closes(t, c) }()
		synctest.Wait()
		_, err := c.Lock(t.Context(), "y")
		wantErr(t, err, dlock.ErrClosed)
		wantErr(t, lease.Unlock(t.Context()), dlock.ErrClosed)
		wantErr(t, c.Break(t.Context(), "x", ""), dlock.ErrClosed)
		wantAt(t, "closed", <-closed, time.Minute, 0)
	})
}

// TestCloseKeepsALockDelay checks that Close does not end the lock-delay of a lost lock, which
// Close has not unlocked. A lease that Close itself ends is released at once.
func TestCloseKeepsALockDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		c := open(t, d, dlock.WithTTL(ttl), dlock.WithLockDelay(time.Minute))
		lost := takes(t, c, "lost", dlock.WithoutRenewal())
		<-lost.Lost()
		held := takes(t, c, "held")
		wantAt(t, "closed", closes(t, c), 0, 0)
		releases := d.of("release")
		if len(releases) != 1 || releases[0].owner != held.Owner() {
			t.Errorf("the releases are %+v", releases)
		}
	})
}

func TestCloseReleasesLostLeases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		c := open(t, d, dlock.WithTTL(ttl))
		lost := takes(t, c, "x", dlock.WithoutRenewal())
		<-lost.Lost()
		wantAt(t, "closed", closes(t, c), 0, 0)
		wantStory(t, d, "acquire release close")
	})
}

func TestConcurrentCloses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		c := open(t, d)
		takes(t, c, "x")
		done := make(chan error)
		for range 10 {
			go func() { done <- c.Close() }()
		}
		for range 10 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		wantStory(t, d, "acquire release close")
	})
}

// TestCloseDuringLocks checks that Close releases each lock that is granted while it runs.
func TestCloseDuringLocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for delay := range 20 * time.Nanosecond {
			d := newScript()
			grantSlowly := func(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
				time.Sleep(10 * time.Nanosecond)
				return d.grant(ctx, req)
			}
			d.acquires = repeat(50, acquireStep(grantSlowly))
			c := open(t, d)
			var waiters []<-chan result
			for i := range 50 {
				waiters = append(waiters, lockBehind(t.Context(), c, fmt.Sprint(i%10)))
			}
			time.Sleep(delay)
			closes(t, c)
			for _, waiter := range waiters {
				got := <-waiter
				if got.err == nil {
					got.err = got.lease.Err()
				}
				wantErr(t, got.err, dlock.ErrClosed)
			}
			synctest.Wait()
			released := map[string]bool{}
			for _, release := range d.of("release") {
				released[release.owner] = true
			}
			for _, acquire := range d.of("acquire") {
				if !released[acquire.owner] {
					t.Errorf("closed after %v: a lock was not released", delay)
				}
			}
		}
	})
}

// TestCloseReleasesDuringAMinHold checks that a minimum hold does not delay the release of other
// locks.
func TestCloseReleasesDuringAMinHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		c := open(t, d)
		takes(t, c, "long", dlock.WithMinHold(time.Minute))
		plain := takes(t, c, "plain").Owner()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		for _, release := range d.of("release") {
			if release.owner == plain && release.at > time.Second {
				t.Errorf("the plain lock was released at %v", release.at)
			}
		}
		wantAt(t, "closed", time.Since(d.begun), time.Minute, 0)
	})
}

// TestUnlockDuringClose calls Unlock and Close concurrently. The lock is released, so neither of
// them reports a loss.
func TestUnlockDuringClose(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			d := newScript()
			c := open(t, d)
			leases := make([]*dlock.Lease, 50)
			for i := range leases {
				leases[i] = takes(t, c, fmt.Sprint(i))
			}
			done := make(chan error, len(leases))
			for _, lease := range leases {
				go func() { done <- lease.Unlock(context.Background()) }()
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			for range leases {
				wantNoErr(t, <-done, dlock.ErrLost)
			}
		})
	}
}

// TestCloseJoinsEverything checks that Close waits for all requests, including the releases of an
// attempt that hung. It closes the driver last.
func TestCloseJoinsEverything(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		var running atomic.Int64
		d.acquires = []acquireStep{acquireHangs}
		d.releases = repeat(1000, releaseStep(func(ctx context.Context, g *backend.Grant) error {
			running.Add(1)
			defer running.Add(-1)
			return releaseHangs(ctx, g)
		}))
		c := open(t, d)
		waiter := queueUp(t, c, "x", 1)[0]
		took := closes(t, c)
		if n := running.Load(); n > 0 || took > 5*time.Second {
			t.Errorf("Close returned after %v, with %d requests under way", took, n)
		}
		wantErr(t, (<-waiter).err, dlock.ErrClosed)
		time.Sleep(time.Minute)
		if calls := d.of(""); calls[len(calls)-1].op != "close" {
			t.Errorf("the calls are %s", d.story())
		}
	})
}

// TestCloseRepeatsAReleaseThatFailed checks that Close repeats a failed release for at most 5 s.
// Otherwise one refused connection would cost the other processes a TTL.
func TestCloseRepeatsAReleaseThatFailed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.releases = repeat(3, releaseFails(errUnavailable))
		c := open(t, d)
		takes(t, c, "x")
		if took := closes(t, c); took > 5*time.Second {
			t.Errorf("Close took %v", took)
		}
		if n := len(d.of("release")); n != 4 {
			t.Errorf("%d releases, want 4: the fourth is answered", n)
		}
	})
}

// TestCloseRenewsAMinHold checks that Close renews a lock until the end of its minimum hold. This
// includes a lease without renewal that Close itself ends.
func TestCloseRenewsAMinHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		c := open(t, d, dlock.WithTTL(ttl))
		takes(t, c, "x", dlock.WithMinHold(3*ttl), dlock.WithoutRenewal())
		wantAt(t, "closed", closes(t, c), 3*ttl, 0)
		if renews := d.of("renew"); len(renews) < 5 {
			t.Errorf("%d renewals in %v: the server has given the lock away", len(renews), 3*ttl)
		}
	})
}

// TestUnlockAfterClose checks that the first Unlock after Close returns the reason for the end of
// its lease.
func TestUnlockAfterClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		c := open(t, d, dlock.WithTTL(ttl))
		held, unlocked := takes(t, c, "x"), takes(t, c, "z")
		lost := takes(t, c, "y", dlock.WithoutRenewal())
		<-lost.Lost()
		frees(t, unlocked)
		closes(t, c)
		wantErr(t, held.Unlock(t.Context()), dlock.ErrClosed)
		wantErr(t, lost.Unlock(t.Context()), dlock.ErrLost)
		for _, lease := range []*dlock.Lease{held, lost, unlocked} {
			wantErr(t, lease.Unlock(t.Context()), dlock.ErrNotHeld)
		}
	})
}

// TestCloseIsNoCancellation checks that a call which Close ends does not return the end of an
// internal context. The caller did not cancel anything, so the error is ErrClosed.
func TestCloseIsNoCancellation(t *testing.T) {
	for name, call := range map[string]func(context.Context, *dlock.Client, *dlock.Lease) error{
		"Lock": func(ctx context.Context, c *dlock.Client, _ *dlock.Lease) error {
			_, err := c.Lock(ctx, "y")
			return err
		},
		"TryLock": func(ctx context.Context, c *dlock.Client, _ *dlock.Lease) error {
			_, err := c.TryLock(ctx, "y")
			return err
		},
		"Extend": func(ctx context.Context, _ *dlock.Client, lease *dlock.Lease) error {
			return lease.Extend(ctx)
		},
		"Unlock": func(ctx context.Context, _ *dlock.Client, lease *dlock.Lease) error {
			return lease.Unlock(ctx)
		},
		"Inspect": func(ctx context.Context, c *dlock.Client, _ *dlock.Lease) error {
			_, err := c.Inspect(ctx, "y")
			return err
		},
		"Break": func(ctx context.Context, c *dlock.Client, _ *dlock.Lease) error {
			return c.Break(ctx, "y", "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
				d.inspect = func(ctx context.Context) (*backend.Info, error) {
					return nil, hang(ctx)
				}
				d.breakLock = hang
				d.renews = repeat(50, renewStep(renewHangs))
				d.releases = repeat(50, releaseStep(releaseHangs))
				c := open(t, d)
				lease := takes(t, c, "x", dlock.WithoutRenewal())
				d.acquires = repeat(50, acquireStep(acquireHangs))
				called := make(chan error, 1)
				go func() { called <- call(t.Context(), c, lease) }()
				time.Sleep(time.Second)
				if took := closes(t, c); took > 5*time.Second {
					t.Errorf("Close took %v", took)
				}
				err := <-called
				wantNoErr(t, err, context.Canceled, context.DeadlineExceeded,
					dlock.ErrNotAcquired, dlock.ErrLost)
				if name == "Lock" || name == "TryLock" || name == "Extend" {
					wantErr(t, err, dlock.ErrClosed)
				}
			})
		})
	}
}

// TestCloseRepeatsTheReleaseOfAnUnknownAttempt checks that Close waits for the last repetition of a
// release, within its limit of 5 s.
func TestCloseRepeatsTheReleaseOfAnUnknownAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const late = 2 * time.Second
		d := newScript()
		d.caps.Late = late
		d.acquires = []acquireStep{acquireFails(errServer)}
		c := open(t, d)
		frees(t, takes(t, c, "x"))
		closes(t, c)
		releases := d.of("release")
		if last := releases[len(releases)-1]; last.at-releases[0].at != late {
			t.Errorf("the releases are %+v", releases)
		}
	})
}

// TestCloseWaitsForARepetitionUnderWay checks that Close waits for a release whose repetition is
// being answered when Close lists the outstanding releases.
func TestCloseWaitsForARepetitionUnderWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const late = time.Second
		d := newScript()
		d.caps.Late = late
		notHeld := releaseFails(backend.ErrNotHeld)
		slowly := func(d time.Duration) releaseStep {
			return func(ctx context.Context, g *backend.Grant) error {
				time.Sleep(d)
				return notHeld(ctx, g)
			}
		}
		// free is the release of the lock named kept.
		d.releases = []releaseStep{notHeld, slowly(late / 10), free, slowly(late)}
		c := open(t, d)
		// The minimum hold makes Close list the releases after the first repetition has begun.
		kept := takes(t, c, "kept", dlock.WithMinHold(3*time.Millisecond))
		d.acquires = []acquireStep{acquireHangs}
		ctx, cancel := context.WithCancel(t.Context())
		lock := lockBehind(ctx, c, "cancelled")
		synctest.Wait()
		cancel()
		<-lock
		synctest.Wait()
		begun := d.of("release")[0].at
		closes(t, c)
		var last time.Duration
		for _, release := range d.of("release") {
			if release.owner != kept.Owner() {
				last = release.at
			}
		}
		if last < begun+late {
			t.Errorf("the last release is at %v, the first at %v", last, begun)
		}
	})
}

// TestCloseLogsWhatIsLeft checks that Close, whose time is limited, logs the number of locks that
// it leaves to the end of their TTL.
func TestCloseLogsWhatIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, log := newScript(), &lines{}
		d.releases = repeat(50, releaseStep(releaseHangs))
		c := open(t, d, dlock.WithLogger(slog.New(log)))
		takes(t, c, "x")
		takes(t, c, "y")
		_ = c.Close()
		if said := strings.Join(log.read(), "\n"); !strings.Contains(said, "2 locks are left") {
			t.Errorf("the log is\n%s", said)
		}
	})
}

// slowDone is a context whose Done blocks once.
type slowDone struct {
	context.Context //nolint:containedctx // it is one
	once            *sync.Once
	called, goOn    chan struct{}
}

func (c slowDone) Done() <-chan struct{} {
	c.once.Do(func() {
		close(c.called)
		<-c.goOn
	})
	return c.Context.Done()
}

// TestCloseEndsAWaiterWithAContextOfALease has a waiter that joins the line of a key when Close has
// begun and has ended the waiter's context, which is of a lease. The caller has cancelled nothing,
// so the error is ErrClosed, whichever of the two the waiter finds first.
func TestCloseEndsAWaiterWithAContextOfALease(t *testing.T) {
	t.Parallel()
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			d := newScript()
			c := open(t, d)
			held := takes(t, c, "x")
			d.acquires = []acquireStep{
				func(context.Context, *backend.Request) (*backend.Grant, error) {
					time.Sleep(time.Minute)
					return nil, errUnavailable
				},
			}
			go func() { _, _ = c.Lock(t.Context(), "y") }() // the front of the line
			synctest.Wait()
			parent, cancel := held.Context(t.Context())
			defer cancel()
			ctx := slowDone{parent, new(sync.Once), make(chan struct{}), make(chan struct{})}
			waited := make(chan error, 1)
			go func() { _, err := c.Lock(ctx, "y"); waited <- err }()
			<-ctx.called
			go func() { _ = c.Close() }()
			synctest.Wait()
			close(ctx.goOn)
			err := <-waited
			wantErr(t, err, dlock.ErrClosed)
			wantNoErr(t, err, context.Canceled)
			time.Sleep(2 * time.Minute) // until the front has ended
		})
	}
}
