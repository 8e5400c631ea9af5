package dlock_test

import (
	"context"
	"runtime"
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

// brokenWatch is a driver whose first Watch panics.
type brokenWatch struct {
	watchable
	watches *int
}

func (d brokenWatch) Watch(ctx context.Context, key string, changed func()) error {
	if *d.watches++; *d.watches == 1 {
		panic("a driver's")
	}
	return d.watchable.Watch(ctx, key, changed)
}

// TestObserveOutlivesAPanic checks that Observe goes on after a Watch of the driver that panicked.
func TestObserveOutlivesAPanic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := membackend.New(&membackend.Options{Space: t.Name()}).(watchable)
		c := open(t, brokenWatch{d, new(int)})
		holders := make(chan int, 10)
		ctx, cancel := context.WithCancel(t.Context())
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
		if n := <-holders; n != 0 {
			t.Errorf("%d holders of a free lock", n)
		}
		time.Sleep(time.Second) // the next Watch has begun
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
	})
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
