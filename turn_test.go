package dlock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// turnDriver grants everything and counts the releases.
type turnDriver struct {
	backend.Driver

	mu       sync.Mutex
	releases int
}

func (d *turnDriver) Capabilities() backend.Capabilities {
	return backend.Capabilities{Modes: backend.Exclusive}
}

func (d *turnDriver) Acquire(_ context.Context, req *backend.Request) (*backend.Grant, error) {
	return &backend.Grant{Request: *req, Term: backend.Term{Sent: time.Now(), TTL: req.TTL}}, nil
}

func (d *turnDriver) Release(context.Context, *backend.Grant) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.releases++
	return nil
}

func (d *turnDriver) Close() error { return nil }

// turnFixture is a client with three holds in the queue of one name, the first at its head.
type turnFixture struct {
	client               *Client
	driver               *turnDriver
	first, second, third *hold
}

func newTurnFixture(t *testing.T) *turnFixture {
	t.Helper()
	d := &turnDriver{}
	c, err := New(d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	m, err := c.mutex("turn", nil)
	if err != nil {
		t.Fatal(err)
	}
	f := &turnFixture{client: c, driver: d, first: newHold(m), second: newHold(m), third: newHold(m)}
	for i, h := range []*hold{f.first, f.second, f.third} {
		if head := c.queues.Join(m.key, &h.place, h); head != (i == 0) {
			t.Fatalf("place %d: head %t", i, head)
		}
	}
	return f
}

// A waiter that gives up in the instant in which it becomes the head passes its turn on.
func TestAbandonedTurnIsPassedOn(t *testing.T) {
	t.Parallel()
	for _, turn := range []turn{ownTurn, silentTurn} {
		f := newTurnFixture(t)
		f.first.leavePlace(turn)
		f.second.leaveQueue()
		select {
		case got := <-f.third.place.Turn():
			if got != turn {
				t.Errorf("the turn is %d, want %d", got, turn)
			}
		default:
			t.Error("the next waiter has no turn")
		}
		f.third.leavePlace(ownTurn)
	}
}

// A waiter that receives the grant after Close has begun returns ErrClosed, and the grant is
// released.
func TestGrantTurnAfterClose(t *testing.T) {
	t.Parallel()
	f := newTurnFixture(t)
	f.first.draw(true, time.Time{})
	granted := &backend.Grant{Request: f.first.request, Term: backend.Term{Sent: time.Now(), TTL: f.first.request.TTL}}
	if _, err := f.first.accept(granted, false); err != nil {
		t.Fatal(err)
	}
	if !f.first.handOff() {
		t.Fatal("the grant is not passed on")
	}
	f.client.lifecycle.begin(ErrClosed)
	if lease, err := f.second.takeLease(); lease != nil || !errors.Is(err, ErrClosed) {
		t.Errorf("lease %v, error %v", lease, err)
	}
	f.client.lifecycle.end()
	f.client.lifecycle.behind.Wait()
	if f.driver.releases != 1 {
		t.Errorf("%d releases", f.driver.releases)
	}
}

// Unlock in the instant in which Close has begun, and has not ended the lease yet, returns ErrClosed.
func TestUnlockAsCloseBegins(t *testing.T) {
	t.Parallel()
	d := &turnDriver{}
	c, err := New(d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	lease, err := c.Lock(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	c.lifecycle.beginClose()
	if err := lease.Unlock(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("Unlock: %v, want ErrClosed", err)
	}
}

// A context that was cancelled is not kept until the lease ends.
func TestCancelledContextIsForgotten(t *testing.T) {
	t.Parallel()
	c, err := New(&turnDriver{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	lease, err := c.Lock(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		_, cancel := lease.Context(t.Context())
		cancel()
	}
	if n := len(lease.handle.contexts); n != 0 {
		t.Errorf("%d contexts are kept", n)
	}
}

// A renewal can be planned in any term.
func TestRenewalOfATinyTerm(t *testing.T) {
	t.Parallel()
	f := newTurnFixture(t)
	for _, ttl := range []time.Duration{-1, 0, 1, 2, 14, time.Microsecond} {
		f.first.term = backend.Term{Sent: time.Now(), TTL: ttl}
		f.first.planRenewal()
		if due := f.first.due.Sub(f.first.term.Sent); due < 0 || due > max(ttl, 1) {
			t.Errorf("the renewal of a term of %v is due after %v", ttl, due)
		}
	}
}
