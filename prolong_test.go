package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// lateGrant prepares d for a grant that comes through Wait, and has to be renewed before Lock
// returns a lease WithoutRenewal. No later attempt has an answer.
func lateGrant(d *script, ttl time.Duration, renewal renewStep) {
	var term backend.Term
	d.acquires = append([]acquireStep{
		func(_ context.Context, req *backend.Request) (*backend.Grant, error) {
			term = termOf(req.TTL)
			return nil, &backend.Busy{Queued: true}
		},
	}, repeat(999, acquireStep(acquireHangs))...)
	d.waits = []waitStep{
		func(_ context.Context, req *backend.Request, _ *backend.Busy) (*backend.Grant, error) {
			time.Sleep(ttl / 10)
			return &backend.Grant{Request: *req, Fence: 1, Term: term}, nil
		},
	}
	d.renews = repeat(999, renewal)
}

// TestProlongationEndsWithTheSilence checks that a waiter WithoutRenewal does not go on to renew a
// late grant when the server has been silent for a TTL, also if its lock-delay makes the term long.
// Every such renewal could be executed, and keep the lock without a holder.
func TestProlongationEndsWithTheSilence(t *testing.T) {
	t.Parallel()
	for _, delay := range []time.Duration{0, time.Second, 10 * time.Minute} {
		t.Run(fmt.Sprint(delay), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const ttl = 3 * time.Second
				d := newScript()
				hangs := func(ctx context.Context, g *backend.Grant) (backend.Term, error) {
					if ctx.Err() != nil {
						t.Error("a renewal began after its end")
					}
					return renewHangs(ctx, g)
				}
				lateGrant(d, ttl, hangs)
				got := <-lockBehind(t.Context(), open(t, d, dlock.WithTTL(ttl)), "x",
					dlock.WithoutRenewal(), dlock.WithLockDelay(delay))
				wantErr(t, got.err, dlock.ErrUnavailable)
				wantAt(t, "Lock has returned", got.at.Sub(d.begun), ttl, 0)
			})
		})
	}
}

// TestRefusedRenewalIsTheCause has a server that refuses to renew a late grant until the waiter
// gives up, a TTL after the last answer. The error of Lock has the reason of the refusals.
func TestRefusedRenewalIsTheCause(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{50 * time.Millisecond, 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			full := fmt.Errorf("%w: the disk is full", backend.ErrUnavailable)
			d := newScript()
			lateGrant(d, ttl, renewFails(full))
			got := <-lockBehind(t.Context(), open(t, d, dlock.WithTTL(ttl)), "x",
				dlock.WithoutRenewal())
			wantErr(t, got.err, dlock.ErrUnavailable, full)
			wantAt(t, "Lock has returned", got.at.Sub(d.begun), ttl, 0)
			if acquires := d.of("acquire"); len(acquires) > 1 {
				t.Errorf("%d attempts, want 1: the silence is over", len(acquires))
			}
		})
	}
}

// TestRefusalIsTheCauseAfterALoss has a server that refuses to renew a late grant until the term is
// over, and does not answer the attempt that follows. The error of Lock has the reason of the
// refusals, although the attempt has another owner.
func TestRefusalIsTheCauseAfterALoss(t *testing.T) {
	t.Parallel()
	for _, opts := range [][]dlock.Option{nil, {dlock.WithoutRenewal()}} {
		synctest.Test(t, func(t *testing.T) {
			const ttl, answered = 3 * time.Second, 2 * time.Second
			full := fmt.Errorf("%w: the disk is full", backend.ErrUnavailable)
			d := newScript()
			d.acquires = append([]acquireStep{
				slowly(answered, busy(backend.Busy{Queued: true})),
			}, repeat(9, acquireStep(acquireHangs))...)
			d.waits = []waitStep{waitGrants(d, ttl/10, ttl*98/100)}
			d.renews = []renewStep{func(context.Context, *backend.Grant) (backend.Term, error) {
				time.Sleep(ttl / 20)
				return backend.Term{}, full
			}}
			got := <-lockBehind(t.Context(), open(t, d, dlock.WithTTL(ttl)), "x", opts...)
			wantErr(t, got.err, dlock.ErrUnavailable, full)
			wantAt(t, "Lock has returned", got.at.Sub(d.begun), answered+ttl, 0)
			if owners := d.of("acquire"); owners[0].owner == owners[1].owner {
				t.Error("the second attempt has the same owner")
			}
		})
	}
}

// TestContextEndsDuringAProlongation checks the error of a Lock whose context ends while a late
// grant is renewed. It has the reason of a refusal. Without an answer the outcome is unknown.
func TestContextEndsDuringAProlongation(t *testing.T) {
	t.Parallel()
	full := fmt.Errorf("%w: the disk is full", backend.ErrUnavailable)
	for name, test := range map[string]struct {
		renewal renewStep
		want    []error
	}{
		"refused":   {renewFails(full), []error{dlock.ErrUnavailable, full}},
		"no answer": {renewHangs, []error{dlock.ErrUncertain}},
		"cut off":   {renewFails(errServer), []error{dlock.ErrUncertain}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const ttl = 3 * time.Second
				d := newScript()
				lateGrant(d, ttl, test.renewal)
				ctx, cancel := context.WithTimeout(t.Context(), ttl/2)
				defer cancel()
				_, err := open(t, d, dlock.WithTTL(ttl)).Lock(ctx, "x", dlock.WithoutRenewal())
				wantErr(t, err, append(test.want, context.DeadlineExceeded)...)
				if refused := errors.Is(err, full); refused == errors.Is(err, dlock.ErrUncertain) {
					t.Errorf("the error is %v; the server refused the request: %t", err, refused)
				}
				synctest.Wait()
				if len(d.of("release")) == 0 {
					t.Error("the grant was not released")
				}
			})
		})
	}
}

// TestPanickingErrorOfALateRenewal has a driver that returns a nil pointer as the error of a
// renewal. That costs the renewal, and not the goroutine of the user.
func TestPanickingErrorOfALateRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.acquires = []acquireStep{busy(backend.Busy{Queued: true})}
		d.waits = []waitStep{waitGrants(d, 0, ttl*8/10)}
		d.renews = []renewStep{renewFails((*net.OpError)(nil))}
		frees(t, takes(t, open(t, d, dlock.WithTTL(ttl)), "x"))
	})
}

// TestSilenceIsNotCountedTwice loses a few grants in a row, and then every answer. The renewal of
// the last grant lasts until the end of the silence, which does not begin again after the backoff.
func TestSilenceIsNotCountedTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const ttl, losses = 3 * time.Second, 8
		d := newScript()
		var answered time.Time
		var term backend.Term
		d.acquires = append(repeat(losses+1, acquireStep(
			func(context.Context, *backend.Request) (*backend.Grant, error) {
				term = termOf(ttl)
				time.Sleep(ttl * 3 / 10)
				answered = time.Now()
				return nil, &backend.Busy{Queued: true}
			},
		)), repeat(9, acquireStep(acquireHangs))...)
		d.waits = repeat(losses+1, waitStep(
			func(_ context.Context, req *backend.Request, _ *backend.Busy) (*backend.Grant, error) {
				time.Sleep(ttl * 4 / 10)
				return &backend.Grant{Request: *req, Fence: 1, Term: term}, nil
			}))
		d.renews = append(repeat(losses, renewFails(backend.ErrLost)),
			repeat(9, renewStep(renewHangs))...)
		got := <-lockBehind(t.Context(), open(t, d, dlock.WithTTL(ttl)), "x")
		wantErr(t, got.err, dlock.ErrUnavailable)
		wantAt(t, "Lock has returned", got.at.Sub(answered), ttl, ttl/5)
	})
}

// TestHintLeavesTimeForAnAttempt has the shortest TTL and a server that needs 20 ms for an answer,
// and says when the holder's term ends. The jitter after that time leaves time for the answer.
func TestHintLeavesTimeForAnAttempt(t *testing.T) {
	t.Parallel()
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			d := newScript()
			d.acquires = repeat(10, slowly(20*time.Millisecond,
				busy(backend.Busy{Queued: true, RetryAfter: 15 * time.Millisecond})))
			frees(t, takes(t, open(t, d, dlock.WithTTL(50*time.Millisecond)), "x"))
		})
	}
}

// TestNoProlongationAfterTheEnd checks that no renewal of a late grant begins after the context of
// Lock has ended, or after Close has begun.
func TestNoProlongationAfterTheEnd(t *testing.T) {
	t.Parallel()
	for _, closes := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			const ttl = 3 * time.Second
			d := newScript()
			renewals := 0
			lateGrant(d, ttl, func(ctx context.Context, _ *backend.Grant) (backend.Term, error) {
				renewals++
				if ctx.Err() != nil {
					t.Errorf("closes: %t: a renewal began after the end", closes)
				}
				return backend.Term{}, fmt.Errorf("%w: the disk is full", backend.ErrUnavailable)
			})
			c := open(t, d, dlock.WithTTL(ttl))
			ctx, cancel := context.WithTimeout(t.Context(), ttl/2)
			defer cancel()
			if closes {
				ctx = t.Context()
				time.AfterFunc(ttl/2, func() { _ = c.Close() })
			}
			if _, err := c.Lock(ctx, "x", dlock.WithoutRenewal()); err == nil || renewals < 2 {
				t.Errorf("closes: %t: %v, after %d renewals", closes, err, renewals)
			}
		})
	}
}

// TestNilBusy checks that a driver that returns a nil Busy makes no caller panic. The error counts
// as a request without an answer, so Lock repeats it.
func TestNilBusy(t *testing.T) {
	t.Parallel()
	nilBusy := (*backend.Busy)(nil)
	for _, err := range []error{nilBusy, fmt.Errorf("no result: %w", nilBusy)} {
		for _, inWait := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.acquires = []acquireStep{acquireFails(err)}
				if inWait {
					d.acquires = []acquireStep{busy(backend.Busy{Queued: true})}
					d.waits = []waitStep{waitFails(err)}
				}
				c := open(t, d, dlock.WithTTL(ttl))
				lease, err := c.Lock(t.Context(), "x")
				if err != nil {
					t.Fatalf("in Wait: %t: %v", inWait, err)
				}
				frees(t, lease)
			})
		}
	}
}

// TestProlongationWithoutAResult has a driver that returns neither a term nor an error when a late
// grant is renewed. The error of Lock says so, as after any other request.
func TestProlongationWithoutAResult(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const ttl = 3 * time.Second
		d := newScript()
		lateGrant(d, ttl, func(context.Context, *backend.Grant) (backend.Term, error) {
			return backend.Term{}, nil
		})
		got := <-lockBehind(t.Context(), open(t, d, dlock.WithTTL(ttl)), "x",
			dlock.WithoutRenewal())
		if text := "neither a result nor an error"; got.err == nil ||
			!strings.Contains(got.err.Error(), text) {
			t.Errorf("the error is %v, want %q in it", got.err, text)
		}
	})
}

// TestPauseOfAProlongation checks the pauses between the renewals of a late grant that a server
// refuses. With a long TTL they are no longer than those between the attempts of a waiter.
func TestPauseOfAProlongation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const ttl, longest = 10 * time.Minute, 1100 * time.Millisecond
		d := newScript()
		lateGrant(d, ttl, renewFails(errUnavailable))
		got := <-lockBehind(t.Context(), open(t, d, dlock.WithTTL(ttl)), "x",
			dlock.WithoutRenewal())
		wantErr(t, got.err, dlock.ErrUnavailable)
		renewals := d.of("renew")
		for i, r := range renewals[1:] {
			if pause := r.at - renewals[i].at; pause > longest {
				t.Fatalf("renewal %d came %v after the one before, want %v at most", i+2, pause,
					longest)
			}
		}
	})
}

// TestPauseEndsWithTheTerm has a late grant whose renewals are refused until its term is over. The
// waiter then tries again at once, under another owner, because the server has not been silent for
// a TTL.
func TestPauseEndsWithTheTerm(t *testing.T) {
	t.Parallel()
	for range 20 { // the pauses are random
		synctest.Test(t, func(t *testing.T) {
			const ttl, answered = 3 * time.Second, time.Second
			d := newScript()
			d.acquires = []acquireStep{slowly(answered, busy(backend.Busy{Queued: true}))}
			d.waits = []waitStep{waitGrants(d, ttl/10, answered+ttl/10)}
			d.renews = repeat(999, renewFails(errUnavailable))
			frees(t, takes(t, open(t, d, dlock.WithTTL(ttl)), "x", dlock.WithoutRenewal()))
			wantAt(t, "the second attempt", d.of("acquire")[1].at, ttl, 0)
		})
	}
}

// TestLateDriverEndsTheSilenceOnce has a driver that returns too late from each renewal of a late
// grant, as if the process had been stopped. The silence of the server begins again only once: the
// lock-delay would otherwise be the limit.
func TestLateDriverEndsTheSilenceOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const ttl, late = 3 * time.Second, 3 * time.Second / 5
		d := newScript()
		lateGrant(d, ttl, func(ctx context.Context, _ *backend.Grant) (backend.Term, error) {
			<-ctx.Done()
			time.Sleep(late)
			return backend.Term{}, ctx.Err()
		})
		got := <-lockBehind(t.Context(), open(t, d, dlock.WithTTL(ttl)), "x",
			dlock.WithoutRenewal(), dlock.WithLockDelay(10*time.Minute))
		wantErr(t, got.err, dlock.ErrUnavailable)
		wantAt(t, "Lock has returned", got.at.Sub(d.begun), 2*(ttl+late), 0)
	})
}

// TestNoOwnerAfterTheSilence loses a few grants in a row, and then one whose renewal the server
// refuses late. The silence ends during the backoff that follows. No request is sent after it, and
// the error of Lock has the reason of the refusal.
func TestNoOwnerAfterTheSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const ttl, losses = 3 * time.Second, 8
		full := fmt.Errorf("%w: the disk is full", backend.ErrUnavailable)
		d := newScript()
		var answered time.Time
		d.acquires = repeat(losses+1, acquireStep(
			func(context.Context, *backend.Request) (*backend.Grant, error) {
				answered = time.Now()
				return nil, &backend.Busy{Queued: true}
			},
		))
		d.waits = repeat(losses+1, waitGrants(d, ttl*3/10, ttl*2/3))
		d.renews = append(repeat(losses, renewFails(backend.ErrLost)),
			func(context.Context, *backend.Grant) (backend.Term, error) {
				time.Sleep(ttl * 65 / 100)
				return backend.Term{}, full
			})
		got := <-lockBehind(t.Context(), open(t, d, dlock.WithTTL(ttl)), "x")
		wantErr(t, got.err, dlock.ErrUnavailable, full)
		if n := len(d.of("acquire")); n != losses+1 {
			t.Errorf("%d attempts, want %d", n, losses+1)
		}
		wantAt(t, "Lock has returned", got.at.Sub(answered), ttl, 0)
	})
}

// TestNextWaiterHasTheCauseOfTheSilence has a server that refuses the renewals of a late grant for
// a TTL. The error of the next waiter names the refusal, although that waiter sends no request or
// has no answer.
func TestNextWaiterHasTheCauseOfTheSilence(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		joins time.Duration
		text  string
	}{
		"no request": {0, "another Lock of this client has tried for a TTL: "},
		"no answer":  {time.Second, "no answer in time, after: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const ttl = 3 * time.Second
				full := fmt.Errorf("%w: the disk is full", backend.ErrUnavailable)
				d := newScript()
				lateGrant(d, ttl, renewFails(full))
				c := open(t, d, dlock.WithTTL(ttl), dlock.WithoutRenewal())
				first := lockBehind(t.Context(), c, "x")
				synctest.Wait()
				time.Sleep(test.joins)
				second := queueUp(t, c, "x", 2)
				wantErr(t, (<-first).err, full)
				for _, waiter := range second {
					got := <-waiter
					wantErr(t, got.err, dlock.ErrUnavailable, full)
					if !strings.Contains(got.err.Error(), test.text) {
						t.Errorf("the error is %v, want %q in it", got.err, test.text)
					}
					wantAt(t, "the waiter gave up", got.at.Sub(d.begun), test.joins+ttl, 0)
					test.text = "another Lock of this client has tried for a TTL: "
				}
			})
		})
	}
}

// TestEndOfALateRenewal checks the error of a Lock that ends while it renews a late grant, whose
// time is then over. Without an answer to the renewal the outcome is unknown.
func TestEndOfALateRenewal(t *testing.T) {
	t.Parallel()
	refuses := func(ctx context.Context, _ *backend.Grant) (backend.Term, error) {
		<-ctx.Done()
		return backend.Term{}, errUnavailable
	}
	for name, test := range map[string]struct {
		renewal renewStep
		closes  bool
		want    []error
	}{
		"no answer": {renewHangs, false, []error{context.DeadlineExceeded, dlock.ErrUncertain}},
		"closed":    {renewHangs, true, []error{dlock.ErrClosed, dlock.ErrUncertain}},
		"refused":   {refuses, false, []error{context.DeadlineExceeded}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const ttl, ends = 3 * time.Second, time.Second / 2
				d := newScript()
				d.acquires = []acquireStep{busy(backend.Busy{Queued: true})}
				d.waits = []waitStep{waitGrants(d, 0, ttl*95/100)}
				d.renews = []renewStep{test.renewal}
				c := open(t, d, dlock.WithTTL(ttl))
				ctx, cancel := context.WithTimeout(t.Context(), ends)
				defer cancel()
				if test.closes {
					ctx = t.Context()
					time.AfterFunc(ends, func() { _ = c.Close() })
				}
				_, err := c.Lock(ctx, "x")
				wantErr(t, err, test.want...)
				if name == "refused" && errors.Is(err, dlock.ErrUncertain) {
					t.Errorf("the error is %v, but the server refused the request", err)
				}
			})
		})
	}
}

// TestLossAfterARefusedLateRenewal has a late grant that the server refuses to renew before Lock
// returns the lease. If no later renewal has an answer, the reason of the loss is that refusal. If
// one succeeds, it is not.
func TestLossAfterARefusedLateRenewal(t *testing.T) {
	t.Parallel()
	for _, succeeds := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			const text = "the last renewal failed: dlock: backend unavailable: the disk is full"
			full := fmt.Errorf("%w: the disk is full", backend.ErrUnavailable)
			d := newScript()
			d.acquires = []acquireStep{busy(backend.Busy{Queued: true})}
			d.waits = []waitStep{waitGrants(d, 0, ttl*8/10)}
			d.renews = []renewStep{renewFails(full)}
			var opts []dlock.Option
			if succeeds {
				opts = append(opts, dlock.WithoutRenewal())
			} else {
				d.renews = append(d.renews, repeat(9, renewStep(renewHangs))...)
			}
			lease := takes(t, open(t, d, dlock.WithTTL(ttl)), "x", opts...)
			<-lease.Lost()
			err := lease.Err()
			wantErr(t, err, dlock.ErrLost)
			if has := strings.Contains(err.Error(), text); has == succeeds {
				t.Errorf("succeeds: %t: the reason is %v", succeeds, err)
			}
		})
	}
}
