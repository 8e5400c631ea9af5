package dlock_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/membackend"
)

// movable is what a driver implements whose grants can change their mode and their process.
type movable interface {
	backend.Driver
	backend.Waiter
	backend.Downgrader
	backend.Mover
}

// hooked is a driver with functions that replace its methods. A nil function replaces nothing.
type hooked struct {
	movable
	late      time.Duration // for Capabilities
	acquire   acquireStep
	renew     renewStep
	release   releaseStep
	downgrade func(context.Context, *backend.Grant) (*backend.Grant, error)
	export    func(context.Context, *backend.Grant) (string, error)
	adopt     func(context.Context, string, *backend.Request) (*backend.Grant, error)
}

func (d *hooked) Capabilities() backend.Capabilities {
	caps := d.movable.Capabilities()
	caps.Late = d.late
	return caps
}

func (d *hooked) Acquire(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
	if d.acquire != nil {
		return d.acquire(ctx, req)
	}
	return d.movable.Acquire(ctx, req)
}

func (d *hooked) Renew(ctx context.Context, g *backend.Grant) (backend.Term, error) {
	if d.renew != nil {
		return d.renew(ctx, g)
	}
	return d.movable.Renew(ctx, g)
}

func (d *hooked) Release(ctx context.Context, g *backend.Grant) error {
	if d.release != nil {
		return d.release(ctx, g)
	}
	return d.movable.Release(ctx, g)
}

func (d *hooked) Downgrade(ctx context.Context, g *backend.Grant) (*backend.Grant, error) {
	if d.downgrade != nil {
		return d.downgrade(ctx, g)
	}
	return d.movable.Downgrade(ctx, g)
}

func (d *hooked) Export(ctx context.Context, g *backend.Grant) (string, error) {
	if d.export != nil {
		return d.export(ctx, g)
	}
	return d.movable.Export(ctx, g)
}

func (d *hooked) Adopt(
	ctx context.Context, ticket string, req *backend.Request,
) (*backend.Grant, error) {
	if d.adopt != nil {
		return d.adopt(ctx, ticket, req)
	}
	return d.movable.Adopt(ctx, ticket, req)
}

// newHooked returns two drivers of one space without hooks.
func newHooked() (d, other *hooked) {
	space := &membackend.Options{Space: rand.Text()}
	return &hooked{movable: membackend.New(space).(movable)},
		&hooked{movable: membackend.New(space).(movable)}
}

// TestExportNeedsAKnownMode checks that a grant which may be a reader's or a writer's is not
// exported: its handle could not be adopted.
func TestExportNeedsAKnownMode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, another := newHooked()
		c, other := open(t, d, dlock.WithReentrant()), open(t, another)
		lease := takes(t, c, "x")
		d.downgrade = func(ctx context.Context, g *backend.Grant) (*backend.Grant, error) {
			_, _ = d.movable.Downgrade(ctx, g)
			return nil, errServer
		}
		wantErr(t, lease.Downgrade(t.Context()), dlock.ErrUncertain)
		_, err := lease.Export(t.Context())
		if err == nil || lease.Err() != nil {
			t.Errorf("Export: %v, the lease: %v", err, lease.Err())
		}
		ctx, cancel := lease.Context(t.Context())
		defer cancel()
		_, err = c.TryLock(ctx, "x")
		wantErr(t, err, dlock.ErrNotAcquired) // readers may have the lock
		d.downgrade = func(context.Context, *backend.Grant) (*backend.Grant, error) {
			return nil, errUnavailable
		}
		wantErr(t, lease.Downgrade(t.Context()), dlock.ErrUnavailable)
		if _, err := lease.Export(t.Context()); err == nil {
			t.Error("Export after a second Downgrade that was not executed succeeded")
		}
		d.downgrade = nil
		if err := lease.Downgrade(t.Context()); err != nil {
			t.Fatal(err)
		}
		handle, err := lease.Export(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		adopted, err := other.Adopt(t.Context(), handle)
		if err != nil {
			t.Fatal(err)
		}
		frees(t, adopted)
	})
}

// TestNoLeaseJoinsAMove checks what happens during an Export, and that the lease is as before if
// the Export was not executed.
func TestNoLeaseJoinsAMove(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, _ := newHooked()
		c := open(t, d, dlock.WithReentrant())
		lease := takes(t, c, "x")
		ctx, cancel := lease.Context(t.Context())
		defer cancel()
		answer, calls := make(chan struct{}), 0
		d.export = func(context.Context, *backend.Grant) (string, error) {
			if calls++; calls == 1 {
				<-answer
			}
			return "", errUnavailable
		}
		exported := make(chan error, 1)
		go func() {
			_, err := lease.Export(t.Context())
			exported <- err
		}()
		synctest.Wait()
		_, err := c.Lock(ctx, "x")
		wantErr(t, err, dlock.ErrNotAcquired)
		if err := lease.Downgrade(t.Context()); err == nil {
			t.Error("Downgrade during an Export succeeded")
		}
		if _, err := lease.Export(t.Context()); err == nil {
			t.Error("Export during an Export succeeded")
		}
		if calls != 1 {
			t.Errorf("%d requests", calls)
		}
		close(answer)
		wantErr(t, <-exported, dlock.ErrUnavailable)
		inner, err := c.Lock(ctx, "x")
		if err != nil {
			t.Fatalf("a reentrant Lock after an Export that was not executed: %v", err)
		}
		frees(t, inner)
		frees(t, lease)
	})
}

// TestHandleOfAnotherBackend checks that a client refuses the handle of another type of driver. The
// error names both backends, and the handle is still good.
func TestHandleOfAnotherBackend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		space := &membackend.Options{Space: rand.Text()}
		c := open(t, &hooked{movable: membackend.New(space).(movable)})
		other := open(t, membackend.New(space))
		handle, err := takes(t, c, "x").Export(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = other.Adopt(t.Context(), handle)
		for _, part := range []string{
			`dlock: adopt "x"`, `of the backend "dlock_test"`, `this client has "mem"`,
		} {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("the error is %v, want %s", err, part)
			}
		}
		adopted, err := c.Adopt(t.Context(), handle)
		if err != nil {
			t.Fatalf("Adopt after the refusal: %v", err)
		}
		frees(t, adopted)
	})
}

// TestAdoptedLeaseIsReentrant checks that an adopted lease can be taken again in its context.
func TestAdoptedLeaseIsReentrant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := clientsOf(t, 1, dlock.WithReentrant())[0]
		handle, err := takes(t, c, "x").Export(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		adopted, err := c.Adopt(t.Context(), handle)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := adopted.Context(t.Context())
		defer cancel()
		inner, err := c.Lock(ctx, "x")
		if err != nil {
			t.Fatal(err)
		}
		frees(t, inner)
		frees(t, adopted)
	})
}

// TestLateExport has an Export that is executed in time and answered after the deadline. The lock
// is then released at the end of its first term, and not before a lock-delay is over.
func TestLateExport(t *testing.T) {
	t.Parallel()
	for delay, want := range map[time.Duration]time.Duration{
		0: 10 * time.Second, 5 * time.Second: 15 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			d, another := newHooked()
			c, other := open(t, d), open(t, another)
			begun := time.Now()
			lease := takes(t, c, "x", dlock.WithTTL(10*time.Second), dlock.WithLockDelay(delay),
				dlock.WithoutRenewal())
			next := lockBehind(t.Context(), other, "x")
			time.Sleep(9 * time.Second)
			d.export = func(ctx context.Context, g *backend.Grant) (string, error) {
				ticket, err := d.movable.Export(ctx, g)
				time.Sleep(2 * time.Second)
				return ticket, err
			}
			_, err := lease.Export(t.Context())
			wantErr(t, err, dlock.ErrLost)
			r := <-next
			wantAt(t, "the next holder", r.at.Sub(begun), want, 100*time.Millisecond)
			frees(t, r.lease)
		})
	}
}

// TestMoveThatPanics checks that a driver which panics costs its call: a Downgrade keeps the lease,
// and an Export frees the lock.
func TestMoveThatPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, _ := newHooked()
		c := open(t, d)
		d.downgrade = func(context.Context, *backend.Grant) (*backend.Grant, error) {
			panic("a driver's")
		}
		d.export = func(context.Context, *backend.Grant) (string, error) { panic("a driver's") }
		lease := takes(t, c, "x")
		panics(t, func() { _ = lease.Downgrade(t.Context()) })
		if err := lease.Err(); err != nil {
			t.Errorf("after Downgrade: %v", err)
		}
		frees(t, lease)
		lease = takes(t, c, "x")
		panics(t, func() { _, _ = lease.Export(t.Context()) })
		wantErr(t, lease.Err(), dlock.ErrNotHeld)
		frees(t, takes(t, c, "x"))
	})
}

// TestMoveThatReturnsNothing checks a driver whose moves return neither a result nor an error. The
// error names the operation and the lock, the outcome is uncertain, and no other lease ends: the
// Downgrade keeps its lease, the Export frees its lock, and the handle of the Adopt is still good.
func TestMoveThatReturnsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, another := newHooked()
		c, other := open(t, d), open(t, another)
		handle, err := takes(t, other, "adopt").Export(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		d.downgrade = func(context.Context, *backend.Grant) (*backend.Grant, error) {
			return nil, nil
		}
		d.export = func(context.Context, *backend.Grant) (string, error) { return "", nil }
		d.adopt = func(context.Context, string, *backend.Request) (*backend.Grant, error) {
			return nil, nil
		}
		sound := takes(t, c, "sound")
		downgraded, exported := takes(t, c, "downgrade"), takes(t, c, "export")
		_, exportErr := exported.Export(t.Context())
		_, adoptErr := c.Adopt(t.Context(), handle)
		for op, err := range map[string]error{
			"downgrade": downgraded.Downgrade(t.Context()), "export": exportErr, "adopt": adoptErr,
		} {
			wantErr(t, err, dlock.ErrUncertain)
			for _, part := range []string{
				"dlock: " + op + ` "` + op + `"`, "neither a result nor an error",
			} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%v, want %s", err, part)
				}
			}
		}
		wantErr(t, exported.Err(), dlock.ErrNotHeld)
		synctest.Wait() // the client has released what it may have moved
		frees(t, takes(t, other, "export"))
		adopted, err := other.Adopt(t.Context(), handle)
		if err != nil {
			t.Fatal(err)
		}
		for _, lease := range []*dlock.Lease{adopted, downgraded, sound} {
			frees(t, lease)
		}
	})
}

// panics checks that f panics.
func panics(t *testing.T, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Error("the call did not panic")
		}
	}()
	f()
}

// probing is a user's context type that calls a function of the client in each method.
type probing struct {
	context.Context //nolint:containedctx // it is one
	probe           func()
}

func (p probing) Deadline() (time.Time, bool) {
	p.probe()
	return p.Context.Deadline()
}

func (p probing) Done() <-chan struct{} {
	p.probe()
	return p.Context.Done()
}

func (p probing) Err() error {
	p.probe()
	return p.Context.Err()
}

func (p probing) Value(key any) any {
	p.probe()
	return p.Context.Value(key)
}

// TestContextsRunWithoutTheMutex moves leases with contexts that call the client.
func TestContextsRunWithoutTheMutex(t *testing.T) {
	t.Parallel()
	d, _ := newHooked()
	d.downgrade = func(context.Context, *backend.Grant) (*backend.Grant, error) {
		return nil, errServer
	}
	d.export = func(context.Context, *backend.Grant) (string, error) { return "", errServer }
	d.adopt = func(context.Context, string, *backend.Request) (*backend.Grant, error) {
		return nil, errServer
	}
	c := open(t, d)
	probed := takes(t, c, "probed")
	ctx := probing{t.Context(), func() {
		done := make(chan struct{})
		go func() {
			_ = probed.Err()
			close(done)
		}()
		select {
		case <-done:
		case <-time.After(30 * time.Second):
			t.Error("a context is called while the client is locked")
		}
	}}
	handle, err := takes(t, open(t, &hooked{movable: d.movable}), "moved").Export(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Adopt(ctx, handle)
	wantErr(t, err, dlock.ErrUncertain)
	lease := takes(t, c, "x")
	wantErr(t, lease.Downgrade(ctx), dlock.ErrUncertain)
	frees(t, lease)
	_, err = takes(t, c, "y").Export(ctx)
	wantErr(t, err, dlock.ErrUncertain)
	frees(t, probed)
}

// TestMoveWithAContextThatPanics has a context that panics after a request without an answer. The
// answer counts nevertheless: a Downgrade may be repeated, and after an Export the lock is free.
func TestMoveWithAContextThatPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, _ := newHooked()
		c := open(t, d)
		armed := false
		ctx := probing{t.Context(), func() {
			if armed {
				panic("a context's")
			}
		}}
		d.downgrade = func(context.Context, *backend.Grant) (*backend.Grant, error) {
			armed = true
			return nil, errServer
		}
		d.export = func(context.Context, *backend.Grant) (string, error) {
			armed = true
			return "", errServer
		}
		lease := takes(t, c, "x")
		panics(t, func() { _ = lease.Downgrade(ctx) })
		armed = false
		if _, err := lease.Export(t.Context()); err == nil || lease.Err() != nil {
			t.Errorf("Export in an unknown mode: %v, the lease: %v", err, lease.Err())
		}
		d.downgrade = nil
		if err := lease.Downgrade(t.Context()); err != nil {
			t.Errorf("the second Downgrade: %v", err)
		}
		frees(t, lease)
		lease = takes(t, c, "x")
		panics(t, func() { _, _ = lease.Export(ctx) })
		wantErr(t, lease.Err(), dlock.ErrNotHeld)
		synctest.Wait() // for the release in the background
		lease, err := c.TryLock(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		frees(t, lease)
	})
}

// TestPanicAfterALossFreesThePlace has a context that panics after the grant of its Lock was lost,
// before the Lock returned. The next Lock of the client gets the place in the line.
func TestPanicAfterALossFreesThePlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, _ := newHooked()
		c := open(t, d)
		lost := false
		d.acquire = func(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
			g, err := d.movable.Acquire(ctx, req)
			if !lost {
				lost = true
				req.Lost(dlock.ErrLost)
			}
			return g, err
		}
		ctx := probing{t.Context(), func() {
			if lost {
				panic("a context's")
			}
		}}
		panics(t, func() { _, _ = c.Lock(ctx, "x") })
		limited, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		lease, err := c.Lock(limited, "x")
		if err != nil {
			t.Fatal(err)
		}
		frees(t, lease)
	})
}

// TestAdoptedTooLate checks the error of an Adopt whose grant is over when it arrives. The handle
// is consumed, so the request is not as if it was not executed.
func TestAdoptedTooLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, another := newHooked()
		handle, err := takes(t, open(t, another), "x").Export(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c := open(t, d)
		d.adopt = func(
			ctx context.Context, ticket string, req *backend.Request,
		) (*backend.Grant, error) {
			g, err := d.movable.Adopt(ctx, ticket, req)
			time.Sleep(req.TTL)
			return g, err
		}
		_, err = c.Adopt(t.Context(), handle)
		wantErr(t, err, dlock.ErrLost)
		wantNoErr(t, err, dlock.ErrUnavailable)
		frees(t, takes(t, c, "x"))
	})
}

// TestHandleAfterAnUncertainAdopt checks an Adopt without an answer. If it was executed, the client
// releases the lock and the handle is used up. If it was not, the handle is still good.
func TestHandleAfterAnUncertainAdopt(t *testing.T) {
	t.Parallel()
	for _, executed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			d, another := newHooked()
			c, other := open(t, d), open(t, another)
			handle, err := takes(t, other, "x").Export(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			d.adopt = func(
				ctx context.Context, ticket string, req *backend.Request,
			) (*backend.Grant, error) {
				if executed {
					_, _ = d.movable.Adopt(ctx, ticket, req)
				}
				return nil, errServer
			}
			_, err = c.Adopt(t.Context(), handle)
			wantErr(t, err, dlock.ErrUncertain)
			synctest.Wait() // the client has released what it may have adopted
			adopted, err := other.Adopt(t.Context(), handle)
			if executed {
				wantErr(t, err, dlock.ErrLost)
				adopted, err = other.TryLock(t.Context(), "x")
			}
			if err != nil {
				t.Fatal(err)
			}
			frees(t, adopted)
		})
	}
}

// TestExportLeavesNoGhost has a Lock whose first request may be executed late. The server would
// grant the lock to its owner after the adopter has unlocked it, and no release would follow.
func TestExportLeavesNoGhost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, another := newHooked()
		d.late = 2 * time.Second
		attempts := 0
		d.acquire = func(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
			if attempts++; attempts == 1 {
				return nil, errors.New("no answer")
			}
			return d.movable.Acquire(ctx, req)
		}
		c, other := open(t, d), open(t, another)
		lease := takes(t, c, "x")
		_, err := lease.Export(t.Context())
		wantErr(t, err, dlock.ErrUnavailable)
		if err := lease.Err(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(d.late)
		handle, err := lease.Export(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		adopted, err := other.Adopt(t.Context(), handle)
		if err != nil {
			t.Fatal(err)
		}
		frees(t, adopted)
	})
}

// TestMoveWithoutAnAnswerIsUncertain has requests that are not answered in time. They may have been
// executed, so the errors of a Downgrade, an Export and an Adopt do not wrap ErrUnavailable.
func TestMoveWithoutAnAnswerIsUncertain(t *testing.T) {
	t.Parallel()
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	moves := map[string]func(context.Context, *dlock.Client, *dlock.Lease, string) error{
		"Downgrade": func(
			ctx context.Context, _ *dlock.Client, lease *dlock.Lease, _ string,
		) error {
			return lease.Downgrade(ctx)
		},
		"Export": func(ctx context.Context, _ *dlock.Client, lease *dlock.Lease, _ string) error {
			_, err := lease.Export(ctx)
			return err
		},
		"Adopt": func(ctx context.Context, c *dlock.Client, _ *dlock.Lease, handle string) error {
			_, err := c.Adopt(ctx, handle)
			return err
		},
	}
	for name, move := range moves {
		for _, cancelled := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/cancelled=%v", name, cancelled), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					d, another := newHooked()
					d.downgrade = func(
						ctx context.Context, _ *backend.Grant,
					) (*backend.Grant, error) {
						return nil, hang(ctx)
					}
					d.export = func(ctx context.Context, _ *backend.Grant) (string, error) {
						return "", hang(ctx)
					}
					d.adopt = func(
						ctx context.Context, _ string, _ *backend.Request,
					) (*backend.Grant, error) {
						return nil, hang(ctx)
					}
					handle, err := takes(t, open(t, another), "moved").Export(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					c := open(t, d)
					lease := takes(t, c, "x")
					ctx, cancel := context.WithCancelCause(t.Context())
					defer cancel(nil)
					if cancelled { // as an errgroup does after the error of another call
						time.AfterFunc(time.Second, func() { cancel(dlock.ErrUnavailable) })
					}
					err = move(ctx, c, lease, handle)
					wantErr(t, err, dlock.ErrUncertain)
					wantNoErr(t, err, dlock.ErrUnavailable, context.DeadlineExceeded)
					if errors.Is(err, context.Canceled) != cancelled {
						t.Errorf("the error is %v", err)
					}
				})
			})
		}
	}
}

// TestOwnerDuringADowngrade reads the owner while the answer to a Downgrade replaces the grant. The
// race detector reports a read without the mutex.
func TestOwnerDuringADowngrade(t *testing.T) {
	t.Parallel()
	d, _ := newHooked()
	lease := takes(t, open(t, d), "x")
	owner := lease.Owner()
	var reads sync.WaitGroup
	d.downgrade = func(ctx context.Context, g *backend.Grant) (*backend.Grant, error) {
		reads.Go(func() {
			if got := lease.Owner(); got != owner {
				t.Errorf("the owner is %s, want %s", got, owner)
			}
		})
		return d.movable.Downgrade(ctx, g)
	}
	if err := lease.Downgrade(t.Context()); err != nil {
		t.Error(err)
	}
	reads.Wait()
	frees(t, lease)
}

// TestUnlockDuringAMove checks that an Unlock whose first answer was lost returns no loss, although
// a Downgrade or an Export of the same lease found nothing any more.
func TestUnlockDuringAMove(t *testing.T) {
	for name, move := range map[string]func(context.Context, *dlock.Lease) error{
		"Downgrade": func(ctx context.Context, l *dlock.Lease) error { return l.Downgrade(ctx) },
		"Export": func(ctx context.Context, l *dlock.Lease) error {
			_, err := l.Export(ctx)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d, _ := newHooked()
				d.downgrade = func(context.Context, *backend.Grant) (*backend.Grant, error) {
					time.Sleep(2 * time.Second)
					return nil, backend.ErrLost
				}
				d.export = func(context.Context, *backend.Grant) (string, error) {
					time.Sleep(2 * time.Second)
					return "", backend.ErrLost
				}
				d.release = func(ctx context.Context, g *backend.Grant) error {
					if err := d.movable.Release(ctx, g); err != nil {
						return err
					}
					time.Sleep(2 * time.Second)
					return errServer // its answer is lost
				}
				lease := takes(t, open(t, d), "x")
				moved := make(chan error, 1)
				go func() { moved <- move(t.Context(), lease) }()
				time.Sleep(time.Second)
				frees(t, lease)
				wantErr(t, <-moved, dlock.ErrNotHeld)
				wantErr(t, lease.Err(), dlock.ErrNotHeld)
				wantNoErr(t, lease.Err(), dlock.ErrLost)
			})
		})
	}
}

// TestLossDuringAnExport has a driver that reports the loss of a grant to a renewal which crosses
// its Export: the grant has moved. The Export still succeeds, and the handle is good.
func TestLossDuringAnExport(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, another := newHooked()
		c, other := open(t, d), open(t, another)
		lease := takes(t, c, "x", dlock.WithTTL(ttl))
		var executed atomic.Bool
		var renewals atomic.Int32
		d.export = func(ctx context.Context, g *backend.Grant) (string, error) {
			ticket, err := d.movable.Export(ctx, g)
			executed.Store(true)
			time.Sleep(ttl / 2) // a renewal would be due
			return ticket, err
		}
		d.renew = func(ctx context.Context, g *backend.Grant) (backend.Term, error) {
			renewals.Add(1)
			time.Sleep(time.Second)
			if executed.Load() {
				return backend.Term{}, backend.ErrLost
			}
			return d.movable.Renew(ctx, g)
		}
		extended := make(chan error, 1)
		go func() { extended <- lease.Extend(t.Context()) }()
		synctest.Wait()
		handle, err := lease.Export(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n := renewals.Load(); <-extended == nil || n != 1 {
			t.Errorf("%d renewals during the Export", n)
		}
		adopted, err := other.Adopt(t.Context(), handle)
		if err != nil {
			t.Fatal(err)
		}
		frees(t, adopted)
	})
}

// TestRenewalsGoOnAfterAnExport checks that a lease is renewed again if its Export was refused.
func TestRenewalsGoOnAfterAnExport(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, _ := newHooked()
		c := open(t, d)
		lease := takes(t, c, "x", dlock.WithTTL(ttl))
		d.export = func(context.Context, *backend.Grant) (string, error) {
			time.Sleep(ttl / 2)
			return "", errUnavailable
		}
		_, err := lease.Export(t.Context())
		wantErr(t, err, dlock.ErrUnavailable)
		time.Sleep(10 * ttl)
		frees(t, lease)
	})
}

// TestReportedLossDuringAnExport has a server that reports the loss of a grant while its Export is
// executed. No caller gets the ticket, so the client frees the lock before the end of the term.
func TestReportedLossDuringAnExport(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, another := newHooked()
		c, other := open(t, d), open(t, another)
		var lost func(error)
		d.acquire = func(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
			lost = req.Lost
			return d.movable.Acquire(ctx, req)
		}
		lease := takes(t, c, "x", dlock.WithTTL(time.Hour))
		d.export = func(ctx context.Context, g *backend.Grant) (string, error) {
			ticket, err := d.movable.Export(ctx, g)
			lost(backend.ErrLost)
			return ticket, err
		}
		_, err := lease.Export(t.Context())
		wantErr(t, err, dlock.ErrLost)
		begun := time.Now()
		frees(t, takes(t, other, "x"))
		if took := time.Since(begun); took > time.Minute {
			t.Errorf("the lock was free after %v", took)
		}
	})
}

// TestAdoptionThatCloseUndoes checks that the error of an Adopt which was executed as Close began
// is uncertain: the handle is used up.
func TestAdoptionThatCloseUndoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, another := newHooked()
		c, other := open(t, d), open(t, another)
		handle, err := takes(t, other, "x").Export(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		closed := make(chan struct{})
		d.adopt = func(
			ctx context.Context, ticket string, req *backend.Request,
		) (*backend.Grant, error) {
			g, err := d.movable.Adopt(ctx, ticket, req)
			go func() { _ = c.Close(); close(closed) }()
			synctest.Wait()
			return g, err
		}
		_, err = c.Adopt(t.Context(), handle)
		wantErr(t, err, dlock.ErrUncertain, dlock.ErrClosed)
		<-closed
	})
}

// TestUnlockForAMinimumHoldDuringAnExport has an Export that was executed and whose answer is lost,
// and an Unlock meanwhile. No caller has the handle, so the exported grant is released.
func TestUnlockForAMinimumHoldDuringAnExport(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, other := newHooked()
		d.export = func(ctx context.Context, g *backend.Grant) (string, error) {
			_, _ = d.movable.Export(ctx, g)
			time.Sleep(time.Second)
			return "", errServer
		}
		d.renew = func(context.Context, *backend.Grant) (backend.Term, error) {
			return backend.Term{}, backend.ErrLost // the grant has moved to the handle
		}
		lease := takes(t, open(t, d), "x",
			dlock.WithTTL(time.Hour), dlock.WithMinHold(30*time.Minute))
		moved := make(chan error, 1)
		go func() { _, err := lease.Export(t.Context()); moved <- err }()
		synctest.Wait()
		frees(t, lease)
		wantErr(t, <-moved, dlock.ErrNotHeld)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Minute)
		defer cancel()
		next, err := open(t, other).Lock(ctx, "x")
		if err != nil {
			t.Fatalf("the grant was not released: %v", err)
		}
		frees(t, next)
	})
}
