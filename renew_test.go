package dlock_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

func TestRenewalAThirdIntoTheTerm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		lease := takes(t, open(t, d, dlock.WithTTL(ttl)), "x")
		times := map[time.Duration]bool{}
		last := time.Duration(0)
		time.Sleep(10 * time.Minute)
		for _, renew := range d.of("renew") {
			pause := renew.at - last
			last = renew.at
			times[pause] = true
			if pause < life/3-life/30 || pause > life/3+life/30 {
				t.Errorf("renewed after %v, the term is trusted for %v", pause, life)
			}
		}
		if len(times) < 50 {
			t.Errorf("%d different intervals: they have no jitter", len(times))
		}
		wantAt(t, "the deadline", lease.Deadline().Sub(d.begun), last+life, 0)
		frees(t, lease)
		before := len(d.of("renew"))
		time.Sleep(time.Hour)
		if len(d.of("renew")) != before {
			t.Error("renewed after Unlock")
		}
	})
}

func TestWithoutRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		lease := takes(t, open(t, d), "x", dlock.WithTTL(ttl), dlock.WithoutRenewal())
		<-lease.Lost()
		wantAt(t, "lost", time.Since(d.begun), life, 0)
		wantStory(t, d, "acquire")
	})
}

// TestRenewalCountsFromItsSending checks that neither a slow answer nor an older proof prolongs a
// lease beyond the server's promise.
func TestRenewalCountsFromItsSending(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.renews = []renewStep{
			func(ctx context.Context, g *backend.Grant) (backend.Term, error) {
				term, err := prove(ctx, g)
				time.Sleep(2 * time.Second)
				return term, err
			},
			// The proof of a session can be older.
			func(_ context.Context, g *backend.Grant) (backend.Term, error) {
				return backend.Term{Sent: d.begun, TTL: g.TTL}, nil
			},
		}
		lease := takes(t, open(t, d, dlock.WithTTL(ttl), dlock.WithoutRenewal()), "x")
		time.Sleep(time.Second)
		for range 2 {
			if err := lease.Extend(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantAt(t, "the deadline", lease.Deadline().Sub(d.begun), time.Second+life, 0)
		}
	})
}

// TestProofsOfASession checks renewals by proofs that are no newer than the last contact of a
// session. After an old proof the next renewal comes after 50 ms, or after a tenth of a short term.
func TestProofsOfASession(t *testing.T) {
	for _, test := range []struct{ ttl, pause time.Duration }{
		{ttl, 50 * time.Millisecond},
		{310 * time.Millisecond, 29690 * time.Microsecond},
	} {
		t.Run(test.ttl.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				answer := func(_ context.Context, g *backend.Grant) (backend.Term, error) {
					contact := time.Since(d.begun).Truncate(g.TTL / 2)
					return backend.Term{Sent: d.begun.Add(contact), TTL: g.TTL}, nil
				}
				d.renews = repeat(10000, renewStep(answer))
				lease := takes(t, open(t, d, dlock.WithTTL(test.ttl)), "x")
				time.Sleep(6 * test.ttl)
				if lease.Err() != nil {
					t.Error(lease.Err())
				}
				renews := d.of("renew")
				shortest := time.Minute
				for i := range renews[1:] {
					shortest = min(shortest, renews[i+1].at-renews[i].at)
				}
				if n := len(renews); n < 12 || n > 600 || shortest != test.pause {
					t.Errorf("%d renewals, the shortest interval is %v, want %v",
						n, shortest, test.pause)
				}
			})
		})
	}
}

func TestFailingRenewalsAreRepeatedUntilTheDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.renews = repeat(1000, renewFails(errServer))
		lease := takes(t, open(t, d, dlock.WithTTL(ttl)), "x")
		<-lease.Lost()
		wantAt(t, "lost", time.Since(d.begun), life, 0)
		renews := d.of("renew")
		var pauses []time.Duration
		for i := range renews[1:] {
			pauses = append(pauses, renews[i+1].at-renews[i].at)
		}
		if !slices.IsSorted(pauses) || pauses[0] > 200*time.Millisecond ||
			pauses[len(pauses)-1] > ttl/10 {
			t.Errorf("the backoffs are %v", pauses)
		}
		time.Sleep(time.Hour)
		if len(d.of("renew")) != len(renews) {
			t.Error("renewed after the loss")
		}
	})
}

// TestBackoffRestarts checks that a renewal which succeeds resets the backoff.
func TestBackoffRestarts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		fails := renewFails(errServer)
		d.renews = []renewStep{fails, fails, fails, fails, prove, fails, fails}
		lease := takes(t, open(t, d, dlock.WithTTL(time.Minute)), "x")
		time.Sleep(time.Minute)
		frees(t, lease)
		renews := d.of("renew")
		first, again := renews[1].at-renews[0].at, renews[6].at-renews[5].at
		if grown := renews[4].at - renews[3].at; again != first || grown <= first {
			t.Errorf("the first backoffs are %v and %v, the fourth is %v", first, again, grown)
		}
	})
}

func TestRenewalThatRecovers(t *testing.T) {
	for name, fails := range map[string]renewStep{
		"fails": renewFails(errServer),
		"hangs": renewHangs,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.renews = []renewStep{fails}
				lease := takes(t, open(t, d, dlock.WithTTL(ttl)), "x")
				time.Sleep(time.Minute)
				if lease.Err() != nil {
					t.Error(lease.Err())
				}
			})
		})
	}
}

func TestRenewalThatReturnsErrLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.renews = []renewStep{prove, renewFails(backend.ErrLost)}
		lease := takes(t, open(t, d, dlock.WithTTL(ttl)), "x")
		<-lease.Lost()
		if at := time.Since(d.begun); at != d.of("renew")[1].at {
			t.Errorf("lost at %v", at)
		}
		wantErr(t, lease.Unlock(t.Context()), dlock.ErrLost)
		time.Sleep(time.Hour)
		wantStory(t, d, "acquire renew renew")
	})
}

// TestOnceLostAlwaysLost checks that a renewal under way at the loss does not revive the lease if
// it succeeds. The renewed grant is released when the former term is over: the holder has not
// called Unlock, and may need that time to stop.
func TestOnceLostAlwaysLost(t *testing.T) {
	for _, delay := range []time.Duration{0, 2 * time.Second} {
		t.Run(fmt.Sprintf("lock-delay %v", delay), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const answered = life + 50*time.Millisecond
				d := newScript()
				c := open(t, d, dlock.WithTTL(ttl), dlock.WithLockDelay(delay),
					dlock.WithoutRenewal())
				lease := takes(t, c, "x")
				d.renews = []renewStep{
					func(_ context.Context, g *backend.Grant) (backend.Term, error) {
						term := termOf(g.TTL)
						time.Sleep(answered - time.Since(d.begun))
						return term, nil
					},
				}
				time.Sleep(8 * time.Second)
				extended := make(chan error)
				go func() { extended <- lease.Extend(t.Context()) }()
				<-lease.Lost()
				wantAt(t, "lost", time.Since(d.begun), life, 0)
				wantErr(t, <-extended, dlock.ErrLost)
				wantErr(t, lease.Err(), dlock.ErrLost)
				time.Sleep(time.Hour)
				wantStory(t, d, "acquire renew release")
				wantAt(t, "released", d.of("release")[0].at, ttl+delay, 0)
			})
		})
	}
}

// TestRenewalUnderWayAtUnlock checks that the answer to a renewal under way at Unlock is neither a
// loss nor a proof.
func TestRenewalUnderWayAtUnlock(t *testing.T) {
	for _, answer := range []error{nil, backend.ErrLost, errServer} {
		t.Run(fmt.Sprint(answer), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.renews = []renewStep{
					func(ctx context.Context, g *backend.Grant) (backend.Term, error) {
						time.Sleep(time.Second)
						return termOf(g.TTL), answer
					},
				}
				var ends []error
				c := open(t, d, dlock.WithTTL(ttl), dlock.WithObserver(&dlock.Observer{
					Renewed: func(dlock.Event) { t.Error("a renewal was reported") },
					Ended:   func(e dlock.Event) { ends = append(ends, e.Err) },
				}))
				lease := takes(t, c, "x")
				time.Sleep(life/3 + life/30)
				frees(t, lease)
				time.Sleep(time.Hour)
				synctest.Wait()
				wantErr(t, lease.Err(), dlock.ErrNotHeld)
				wantStory(t, d, "acquire renew release")
				if len(ends) != 1 || ends[0] != nil {
					t.Errorf("the observer received %v", ends)
				}
			})
		})
	}
}

// TestWaitersDelayNoRenewal checks that neither waiters nor their hanging requests delay a renewal.
func TestWaitersDelayNoRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		c := open(t, d, dlock.WithTTL(ttl))
		lease := takes(t, c, "held")
		silence := repeat(10000, acquireStep(acquireHangs))
		d.acquires = append(repeat(100, busy(backend.Busy{})), silence...)
		ctx, cancel := context.WithCancel(t.Context())
		var waiters []<-chan result
		for i := range 200 {
			waiters = append(waiters, lockBehind(ctx, c, fmt.Sprint(i)))
		}
		time.Sleep(life/3 + life/30)
		synctest.Wait()
		if n := len(d.of("renew")); n != 1 {
			t.Errorf("%d renewals", n)
		}
		time.Sleep(time.Minute)
		if lease.Err() != nil {
			t.Error(lease.Err())
		}
		cancel()
		for _, waiter := range waiters {
			<-waiter
		}
	})
}

func TestRenewalsThatHangDelayNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		answer := func(ctx context.Context, g *backend.Grant) (backend.Term, error) {
			if g.Key == "sick" {
				return renewHangs(ctx, g)
			}
			return prove(ctx, g)
		}
		d.renews = repeat(1000, renewStep(answer))
		c := open(t, d)
		sick := takes(t, c, "sick", dlock.WithTTL(ttl))
		sound := takes(t, c, "sound", dlock.WithTTL(ttl/5))
		<-sick.Lost()
		wantAt(t, "lost", time.Since(d.begun), life, 0)
		if sound.Err() != nil {
			t.Error(sound.Err())
		}
	})
}

// proveAll renews each of gs.
func proveAll(gs []*backend.Grant) []backend.Renewal {
	renewals := make([]backend.Renewal, len(gs))
	for i, g := range gs {
		renewals[i].Term = termOf(g.TTL)
	}
	return renewals
}

func TestRenewalsAreBatched(t *testing.T) {
	const held = 1000
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.renewAll = proveAll
		c := open(t, batching{d}, dlock.WithTTL(ttl))
		for i := range held {
			takes(t, c, fmt.Sprint(i))
		}
		time.Sleep(ttl - 1)
		renewed := 0
		for _, call := range d.of("renew-all") {
			renewed += call.size
		}
		if n := len(d.of("renew-all")); n > 12 || renewed < 2*held || renewed > 3*held {
			t.Errorf("%d renewals in %d requests", renewed, n)
		}
		if n := len(d.of("renew")); n > 0 {
			t.Errorf("%d single renewals", n)
		}
	})
}

func TestBatchesAreOfOneTTL(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.renewAll = func(gs []*backend.Grant) []backend.Renewal {
			for _, g := range gs {
				if g.TTL != gs[0].TTL {
					t.Errorf("TTLs %v and %v in one batch", g.TTL, gs[0].TTL)
				}
			}
			return proveAll(gs)
		}
		c := open(t, batching{d})
		var leases []*dlock.Lease
		for i := range 40 {
			opt := dlock.WithTTL([]time.Duration{ttl, ttl + time.Second}[i%2])
			leases = append(leases, takes(t, c, fmt.Sprint(i), opt))
		}
		time.Sleep(time.Minute)
		for _, lease := range leases {
			if lease.Err() != nil {
				t.Error(lease.Err())
			}
		}
	})
}

func TestPartOfABatchFails(t *testing.T) {
	for _, test := range []struct {
		name string
		err  error
		lost time.Duration // the earliest time of the loss
	}{
		{"lost", backend.ErrLost, life / 4},
		{"unknown", errServer, life},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.renewAll = func(gs []*backend.Grant) []backend.Renewal {
					renewals := proveAll(gs)
					i := slices.IndexFunc(gs, func(g *backend.Grant) bool { return g.Key == "bad" })
					if i >= 0 {
						renewals[i].Err = test.err
					}
					return renewals
				}
				c := open(t, batching{d}, dlock.WithTTL(ttl))
				good, bad := takes(t, c, "good"), takes(t, c, "bad")
				<-bad.Lost()
				wantErr(t, bad.Err(), dlock.ErrLost)
				if at := time.Since(d.begun); at < test.lost || at > test.lost+life/4 {
					t.Errorf("lost at %v", at)
				}
				time.Sleep(time.Minute)
				if good.Err() != nil {
					t.Error(good.Err())
				}
			})
		})
	}
}

// TestBatchWithTooFewAnswers checks that a grant without an answer counts as not renewed, and that
// it is then renewed alone.
func TestBatchWithTooFewAnswers(t *testing.T) {
	for _, failures := range []int{3, 1000} {
		t.Run(fmt.Sprint(failures), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.renewAll = func([]*backend.Grant) []backend.Renewal { return nil }
				d.renews = repeat(failures, renewFails(errServer))
				lease := takes(t, open(t, batching{d}, dlock.WithTTL(ttl)), "x")
				time.Sleep(life)
				story := d.story()
				if lost := lease.Err() != nil; lost != (failures > 3) ||
					!strings.HasPrefix(story, "acquire renew-all renew renew renew") {
					t.Errorf("the calls are %s: %v", story, lease.Err())
				}
			})
		})
	}
}

// TestBatchThatDoesNotReturn has a driver that does not return from a batch with one of its locks.
// All locks are renewed alone then. Only two calls of the driver are left, and what they return in
// the end has no effect.
func TestBatchThatDoesNotReturn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		end := make(chan struct{})
		var stuck, returned atomic.Int32
		d.renewAll = func(gs []*backend.Grant) []backend.Renewal {
			isBad := func(g *backend.Grant) bool { return g.Key == "bad" }
			if !slices.ContainsFunc(gs, isBad) {
				return proveAll(gs)
			}
			stuck.Add(1)
			<-end
			defer returned.Add(1)
			return slices.Repeat([]backend.Renewal{{Err: backend.ErrLost}}, len(gs))
		}
		c := open(t, batching{d}, dlock.WithTTL(ttl))
		leases := []*dlock.Lease{takes(t, c, "bad")}
		for i := range 10 {
			leases = append(leases, takes(t, c, fmt.Sprint(i)))
		}
		time.Sleep(time.Hour)
		close(end)
		synctest.Wait()
		if n := stuck.Load(); n != 2 || returned.Load() != n {
			t.Errorf("%d calls did not return, want 2; %d returned late", n, returned.Load())
		}
		for _, lease := range leases {
			if err := lease.Err(); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestBatchesGoOnAfterAnAccident checks that locks are renewed in batches again after one batch
// without an answer.
func TestBatchesGoOnAfterAnAccident(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.renewAll = func(gs []*backend.Grant) []backend.Renewal {
			if len(d.of("renew-all"))%5 == 1 {
				return nil
			}
			return proveAll(gs)
		}
		lease := takes(t, open(t, batching{d}, dlock.WithTTL(ttl)), "x")
		time.Sleep(10 * time.Minute)
		frees(t, lease)
		batches, single := len(d.of("renew-all")), len(d.of("renew"))
		if single == 0 || batches < 4*single {
			t.Errorf("%d batches and %d single renewals, want a fifth of them", batches, single)
		}
	})
}

// TestExtendDuringARenewal checks that an Extend which fails starts no second renewal while the
// scheduler's renewal is under way, even if the next event is planned meanwhile. Unlock plans it:
// the minimum hold goes on.
func TestExtendDuringARenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.renews = []renewStep{renewHangs, renewFails(errServer)}
		c := open(t, d, dlock.WithTTL(ttl), dlock.WithMinHold(time.Minute))
		lease := takes(t, c, "x")
		time.Sleep(life/3 + life/30)
		wantErr(t, lease.Extend(t.Context()), errServer)
		frees(t, lease)
		time.Sleep(ttl / 5) // the first renewal is still under way
		wantStory(t, d, "acquire renew renew")
	})
}

// TestLockDelayLeavesTimeForASecondRenewal checks that the timeout of a renewal depends on the
// lease's TTL, not on the longer TTL in the request.
func TestLockDelayLeavesTimeForASecondRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.renews = []renewStep{renewHangs}
		lease := takes(t, open(t, d), "x",
			dlock.WithTTL(3*time.Second), dlock.WithLockDelay(time.Minute))
		time.Sleep(time.Minute)
		if err := lease.Err(); err != nil {
			t.Error(err)
		}
	})
}

// TestFailingExtendsDelayNoRenewal checks that calls of Extend which the caller gives up do not
// postpone the renewals of the scheduler.
func TestFailingExtendsDelayNoRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.renews = repeat(10_000, renewStep(
			func(ctx context.Context, g *backend.Grant) (backend.Term, error) {
				select {
				case <-time.After(10 * time.Millisecond):
					return termOf(g.TTL), nil
				case <-ctx.Done():
					return backend.Term{}, ctx.Err()
				}
			}))
		lease := takes(t, open(t, d, dlock.WithTTL(ttl)), "x")
		for time.Since(d.begun) < 2*ttl {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			_ = lease.Extend(ctx)
			cancel()
			time.Sleep(45 * time.Millisecond)
		}
		wantErr(t, lease.Err(), nil)
		frees(t, lease)
	})
}
