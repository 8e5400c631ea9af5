package engine

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// willing is a driver that grants every request.
type willing struct {
	backend.Driver

	releases atomic.Int32
}

func (*willing) Capabilities() backend.Capabilities {
	return backend.Capabilities{Modes: backend.Exclusive}
}

func (*willing) Acquire(_ context.Context, req *backend.Request) (*backend.Grant, error) {
	return &backend.Grant{Request: *req, Term: backend.Term{Sent: time.Now(), TTL: req.TTL}}, nil
}

func (d *willing) Release(context.Context, *backend.Grant) error {
	d.releases.Add(1)
	return nil
}

func (*willing) Close() error { return nil }

// newLock returns an engine over d and one of its locks. The engine is closed with the test.
func newLock(t *testing.T, d backend.Driver) (*Engine, *Lock) {
	t.Helper()
	e := New(Config{Driver: d})
	t.Cleanup(func() { _ = e.Close() })
	return e, &Lock{Name: "x", Key: "x", Settings: &Settings{TTL: time.Minute, Handoff: 1}}
}

// acquire acquires l, which must succeed.
func acquire(t *testing.T, e *Engine, l *Lock) *Lease {
	t.Helper()
	ref := new(Ref)
	if err := e.Acquire(t.Context(), l, true, ref); err != nil {
		t.Fatal(err)
	}
	return ref.Lease()
}

// TestDroppedLeaseSplitsNoBatch checks that the renewal of a dropped lease, which is not due any
// more, does not keep the renewals after it out of a batch.
func TestDroppedLeaseSplitsNoBatch(t *testing.T) {
	t.Parallel()
	e, due := newEngine(t), time.Now().Add(10*time.Second)
	var leases []*Lease
	for i, name := range []string{"a", "dropped", "b"} {
		l := take(t, e, name, Settings{TTL: time.Minute})
		leases = append(leases, l)
		e.mu.Lock()
		l.tenure.acq.planned = due.Add(time.Duration(i) * 100 * time.Millisecond)
		l.tenure.acq.schedule()
		e.unlock()
	}
	leases[1].drop()
	e.process(t.Context(), due)
	e.mu.Lock()
	defer e.unlock()
	for i, want := range []bool{true, false, true} {
		a := leases[i].tenure.acq
		renews := a.renewing || a.planned.After(due.Add(time.Second)) // under way or answered
		if renews != want {
			t.Errorf("lease %d is renewed: %v, want %v", i, renews, want)
		}
	}
}

// TestUnlockAsCloseBegins checks Unlock after Close has begun, but before Close has ended the
// lease. Unlock must not report a release that Close has not made yet.
func TestUnlockAsCloseBegins(t *testing.T) {
	t.Parallel()
	e, l := newLock(t, &willing{})
	lease := acquire(t, e, l)
	e.startClosing(backend.ErrClosed)
	if err := lease.Unlock(t.Context()); !errors.Is(err, backend.ErrClosed) {
		t.Errorf("Unlock: %v, want ErrClosed", err)
	}
}

// TestLeaseIsWatchedOnce checks that a lease that is held and used for a long time does not
// accumulate cleanups.
func TestLeaseIsWatchedOnce(t *testing.T) {
	e, l := newLock(t, &willing{})
	lease := acquire(t, e, l)
	ref := lease.ref
	e.mu.Lock()
	defer e.unlock()
	if n := testing.AllocsPerRun(10, func() {
		lease.keep(ref)
		lease.tenure.watch()
	}); n > 0 {
		t.Errorf("watching the lease again makes %v allocations, want 0", n)
	}
}

// TestEndedLeaseKeepsNoRef checks that an ended lease has no pointer to its Ref. The cleanup of a
// watched lease refers to the lease, so the garbage collector would never collect such a Ref.
func TestEndedLeaseKeepsNoRef(t *testing.T) {
	t.Parallel()
	e, l := newLock(t, &willing{})
	lease := acquire(t, e, l)
	ref := lease.ref
	e.mu.Lock()
	lease.tenure.watch()
	e.unlock()
	if err := lease.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-lease.Lost(ref)
	e.mu.Lock()
	defer e.unlock()
	if lease.ref != nil {
		t.Error("the ended lease keeps its Ref")
	}
}

// TestDroppedLeaseIsNotAwaited checks that the release does not wait for a dropped lease, because
// the Unlock of that lease never comes. The last Unlock of the other leases frees the lock.
func TestDroppedLeaseIsNotAwaited(t *testing.T) {
	t.Parallel()
	e, l := newLock(t, &willing{})
	l.Reentrant, l.MaxHold = true, time.Hour
	lease, dropped := acquire(t, e, l), new(Ref)
	if err := e.Acquire(withHeld(t.Context(), lease), l, true, dropped); err != nil {
		t.Fatal(err)
	}
	dropped.Lease().drop()
	a := lease.tenure.acq
	e.mu.Lock()
	a.tenure.start = a.tenure.start.Add(-2 * l.MaxHold)
	e.unlock()
	if err := lease.Unlock(t.Context()); !errors.Is(err, backend.ErrLost) {
		t.Errorf("Unlock: %v, want ErrLost", err)
	}
	e.mu.Lock()
	defer e.unlock()
	if a.state == orphaned {
		t.Error("the lock is kept until the end of its term")
	}
}

// TestCancelledContextIsForgotten checks that a lease does not keep a cancelled context until its
// end.
func TestCancelledContextIsForgotten(t *testing.T) {
	t.Parallel()
	e, l := newLock(t, &willing{})
	lease := acquire(t, e, l)
	for range 3 {
		_, cancel := lease.Context(t.Context(), lease.ref)
		cancel()
	}
	if n := len(lease.views.contexts); n != 0 {
		t.Errorf("the lease keeps %d cancelled contexts", n)
	}
}

// TestRenewalAnsweredAfterTheDeadline checks a renewal with an answer that arrives after the
// deadline, before any other code has detected the deadline.
func TestRenewalAnsweredAfterTheDeadline(t *testing.T) {
	t.Parallel()
	e, l := newLock(t, &willing{})
	lease := acquire(t, e, l)
	a := lease.tenure.acq
	e.mu.Lock()
	a.term.Sent = a.term.Sent.Add(-2 * l.TTL)
	e.unlock()
	a.renewed(backend.Term{Sent: time.Now(), TTL: l.TTL}, nil, alone)
	if err := lease.Err(); !errors.Is(err, backend.ErrLost) {
		t.Errorf("Err: %v, want ErrLost", err)
	}
}

// TestRenewalOfATinyTerm checks that a renewal can be planned in any term, however short.
func TestRenewalOfATinyTerm(t *testing.T) {
	t.Parallel()
	_, l := newLock(t, &willing{})
	for _, ttl := range []time.Duration{-1, 0, 1, 2, 14, time.Microsecond} {
		a := &acquisition{lock: l, term: backend.Term{Sent: time.Now(), TTL: ttl}}
		a.planRenewal()
		if due := a.planned.Sub(a.term.Sent); due < 0 || due > max(ttl, 1) {
			t.Errorf("the renewal of a term of %v is due after %v", ttl, due)
		}
	}
}

// TestUnlockFormatsNoErrorBeforeItFails checks the allocations of Unlock. A context that can end
// costs a goroutine and its channel, but no error. The test is not parallel, because it counts the
// allocations of the process.
func TestUnlockFormatsNoErrorBeforeItFails(t *testing.T) {
	e, l := newLock(t, &willing{})
	allocs := func(ctx context.Context) float64 {
		return testing.AllocsPerRun(1000, func() {
			if err := acquire(t, e, l).Unlock(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	endless, cancellable := allocs(context.Background()), allocs(t.Context())
	if more := cancellable - endless; more > 5 { // an error would add four
		t.Errorf("a context that can end costs %v more allocations, want at most 5", more)
	}
}

// TestCloseAfterTheDeadline has a process that was stopped until the deadline of a lease was over.
// It closes its client before the scheduler runs: the lease is lost, and its lock-delay counts.
func TestCloseAfterTheDeadline(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*Engine, *Lease) error{
		"Close": func(e *Engine, l *Lease) error {
			_ = e.Close()
			return l.Err()
		},
		"Unlock as Close begins": func(e *Engine, l *Lease) error {
			e.startClosing(backend.ErrClosed)
			defer func() { _ = e.Close() }()
			return l.Unlock(context.Background())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var stopped atomic.Int64
				d := new(willing)
				e := New(Config{Driver: d, now: func() time.Time {
					return time.Now().Add(time.Duration(stopped.Load()))
				}})
				lease := acquire(t, e, &Lock{Name: "x", Key: "x", Settings: &Settings{
					TTL: time.Minute, LockDelay: time.Minute, NoRenewal: true,
				}})
				stopped.Store(int64(time.Minute))
				if err := end(e, lease); !errors.Is(err, backend.ErrLost) {
					t.Errorf("the error is %v, want ErrLost", err)
				}
				if n := d.releases.Load(); n != 0 {
					t.Errorf("%d releases during the lock-delay, want 0", n)
				}
			})
		})
	}
}

// entryServer is a server that makes a waiter the holder for the rest of its short queue entry. It
// records the times of the renewals.
type entryServer struct {
	willing

	entered time.Time
	renewed []time.Time
}

func (*entryServer) Capabilities() backend.Capabilities {
	return backend.Capabilities{Modes: backend.Exclusive, Notify: true}
}

func (d *entryServer) Acquire(context.Context, *backend.Request) (*backend.Grant, error) {
	d.entered = time.Now()
	return nil, &backend.Busy{Queued: true}
}

// Wait implements backend.Waiter.
func (d *entryServer) Wait(
	_ context.Context, req *backend.Request, _ *backend.Busy,
) (*backend.Grant, error) {
	time.Sleep(time.Second)
	term := backend.Term{Sent: d.entered, TTL: 10 * time.Second}
	return &backend.Grant{Request: *req, Term: term}, nil
}

func (d *entryServer) Renew(_ context.Context, g *backend.Grant) (backend.Term, error) {
	d.renewed = append(d.renewed, time.Now())
	return backend.Term{Sent: time.Now(), TTL: g.TTL}, nil
}

// TestGrantThroughWaitIsRenewedSoon checks that a grant which came through Wait, with a short term,
// gets a full term soon, but costs no renewal if it is released before.
func TestGrantThroughWaitIsRenewedSoon(t *testing.T) {
	for kept, want := range map[time.Duration]int{
		firstRenewal - time.Millisecond: 0,
		2 * firstRenewal:                1,
	} {
		synctest.Test(t, func(t *testing.T) {
			d := &entryServer{}
			e, l := newLock(t, d)
			lease := acquire(t, e, l)
			time.Sleep(kept)
			synctest.Wait()
			if n := len(d.renewed); n != want {
				t.Errorf("%d renewals in %v, want %d", n, kept, want)
			}
			_ = lease.Unlock(t.Context())
			_ = e.Close()
		})
	}
}
