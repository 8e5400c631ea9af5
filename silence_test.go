package dlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// TestAttemptEndsWithTheSilence checks that no attempt lasts longer than a TTL after the last
// answer. The server may grant an attempt whose answer is late, and keeps that grant for a TTL. So
// a waiter that tried for longer would keep the lock away from all others for longer.
func TestAttemptEndsWithTheSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const answered, ttl = time.Second, 3 * time.Second
		d := newScript()
		d.acquires = []acquireStep{
			func(context.Context, *backend.Request) (*backend.Grant, error) {
				time.Sleep(answered)
				return nil, &backend.Busy{Queued: true}
			},
			acquireHangs,
		}
		d.waits = []waitStep{lookAgain(ttl / 3)}
		c := open(t, d, dlock.WithTTL(ttl))
		got := <-lockBehind(t.Context(), c, "x")
		wantErr(t, got.err, dlock.ErrUnavailable)
		wantAt(t, "Lock has returned", got.at.Sub(d.begun), answered+ttl, 0)
		synctest.Wait()
		if n := len(d.of("acquire")); n != 2 {
			t.Errorf("%d attempts: %s", n, d.story())
		}
		wantAt(t, "the release", d.of("release")[0].at, answered+ttl, 0)
	})
}

// TestNoAttemptAfterTheSilence checks that a waiter gives up when the silence has lasted for a TTL,
// also if it ends during a backoff.
func TestNoAttemptAfterTheSilence(t *testing.T) {
	t.Parallel()
	for range 20 { // the backoff is random
		synctest.Test(t, func(t *testing.T) {
			d := newScript()
			d.acquires = append([]acquireStep{busy(backend.Busy{Queued: true})},
				repeat(1000, acquireFails(errServer))...)
			d.waits = []waitStep{lookAgain(ttl / 3)}
			got := <-lockBehind(t.Context(), open(t, d, dlock.WithTTL(ttl)), "x")
			wantErr(t, got.err, dlock.ErrUnavailable)
			wantAt(t, "Lock has returned", got.at.Sub(d.begun), ttl, 0)
			attempts := d.of("acquire")
			if last := attempts[len(attempts)-1].at; last >= ttl {
				t.Errorf("the last attempt began after %v, with a TTL of %v", last, ttl)
			}
		})
	}
}

// TestWaiterThatWasStoppedHasTimeForAnAttempt has a process that was stopped during its Wait for
// almost a TTL. The rest of the silence would be too short for the attempt that follows.
func TestWaiterThatWasStoppedHasTimeForAnAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const latency = ttl / 10
		d := newScript()
		d.acquires = []acquireStep{
			busy(backend.Busy{}),
			func(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
				select {
				case <-ctx.Done():
					return nil, ctx.Err()
				case <-time.After(latency):
					return d.grant(ctx, req)
				}
			},
		}
		d.waits = []waitStep{
			func(context.Context, *backend.Request, *backend.Busy) (*backend.Grant, error) {
				time.Sleep(ttl - latency/2)
				return nil, nil
			},
		}
		frees(t, takes(t, open(t, d, dlock.WithTTL(ttl)), "x"))
	})
}

// TestUnansweredEntryIsNotTransferred checks a waiter that gives up during an attempt. The server
// may have granted it, and a repetition would prolong the grant. So the next waiter has another
// owner.
func TestUnansweredEntryIsNotTransferred(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.acquires = []acquireStep{busy(backend.Busy{Queued: true}), acquireHangs}
		d.waits = []waitStep{lookAgain(time.Second)}
		c := open(t, d, dlock.WithTTL(ttl))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		first := lockBehind(ctx, c, "x")
		synctest.Wait()
		second := lockBehind(t.Context(), c, "x")
		wantErr(t, (<-first).err, context.DeadlineExceeded, dlock.ErrUncertain)
		got := <-second
		synctest.Wait() // for the release
		if unanswered := d.of("acquire")[0].owner; got.lease.Owner() == unanswered {
			t.Error("the next waiter repeated an attempt that had no answer")
		} else if d.of("release")[0].owner != unanswered {
			t.Errorf("the attempt was not undone: %s", d.story())
		}
		frees(t, got.lease)
	})
}

// TestSilenceOfATransferredEntry checks that a waiter that takes over the queue entry of another
// one goes on with the silence of the server from the last answer, or from its own arrival if that
// was later. Waiters that come and go would otherwise keep a grant without an answer for ever.
func TestSilenceOfATransferredEntry(t *testing.T) {
	t.Parallel()
	for name, joins := range map[string]time.Duration{"early": 0, "late": time.Second / 5} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const leaves, ttl = time.Second / 2, 3 * time.Second
				d := newScript()
				d.acquires = []acquireStep{busy(backend.Busy{Queued: true}), acquireHangs}
				c := open(t, d, dlock.WithTTL(ttl))
				ctx, cancel := context.WithTimeout(t.Context(), leaves)
				defer cancel()
				first := lockBehind(ctx, c, "x")
				synctest.Wait()
				time.Sleep(joins)
				second := lockBehind(t.Context(), c, "x")
				wantErr(t, (<-first).err, context.DeadlineExceeded)
				got := <-second
				wantErr(t, got.err, dlock.ErrUnavailable)
				wantAt(t, "the second waiter gave up", got.at.Sub(d.begun), joins+ttl, 0)
				if attempts := d.of("acquire"); attempts[0].owner != attempts[1].owner {
					t.Error("the entry was not transferred")
				}
			})
		})
	}
}
