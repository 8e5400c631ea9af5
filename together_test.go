package dlock_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/membackend"
)

type (
	acquireAllStep func(context.Context, []*backend.Request) ([]*backend.Grant, int, error)
	releaseAllStep func(context.Context, []*backend.Grant) []error
)

// combining is a script that acquires several locks in one step. Without a step it grants and
// releases all.
type combining struct {
	*script
	acquireAlls []acquireAllStep
	releaseAlls []releaseAllStep
	keys        []string // of each acquire-all and release-all, joined by commas
}

func newCombining() *combining { return &combining{script: newScript()} }

func (c *combining) AcquireAll(
	ctx context.Context, reqs []*backend.Request,
) ([]*backend.Grant, int, error) {
	var keys []string
	for _, req := range reqs {
		keys = append(keys, req.Key)
	}
	step := next(c.script, call{op: "acquire-all", size: len(reqs)}, &c.acquireAlls, c.grantAll)
	c.note(keys)
	return step(ctx, reqs)
}

func (c *combining) ReleaseAll(ctx context.Context, gs []*backend.Grant) []error {
	var keys []string
	for _, g := range gs {
		keys = append(keys, g.Key)
	}
	step := next(c.script, call{op: "release-all", size: len(gs)}, &c.releaseAlls, freeAll)
	c.note(keys)
	return step(ctx, gs)
}

func (c *combining) note(keys []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keys = append(c.keys, fmt.Sprint(keys))
}

func (c *combining) grantAll(
	ctx context.Context, reqs []*backend.Request,
) (grants []*backend.Grant, failed int, err error) {
	for _, req := range reqs {
		g, _ := c.grant(ctx, req)
		grants = append(grants, g)
	}
	return grants, 0, nil
}

func freeAll(_ context.Context, gs []*backend.Grant) []error { return make([]error, len(gs)) }

func acquireAllFails(failed int, err error) acquireAllStep {
	return func(context.Context, []*backend.Request) ([]*backend.Grant, int, error) {
		return nil, failed, err
	}
}

// locksAll locks the names, which must succeed.
func locksAll(t *testing.T, c *dlock.Client, names ...string) *dlock.MultiLease {
	t.Helper()
	m, err := c.LockAll(t.Context(), names)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { runtime.KeepAlive(m) })
	return m
}

// areFree checks that each name can be locked at once.
func areFree(t *testing.T, c *dlock.Client, names ...string) {
	t.Helper()
	for _, name := range names {
		lease, err := c.TryLock(t.Context(), name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		frees(t, lease)
	}
}

// TestLockAllIsOneRequest checks that LockAll of free names and Unlock take one request each, and
// that the names are acquired in their order.
func TestLockAllIsOneRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newCombining()
		m := locksAll(t, open(t, d), "c", "a", "b")
		if first := m.Leases()[0]; first.Name() != "c" || first.Fence()>>12 != 3 {
			t.Errorf("the first lease is of %s, with the fence %d", first.Name(), first.Fence())
		}
		if err := m.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		wantStory(t, d.script, "acquire-all release-all")
		if want := []string{"[a b c]", "[c a b]"}; !slices.Equal(d.keys, want) {
			t.Errorf("the keys are %v, want %v", d.keys, want)
		}
	})
}

// TestLockAllWaitsForTheTakenLock checks that LockAll waits for the lock that is taken, tries the
// others in one step, and frees what it has in one step.
func TestLockAllWaitsForTheTakenLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newCombining()
		d.acquireAlls = []acquireAllStep{
			acquireAllFails(2, &backend.Busy{}), acquireAllFails(1, &backend.Busy{}),
		}
		m := locksAll(t, open(t, d), "a", "b", "c", "d")
		if err := m.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		// The second failure follows a wait for c, which is not the lowest lock: a is next.
		wantStory(t, d.script,
			"acquire-all acquire acquire-all release acquire acquire-all release-all")
		want := []string{"[a b c d]", "[a b d]", "[b c d]", "[a b c d]"}
		if !slices.Equal(d.keys, want) {
			t.Errorf("the keys are %v, want %v", d.keys, want)
		}
	})
}

// TestLockAllKeepsItsHolds checks that the holds of LockAll begin when all locks are acquired.
func TestLockAllKeepsItsHolds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := open(t, newCombining())
		begun := time.Now()
		m, err := c.LockAll(t.Context(), []string{"a", "b"}, dlock.WithMinHold(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		wantErr(t, m.Unlock(t.Context()), nil)
		_, err = c.TryLock(t.Context(), "a")
		wantErr(t, err, dlock.ErrNotAcquired)
		closes(t, c)
		wantAt(t, "closed", time.Since(begun), time.Minute, 0)
		c = open(t, newCombining())
		m, err = c.LockAll(t.Context(), []string{"a", "b"}, dlock.WithMaxHold(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		wantErr(t, m.Err(), dlock.ErrLost)
		_ = m.Unlock(t.Context())
	})
}

// TestLockAllOneByOne checks that LockAll acquires the locks one by one if they cannot be had in
// one step.
func TestLockAllOneByOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newCombining()
		d.acquireAlls = repeat(10, acquireAllFails(0, backend.ErrUnsupported))
		d.acquires = []acquireStep{d.grant, busy(backend.Busy{})}
		m := locksAll(t, open(t, d), "a", "b")
		wantStory(t, d.script, "acquire-all acquire acquire release acquire acquire")
		if err := m.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestLockAllInOneStepOutlivesALostReply checks that the locks of a request without an answer are
// released, and that LockAll goes on.
func TestLockAllInOneStepOutlivesALostReply(t *testing.T) {
	t.Parallel()
	for _, failure := range []error{errServer, errUnavailable} {
		synctest.Test(t, func(t *testing.T) {
			d := newCombining()
			d.caps.Late = time.Second
			d.acquireAlls = []acquireAllStep{acquireAllFails(0, failure)}
			c := open(t, d, dlock.WithTTL(ttl))
			m := locksAll(t, c, "a", "b")
			synctest.Wait()
			released := len(d.of("release"))
			if undone := !errors.Is(failure, dlock.ErrUnavailable); undone != (released > 0) {
				t.Errorf("%d releases after %v", released, failure)
			}
			if err := m.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
			d.acquireAlls = repeat(1000, acquireAllFails(1, failure))
			d.acquires = repeat(1000, acquireFails(failure))
			_, err := c.LockAll(t.Context(), []string{"a", "b"})
			wantErr(t, err, dlock.ErrUnavailable)
			d.acquires = nil
			areFree(t, c, "a", "b")
		})
	}
}

// refusing refuses each request with the lock c, without an answer about it alone.
func refusing(d *combining) {
	d.acquires = repeat[acquireStep](1000, func(
		ctx context.Context, req *backend.Request,
	) (*backend.Grant, error) {
		if req.Key == "c" {
			return nil, errUnavailable
		}
		return d.grant(ctx, req)
	})
	d.acquireAlls = repeat[acquireAllStep](1000, func(
		ctx context.Context, reqs []*backend.Request,
	) ([]*backend.Grant, int, error) {
		if slices.ContainsFunc(reqs, func(req *backend.Request) bool { return req.Key == "c" }) {
			return nil, 0, errUnavailable
		}
		return d.grantAll(ctx, reqs)
	})
}

// TestRoundsOfLockAllCauseNoEvents checks that no end is noted of the leases that LockAll has for a
// moment, although one of them is of a lock that its context holds.
func TestRoundsOfLockAllCauseNoEvents(t *testing.T) {
	for _, all := range []bool{true, false} {
		t.Run(fmt.Sprintf("observesAll=%v", all), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var r recorder
				observer := r.option()
				if !all {
					observer = dlock.WithObserver(&dlock.Observer{
						Ended: func(e dlock.Event) { r.note("ended", e) },
					})
				}
				d := membackend.New(&membackend.Options{Space: rand.Text()})
				c, other := open(t, d, observer, dlock.WithReentrant()), open(t, d)
				outer, taken := takes(t, c, "a"), takes(t, other, "b")
				ctx, cancel := outer.Context(t.Context())
				defer cancel()
				brief, stop := context.WithTimeout(ctx, time.Second)
				defer stop()
				_, err := c.LockAll(brief, []string{"a", "b"})
				wantErr(t, err, context.DeadlineExceeded)
				synctest.Wait()
				if ended := r.of("ended"); len(ended) > 0 {
					t.Errorf("after a LockAll without success: %d ends, such as %+v",
						len(ended), ended[0])
				}
				frees(t, taken)
				m, err := c.LockAll(ctx, []string{"a", "b"})
				if err != nil {
					t.Fatal(err)
				}
				if err := m.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
				synctest.Wait()
				if ended := r.of("ended"); len(ended) != 2 {
					t.Errorf("after Unlock of two leases: %d ends", len(ended))
				}
				frees(t, outer)
			})
		})
	}
}

// TestLockAllEndsAfterOneRefusedLock has a server that refuses each request about one lock, as for
// a user without the right to it. LockAll returns ErrUnavailable after a TTL, as Lock does.
func TestLockAllEndsAfterOneRefusedLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newCombining()
		refusing(d)
		c, begun := open(t, d, dlock.WithTTL(ttl)), time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*ttl)
		defer cancel()
		_, err := c.LockAll(ctx, []string{"a", "b", "c"})
		wantErr(t, err, dlock.ErrUnavailable)
		wantAt(t, "the end", time.Since(begun), ttl, ttl)
		if failed, ok := errors.AsType[*dlock.Error](err); !ok || failed.Name != "c" {
			t.Errorf("the error is %v", err)
		}
		areFree(t, c, "a", "b")
	})
}

// TestLockAllOutlivesALoss has a lock that is lost before the answer of its grant, as after a
// Break. LockAll tries again, as Lock does.
func TestLockAllOutlivesALoss(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newCombining()
		d.acquireAlls = []acquireAllStep{acquireAllFails(1, backend.ErrLost)}
		_ = locksAll(t, open(t, d), "a", "b").Unlock(t.Context())
		single := newScript()
		single.acquires = []acquireStep{single.grant, acquireFails(backend.ErrLost)}
		_ = locksAll(t, open(t, single), "a", "b").Unlock(t.Context())
	})
}

// broken is a context that panics when it is asked, once it is armed.
type broken struct {
	context.Context
	armed *atomic.Bool
}

func (b broken) Deadline() (time.Time, bool) { b.check(); return b.Context.Deadline() }
func (b broken) Err() error                  { b.check(); return b.Context.Err() }

func (b broken) check() {
	if b.armed.Load() {
		panic("a context's")
	}
}

// TestLockAllFreesAfterABrokenContext has a context that panics between two rounds.
func TestLockAllFreesAfterABrokenContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := broken{t.Context(), new(atomic.Bool)}
		d := newScript()
		d.acquires = []acquireStep{
			d.grant,
			func(context.Context, *backend.Request) (*backend.Grant, error) {
				ctx.armed.Store(true)
				return nil, &backend.Busy{}
			},
		}
		c := open(t, d)
		panics(t, func() { _, _ = c.LockAll(ctx, []string{"a", "b"}) })
		synctest.Wait()
		if n := len(d.of("release")); n != 1 {
			t.Errorf("%d releases, want 1", n)
		}
		areFree(t, c, "a", "b")
	})
}

// TestPartOfAllIsUnknown has a driver that returns fewer grants than it received requests.
func TestPartOfAllIsUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newCombining()
		d.acquireAlls = []acquireAllStep{
			func(ctx context.Context, reqs []*backend.Request) ([]*backend.Grant, int, error) {
				return d.grantAll(ctx, reqs[:1])
			},
			acquireAllFails(-7, errServer), acquireAllFails(99, errServer),
		}
		c := open(t, d)
		for range 3 {
			if err := locksAll(t, c, "a", "b").Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		if n := len(d.of("release")); n < 6 {
			t.Errorf("%d releases of requests without an answer", n)
		}
	})
}

// TestLockAllInOneStepFreesAfterAPanic checks that a driver which panics, or ends the goroutine,
// leaves no name locked.
func TestLockAllInOneStepFreesAfterAPanic(t *testing.T) {
	t.Parallel()
	for how, escape := range map[string]func(){
		"panic": func() { panic("a driver's") }, "goexit": runtime.Goexit,
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newCombining()
				d.acquireAlls = []acquireAllStep{
					func(context.Context, []*backend.Request) ([]*backend.Grant, int, error) {
						escape()
						return nil, 0, nil
					},
				}
				c := open(t, d)
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() { _ = recover() }()
					_, _ = c.LockAll(t.Context(), []string{"a", "b", "c"})
				}()
				<-done
				synctest.Wait()
				if n := len(d.of("release")); n < 3 {
					t.Errorf("%d releases", n)
				}
				areFree(t, c, "a", "b", "c")
			})
		})
	}
}

// TestUnlockInOneStepOutlivesPanics checks that after a panic in a release of several locks, each
// lock is released alone.
func TestUnlockInOneStepOutlivesPanics(t *testing.T) {
	t.Parallel()
	for how, escape := range map[string]func(){
		"panic": func() { panic("a driver's") }, "goexit": runtime.Goexit,
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newCombining()
				d.releaseAlls = []releaseAllStep{
					func(context.Context, []*backend.Grant) []error {
						escape()
						return nil
					},
				}
				c := open(t, d)
				m := locksAll(t, c, "a", "b")
				//nolint:usetesting // a context that cannot end
				if err := m.Unlock(context.Background()); err != nil {
					t.Error(err)
				}
				wantStory(t, d.script, "acquire-all release-all release release")
				areFree(t, c, "a", "b")
			})
		})
	}
}

// TestReleaseWithoutAnAnswerGoesOnAlone checks that only the releases without an answer are
// repeated, and that the answers of the rest are final.
func TestReleaseWithoutAnAnswerGoesOnAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newCombining()
		d.releaseAlls = []releaseAllStep{
			func(context.Context, []*backend.Grant) []error {
				return []error{nil, errServer, backend.ErrNotHeld, errUnavailable}
			},
		}
		d.releases = repeat[releaseStep](2, func(_ context.Context, g *backend.Grant) error {
			if g.Key == "b" { // the release without an answer was executed
				return backend.ErrNotHeld
			}
			return nil
		})
		m := locksAll(t, open(t, d), "a", "b", "c", "d")
		err := m.Unlock(t.Context())
		wantErr(t, err, dlock.ErrLost)
		if !errors.Is(m.Leases()[2].Err(), dlock.ErrLost) {
			t.Errorf("the lost lease: %v", m.Leases()[2].Err())
		}
		for _, i := range []int{0, 1, 3} {
			wantErr(t, m.Leases()[i].Err(), dlock.ErrNotHeld)
		}
		if n := len(d.of("release")); n != 2 {
			t.Errorf("%d releases of two locks", n)
		}
	})
}

// TestUnlockOfSeveralEndsWithItsContext has a driver that does not answer to a release of several
// locks.
func TestUnlockOfSeveralEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newCombining()
		d.releaseAlls = []releaseAllStep{
			func(ctx context.Context, gs []*backend.Grant) []error {
				<-ctx.Done()
				return slices.Repeat([]error{ctx.Err()}, len(gs))
			},
		}
		c := open(t, d)
		m := locksAll(t, c, "a", "b")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		wantErr(t, m.Unlock(ctx), context.DeadlineExceeded, dlock.ErrUncertain)
		wantAt(t, "the end of Unlock", time.Since(begun), time.Second, 0)
		time.Sleep(time.Minute)
		areFree(t, c, "a", "b")
	})
}

// severalLocked runs a test with two leases of a LockAll. Each release calls answer. The driver
// releases both in one step, or each of them alone; n is the number of its requests for both.
func severalLocked(
	t *testing.T, answer func() error,
	test func(t *testing.T, d *script, m *dlock.MultiLease, n int),
) {
	t.Helper()
	for _, how := range []string{"together", "one by one"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newCombining()
				if how == "together" {
					d.releaseAlls = []releaseAllStep{
						func(_ context.Context, gs []*backend.Grant) []error {
							return slices.Repeat([]error{answer()}, len(gs))
						},
					}
					test(t, d.script, locksAll(t, open(t, d), "a", "b"), 1)
					return
				}
				d.releases = repeat[releaseStep](2, func(context.Context, *backend.Grant) error {
					return answer()
				})
				test(t, d.script, locksAll(t, open(t, d.script), "a", "b"), 2)
			})
		})
	}
}

// releasesOf returns the number of requests that release locks.
func releasesOf(d *script) int { return len(d.of("release")) + len(d.of("release-all")) }

// TestUnlockOfSeveralOnADeadContext calls Unlock on an ended context, and on contexts that end with
// the leases. It waits for the answers.
func TestUnlockOfSeveralOnADeadContext(t *testing.T) {
	t.Parallel()
	type derive func(*testing.T, *dlock.MultiLease) (context.Context, context.CancelFunc)
	slowly := func() error {
		time.Sleep(time.Second)
		return nil
	}
	for name, contextOf := range map[string]derive{
		"cancelled": func(t *testing.T, _ *dlock.MultiLease) (context.Context, context.CancelFunc) {
			t.Helper()
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return ctx, cancel
		},
		"of all": func(t *testing.T, m *dlock.MultiLease) (context.Context, context.CancelFunc) {
			t.Helper()
			return m.Context(t.Context())
		},
		"of one": func(t *testing.T, m *dlock.MultiLease) (context.Context, context.CancelFunc) {
			t.Helper()
			leases := m.Leases()
			return leases[len(leases)-1].Context(t.Context()) // its answer is awaited last
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			severalLocked(t, slowly, func(t *testing.T, d *script, m *dlock.MultiLease, n int) {
				t.Helper()
				ctx, cancel := contextOf(t, m)
				defer cancel()
				if err := m.Unlock(ctx); err != nil {
					t.Error(err)
				}
				wantAt(t, "returned", time.Since(d.begun), time.Second, 0)
				if got := releasesOf(d); got != n {
					t.Errorf("%d releases, want %d", got, n)
				}
			})
		})
	}
}

// TestUnlockOfSeveralAfterALoss has a lease that is lost as Unlock begins. The loss ends the
// context during the release of the other lease. Unlock waits for the answer to that release.
func TestUnlockOfSeveralAfterALoss(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newScript()
		d.releases = []releaseStep{func(context.Context, *backend.Grant) error {
			time.Sleep(time.Second)
			return nil
		}}
		m := locksAll(t, open(t, d), "a", "b")
		ctx, cancel := m.Context(t.Context())
		defer cancel()
		late := follow(ctx, 100*time.Millisecond)
		d.of("acquire")[0].req.Lost(backend.ErrLost)
		err := m.Unlock(late)
		wantErr(t, err, dlock.ErrLost)
		wantNoErr(t, err, dlock.ErrUncertain)
		wantAt(t, "returned", time.Since(d.begun), time.Second, 0)
	})
}

// TestUnlockOfSeveralIsOneAttempt has a context that has ended, and a server that refuses the
// releases. Unlock returns after one attempt, and the client repeats the releases in the
// background.
func TestUnlockOfSeveralIsOneAttempt(t *testing.T) {
	t.Parallel()
	refuse := func() error { return errUnavailable }
	severalLocked(t, refuse, func(t *testing.T, d *script, m *dlock.MultiLease, n int) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		wantErr(t, m.Unlock(ctx), dlock.ErrUncertain, errServer)
		wantAt(t, "returned", time.Since(d.begun), 0, 0)
		if got := releasesOf(d); got != n {
			t.Errorf("%d releases, want %d", got, n)
		}
		time.Sleep(time.Minute)
		if got := releasesOf(d); got != n+2 {
			t.Errorf("%d releases after a minute, want %d", got, n+2)
		}
	})
}

// TestLossDuringAnAttemptForAll has a driver that reports the loss of one of the grants before it
// returns them. LockAll frees the rest and tries again.
func TestLossDuringAnAttemptForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newCombining()
		d.acquireAlls = []acquireAllStep{
			func(ctx context.Context, reqs []*backend.Request) ([]*backend.Grant, int, error) {
				reqs[1].Lost(backend.ErrLost)
				return d.grantAll(ctx, reqs)
			},
		}
		c := open(t, d)
		m := locksAll(t, c, "a", "b", "c")
		synctest.Wait()
		if n := len(d.of("release")); n != 3 {
			t.Errorf("%d releases of the first three grants", n)
		}
		if err := m.Err(); err != nil {
			t.Error(err)
		}
		if err := m.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		areFree(t, c, "a", "b", "c")
	})
}

// oneByOne hides that a driver is a Combiner.
type oneByOne struct {
	backend.Driver
	backend.Waiter
	backend.Inspector
}

// together runs a test with two clients of a space, once with drivers that acquire several locks in
// one step, and once with other drivers.
func together(t *testing.T, test func(t *testing.T, clients []*dlock.Client)) {
	t.Helper()
	for _, how := range []string{"together", "one by one"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				if how == "together" {
					test(t, clientsOf(t, 2))
					return
				}
				var clients []*dlock.Client
				space := rand.Text()
				for range 2 {
					d := membackend.New(&membackend.Options{Space: space})
					hidden := oneByOne{d, d.(backend.Waiter), d.(backend.Inspector)}
					clients = append(clients, open(t, hidden))
				}
				test(t, clients)
			})
		})
	}
}

// slowness is longer than the pauses of LockAll, so that the queues are never empty.
const slowness = 200 * time.Millisecond

// slow is a driver whose requests take a while. It counts the attempts.
type slow struct {
	backend.Driver
	backend.Waiter
	backend.Inspector
	backend.Combiner
	attempts *atomic.Int32
}

func (s slow) Acquire(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
	time.Sleep(slowness)
	s.attempts.Add(1)
	return s.Driver.Acquire(ctx, req)
}

func (s slow) Release(ctx context.Context, g *backend.Grant) error {
	time.Sleep(slowness)
	return s.Driver.Release(ctx, g)
}

func (s slow) AcquireAll(
	ctx context.Context, reqs []*backend.Request,
) ([]*backend.Grant, int, error) {
	time.Sleep(slowness)
	s.attempts.Add(1)
	return s.Combiner.AcquireAll(ctx, reqs)
}

func (s slow) ReleaseAll(ctx context.Context, gs []*backend.Grant) []error {
	time.Sleep(slowness)
	return s.Combiner.ReleaseAll(ctx, gs)
}

// TestLockAllMakesProgress has many callers of the same names, and of names that overlap, on a
// server with queues. Whether or not the driver acquires several locks in one step, each caller
// gets its locks, and after few attempts.
func TestLockAllMakesProgress(t *testing.T) {
	t.Parallel()
	const turns = 20
	all := map[string][][]string{
		"two names": slices.Repeat([][]string{{"a", "b"}, {"b", "a"}}, 6),
		"three names": slices.Repeat([][]string{
			{"a", "b", "c"}, {"c", "b", "a"}, {"b", "c", "a"},
		}, 4),
		"overlap": slices.Repeat([][]string{{"a", "b"}, {"b", "c"}, {"c", "a"}}, 3),
		"chain": {
			{"a", "b"}, {"b", "c"}, {"c", "d"}, {"d", "e"}, {"e", "a"}, {"a", "b", "c", "d", "e"},
		},
	}
	for what, sets := range all {
		for i, how := range []string{"one by one", "one by one here", "combined", "combined here"} {
			t.Run(what+"/"+how, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					clients := len(sets)
					if i%2 == 1 {
						clients = 1
					}
					attempts := contend(t, sets, turns, i >= 2, clients)
					each := float64(attempts) / float64(turns*len(sets))
					t.Logf("%.1f attempts for each LockAll", each)
					if each > 20 {
						t.Errorf("%.1f attempts for each LockAll, want at most 20", each)
					}
				})
			})
		}
	}
}

// contend lets a caller lock each of sets turns times. It returns the number of attempts.
func contend(t *testing.T, sets [][]string, turns int, combines bool, n int) (attempts int32) {
	t.Helper()
	space, count := rand.Text(), new(atomic.Int32)
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	clients := make([]*dlock.Client, n)
	for i := range clients {
		d := membackend.New(&membackend.Options{Space: space})
		s := slow{d, d.(backend.Waiter), d.(backend.Inspector), d.(backend.Combiner), count}
		if combines {
			clients[i] = open(t, s)
		} else {
			clients[i] = open(t, oneByOne{s, s, s})
		}
	}
	var all sync.WaitGroup
	for i, names := range sets {
		all.Go(func() {
			for range turns {
				m, err := clients[i%n].LockAll(ctx, names)
				if err != nil {
					t.Error(err)
					return
				}
				if err := m.Unlock(ctx); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	return count.Load()
}

// TestLockAllWaitsForALongHold checks that a LockAll that acquires its locks one by one waits for a
// lock that another client holds for long, instead of trying again and again.
func TestLockAllWaitsForALongHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		space, count := rand.Text(), new(atomic.Int32)
		d := membackend.New(&membackend.Options{Space: space})
		s := slow{d, d.(backend.Waiter), d.(backend.Inspector), nil, count}
		c := open(t, oneByOne{s, s, s}, dlock.WithTTL(time.Hour))
		other := open(t, membackend.New(&membackend.Options{Space: space}),
			dlock.WithTTL(time.Hour)) // so no attempt at the end of its term is under way
		lease := takes(t, other, "b")
		locked := make(chan *dlock.MultiLease)
		go func() { locked <- locksAll(t, c, "a", "b", "c") }()
		time.Sleep(time.Minute)
		if n := count.Load(); n > 12 {
			t.Errorf("%d attempts in a minute", n)
		}
		freed := time.Now()
		frees(t, lease)
		m := <-locked
		wantAt(t, "the locks are acquired", time.Since(freed), 2*slowness, 0)
		if err := m.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestEndsOfAnOuterLeaseDuringLockAll unlocks the lease that a LockAll shares for a moment. As many
// ends are noted as beginnings.
func TestEndsOfAnOuterLeaseDuringLockAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		d := newScript()
		c := open(t, d, r.option(), dlock.WithReentrant())
		outer := takes(t, c, "a")
		d.acquires = []acquireStep{acquireHangs}
		ctx, cancel := outer.Context(t.Context())
		defer cancel()
		all := make(chan error, 1)
		go func() {
			_, err := c.LockAll(ctx, []string{"a", "b"})
			all <- err
		}()
		time.Sleep(time.Second)
		frees(t, outer)
		if err := <-all; err == nil {
			t.Error("LockAll succeeded on a context that had ended")
		}
		closes(t, c)
		synctest.Wait()
		if n := len(r.of("ended")); n != 1 {
			t.Errorf("%d ends of one lease", n)
		}
	})
}

// TestReleaseAllThatDoesNotReturn has a driver that does not return from a request for several
// locks, and ignores the end of its context. Unlock returns, and each lock is then released alone.
func TestReleaseAllThatDoesNotReturn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newCombining()
		never := make(chan struct{})
		d.releaseAlls = []releaseAllStep{func(context.Context, []*backend.Grant) []error {
			<-never
			return nil
		}}
		c := open(t, d)
		m := locksAll(t, c, "a", "b")
		wantErr(t, m.Unlock(t.Context()), dlock.ErrUncertain)
		time.Sleep(time.Minute)
		if n := len(d.of("release")); n != 2 {
			t.Errorf("%d locks were released alone", n)
		}
		areFree(t, c, "a", "b")
		close(never)
	})
}
