package dlock_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/membackend"
)

// releasePanics is a step of a driver that panics.
func releasePanics(context.Context, *backend.Grant) error { panic("a driver's") }

// TestUnlockAllOutlivesPanics checks that a driver which panics during the Unlock of several leases
// costs its own request. A context that panics does so on the caller's goroutine.
func TestUnlockAllOutlivesPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		c := open(t, d)
		m, err := c.LockAll(t.Context(), []string{"a", "b"})
		if err != nil {
			t.Fatal(err)
		}
		var broken struct{ context.Context }
		panics(t, func() { _ = m.Unlock(broken) })
		if err := m.Err(); err != nil {
			t.Errorf("after a context that panics: %v", err)
		}
		d.releases = []releaseStep{releasePanics}
		//nolint:usetesting // a context that cannot end: the driver runs in place
		wantErr(t, m.Unlock(context.Background()), dlock.ErrUncertain)
		for _, name := range []string{"a", "b"} {
			frees(t, takes(t, c, name))
		}
	})
}

// TestLockAllFreesAfterAPanic checks that a driver which panics, or ends the goroutine, leaves no
// lock of a LockAll locked.
func TestLockAllFreesAfterAPanic(t *testing.T) {
	t.Parallel()
	for how, escape := range map[string]func(){
		"panic": func() { panic("a driver's") }, "goexit": runtime.Goexit,
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.acquires = []acquireStep{
					d.grant, d.grant,
					func(context.Context, *backend.Request) (*backend.Grant, error) {
						escape()
						return nil, nil
					},
				}
				c := open(t, d)
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() { _ = recover() }()
					_, _ = c.LockAll(t.Context(), []string{"a", "b", "c"})
				}()
				<-done
				synctest.Wait()
				for _, name := range []string{"a", "b", "c"} {
					lease, err := c.TryLock(t.Context(), name)
					if err != nil {
						t.Fatal(err)
					}
					frees(t, lease)
				}
			})
		})
	}
}

// TestLockAllOnAContextThatHolds has a context that holds one of the names, while another holder
// has the other one. The call fails at once, because it could only wait for itself.
func TestLockAllOnAContextThatHolds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := open(t, newScript())
		a, b := takes(t, c, "a"), takes(t, c, "b")
		ctx, cancel := b.Context(t.Context())
		defer cancel()
		ctx, end := context.WithTimeout(ctx, time.Hour)
		defer end()
		began := time.Now()
		_, err := c.LockAll(ctx, []string{"a", "b"})
		wantErr(t, err, dlock.ErrNotAcquired)
		wantAt(t, "failed", time.Since(began), 0, 0)
		frees(t, a)
		frees(t, b)
	})
}

// TestLockAllFreesDespitePanics has a context that ends during a LockAll, and a driver that panics
// in the release that follows in the background.
func TestLockAllFreesDespitePanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		d := newScript()
		d.acquires = []acquireStep{
			d.grant,
			func(ctx context.Context, _ *backend.Request) (*backend.Grant, error) {
				cancel()
				return nil, ctx.Err()
			},
		}
		d.releases = []releaseStep{releasePanics, releasePanics}
		c := open(t, d)
		_, err := c.LockAll(ctx, []string{"a", "b"})
		wantErr(t, err, context.Canceled, dlock.ErrUncertain)
		synctest.Wait() // both have panicked
		frees(t, takes(t, c, "a"))
		frees(t, takes(t, c, "b"))
	})
}

// TestLockAllFreesInParallel has releases without answers. They delay the next round by the time of
// one request, and not of three.
func TestLockAllFreesInParallel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.acquires = append(repeat[acquireStep](3, d.grant), busy(backend.Busy{}))
		d.releases = repeat[releaseStep](3, releaseHangs)
		c := open(t, d)
		m, err := c.LockAll(t.Context(), []string{"a", "b", "c", "d"})
		if err != nil {
			t.Fatal(err)
		}
		calls := d.of("acquire")
		wantAt(t, "the next round", calls[4].at, 5*time.Second, 2*time.Millisecond)
		if key := calls[4].req.Key; key != "a" {
			t.Errorf("the next round begins with %q", key)
		}
		if err := m.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestLockAllOutlivesALostReply checks that LockAll repeats a request without an answer, as Lock
// does, and that it returns ErrUnavailable after a TTL without an answer.
func TestLockAllOutlivesALostReply(t *testing.T) {
	t.Parallel()
	for _, failure := range []error{errServer, errUnavailable} {
		synctest.Test(t, func(t *testing.T) {
			d := newScript()
			d.acquires = []acquireStep{d.grant, acquireFails(failure), acquireFails(failure)}
			c := open(t, d, dlock.WithTTL(ttl))
			m, err := c.LockAll(t.Context(), []string{"a", "b"})
			if err != nil {
				t.Fatal(err)
			}
			if calls := d.of("acquire"); len(calls) != 5 || calls[2].req.Key != "b" {
				t.Errorf("the requests are %v", calls)
			}
			if err := m.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
			d.acquires = append([]acquireStep{d.grant}, repeat(1000, acquireFails(failure))...)
			_, err = c.LockAll(t.Context(), []string{"a", "b"})
			wantErr(t, err, dlock.ErrUnavailable)
			d.acquires = nil
			frees(t, takes(t, c, "a"))
		})
	}
}

// TestLostOfSeveralIsOneChannel checks that a call of Lost in a loop takes no memory.
func TestLostOfSeveralIsOneChannel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, err := clientsOf(t, 1)[0].LockAll(t.Context(), []string{"a", "b"})
		if err != nil {
			t.Fatal(err)
		}
		lost := m.Lost()
		if m.Lost() != lost || ended(lost) {
			t.Error("another call of Lost returned another channel, or a closed one")
		}
		_ = m.Leases()[1].Unlock(t.Context())
		synctest.Wait()
		if !ended(lost) || m.Lost() != lost {
			t.Error("the channel is not closed")
		}
		_ = m.Unlock(t.Context())
	})
}

// TestLostOfSeveralComparesTheClocks looks at the channel in the instant of the deadline, before
// the scheduler may have run.
func TestLostOfSeveralComparesTheClocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for range 20 {
			c := clientsOf(t, 1)[0]
			m, err := c.LockAll(t.Context(), []string{"a", "b"}, dlock.WithoutRenewal())
			if err != nil {
				t.Fatal(err)
			}
			if ended(m.Lost()) {
				t.Error("the channel was closed at first")
			}
			time.Sleep(time.Until(m.Deadline()))
			if !ended(m.Lost()) {
				t.Error("the channel is open at the deadline")
			}
			_ = m.Unlock(t.Context())
		}
	})
}

// TestLockAllEndsWithItsContext checks that the cause of a context does not pass for an answer of
// the server. An errgroup ends its context with the error of another call.
func TestLockAllEndsWithItsContext(t *testing.T) {
	for name, driver := range map[string]func() backend.Driver{
		"one by one":  func() backend.Driver { return newScript() },
		"in one step": func() backend.Driver { return newCombining() },
	} {
		for _, cause := range []error{dlock.ErrNotAcquired, dlock.ErrLost, dlock.ErrUncertain} {
			t.Run(fmt.Sprintf("%s, %v", name, cause), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithCancelCause(t.Context())
					cancel(fmt.Errorf("another call: %w", cause))
					_, err := open(t, driver()).LockAll(ctx, []string{"a", "b"})
					wantErr(t, err, context.Canceled)
					wantNoErr(t, err, cause)
				})
			})
		}
	}
}

// TestOtherLimitBehindAWaiter checks that a semaphore with another limit is a conflict, also while
// a caller of the same client waits for a permit.
func TestOtherLimitBehindAWaiter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		clients := clientsOf(t, 2)
		theirs, _ := clients[1].Semaphore("x", 1)
		one, _ := clients[0].Semaphore("x", 1)
		two, _ := clients[0].Semaphore("x", 2)
		permit := got(t, theirs.Acquire)
		waiting := make(chan *dlock.Lease, 1)
		go func() { waiting <- got(t, one.Acquire) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := two.Acquire(ctx)
		wantErr(t, err, dlock.ErrConflict)
		frees(t, permit)
		frees(t, <-waiting)
	})
}

// watchable is what a driver implements whose locks can be observed.
type watchable interface {
	backend.Driver
	backend.Inspector
	backend.Watcher
}

// watching is a driver whose Watch is replaced, with the time of each call.
type watching struct {
	watchable
	mu    sync.Mutex
	calls []time.Time
	// watch gets the number of earlier calls. It may return the Watch of the driver.
	watch func(n int, ctx context.Context, key string, changed func()) error
}

func newWatching() *watching {
	return &watching{watchable: membackend.New(&membackend.Options{Space: rand.Text()}).(watchable)}
}

func (d *watching) Watch(ctx context.Context, key string, changed func()) error {
	d.mu.Lock()
	n := len(d.calls)
	d.calls = append(d.calls, time.Now())
	d.mu.Unlock()
	return d.watch(n, ctx, key, changed)
}

// observes starts a loop over the lock x, which sends the number of holders at each change. The
// channel is closed at the end of the loop.
func observes(ctx context.Context, t *testing.T, c *dlock.Client) <-chan int {
	t.Helper()
	holders := make(chan int, 10)
	go func() {
		defer close(holders)
		for info, err := range c.Observe(ctx, "x") {
			if err != nil {
				t.Error(err)
				return
			}
			holders <- len(info.Holders)
		}
	}()
	return holders
}

// TestObserveOutlivesItsWatch checks that Observe still gets each change at once after a Watch of
// the driver that panicked, ended its goroutine, or returned. A Watch that did not return is logged
// once, with the name of the lock.
func TestObserveOutlivesItsWatch(t *testing.T) {
	t.Parallel()
	for why, escape := range map[string]func(){
		"it panicked: a driver's": func() { panic("a driver's") },
		"it ended its goroutine":  runtime.Goexit,
		"":                        func() {},
	} {
		synctest.Test(t, func(t *testing.T) {
			d, log := newWatching(), &lines{}
			d.watch = func(n int, ctx context.Context, key string, changed func()) error {
				if n < 2 {
					escape()
					return errServer
				}
				return d.watchable.Watch(ctx, key, changed)
			}
			c := open(t, d, dlock.WithLogger(slog.New(log)))
			ctx, cancel := context.WithCancel(t.Context())
			holders := observes(ctx, t, c)
			if n := <-holders; n != 0 {
				t.Errorf("%d holders of a free lock", n)
			}
			time.Sleep(time.Second) // the third Watch has begun
			begun := time.Now()
			lease := takes(t, c, "x")
			if n := <-holders; n != 1 {
				t.Errorf("%d holders of a lock that is held", n)
			}
			wantAt(t, "the change", time.Since(begun), 0, 0)
			frees(t, lease)
			cancel()
			for range holders {
			}
			synctest.Wait()
			const text = `ERROR "dlock: the driver's Watch did not return" name=x error=`
			var want []string
			if why != "" {
				want = []string{text + why}
			}
			if got := log.read(); !slices.Equal(got, want) {
				t.Errorf("the log is %q, want %q", got, want)
			}
		})
	}
}

// TestObserveLeavesAWatchThatDoesNotReturn checks that a Watch which ignores its context delays the
// end of a loop, and Close, by one second each.
func TestObserveLeavesAWatchThatDoesNotReturn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, log, end := newWatching(), &lines{}, make(chan struct{})
		d.watch = func(int, context.Context, string, func()) error {
			<-end
			return nil
		}
		c := open(t, d, dlock.WithLogger(slog.New(log)))
		ctx, cancel := context.WithCancel(t.Context())
		holders := observes(ctx, t, c)
		<-holders
		synctest.Wait() // the Watch has begun
		begun := time.Now()
		cancel()
		for range holders {
		}
		wantAt(t, "the end of the loop", time.Since(begun), time.Second, 0)
		wantAt(t, "closed", closes(t, c), time.Second, 0)
		close(end)
		synctest.Wait()
		want := []string{`ERROR "dlock: the driver's Watch outlives its context" name=x`}
		if text := log.read(); !slices.Equal(text, want) {
			t.Errorf("the log is %q, want %q", text, want)
		}
	})
}

// TestPausesOfAWatch checks that a Watch which has worked for a minute is repeated soon, however
// often that has happened. The pauses after a Watch that ends at once grow to a second.
func TestPausesOfAWatch(t *testing.T) {
	t.Parallel()
	const minute, second = time.Minute, time.Second
	for lasts, limit := range map[time.Duration]time.Duration{
		minute: minute + 100*time.Millisecond, 0: second + 100*time.Millisecond,
	} {
		synctest.Test(t, func(t *testing.T) {
			const rounds = 20
			d, done := newWatching(), make(chan struct{})
			d.watch = func(n int, ctx context.Context, _ string, changed func()) error {
				if n == rounds {
					close(done)
					<-ctx.Done()
					return ctx.Err()
				}
				changed()
				time.Sleep(lasts)
				return errServer
			}
			ctx, cancel := context.WithCancel(t.Context())
			holders := observes(ctx, t, open(t, d))
			<-done
			cancel()
			for range holders {
			}
			last := d.calls[rounds].Sub(d.calls[rounds-1])
			if last > limit || lasts == 0 && last < second {
				t.Errorf("calls that last %v follow each other after %v", lasts, last)
			}
		})
	}
}

// TestObserveOnADeadContext checks that a loop over Observe yields nothing if its context had ended
// before. A nil context is an error.
func TestObserveOnADeadContext(t *testing.T) {
	t.Parallel()
	c := clientsOf(t, 1)[0]
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for info, err := range c.Observe(ctx, "x") {
		t.Errorf("Observe yielded %v, %v", info, err)
	}
	var none context.Context
	for _, err := range c.Observe(none, "x") {
		if err == nil {
			t.Error("Observe accepts a nil context")
		}
	}
}

// TestObserveYieldsTheStateAgainAfterAnError checks that a user that takes an error for "unknown"
// is shown the holder again, although it is the same.
func TestObserveYieldsTheStateAgainAfterAnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		calls := 0
		d.inspect = func(context.Context) (*backend.Info, error) {
			if calls++; calls == 2 {
				return nil, errUnavailable
			}
			return &backend.Info{Holders: []backend.Holder{{Owner: "a"}}}, nil
		}
		c := open(t, d)
		var seen []string
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for info, err := range c.Observe(ctx, "x") {
			if err != nil {
				seen = append(seen, "unknown")
			} else {
				seen = append(seen, info.Holders[0].Owner)
			}
		}
		if got := strings.Join(seen, " "); got != "a unknown a" {
			t.Errorf("observed: %s", got)
		}
	})
}

// TestObserverMayChangeItsInfo checks that Observe compares states of its own.
func TestObserverMayChangeItsInfo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := clientsOf(t, 1)[0]
		lease := takes(t, c, "x")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		yields := 0
		for info, err := range c.Observe(ctx, "x") {
			if err != nil {
				t.Fatal(err)
			}
			info.Holders[0].Owner = "changed"
			yields++
		}
		if yields != 1 {
			t.Errorf("%d yields for one state", yields)
		}
		frees(t, lease)
	})
}
