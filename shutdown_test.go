package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// TestShutdownIsLimitedByItsContextAlone checks that neither minimum holds nor the 5 s of Close
// limit Shutdown.
func TestShutdownIsLimitedByItsContextAlone(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		limit   time.Duration
		minHold time.Duration
		silent  bool
		took    time.Duration
		left    string // text in the error
	}{
		{"all is released", time.Minute, 0, false, 0, ""},
		{"a minimum hold", time.Minute, 20 * time.Second, false, 20 * time.Second, ""},
		{
			"a minimum hold beyond ctx",
			2 * time.Second, time.Minute, false, 2 * time.Second, "1 locks",
		},
		{"no answer", 12 * time.Second, 0, true, 12 * time.Second, "1 locks"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				if test.silent {
					d.releases = repeat(100, releaseStep(releaseHangs))
				}
				c := open(t, d, dlock.WithTTL(ttl))
				lease := takes(t, c, "x", dlock.WithMinHold(test.minHold))
				ctx, cancel := context.WithTimeout(t.Context(), test.limit)
				defer cancel()
				begun := time.Now()
				err := c.Shutdown(ctx)
				wantAt(t, "shut down", time.Since(begun), test.took, 0)
				wantErr(t, lease.Err(), dlock.ErrClosed)
				if test.left == "" && err != nil {
					t.Error(err)
				}
				if test.left != "" {
					wantErr(t, err, context.DeadlineExceeded)
					if !strings.Contains(err.Error(), test.left) {
						t.Errorf("the error is %v, want %q", err, test.left)
					}
				}
				if err := c.Shutdown(ctx); err != nil || len(d.of("close")) != 1 {
					t.Errorf("second Shutdown: %v, the driver was closed %d times",
						err, len(d.of("close")))
				}
			})
		})
	}
}

// TestShutdownOnTheContextOfALease has a context that Shutdown itself ends. Shutdown waits as Close
// does, or until the deadline of the context.
func TestShutdownOnTheContextOfALease(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		minHold  time.Duration
		answer   releaseStep
		deadline time.Duration // 0: none
		took     time.Duration
		want     error
	}{
		{"slow answer", 0, func(ctx context.Context, _ *backend.Grant) error {
			select {
			case <-time.After(2 * time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}, 0, 2 * time.Second, nil},
		{"a minimum hold", 20 * time.Second, free, 0, 20 * time.Second, nil},
		{"no answer", 0, releaseHangs, 0, 5 * time.Second, context.DeadlineExceeded},
		{
			"a deadline", 0, releaseHangs,
			3 * time.Second, 3 * time.Second, context.DeadlineExceeded,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.releases = repeat(100, test.answer)
				c := open(t, d, dlock.WithTTL(ttl))
				lease := takes(t, c, "x", dlock.WithMinHold(test.minHold))
				ctx, cancel := lease.Context(t.Context())
				defer cancel()
				if test.deadline > 0 {
					ctx, cancel = context.WithTimeout(ctx, test.deadline)
					defer cancel()
				}
				begun := time.Now()
				if err := c.Shutdown(ctx); !errors.Is(err, test.want) {
					t.Errorf("the error is %v, want %v", err, test.want)
				}
				wantAt(t, "shut down", time.Since(begun), test.took, 0)
			})
		})
	}
}

// TestSecondShutdownOnTheContextOfALease has a context that the first of two calls ends. The second
// call waits for the first one, or until the deadline of the context.
func TestSecondShutdownOnTheContextOfALease(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		deadline, took time.Duration
		want           error
	}{
		{0, 2 * time.Second, nil},
		{time.Second, time.Second, context.DeadlineExceeded},
	} {
		t.Run(test.deadline.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.releases = []releaseStep{func(context.Context, *backend.Grant) error {
					time.Sleep(2 * time.Second)
					return nil
				}}
				c := open(t, d)
				ctx, cancel := takes(t, c, "x").Context(t.Context())
				defer cancel()
				if test.deadline > 0 {
					ctx, cancel = context.WithTimeout(ctx, test.deadline)
					defer cancel()
				}
				first := make(chan error, 1)
				go func() { first <- c.Close() }()
				synctest.Wait()
				if err := c.Shutdown(ctx); !errors.Is(err, test.want) {
					t.Errorf("the error is %v, want %v", err, test.want)
				}
				wantAt(t, "returned", time.Since(d.begun), test.took, 0)
				if err := <-first; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestShutdownWithAContextThatPanics has a context that panics after its end. Shutdown closes the
// driver nevertheless, because no later call does.
func TestShutdownWithAContextThatPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.releases = []releaseStep{releaseHangs}
		c := open(t, d)
		takes(t, c, "x")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		panics(t, func() {
			_ = c.Shutdown(probing{ctx, func() {
				if ctx.Err() != nil {
					panic("a context's")
				}
			}})
		})
		wantAt(t, "shut down", time.Since(d.begun), time.Second, 0)
		wantStory(t, d, "acquire release close")
	})
}

// TestShutdownNamesWhatIsLeft checks the error of a Shutdown that leaves no lock to its TTL. An
// answered release that was to be repeated does not count as a lock, and neither does a call.
func TestShutdownNamesWhatIsLeft(t *testing.T) {
	t.Parallel()
	for want, answer := range map[string]func(end <-chan struct{}) error{
		"1 answered releases are not repeated": func(<-chan struct{}) error { return errServer },
		"1 calls are under way": func(end <-chan struct{}) error {
			<-end
			return errServer
		},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d, end := newScript(), make(chan struct{})
				d.caps.Late = time.Minute
				d.acquires = []acquireStep{
					func(context.Context, *backend.Request) (*backend.Grant, error) {
						return nil, answer(end)
					},
				}
				c := open(t, d)
				tried := make(chan error, 1)
				go func() {
					_, err := c.TryLock(t.Context(), "x")
					tried <- err
				}()
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				err := c.Shutdown(ctx)
				wantErr(t, err, context.DeadlineExceeded)
				if text := err.Error(); !strings.Contains(text, want) ||
					strings.Contains(text, "locks") || strings.Contains(text, "0 ") {
					t.Errorf("the error is %v, want %q", err, want)
				}
				close(end)
				wantErr(t, <-tried, dlock.ErrUncertain)
			})
		})
	}
}

// TestShutdownEndsAnUnlock checks that Shutdown ends an unanswered Unlock before it closes the
// driver.
func TestShutdownEndsAnUnlock(t *testing.T) {
	t.Parallel()
	for how, step := range map[string]releaseStep{
		"fails": releaseFails(errUnavailable),
		"hangs": releaseHangs,
	} {
		for _, endless := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/endless=%v", how, endless), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					d := newScript()
					d.releases = repeat(1000, step)
					c := open(t, d)
					lease := takes(t, c, "x")
					ctx := t.Context()
					if endless {
						ctx = context.WithoutCancel(ctx)
					}
					unlocked := make(chan error, 1)
					go func() { unlocked <- lease.Unlock(ctx) }()
					time.Sleep(time.Second)
					ended, cancel := context.WithCancel(t.Context())
					cancel()
					wantErr(t, c.Shutdown(ended), context.Canceled)
					err := <-unlocked
					wantErr(t, err, dlock.ErrUncertain)
					wantNoErr(t, err, context.Canceled, dlock.ErrLost)
					wantAt(t, "both returned", time.Since(d.begun), time.Second, 0)
					time.Sleep(time.Hour)
					if calls := d.of(""); calls[len(calls)-1].op != "close" {
						t.Errorf("the driver was called after its Close: %s", d.story())
					}
				})
			})
		}
	}
}

// TestCloseRepeatsReleasesOfUnlock checks that Close repeats a release without an answer, although
// its Unlock has returned.
func TestCloseRepeatsReleasesOfUnlock(t *testing.T) {
	t.Parallel()
	t.Run("not answered", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			d := newScript()
			d.releases = []releaseStep{releaseHangs}
			c := open(t, d, dlock.WithTTL(ttl))
			wantErr(t, takes(t, c, "x").Unlock(t.Context()), dlock.ErrUncertain)
			closes(t, c)
			wantStory(t, d, "acquire release release close")
		})
	})
	t.Run("under way", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			d := newScript()
			d.releases = []releaseStep{func(context.Context, *backend.Grant) error {
				time.Sleep(2 * time.Second)
				return errServer
			}}
			c := open(t, d, dlock.WithTTL(ttl))
			lease := takes(t, c, "x")
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			wantErr(t, lease.Unlock(ctx), dlock.ErrUncertain)
			if took := closes(t, c); took < time.Second || took > 2*time.Second {
				t.Errorf("Close took %v", took)
			}
			wantStory(t, d, "acquire release release close")
		})
	})
}

// sequence is a driver that records whether its List was running when it was closed.
type sequence struct {
	*script
	listing bool
	closed  string
}

func (s *sequence) List(context.Context, string) iter.Seq2[*backend.Info, error] {
	return func(yield func(*backend.Info, error) bool) {
		s.listing = true
		defer func() { s.listing = false }()
		for yield(&backend.Info{Key: "x"}, nil) {
			continue
		}
	}
}

func (s *sequence) Close() error {
	s.closed = map[bool]string{true: "under the call", false: "after the call"}[s.listing]
	return nil
}

// TestCloseInTheBodyOfAList checks that Close returns at once and ends the loop. The driver is
// closed after the loop.
func TestCloseInTheBodyOfAList(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]func(c *dlock.Client) bool{
		"and goes on": func(*dlock.Client) bool { return true },
		"and breaks":  func(*dlock.Client) bool { return false },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := &sequence{script: newScript()}
				c := open(t, d)
				lease := takes(t, c, "held")
				rounds := 0
				for _, err := range c.List(t.Context(), "") {
					if rounds++; rounds > 1 {
						wantErr(t, err, dlock.ErrClosed)
						continue
					}
					wantAt(t, "closed", closes(t, c), 0, 0)
					if d.closed != "" {
						t.Errorf("the driver was closed %s", d.closed)
					}
					if !body(c) {
						break
					}
				}
				if want := map[string]int{"and goes on": 2, "and breaks": 1}[name]; rounds != want {
					t.Errorf("%d rounds, want %d", rounds, want)
				}
				if d.closed != "after the call" {
					t.Errorf("the driver was closed %q", d.closed)
				}
				wantErr(t, lease.Err(), dlock.ErrClosed)
				wantStory(t, d.script, "acquire release")
			})
		})
	}
}

// TestCloseInAnObserver checks that Close in an Observer returns, and waits only for other events.
func TestCloseInAnObserver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		var c *dlock.Client
		closed := make(chan time.Duration, 2)
		c = open(t, d, dlock.WithObserver(&dlock.Observer{Ended: func(dlock.Event) {
			begun := time.Now()
			_ = c.Close()
			closed <- time.Since(begun)
		}}))
		frees(t, takes(t, c, "x"))
		if took := <-closed; took > 100*time.Millisecond {
			t.Errorf("Close took %v", took)
		}
		wantStory(t, d, "acquire release close")
	})
}

// TestShutdownEndsRequests checks that Shutdown ends the other requests under way before it closes
// the driver.
func TestShutdownEndsRequests(t *testing.T) {
	t.Parallel()
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for name, call := range map[string]func(context.Context, *dlock.Client, *dlock.Lease) error{
		"Extend": func(ctx context.Context, _ *dlock.Client, lease *dlock.Lease) error {
			return lease.Extend(ctx)
		},
		"Inspect": func(ctx context.Context, c *dlock.Client, _ *dlock.Lease) error {
			_, err := c.Inspect(ctx, "x")
			return err
		},
		"Break": func(ctx context.Context, c *dlock.Client, _ *dlock.Lease) error {
			return c.Break(ctx, "x", "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.renews = repeat(100, renewStep(renewHangs))
				d.inspect = func(ctx context.Context) (*backend.Info, error) {
					return nil, hang(ctx)
				}
				d.breakLock = hang
				c := open(t, d)
				lease := takes(t, c, "x")
				called := make(chan error, 1)
				go func() { called <- call(context.WithoutCancel(t.Context()), c, lease) }()
				time.Sleep(time.Second)
				ended, cancel := context.WithCancel(t.Context())
				cancel()
				wantErr(t, c.Shutdown(ended), context.Canceled)
				wantErr(t, <-called, dlock.ErrClosed)
				wantAt(t, "both returned", time.Since(d.begun), time.Second, 0)
			})
		})
	}
}

// TestCallsOnAnOwnLeaseAfterClose checks that a call on the context of a lease which Close has
// ended returns ErrClosed, as a call on another context does.
func TestCallsOnAnOwnLeaseAfterClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		c := open(t, d)
		ctx, cancel := takes(t, c, "x").Context(t.Context())
		defer cancel()
		d.acquires = []acquireStep{acquireHangs}
		tried := make(chan error, 1)
		go func() {
			_, err := c.TryLock(ctx, "z")
			tried <- err
		}()
		synctest.Wait()
		closes(t, c)
		wantErr(t, <-tried, dlock.ErrClosed)
		_, err := c.Lock(ctx, "y")
		wantErr(t, err, dlock.ErrClosed)
		wantNoErr(t, err, context.Canceled)
	})
}
