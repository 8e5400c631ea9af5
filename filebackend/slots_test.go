//go:build linux

package filebackend

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// fill takes all slots, as calls do that hang on the disk.
func (s slots) fill() {
	for range cap(s) {
		s <- struct{}{}
	}
}

// empty frees all slots.
func (s slots) empty() {
	for range cap(s) {
		<-s
	}
}

// soon returns a context that ends after d.
func soon(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// TestAbandonedCallsKeepTheirSlots lets callers leave while their calls hang. No more calls than
// slots hang at a time, and a call that ends makes room for the next one.
func TestAbandonedCallsKeepTheirSlots(t *testing.T) {
	t.Parallel()
	s := make(slots, 3)
	begun, answer, ended := make(chan bool), make(chan bool), make(chan error)
	ctx, cancel := context.WithCancel(t.Context())
	for range cap(s) {
		go func() {
			_, err := callInSlot(ctx, s, func() (bool, error) {
				begun <- true
				return <-answer, nil
			})
			ended <- err
		}()
		<-begun
	}
	cancel()
	for range cap(s) {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("a caller that left: %v, want Canceled", err)
		}
	}
	executed := false
	next := func() (bool, error) {
		executed = true
		return true, nil
	}
	_, err := callInSlot(soon(t, 20*time.Millisecond), s, next)
	if executed || !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("a call without a slot: executed %t, %v; want ErrUnavailable", executed, err)
	}
	answer <- true
	if ok, err := callInSlot(soon(t, 30*time.Second), s, next); !ok {
		t.Errorf("a call after one that ended: %v", err)
	}
	close(answer)
	s.fill() // returns when the other calls have ended
}

// TestCallWithoutTimeKeepsNoSlot ends the context between the slot and the call.
func TestCallWithoutTimeKeepsNoSlot(t *testing.T) {
	t.Parallel()
	s := make(slots, 1)
	s.fill()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := callAndFree(ctx, s, func() (bool, error) { return true, nil })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v, want Canceled", err)
	}
	if len(s) != 0 {
		t.Error("the slot is not free")
	}
}

// TestRequestsThatHangAreLimited takes all slots of a driver's requests. The next requests are not
// executed, and held locks are renewed, downgraded and released meanwhile.
func TestRequestsThatHangAreLimited(t *testing.T) {
	t.Parallel()
	d := openDriver(t, t.TempDir())
	g := acquire(t, d, request("k", 1))
	d.requests.fill()
	begin := map[string]func(ctx context.Context) error{
		"Acquire": func(ctx context.Context) error {
			_, err := d.Acquire(ctx, request("k", 2))
			return err
		},
		"Inspect": func(ctx context.Context) error {
			_, err := d.Inspect(ctx, "k")
			return err
		},
		"List": func(ctx context.Context) (err error) {
			for _, err = range d.List(ctx, "") {
			}
			return err
		},
	}
	for name, call := range begin {
		err := call(soon(t, 20*time.Millisecond))
		if !errors.Is(err, backend.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v, want ErrUnavailable at the end of the context", name, err)
		}
	}
	if a := d.find(request("k", 2)); a != nil {
		t.Error("a request that was not executed is registered")
	}
	ctx := soon(t, 30*time.Second)
	if _, err := d.Renew(ctx, g); err != nil {
		t.Errorf("Renew: %v", err)
	}
	if _, err := d.Downgrade(ctx, g); err != nil {
		t.Errorf("Downgrade: %v", err)
	}
	if err := d.Release(ctx, g); err != nil {
		t.Errorf("Release: %v", err)
	}
	d.requests.empty()
	for name, call := range begin {
		if err := call(soon(t, 30*time.Second)); err != nil {
			t.Errorf("%s on a disk that answers again: %v", name, err)
		}
	}
}

// TestUpkeepThatHangsIsLimited takes all slots of a driver's upkeep. Renewals wait without a
// thread, and new locks are granted meanwhile.
func TestUpkeepThatHangsIsLimited(t *testing.T) {
	t.Parallel()
	d := openDriver(t, t.TempDir())
	g := acquire(t, d, request("k", 1))
	d.upkeep.fill()
	_, err := d.Renew(soon(t, 20*time.Millisecond), g)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Renew: %v, want DeadlineExceeded", err)
	}
	acquire(t, d, request("l", 1))
	d.upkeep.empty()
	if _, err := d.Renew(soon(t, 30*time.Second), g); err != nil {
		t.Errorf("Renew on a disk that answers again: %v", err)
	}
}

// TestReleasesThatHangAreLimited repeats a release while the disk hangs. Only the first one goes on
// after its context, and frees the lock. The test counts goroutines, so it is not parallel.
func TestReleasesThatHangAreLimited(t *testing.T) {
	d := openDriver(t, t.TempDir())
	g := acquire(t, d, request("k", 1))
	a := d.find(&g.Request)
	a.mu.Lock()
	before := runtime.NumGoroutine()
	for i := range 100 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		err := d.Release(ctx, g)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("release %d: %v, want DeadlineExceeded", i, err)
		}
	}
	if n := runtime.NumGoroutine() - before; n > 10 {
		t.Errorf("the releases have left %d goroutines", n)
	}
	a.mu.Unlock()
	for end := time.Now().Add(30 * time.Second); d.find(&g.Request) != nil; {
		if time.Now().After(end) {
			t.Fatal("the lock is not freed when the disk answers")
		}
		time.Sleep(time.Millisecond)
	}
	acquire(t, d, request("k", 2))
}
