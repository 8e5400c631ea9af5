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

// serverError stands for the error of a driver's client library.
type serverError struct{ code int }

func (e *serverError) Error() string { return "the server said no" }

var (
	errServer      = &serverError{42}
	errUnavailable = errors.Join(backend.ErrUnavailable, errServer)
)

// busy is the answer no: held by another.
func busy(b backend.Busy) acquireStep {
	return func(context.Context, *backend.Request) (*backend.Grant, error) { return nil, &b }
}

func acquireFails(err error) acquireStep {
	return func(context.Context, *backend.Request) (*backend.Grant, error) { return nil, err }
}

// acquireHangs never answers.
func acquireHangs(ctx context.Context, _ *backend.Request) (*backend.Grant, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// lookAgain ends a Wait after d.
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
	return func(context.Context, *backend.Request, *backend.Busy) (*backend.Grant, error) { return nil, err }
}

func renewFails(err error) renewStep {
	return func(context.Context, *backend.Grant) (backend.Term, error) { return backend.Term{}, err }
}

// renewHangs never answers.
func renewHangs(ctx context.Context, _ *backend.Grant) (backend.Term, error) {
	<-ctx.Done()
	return backend.Term{}, ctx.Err()
}

func releaseFails(err error) releaseStep {
	return func(context.Context, *backend.Grant) error { return err }
}

// releaseHangs never answers.
func releaseHangs(ctx context.Context, _ *backend.Grant) error {
	<-ctx.Done()
	return ctx.Err()
}

// repeat is a list of n equal steps.
func repeat[S any](n int, step S) []S {
	steps := make([]S, n)
	for i := range steps {
		steps[i] = step
	}
	return steps
}

// open returns a client over d that is closed with the test.
func open(t *testing.T, d backend.Driver, opts ...dlock.Option) *dlock.Client {
	t.Helper()
	c, err := dlock.New(d, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// takes is a Lock that must succeed. The lease is not dropped while the test runs.
func takes(t *testing.T, c *dlock.Client, name string, opts ...dlock.Option) *dlock.Lease {
	t.Helper()
	lease, err := c.Lock(t.Context(), name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { runtime.KeepAlive(lease) })
	return lease
}

// frees is an Unlock that must succeed.
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

// wantStory checks the calls that the driver got.
func wantStory(t *testing.T, d *script, want string) {
	t.Helper()
	if got := d.story(); got != want {
		t.Errorf("the driver was asked to %s\nwant %s", got, want)
	}
}

// wantAt checks that something happened at a moment, within a tolerance.
func wantAt(t *testing.T, what string, got, want, tolerance time.Duration) {
	t.Helper()
	if got < want-tolerance || got > want+tolerance {
		t.Errorf("%s at %v, want %v ± %v", what, got, want, tolerance)
	}
}

// ended tells whether a channel is closed.
func ended(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// result is what a Lock in another goroutine returned.
type result struct {
	lease *dlock.Lease
	err   error
	at    time.Time
}

// lockBehind locks in another goroutine.
func lockBehind(ctx context.Context, c *dlock.Client, name string, opts ...dlock.Option) <-chan result {
	done := make(chan result, 1)
	go func() {
		lease, err := c.Lock(ctx, name, opts...)
		done <- result{lease, err, time.Now()}
	}()
	return done
}
