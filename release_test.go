package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// TestUnlockOnADeadContext calls Unlock on an ended context, and on a context that ends with the
// lease.
func TestUnlockOnADeadContext(t *testing.T) {
	t.Parallel()
	for name, derive := range map[string]func(*testing.T, *dlock.Lease) context.Context{
		"cancelled": func(t *testing.T, _ *dlock.Lease) context.Context {
			t.Helper()
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return ctx
		},
		"of the lease": func(t *testing.T, lease *dlock.Lease) context.Context {
			t.Helper()
			ctx, cancel := lease.Context(t.Context())
			t.Cleanup(cancel)
			return ctx
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.releases = []releaseStep{func(ctx context.Context, _ *backend.Grant) error {
					time.Sleep(time.Second)
					return ctx.Err()
				}}
				lease := takes(t, open(t, d), "x")
				if err := lease.Unlock(derive(t, lease)); err != nil {
					t.Error(err)
				}
				wantAt(t, "returned", time.Since(d.begun), time.Second, 0)
				wantStory(t, d, "acquire release")
			})
		})
	}
}

// TestUnlockOnADeadContextIsOneAttempt has a server that refuses the release. Unlock returns after
// one request, and the client repeats the release in the background.
func TestUnlockOnADeadContextIsOneAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.releases = []releaseStep{releaseFails(errUnavailable)}
		lease := takes(t, open(t, d), "x")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		wantErr(t, lease.Unlock(ctx), dlock.ErrUncertain, errServer)
		wantAt(t, "returned", time.Since(d.begun), 0, 0)
		wantStory(t, d, "acquire release")
		time.Sleep(time.Minute)
		wantStory(t, d, "acquire release release")
	})
}

// follower is a context that ends some time after its parent.
type follower struct {
	context.Context
	done chan struct{}
}

func follow(parent context.Context, d time.Duration) follower {
	f := follower{parent, make(chan struct{})}
	context.AfterFunc(parent, func() {
		time.Sleep(d)
		close(f.done)
	})
	return f
}

func (f follower) Done() <-chan struct{} { return f.done }

func (f follower) Err() error {
	if !ended(f.done) {
		return nil
	}
	return f.Context.Err()
}

// TestUnlockWhoseContextFollowsALease has a context that ends during the release. If it ends with
// the lease that Unlock has ended, Unlock goes on waiting. If it ends with another lease, Unlock
// returns.
func TestUnlockWhoseContextFollowsALease(t *testing.T) {
	t.Parallel()
	const delay = 100 * time.Millisecond
	for _, own := range []bool{true, false} {
		t.Run(fmt.Sprintf("own=%v", own), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.releases = []releaseStep{func(context.Context, *backend.Grant) error {
					time.Sleep(time.Second)
					return nil
				}}
				c := open(t, d)
				lease := takes(t, c, "x")
				if own {
					ctx, cancel := lease.Context(t.Context())
					defer cancel()
					if err := lease.Unlock(follow(ctx, delay)); err != nil {
						t.Error(err)
					}
					wantAt(t, "returned", time.Since(d.begun), time.Second, 0)
					return
				}
				other := takes(t, c, "y")
				ctx, cancel := other.Context(t.Context())
				defer cancel()
				time.AfterFunc(delay, func() { _ = other.Unlock(t.Context()) })
				wantErr(t, lease.Unlock(ctx), dlock.ErrUncertain, context.Canceled)
				wantAt(t, "returned", time.Since(d.begun), delay, 0)
			})
		})
	}
}

// TestUnlockWhoseContextEnds checks that the end of its context ends the wait of Unlock, not the
// release.
func TestUnlockWhoseContextEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		var answered atomic.Bool
		d.releases = []releaseStep{func(ctx context.Context, _ *backend.Grant) error {
			time.Sleep(3 * time.Second)
			answered.Store(ctx.Err() == nil)
			return ctx.Err()
		}}
		lease := takes(t, open(t, d), "x")
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		err := lease.Unlock(ctx)
		wantErr(t, err, dlock.ErrUncertain, context.Canceled)
		wantAt(t, "returned", time.Since(d.begun), time.Second, 0)
		wantErr(t, lease.Err(), dlock.ErrNotHeld)
		wantErr(t, lease.Unlock(ctx), dlock.ErrNotHeld)
		time.Sleep(time.Hour)
		wantStory(t, d, "acquire release")
		if !answered.Load() {
			t.Error("the release was cancelled")
		}
	})
}

func TestSecondUnlock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		lease := takes(t, open(t, d), "x")
		frees(t, lease)
		for range 3 {
			wantErr(t, lease.Unlock(t.Context()), dlock.ErrNotHeld)
		}
		wantStory(t, d, "acquire release")
	})
}

func TestConcurrentUnlocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		lease := takes(t, open(t, d), "x")
		errs := make(chan error)
		for range 10 {
			go func() { errs <- lease.Unlock(t.Context()) }()
		}
		unlocked := 0
		for range 10 {
			if err := <-errs; err == nil {
				unlocked++
			} else {
				wantErr(t, err, dlock.ErrNotHeld)
			}
		}
		if unlocked != 1 {
			t.Errorf("%d calls of Unlock returned nil, want 1", unlocked)
		}
		wantStory(t, d, "acquire release")
	})
}

// TestNotHeldAtUnlock checks the meaning of ErrNotHeld. After an unknown answer it means that the
// earlier request released the lock, but only before the deadline. After the deadline another owner
// can have had the lock.
func TestNotHeldAtUnlock(t *testing.T) {
	for _, test := range []struct {
		name  string
		held  time.Duration // before Unlock
		steps []releaseStep
		want  error
		took  time.Duration
	}{
		{
			"the first to learn of a loss", 0,
			[]releaseStep{releaseFails(backend.ErrNotHeld)},
			dlock.ErrLost, 0,
		},
		{"lost", 0, []releaseStep{releaseFails(backend.ErrLost)}, dlock.ErrLost, 0},
		{
			"after an unknown answer", 0,
			[]releaseStep{releaseFails(errServer), releaseFails(backend.ErrNotHeld)},
			nil, 50 * time.Millisecond,
		},
		{
			"after an unknown answer and the deadline", life - 20*time.Millisecond,
			[]releaseStep{releaseFails(errServer), releaseFails(backend.ErrNotHeld)},
			dlock.ErrLost, 50 * time.Millisecond,
		},
		{
			"after a request that was not executed", 0,
			[]releaseStep{releaseFails(errUnavailable), releaseFails(backend.ErrNotHeld)},
			dlock.ErrLost, 50 * time.Millisecond,
		},
		{
			"released after the deadline", life - 20*time.Millisecond,
			[]releaseStep{releaseFails(errServer)},
			nil, 50 * time.Millisecond,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.releases = test.steps
				lease := takes(t, open(t, d), "x", dlock.WithTTL(ttl), dlock.WithoutRenewal())
				time.Sleep(test.held)
				begun := time.Now()
				if err := lease.Unlock(t.Context()); !errors.Is(err, test.want) {
					t.Errorf("the error is %v, want %v", err, test.want)
				}
				wantAt(t, "returned", time.Since(begun), test.took, 0)
				time.Sleep(time.Hour)
				if n := len(d.of("release")); n > 2 {
					t.Errorf("%d releases", n)
				}
			})
		})
	}
}

// TestUnlockWithoutAnAnswer checks that Unlock blocks for at most 5 s, or for the TTL if it is
// shorter. Further repetitions of the release run in the background.
func TestUnlockWithoutAnAnswer(t *testing.T) {
	silent, failed := []error{dlock.ErrUncertain}, []error{dlock.ErrUncertain, errServer}
	for _, test := range []struct {
		name string
		ttl  time.Duration
		step releaseStep
		took time.Duration
		want []error
	}{
		{"silent", time.Minute, releaseHangs, 5 * time.Second, silent},
		{"silent, short TTL", 2 * time.Second, releaseHangs, 2 * time.Second, silent},
		{"fails", time.Minute, releaseFails(errServer), 5 * time.Second, failed},
		{"unreachable", time.Minute, releaseFails(errUnavailable), 5 * time.Second, failed},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.releases = repeat(40, test.step)
				lease := takes(t, open(t, d), "x", dlock.WithTTL(test.ttl))
				err := lease.Unlock(t.Context())
				wantErr(t, err, test.want...)
				wantNoErr(t, err, context.DeadlineExceeded, dlock.ErrLost)
				wantAt(t, "returned", time.Since(d.begun), test.took, 0)
				time.Sleep(time.Hour)
				n := len(d.of("release"))
				time.Sleep(time.Hour)
				if n != 41 || len(d.of("release")) != n {
					t.Errorf("%d releases, then %d", n, len(d.of("release")))
				}
			})
		})
	}
}

func TestRepeatedReleasesBackOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.releases = repeat(1000, releaseFails(errUnavailable))
		lease := takes(t, open(t, d), "x")
		wantErr(t, lease.Unlock(t.Context()), dlock.ErrUncertain)
		time.Sleep(time.Minute)
		if n := len(d.of("release")); n < 20 || n > 300 {
			t.Errorf("%d releases in a minute", n)
		}
	})
}

// TestReleasesOfAShortTermBackOff checks that, while Unlock blocks, the interval between releases
// is at most a tenth of the term.
func TestReleasesOfAShortTermBackOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const term = 2 * time.Second
		d := newScript()
		d.releases = repeat(1000, releaseFails(errUnavailable))
		lease := takes(t, open(t, d), "x", dlock.WithTTL(term))
		wantErr(t, lease.Unlock(t.Context()), dlock.ErrUncertain)
		releases := d.of("release")
		var longest time.Duration
		for i := range releases[1:] {
			longest = max(longest, releases[i+1].at-releases[i].at)
		}
		if longest != term/10 {
			t.Errorf("%d releases in %v, the longest interval is %v", len(releases), term, longest)
		}
	})
}

// TestFailedUnlockLetsTheNextRequest checks that a failed Unlock does not block the next local
// waiter.
func TestFailedUnlockLetsTheNextRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.releases = repeat(1000, releaseFails(errUnavailable))
		c := open(t, d, dlock.WithLocalHandoff(0))
		lease := takes(t, c, "x")
		waiter := lockBehind(t.Context(), c, "x")
		synctest.Wait()
		wantErr(t, lease.Unlock(t.Context()), dlock.ErrUncertain)
		if got := <-waiter; got.err != nil {
			t.Error(got.err)
		}
	})
}

// ordered is a driver whose server executes requests in the order of their sending.
type ordered struct{ *script }

func (o ordered) ReleaseThen(ctx context.Context, g *backend.Grant, sent func()) error {
	sent()
	return o.Release(ctx, g)
}

// TestNextWaiterRequestsDuringTheRelease checks that the next waiter gets the lock before the
// release is answered. The release may be repeated later.
func TestNextWaiterRequestsDuringTheRelease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.releases = []releaseStep{func(context.Context, *backend.Grant) error {
			time.Sleep(time.Second)
			return errors.New("no answer")
		}}
		c := open(t, ordered{d}, dlock.WithLocalHandoff(0))
		lease := takes(t, c, "x")
		next := make(chan *dlock.Lease)
		go func() {
			l, err := c.Lock(t.Context(), "x")
			if err != nil {
				t.Error(err)
			}
			wantAt(t, "the next waiter has the lock", time.Since(d.begun), 0, 0)
			next <- l
		}()
		synctest.Wait()
		unlocked := make(chan error)
		go func() { unlocked <- lease.Unlock(t.Context()) }()
		l := <-next
		if err := <-unlocked; err != nil {
			t.Error(err)
		}
		if l.Err() != nil || l.Fence() <= lease.Fence() {
			t.Errorf("Err %v, fence %d after %d", l.Err(), l.Fence(), lease.Fence())
		}
		frees(t, l)
		wantStory(t, d, "acquire release acquire release release")
	})
}

// reporting is an ordered driver that calls sent twice, and passes it to the test.
type reporting struct {
	*script
	sent []func()
}

func (r *reporting) ReleaseThen(ctx context.Context, g *backend.Grant, sent func()) error {
	sent()
	sent()
	r.mu.Lock()
	r.sent = append(r.sent, sent)
	r.mu.Unlock()
	return r.Release(ctx, g)
}

// TestDriverThatReportsASendingTwice checks a driver that reports that a release was sent twice,
// late, or after Close. One waiter gets its turn from each release, and no other lease ends.
func TestDriverThatReportsASendingTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &reporting{script: newScript()}
		c := open(t, d, dlock.WithLocalHandoff(0))
		sound, lease := takes(t, c, "sound"), takes(t, c, "x")
		waiters := queueUp(t, c, "x", 3)
		for i, waiter := range waiters {
			frees(t, lease)
			lease = (<-waiter).lease
			for _, late := range d.sent {
				late()
			}
			synctest.Wait()
			if requests := len(d.of("acquire")); requests != 3+i {
				t.Errorf("%d requests after %d releases, want %d", requests, 1+i, 3+i)
			}
		}
		if err := errors.Join(lease.Err(), sound.Err()); err != nil {
			t.Error(err)
		}
		closes(t, c)
		calls := d.story()
		for _, late := range d.sent {
			late()
		}
		synctest.Wait()
		wantStory(t, d.script, calls)
	})
}

// TestDeadlineLimitsAnUnlockOnTheContextOfItsLease has a silent server. The context ends with the
// lease, and its deadline limits how long Unlock waits for the answer.
func TestDeadlineLimitsAnUnlockOnTheContextOfItsLease(t *testing.T) {
	t.Parallel()
	type unlocker interface {
		Context(parent context.Context) (context.Context, context.CancelFunc)
		Unlock(ctx context.Context) error
	}
	for name, take := range map[string]func(*testing.T, *dlock.Client) unlocker{
		"Lease": func(t *testing.T, c *dlock.Client) unlocker {
			t.Helper()
			return takes(t, c, "x")
		},
		"MultiLease": func(t *testing.T, c *dlock.Client) unlocker {
			t.Helper()
			return locksAll(t, c, "x", "y")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newScript()
				d.releases = repeat(2, releaseStep(releaseHangs))
				lease := take(t, open(t, d))
				ctx, cancel := lease.Context(t.Context())
				defer cancel()
				ctx, cancel = context.WithTimeout(ctx, time.Second)
				defer cancel()
				wantErr(t, lease.Unlock(ctx), dlock.ErrUncertain, context.DeadlineExceeded)
				wantAt(t, "returned", time.Since(d.begun), time.Second, 0)
			})
		})
	}
}
