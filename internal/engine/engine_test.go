package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/membackend"
)

// newEngine returns an engine over a server that no other test uses. It is closed with the test.
func newEngine(t *testing.T) *Engine {
	t.Helper()
	e := New(Config{Driver: membackend.New(&membackend.Options{Space: rand.Text()})})
	t.Cleanup(func() {
		if e.closing.Err() == nil {
			_ = e.Close()
		}
	})
	return e
}

// take acquires the lock of that name, which must succeed.
func take(t *testing.T, e *Engine, name string, s Settings) *Lease {
	t.Helper()
	var ref Ref
	if err := e.Acquire(t.Context(), &Lock{name, name, &s}, true, &ref); err != nil {
		t.Fatal(err)
	}
	return ref.Lease()
}

// earlierByTheWall returns t with a wall clock that is d behind and the same monotonic clock. So
// the present seems to come after a suspend of d.
func earlierByTheWall(t time.Time, d time.Duration) time.Time {
	const secondsShift = 30 // of the seconds in a time.Time with a monotonic reading
	*(*uint64)(unsafe.Pointer(&t)) -= uint64(d/time.Second) << secondsShift
	return t
}

// suspend makes e find that the machine was suspended for d since the scheduler's last run.
func suspend(e *Engine, d time.Duration, leases ...*Lease) {
	e.mu.Lock()
	defer e.unlock()
	e.processed = earlierByTheWall(e.processed, d)
	for _, l := range leases {
		a := l.tenure.acq
		a.term.Sent = earlierByTheWall(a.term.Sent, d)
	}
}

// TestSuspendIsNoticed checks that the scheduler compares the clocks, whatever event it waits for.
// The test runs in real time, because a bubble of synctest has only one clock.
func TestSuspendIsNoticed(t *testing.T) {
	for name, before := range map[string]func(*testing.T, *Engine){
		"at first": func(*testing.T, *Engine) {},
		"while a lock-delay runs": func(t *testing.T, e *Engine) {
			t.Helper()
			s := Settings{TTL: 100 * time.Millisecond, LockDelay: 10 * time.Second, NoRenewal: true}
			<-take(t, e, "delayed", s).Lost(nil)
		},
		"after an uncontended lock": func(t *testing.T, e *Engine) {
			t.Helper()
			e.mu.Lock() // the lock is free again before the scheduler runs
			defer e.unlock()
			e.armed = time.Now().Add(20 * time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEngine(t)
			before(t, e)
			l := take(t, e, "x", Settings{TTL: time.Minute})
			ctx, cancel := l.Context(t.Context(), l.ref)
			defer cancel()
			suspend(e, time.Hour, l)
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Second): // the machine may be slow
				t.Error("the context of the lease has not ended")
			}
		})
	}
}

// TestDeadlineAfterASuspend checks that the deadline has passed by both clocks.
func TestDeadlineAfterASuspend(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	l := take(t, e, "x", Settings{TTL: time.Minute})
	suspend(e, time.Hour, l)
	if d := l.Deadline(); d.After(time.Now()) || d.Round(0).After(time.Now().Round(0)) {
		t.Errorf("the deadline %v is after %v", d, time.Now())
	}
}

// TestUnlockWhileCloseBegins checks that a second Unlock returns another error than the first, even
// if Close ends the lease between the two.
func TestUnlockWhileCloseBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t)
		l := take(t, e, "x", Settings{TTL: time.Minute})
		e.startClosing(backend.ErrClosed)
		if err := l.Unlock(t.Context()); !errors.Is(err, backend.ErrClosed) {
			t.Errorf("Unlock returned %v, want ErrClosed", err)
		}
		_ = e.Close()
		if err := l.Unlock(t.Context()); !errors.Is(err, backend.ErrNotHeld) {
			t.Errorf("the second Unlock returned %v, want ErrNotHeld", err)
		}
	})
}

// TestCloseWaitsForACallThatBegins checks that Close does not miss a call that has just begun.
func TestCloseWaitsForACallThatBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t)
		var closed atomic.Bool
		var calls sync.WaitGroup
		calls.Go(func() {
			if err := e.Enter(t.Context()); err != nil {
				t.Error(err)
				return
			}
			defer e.Leave()
			time.Sleep(time.Second)
			if closed.Load() {
				t.Error("Close returned during a call")
			}
		})
		synctest.Wait()
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		closed.Store(true)
		calls.Wait()
	})
}

// strange is a parent of contexts that blocks or panics when a derived context ends.
type strange struct {
	context.Context
	ending func()
	made   bool
}

func (s *strange) Value(key any) any {
	if s.made {
		s.ending()
	}
	return s.Context.Value(key)
}

// TestStrangeParents checks that a strange parent of one context does not affect other contexts
// when the lease ends.
func TestStrangeParents(t *testing.T) {
	hour := func() { time.Sleep(time.Hour) }
	for name, ending := range map[string]func(){
		"blocks": hour,
		"panics": func() { panic("strange") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newEngine(t)
				l := take(t, e, "x", Settings{TTL: time.Minute})
				contexts := make([]context.Context, 16)
				for i := range contexts {
					parent := &strange{Context: t.Context(), ending: ending}
					ctx, cancel := l.Context(parent, l.ref)
					parent.made = i%2 == 0
					defer func() { parent.made = false; cancel() }()
					contexts[i] = ctx
				}
				began := time.Now()
				l.tenure.acq.onLost(backend.ErrLost)
				if took := time.Since(began); took > 10*time.Millisecond {
					t.Errorf("onLost blocked for %v", took)
				}
				synctest.Wait()
				for i, ctx := range contexts {
					if ctx.Err() == nil {
						t.Errorf("context %d has not ended", i)
					}
				}
				time.Sleep(2 * time.Hour)
			})
		})
	}
}

// TestLostMembersOfABatch checks that members which are lost, and whose contexts do not end, do not
// delay the answer to another member beyond its deadline.
func TestLostMembersOfABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t)
		var got answers
		var members []*acquisition
		for i := range 300 {
			l := take(t, e, strconv.Itoa(i), Settings{TTL: time.Second})
			parent := &strange{Context: t.Context(), ending: func() { time.Sleep(time.Hour) }}
			_, cancel := l.Context(parent, l.ref)
			parent.made = true
			defer func() { parent.made = false; cancel() }()
			members = append(members, l.tenure.acq)
			got.renewals = append(got.renewals, backend.Renewal{Err: backend.ErrLost})
		}
		renewed := take(t, e, "renewed", Settings{TTL: time.Second})
		renewed.tenure.acq.renewing = true // as in a batch: the scheduler sends no other renewal
		members = append(members, renewed.tenure.acq)
		term := backend.Term{Sent: time.Now(), TTL: time.Second}
		got.renewals = append(got.renewals, backend.Renewal{Term: term})
		e.renewedAll(members, got)
		if err := renewed.Err(); err != nil {
			t.Errorf("the renewed lease has ended: %v", err)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
	})
}

// silentRenewals is a driver whose server does not answer the renewals of some locks.
type silentRenewals struct{ backend.Driver }

func (d silentRenewals) Renew(ctx context.Context, g *backend.Grant) (backend.Term, error) {
	if strings.HasPrefix(g.Key, "silent") {
		<-ctx.Done()
	}
	if ctx.Err() != nil {
		return backend.Term{}, ctx.Err()
	}
	return d.Driver.Renew(ctx, g)
}

// TestSilentLocksCostNoOtherLease renews one lock at a time. Four times as many silent ones come
// first as the engine renews at once, so that one round of them takes longer than the term.
func TestSilentLocksCostNoOtherLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t)
		e.driver, e.batch = silentRenewals{e.driver}, nil
		var members []*acquisition
		for i := range 4 * renewers {
			l := take(t, e, "silent "+strconv.Itoa(i), Settings{TTL: 10 * time.Second})
			members = append(members, l.tenure.acq)
		}
		l := take(t, e, "x", Settings{TTL: 10 * time.Second})
		for _, a := range append(members, l.tenure.acq) {
			a.renewing = true // the scheduler sends no other renewal
		}
		former := l.Deadline()
		time.Sleep(l.Lock().renewalLimit())
		e.renewEach(t.Context(), append(members, l.tenure.acq))
		time.Sleep(l.Lock().renewalLimit())
		synctest.Wait()
		if !l.Deadline().After(former) {
			t.Error("the lease was not renewed after the silent ones")
		}
	})
}

// TestEventsOfALeaseThatIsLostAtOnce checks that the events of the lease come in their order.
func TestEventsOfALeaseThatIsLostAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var kinds []Kind
		e := New(Config{
			Driver: membackend.New(&membackend.Options{Space: rand.Text()}),
			Notify: func(n *Note) { kinds = append(kinds, n.Kind) },
			Kinds:  Acquired | Ended,
		})
		l, ref := &Lock{"x", "x", &Settings{TTL: time.Minute}}, new(Ref)
		if err := e.Acquire(t.Context(), l, true, ref); err != nil {
			t.Fatal(err)
		}
		ref.Lease().tenure.acq.onLost(backend.ErrLost)
		e.NoteAcquired(t.Context(), l, ref, nil, time.Now())
		_ = e.Close()
		synctest.Wait()
		if !slices.Equal(kinds, []Kind{Acquired, Ended}) {
			t.Errorf("the events are %v", kinds)
		}
	})
}

// TestEndIsNotedBeforeTheNextTurn checks that a lease's end is noted before the next waiter has its
// turn. So the events of two leases on a lock come in their order.
func TestEndIsNotedBeforeTheNextTurn(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		handoff int
		unlock  func(t *testing.T, l *Lease) // just until the next waiter has its turn
	}{
		"hand-off": {1, func(t *testing.T, l *Lease) {
			t.Helper()
			parent := &strange{Context: t.Context(), ending: func() { time.Sleep(time.Second / 2) }}
			_, cancel := l.Context(parent, nil)
			t.Cleanup(func() { parent.made = false; cancel() })
			parent.made = true // Unlock waits 5 ms for it
			go func() { _ = l.Unlock(t.Context()) }()
		}},
		"release": {0, func(t *testing.T, l *Lease) {
			t.Helper()
			_, _ = beginUnlock(l).requestRelease(t.Context())
		}},
		"silent release": {0, func(t *testing.T, l *Lease) {
			t.Helper()
			beginUnlock(l).releaseLater(nil)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ends := 0
				e := New(Config{Driver: &willing{}, Notify: func(*Note) { ends++ }, Kinds: Ended})
				l := &Lock{"x", "x", &Settings{TTL: time.Minute, Handoff: test.handoff}}
				lease := acquire(t, e, l)
				next := stand(t, e, l, 1)[0]
				test.unlock(t, lease)
				synctest.Wait()
				if !isClosed(next.served) || ends != 1 {
					t.Errorf("served: %v, %d ends are noted", isClosed(next.served), ends)
				}
				e.abandon(next)
				_ = e.Close()
			})
		})
	}
}

// TestOneLoopClosesTheDriver checks that two loops do not both close the driver. Close has stopped
// waiting for the second loop, which ends before the driver is closed.
func TestOneLoopClosesTheDriver(t *testing.T) {
	t.Parallel()
	e, _ := newLock(t, &willing{})
	last, _ := e.EnterLoop(t.Context())
	late, _ := e.EnterLoop(t.Context())
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, _ = last.Yield(func() bool { return e.Shutdown(ended) == nil })
	if !last.leave() {
		t.Error("no loop closes the driver")
	}
	_, _ = late.Yield(func() bool { return false })
	if late.leave() {
		t.Error("two loops close the driver")
	}
}

// endingContext ends while its error is read.
type endingContext struct {
	context.Context
	reads int // how many calls of Err return nil
}

func (c *endingContext) Err() error {
	if c.reads--; c.reads >= 0 {
		return nil
	}
	return c.Context.Err()
}

// TestContextErrorWhileTheContextEnds checks that ContextError returns the context's error or nil,
// at whichever read of the error the context ends.
func TestContextErrorWhileTheContextEnds(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errWild)
	for reads := range 5 {
		err := ContextError(&endingContext{ended, reads})
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the context ended after %d reads: %v", reads, err)
		}
	}
	if err := ContextError(ended); !errors.Is(err, context.Canceled) || !errors.Is(err, errWild) {
		t.Errorf("the context had ended before: %v", err)
	}
}

// beginUnlock runs Unlock of a tenure's last lease up to the release.
func beginUnlock(l *Lease) *acquisition {
	a, now := l.tenure.acq, time.Now()
	a.engine.mu.Lock()
	defer a.engine.unlock()
	_ = l.detach()
	l.tenure.unlocked(now)
	l.tenure.silent = true
	return a
}
