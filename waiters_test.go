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

// TestWaitersDoNotRetryTogether checks that waiters without a wake-up, which retry after a third of
// the TTL, do so at different times.
func TestWaitersDoNotRetryTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const waiters = 50
		times := make(map[time.Duration]bool)
		d := newScript()
		d.acquires = repeat(waiters, busy(backend.Busy{}))
		c := open(t, d, dlock.WithTTL(ttl))
		var done []<-chan result
		for i := range waiters {
			done = append(done, lockBehind(t.Context(), c, fmt.Sprint(i)))
		}
		for _, waiter := range done {
			<-waiter
		}
		for _, again := range d.of("acquire")[waiters:] {
			times[again.at] = true
		}
		if len(times) < waiters/2 {
			t.Errorf("%d waiters retried at %d different times", waiters, len(times))
		}
	})
}

// TestReliableWaits checks that a Wait is repeated after a third of the TTL, unless the driver says
// that nothing can be lost that ends it.
func TestReliableWaits(t *testing.T) {
	t.Parallel()
	const released = 24 * time.Hour
	for reliable, want := range map[bool]time.Duration{true: released, false: ttl / 3} {
		synctest.Test(t, func(t *testing.T) {
			d := newScript()
			d.acquires = []acquireStep{busy(backend.Busy{Reliable: reliable})}
			d.waits = []waitStep{func(
				ctx context.Context, _ *backend.Request, _ *backend.Busy,
			) (*backend.Grant, error) {
				select {
				case <-ctx.Done():
					return nil, ctx.Err()
				case <-time.After(released):
					return nil, nil
				}
			}}
			frees(t, takes(t, open(t, d, dlock.WithTTL(ttl)), "x"))
			again := d.of("acquire")[1]
			wantAt(t, "the second attempt", again.at, want, ttl/10)
		})
	}
}

// TestReliableWaitIsNoSilence checks a server that fails after a Wait as long as the TTL, or whose
// Wait fails then: the waiter and the waiter behind it go on, because the server was not silent.
func TestReliableWaitIsNoSilence(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		wait     time.Duration
		failure  error // of Wait
		failures int   // of attempts after Wait
	}{
		"failed attempts":  {ttl - time.Millisecond, nil, 3},
		"unavailable wait": {2 * ttl, errUnavailable, 1},
		"failed wait":      {2 * ttl, errServer, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.acquires = append(
					[]acquireStep{busy(backend.Busy{Reliable: true, Queued: true})},
					repeat(test.failures, acquireFails(errUnavailable))...)
				d.waits = []waitStep{func(
					context.Context, *backend.Request, *backend.Busy,
				) (*backend.Grant, error) {
					time.Sleep(test.wait)
					return nil, test.failure
				}}
				c := open(t, d, dlock.WithTTL(ttl))
				first := lockBehind(t.Context(), c, "x")
				synctest.Wait()
				second := lockBehind(t.Context(), c, "x")
				for _, waiter := range []<-chan result{first, second} {
					got := <-waiter
					if got.err != nil {
						t.Errorf("a waiter gives up: %v", got.err)
						continue
					}
					frees(t, got.lease)
				}
			})
		})
	}
}

// TestWaiterWhoseEntryIsLostKeepsItsPlace checks that a waiter keeps its place in the local line if
// its queue entry is lost.
func TestWaiterWhoseEntryIsLostKeepsItsPlace(t *testing.T) {
	t.Parallel()
	for _, fair := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			d := newScript()
			d.acquires = []acquireStep{busy(backend.Busy{Queued: true, State: "entry"})}
			d.waits = []waitStep{func(
				ctx context.Context, req *backend.Request, _ *backend.Busy,
			) (*backend.Grant, error) {
				time.Sleep(time.Second)
				req.Lost(backend.ErrLost)
				return d.grant(ctx, req)
			}}
			opts := []dlock.Option{dlock.WithLocalHandoff(0)}
			if fair {
				opts = []dlock.Option{dlock.WithFair()}
			}
			c := open(t, d, opts...)
			head, second := lockBehind(t.Context(), c, "x"), (<-chan result)(nil)
			synctest.Wait()
			second = lockBehind(t.Context(), c, "x")
			time.Sleep(2 * time.Second)
			synctest.Wait()
			select {
			case got := <-head:
				frees(t, got.lease)
				frees(t, (<-second).lease)
			case got := <-second:
				t.Error("the second waiter was served first")
				frees(t, got.lease)
				frees(t, (<-head).lease)
			}
		})
	}
}

// TestDriverThatWakesForNoReason checks that the number of requests stays bounded if the driver
// wakes its waiter without a reason.
func TestDriverThatWakesForNoReason(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.acquires = repeat(100000, busy(backend.Busy{}))
		wait := func(context.Context, *backend.Request, *backend.Busy) (*backend.Grant, error) {
			if len(d.of("wait")) > 10000 {
				t.Fatal("10,000 requests") // otherwise the bubble's clock would never advance
			}
			return nil, nil
		}
		d.waits = repeat(100000, waitStep(wait))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		got := <-lockBehind(ctx, open(t, d), "x")
		wantErr(t, got.err, context.DeadlineExceeded)
		if n := len(d.of("acquire")); n < 100 || n > 300 {
			t.Errorf("%d requests in 10 s", n)
		}
	})
}

// TestGrantAfterManyHints checks that the backoff after hints without a reason does not delay a
// grant.
func TestGrantAfterManyHints(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const hints = 30
		d := newScript()
		d.acquires = repeat(hints+1, busy(backend.Busy{}))
		d.waits = append(repeat(hints, lookAgain(0)), waitGrants(d, 0, 0))
		takes(t, open(t, d), "x")
		waits := d.of("wait")
		wantAt(t, "Lock has returned", time.Since(d.begun), waits[len(waits)-1].at, 0)
		if len(waits) != hints+1 {
			t.Errorf("the calls are %s", d.story())
		}
	})
}

// TestHandOffLeavesTheLockDelayOut checks that a grant is not handed off after half of its TTL. The
// server's term includes the lock-delay, so less than half of that term is over.
func TestHandOffLeavesTheLockDelayOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.acquires = []acquireStep{busy(backend.Busy{})}
		d.waits = []waitStep{waitGrants(d, time.Second, 6*time.Second)}
		d.renews = repeat(100, renewFails(errServer))
		c := open(t, d, dlock.WithTTL(ttl), dlock.WithLockDelay(ttl))
		lease := takes(t, c, "x")
		next := queueUp(t, c, "x", 1)[0]
		frees(t, lease)
		got := <-next
		if got.err != nil || got.lease.Owner() == lease.Owner() {
			t.Errorf("%v: the grant was handed off with %v of %v left",
				got.err, ttl-6*time.Second, ttl)
		}
		frees(t, got.lease)
	})
}
