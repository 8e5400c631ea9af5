package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

const ttl = 10 * time.Second

// life is the time for which a lease trusts a term of ttl.
const life = ttl - ttl/100 - 10*time.Millisecond

// sentBefore grants with a term that began d ago.
func sentBefore(s *script, d time.Duration) acquireStep {
	return func(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
		grant, _ := s.grant(ctx, req)
		grant.Term.Sent = grant.Term.Sent.Add(-d)
		return grant, nil
	}
}

// waitGrants grants the lock to the waiter after d, with a term that began sent before the grant.
func waitGrants(s *script, d, sent time.Duration) waitStep {
	return func(
		ctx context.Context, req *backend.Request, _ *backend.Busy,
	) (*backend.Grant, error) {
		time.Sleep(d)
		return sentBefore(s, sent)(ctx, req)
	}
}

func TestUncontendedLockIsOneRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		c := open(t, d)
		lease := takes(t, c, "x", dlock.WithTTL(ttl), dlock.WithFair(), dlock.WithMeta("me"))
		req := d.of("acquire")[0].req
		if req.Key != "x" || req.TTL != ttl || req.Mode != backend.Exclusive ||
			!req.Fair || !req.Queue || req.Meta != "me" || req.Limit != 0 {
			t.Errorf("the request is %+v", req)
		}
		if len(req.Owner) != 32 || lease.Owner() != req.Owner ||
			lease.Name() != "x" || lease.Fence() != 1<<12 {
			t.Errorf("the lease is %q of %q, fence %d", lease.Name(), lease.Owner(), lease.Fence())
		}
		frees(t, lease)
		wantStory(t, d, "acquire release")
		released := d.of("release")[0]
		if released.owner != req.Owner || released.state != "granted" {
			t.Errorf("the release is %+v", released)
		}
	})
}

func TestEachAcquisitionHasItsOwnOwner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		c := open(t, d)
		owners := map[string]bool{}
		for range 100 {
			lease := takes(t, c, "x")
			owners[lease.Owner()] = true
			frees(t, lease)
		}
		if len(owners) != 100 {
			t.Errorf("%d owners in 100 acquisitions", len(owners))
		}
	})
}

func TestGrantOfATermThatIsOver(t *testing.T) {
	for _, wait := range []bool{true, false} {
		t.Run(fmt.Sprintf("wait=%v", wait), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.acquires = []acquireStep{sentBefore(d, life), sentBefore(d, life-1)}
				c := open(t, d, dlock.WithTTL(ttl))
				lock := c.TryLock
				if wait {
					lock = c.Lock
				}
				_, err := lock(t.Context(), "x")
				wantErr(t, err, dlock.ErrUnavailable)
				synctest.Wait()
				wantStory(t, d, "acquire release")
				if released := d.of("release")[0]; released.state != "granted" {
					t.Errorf("released with state %v", released.state)
				}
				lease, err := lock(t.Context(), "x")
				if err != nil || lease.Err() != nil {
					t.Errorf("with a nanosecond left: %v, then %v", err, lease.Err())
				}
			})
		})
	}
}

func TestTryLockOfATakenLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.acquires = []acquireStep{busy(backend.Busy{Holder: "her"})}
		c := open(t, d)
		_, err := c.TryLock(t.Context(), "x")
		wantErr(t, err, dlock.ErrNotAcquired)
		if busy, ok := errors.AsType[*backend.Busy](err); !ok || busy.Holder != "her" {
			t.Errorf("%v does not name the holder", err)
		}
		if d.of("acquire")[0].req.Queue {
			t.Error("TryLock requested a queue entry")
		}
		synctest.Wait()
		wantStory(t, d, "acquire")
	})
}

func TestTryLockTakesBackAQueueEntry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.acquires = []acquireStep{busy(backend.Busy{Queued: true, State: "entry"})}
		c := open(t, d)
		_, err := c.TryLock(t.Context(), "x")
		wantErr(t, err, dlock.ErrNotAcquired)
		synctest.Wait()
		wantStory(t, d, "acquire release")
		if state := d.of("release")[0].state; state != "entry" {
			t.Errorf("released with state %v", state)
		}
	})
}

func TestLockRetriesAfterEachHint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		const hints = 20
		for i := range hints {
			d.acquires = append(d.acquires, busy(backend.Busy{State: i}))
		}
		d.waits = repeat(hints, lookAgain(time.Second))
		c := open(t, d)
		lease := takes(t, c, "x")
		wantStory(t, d, strings.Repeat("acquire wait ", hints)+"acquire")
		for i, wait := range d.of("wait") {
			if wait.state != i || wait.owner != lease.Owner() {
				t.Errorf("Wait %d got %v of %q", i, wait.state, wait.owner)
			}
		}
		wantAt(t, "the grant", d.of("acquire")[hints].at, hints*time.Second, 0)
	})
}

func TestWaitIsBounded(t *testing.T) {
	for _, test := range []struct {
		name        string
		retryAfter  time.Duration
		least, most time.Duration
	}{
		{"no known end", 0, ttl / 3, ttl/3 + ttl/30},
		{"the holder's term ends later", time.Minute, ttl / 3, ttl/3 + ttl/30},
		{
			"the holder's term ends sooner",
			time.Second, time.Second, time.Second + 20*time.Millisecond,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.acquires = []acquireStep{busy(backend.Busy{RetryAfter: test.retryAfter})}
				c := open(t, d, dlock.WithTTL(ttl))
				takes(t, c, "x")
				wantStory(t, d, "acquire wait acquire")
				if at := d.of("acquire")[1].at; at < test.least || at > test.most {
					t.Errorf("the second request came after %v, want %v to %v",
						at, test.least, test.most)
				}
			})
		})
	}
}

func TestPolling(t *testing.T) {
	const most = 100 * time.Millisecond
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.caps.Notify = false
		d.acquires = repeat(200, busy(backend.Busy{}))
		c := open(t, d, dlock.WithPollInterval(most))
		takes(t, c, "x")
		calls := d.of("acquire")
		pauses := map[time.Duration]bool{}
		for i := range calls[1:] {
			pause := calls[i+1].at - calls[i].at
			pauses[pause] = true
			if pause < most/50 || pause > most {
				t.Errorf("backoff %d is %v", i, pause)
			}
		}
		if first := calls[1].at; first > 3*most/50 {
			t.Errorf("the first backoff is %v", first)
		}
		if len(pauses) < 20 {
			t.Errorf("only %d different backoffs: they have no jitter", len(pauses))
		}
		if total := calls[200].at; total < 200*most/4 {
			t.Errorf("200 backoffs took %v: they do not grow", total)
		}
	})
}

// TestPollingFollowsTheHands checks that a poller resets its backoff each time the lock changes
// hands. With each change the first backoff is a little longer, because each change is evidence of
// one more poller.
func TestPollingFollowsTheHands(t *testing.T) {
	const most, stuck, moves = 250 * time.Millisecond, 200, 10
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.caps.Notify = false
		d.acquires = repeat(stuck, busy(backend.Busy{Fence: 1}))
		for n := range uint64(moves) {
			d.acquires = append(d.acquires, busy(backend.Busy{Fence: 2 + n}), busy(backend.Busy{}))
		}
		c := open(t, d, dlock.WithPollInterval(most))
		takes(t, c, "x")
		calls := d.of("acquire")
		if total := calls[stuck].at; total < stuck*most/4 {
			t.Errorf("%d backoffs without a change took %v: they do not grow", stuck, total)
		}
		for n := range moves {
			i := stuck + 2*n
			pause := calls[i+1].at - calls[i].at
			limit := max(3*most/50, 3*most/50*time.Duration(2+n)/5)
			if pause > limit {
				t.Errorf("the backoff after change %d is %v, want %v at most", n, pause, limit)
			}
		}
	})
}

func TestPollingFollowsTheEndOfTheTerm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.caps.Notify = false
		d.acquires = []acquireStep{busy(backend.Busy{RetryAfter: 3 * time.Millisecond})}
		c := open(t, d, dlock.WithPollInterval(time.Minute))
		takes(t, c, "x")
		if at := d.of("acquire")[1].at; at < 3*time.Millisecond || at > 23*time.Millisecond {
			t.Errorf("the second request came after %v", at)
		}
	})
}

func TestGrantThroughWait(t *testing.T) {
	for _, test := range []struct {
		name   string
		sent   time.Duration // how long before the grant its term began
		opts   []dlock.Option
		before bool          // renewed before Lock returns
		after  time.Duration // the renewal follows the grant
	}{
		{"renewed in the background", time.Second, nil, false, 100 * time.Millisecond},
		{"little left", 7 * time.Second, nil, true, 0},
		{"not renewed otherwise", time.Second, []dlock.Option{dlock.WithoutRenewal()}, true, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.acquires = []acquireStep{busy(backend.Busy{})}
				d.waits = []waitStep{waitGrants(d, time.Second, test.sent)}
				const slow = 100 * time.Millisecond
				proveSlowly := func(ctx context.Context, g *backend.Grant) (backend.Term, error) {
					term, err := prove(ctx, g)
					time.Sleep(slow)
					return term, err
				}
				d.renews = repeat(2, renewStep(proveSlowly))
				c := open(t, d, dlock.WithTTL(ttl))
				begun := time.Now()
				lease := takes(t, c, "x", test.opts...)
				took := time.Since(begun)
				if before := took == time.Second+slow; before != test.before {
					t.Errorf("Lock took %v", took)
				}
				time.Sleep(ttl / 5)
				renewed := time.Second + test.after
				wantAt(t, "renewed", d.of("renew")[0].at, renewed, 0)
				wantAt(t, "the deadline", lease.Deadline().Sub(begun), renewed+life, 0)
				if n := len(d.of("renew")); n != 1 {
					t.Errorf("%d renewals", n)
				}
			})
		})
	}
}

// TestHandOffWaitsForNoRenewal has a grant with the term of a queue entry, which is a third of the
// default TTL. Lock returns it before it is renewed.
func TestHandOffWaitsForNoRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.acquires = []acquireStep{busy(backend.Busy{})}
		d.waits = []waitStep{func(
			ctx context.Context, req *backend.Request, _ *backend.Busy,
		) (*backend.Grant, error) {
			time.Sleep(time.Second)
			grant, err := d.grant(ctx, req)
			grant.Term = backend.Term{Sent: time.Now().Add(-3 * time.Second), TTL: 10 * time.Second}
			return grant, err
		}}
		d.renews = []renewStep{func(ctx context.Context, g *backend.Grant) (backend.Term, error) {
			time.Sleep(time.Second)
			return prove(ctx, g)
		}}
		c := open(t, d)
		begun := time.Now()
		lease := takes(t, c, "x")
		wantAt(t, "acquired", time.Since(begun), time.Second, 0)
		time.Sleep(8 * time.Second) // longer than the rest of the entry's term
		wantErr(t, lease.Err(), nil)
	})
}

// TestGrantShorterThanItsLockDelay has a grant with the term of a queue entry. It is shorter than
// the lock-delay, so the engine renews it before it is a lease.
func TestGrantShorterThanItsLockDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.acquires = []acquireStep{busy(backend.Busy{})}
		d.waits = []waitStep{func(
			ctx context.Context, req *backend.Request, _ *backend.Busy,
		) (*backend.Grant, error) {
			grant, err := d.grant(ctx, req)
			grant.Term.TTL = 10 * time.Second
			return grant, err
		}}
		c := open(t, d, dlock.WithTTL(ttl))
		lease := takes(t, c, "x", dlock.WithLockDelay(15*time.Second))
		wantStory(t, d, "acquire wait renew")
		wantAt(t, "the deadline", time.Until(lease.Deadline()), life, 0)
	})
}

// TestGrantThroughWaitInTheInstantOfTheEnd checks that the caller gets the grant if its context
// ends in the same instant.
func TestGrantThroughWaitInTheInstantOfTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		ctx, cancel := context.WithCancel(t.Context())
		d.acquires = []acquireStep{busy(backend.Busy{})}
		d.waits = []waitStep{func(
			ctx context.Context, req *backend.Request, _ *backend.Busy,
		) (*backend.Grant, error) {
			cancel()
			return d.grant(ctx, req)
		}}
		lease, err := open(t, d).Lock(ctx, "x")
		if err != nil || lease.Err() != nil {
			t.Fatalf("%v: Lock dropped the grant, which stays on the server", err)
		}
		frees(t, lease)
	})
}

func TestGrantThroughWaitThatIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.acquires = []acquireStep{busy(backend.Busy{})}
		d.waits = []waitStep{waitGrants(d, 0, 9*time.Second)}
		d.renews = []renewStep{renewFails(backend.ErrLost)}
		c := open(t, d, dlock.WithTTL(ttl), dlock.WithoutRenewal())
		lease := takes(t, c, "x")
		owners := d.of("acquire") // the first one is released in the background
		if len(owners) != 2 || len(d.of("wait")) != 1 || len(d.of("renew")) != 1 {
			t.Fatalf("the calls to the driver are %s", d.story())
		}
		if owners[0].owner == owners[1].owner || lease.Owner() != owners[1].owner {
			t.Error("Lock reused an owner whose grant was lost")
		}
	})
}

// TestWaiterThatWasStopped has a process that was stopped for longer than a term during its Wait.
// The grant of that time is over, but the server is not away: the waiter keeps its place in the
// local line, and gets the lock with another owner.
func TestWaiterThatWasStopped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.acquires = []acquireStep{busy(backend.Busy{})}
		d.waits = []waitStep{waitGrants(d, time.Second, life)}
		c := open(t, d, dlock.WithTTL(ttl), dlock.WithLocalHandoff(0))
		first := lockBehind(t.Context(), c, "x")
		synctest.Wait()
		second := lockBehind(t.Context(), c, "x")
		got := <-first
		if got.err != nil {
			t.Fatal(got.err)
		}
		synctest.Wait()
		acquires, releases := d.of("acquire"), d.of("release")
		if len(acquires) != 2 || len(releases) != 1 || len(second) != 0 {
			t.Fatalf("the calls are %s", d.story())
		}
		if late := acquires[0].owner; got.lease.Owner() == late || releases[0].owner != late {
			t.Error("Lock reused the owner, or did not release its grant")
		}
		frees(t, got.lease)
		frees(t, (<-second).lease)
	})
}

// TestWaiterThatWasStoppedDuringARequest has a process that was stopped for longer than a term
// between a request after a hint and its answer. The waiter gets the lock with another owner.
func TestWaiterThatWasStoppedDuringARequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.acquires = []acquireStep{busy(backend.Busy{}), sentBefore(d, life)}
		d.waits = []waitStep{lookAgain(time.Second)}
		lease := takes(t, open(t, d, dlock.WithTTL(ttl)), "x")
		acquires := d.of("acquire")
		if len(acquires) != 3 || lease.Owner() == acquires[1].owner {
			t.Errorf("the calls are %s, with the owner %s", d.story(), lease.Owner())
		}
		frees(t, lease)
	})
}

// TestWaitersOutliveAStopDuringARequest has a process that was stopped for longer than the TTL
// during a request. The driver then no longer reads the answer. That is no silence of the server:
// the waiter tries again, and so does the waiter behind it.
func TestWaitersOutliveAStopDuringARequest(t *testing.T) {
	for _, failure := range []error{context.DeadlineExceeded, errUnavailable} {
		t.Run(failure.Error(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.acquires = []acquireStep{func(
					context.Context, *backend.Request,
				) (*backend.Grant, error) {
					time.Sleep(2 * ttl)
					return nil, failure
				}}
				c := open(t, d, dlock.WithTTL(ttl), dlock.WithLocalHandoff(0))
				first := lockBehind(t.Context(), c, "x")
				synctest.Wait()
				second := lockBehind(t.Context(), c, "x")
				for _, waiter := range []<-chan result{first, second} {
					got := <-waiter
					if got.err != nil {
						t.Fatal(got.err)
					}
					frees(t, got.lease)
				}
			})
		})
	}
}

// TestWaiterThatWasStoppedTriesAgain has a process that was stopped for longer than the TTL during
// its Wait. Its first request after that fails, because the server has closed the connection. That
// is no silence of a TTL: the waiter tries again.
func TestWaiterThatWasStoppedTriesAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.acquires = []acquireStep{busy(backend.Busy{}), acquireFails(errServer)}
		d.waits = []waitStep{
			func(ctx context.Context, _ *backend.Request, _ *backend.Busy) (*backend.Grant, error) {
				time.Sleep(2 * ttl)
				return nil, ctx.Err()
			},
		}
		lease := takes(t, open(t, d, dlock.WithTTL(ttl)), "x")
		wantStory(t, d, "acquire wait acquire acquire")
		frees(t, lease)
	})
}

func TestLockOfAServerThatIsAway(t *testing.T) {
	for _, test := range []struct {
		name  string
		err   error
		ttl   time.Duration
		pause time.Duration // between attempts, at most
	}{
		{"unreachable", errUnavailable, ttl, time.Second},
		{"unknown", errServer, ttl, time.Second},
		{"short TTL", errUnavailable, time.Second, 100 * time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				away := repeat(1000, acquireFails(test.err))
				d.acquires = append([]acquireStep{busy(backend.Busy{})}, away...)
				d.waits = []waitStep{lookAgain(test.ttl * 3 / 10)}
				c := open(t, d, dlock.WithTTL(test.ttl))
				_, err := c.Lock(t.Context(), "x")
				wantErr(t, err, dlock.ErrUnavailable)
				if server, ok := errors.AsType[*serverError](err); !ok || server.code != 42 {
					t.Errorf("%v does not contain the driver's own error", err)
				}
				// The TTL counts from the last answer. The last attempt comes at most one backoff
				// later.
				wantAt(t, "gave up", time.Since(d.begun), test.ttl+test.pause/2, test.pause/2)
				acquires := d.of("acquire")
				if n := len(acquires); n < 10 || n > 200 {
					t.Errorf("%d attempts in %v", n, test.ttl)
				}
				for i, acquire := range acquires[2:] {
					if pause := acquire.at - acquires[i+1].at; pause > test.pause {
						t.Errorf("backoff %d is %v", i, pause)
					}
				}
			})
		})
	}
}

// TestLocalWaitersOfAServerThatIsAway checks that each waiter gives up one TTL after its own
// arrival, not one TTL after the waiter in front of it.
func TestLocalWaitersOfAServerThatIsAway(t *testing.T) {
	for name, step := range map[string]acquireStep{
		"unreachable": acquireFails(errUnavailable),
		"silent":      acquireHangs,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.acquires = repeat(10000, step)
				d.releases = repeat(10000, releaseStep(releaseHangs))
				c := open(t, d, dlock.WithTTL(ttl))
				early := queueUp(t, c, "x", 5)
				time.Sleep(ttl / 2)
				late := queueUp(t, c, "x", 5)
				for i, waiter := range append(early, late...) {
					got := <-waiter
					wantErr(t, got.err, dlock.ErrUnavailable)
					wantNoErr(t, got.err, context.DeadlineExceeded)
					least, most := ttl, ttl+6*time.Second
					if i >= len(early) {
						least, most = least+ttl/2, most+ttl/2
					}
					if after := got.at.Sub(d.begun); after < least || after > most {
						t.Errorf("waiter %d gave up after %v, want %v to %v", i, after, least, most)
					}
				}
			})
		})
	}
}

// TestSilenceBeginsWithTheLastAnswer has two waiters of one lock, and a server that goes away. The
// first waiter gives up after its own short TTL. For the second waiter, too, the silence began with
// the last answer, and not with its own arrival.
func TestSilenceBeginsWithTheLastAnswer(t *testing.T) {
	t.Parallel()
	const away, long = 2 * time.Minute, time.Minute
	for name, test := range map[string]struct {
		absence time.Duration
		want    error
		at      time.Duration // of the result
	}{
		"short absence": {10 * time.Second, nil, away + 10*time.Second},
		"long absence":  {time.Hour, dlock.ErrUnavailable, away + long},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				answer := func(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
					switch now := time.Since(d.begun); {
					case now < away:
						return nil, &backend.Busy{}
					case now < away+test.absence:
						return nil, errUnavailable
					}
					return d.grant(ctx, req)
				}
				d.acquires = repeat(10000, acquireStep(answer))
				c := open(t, d)
				first := lockBehind(t.Context(), c, "x", dlock.WithTTL(time.Second))
				synctest.Wait()
				second := lockBehind(t.Context(), c, "x", dlock.WithTTL(long))
				wantErr(t, (<-first).err, dlock.ErrUnavailable)
				got := <-second
				if !errors.Is(got.err, test.want) {
					t.Errorf("the error is %v, want %v", got.err, test.want)
				}
				wantAt(t, "the result", got.at.Sub(d.begun), test.at, 2*time.Second)
			})
		})
	}
}

// TestWaitingHereIsNoSilenceOfTheServer checks that the time in the local line does not count as
// silence of the server. The TTL for which a waiter tries begins with its first request.
func TestWaitingHereIsNoSilenceOfTheServer(t *testing.T) {
	for _, held := range []bool{true, false} {
		t.Run(fmt.Sprintf("held=%v", held), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				const away, back = 30 * time.Second, 33 * time.Second
				answer := func(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
					switch now := time.Since(d.begun); {
					case now >= back, now == 0 && held:
						return d.grant(ctx, req)
					case now >= away:
						return nil, errUnavailable
					}
					return nil, &backend.Busy{Queued: true}
				}
				d.acquires = repeat(1000, acquireStep(answer))
				c := open(t, d, dlock.WithTTL(ttl))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				first := lockBehind(ctx, c, "x")
				synctest.Wait()
				waiter := queueUp(t, c, "x", 1)[0]
				time.Sleep(away)
				if held {
					frees(t, (<-first).lease)
				}
				cancel()
				if got := <-waiter; got.err != nil {
					t.Error(got.err)
				}
			})
		})
	}
}

// TestPauseOfAPollerIsNoSilenceOfTheServer checks that the backoff of a poller does not count as
// silence of the server. A backoff may be longer than the TTL, and the TTL for which a waiter tries
// begins with the next request.
func TestPauseOfAPollerIsNoSilenceOfTheServer(t *testing.T) {
	for name, test := range map[string]struct {
		failures int
		want     error
	}{
		"short absence": {1, nil},
		"long absence":  {1000, dlock.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.caps.Notify = false
				refusal := busy(backend.Busy{RetryAfter: time.Minute})
				fails := func(ctx context.Context, _ *backend.Request) (*backend.Grant, error) {
					if ctx.Err() != nil {
						t.Error("there is no time for the attempt after the pause")
					}
					return nil, errUnavailable
				}
				d.acquires = append([]acquireStep{refusal},
					repeat(test.failures, acquireStep(fails))...)
				c := open(t, d, dlock.WithTTL(ttl), dlock.WithPollInterval(24*time.Hour))
				_, err := c.Lock(t.Context(), "x")
				if !errors.Is(err, test.want) {
					t.Errorf("the error is %v, want %v", err, test.want)
				}
				if took := time.Since(d.begun); took < time.Minute || took > time.Minute+2*ttl {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

func TestLockOutlivesAShortAbsence(t *testing.T) {
	for name, first := range map[string]acquireStep{
		"unreachable": acquireFails(errUnavailable),
		"unknown":     acquireFails(errServer),
		"silent":      acquireHangs,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.acquires = []acquireStep{first}
				c := open(t, d, dlock.WithTTL(ttl))
				lease := takes(t, c, "x")
				calls := d.of("acquire")
				if len(calls) != 2 || calls[0].owner != calls[1].owner || lease.Err() != nil {
					t.Errorf("the calls are %s", d.story())
				}
			})
		})
	}
}

func TestWaitThatFails(t *testing.T) {
	for _, test := range []struct {
		name  string
		err   error
		story string
		want  error
	}{
		{"unreachable", errUnavailable, "acquire wait acquire", nil},
		{"unknown", errServer, "acquire wait acquire", nil},
		{"conflict", backend.ErrConflict, "acquire wait", dlock.ErrConflict},
		{"lost", backend.ErrLost, "acquire wait acquire", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.acquires = []acquireStep{busy(backend.Busy{})}
				d.waits = []waitStep{waitFails(test.err)}
				_, err := open(t, d).Lock(t.Context(), "x")
				if !errors.Is(err, test.want) {
					t.Errorf("the error is %v, want %v", err, test.want)
				}
				wantStory(t, d, test.story)
			})
		})
	}
}

func TestDefiniteErrors(t *testing.T) {
	for _, definite := range []error{
		dlock.ErrConflict, dlock.ErrUnsupported, dlock.ErrInvalidName, dlock.ErrNotAcquired,
	} {
		t.Run(definite.Error(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.acquires = repeat(2, acquireFails(errors.Join(definite, errServer)))
				c := open(t, d)
				_, err := c.Lock(t.Context(), "x")
				wantErr(t, err, definite, errServer)
				_, err = c.TryLock(t.Context(), "x")
				wantErr(t, err, definite, errServer)
				synctest.Wait()
				wantStory(t, d, "acquire acquire")
			})
		})
	}
}

func TestOwnerOfAnExpiredGrantIsReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.acquires = []acquireStep{acquireFails(errServer), acquireFails(backend.ErrLost)}
		lease := takes(t, open(t, d), "x")
		calls := d.of("acquire")
		if calls[0].owner != calls[1].owner || calls[1].owner == calls[2].owner ||
			lease.Owner() != calls[2].owner {
			t.Error("want the same owner until its grant is lost, then a new owner")
		}
	})
}

// TestFirstAnswerIsALoss checks that an ErrLost in the first answer is definite: the next request
// has another owner, and nothing is released.
func TestFirstAnswerIsALoss(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.acquires = []acquireStep{acquireFails(backend.ErrLost)}
		lease := takes(t, open(t, d), "x")
		synctest.Wait()
		wantStory(t, d, "acquire acquire")
		calls := d.of("acquire")
		if calls[0].owner == lease.Owner() || calls[1].owner != lease.Owner() {
			t.Errorf("the owner is %q after %+v", lease.Owner(), calls)
		}
	})
}

// TestLostOwnerIsNotTransferred checks that no request reuses an owner whose grant has expired. The
// next local waiter does not reuse it either.
func TestLostOwnerIsNotTransferred(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.acquires = []acquireStep{busy(backend.Busy{Queued: true}), acquireFails(backend.ErrLost)}
		d.waits = []waitStep{lookAgain(time.Second)}
		c := open(t, d)
		owners := make(chan string)
		for range 2 {
			go func() {
				_ = c.Do(t.Context(), "x", func(_ context.Context, lease *dlock.Lease) error {
					owners <- lease.Owner()
					return nil
				})
			}()
			synctest.Wait()
		}
		usedUp := d.of("acquire")[0].owner
		for range 2 {
			if <-owners == usedUp {
				t.Error("an owner whose grant had expired holds the lock again")
			}
		}
	})
}

// TestUnknownAttemptIsUndoneUntilLate checks that the release of an unanswered attempt is repeated
// until Capabilities.Late. The server may execute the attempt as late as that.
func TestUnknownAttemptIsUndoneUntilLate(t *testing.T) {
	const late = 2 * time.Second
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.caps.Late = late
		d.acquires = []acquireStep{acquireFails(errServer)}
		lease := takes(t, open(t, d), "x")
		begun := time.Since(d.begun)
		frees(t, lease)
		time.Sleep(time.Minute)
		releases := d.of("release")
		if n := len(releases); n > 15 {
			t.Errorf("%d releases", n)
		}
		wantAt(t, "the last release", releases[len(releases)-1].at, begun+late, 0)
		for _, release := range releases {
			if release.owner != lease.Owner() {
				t.Error("a release names another owner")
			}
		}
	})
}

// TestLateExecutionIsUndoneSoon checks that a late execution does not last until Capabilities.Late.
// The server executes a cancelled attempt some time after its release; the next release comes after
// about twice that time.
func TestLateExecutionIsUndoneSoon(t *testing.T) {
	const late = 10 * time.Second
	for _, after := range []time.Duration{
		time.Millisecond, 10 * time.Millisecond, 300 * time.Millisecond, 9 * time.Second,
	} {
		t.Run(after.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.caps.Late = late
				d.acquires = []acquireStep{acquireHangs}
				d.releases = repeat(100, releaseFails(backend.ErrNotHeld))
				ctx, cancel := context.WithCancel(t.Context())
				lock := lockBehind(ctx, open(t, d), "x")
				synctest.Wait()
				cancel()
				wantErr(t, (<-lock).err, context.Canceled)
				executed := time.Since(d.begun) + after
				time.Sleep(time.Minute)
				for _, release := range d.of("release") {
					if release.at > executed {
						// The last interval is at most twice as long as all earlier intervals
						// together.
						wantAt(t, "undone", release.at-executed, 0, 2*after+4*time.Millisecond)
						return
					}
				}
				t.Error("the late execution was not released")
			})
		})
	}
}

func TestGivingUpAWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.acquires = []acquireStep{busy(backend.Busy{Queued: true, State: "entry"})}
		d.releases = []releaseStep{releaseFails(errServer), releaseFails(errUnavailable)}
		c := open(t, d)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		_, err := c.Lock(ctx, "x")
		wantAt(t, "returned", time.Since(begun), time.Second, 0)
		wantErr(t, err, context.DeadlineExceeded)
		wantNoErr(t, err, dlock.ErrUncertain, dlock.ErrUnavailable)
		if strings.Count(err.Error(), context.DeadlineExceeded.Error()) != 1 {
			t.Errorf("the error is %v", err)
		}
		time.Sleep(time.Minute)
		wantStory(t, d, "acquire wait release release release")
		for _, release := range d.of("release") {
			if release.state != "entry" || release.owner != d.of("acquire")[0].owner {
				t.Errorf("the release is %+v", release)
			}
		}
	})
}

func TestGivingUpAnAttempt(t *testing.T) {
	const late = 3 * time.Second
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.caps.Late = late
		d.acquires = []acquireStep{acquireHangs}
		d.releases = []releaseStep{releaseHangs, free, releaseFails(backend.ErrNotHeld)}
		c := open(t, d)
		ctx, cancel := context.WithCancelCause(t.Context())
		errTired := errors.New("tired")
		time.AfterFunc(time.Second, func() { cancel(errTired) })
		_, err := c.Lock(ctx, "x")
		wantAt(t, "returned", time.Since(d.begun), time.Second, 0)
		wantErr(t, err, context.Canceled, errTired, dlock.ErrUncertain)
		time.Sleep(time.Minute)
		releases := d.of("release")
		wantAt(t, "the last release", releases[len(releases)-1].at, releases[1].at+late, 0)
	})
}

func TestGivingUpWhereNothingWasLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.acquires = []acquireStep{busy(backend.Busy{})}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := open(t, d).Lock(ctx, "x")
		wantErr(t, err, context.DeadlineExceeded)
		time.Sleep(time.Minute)
		wantStory(t, d, "acquire wait")
	})
}

func TestTryLockWithoutAnAnswer(t *testing.T) {
	for _, test := range []struct {
		name string
		ttl  time.Duration
		took time.Duration
	}{
		{"at most 5 s", time.Minute, 5 * time.Second},
		{"at most the TTL", 2 * time.Second, 2 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.acquires = []acquireStep{acquireHangs}
				_, err := open(t, d).TryLock(t.Context(), "x", dlock.WithTTL(test.ttl))
				wantAt(t, "returned", time.Since(d.begun), test.took, 0)
				wantErr(t, err, dlock.ErrUncertain)
				wantNoErr(t, err, context.DeadlineExceeded, dlock.ErrNotAcquired)
				synctest.Wait()
				if n := len(d.of("release")); n == 0 {
					t.Error("the attempt of unknown outcome was not released")
				}
			})
		})
	}
}

func TestTryLockOfAnUnreachableServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.acquires = []acquireStep{acquireFails(errUnavailable)}
		_, err := open(t, d).TryLock(t.Context(), "x")
		wantErr(t, err, dlock.ErrUnavailable, errServer)
		wantNoErr(t, err, dlock.ErrUncertain)
		synctest.Wait()
		wantStory(t, d, "acquire")
	})
}

// TestLockReportsWhyTheServerDidNotAnswer checks the error of a Lock whose context has ended. The
// error names the newest unanswered request as its cause, unless the server has answered a later
// request.
func TestLockReportsWhyTheServerDidNotAnswer(t *testing.T) {
	t.Parallel()
	for answered, steps := range map[bool][]acquireStep{
		false: repeat(1000, acquireFails(errUnavailable)),
		true: append([]acquireStep{acquireFails(errUnavailable)},
			repeat(1000, busy(backend.Busy{}))...),
	} {
		synctest.Test(t, func(t *testing.T) {
			d := newScript()
			d.acquires = steps
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := open(t, d).Lock(ctx, "x")
			wantErr(t, err, context.DeadlineExceeded)
			if answered {
				wantNoErr(t, err, dlock.ErrUnavailable)
			} else {
				wantErr(t, err, dlock.ErrUnavailable, errServer)
			}
		})
	}
}

func TestTryLockOfALocalNameMakesNoRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		c := open(t, d)
		lease := takes(t, c, "x")
		_, err := c.TryLock(t.Context(), "x")
		wantErr(t, err, dlock.ErrNotAcquired)
		wantStory(t, d, "acquire")
		frees(t, lease)

		d.acquires = []acquireStep{busy(backend.Busy{})}
		ctx, cancel := context.WithCancel(t.Context())
		waiter := lockBehind(ctx, c, "x")
		synctest.Wait()
		_, err = c.TryLock(t.Context(), "x")
		wantErr(t, err, dlock.ErrNotAcquired)
		wantStory(t, d, "acquire release acquire wait")
		cancel()
		<-waiter
	})
}

func TestFencesOutOfBounds(t *testing.T) {
	for _, fence := range []uint64{0, backend.MaxFence} {
		t.Run(fmt.Sprint(fence), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				grant := func(_ context.Context, req *backend.Request) (*backend.Grant, error) {
					return &backend.Grant{Request: *req, Term: termOf(req.TTL), Fence: fence}, nil
				}
				d.acquires = []acquireStep{grant}
				_, err := open(t, d).Lock(t.Context(), "x")
				wantErr(t, err, dlock.ErrConflict)
				synctest.Wait()
				wantStory(t, d, "acquire release")
			})
		})
	}
}

// TestGrantThatIsGoneWhenItArrives checks that Lock starts again with a new owner if the driver
// reports a grant as lost before it returns the grant. The lost grant is released.
func TestGrantThatIsGoneWhenItArrives(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.acquires = []acquireStep{
			func(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
				req.Lost(backend.ErrLost)
				return d.grant(ctx, req)
			},
		}
		lease := takes(t, open(t, d), "x")
		synctest.Wait()
		acquires, releases := d.of("acquire"), d.of("release") // the release runs in the background
		if len(acquires) != 2 || len(releases) != 1 {
			t.Fatalf("%d acquires and %d releases, want 2 and 1", len(acquires), len(releases))
		}
		if gone := acquires[0].owner; lease.Owner() == gone || releases[0].owner != gone {
			t.Error("Lock reused the lost owner, or did not release it")
		}
	})
}

func TestDriverThatReturnsNothingToAcquire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.acquires = []acquireStep{
			func(context.Context, *backend.Request) (*backend.Grant, error) { return nil, nil },
		}
		_, err := open(t, d).TryLock(t.Context(), "x")
		wantErr(t, err, dlock.ErrUncertain)
	})
}

// TestNoForeignDeadline checks that an internal timeout does not appear as the end of a context.
// The caller finds only the end of its own context in an error.
func TestNoForeignDeadline(t *testing.T) {
	for _, test := range []struct {
		name string
		call func(ctx context.Context, c *dlock.Client, d *script) error
	}{
		{"Lock", func(ctx context.Context, c *dlock.Client, d *script) error {
			d.acquires = repeat(1000, acquireStep(acquireHangs))
			_, err := c.Lock(ctx, "x")
			return err
		}},
		{"TryLock", func(ctx context.Context, c *dlock.Client, d *script) error {
			d.acquires = []acquireStep{acquireHangs}
			_, err := c.TryLock(ctx, "x")
			return err
		}},
		{"Extend", func(ctx context.Context, c *dlock.Client, d *script) error {
			d.renews = []renewStep{renewHangs}
			lease, err := c.Lock(ctx, "x")
			return errors.Join(err, lease.Extend(ctx))
		}},
		{"Unlock", func(ctx context.Context, c *dlock.Client, d *script) error {
			d.releases = []releaseStep{releaseHangs}
			lease, err := c.Lock(ctx, "x")
			return errors.Join(err, lease.Unlock(ctx))
		}},
		{"Inspect", func(ctx context.Context, c *dlock.Client, _ *script) error {
			_, err := c.Inspect(ctx, "x")
			return err
		}},
		{"List", func(ctx context.Context, c *dlock.Client, _ *script) error {
			for _, err := range c.List(ctx, "x") {
				return err
			}
			return nil
		}},
		{"Break", func(ctx context.Context, c *dlock.Client, _ *script) error {
			return c.Break(ctx, "x", "")
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				timeout := func(context.Context) error {
					time.Sleep(5 * time.Second)
					return context.DeadlineExceeded
				}
				d.inspect = func(ctx context.Context) (*backend.Info, error) {
					return nil, timeout(ctx)
				}
				d.breakLock = timeout
				err := test.call(t.Context(), open(t, d), d)
				if !errors.Is(err, dlock.ErrUncertain) { // the request changed nothing
					wantErr(t, err, dlock.ErrUnavailable)
				}
				wantNoErr(t, err, context.DeadlineExceeded, context.Canceled)
			})
		})
	}
}

// TestCallersDeadlineIsItsOwn checks that the error after the caller's deadline is the context's
// error, not an internal timeout, whichever timer fires first.
func TestCallersDeadlineIsItsOwn(t *testing.T) {
	for name, call := range map[string]func(context.Context, *dlock.Client, *dlock.Lease) error{
		"Extend": func(ctx context.Context, _ *dlock.Client, lease *dlock.Lease) error {
			return lease.Extend(ctx)
		},
		"Lock": func(ctx context.Context, c *dlock.Client, _ *dlock.Lease) error {
			_, err := c.Lock(ctx, "y")
			return err
		},
		"TryLock": func(ctx context.Context, c *dlock.Client, _ *dlock.Lease) error {
			_, err := c.TryLock(ctx, "y")
			return err
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
				c := open(t, d, dlock.WithTTL(time.Hour))
				lease := takes(t, c, "x", dlock.WithoutRenewal())
				d.renews = repeat(50, renewStep(renewHangs))
				d.acquires = repeat(50, busy(backend.Busy{}))
				if name == "TryLock" {
					d.acquires = repeat(50, acquireStep(acquireHangs))
				}
				for range 50 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					err := call(ctx, c, lease)
					cancel()
					if !errors.Is(err, context.DeadlineExceeded) {
						t.Fatalf("the error is %v", err)
					}
				}
			})
		})
	}
}

// tardy is a context whose timer is late: its deadline is over, but it has not ended.
type tardy struct {
	context.Context
	deadline time.Time
}

func (c tardy) Deadline() (time.Time, bool) { return c.deadline, true }

// TestCallersDeadlineBeforeItsTimer checks that the caller's deadline is recognized before its
// timer fires. A socket with the same deadline may return an error first.
func TestCallersDeadlineBeforeItsTimer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.renews = []renewStep{func(context.Context, *backend.Grant) (backend.Term, error) {
			time.Sleep(time.Second)
			return backend.Term{}, os.ErrDeadlineExceeded
		}}
		lease := takes(t, open(t, d), "x")
		err := lease.Extend(tardy{t.Context(), time.Now().Add(time.Second)})
		wantErr(t, err, context.DeadlineExceeded)
		wantNoErr(t, err, dlock.ErrUnavailable)
	})
}

// TestNoForeignDeadlineInUnavailable checks that an internal timeout stays hidden in
// ErrUnavailable. A driver that cannot connect in time wraps the end of the core's timeout.
func TestNoForeignDeadlineInUnavailable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		timeout := fmt.Errorf("%w: dial: %w", backend.ErrUnavailable, context.DeadlineExceeded)
		d.acquires = []acquireStep{acquireFails(timeout)}
		d.breakLock = func(context.Context) error { return timeout }
		c := open(t, d)
		_, err := c.TryLock(t.Context(), "x")
		wantErr(t, err, dlock.ErrUnavailable)
		wantNoErr(t, err, context.DeadlineExceeded)
		err = c.Break(t.Context(), "x", "")
		wantErr(t, err, dlock.ErrUnavailable)
		wantNoErr(t, err, context.DeadlineExceeded)
	})
}

// TestContextOfAnotherLease calls Lock with a context whose cause is the end of another client's
// lease. Lock returns the end of its context, not ErrClosed, ErrNotHeld or ErrLost.
func TestContextOfAnotherLease(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(c *dlock.Client, d *script, lease *dlock.Lease) error
		not  error
		text string
	}{
		{
			"closed", func(c *dlock.Client, _ *script, _ *dlock.Lease) error { return c.Close() },
			dlock.ErrClosed, "client closed",
		},
		{
			"unlocked", func(_ *dlock.Client, _ *script, lease *dlock.Lease) error {
				return lease.Unlock(context.Background())
			},
			dlock.ErrNotHeld, "lock not held",
		},
		{
			"lost", func(_ *dlock.Client, d *script, _ *dlock.Lease) error {
				d.of("acquire")[0].req.Lost(backend.ErrLost)
				return nil
			},
			dlock.ErrLost, "lock lost: the server reported that it is gone",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				a, b := open(t, d), open(t, newScript())
				lease := takes(t, a, "x")
				ctx, cancel := lease.Context(t.Context())
				defer cancel()
				if err := test.end(a, d, lease); err != nil {
					t.Fatal(err)
				}
				_, err := b.Lock(ctx, "y")
				wantErr(t, err, context.Canceled)
				wantNoErr(t, err, test.not)
				if !strings.HasSuffix(err.Error(), ": context canceled: "+test.text) {
					t.Errorf("the error is %v", err)
				}
			})
		})
	}
}

// TestRenewalInTheBackground checks that Lock does not wait for a background renewal, although the
// scheduler may begin it before Lock returns.
func TestRenewalInTheBackground(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for range 300 {
			d := newScript()
			d.acquires = []acquireStep{busy(backend.Busy{})}
			d.waits = []waitStep{waitGrants(d, 0, time.Second)}
			proveSlowly := func(ctx context.Context, g *backend.Grant) (backend.Term, error) {
				time.Sleep(time.Second)
				return prove(ctx, g)
			}
			d.renews = repeat(3, renewStep(proveSlowly))
			c := open(t, d, dlock.WithTTL(ttl))
			begun := time.Now()
			lease := takes(t, c, "x")
			if took := time.Since(begun); took > 0 {
				t.Fatalf("Lock took %v", took)
			}
			frees(t, lease)
			closes(t, c)
		}
	})
}

// TestGrantThroughWaitWithoutRenewal has a grant with the short term of a queue entry, and a server
// that does not answer the first renewal. The lease still gets its whole TTL, because nothing
// renews it later.
func TestGrantThroughWaitWithoutRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.acquires = []acquireStep{busy(backend.Busy{Queued: true})}
		d.waits = []waitStep{waitGrants(d, time.Second, 0)}
		d.renews = []renewStep{renewFails(errUnavailable)}
		c := open(t, d, dlock.WithTTL(ttl))
		lease := takes(t, c, "x", dlock.WithoutRenewal())
		if left := time.Until(lease.Deadline()); left < life {
			t.Errorf("%v are left of the lease, want %v", left, life)
		}
		if n := len(d.of("acquire")); n != 1 {
			t.Errorf("%d requests: the waiter has lost its place", n)
		}
		frees(t, lease)
	})
}

// TestWaitWithAnUnknownOutcome checks that an attempt whose Wait failed is cleaned up, because the
// server may have granted it, and that the error of Lock says so.
func TestWaitWithAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.acquires = repeat(100, busy(backend.Busy{}))
		d.waits = []waitStep{waitFails(errServer)}
		c := open(t, d)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := c.Lock(ctx, "x")
		wantErr(t, err, context.DeadlineExceeded, dlock.ErrUncertain)
		closes(t, c)
		if n := len(d.of("release")); n == 0 {
			t.Errorf("nothing was released: %s", d.story())
		}
	})
}

// TestUncertainIsNotUnavailable checks that the error of a request without an answer does not wrap
// ErrUnavailable, which means that the request was not executed.
func TestUncertainIsNotUnavailable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.acquires = []acquireStep{acquireHangs}
		d.breakLock = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		c := open(t, d)
		_, err := c.TryLock(t.Context(), "x")
		wantErr(t, err, dlock.ErrUncertain)
		wantNoErr(t, err, dlock.ErrUnavailable)
		err = c.Break(t.Context(), "x", "")
		wantErr(t, err, dlock.ErrUncertain)
		wantNoErr(t, err, dlock.ErrUnavailable)
	})
}
