package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

func TestReentrancy(t *testing.T) {
	reentrant := []dlock.Option{dlock.WithReentrant()}
	holding := []dlock.Option{dlock.WithReentrant(), dlock.WithMinHold(time.Minute)}
	limited := []dlock.Option{dlock.WithReentrant(), dlock.WithMaxHold(time.Minute)}
	longer := []dlock.Option{dlock.WithReentrant(), dlock.WithMaxHold(2 * time.Minute)}
	delayed := []dlock.Option{dlock.WithReentrant(), dlock.WithLockDelay(time.Minute)}
	for _, test := range []struct {
		name         string
		outer, inner []dlock.Option
		try          bool
		want         error
	}{
		{"both", reentrant, reentrant, false, nil},
		{"both, TryLock", reentrant, reentrant, true, nil},
		{"none", nil, nil, false, dlock.ErrNotAcquired},
		{"the outer alone", reentrant, nil, false, dlock.ErrNotAcquired},
		{"the inner alone", nil, reentrant, true, dlock.ErrNotAcquired},
		{"a longer minimum hold", reentrant, holding, false, dlock.ErrUnsupported},
		{"the same minimum hold", holding, holding, false, nil},
		{"a maximum hold", reentrant, limited, false, dlock.ErrUnsupported},
		{"a shorter maximum hold", longer, limited, false, dlock.ErrUnsupported},
		{"the outer maximum hold", limited, reentrant, false, nil},
		{"a longer lock-delay", reentrant, delayed, true, dlock.ErrUnsupported},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				c := open(t, d)
				outer := takes(t, c, "x", test.outer...)
				ctx, cancel := outer.Context(t.Context())
				defer cancel()
				lock := c.Lock
				if test.try {
					lock = c.TryLock
				}
				inner, err := lock(ctx, "x", test.inner...)
				if !errors.Is(err, test.want) || (inner == nil) != (test.want != nil) {
					t.Fatalf("%v, %v", inner, err)
				}
				wantStory(t, d, "acquire")
				if inner != nil &&
					(inner.Fence() != outer.Fence() || inner.Owner() != outer.Owner()) {
					t.Error("the two leases do not share their grant")
				}
			})
		})
	}
}

// TestReentrantLockAllKeepsItsHold checks that LockAll drops no hold of its own for the lease of an
// outer Lock, and frees the rest.
func TestReentrantLockAllKeepsItsHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := open(t, newCombining(), dlock.WithReentrant())
		outer := takes(t, c, "b")
		ctx, cancel := outer.Context(t.Context())
		defer cancel()
		names := []string{"a", "b", "c"}
		_, err := c.LockAll(ctx, names, dlock.WithMinHold(time.Minute))
		wantErr(t, err, dlock.ErrUnsupported)
		if failed, ok := errors.AsType[*dlock.Error](err); !ok || failed.Name != "b" {
			t.Errorf("%v: it is not about the outer lock", err)
		}
		wantErr(t, outer.Err(), nil)
		areFree(t, c, "a", "c")
		m, err := c.LockAll(ctx, names)
		if err != nil {
			t.Fatal(err)
		}
		wantErr(t, m.Unlock(t.Context()), nil)
		frees(t, outer)
	})
}

func TestReentrantLockIsFreedWithTheLast(t *testing.T) {
	for _, outerFirst := range []bool{true, false} {
		t.Run(fmt.Sprintf("outerFirst=%v", outerFirst), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				c := open(t, d, dlock.WithReentrant())
				outer := takes(t, c, "x")
				ctx, cancel := outer.Context(t.Context())
				defer cancel()
				inner, err := c.Lock(ctx, "x")
				if err != nil {
					t.Fatal(err)
				}
				first, last := inner, outer
				if outerFirst {
					first, last = outer, inner
				}
				frees(t, first)
				wantErr(t, first.Err(), dlock.ErrNotHeld)
				wantErr(t, first.Unlock(t.Context()), dlock.ErrNotHeld)
				if last.Err() != nil || ended(last.Lost()) {
					t.Error("the other lease ended too")
				}
				wantStory(t, d, "acquire")
				frees(t, last)
				wantStory(t, d, "acquire release")
			})
		})
	}
}

func TestReentrantLeasesAreLostTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		c := open(t, d, dlock.WithReentrant())
		outer := takes(t, c, "x")
		ctx, cancel := outer.Context(t.Context())
		defer cancel()
		inner, _ := c.Lock(ctx, "x")
		d.of("acquire")[0].req.Lost(backend.ErrLost)
		wantErr(t, outer.Err(), dlock.ErrLost)
		wantErr(t, inner.Err(), dlock.ErrLost)
	})
}

func TestReentrancyEndsWithTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		c := open(t, d, dlock.WithReentrant())
		outer := takes(t, c, "x")
		ctx, cancel := outer.Context(context.WithoutCancel(t.Context()))
		defer cancel()
		ctx = context.WithoutCancel(ctx)
		frees(t, outer)
		inner, err := c.Lock(ctx, "x")
		if err != nil || inner.Fence() <= outer.Fence() {
			t.Errorf("%v, fence %d", err, inner.Fence())
		}
	})
}

func TestReentrancyIsOfOneNameAndOneClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, other := newScript(), newScript()
		c, stranger := open(t, d, dlock.WithReentrant()), open(t, other, dlock.WithReentrant())
		ctx := t.Context()
		for _, name := range []string{"x", "y"} {
			var cancel context.CancelFunc
			ctx, cancel = takes(t, c, name).Context(ctx)
			defer cancel()
		}
		again, err := c.Lock(ctx, "x") // ctx belongs to y, and its parent belongs to x
		if err != nil {
			t.Fatal(err)
		}
		third, err := c.Lock(ctx, "z")
		if err != nil || third.Fence() <= again.Fence() {
			t.Error(err)
		}
		if _, err := stranger.Lock(ctx, "x"); err != nil {
			t.Error(err)
		}
		wantStory(t, d, "acquire acquire acquire")
		wantStory(t, other, "acquire")
	})
}

// TestEndOfAnotherReentrantLeaseEndsAWait has a context of a lease that is unlocked while a call on
// that context waits for the answers to releases. The call has another lease on the same grant,
// which does not end the context, so the call returns.
func TestEndOfAnotherReentrantLeaseEndsAWait(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]func(
		ctx context.Context, t *testing.T, c *dlock.Client, d *script,
	){
		"Unlock": func(ctx context.Context, t *testing.T, c *dlock.Client, _ *script) {
			t.Helper()
			m, err := c.LockAll(ctx, []string{"x", "y"})
			if err != nil {
				t.Fatal(err)
			}
			wantErr(t, m.Unlock(ctx), dlock.ErrUncertain, context.Canceled)
		},
		"LockAll": func(ctx context.Context, t *testing.T, c *dlock.Client, d *script) {
			t.Helper()
			d.acquires = []acquireStep{d.grant, busy(backend.Busy{})} // y is freed
			_, err := c.LockAll(ctx, []string{"x", "y", "z"})
			wantErr(t, err, context.Canceled)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.releases = []releaseStep{releaseHangs}
				c := open(t, d, dlock.WithReentrant())
				outer := takes(t, c, "x")
				ctx, cancel := outer.Context(t.Context())
				defer cancel()
				time.AfterFunc(time.Second, func() { _ = outer.Unlock(t.Context()) })
				wait(ctx, t, c, d)
				wantAt(t, "returned", time.Since(d.begun), time.Second, 0)
			})
		})
	}
}
