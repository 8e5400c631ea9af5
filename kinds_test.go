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

// clientsOf returns n clients of a space that no other test uses, as n processes would have them.
func clientsOf(t *testing.T, n int, opts ...dlock.Option) []*dlock.Client {
	t.Helper()
	space := rand.Text()
	clients := make([]*dlock.Client, n)
	for i := range clients {
		c, err := dlock.New(membackend.New(&membackend.Options{Space: space}), opts...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		clients[i] = c
	}
	return clients
}

// rwMutexes returns the lock x of each client.
func rwMutexes(t *testing.T, clients []*dlock.Client) []dlock.RWMutex {
	t.Helper()
	mutexes := make([]dlock.RWMutex, len(clients))
	for i, c := range clients {
		m, err := c.RWMutex("x")
		if err != nil {
			t.Fatal(err)
		}
		mutexes[i] = m
	}
	return mutexes
}

// got returns the lease of a Lock that must succeed.
func got(t *testing.T, lock func(context.Context) (*dlock.Lease, error)) *dlock.Lease {
	t.Helper()
	lease, err := lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// refuses checks that a TryLock is refused.
func refuses(t *testing.T, what string, lock func(context.Context) (*dlock.Lease, error)) {
	t.Helper()
	if _, err := lock(t.Context()); !errors.Is(err, dlock.ErrNotAcquired) {
		t.Errorf("%s: %v, want ErrNotAcquired", what, err)
	}
}

// TestReadersExcludeWritersOnly checks which leases exclude each other, inside a client and between
// two.
func TestReadersExcludeWritersOnly(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			m := rwMutexes(t, clientsOf(t, n))
			a, b := m[0], m[n-1]
			first, second := got(t, a.RLock), got(t, b.TryRLock)
			refuses(t, "a writer during two readers", b.TryLock)
			_ = first.Unlock(t.Context())
			refuses(t, "a writer during the second reader", a.TryLock)
			_ = second.Unlock(t.Context())
			writer := got(t, a.TryLock)
			if writer.Fence() <= first.Fence() {
				t.Errorf("fence %d after %d", writer.Fence(), first.Fence())
			}
			refuses(t, "a reader during a writer", b.TryRLock)
			_ = writer.Unlock(t.Context())
			_ = got(t, b.TryRLock).Unlock(t.Context())
		})
	}
}

// TestTryRLockOvertakesNoWriter has a writer that waits in this client, while a reader in front of
// it requests the lock.
func TestTryRLockOvertakesNoWriter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, _ := newHooked()
		answer, requests := make(chan struct{}), 0
		d.acquire = func(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
			if requests++; requests == 1 {
				<-answer
			}
			return d.movable.Acquire(ctx, req)
		}
		c := open(t, d)
		m := rwMutexes(t, []*dlock.Client{c})[0]
		reader, ctx := make(chan *dlock.Lease, 1), t.Context()
		go func() {
			lease, _ := m.RLock(ctx)
			reader <- lease
		}()
		synctest.Wait()
		_ = got(t, m.TryRLock).Unlock(ctx) // no writer waits
		next := lockBehind(ctx, c, "x")
		synctest.Wait()
		refuses(t, "a reader behind a writer that waits", m.TryRLock)
		close(answer)
		if lease := <-reader; lease != nil {
			frees(t, lease)
		}
		if r := <-next; r.err != nil {
			t.Error(r.err)
		} else {
			frees(t, r.lease)
		}
	})
}

// TestReadersShareAGrant checks that readers of one client share a grant while it is young, and
// that each has its own lease.
func TestReadersShareAGrant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := rwMutexes(t, clientsOf(t, 1))[0]
		first, second := got(t, m.RLock), got(t, m.RLock)
		time.Sleep(time.Second)
		third := got(t, m.RLock)
		if first.Owner() != second.Owner() || first.Owner() == third.Owner() {
			t.Errorf("owners %s, %s and a second later %s",
				first.Owner(), second.Owner(), third.Owner())
		}
		_ = first.Unlock(t.Context())
		_ = third.Unlock(t.Context())
		if first.Err() == nil || second.Err() != nil {
			t.Errorf("after Unlock of the first: %v, %v", first.Err(), second.Err())
		}
		refuses(t, "a writer during the second reader", m.TryLock)
		if err := second.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock: %v", err)
		}
		_ = got(t, m.TryLock).Unlock(t.Context())
	})
}

// TestSharedGrantIsLostByAll breaks a grant that several readers share.
func TestSharedGrantIsLostByAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		clients := clientsOf(t, 2)
		m := rwMutexes(t, clients)
		leases := []*dlock.Lease{got(t, m[0].RLock), got(t, m[0].RLock), got(t, m[0].RLock)}
		other := got(t, m[1].RLock)
		if err := clients[1].Break(t.Context(), "x", leases[0].Owner()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for i, l := range leases {
			lost, unlocked := l.Err(), l.Unlock(t.Context())
			if !errors.Is(lost, dlock.ErrLost) || !errors.Is(unlocked, dlock.ErrLost) {
				t.Errorf("lease %d: %v, Unlock: %v", i, lost, unlocked)
			}
		}
		if other.Err() != nil {
			t.Errorf("the reader of the other client: %v", other.Err())
		}
		_ = other.Unlock(t.Context())
		_ = got(t, m[0].TryLock).Unlock(t.Context())
	})
}

// TestWriterAmongReaders checks that a writer gets the lock although readers come all the time, and
// that the readers that waited meanwhile get it after the writer.
func TestWriterAmongReaders(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			m := rwMutexes(t, clientsOf(t, n))
			ctx, stop := context.WithCancel(t.Context())
			var readers sync.WaitGroup
			var reading atomic.Int32
			for i := range 30 {
				readers.Go(func() {
					for ctx.Err() == nil {
						if lease, err := m[i%n].RLock(ctx); err == nil {
							reading.Add(1)
							time.Sleep(50 * time.Millisecond)
							reading.Add(-1)
							_ = lease.Unlock(ctx)
						}
					}
				})
			}
			time.Sleep(time.Second)
			for range 5 {
				begun := time.Now()
				writer := got(t, m[0].Lock)
				if waited := time.Since(begun); waited > time.Second || reading.Load() > 0 {
					t.Errorf("%d clients: waited %v, %d readers", n, waited, reading.Load())
				}
				time.Sleep(10 * time.Millisecond)
				if reading.Load() > 0 {
					t.Errorf("%d readers during a writer", reading.Load())
				}
				_ = writer.Unlock(t.Context())
				time.Sleep(100 * time.Millisecond)
			}
			stop()
			readers.Wait()
		})
	}
}

// TestUpgradeIsRefused checks that a reader does not wait for itself.
func TestUpgradeIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := clientsOf(t, 1)[0]
		m, err := c.RWMutex("x", dlock.WithReentrant())
		if err != nil {
			t.Fatal(err)
		}
		reader := got(t, m.RLock)
		ctx, cancel := reader.Context(t.Context())
		defer cancel()
		if _, err := m.Lock(ctx); !errors.Is(err, dlock.ErrNotAcquired) {
			t.Errorf("a writer in a reader: %v", err)
		}
		again, err := m.RLock(ctx)
		if err != nil || again.Owner() != reader.Owner() {
			t.Errorf("a reader in a reader: %v", err)
		}
		_ = again.Unlock(ctx)
		_ = reader.Unlock(ctx)
		writer := got(t, m.Lock)
		ctx, cancel = writer.Context(t.Context())
		defer cancel()
		inner, err := m.RLock(ctx)
		if err != nil || inner.Owner() != writer.Owner() {
			t.Errorf("a reader in a writer: %v", err)
		}
	})
}

// TestPermits checks that a semaphore never has more holders than permits, and loses none.
func TestPermits(t *testing.T) {
	t.Parallel()
	const limit = 3
	for _, n := range []int{1, 4} {
		synctest.Test(t, func(t *testing.T) {
			clients := clientsOf(t, n)
			var all sync.WaitGroup
			var holders, most atomic.Int32
			for i := range 20 {
				all.Go(func() {
					s, err := clients[i%n].Semaphore("x", limit)
					if err != nil {
						t.Error(err)
						return
					}
					for range 20 {
						permit := got(t, s.Acquire)
						now := holders.Add(1)
						if now > limit {
							t.Errorf("%d holders", now)
						}
						for old := most.Load(); now > old && !most.CompareAndSwap(old, now); {
							old = most.Load()
						}
						time.Sleep(7 * time.Millisecond)
						holders.Add(-1)
						_ = permit.Unlock(t.Context())
					}
				})
			}
			all.Wait()
			if most.Load() != limit {
				t.Errorf("%d holders at most, want %d", most.Load(), limit)
			}
			s, _ := clients[0].Semaphore("x", limit)
			for range limit {
				defer func(l *dlock.Lease) { _ = l.Unlock(t.Context()) }(got(t, s.TryAcquire))
			}
			refuses(t, "one permit too many", s.TryAcquire)
		})
	}
}

// TestPermitIsHandedOff checks that a permit passes to the waiter behind the front of the line,
// without a request: the front requests a permit of its own.
func TestPermitIsHandedOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, err := clientsOf(t, 1)[0].Semaphore("x", 1)
		if err != nil {
			t.Fatal(err)
		}
		permit := got(t, s.Acquire)
		var waiters [2]chan *dlock.Lease
		for i := range waiters {
			waiters[i] = make(chan *dlock.Lease, 1)
			go func() { waiters[i] <- got(t, s.Acquire) }()
			synctest.Wait()
		}
		front, behind := waiters[0], waiters[1]
		frees(t, permit)
		synctest.Wait()
		if len(behind) != 1 || len(front) != 0 {
			t.Fatalf("the front has %d permits, and the waiter behind it %d",
				len(front), len(behind))
		}
		lease := <-behind
		if lease.Owner() != permit.Owner() || lease.Fence() != permit.Fence()+1 {
			t.Errorf("the owner %s with the fence %x after %s with %x",
				lease.Owner(), lease.Fence(), permit.Owner(), permit.Fence())
		}
		frees(t, lease)
		frees(t, <-front)
	})
}

// TestKindsOfOneNameConflict checks that a name is of one kind, and a semaphore has one limit,
// while it is in use.
func TestKindsOfOneNameConflict(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			clients := clientsOf(t, n)
			c, other := clients[0], clients[n-1]
			conflicts := func(what string, lock func(context.Context) (*dlock.Lease, error)) {
				t.Helper()
				if _, err := lock(t.Context()); !errors.Is(err, dlock.ErrConflict) {
					t.Errorf("%d clients: %s: %v, want ErrConflict", n, what, err)
				}
			}
			three, _ := c.Semaphore("x", 3)
			four, _ := other.Semaphore("x", 4)
			mutex, _ := other.Mutex("x")
			permit := got(t, three.Acquire)
			conflicts("another limit", four.TryAcquire)
			conflicts("another limit", four.Acquire)
			conflicts("a mutex", mutex.TryLock)
			conflicts("a mutex", mutex.Lock)
			_ = permit.Unlock(t.Context())
			lease := got(t, mutex.Lock)
			conflicts("a semaphore", three.TryAcquire)
			conflicts("a semaphore", three.Acquire)
			_ = lease.Unlock(t.Context())
			_ = got(t, four.TryAcquire).Unlock(t.Context())
		})
	}
}

// TestBadKinds checks what is refused before any request.
func TestBadKinds(t *testing.T) {
	t.Parallel()
	c := clientsOf(t, 1)[0]
	for _, limit := range []int{0, -1, 1 << 21} {
		if _, err := c.Semaphore("x", limit); err == nil {
			t.Errorf("limit %d is accepted", limit)
		}
	}
	if _, err := c.Semaphore("x", 1, dlock.WithReentrant()); !errors.Is(err, dlock.ErrUnsupported) {
		t.Errorf("a reentrant semaphore: %v", err)
	}
	if _, err := c.RWMutex(""); !errors.Is(err, dlock.ErrInvalidName) {
		t.Errorf("a lock without a name: %v", err)
	}
	plain, err := dlock.New(&limited{membackend.New(&membackend.Options{Space: rand.Text()})})
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if _, err := plain.RWMutex("x"); !errors.Is(err, dlock.ErrUnsupported) {
		t.Errorf("RWMutex on a backend without shared locks: %v", err)
	}
	if _, err := plain.Semaphore("x", 1); !errors.Is(err, dlock.ErrUnsupported) {
		t.Errorf("Semaphore on a backend without permits: %v", err)
	}
}

// limited is a driver that has exclusive locks only.
type limited struct{ backend.Driver }

func (l *limited) Capabilities() backend.Capabilities {
	return backend.Capabilities{Modes: backend.Exclusive, Fencing: backend.FenceVolatile}
}

// TestLockAllInAnyOrder checks that calls with the same names in different orders exclude each
// other and do not deadlock.
func TestLockAllInAnyOrder(t *testing.T) {
	t.Parallel()
	together(t, func(t *testing.T, clients []*dlock.Client) {
		t.Helper()
		var all sync.WaitGroup
		var holders atomic.Int32
		for i, names := range [][]string{
			{"a", "b", "c"}, {"c", "b", "a"}, {"b", "a", "c"}, {"c", "a"},
		} {
			all.Go(func() {
				for range 50 {
					m, err := clients[i%2].LockAll(t.Context(), names)
					if err != nil {
						t.Error(err)
						return
					}
					if n := holders.Add(1); n > 1 {
						t.Errorf("%d holders", n)
					}
					time.Sleep(time.Millisecond)
					holders.Add(-1)
					if err := m.Unlock(t.Context()); err != nil {
						t.Errorf("Unlock: %v", err)
					}
				}
			})
		}
		all.Wait()
	})
}

// TestLockAllKeepsNothingClosed checks that a call that waits for one lock holds none of the other
// locks, and that one that gives up leaves nothing.
func TestLockAllKeepsNothingClosed(t *testing.T) {
	t.Parallel()
	together(t, func(t *testing.T, clients []*dlock.Client) {
		t.Helper()
		obstacle, err := clients[1].Lock(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := clients[0].LockAll(ctx, []string{"a", "b", "c"}, dlock.WithMinHold(time.Hour))
			failed <- err
		}()
		for range 5 {
			time.Sleep(time.Second)
			for _, name := range []string{"a", "c"} {
				lease, err := clients[1].TryLock(t.Context(), name)
				if err != nil {
					t.Fatalf("%s while LockAll waits for b: %v", name, err)
				}
				_ = lease.Unlock(t.Context())
			}
		}
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Errorf("LockAll: %v", err)
		}
		_ = obstacle.Unlock(t.Context())
		all, err := clients[1].LockAll(t.Context(), []string{"c", "a", "b"})
		if err != nil {
			t.Fatal(err)
		}
		_ = all.Unlock(t.Context())
	})
}

// TestLossOfOneOfAll checks that the loss of one lease is the loss of all.
func TestLossOfOneOfAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := clientsOf(t, 1)[0]
		m, err := c.LockAll(t.Context(), []string{"b", "a"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := m.Context(t.Context())
		defer cancel()
		if m.Err() != nil || ctx.Err() != nil || m.Leases()[0].Name() != "b" ||
			m.Deadline().Before(time.Now()) {
			t.Errorf("while held: %v, %v, deadline %v", m.Err(), ctx.Err(), m.Deadline())
		}
		if err := c.Break(t.Context(), "a", ""); err != nil {
			t.Fatal(err)
		}
		<-m.Lost()
		<-ctx.Done()
		if !errors.Is(m.Err(), dlock.ErrLost) || !errors.Is(context.Cause(ctx), dlock.ErrLost) {
			t.Errorf("after the loss of one: %v, %v", m.Err(), context.Cause(ctx))
		}
		if err := m.Leases()[0].Err(); err != nil {
			t.Errorf("the other lease: %v", err)
		}
		if err := m.Unlock(t.Context()); !errors.Is(err, dlock.ErrLost) {
			t.Errorf("Unlock: %v", err)
		}
	})
}

// TestBadLockAll checks the arguments of LockAll.
func TestBadLockAll(t *testing.T) {
	t.Parallel()
	c := clientsOf(t, 1)[0]
	many := make([]string, 10_000)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	for what, names := range map[string][]string{
		"no name": nil, "too many": many, "an empty name": {"a", ""},
	} {
		_, err := c.LockAll(t.Context(), names)
		if err == nil || errors.Is(err, dlock.ErrNotAcquired) {
			t.Errorf("%s: %v", what, err)
		}
	}
	m, err := c.LockAll(t.Context(), []string{"a", "b", "a"})
	if err != nil || len(m.Leases()) != 2 {
		t.Errorf("a name twice: %v", err)
	}
	var zero dlock.MultiLease
	if zero.Err() != nil || zero.Unlock(t.Context()) != nil || zero.Lost() != nil {
		t.Error("the zero MultiLease is not a fake")
	}
}

// TestOneLeaderAtATime has three clients that stand for election. Their leaders resign, fail, or
// lose their leases.
func TestOneLeaderAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		clients := clientsOf(t, 3)
		ctx, stop := context.WithCancel(t.Context())
		var leaders, terms atomic.Int32
		var all sync.WaitGroup
		led := make([]atomic.Int32, len(clients))
		for i, c := range clients {
			all.Go(func() {
				err := c.Elect(ctx, "x", func(ctx context.Context, _ *dlock.Lease) error {
					if n := leaders.Add(1); n > 1 {
						t.Errorf("%d leaders", n)
					}
					defer leaders.Add(-1)
					led[i].Add(1)
					if terms.Add(1)%2 == 0 { // until the lease is lost
						<-ctx.Done()
						return ctx.Err()
					}
					select {
					case <-time.After(time.Second):
					case <-ctx.Done():
					}
					return nil
				}, dlock.WithMaxHold(2*time.Second))
				if !errors.Is(err, context.Canceled) || ctx.Err() == nil {
					t.Errorf("Elect: %v, and its context: %v", err, ctx.Err())
				}
			})
		}
		time.Sleep(time.Minute)
		stop()
		all.Wait()
		for i := range led {
			if led[i].Load() == 0 {
				t.Errorf("client %d has never led in %d terms", i, terms.Load())
			}
		}
	})
}

// TestOptionsStayTheCallers checks that LockAll and Elect write nothing into the array of the
// caller's options, which other calls may use at the same time.
func TestOptionsStayTheCallers(t *testing.T) {
	t.Parallel()
	c := clientsOf(t, 1)[0]
	opts := make([]dlock.Option, 1, 2)
	opts[0] = dlock.WithTTL(time.Minute)
	m, err := c.LockAll(t.Context(), []string{"a"}, opts...)
	if err != nil {
		t.Fatal(err)
	}
	_ = m.Unlock(t.Context())
	wild := errors.New("wild")
	lead := func(context.Context, *dlock.Lease) error { return wild }
	if err := c.Elect(t.Context(), "a", lead, opts...); !errors.Is(err, wild) {
		t.Errorf("Elect: %v", err)
	}
	if opts[:2][1] != nil {
		t.Error("the array of the caller's options was written")
	}
}

// TestElectEnds checks what ends Elect.
func TestElectEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := clientsOf(t, 1)[0]
		if err := c.Elect(t.Context(), "x", nil); err == nil {
			t.Error("a nil function is accepted")
		}
		wild := errors.New("wild")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := c.Elect(ctx, "x", func(context.Context, *dlock.Lease) error { return wild })
		if !errors.Is(err, wild) {
			t.Errorf("after an error of the leader: %v", err)
		}
		_ = got(t, func(ctx context.Context) (*dlock.Lease, error) {
			return c.TryLock(ctx, "x")
		}).Unlock(t.Context())
		go func() {
			time.Sleep(time.Second)
			_ = c.Close()
		}()
		err = c.Elect(t.Context(), "x", func(ctx context.Context, _ *dlock.Lease) error {
			<-ctx.Done()
			return nil
		})
		if !errors.Is(err, dlock.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// TestElectionIsNotHandedOff has a client that stands for election twice. Each term has a grant of
// its own, so candidates of other clients get their turns.
func TestElectionIsNotHandedOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := clientsOf(t, 1)[0]
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		owners := map[string]bool{} // guarded by the election
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				_ = c.Elect(ctx, "x", func(_ context.Context, l *dlock.Lease) error {
					if owners[l.Owner()] {
						t.Error("a grant serves two terms")
					}
					if owners[l.Owner()] = true; len(owners) == 6 {
						stop()
					}
					time.Sleep(time.Millisecond) // the other candidate waits for the lock
					return nil
				})
			})
		}
		all.Wait()
		if len(owners) < 6 {
			t.Errorf("%d terms", len(owners))
		}
	})
}

// TestResignedLeaderPauses checks that a leader that resigned leaves other candidates some time.
func TestResignedLeaderPauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := clientsOf(t, 1)[0]
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var resigned time.Time
		terms := 0
		_ = c.Elect(ctx, "x", func(context.Context, *dlock.Lease) error {
			if terms++; terms > 1 {
				wantAt(t, "the next term", time.Since(resigned), 55*time.Millisecond,
					6*time.Millisecond)
			}
			if terms == 5 {
				stop()
			}
			time.Sleep(time.Second)
			resigned = time.Now()
			return nil
		})
		if terms != 5 {
			t.Errorf("%d terms", terms)
		}
	})
}

// TestElectReturnsTheEndOfItsContextOnce checks the error of an Elect whose context ends while it
// waits for its turn: it is the context's, with its cause, in one line.
func TestElectReturnsTheEndOfItsContextOnce(t *testing.T) {
	t.Parallel()
	why := errors.New("why")
	for _, cause := range []error{nil, why} {
		synctest.Test(t, func(t *testing.T) {
			clients := clientsOf(t, 2)
			takes(t, clients[0], "x")
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(cause) })
			err := clients[1].Elect(ctx, "x", func(context.Context, *dlock.Lease) error {
				t.Error("there are two leaders")
				return nil
			})
			wantErr(t, err, context.Canceled)
			if strings.Count(err.Error(), "context canceled") != 1 ||
				cause != nil && !errors.Is(err, cause) {
				t.Errorf("the error is %q, want the end of the context once", err)
			}
		})
	}
}

// shareable is what a driver of readers and writers implements.
type shareable interface {
	backend.Driver
	backend.Waiter
	backend.Downgrader
}

// unsure is a driver whose Downgrade is executed, but not answered.
type unsure struct{ shareable }

func (d unsure) Downgrade(ctx context.Context, g *backend.Grant) (*backend.Grant, error) {
	_, _ = d.shareable.Downgrade(ctx, g)
	return nil, errors.New("no answer")
}

// TestUncertainDowngradeIsNotHandedOff checks that a grant which may be a reader's is not handed
// off to a writer of the same client.
func TestUncertainDowngradeIsNotHandedOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		space := &membackend.Options{Space: rand.Text()}
		c, err := dlock.New(unsure{membackend.New(space).(shareable)})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		other, err := dlock.New(membackend.New(space))
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		m := rwMutexes(t, []*dlock.Client{c, other})
		lease := got(t, m[0].Lock)
		reading, writing := make(chan *dlock.Lease, 1), make(chan *dlock.Lease, 1)
		go func() { reading <- got(t, m[1].RLock) }()
		synctest.Wait()
		go func() { writing <- got(t, m[0].Lock) }()
		synctest.Wait()
		if err := lease.Downgrade(t.Context()); !errors.Is(err, dlock.ErrUncertain) {
			t.Errorf("Downgrade: %v, want ErrUncertain", err)
		}
		reader := <-reading
		if err := lease.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock: %v", err)
		}
		synctest.Wait()
		if len(writing) > 0 {
			t.Error("a writer got the lock of a reader")
		}
		_ = reader.Unlock(t.Context())
		_ = (<-writing).Unlock(t.Context())
	})
}

// TestExportOfASharedGrant checks that a reader whose grant another lease shares cannot be exported
// or downgraded, and that nothing is lost by the attempt.
func TestExportOfASharedGrant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := rwMutexes(t, clientsOf(t, 1))[0]
		first, second := got(t, m.RLock), got(t, m.RLock)
		if first.Owner() != second.Owner() {
			t.Fatal("the readers do not share a grant")
		}
		if _, err := first.Export(t.Context()); err == nil {
			t.Error("Export of one of two leases succeeded")
		}
		if err := errors.Join(first.Err(), second.Err()); err != nil {
			t.Errorf("a lease has ended: %v", err)
		}
		_ = second.Unlock(t.Context())
		if _, err := first.Export(t.Context()); err != nil {
			t.Errorf("Export of the last lease: %v", err)
		}
	})
}
