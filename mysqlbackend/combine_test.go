package mysqlbackend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// several returns requests for n names with the test's name as prefix, in no order.
func several(tb testing.TB, n int) (reqs []*backend.Request) {
	tb.Helper()
	for i := range n {
		req := raw.Request(tb, time.Minute)
		req.Key = fmt.Sprintf("%s/%03d", tb.Name(), (i+n/2)%n)
		req.Meta, req.Queue = fmt.Sprint("meta ", i), false
		reqs = append(reqs, req)
	}
	return reqs
}

// acquireAll makes an attempt that must succeed.
func acquireAll(tb testing.TB, d *driver, reqs []*backend.Request) []*backend.Grant {
	tb.Helper()
	gs, failed, err := d.AcquireAll(tb.Context(), reqs)
	if err != nil {
		tb.Fatalf("AcquireAll: %v about %d", err, failed)
	}
	return gs
}

// releaseAll releases grants that must be held.
func releaseAll(tb testing.TB, d *driver, gs []*backend.Grant) {
	tb.Helper()
	for i, err := range d.ReleaseAll(tb.Context(), gs) {
		if err != nil {
			tb.Errorf("ReleaseAll: %v for grant %d", err, i)
		}
	}
}

// wantHolders checks which of reqs hold their locks.
func wantHolders(tb testing.TB, d *driver, reqs []*backend.Request, want func(i int) bool) {
	tb.Helper()
	for i, req := range reqs {
		info, err := d.Inspect(tb.Context(), req.Key)
		if err != nil {
			tb.Fatal(err)
		}
		holds := len(info.Holders) == 1 && info.Holders[0].Owner == req.Owner &&
			info.Holders[0].Meta == req.Meta
		if holds != want(i) {
			tb.Errorf("lock %d is %+v", i, info)
		}
	}
}

// never and always are for wantHolders.
func never(int) bool  { return false }
func always(int) bool { return true }

// openPrepared opens a driver that prepares each statement.
func openPrepared(tb testing.TB, s *testenv.Server) *driver {
	tb.Helper()
	b, err := New(database(tb, s, ""), &Options{Create: true})
	if err != nil {
		tb.Fatal(err)
	}
	return closing(tb, b)
}

// TestAllTakesAnyNumber acquires and releases 1 to 128 names, with each kind of connection. More
// names are refused, and so are different TTLs.
func TestAllTakesAnyNumber(t *testing.T) {
	onEach(t, func(t *testing.T, s *testenv.Server, open openFunc) {
		t.Helper()
		for _, d := range []*driver{open(t, s), openPrepared(t, s)} {
			var last uint64
			for _, n := range []int{1, 2, maxFreed, maxFreed + 1, maxTogether} {
				reqs := several(t, n)
				gs := acquireAll(t, d, reqs)
				wantHolders(t, d, reqs, always)
				for i, g := range gs {
					if g.Key != reqs[i].Key || g.Owner != reqs[i].Owner || g.Fence <= last {
						t.Errorf("grant %d is %+v", i, g)
					}
				}
				last = gs[0].Fence
				_, failed, err := d.AcquireAll(t.Context(), several(t, n))
				if busy, ok := errors.AsType[*backend.Busy](err); !ok || failed != 0 ||
					busy.RetryAfter <= 0 || busy.RetryAfter > time.Minute {
					t.Errorf("AcquireAll of %d held locks: %v about %d", n, err, failed)
				}
				releaseAll(t, d, gs)
				wantHolders(t, d, reqs, never)
				for i, err := range d.ReleaseAll(t.Context(), gs) {
					raw.WantIs(t, fmt.Sprint("a second ReleaseAll ", i), err, backend.ErrNotHeld)
				}
			}
			_, _, err := d.AcquireAll(t.Context(), several(t, maxTogether+1))
			raw.WantIs(t, "AcquireAll of too many names", err, backend.ErrUnsupported)
			reqs := several(t, 2)
			reqs[1].TTL++
			_, _, err = d.AcquireAll(t.Context(), reqs)
			raw.WantIs(t, "AcquireAll with two TTLs", err, backend.ErrUnsupported)
			reqs = several(t, 3)
			reqs[1].Key = strings.Repeat("k", maxKey+1)
			_, failed, err := d.AcquireAll(t.Context(), reqs)
			if !errors.Is(err, backend.ErrInvalidName) || failed != 1 {
				t.Errorf("AcquireAll with a long name: %v about %d", err, failed)
			}
		}
	})
}

// TestAllIsTwoStatements counts the statements of a pair of eight names on a separate server.
func TestAllIsTwoStatements(t *testing.T) {
	t.Parallel()
	for name, start := range starters {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			d := openURL(t, s.URL)
			d.sweeping.Store(true) // prevents sweeps
			db := database(t, s, "")
			pair := func() { releaseAll(t, d, acquireAll(t, d, several(t, 8))) }
			pair() // opens the connections and makes the rows
			all := status(t, db, "Questions")
			for range 10 {
				pair()
			}
			if all, counting := status(t, db, "Questions")-all, 1; all != 20+counting {
				t.Errorf("ten pairs need %d statements, %d to count", all, counting)
			}
		})
	}
}

// TestAllHasOneFence checks that the fence exceeds the last one of each name, and is stored.
func TestAllHasOneFence(t *testing.T) {
	onEach(t, func(t *testing.T, s *testenv.Server, open openFunc) {
		t.Helper()
		d, reqs := open(t, s), several(t, 3)
		gs := acquireAll(t, d, reqs)
		const ahead = "UPDATE dlock SET token = token + 1000000000000 WHERE name = ?"
		do(t, database(t, s, ""), ahead, []byte(gs[1].Key))
		want := gs[1].Fence + 1_000_000_000_001
		releaseAll(t, d, gs)
		gs = acquireAll(t, d, reqs)
		for i, g := range gs {
			if g.Fence != want {
				t.Errorf("fence %d is %d, want %d", i, g.Fence, want)
			}
		}
		releaseAll(t, d, gs)
		req := raw.Request(t, time.Minute)
		req.Key = gs[2].Key
		if g := acquire(t, d, req); g.Fence <= want {
			t.Errorf("the next fence is %d after %d", g.Fence, want)
		}
	})
}

// TestAllWaitsForNoRow keeps one row locked. AcquireAll is not executed, and ReleaseAll releases
// the other locks meanwhile.
func TestAllWaitsForNoRow(t *testing.T) {
	onEach(t, func(t *testing.T, s *testenv.Server, open openFunc) {
		t.Helper()
		d, reqs := open(t, s), several(t, 4)
		gs := acquireAll(t, d, reqs)
		db := database(t, s, "")
		row := lockRow(t, db, reqs[1].Key)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		released := make(chan []error, 1)
		go func() { released <- d.ReleaseAll(ctx, gs) }()
		eventually(t, "the other locks are free", func() bool {
			return ask(t, db, "SELECT COUNT(*) FROM dlock WHERE name >= ? AND name < ? "+
				"AND owner = ''", []byte(t.Name()+"/"), []byte(t.Name()+"0")) == "3"
		})
		_, _, err := d.AcquireAll(ctx, several(t, 4))
		raw.WantIs(t, "AcquireAll with a locked row", err, backend.ErrUnsupported)
		unlock(t, row)
		for i, err := range <-released {
			if err != nil && !hasNumber(err, errLockWait) {
				t.Errorf("ReleaseAll: %v for grant %d", err, i)
			}
		}
		if err := d.Release(ctx, gs[1]); err != nil && !errors.Is(err, backend.ErrNotHeld) {
			t.Errorf("Release: %v", err)
		}
		wantHolders(t, d, reqs, never)
		releaseAll(t, d, acquireAll(t, d, several(t, 4)))
	})
}

// TestNewRowWaitsAlone has a transaction that keeps the gap of a new name locked. An AcquireAll
// that waits for it keeps no other row locked.
func TestNewRowWaitsAlone(t *testing.T) {
	onEach(t, func(t *testing.T, s *testenv.Server, open openFunc) {
		t.Helper()
		other, reqs := open(t, s), several(t, 3)
		db := database(t, s, "")
		d, err := New(database(t, s, "?interpolateParams=true&innodb_lock_wait_timeout=600"), nil)
		if err != nil {
			t.Fatal(err)
		}
		all := closing(t, d)
		for _, req := range reqs[1:] {
			raw.Release(t, other, acquire(t, other, req))
		}
		gap, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		const lock = "SELECT COUNT(*) FROM dlock WHERE name = ? FOR UPDATE"
		_ = ask(t, gap, lock, []byte(reqs[0].Key))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _, _ = all.AcquireAll(ctx, reqs)
		}()
		eventually(t, "the row is waited for", func() bool {
			return ask(t, db, "SELECT COUNT(*) FROM information_schema.PROCESSLIST "+
				"WHERE INFO LIKE 'INSERT IGNORE%'") != "0"
		})
		for _, req := range reqs[1:] {
			raw.Release(t, other, acquire(t, other, req))
		}
		select {
		case <-ended:
			t.Error("AcquireAll has not waited for the row")
		default:
		}
		cancel()
		<-ended
		unlock(t, gap)
	})
}

// TestReleasesOfLockedRowsTakeFewConnections keeps the rows of many locks locked that are released
// together.
func TestReleasesOfLockedRowsTakeFewConnections(t *testing.T) {
	t.Parallel()
	for name, start := range starters {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			d, db := openURL(t, s.URL), database(t, s, "")
			gs := acquireAll(t, d, several(t, maxFreed))
			rows := lockRows(t, db, t.Name())
			released := make(chan []error, 1)
			go func() { released <- d.ReleaseAll(t.Context(), gs) }()
			for most := 0; ; time.Sleep(10 * time.Millisecond) {
				most = max(most, waitingRenewals(t, db, ""))
				select {
				case <-released:
					if most == 0 || most > maxRowWaiters {
						t.Errorf("%d releases wait at a time, want at most %d", most, maxRowWaiters)
					}
					unlock(t, rows)
					return
				default:
				}
			}
		})
	}
}

// TestRefusedRepetitionLeavesNothing repeats an AcquireAll after one of its locks was broken and
// taken.
func TestRefusedRepetitionLeavesNothing(t *testing.T) {
	onEach(t, func(t *testing.T, s *testenv.Server, open openFunc) {
		t.Helper()
		d, reqs := open(t, s), several(t, 4)
		for _, other := range []*backend.Request{raw.Request(t, time.Minute), reader("")} {
			acquireAll(t, d, reqs)
			if err := d.Break(t.Context(), reqs[2].Key, ""); err != nil {
				t.Fatal(err)
			}
			other.Key = reqs[2].Key
			g := acquire(t, d, other)
			_, failed, err := d.AcquireAll(t.Context(), reqs)
			if !errors.Is(err, backend.ErrNotAcquired) || failed != 2 {
				t.Errorf("the repetition: %v about %d", err, failed)
			}
			wantHolders(t, d, reqs, never)
			raw.Release(t, d, g)
		}
	})
}

// TestRepeatedAllFindsItsRosters repeats an AcquireAll after readers have begun to wait for two of
// its locks. Their rows are rosters now.
func TestRepeatedAllFindsItsRosters(t *testing.T) {
	onEach(t, func(t *testing.T, s *testenv.Server, open openFunc) {
		t.Helper()
		d, reqs := open(t, s), several(t, 4)
		first := acquireAll(t, d, reqs)
		waiting := []*backend.Request{reader(reqs[0].Key), reader(reqs[2].Key)}
		for _, w := range waiting {
			_ = raw.Busy(t, d, w)
		}
		again := acquireAll(t, d, reqs)
		for i, g := range again {
			if g.Key != reqs[i].Key || g.Owner != reqs[i].Owner || g.Fence < first[i].Fence {
				t.Errorf("grant %d is %+v", i, g)
			}
		}
		wantHolders(t, d, reqs, always)
		if err := d.Break(t.Context(), reqs[1].Key, ""); err != nil {
			t.Fatal(err)
		}
		other := raw.Request(t, time.Minute)
		other.Key = reqs[1].Key
		g := acquire(t, d, other)
		_, failed, err := d.AcquireAll(t.Context(), reqs)
		if !errors.Is(err, backend.ErrNotAcquired) || failed != 1 {
			t.Errorf("the repetition: %v about %d", err, failed)
		}
		wantHolders(t, d, reqs, never)
		for _, g := range append(slices.Clip(first[:0]), g) {
			raw.Release(t, d, g)
		}
		for _, w := range waiting {
			raw.Release(t, d, acquire(t, d, w))
		}
	})
}

// TestAllOfAKeptLock checks that AcquireAll is refused by a lock that is kept for its first waiter.
func TestAllOfAKeptLock(t *testing.T) {
	onEach(t, func(t *testing.T, s *testenv.Server, open openFunc) {
		t.Helper()
		d, reqs, db := open(t, s), several(t, 3), database(t, s, "")
		releaseAll(t, d, acquireAll(t, d, reqs))
		keep := func(interval string) {
			do(t, db, "UPDATE dlock SET expires = UTC_TIMESTAMP(6) + INTERVAL "+interval+
				" WHERE name = ?", []byte(reqs[1].Key))
		}
		keep("50 SECOND")
		_, failed, err := d.AcquireAll(t.Context(), reqs)
		if busy, ok := errors.AsType[*backend.Busy](err); !ok || failed != 1 ||
			*busy != (backend.Busy{}) {
			t.Errorf("AcquireAll with a kept lock: %+v about %d", err, failed)
		}
		keep("70 SECOND") // released before the clock was set back
		releaseAll(t, d, acquireAll(t, d, reqs))
	})
}

// TestReleaseAllUsesTheSignal releases a lock whose holder has waited and still has the signal. The
// signal is given away with the lock, and the lock is not kept for its former holder.
func TestReleaseAllUsesTheSignal(t *testing.T) {
	onEach(t, func(t *testing.T, s *testenv.Server, open openFunc) {
		t.Helper()
		d, reqs := open(t, s), several(t, 3)
		gs := acquireAll(t, d, reqs)
		w, err := d.connectWaiter(t.Context(), gs[1].Owner)
		if err != nil || w == nil {
			t.Fatalf("connect: %v, %v", w, err)
		}
		err = d.queue.awaitSignal(t.Context(), w, d.keys.signal(gs[1].Key), patience)
		if err != nil || w.signal == "" {
			t.Fatalf("the signal: %v", err)
		}
		d.acquisitions.keep(gs[1].Owner, w)
		d.acquisitions.hold(gs[1].Owner)
		releaseAll(t, d, gs)
		const kept = "SELECT expires > since FROM dlock WHERE name = ?"
		if ask(t, database(t, s, ""), kept, []byte(gs[1].Key)) != "0" {
			t.Error("the lock is kept for its former holder")
		}
		if len(d.queue.free) != d.pools.waitConns {
			t.Error("the connection was not given back")
		}
	})
}

// TestReleaseAllEndsSleeps checks that ReleaseAll wakes the first waiter of each lock. Each of them
// sleeps for longer than the test.
func TestReleaseAllEndsSleeps(t *testing.T) {
	t.Parallel()
	s := testenv.MySQL(t)
	d, db := openURL(t, s.URL), database(t, s, "")
	gs := acquireAll(t, d, several(t, 3))
	woken := make(chan struct{}, len(gs))
	for _, g := range gs {
		conn := oneConnection(t, db)
		wantGranted(t, conn, d.keys.signal(g.Key))
		go func() {
			_, _ = conn.ExecContext(t.Context(), "DO SLEEP(600) /* of a first waiter */")
			woken <- struct{}{}
		}()
	}
	eventually(t, "the waiters sleep", func() bool {
		return ask(t, db, "SELECT COUNT(*) FROM information_schema.PROCESSLIST "+
			"WHERE INFO LIKE 'DO SLEEP(600)%'") == "3"
	})
	releaseAll(t, d, gs)
	for range gs {
		select {
		case <-woken:
		case <-time.After(patience):
			t.Fatal("a waiter sleeps on")
		}
	}
}

// TestReleaseAllWaitsOnce releases locks whose rows stay locked. The server lets one statement on
// each connection wait for its row, and no further ones.
func TestReleaseAllWaitsOnce(t *testing.T) {
	t.Parallel()
	for name, start := range starters {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			d, db := openURL(t, s.URL), database(t, s, "")
			d.sweeping.Store(true) // prevents sweeps
			gs := acquireMany(t, d, maxFreed)
			for i := range 3 * maxRowWaiters {
				req := reader(fmt.Sprintf("%s/reader %d", t.Name(), i))
				gs = append(gs, acquire(t, d, req))
			}
			rows, waited := lockRows(t, db, t.Name()), 0
			for i, err := range d.ReleaseAll(t.Context(), gs) {
				raw.WantIs(t, fmt.Sprint("release ", i), err, backend.ErrUnavailable)
				if hasNumber(err, errLockWait) {
					waited++
				}
			}
			if waited == 0 || waited > maxRowWaiters {
				t.Errorf("%d releases waited, want at most %d", waited, maxRowWaiters)
			}
			unlock(t, rows)
			releaseAll(t, d, gs)
		})
	}
}
