package dlock_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

func TestMaxHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		lease := takes(t, open(t, d), "x", dlock.WithTTL(ttl), dlock.WithMaxHold(time.Minute))
		time.Sleep(time.Minute - 1)
		if lease.Err() != nil {
			t.Error(lease.Err())
		}
		wantAt(t, "the deadline", time.Until(lease.Deadline()), 1, 0)
		time.Sleep(time.Nanosecond)
		wantErr(t, lease.Err(), dlock.ErrLost)
		time.Sleep(time.Hour)
		renews, releases := d.of("renew"), d.of("release")
		if len(releases) != 1 || releases[0].at > time.Minute+ttl {
			t.Errorf("the releases are %+v", releases)
		}
		if last := renews[len(renews)-1]; last.at > time.Minute {
			t.Errorf("a renewal came at %v, after the maximum hold", last.at)
		}
	})
}

// TestMaxHoldBeginsAfterTheFirstRenewal has a grant that came through Wait. Its first renewal,
// which Lock waits for, takes longer than the maximum hold. The lease is held for the maximum hold
// after that. If it ended before, the grant would stay on the server until the end of its term.
func TestMaxHoldBeginsAfterTheFirstRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.acquires = []acquireStep{busy(backend.Busy{})}
		d.waits = []waitStep{
			func(ctx context.Context, r *backend.Request, _ *backend.Busy) (*backend.Grant, error) {
				return d.grant(ctx, r)
			},
		}
		d.renews = []renewStep{func(ctx context.Context, g *backend.Grant) (backend.Term, error) {
			time.Sleep(2 * time.Second)
			return prove(ctx, g)
		}}
		c := open(t, d, dlock.WithTTL(ttl), dlock.WithoutRenewal(), dlock.WithMaxHold(time.Second))
		lease := takes(t, c, "x")
		wantAt(t, "returned", time.Since(d.begun), 2*time.Second, 0)
		<-lease.Lost()
		wantAt(t, "lost", time.Since(d.begun), 3*time.Second, 0)
		wantErr(t, lease.Unlock(t.Context()), dlock.ErrLost)
		synctest.Wait()
		wantStory(t, d, "acquire wait renew release")
	})
}

func TestMinHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		c := open(t, d, dlock.WithTTL(ttl))
		lease := takes(t, c, "x", dlock.WithMinHold(time.Minute))
		waiter := lockBehind(t.Context(), c, "x")
		time.Sleep(time.Second)
		frees(t, lease)
		wantAt(t, "Unlock returned", time.Since(d.begun), time.Second, 0)
		wantErr(t, lease.Err(), dlock.ErrNotHeld)
		wantErr(t, lease.Unlock(t.Context()), dlock.ErrNotHeld)
		_, err := c.TryLock(t.Context(), "x")
		wantErr(t, err, dlock.ErrNotAcquired)
		<-waiter
		wantAt(t, "the next grant", time.Since(d.begun), time.Minute, 0)
		releases, renews := d.of("release"), d.of("renew")
		if len(releases) != 1 || releases[0].at != time.Minute || len(renews) < 15 {
			t.Errorf("%d renewals; the releases are %+v", len(renews), releases)
		}
	})
}

func TestMinHoldThatIsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		lease := takes(t, open(t, d), "x", dlock.WithMinHold(time.Second))
		time.Sleep(time.Second)
		frees(t, lease)
		wantStory(t, d, "acquire release")
	})
}

func TestMinHoldOfALostLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		c := open(t, d)
		lease := takes(t, c, "x", dlock.WithMinHold(time.Minute))
		frees(t, lease)
		d.of("acquire")[0].req.Lost(backend.ErrLost)
		frees(t, takes(t, c, "x"))
		time.Sleep(time.Hour)
		wantStory(t, d, "acquire acquire release")
	})
}

// forget takes a lock and drops its lease. If renewed is not nil, forget first receives from it and
// unlocks.
//
//go:noinline
func forget(
	t *testing.T, c *dlock.Client, name string, renewed <-chan struct{}, opts ...dlock.Option,
) {
	t.Helper()
	lease, err := c.Lock(t.Context(), name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	if renewed != nil {
		<-renewed
		frees(t, lease)
	}
}

// signal is the output of a log and sends each line to a channel.
type signal struct{ lines chan string }

func newSignal() *signal { return &signal{make(chan string, 100)} }

func (s *signal) Write(line []byte) (int, error) {
	s.lines <- string(line)
	return len(line), nil
}

func (s *signal) logger() dlock.Option {
	return dlock.WithLogger(slog.New(slog.NewTextHandler(s, nil)))
}

// wait runs the garbage collector until a line is logged, which must contain text.
func (s *signal) wait(t *testing.T, text string) {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		runtime.GC()
		select {
		case line := <-s.lines:
			if !strings.Contains(line, text) {
				t.Errorf("the log has %s, want %s", line, text)
			}
			return
		case <-time.After(10 * time.Millisecond):
		case <-timeout:
			t.Fatalf("no line was logged with %q", text)
		}
	}
}

// realTTL is the TTL of tests on the real clock. A machine that stalls for less than realTTL loses
// no lease.
const realTTL = 3 * time.Second

// TestDroppedLease runs on the real clock, because the garbage collector is not part of a synctest
// bubble.
func TestDroppedLease(t *testing.T) {
	t.Parallel()
	d, log := newScript(), newSignal()
	released := make(chan struct{})
	d.releases = []releaseStep{func(context.Context, *backend.Grant) error {
		close(released)
		return nil
	}}
	c := open(t, d, log.logger(), dlock.WithTTL(realTTL))
	forget(t, c, "forgotten", nil)
	log.wait(t, "a lease was dropped without Unlock")
	renewed := len(d.of("renew"))
	<-released
	if more := len(d.of("renew")); more > renewed+1 { // one renewal can be under way
		t.Errorf("renewed %d times after it was dropped", more-renewed)
	}
}

// TestDroppedLeaseStaysForItsMinimumHold runs on the real clock, as TestDroppedLease does.
func TestDroppedLeaseStaysForItsMinimumHold(t *testing.T) {
	t.Parallel()
	d, log := newScript(), newSignal()
	released := make(chan struct{})
	d.releases = []releaseStep{func(context.Context, *backend.Grant) error {
		close(released)
		return nil
	}}
	c := open(t, d, log.logger(), dlock.WithTTL(realTTL))
	const hold = 3 * realTTL
	begun := time.Now()
	forget(t, c, "forgotten", nil, dlock.WithMinHold(hold))
	log.wait(t, "a lease was dropped without Unlock")
	<-released
	if held := time.Since(begun); held < hold {
		t.Errorf("released after %v, before the minimum hold of %v", held, hold)
	}
}

// TestAwaitedLeaseIsNotDropped checks that a lease counts as used while the user keeps only its
// channel or a context. A user that holds a lock for ever may keep nothing else.
func TestAwaitedLeaseIsNotDropped(t *testing.T) {
	t.Parallel()
	for name, await := range map[string]func(t *testing.T, lease *dlock.Lease) <-chan struct{}{
		"Lost": func(_ *testing.T, lease *dlock.Lease) <-chan struct{} { return lease.Lost() },
		"Context": func(t *testing.T, lease *dlock.Lease) <-chan struct{} {
			t.Helper()
			ctx, cancel := lease.Context(context.Background())
			t.Cleanup(cancel)
			return ctx.Done()
		},
	} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/late=%v", name, late), func(t *testing.T) {
				t.Parallel()
				d, log := newScript(), newSignal()
				renewed := make(chan struct{}, 1000)
				observer := &dlock.Observer{Renewed: func(dlock.Event) { renewed <- struct{}{} }}
				c := open(t, d, log.logger(), dlock.WithObserver(observer), dlock.WithTTL(realTTL))
				lost := func() <-chan struct{} {
					lease, err := c.Lock(t.Context(), "x")
					if err != nil {
						t.Fatal(err)
					}
					if late {
						<-renewed // from the first renewal on, the client detects a dropped lease
					}
					return await(t, lease)
				}()
				for range 4 { // more than a term
					runtime.GC()
					select {
					case <-renewed:
					case <-lost:
						t.Fatal("the lease was lost")
					case line := <-log.lines:
						t.Fatalf("the log has %s", line)
					}
				}
			})
		}
	}
}

// TestForgottenContextIsNoUse checks that a lease counts as dropped if its only context was
// cancelled.
func TestForgottenContextIsNoUse(t *testing.T) {
	t.Parallel()
	log, renewed := newSignal(), make(chan struct{}, 1000)
	observer := &dlock.Observer{Renewed: func(dlock.Event) { renewed <- struct{}{} }}
	c := open(t, newScript(), log.logger(), dlock.WithObserver(observer), dlock.WithTTL(realTTL))
	func() {
		lease, err := c.Lock(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		_, cancel := lease.Context(t.Context())
		<-renewed
		cancel()
	}()
	log.wait(t, "a lease was dropped without Unlock")
}

func TestUnlockedLeaseIsNotDropped(t *testing.T) {
	t.Parallel()
	log, renewed := newSignal(), make(chan struct{}, 100)
	observer := &dlock.Observer{Renewed: func(dlock.Event) { renewed <- struct{}{} }}
	c := open(t, newScript(), log.logger(), dlock.WithObserver(observer), dlock.WithTTL(realTTL))
	for range 3 {
		forget(t, c, "unlocked", renewed)
		runtime.GC()
	}
	forget(t, c, "forgotten", nil)
	log.wait(t, "forgotten") // no other lock is logged before
}

// TestMinHoldEqualToMaxHold checks that the lock is released at the end of the minimum hold.
func TestMinHoldEqualToMaxHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		c := open(t, d, dlock.WithMinHold(time.Second), dlock.WithMaxHold(time.Second))
		frees(t, takes(t, c, "x"))
		time.Sleep(time.Hour)
		wantAt(t, "released", d.of("release")[0].at, time.Second, 0)
	})
}

// TestMinHoldWithoutRenewal checks that a minimum hold beyond the TTL is either refused or kept. It
// must not be shortened silently.
func TestMinHoldWithoutRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		c := open(t, d, dlock.WithTTL(ttl))
		m, err := c.Mutex("x", dlock.WithMinHold(3*ttl), dlock.WithoutRenewal())
		if err != nil {
			t.Fatal(err)
		}
		lease, err := m.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		frees(t, lease)
		time.Sleep(time.Hour)
		if at := d.of("release")[0].at; at < 3*ttl {
			t.Errorf("the server could grant the lock to another owner after %v", at)
		}
	})
}

// TestDroppedReentrantLease runs on the real clock, because the garbage collector is not part of a
// synctest bubble.
func TestDroppedReentrantLease(t *testing.T) {
	t.Parallel()
	d, log := newScript(), newSignal()
	c := open(t, d, log.logger(), dlock.WithReentrant(), dlock.WithTTL(realTTL))
	outer := takes(t, c, "x")
	ctx, cancel := outer.Context(t.Context())
	defer cancel()
	func() {
		if _, err := c.Lock(ctx, "x"); err != nil {
			t.Fatal(err)
		}
	}()
	log.wait(t, "dropped")
	frees(t, outer)
	deadline := time.Now().Add(5 * time.Second)
	for ; len(d.of("release")) == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the lock was never released; the calls are %s", d.story())
		}
	}
}
