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
			t.Errorf("released %+v", releases)
		}
		if last := renews[len(renews)-1]; last.at > time.Minute {
			t.Errorf("renewed at %v", last.at)
		}
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
			t.Errorf("%d renewals; released %+v", len(renews), releases)
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

// forget takes a lock and drops its lease; before that it waits for renewed, if there is
// such a channel, and unlocks.
//
//go:noinline
func forget(t *testing.T, c *dlock.Client, name string, renewed <-chan struct{}) {
	t.Helper()
	lease, err := c.Lock(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if renewed != nil {
		<-renewed
		frees(t, lease)
	}
}

// signal is a log that tells of each line.
type signal struct{ lines chan string }

func newSignal() *signal { return &signal{make(chan string, 100)} }

func (s *signal) Write(line []byte) (int, error) {
	s.lines <- string(line)
	return len(line), nil
}

func (s *signal) logger() dlock.Option {
	return dlock.WithLogger(slog.New(slog.NewTextHandler(s, nil)))
}

// wait collects garbage until a line is written, which must say text.
func (s *signal) wait(t *testing.T, text string) {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		runtime.GC()
		select {
		case line := <-s.lines:
			if !strings.Contains(line, text) {
				t.Errorf("logged: %s, want %s", line, text)
			}
			return
		case <-time.After(10 * time.Millisecond):
		case <-timeout:
			t.Fatalf("nothing was logged of %q", text)
		}
	}
}

// realTTL is the TTL of tests on the real clock: a machine that stands still for less loses no lease.
const realTTL = 3 * time.Second

// TestDroppedLease runs on the real clock: the collector is in no bubble.
func TestDroppedLease(t *testing.T) {
	t.Parallel()
	d, log := newScript(), newSignal()
	released := make(chan struct{})
	d.releases = []releaseStep{func(context.Context, *backend.Grant) error { close(released); return nil }}
	c := open(t, d, log.logger(), dlock.WithTTL(realTTL))
	forget(t, c, "forgotten", nil)
	log.wait(t, "a lease was dropped without Unlock")
	renewed := len(d.of("renew"))
	<-released
	if more := len(d.of("renew")); more > renewed+1 { // one may have been under way
		t.Errorf("renewed %d times after it was dropped", more-renewed)
	}
}

// TestAwaitedLeaseIsNotDropped: of a lease that is held for ever, the user may keep only the channel or a context.
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
						<-renewed // the client looks whether the lease is dropped from now on
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
						t.Fatalf("logged: %s", line)
					}
				}
			})
		}
	}
}

// TestForgottenContextIsNoUse: a lease is dropped although it had a context.
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
	log.wait(t, "forgotten") // and of no other before
}

// TestMinHoldEqualToMaxHold: the lock is freed when the minimum hold is over.
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

// TestMinHoldWithoutRenewal: a minimum hold beyond the TTL is refused or kept,
// not silently cut.
func TestMinHoldWithoutRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		c := open(t, d, dlock.WithTTL(ttl))
		m, err := c.Mutex("x", dlock.WithMinHold(3*ttl), dlock.WithoutRenewal())
		if err != nil {
			return
		}
		lease, err := m.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		frees(t, lease)
		time.Sleep(time.Hour)
		if at := d.of("release")[0].at; at < 3*ttl {
			t.Errorf("the server could give the lock away from %v on", at)
		}
	})
}

// TestDroppedReentrantLease runs on the real clock: the collector is in no bubble.
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
	for deadline := time.Now().Add(5 * time.Second); len(d.of("release")) == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never released; asked: %s", d.story())
		}
	}
}
