package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

func TestError(t *testing.T) {
	for _, test := range []struct {
		err  dlock.Error
		want string
	}{
		{
			dlock.Error{Op: "lock", Backend: "redis", Name: "x", Err: dlock.ErrUnavailable},
			`dlock: lock "x" (redis): backend unavailable`,
		},
		{
			dlock.Error{Op: "open", Err: errors.New("dlock: invalid URL")},
			"dlock: open: invalid URL",
		},
		{
			dlock.Error{
				Op: "lock", Name: strings.Repeat("n", 512),
				Err: fmt.Errorf("%w: %w", dlock.ErrUncertain, dlock.ErrUnavailable),
			},
			`dlock: lock "` + strings.Repeat("n", 64) + `": outcome unknown: backend unavailable`,
		},
	} {
		if got := test.err.Error(); got != test.want {
			t.Errorf("the text is %s\nwant %s", got, test.want)
		}
		if !errors.Is(&test.err, test.err.Err) {
			t.Error("Err is not in the chain")
		}
	}
}

func TestErrorsAreAliasesOfTheBackends(t *testing.T) {
	for ours, theirs := range map[error]error{
		dlock.ErrNotAcquired: backend.ErrNotAcquired, dlock.ErrLost: backend.ErrLost,
		dlock.ErrNotHeld: backend.ErrNotHeld, dlock.ErrInvalidName: backend.ErrInvalidName,
		dlock.ErrUnsupported: backend.ErrUnsupported, dlock.ErrUnavailable: backend.ErrUnavailable,
		dlock.ErrUncertain: backend.ErrUncertain, dlock.ErrConflict: backend.ErrConflict,
		dlock.ErrClosed: backend.ErrClosed,
	} {
		if ours != theirs { //nolint:errorlint // the same value, not an error that wraps it
			t.Errorf("%v is not %v", ours, theirs)
		}
	}
}

// TestErrorsNameTheOperation checks that an error names the operation and the lock exactly once,
// and that it wraps the driver's own error.
func TestErrorsNameTheOperation(t *testing.T) {
	for _, test := range []struct {
		op   string
		name string
		call func(ctx context.Context, c *dlock.Client, lease *dlock.Lease) error
	}{
		{"lock", "x", func(ctx context.Context, c *dlock.Client, _ *dlock.Lease) error {
			_, err := c.Lock(ctx, "x")
			return err
		}},
		{"try-lock", "x", func(ctx context.Context, c *dlock.Client, _ *dlock.Lease) error {
			_, err := c.TryLock(ctx, "x")
			return err
		}},
		{"extend", "held", func(ctx context.Context, _ *dlock.Client, lease *dlock.Lease) error {
			return lease.Extend(ctx)
		}},
		{"unlock", "held", func(ctx context.Context, _ *dlock.Client, lease *dlock.Lease) error {
			return lease.Unlock(ctx)
		}},
		{"inspect", "x", func(ctx context.Context, c *dlock.Client, _ *dlock.Lease) error {
			_, err := c.Inspect(ctx, "x")
			return err
		}},
		{"list", "x", func(ctx context.Context, c *dlock.Client, _ *dlock.Lease) error {
			for _, err := range c.List(ctx, "x") {
				return err
			}
			return nil
		}},
		{"break", "x", func(ctx context.Context, c *dlock.Client, _ *dlock.Lease) error {
			return c.Break(ctx, "x", "")
		}},
	} {
		t.Run(test.op, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.renews = []renewStep{renewFails(errServer)}
				d.releases = repeat(1000, releaseFails(errServer))
				d.inspect = func(context.Context) (*backend.Info, error) { return nil, errServer }
				d.breakLock = func(context.Context) error { return errServer }
				c := open(t, d)
				lease := takes(t, c, "held", dlock.WithoutRenewal())
				d.acquires = repeat(1000, acquireFails(errServer))
				err := test.call(t.Context(), c, lease)
				outer, ok := err.(*dlock.Error) //nolint:errorlint // the outermost error
				if !ok || outer.Op != test.op || outer.Name != test.name ||
					outer.Backend != "dlock_test" {
					t.Fatalf("the error is %#v", err)
				}
				if _, twice := errors.AsType[*dlock.Error](outer.Err); twice {
					t.Errorf("%v is wrapped twice", err)
				}
				if server, ok := errors.AsType[*serverError](err); !ok || server.code != 42 {
					t.Errorf("%v does not contain the driver's own error", err)
				}
			})
		})
	}
}

func TestBreak(t *testing.T) {
	for _, test := range []struct {
		answer, want error
	}{
		{nil, nil},
		{backend.ErrNotHeld, dlock.ErrNotHeld},
		{errUnavailable, dlock.ErrUnavailable},
		{backend.ErrConflict, dlock.ErrConflict},
		{errServer, dlock.ErrUncertain},
	} {
		t.Run(fmt.Sprint(test.answer), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.breakLock = func(context.Context) error { return test.answer }
				if err := open(t, d).Break(t.Context(), "x", ""); !errors.Is(err, test.want) {
					t.Errorf("the error is %v, want %v", err, test.want)
				}
			})
		})
	}
}

func TestInspectAndListShowTheUsersNames(t *testing.T) {
	t.Parallel()
	d := newScript()
	d.inspect = func(context.Context) (*backend.Info, error) {
		return &backend.Info{Key: "p/x", Waiters: 3}, nil
	}
	c, err := openURL(t, d, "prefix=p/")
	if err != nil {
		t.Fatal(err)
	}
	info, err := c.Inspect(t.Context(), "x")
	if err != nil || info.Key != "x" || info.Waiters != 3 {
		t.Errorf("%+v, %v", info, err)
	}
	n := 0
	for info, err := range c.List(t.Context(), "") {
		n++
		if err != nil || info.Key != "x" {
			t.Errorf("%+v, %v", info, err)
		}
	}
	for _, err := range c.List(t.Context(), "") {
		if err == nil {
			n++
		}
		break
	}
	if n != 2 {
		t.Errorf("%d locks", n)
	}
}

// TestCloseExplainsCancellationsAlone checks that ErrClosed replaces only a cancellation. An answer
// that arrives during Close keeps its own error.
func TestCloseExplainsCancellationsAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		c := open(t, d)
		d.acquires = []acquireStep{
			func(ctx context.Context, _ *backend.Request) (*backend.Grant, error) {
				<-ctx.Done()
				return nil, errServer
			},
		}
		done := make(chan error, 1)
		go func() {
			_, err := c.TryLock(t.Context(), "a")
			done <- err
		}()
		synctest.Wait()
		closes(t, c)
		wantErr(t, <-done, errServer)
	})
}

func TestListOfAnInvalidPrefix(t *testing.T) {
	t.Parallel()
	d := newScript()
	c := open(t, d)
	for info, err := range c.List(t.Context(), "a\x00") {
		if info != nil {
			t.Errorf("listed %v", info)
		}
		wantErr(t, err, dlock.ErrInvalidName)
	}
	wantStory(t, d, "")
}

// TestCancelledBeforeItsDeadline checks that a context cancelled before its deadline gives
// context.Canceled, also after the deadline.
func TestCancelledBeforeItsDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := open(t, newScript())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		cancel()
		time.Sleep(2 * time.Second)
		_, err := c.TryLock(ctx, "a")
		wantErr(t, err, context.Canceled)
	})
}
