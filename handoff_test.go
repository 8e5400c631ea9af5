package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// queueUp starts n waiters, one after the other, so that their order in the line is known.
func queueUp(
	t *testing.T, c *dlock.Client, name string, n int, opts ...dlock.Option,
) []<-chan result {
	t.Helper()
	var waiters []<-chan result
	for range n {
		waiters = append(waiters, lockBehind(t.Context(), c, name, opts...))
		synctest.Wait()
	}
	return waiters
}

func TestHandOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		c := open(t, d)
		lease := takes(t, c, "x")
		raw := lease.Fence() >> 12
		for i, waiter := range queueUp(t, c, "x", 5) {
			frees(t, lease)
			got := <-waiter // first come, first served
			if got.err != nil {
				t.Fatal(got.err)
			}
			if got.lease.Fence() != raw<<12+uint64(i)+1 || got.lease.Owner() != lease.Owner() {
				t.Errorf("hand-off %d has the fence %x", i, got.lease.Fence())
			}
			wantErr(t, lease.Err(), dlock.ErrNotHeld)
			wantErr(t, lease.Unlock(t.Context()), dlock.ErrNotHeld)
			if got.lease.Err() != nil || ended(got.lease.Lost()) {
				t.Error("the new lease ended with the old lease")
			}
			lease = got.lease
		}
		frees(t, lease)
		wantStory(t, d, "acquire release")
	})
}

// TestConditionsOfHandOff checks each condition of a hand-off separately.
func TestConditionsOfHandOff(t *testing.T) {
	with := func(opts ...dlock.Option) []dlock.Option { return opts }
	shortTTL := with(dlock.WithTTL(500 * time.Millisecond))
	for _, test := range []struct {
		name         string
		first, later []dlock.Option
		held         time.Duration
		passes       bool
	}{
		{"all hold", nil, nil, 0, true},
		{"other TTL", with(dlock.WithTTL(ttl)), nil, 0, false},
		{"other lock-delay", nil, with(dlock.WithLockDelay(time.Second)), 0, false},
		{"other meta", nil, with(dlock.WithMeta("other")), 0, false},
		{"the holder is fair", with(dlock.WithFair()), nil, 0, false},
		{"the waiter is fair", nil, with(dlock.WithFair()), 0, false},
		{"the holder is not renewed", with(dlock.WithoutRenewal()), nil, 0, false},
		{"the waiter is not renewed", nil, with(dlock.WithoutRenewal()), 0, false},
		{"the waiter has a minimum hold", nil, with(dlock.WithMinHold(time.Second)), 0, false},
		{
			"the holder has had its minimum hold",
			with(dlock.WithMinHold(1)), nil, time.Millisecond, false,
		},
		{"off for the holder", with(dlock.WithLocalHandoff(0)), nil, 0, false},
		{"off for the waiter", nil, with(dlock.WithLocalHandoff(0)), 0, false},
		{"other limit", with(dlock.WithLocalHandoff(3)), with(dlock.WithLocalHandoff(5)), 0, true},
		{"a maximum hold", with(dlock.WithMaxHold(time.Minute)), nil, 0, true},
		{"a reentrant waiter", nil, with(dlock.WithReentrant()), 0, true},
		{"young enough", nil, nil, 100*time.Millisecond - 1, true},
		{"too old", nil, nil, 100 * time.Millisecond, false},
		{"short TTL, young enough", shortTTL, shortTTL, 50*time.Millisecond - 1, true},
		{"short TTL, too old", shortTTL, shortTTL, 50 * time.Millisecond, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				c := open(t, d)
				lease := takes(t, c, "x", test.first...)
				waiter := queueUp(t, c, "x", 1, test.later...)[0]
				time.Sleep(test.held)
				frees(t, lease)
				got := <-waiter
				if got.err != nil {
					t.Fatal(got.err)
				}
				synctest.Wait()
				story := "acquire release acquire"
				if test.passes {
					story = "acquire"
				}
				wantStory(t, d, story)
				if got.lease.Fence() <= lease.Fence() {
					t.Errorf("the fences are %d, %d", lease.Fence(), got.lease.Fence())
				}
			})
		})
	}
}

func TestHandOffNeedsHalfOfTheTerm(t *testing.T) {
	for _, sent := range []time.Duration{ttl/2 - 1, ttl / 2} {
		t.Run(fmt.Sprint(sent), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.acquires = []acquireStep{sentBefore(d, sent)}
				d.renews = repeat(10, renewFails(errServer)) // the first renewal is already due
				c := open(t, d, dlock.WithTTL(ttl))
				lease := takes(t, c, "x")
				waiter := queueUp(t, c, "x", 1)[0]
				frees(t, lease)
				if got := <-waiter; got.err != nil {
					t.Fatal(got.err)
				}
				if passed := len(d.of("release")) == 0; passed != (sent < ttl/2) {
					t.Errorf("the grant was handed off: %v", passed)
				}
			})
		})
	}
}

func TestHandOffsAreCounted(t *testing.T) {
	for _, n := range []int{1, 3, 16} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				c := open(t, d, dlock.WithLocalHandoff(n))
				lease := takes(t, c, "x")
				fence := lease.Fence()
				for _, waiter := range queueUp(t, c, "x", 2*(n+1)-1) {
					frees(t, lease)
					lease = (<-waiter).lease
					if lease.Fence() <= fence {
						t.Errorf("the fence after %d is %d", fence, lease.Fence())
					}
					fence = lease.Fence()
				}
				frees(t, lease)
				wantStory(t, d, "acquire release acquire release")
			})
		})
	}
}

// TestHandedOffLeaseIsRenewed checks that a handed-off lease is renewed once, in time.
func TestHandedOffLeaseIsRenewed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		c := open(t, d, dlock.WithTTL(ttl))
		lease := takes(t, c, "x")
		waiter := queueUp(t, c, "x", 1)[0]
		frees(t, lease)
		lease = (<-waiter).lease
		time.Sleep(life / 2)
		if n := len(d.of("renew")); n != 1 {
			t.Errorf("%d renewals", n)
		}
		time.Sleep(time.Minute)
		if lease.Err() != nil {
			t.Error(lease.Err())
		}
	})
}

// TestRenewalUnderWayAtHandOff checks that the answer to a renewal applies to the holder that has
// the grant when the answer arrives.
func TestRenewalUnderWayAtHandOff(t *testing.T) {
	for _, answer := range []error{nil, backend.ErrLost} {
		t.Run(fmt.Sprint(answer), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				// The term began so long ago that the first renewal is due.
				d.acquires = []acquireStep{sentBefore(d, 4*time.Second)}
				d.renews = []renewStep{
					func(_ context.Context, g *backend.Grant) (backend.Term, error) {
						term := termOf(g.TTL)
						time.Sleep(time.Second)
						return term, answer
					},
				}
				c := open(t, d, dlock.WithTTL(ttl))
				lease := takes(t, c, "x")
				waiter := queueUp(t, c, "x", 1)[0]
				frees(t, lease)
				next := (<-waiter).lease
				wantStory(t, d, "acquire renew")
				time.Sleep(time.Second + 1)
				if !errors.Is(next.Err(), answer) {
					t.Errorf("Err of the new lease is %v, want %v", next.Err(), answer)
				}
				if answer == nil {
					wantAt(t, "the deadline", next.Deadline().Sub(d.begun), life, 0)
				}
				wantErr(t, lease.Err(), dlock.ErrNotHeld)
			})
		})
	}
}

func TestBreakAfterHandOffs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		c := open(t, d)
		lease := takes(t, c, "x")
		first := lease
		for _, waiter := range queueUp(t, c, "x", 3) {
			frees(t, lease)
			lease = (<-waiter).lease
		}
		d.of("acquire")[0].req.Lost(backend.ErrLost)
		wantErr(t, lease.Err(), dlock.ErrLost)
		wantErr(t, lease.Unlock(t.Context()), dlock.ErrLost)
		wantErr(t, first.Unlock(t.Context()), dlock.ErrNotHeld)
		wantStory(t, d, "acquire")
	})
}

func TestMaxHoldBeginsWithTheHandOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		c := open(t, d, dlock.WithMaxHold(time.Minute))
		lease := takes(t, c, "x")
		waiter := queueUp(t, c, "x", 1)[0]
		time.Sleep(50 * time.Millisecond)
		frees(t, lease)
		next := (<-waiter).lease
		<-next.Lost()
		wantAt(t, "lost", time.Since(d.begun), time.Minute+50*time.Millisecond, 0)
	})
}

// TestTargetCancelledInTheSameInstant cancels a waiter in the instant in which it receives the
// grant. The waiter passes the grant on or releases it. The test cannot choose which event comes
// first for the waiter, so it tries both orders in turn.
func TestTargetCancelledInTheSameInstant(t *testing.T) {
	for _, others := range []int{0, 1} {
		t.Run(fmt.Sprintf("others=%d", others), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for round := range 200 {
					d := newScript()
					c := open(t, d)
					lease := takes(t, c, "x")
					ctx, cancel := context.WithCancel(t.Context())
					target := lockBehind(ctx, c, "x")
					synctest.Wait()
					rest := queueUp(t, c, "x", others)
					if round%2 == 0 {
						cancel()
					}
					frees(t, lease)
					cancel()
					if got := <-target; got.err == nil {
						frees(t, got.lease)
					} else {
						wantErr(t, got.err, context.Canceled)
					}
					for _, waiter := range rest {
						got := <-waiter
						if got.err != nil || got.lease.Err() != nil {
							t.Fatal("the grant was dropped")
						}
						frees(t, got.lease)
					}
					synctest.Wait()
					wantStory(t, d, "acquire release")
					_ = c.Close()
				}
			})
		})
	}
}

func TestLocalQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		c := open(t, d, dlock.WithLocalHandoff(0))
		lease := takes(t, c, "x")
		order := make(chan int, 100)
		var waiters sync.WaitGroup
		for i := range 100 {
			waiters.Go(func() {
				err := c.Do(t.Context(), "x", func(context.Context, *dlock.Lease) error {
					order <- i
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		if n := len(d.of("acquire")); n != 1 {
			t.Errorf("%d requests while the lock is held here", n)
		}
		frees(t, lease)
		for i := range 100 {
			if got := <-order; got != i {
				t.Errorf("waiter %d was served instead of waiter %d", got, i)
			}
		}
		waiters.Wait()
	})
}

func TestCancelledInTheLocalQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		c := open(t, d, dlock.WithLocalHandoff(0))
		lease := takes(t, c, "x")
		ctx, cancel := context.WithCancel(t.Context())
		quitter := lockBehind(ctx, c, "x")
		synctest.Wait()
		waiter := queueUp(t, c, "x", 1)[0]
		cancel()
		got := <-quitter
		wantErr(t, got.err, context.Canceled)
		wantNoErr(t, got.err, dlock.ErrUncertain)
		wantStory(t, d, "acquire")
		frees(t, lease)
		if got := <-waiter; got.err != nil {
			t.Error(got.err)
		}
		wantStory(t, d, "acquire release acquire")
	})
}

// TestCancelledFrontLeavesItsQueueEntry checks that a cancelled front of the line leaves its queue
// entry to the next waiter if that waiter's request is equal.
func TestCancelledFrontLeavesItsQueueEntry(t *testing.T) {
	for _, test := range []struct {
		name  string
		later []dlock.Option
		keeps bool
	}{
		{"equal", nil, true},
		{
			"equal for the server",
			[]dlock.Option{dlock.WithMaxHold(time.Hour), dlock.WithoutRenewal()},
			true,
		},
		{"other TTL", []dlock.Option{dlock.WithTTL(ttl)}, false},
		{"other lock-delay", []dlock.Option{dlock.WithLockDelay(time.Second)}, false},
		{"other meta", []dlock.Option{dlock.WithMeta("other")}, false},
		{"fair", []dlock.Option{dlock.WithFair()}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.acquires = repeat(2, busy(backend.Busy{Queued: true, State: "entry"}))
				d.waits = []waitStep{waitForEver, lookAgain(time.Second)}
				c := open(t, d)
				ctx, cancel := context.WithCancel(t.Context())
				head := lockBehind(ctx, c, "x")
				synctest.Wait()
				waiter := queueUp(t, c, "x", 1, test.later...)[0]
				cancel()
				wantErr(t, (<-head).err, context.Canceled)
				got := <-waiter
				if got.err != nil {
					t.Fatal(got.err)
				}
				first := d.of("acquire")[0].owner
				if kept := got.lease.Owner() == first; kept != test.keeps {
					t.Errorf("the entry was kept: %v", kept)
				}
				synctest.Wait()
				if released := len(d.of("release")) == 1; released == test.keeps {
					t.Errorf("the calls are %s", d.story())
				}
				if !test.keeps {
					return
				}
				d.of("acquire")[0].req.Lost(backend.ErrLost)
				wantErr(t, got.lease.Err(), dlock.ErrLost)
			})
		})
	}
}

// TestLostQueueEntryIsNotTransferred checks that no waiter takes over a lost queue entry, because
// its owner must not be reused.
func TestLostQueueEntryIsNotTransferred(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.acquires = []acquireStep{busy(backend.Busy{Queued: true, State: "entry"})}
		c := open(t, d)
		ctx, cancel := context.WithCancel(t.Context())
		head := lockBehind(ctx, c, "x")
		synctest.Wait()
		waiter := queueUp(t, c, "x", 1)[0]
		lost := d.of("acquire")[0]
		lost.req.Lost(backend.ErrLost)
		cancel()
		wantErr(t, (<-head).err, context.Canceled)
		if got := <-waiter; got.err != nil || got.lease.Owner() == lost.owner {
			t.Errorf("%v: the lost owner %q is reused", got.err, lost.owner)
		}
	})
}

// TestSuccessorGivesUpToo checks that a waiter which takes over a queue entry and is cancelled as
// well releases the entry.
func TestSuccessorGivesUpToo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.acquires = repeat(10, busy(backend.Busy{Queued: true, State: "entry"}))
		c := open(t, d)
		ctx, cancel := context.WithCancel(t.Context())
		var waiters []<-chan result
		for range 5 {
			waiters = append(waiters, lockBehind(ctx, c, "x"))
			synctest.Wait()
		}
		cancel()
		for _, waiter := range waiters {
			wantErr(t, (<-waiter).err, context.Canceled)
		}
		time.Sleep(time.Hour)
		owners := map[string]bool{}
		for _, call := range d.of("") {
			owners[call.owner] = true
		}
		releases := d.of("release")
		if len(releases) != 1 || releases[0].state != "entry" || len(owners) != 1 {
			t.Errorf("%d owners; the calls are %s", len(owners), d.story())
		}
	})
}
