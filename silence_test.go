package dlock_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/membackend"
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
		d.acquires = []acquireStep{busy(backend.Busy{}), slowly(latency, d.grant)}
		d.waits = []waitStep{
			func(context.Context, *backend.Request, *backend.Busy) (*backend.Grant, error) {
				time.Sleep(ttl - latency/2)
				return nil, nil
			},
		}
		frees(t, takes(t, open(t, d, dlock.WithTTL(ttl)), "x"))
	})
}

// TestLateDriverIsSilent has a driver that returns after the end of its context each time. One late
// return is a stop of the process, and no silence of the server. Many are a silence.
func TestLateDriverIsSilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		late := func(ctx context.Context, _ *backend.Request) (*backend.Grant, error) {
			end, _ := ctx.Deadline()
			time.Sleep(time.Until(end) + ttl/10)
			return nil, ctx.Err()
		}
		d.acquires = repeat(100, acquireStep(late))
		got := <-lockBehind(t.Context(), open(t, d, dlock.WithTTL(ttl)), "x")
		wantErr(t, got.err, dlock.ErrUnavailable)
		if took := got.at.Sub(d.begun); took <= ttl || took > 4*ttl {
			t.Errorf("Lock has returned after %v, with a TTL of %v", took, ttl)
		}
	})
}

// TestUnansweredEntryIsNotTransferred checks a waiter that gives up after an attempt without an
// answer. The server may have granted it, and a repetition would prolong the grant. So the next
// waiter has another owner. A later attempt that the server refuses does not undo the one without
// an answer.
func TestUnansweredEntryIsNotTransferred(t *testing.T) {
	t.Parallel()
	refusals := repeat(99, acquireFails(errUnavailable))
	for name, attempts := range map[string][]acquireStep{
		"no answer":            {acquireHangs},
		"no answer, then none": append([]acquireStep{acquireFails(errServer)}, refusals...),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.acquires = append([]acquireStep{busy(backend.Busy{Queued: true})}, attempts...)
				d.waits = []waitStep{lookAgain(time.Second)}
				c := open(t, d, dlock.WithTTL(ttl))
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				first := lockBehind(ctx, c, "x")
				time.Sleep(time.Second / 2) // the answer has come
				second := lockBehind(t.Context(), c, "x")
				wantErr(t, (<-first).err, context.DeadlineExceeded, dlock.ErrUncertain)
				d.grantAll()
				got := <-second
				synctest.Wait() // for the release
				if unanswered := d.of("acquire")[0].owner; got.lease.Owner() == unanswered {
					t.Error("the next waiter repeated an attempt that had no answer")
				} else if d.of("release")[0].owner != unanswered {
					t.Errorf("the attempt was not undone: %s", d.story())
				}
				frees(t, got.lease)
			})
		})
	}
}

// TestPanickedAttemptIsNotRepeated has a driver that panics after it has sent a request. The next
// waiter has another owner, and time for its own attempt.
func TestPanickedAttemptIsNotRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.acquires = []acquireStep{
			busy(backend.Busy{Queued: true, Reliable: true}), slowly(ttl/2, d.grant),
		}
		d.waits = []waitStep{
			func(context.Context, *backend.Request, *backend.Busy) (*backend.Grant, error) {
				time.Sleep(ttl * 105 / 100)
				panic("on purpose")
			},
		}
		c := open(t, d, dlock.WithTTL(ttl))
		go func() {
			defer func() { _ = recover() }()
			_, _ = c.Lock(t.Context(), "x")
		}()
		synctest.Wait()
		got := <-lockBehind(t.Context(), c, "x")
		if got.err != nil {
			t.Fatal(got.err)
		}
		if got.lease.Owner() == d.of("acquire")[0].owner {
			t.Error("the next waiter repeated the attempt")
		}
		frees(t, got.lease)
	})
}

// TestSpuriousNewsLeaveTimeForAnAttempt has a server that wakes its waiters without a reason. With
// a short TTL the pauses that follow are short, too.
func TestSpuriousNewsLeaveTimeForAnAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.acquires = repeat(100, slowly(5*time.Millisecond, busy(backend.Busy{Queued: true})))
		d.waits = repeat(100, lookAgain(0))
		frees(t, takes(t, open(t, d, dlock.WithTTL(50*time.Millisecond)), "x"))
	})
}

// TestLateGrantIsNotKept has a grant whose message is late. It has to be renewed, and that has no
// answer. The waiter releases it a renewalLimit after its term, although the server has not been
// silent for a TTL, and then tries as long as the silence lasts, under another owner.
func TestLateGrantIsNotKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const ttl, answered = 3 * time.Second, 3 * time.Second / 2
		d := newScript()
		var term backend.Term
		d.acquires = append([]acquireStep{
			func(context.Context, *backend.Request) (*backend.Grant, error) {
				term = termOf(ttl)
				time.Sleep(answered)
				return nil, &backend.Busy{Queued: true}
			},
		}, repeat(9, acquireStep(acquireHangs))...)
		d.waits = []waitStep{
			func(_ context.Context, req *backend.Request, _ *backend.Busy) (*backend.Grant, error) {
				time.Sleep(ttl * 3 / 10)
				return &backend.Grant{Request: *req, Fence: 1, Term: term}, nil
			},
		}
		d.renews = []renewStep{renewHangs}
		got := <-lockBehind(t.Context(), open(t, d, dlock.WithTTL(ttl)), "x")
		wantErr(t, got.err, dlock.ErrUnavailable)
		wantAt(t, "Lock has returned", got.at.Sub(d.begun), answered+ttl, 0)
		synctest.Wait()
		if releases := d.of("release"); len(releases) == 0 {
			t.Error("the late grant was not released")
		} else {
			wantAt(t, "the release", releases[0].at, ttl+ttl/3, 0)
		}
	})
}

// TestWaiterThatWasStoppedDuringARenewal has a process that is stopped while it renews a late
// grant. That is no silence of the server, so the waiter tries again.
func TestWaiterThatWasStoppedDuringARenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.acquires = []acquireStep{
			busy(backend.Busy{Queued: true}), slowly(time.Millisecond, d.grant),
		}
		d.waits = []waitStep{
			func(_ context.Context, req *backend.Request, _ *backend.Busy) (*backend.Grant, error) {
				term := termOf(ttl)
				term.Sent = term.Sent.Add(-ttl * 9 / 10)
				return &backend.Grant{Request: *req, Fence: 1, Term: term}, nil
			},
		}
		d.renews = []renewStep{func(context.Context, *backend.Grant) (backend.Term, error) {
			time.Sleep(ttl * 105 / 100)
			return backend.Term{}, context.DeadlineExceeded
		}}
		frees(t, takes(t, open(t, d, dlock.WithTTL(ttl)), "x"))
	})
}

// TestShortAttemptDoesNotHideTheCause checks that Lock returns the last refusal of a server, and
// that an attempt without an answer followed: it may have been too short for one.
func TestShortAttemptDoesNotHideTheCause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		full := fmt.Errorf("%w: the disk is full", backend.ErrUnavailable)
		d.acquires = append(repeat(3, acquireFails(full)), repeat(99, acquireStep(acquireHangs))...)
		got := <-lockBehind(t.Context(), open(t, d, dlock.WithTTL(ttl)), "x")
		wantErr(t, got.err, full, dlock.ErrUnavailable)
		if text := "no answer in time, after: "; !strings.Contains(got.err.Error(), text) {
			t.Errorf("the error is %v, want %q in it", got.err, text)
		}
	})
}

// TestNextWaiterOfAnEntryHasTheCause has a server that refuses requests after an answer, until the
// first waiter gives up. The rest of the TTL is too short for another refusal. The error of the
// next waiter, which takes the entry over, names the refusals nevertheless.
func TestNextWaiterOfAnEntryHasTheCause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const answer, rest = 30 * time.Millisecond, 20 * time.Millisecond
		d := newScript()
		full := fmt.Errorf("%w: the disk is full", backend.ErrUnavailable)
		refuses := func(ctx context.Context, _ *backend.Request) (*backend.Grant, error) {
			select {
			case <-time.After(answer):
				return nil, full
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		d.acquires = append([]acquireStep{busy(backend.Busy{Queued: true})},
			repeat(999, acquireStep(refuses))...)
		d.waits = []waitStep{
			func(context.Context, *backend.Request, *backend.Busy) (*backend.Grant, error) {
				return nil, nil
			},
		}
		c := open(t, d, dlock.WithTTL(ttl))
		ctx, cancel := context.WithTimeout(t.Context(), ttl-rest)
		defer cancel()
		first := lockBehind(ctx, c, "x")
		synctest.Wait()
		second := queueUp(t, c, "x", 1)
		wantErr(t, (<-first).err, context.DeadlineExceeded, full)
		wantErr(t, (<-second[0]).err, dlock.ErrUnavailable, full)
	})
}

// curious is the error of a driver that uses the client in its method Error.
type curious struct {
	lease     *dlock.Lease
	isBlocked atomic.Bool // a lease did not answer for some seconds
}

func (e *curious) Error() string {
	answered := make(chan struct{})
	go func() { _ = e.lease.Err(); close(answered) }()
	select {
	case <-answered:
	case <-time.After(10 * time.Second):
		e.isBlocked.Store(true)
	}
	return "curious"
}

func (e *curious) Unwrap() error { return backend.ErrUnavailable }

// TestErrorOfADriverMayUseTheClient lets waiters give up one after the other because a server
// refuses requests: no lock of the client waits while the error of its driver is formatted.
func TestErrorOfADriverMayUseTheClient(t *testing.T) {
	t.Parallel()
	d := newScript()
	c := open(t, d)
	refusal := &curious{lease: takes(t, c, "other")}
	d.acquires = repeat(9999, acquireFails(refusal))
	var waiters []<-chan result
	for range 3 {
		waiters = append(waiters, lockBehind(t.Context(), c, "x", dlock.WithTTL(time.Second/5)))
	}
	for _, waiter := range waiters {
		wantErr(t, (<-waiter).err, dlock.ErrUnavailable, refusal)
	}
	if refusal.isBlocked.Load() {
		t.Error("a lease of the client did not answer while an error was formatted")
	}
}

// TestContextEndsDuringASilence checks the error of a Lock whose context ends while the server is
// silent, after a connection was lost.
func TestContextEndsDuringASilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.acquires = append([]acquireStep{acquireFails(errServer)},
			repeat(9, acquireStep(acquireHangs))...)
		c := open(t, d, dlock.WithTTL(ttl))
		ctx, cancel := context.WithTimeout(t.Context(), ttl*9/10)
		defer cancel()
		_, err := c.Lock(ctx, "x")
		wantErr(t, err, context.DeadlineExceeded, dlock.ErrUnavailable, dlock.ErrUncertain)
	})
}

// TestUnlockKeepsNoContext checks that the goroutine that waits for the next release does not keep
// the context of the last one.
func TestUnlockKeepsNoContext(t *testing.T) {
	t.Parallel()
	c := open(t, membackend.New(&membackend.Options{Space: rand.Text()}))
	collected := make(chan struct{})
	func() {
		type key struct{}
		value := new([1 << 16]byte)
		runtime.AddCleanup(value, func(int) { close(collected) }, 0)
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, value))
		defer cancel()
		if err := takes(t, c, "x").Unlock(ctx); err != nil {
			t.Fatal(err)
		}
	}()
	deadline := time.After(30 * time.Second)
	for {
		runtime.GC()
		select {
		case <-collected:
			return
		case <-deadline:
			t.Fatal("the context of an Unlock that has returned is still kept")
		case <-time.After(time.Millisecond):
		}
	}
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
