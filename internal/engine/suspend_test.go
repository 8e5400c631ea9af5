package engine

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/dlock-go/dlock/backend"
)

// clock is the clock of a machine that can be suspended. A suspend sets its wall clock ahead of its
// monotonic clock, which no function of package time can do. The first word of a time.Time with a
// monotonic reading has the seconds of the wall clock above 30 bits of nanoseconds. The clock of
// testing/synctest has no monotonic reading, so these tests run in real time.
type clock struct{ suspended atomic.Int64 }

func (c *clock) now() time.Time {
	now := time.Now()
	*(*uint64)(unsafe.Pointer(&now)) += uint64(c.suspended.Load()) << 30
	return now
}

func (c *clock) suspend(d time.Duration) { c.suspended.Store(int64(d / time.Second)) }

// newClock is newLock with a clock. The lock is not renewed.
func newClock(t *testing.T, d backend.Driver) (*clock, *Engine, *Lock) {
	t.Helper()
	c := new(clock)
	e := New(Config{Driver: d, now: c.now})
	t.Cleanup(func() { _ = e.Close() })
	return c, e, &Lock{Name: "x", Key: "x", Settings: &Settings{TTL: time.Minute, NoRenewal: true}}
}

// TestSuspendedClock checks that a suspend counts as elapsed time, and that a wall clock that is
// set back does not reduce the elapsed time.
func TestSuspendedClock(t *testing.T) {
	t.Parallel()
	c := new(clock)
	now := c.now()
	c.suspend(3 * time.Second)
	for _, test := range []struct{ lead, elapsed time.Duration }{
		{3 * time.Second, 3 * time.Second},
		{-3 * time.Second, 0},
	} {
		c.suspend(test.lead)
		later := c.now()
		if d := ahead(now, later); d.Round(time.Millisecond) != test.lead {
			t.Errorf("the wall clock is %v ahead, want %v", d, test.lead)
		}
		d, most := elapsed(now, later), test.elapsed+time.Since(now)
		if d < test.elapsed || d > most {
			t.Errorf("with a lead of %v the elapsed time is %v, want %v to %v",
				test.lead, d, test.elapsed, most)
		}
	}
}

// TestWallClockThatIsSetBack checks that setting the wall clock back prolongs no lease.
func TestWallClockThatIsSetBack(t *testing.T) {
	t.Parallel()
	for _, hold := range []time.Duration{0, 30 * time.Second} {
		c, e, l := newClock(t, &willing{})
		l.MaxHold = hold
		lease := acquire(t, e, l)
		before := lease.peekDeadline()
		c.suspend(-time.Hour)
		if after := lease.peekDeadline(); !after.Equal(before) {
			t.Errorf("the deadline moves by %v", after.Sub(before))
		}
	}
}

// renewable is a driver that grants and renews everything.
type renewable struct{ willing }

func (*renewable) Renew(_ context.Context, g *backend.Grant) (backend.Term, error) {
	return backend.Term{Sent: time.Now(), TTL: g.TTL}, nil
}

// slow is the tolerance for a busy machine. A defect would delay the checked event by 19 s or more.
const slow = 15 * time.Second

// TestSuspend checks a suspend of the machine. If the time of a lease runs out during the suspend,
// the lease ends within 60 ms of the waking. Other leases end at their deadlines by the wall clock.
func TestSuspend(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		suspend time.Duration
		maxHold time.Duration
		want    time.Duration // the end of the lease after the waking, by the monotonic clock
	}{
		{"longer than the term", time.Hour, 0, 0},
		{"a part of the term", 59 * time.Second, 0, 390 * time.Millisecond},
		{
			"a part of the maximum hold",
			29 * time.Second, 29300 * time.Millisecond, 300 * time.Millisecond,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c, e, l := newClock(t, &willing{})
			l.MaxHold = test.maxHold
			lease := acquire(t, e, l)
			begun := time.Now()
			ctx, cancel := lease.Context(t.Context(), lease.ref)
			defer cancel()
			c.suspend(test.suspend)
			if left := lease.peekDeadline().Sub(begun); left > test.want {
				t.Errorf("the deadline is %v after the waking, want %v", left, test.want)
			}
			select {
			case <-ctx.Done():
			case <-time.After(test.want + slow):
			}
			if took := time.Since(begun); took < test.want/2 || took > test.want+slow {
				t.Fatalf("the context ends %v after the waking, want %v", took, test.want)
			}
			if err := context.Cause(ctx); !errors.Is(err, backend.ErrLost) {
				t.Errorf("the cause is %v", err)
			}
		})
	}
}

// peekDeadline is Deadline without its check, which ends a lease before the scheduler does.
func (l *Lease) peekDeadline() time.Time {
	e := l.tenure.acq.engine
	e.mu.Lock()
	defer e.unlock()
	return l.tenure.deadline(e.now())
}

// TestViewsOfALeaseCompareTheClocks checks that each method compares the clocks without the
// scheduler.
func TestViewsOfALeaseCompareTheClocks(t *testing.T) {
	t.Parallel()
	for name, isOver := range map[string]func(*Lease) bool{
		"Err": func(l *Lease) bool { return errors.Is(l.Err(), backend.ErrLost) },
		"Deadline": func(l *Lease) bool {
			return !l.Deadline().After(time.Now()) && l.reason != nil
		},
		"Lost": func(l *Lease) bool {
			select {
			case <-l.Lost(nil):
				return true
			default:
				return false
			}
		},
		"Context": func(l *Lease) bool {
			ctx, cancel := l.Context(context.Background(), nil)
			defer cancel()
			return errors.Is(context.Cause(ctx), backend.ErrLost)
		},
		"Lock": func(l *Lease) bool { // does not join a tenure that is over
			ctx := withHeld(context.Background(), l)
			err := l.tenure.acq.engine.Acquire(ctx, l.tenure.lock, true, new(Ref))
			return !errors.Is(err, errReentrant)
		},
		"Unlock": func(l *Lease) bool {
			return errors.Is(l.Unlock(context.Background()), backend.ErrLost)
		},
	} {
		c, e, l := newClock(t, &willing{})
		lease := acquire(t, e, l)
		c.suspend(time.Hour)
		if !isOver(lease) {
			t.Errorf("%s does not compare the clocks", name)
		}
	}
}

// TestLeaseIsRenewedAfterASuspend checks that a lease is renewed at once after a suspend, because
// less time is left until its deadline.
func TestLeaseIsRenewedAfterASuspend(t *testing.T) {
	t.Parallel()
	c, e, l := newClock(t, &renewable{})
	l.NoRenewal = false
	lease := acquire(t, e, l)
	sent := lease.tenure.acq.term.Sent
	c.suspend(30 * time.Second)
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		e.mu.Lock()
		renewed := lease.tenure.acq.term.Sent.After(sent)
		e.unlock()
		if renewed {
			return
		}
		if time.Since(begun) > slow {
			t.Fatal("the lease was not renewed")
		}
	}
}

// TestClocksAreComparedWhileALeaseIsLive checks that a new lease starts the comparison of the
// clocks, even if the scheduler sleeps until a much later event.
func TestClocksAreComparedWhileALeaseIsLive(t *testing.T) {
	t.Parallel()
	c, e, l := newClock(t, &willing{})
	e.mu.Lock()
	orphan := &acquisition{
		engine: e, lock: l, state: orphaned, planned: time.Now().Add(20 * time.Second),
	}
	orphan.schedule()
	e.unlock()
	for armed := false; !armed; time.Sleep(time.Millisecond) {
		e.mu.Lock()
		armed = e.armed.Equal(orphan.planned) // the scheduler has armed its timer and sleeps
		e.unlock()
	}
	lost := acquire(t, e, l).Lost(nil)
	c.suspend(time.Hour)
	begun := time.Now()
	<-lost
	if took := time.Since(begun); took > slow {
		t.Errorf("the lease was lost %v after the waking", took)
	}
	e.mu.Lock()
	orphan.unschedule()
	e.unlock()
}

// TestClocksAreComparedAgainAndAgain checks that the comparison is repeated, because a suspend can
// come long after the lease began.
func TestClocksAreComparedAgainAndAgain(t *testing.T) {
	t.Parallel()
	c, e, l := newClock(t, &willing{})
	lost := acquire(t, e, l).Lost(nil)
	looks, last, begun := 0, time.Time{}, time.Now()
	for ; looks < 4; time.Sleep(time.Millisecond) {
		if time.Since(begun) > slow {
			t.Fatalf("the scheduler has compared the clocks %d times, want 4", looks)
		}
		e.mu.Lock()
		if !e.processed.Equal(last) {
			looks, last = looks+1, e.processed
		}
		e.unlock()
	}
	c.suspend(time.Hour)
	begun = time.Now()
	<-lost
	if took := time.Since(begun); took > slow {
		t.Errorf("the lease was lost %v after the waking", took)
	}
}

// TestClocksAreComparedEveryTick checks how often the clocks are compared while a lease is held. It
// is the largest part of the 60 ms after which a suspend is detected. In a bubble of synctest no
// load delays the scheduler.
func TestClocksAreComparedEveryTick(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, l := newLock(t, &renewable{})
		lease := acquire(t, e, l)
		for range 100 {
			time.Sleep(51 * time.Millisecond)
			synctest.Wait()
			e.mu.Lock()
			age := time.Since(e.processed)
			e.unlock()
			if age > 50*time.Millisecond {
				t.Fatalf("the clocks were compared %v ago, want at most 50ms", age)
			}
		}
		if err := lease.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// exporting is a driver that exports everything. It does not answer its first attempt, which may be
// executed late.
type exporting struct {
	willing
	attempts atomic.Int32
	late     time.Duration
}

func (d *exporting) Capabilities() backend.Capabilities {
	return backend.Capabilities{Modes: backend.Exclusive, Move: true, Late: d.late}
}

func (d *exporting) Acquire(
	ctx context.Context, req *backend.Request,
) (*backend.Grant, error) {
	if d.attempts.Add(1) == 1 {
		return nil, errors.New("no answer")
	}
	return d.willing.Acquire(ctx, req)
}

func (*exporting) Export(context.Context, *backend.Grant) (string, error) { return "ticket", nil }

func (*exporting) Adopt(
	context.Context, string, *backend.Request,
) (*backend.Grant, error) {
	return nil, backend.ErrLost
}

// TestExportWaitsByTheMonotonicClock checks that a wall clock which is set forward does not hide
// that an attempt may still be executed.
func TestExportWaitsByTheMonotonicClock(t *testing.T) {
	t.Parallel()
	d := &exporting{late: 3 * time.Second}
	c, e, l := newClock(t, d)
	lease := acquire(t, e, l)
	begun := time.Now()
	c.suspend(10 * d.late)
	_, err := lease.Export(t.Context())
	if time.Since(begun) < d.late && !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("Export: %v, want ErrUnavailable", err)
	}
}
