package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/membackend"
)

func TestDeadlineCountsFromTheSending(t *testing.T) {
	for _, test := range []struct {
		name  string
		ttl   time.Duration
		delay time.Duration
		trip  time.Duration
		want  time.Duration // from the sending of the request
	}{
		{"TTL less the margin", 10 * time.Second, 0, 0, 9890 * time.Millisecond},
		{"a slow answer", 10 * time.Second, 0, 2 * time.Second, 9890 * time.Millisecond},
		{"lock-delay", 10 * time.Second, 3 * time.Second, time.Second, 9890 * time.Millisecond},
		{"short", time.Second, 0, 0, 980 * time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.acquires = []acquireStep{
					func(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
						grant, err := d.grant(ctx, req)
						time.Sleep(test.trip)
						return grant, err
					},
				}
				c := open(t, d, dlock.WithTTL(test.ttl), dlock.WithLockDelay(test.delay),
					dlock.WithoutRenewal())
				lease := takes(t, c, "x")
				if asked := d.of("acquire")[0].req.TTL; asked != test.ttl+test.delay {
					t.Errorf("the request has the TTL %v", asked)
				}
				wantAt(t, "the deadline", lease.Deadline().Sub(d.begun), test.want, 0)
				<-lease.Lost()
				wantAt(t, "the loss", time.Since(d.begun), test.want, 0)
			})
		})
	}
}

func TestTermAsGranted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.acquires = []acquireStep{
			func(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
				grant, err := d.grant(ctx, req)
				grant.Term.TTL = 20 * time.Second // the server rounds up
				return grant, err
			},
		}
		lease := takes(t, open(t, d), "x", dlock.WithTTL(ttl))
		const want = 20*time.Second - 210*time.Millisecond
		wantAt(t, "the deadline", time.Until(lease.Deadline()), want, 0)
	})
}

func TestLossAtTheDeadlineAndNotBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.renews = repeat(1000, renewFails(errUnavailable))
		c := open(t, d, dlock.WithTTL(ttl))
		lease := takes(t, c, "x")
		ctx, cancel := lease.Context(t.Context())
		defer cancel()
		deadline := lease.Deadline()
		time.Sleep(life - 1)
		synctest.Wait()
		if lease.Err() != nil || ctx.Err() != nil || ended(lease.Lost()) {
			t.Error("lost before the deadline")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		wantErr(t, lease.Err(), dlock.ErrLost)
		wantErr(t, context.Cause(ctx), dlock.ErrLost)
		if !ended(lease.Lost()) {
			t.Error("Lost is open after the deadline")
		}
		if !lease.Deadline().Equal(deadline) {
			t.Error("the deadline of a lost lease moved")
		}
		wantErr(t, lease.Unlock(t.Context()), dlock.ErrLost)
		wantErr(t, lease.Unlock(t.Context()), dlock.ErrNotHeld)
		wantErr(t, lease.Err(), dlock.ErrLost)
	})
}

// TestErrComparesTheClocksItself checks that Err does not depend on the scheduler.
func TestErrComparesTheClocksItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := open(t, newScript(), dlock.WithTTL(ttl), dlock.WithoutRenewal())
		lease := takes(t, c, "x")
		time.Sleep(life) // the scheduler wakes in the same instant
		wantErr(t, lease.Err(), dlock.ErrLost)
		ctx, cancel := lease.Context(t.Context())
		defer cancel()
		wantErr(t, context.Cause(ctx), dlock.ErrLost)
	})
}

// TestLostLeaseIsReleasedWhenItsTermIsOver checks the release of a lost lease. On a server with
// sessions nothing else would free the lock.
func TestLostLeaseIsReleasedWhenItsTermIsOver(t *testing.T) {
	for _, test := range []struct {
		name string
		opts []dlock.Option
		want time.Duration
	}{
		{"without renewal", []dlock.Option{dlock.WithoutRenewal()}, life},
		{
			"with a lock-delay",
			[]dlock.Option{dlock.WithoutRenewal(), dlock.WithLockDelay(time.Second)},
			ttl + time.Second,
		},
		{
			"maximum hold",
			[]dlock.Option{dlock.WithoutRenewal(), dlock.WithMaxHold(time.Second)},
			time.Second,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.releases = []releaseStep{releaseFails(errUnavailable)}
				lease := takes(t, open(t, d, dlock.WithTTL(ttl)), "x", test.opts...)
				<-lease.Lost()
				wantErr(t, lease.Unlock(t.Context()), dlock.ErrLost)
				time.Sleep(time.Minute)
				wantStory(t, d, "acquire release release")
				wantAt(t, "released", d.of("release")[0].at, test.want, 0)
			})
		})
	}
}

func TestLossReportedByTheServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		c := open(t, d)
		lease := takes(t, c, "x")
		ctx, cancel := lease.Context(t.Context())
		defer cancel()
		lost := d.of("acquire")[0].req.Lost
		lost(errServer)
		lost(backend.ErrLost)
		wantErr(t, lease.Err(), dlock.ErrLost)
		wantErr(t, context.Cause(ctx), dlock.ErrLost)
		<-lease.Lost()
		wantErr(t, lease.Extend(t.Context()), dlock.ErrLost)
		wantErr(t, lease.Unlock(t.Context()), dlock.ErrLost)
		time.Sleep(time.Hour)
		wantStory(t, d, "acquire")
	})
}

func TestLossFreesTheNextLocalWaiter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		c := open(t, d)
		lease := takes(t, c, "x")
		waiter := lockBehind(t.Context(), c, "x")
		synctest.Wait()
		d.of("acquire")[0].req.Lost(backend.ErrLost)
		got := <-waiter
		if got.err != nil || got.lease.Fence() <= lease.Fence() {
			t.Errorf("%v; fences %d, %d", got.err, lease.Fence(), got.lease.Fence())
		}
	})
}

func TestLostAfterTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		lease := takes(t, open(t, d), "x")
		frees(t, lease)
		d.of("acquire")[0].req.Lost(backend.ErrLost)
		wantErr(t, lease.Err(), dlock.ErrNotHeld)
		wantNoErr(t, lease.Err(), dlock.ErrLost)
	})
}

func TestContextOfALease(t *testing.T) {
	type key struct{}
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lease := takes(t, open(t, newScript()), "x")
		parent, end := context.WithTimeout(context.WithValue(t.Context(), key{}, "v"), time.Hour)
		defer end()
		ctx, cancel := lease.Context(parent)
		other, cancelOther := lease.Context(parent)
		defer cancelOther()
		want, _ := parent.Deadline()
		if got, ok := ctx.Deadline(); !ok || !got.Equal(want) || ctx.Value(key{}) != "v" {
			t.Error("the context lacks the deadline or a value of its parent")
		}
		cancel()
		cancel()
		if ctx.Err() == nil || !errors.Is(context.Cause(ctx), context.Canceled) ||
			other.Err() != nil || lease.Err() != nil {
			t.Errorf("after cancel: %v, the other %v, the lease %v",
				context.Cause(ctx), other.Err(), lease.Err())
		}
		frees(t, lease)
		wantErr(t, context.Cause(other), dlock.ErrNotHeld)
		late, cancelLate := lease.Context(parent)
		defer cancelLate()
		wantErr(t, context.Cause(late), dlock.ErrNotHeld)
	})
}

func TestContextEndsWithItsParent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lease := takes(t, open(t, newScript()), "x")
		parent, end := context.WithCancelCause(t.Context())
		ctx, cancel := lease.Context(parent)
		defer cancel()
		end(errServer)
		wantErr(t, context.Cause(ctx), errServer)
		if lease.Err() != nil || ended(lease.Lost()) {
			t.Error("the lease ended with the parent of its context")
		}
		frees(t, lease)
	})
}

func TestLeaseDoesNotEndWithTheContextOfItsLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		lease, err := open(t, newScript(), dlock.WithTTL(ttl)).Lock(ctx, "x")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if lease.Err() != nil {
			t.Error(lease.Err())
		}
	})
}

func TestZeroLeaseIsAFake(t *testing.T) {
	t.Parallel()
	var lease dlock.Lease
	ctx, cancel := lease.Context(t.Context())
	if lease.Err() != nil || lease.Lost() != nil || lease.Fence() != 0 ||
		lease.Name() != "" || lease.Owner() != "" ||
		!lease.Deadline().IsZero() || ctx.Err() != nil {
		t.Error("the zero Lease is not simply held")
	}
	cancel()
	if ctx.Err() == nil {
		t.Error("the context of the zero Lease cannot be cancelled")
	}
	err := errors.Join(
		lease.Extend(t.Context()), lease.Unlock(t.Context()), lease.Unlock(t.Context()))
	if err != nil {
		t.Error(err)
	}
}

func TestExtend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		c := open(t, d, dlock.WithTTL(ttl), dlock.WithoutRenewal())
		lease := takes(t, c, "x")
		for range 5 {
			time.Sleep(life - 1)
			if err := lease.Extend(t.Context()); err != nil {
				t.Fatal(err)
			}
			wantAt(t, "the deadline", time.Until(lease.Deadline()), life, 0)
		}
		d.renews = []renewStep{renewFails(errUnavailable)}
		deadline := lease.Deadline()
		time.Sleep(time.Second)
		err := lease.Extend(t.Context())
		wantErr(t, err, dlock.ErrUnavailable, errServer)
		if lease.Err() != nil || !lease.Deadline().Equal(deadline) {
			t.Error("a failed Extend ended or prolonged the lease")
		}
		d.renews = []renewStep{renewFails(backend.ErrLost)}
		wantErr(t, lease.Extend(t.Context()), dlock.ErrLost)
		wantErr(t, lease.Err(), dlock.ErrLost)
	})
}

func TestExtendOfAnEndedLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		c := open(t, d)
		lease := takes(t, c, "x")
		frees(t, lease)
		wantErr(t, lease.Extend(t.Context()), dlock.ErrNotHeld)
		wantStory(t, d, "acquire release")
	})
}

func TestExtendEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.renews = []renewStep{renewHangs}
		lease := takes(t, open(t, d), "x")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantErr(t, lease.Extend(ctx), context.DeadlineExceeded)
		wantAt(t, "returned", time.Since(d.begun), time.Second, 0)
		if lease.Err() != nil {
			t.Error(lease.Err())
		}
	})
}

// weakly is a driver that remembers its grants by weak pointers.
type weakly struct {
	backend.Driver
	grants []weak.Pointer[backend.Grant]
}

func (w *weakly) Acquire(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
	grant, err := w.Driver.Acquire(ctx, req)
	w.grants = append(w.grants, weak.Make(grant))
	return grant, err
}

// TestNothingKeepsAnEndedLease checks that a long-lived client keeps no memory of its ended leases.
func TestNothingKeepsAnEndedLease(t *testing.T) {
	t.Parallel()
	for name, atOnce := range map[string]int{"one at a time": 1, "many at a time": 100} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := &weakly{Driver: membackend.New(&membackend.Options{Space: t.Name()})}
			c := open(t, d)
			for range 100 / atOnce {
				leases := make([]*dlock.Lease, atOnce)
				for i := range leases {
					lease, err := c.Lock(t.Context(), fmt.Sprint(i)) // takes would keep a reference
					if err != nil {
						t.Fatal(err)
					}
					leases[i] = lease
				}
				for _, lease := range leases {
					frees(t, lease)
				}
			}
			kept := 0
			for range 5 {
				runtime.GC()
				kept = 0
				for _, grant := range d.grants {
					if grant.Value() != nil {
						kept++
					}
				}
			}
			if kept > 1 { // a register may still refer to the last grant
				t.Errorf("%d of %d grants are still referenced", kept, len(d.grants))
			}
			closes(t, c)
		})
	}
}
