package dlock_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

func TestDo(t *testing.T) {
	errWork := errors.New("work failed")
	for _, test := range []struct {
		name  string
		loss  error // the server's reason
		fn    error
		wants []error
	}{
		{"well", nil, nil, nil},
		{"its error", nil, errWork, []error{errWork}},
		{"lost", backend.ErrLost, nil, []error{dlock.ErrLost}},
		{"lost, and its error", backend.ErrLost, errWork, []error{dlock.ErrLost, errWork}},
		{"lost, as not held", backend.ErrNotHeld, nil, []error{dlock.ErrLost, dlock.ErrNotHeld}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				c := open(t, d)
				err := c.Do(t.Context(), "x", func(ctx context.Context, lease *dlock.Lease) error {
					if lease.Err() != nil || ctx.Err() != nil {
						t.Error("the lease is not held in Do")
					}
					if test.loss != nil {
						d.of("acquire")[0].req.Lost(test.loss)
						wantErr(t, context.Cause(ctx), dlock.ErrLost)
					}
					return test.fn
				})
				wantErr(t, err, test.wants...)
				if len(test.wants) == 0 && err != nil {
					t.Error(err)
				}
				e, ok := errors.AsType[*dlock.Error](err)
				if lost := test.loss != nil; ok != lost || ok && e.Name != "x" {
					t.Errorf("the error %v names no lock", err)
				}
				if released := len(d.of("release")) == 1; released == (test.loss != nil) {
					t.Errorf("the calls are %s", d.story())
				}
			})
		})
	}
}

// TestDoLearnsOfTheLossByItsUnlock checks that Do returns ErrLost if its own Unlock is the first to
// detect the loss.
func TestDoLearnsOfTheLossByItsUnlock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.releases = []releaseStep{releaseFails(backend.ErrNotHeld)}
		c := open(t, d)
		err := c.Do(t.Context(), "x", func(context.Context, *dlock.Lease) error { return nil })
		wantErr(t, err, dlock.ErrLost)
	})
}

// TestDoLogsAFailedUnlock checks that Do logs a failed Unlock and does not return its error.
func TestDoLogsAFailedUnlock(t *testing.T) {
	for _, test := range []struct {
		name     string
		releases []releaseStep
		fn       func(context.Context, *dlock.Lease) error
		log      string
	}{
		{
			"it fails",
			repeat(1000, releaseFails(errServer)),
			func(context.Context, *dlock.Lease) error { return nil },
			"unlock failed",
		},
		{"it succeeds", nil, func(context.Context, *dlock.Lease) error { return nil }, ""},
		{
			"the work unlocks",
			nil,
			func(ctx context.Context, lease *dlock.Lease) error { return lease.Unlock(ctx) },
			"",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.releases = test.releases
				var log bytes.Buffer
				c := open(t, d, dlock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
				if err := c.Do(t.Context(), "x", test.fn); err != nil {
					t.Error(err)
				}
				synctest.Wait()
				got := log.String()
				if !strings.Contains(got, test.log) || test.log == "" && got != "" {
					t.Errorf("the log is %q, want %q", got, test.log)
				}
			})
		})
	}
}

func TestDoUnlocksHoweverItEnds(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func()
	}{
		{"panic", func() { panic("end") }},
		{"Goexit", runtime.Goexit},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				c := open(t, d)
				var recovered any
				var wg sync.WaitGroup
				wg.Go(func() {
					if test.name == "panic" {
						defer func() { recovered = recover() }()
					}
					_ = c.Do(t.Context(), "x", func(context.Context, *dlock.Lease) error {
						test.end()
						return nil
					})
					t.Error("Do returned")
				})
				wg.Wait()
				wantStory(t, d, "acquire release")
				if test.name == "panic" && recovered != "end" {
					t.Errorf("recovered %v", recovered)
				}
			})
		})
	}
}

func TestDoOnAContextThatEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		ctx, cancel := context.WithCancel(t.Context())
		err := open(t, d).Do(ctx, "x", func(ctx context.Context, _ *dlock.Lease) error {
			cancel()
			return ctx.Err()
		})
		if !errors.Is(err, context.Canceled) || errors.Is(err, dlock.ErrLost) {
			t.Error(err)
		}
		wantStory(t, d, "acquire release")
	})
}

func TestDoWhoseWorkUnlocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		c := open(t, d)
		err := c.Do(t.Context(), "x", func(ctx context.Context, lease *dlock.Lease) error {
			return lease.Unlock(ctx)
		})
		if err != nil {
			t.Error(err)
		}
		wantStory(t, d, "acquire release")
	})
}

func TestTryDo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.acquires = []acquireStep{busy(backend.Busy{})}
		c := open(t, d)
		ran := 0
		work := func(context.Context, *dlock.Lease) error { ran++; return nil }
		wantErr(t, c.TryDo(t.Context(), "x", work), dlock.ErrNotAcquired)
		if err := c.TryDo(t.Context(), "x", work); err != nil || ran != 1 {
			t.Errorf("%v after %d runs", err, ran)
		}
		wantStory(t, d, "acquire acquire release")
	})
}
