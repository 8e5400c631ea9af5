package engine

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// stand adds n waiters of l to its line. The front of the line must be taken.
func stand(t *testing.T, e *Engine, l *Lock, n int) []*waiter {
	t.Helper()
	e.mu.Lock()
	defer e.unlock()
	var waiters []*waiter
	for range n {
		p, err := e.join(l, true)
		if err != nil || p.waiter == nil {
			t.Fatalf("join returned %v, error %v", p, err)
		}
		waiters = append(waiters, p.waiter)
	}
	return waiters
}

// received waits for the turn of w.
func received(w *waiter) turn {
	<-w.served
	return w.turn
}

// TestAbandonedTurnIsPassedOn checks that a waiter passes its turn on if it gives up at the moment
// at which it receives the turn.
func TestAbandonedTurnIsPassedOn(t *testing.T) {
	t.Parallel()
	for _, kind := range []turnKind{requestTurn, silentTurn} {
		e, l := newLock(t, &willing{})
		a := acquire(t, e, l).tenure.acq
		waiters := stand(t, e, l, 2)
		e.mu.Lock()
		a.leave(turn{kind: kind})
		e.unlock()
		e.abandon(waiters[0])
		select {
		case <-waiters[1].served:
			if got := waiters[1].turn; got.kind != kind {
				t.Errorf("the turn is %d, want %d", got.kind, kind)
			}
		default:
			t.Error("the next waiter has no turn")
		}
	}
}

// TestQueueEntryAfterClose checks the queue entry of a front that gives up. The entry passes to the
// next waiter. But after Close has begun it is released, because the next waiter would send a
// request for it.
func TestQueueEntryAfterClose(t *testing.T) {
	t.Parallel()
	for _, closing := range []bool{false, true} {
		d := &willing{}
		e, l := newLock(t, d)
		e.mu.Lock()
		p, _ := e.join(l, true)
		e.mu.Unlock()
		a := e.newAcquisition(l, p.line, true, silence{})
		a.busy = &backend.Busy{Queued: true}
		next, want := stand(t, e, l, 1)[0], entryTurn
		if closing {
			e.startClosing(backend.ErrClosed)
			want = requestTurn
		}
		e.mu.Lock()
		a.giveUp(false)
		e.unlock()
		if got := received(next); got.kind != want {
			t.Errorf("closing: %t: the turn is %d, want %d", closing, got.kind, want)
		}
		if err := e.Close(); err != nil || (d.releases.Load() == 1) != closing {
			t.Errorf("closing: %t: %d releases, error %v", closing, d.releases.Load(), err)
		}
	}
}

// TestGrantTurnAfterClose checks a waiter that receives the grant after Close has begun: the waiter
// returns ErrClosed, and the grant is released.
func TestGrantTurnAfterClose(t *testing.T) {
	t.Parallel()
	d := &willing{}
	e, l := newLock(t, d)
	lease := acquire(t, e, l)
	waiters := stand(t, e, l, 1)
	if err := lease.Unlock(t.Context()); err != nil || d.releases.Load() != 0 {
		t.Fatalf("error %v, %d releases: the grant is not handed off", err, d.releases.Load())
	}
	handed := received(waiters[0])
	e.startClosing(backend.ErrClosed)
	ref := new(Ref)
	if err := handed.tenure.take(ref); !errors.Is(err, backend.ErrClosed) || ref.Lease() != nil {
		t.Errorf("lease %v, error %v", ref.Lease(), err)
	}
	if err := e.Close(); err != nil || d.releases.Load() != 1 {
		t.Errorf("error %v, %d releases", err, d.releases.Load())
	}
}

// TestMaxHoldBeginsWithTheReturnOfLock checks that a lease is held for its maximum hold after its
// waiter has taken it, however late that is after the hand-off.
func TestMaxHoldBeginsWithTheReturnOfLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, l := newLock(t, &willing{})
		l.MaxHold = time.Second
		lease := acquire(t, e, l)
		waiters := stand(t, e, l, 1)
		if err := lease.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		handed := received(waiters[0])
		time.Sleep(2 * l.MaxHold)
		ref := new(Ref)
		if err := handed.tenure.take(ref); err != nil {
			t.Fatal(err)
		}
		taken := time.Now()
		<-ref.Lease().Lost(ref)
		if held := time.Since(taken); held != l.MaxHold {
			t.Errorf("the lease is held for %v, want %v", held, l.MaxHold)
		}
	})
}

// TestWakeUpOfAReleasedLockStaysArmed checks that a wake-up stays armed after its lock was
// unlocked. So the next Lock wakes no goroutine, although the scheduler has never seen the first
// one.
func TestWakeUpOfAReleasedLockStaysArmed(t *testing.T) {
	t.Parallel()
	now := time.Now()
	e := &Engine{schedule: schedule{wakeUp: make(chan struct{}, 1), processed: now}}
	a := &acquisition{engine: e, state: orphaned}
	e.set(a, now.Add(time.Minute))
	if len(e.wakeUp) != 1 {
		t.Fatal("the first event does not wake the scheduler")
	}
	<-e.wakeUp
	a.unschedule()
	if e.arm(now); !e.armed.Equal(now.Add(time.Minute)) {
		t.Errorf("the wake-up is armed for %v, want one minute later", e.armed)
	}
	if e.set(a, now.Add(2*time.Minute)); len(e.wakeUp) != 0 {
		t.Error("an event after the armed time wakes the scheduler")
	}
	a.unschedule()
	if e.arm(now.Add(time.Minute)); !e.armed.IsZero() {
		t.Errorf("a wake-up is armed for %v, but no event is scheduled", e.armed)
	}
	if e.set(a, now.Add(3*time.Minute)); len(e.wakeUp) != 1 {
		t.Error("the first event of an empty schedule does not wake the scheduler")
	}
}

// requestTimes is a driver that records the times of its requests.
type requestTimes struct {
	willing

	fair     backend.FairMode
	wakes    bool
	acquired []time.Time
	released []time.Time
}

func (d *requestTimes) Capabilities() backend.Capabilities {
	return backend.Capabilities{Modes: backend.Exclusive, Fair: d.fair, Notify: d.wakes}
}

// Wait implements backend.Waiter.
func (*requestTimes) Wait(
	context.Context, *backend.Request, *backend.Busy,
) (*backend.Grant, error) {
	return nil, nil
}

func (d *requestTimes) Acquire(
	ctx context.Context, req *backend.Request,
) (*backend.Grant, error) {
	d.acquired = append(d.acquired, time.Now())
	return d.willing.Acquire(ctx, req)
}

func (d *requestTimes) Release(ctx context.Context, grant *backend.Grant) error {
	d.released = append(d.released, time.Now())
	return d.willing.Release(ctx, grant)
}

// TestGapAfterARelease checks that a process which has kept a lock leaves it free for a moment
// before its next request, if the server has no order of waiters.
func TestGapAfterARelease(t *testing.T) {
	for _, row := range []struct {
		fair      backend.FairMode
		wakes     bool
		kept, gap time.Duration
	}{
		{backend.FairNo, true, time.Hour, maxHandoff / gapPart},
		{backend.FairNo, true, maxHandoff, maxHandoff / gapPart},
		{backend.FairNo, true, gapPart * minGap, minGap},
		{backend.FairNo, true, gapPart*minGap - gapPart, 0},
		{backend.FairNo, false, maxHandoff, maxHandoff / pollGapPart},
		{backend.FairOptional, true, time.Hour, 0},
		{backend.FairAlways, false, time.Hour, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := &requestTimes{fair: row.fair, wakes: row.wakes}
			e := New(Config{Driver: d})
			settings := &Settings{TTL: 3 * time.Hour}
			first := acquire(t, e, &Lock{Name: "x", Key: "x", Settings: settings})
			var next *Lease
			var waiter sync.WaitGroup
			waiter.Go(func() {
				next = acquire(t, e, &Lock{Name: "x", Key: "x", Settings: settings})
			})
			time.Sleep(row.kept)
			if err := first.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
			waiter.Wait()
			if gap := d.acquired[1].Sub(d.released[0]); gap != row.gap {
				t.Errorf("fairness %d, kept for %v: the next request came after %v, want %v",
					row.fair, row.kept, gap, row.gap)
			}
			_ = next.Unlock(t.Context())
			_ = e.Close()
		})
	}
}

// TestEndInTheGap checks that a waiter which is cancelled in the gap before its turn sends no
// request, and that the next waiter is served.
func TestEndInTheGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &requestTimes{}
		e := New(Config{Driver: d})
		l := &Lock{Name: "x", Key: "x", Settings: &Settings{TTL: 3 * time.Hour}}
		first := acquire(t, e, l)
		ctx, cancel := context.WithCancel(t.Context())
		var waiters sync.WaitGroup
		waiters.Go(func() {
			if err := e.Acquire(ctx, l, true, new(Ref)); !errors.Is(err, context.Canceled) {
				t.Errorf("Acquire returned %v", err)
			}
		})
		synctest.Wait()
		waiters.Go(func() { _ = acquire(t, e, l).Unlock(t.Context()) })
		time.Sleep(time.Hour)
		if err := first.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		cancel()
		waiters.Wait()
		if n := len(d.acquired); n != 2 {
			t.Errorf("the server received %d requests, want 2", n)
		}
		_ = e.Close()
	})
}
