package dlock_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// serverError is the error of a driver's client library.
type serverError struct{ code int }

func (e *serverError) Error() string { return "the server refused" }

var (
	errServer      = &serverError{42}
	errUnavailable = errors.Join(backend.ErrUnavailable, errServer)
)

// busy is a step that refuses the lock because it has another holder.
func busy(b backend.Busy) acquireStep {
	return func(context.Context, *backend.Request) (*backend.Grant, error) { return nil, &b }
}

func acquireFails(err error) acquireStep {
	return func(context.Context, *backend.Request) (*backend.Grant, error) { return nil, err }
}

// acquireHangs blocks until its context ends.
func acquireHangs(ctx context.Context, _ *backend.Request) (*backend.Grant, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// slowly is a step whose answer takes d.
func slowly(d time.Duration, step acquireStep) acquireStep {
	return func(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
		select {
		case <-time.After(d):
			return step(ctx, req)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// lookAgain is a step that ends a Wait after d without a grant.
func lookAgain(d time.Duration) waitStep {
	return func(ctx context.Context, _ *backend.Request, _ *backend.Busy) (*backend.Grant, error) {
		select {
		case <-time.After(d):
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func waitFails(err error) waitStep {
	return func(context.Context, *backend.Request, *backend.Busy) (*backend.Grant, error) {
		return nil, err
	}
}

func renewFails(err error) renewStep {
	return func(context.Context, *backend.Grant) (backend.Term, error) {
		return backend.Term{}, err
	}
}

// renewHangs blocks until its context ends.
func renewHangs(ctx context.Context, _ *backend.Grant) (backend.Term, error) {
	<-ctx.Done()
	return backend.Term{}, ctx.Err()
}

func releaseFails(err error) releaseStep {
	return func(context.Context, *backend.Grant) error { return err }
}

// releaseHangs blocks until its context ends.
func releaseHangs(ctx context.Context, _ *backend.Grant) error {
	<-ctx.Done()
	return ctx.Err()
}

// repeat returns a list of n equal steps.
func repeat[S any](n int, step S) []S {
	steps := make([]S, n)
	for i := range steps {
		steps[i] = step
	}
	return steps
}

// open returns a client over d. It is closed at the end of the test.
func open(t *testing.T, d backend.Driver, opts ...dlock.Option) *dlock.Client {
	t.Helper()
	c, err := dlock.New(d, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// takes locks name, which must succeed. The lease counts as used until the end of the test.
func takes(t *testing.T, c *dlock.Client, name string, opts ...dlock.Option) *dlock.Lease {
	t.Helper()
	lease, err := c.Lock(t.Context(), name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { runtime.KeepAlive(lease) })
	return lease
}

// frees unlocks the lease, which must succeed.
func frees(t *testing.T, lease *dlock.Lease) {
	t.Helper()
	if err := lease.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// wantErr checks that err is each of targets.
func wantErr(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Errorf("the error is %v, want %v", err, target)
		}
	}
}

// wantNoErr checks that err is none of targets.
func wantNoErr(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if errors.Is(err, target) {
			t.Errorf("the error %v is %v", err, target)
		}
	}
}

// wantStory checks the names of the calls to the driver.
func wantStory(t *testing.T, d *script, want string) {
	t.Helper()
	if got := d.story(); got != want {
		t.Errorf("the calls to the driver are %s\nwant %s", got, want)
	}
}

// wantAt checks the time of an event, within a tolerance.
func wantAt(t *testing.T, what string, got, want, tolerance time.Duration) {
	t.Helper()
	if got < want-tolerance || got > want+tolerance {
		t.Errorf("%s at %v, want %v ± %v", what, got, want, tolerance)
	}
}

// ended reports whether a channel is closed.
func ended(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// result is the result of a Lock in another goroutine, and the time of its return.
type result struct {
	lease *dlock.Lease
	err   error
	at    time.Time
}

// lockBehind calls Lock in another goroutine.
func lockBehind(
	ctx context.Context, c *dlock.Client, name string, opts ...dlock.Option,
) <-chan result {
	done := make(chan result, 1)
	go func() {
		lease, err := c.Lock(ctx, name, opts...)
		done <- result{lease, err, time.Now()}
	}()
	return done
}
