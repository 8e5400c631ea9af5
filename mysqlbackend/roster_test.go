package mysqlbackend

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/kind"
	"github.com/dlock-go/dlock/backend/roster"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// reader returns the request of a reader that waits.
func reader(key string) *backend.Request {
	return &backend.Request{
		Key: key, Owner: raw.NewOwner(), TTL: time.Minute, Mode: backend.Shared, Queue: true,
	}
}

// TestDrawnNumbersGrow draws numbers of rows whose clocks are behind, at and before their tokens. A
// late statement finds a later row as it was if their tokens are the same.
func TestDrawnNumbersGrow(t *testing.T) {
	t.Parallel()
	for _, now := range []int64{0, backend.FenceEpoch + 1, backend.FenceEpoch + 1000} {
		row := &rosterRow{token: 100, now: now}
		for last, n := row.token, 0; n < 3; n++ {
			next := row.draw()
			if next <= last || next < now-backend.FenceEpoch {
				t.Errorf("number %d after %d, at %d", next, last, now)
			}
			last = next
		}
	}
}

// TestWriterBecomesAnEntry lets readers wait for two writers, which turns the rows of the writers
// into rosters. The writers can still renew and release their grants, alone and in a batch.
func TestWriterBecomesAnEntry(t *testing.T) {
	onEach(t, func(t *testing.T, s *testenv.Server, open openFunc) {
		t.Helper()
		d, other := open(t, s), open(t, s)
		var writers []*backend.Grant
		var readers []*backend.Request
		for _, name := range []string{"/a", "/b"} {
			req := raw.Request(t, time.Minute)
			req.Key += name
			g := acquire(t, d, req)
			r := reader(g.Key)
			_, err := other.Acquire(t.Context(), r)
			raw.WantIs(t, "Acquire of a reader", err, backend.ErrNotAcquired)
			writers, readers = append(writers, g), append(readers, r)
		}
		for i, g := range writers {
			if _, err := d.Renew(t.Context(), g); err != nil {
				t.Errorf("Renew of writer %d: %v", i, err)
			}
		}
		for i, r := range d.RenewAll(t.Context(), writers) {
			if r.Err != nil {
				t.Errorf("RenewAll of writer %d: %v", i, r.Err)
			}
		}
		for i, g := range writers {
			info, err := other.Inspect(t.Context(), g.Key)
			if err != nil || len(info.Holders) != 1 || info.Holders[0].Fence != g.Fence<<12 ||
				info.Waiters != 1 {
				t.Errorf("Inspect: %+v, %v", info, err)
			}
			raw.Release(t, d, g)
			raw.Release(t, other, acquire(t, other, readers[i]))
		}
	})
}

// TestRosterChangesAreCounted lets many owners change one roster at once. Each of them is there at
// the end, and each has another fence.
func TestRosterChangesAreCounted(t *testing.T) {
	onEach(t, func(t *testing.T, s *testenv.Server, open openFunc) {
		t.Helper()
		const owners = 20
		d, key := open(t, s), raw.Request(t, time.Minute).Key
		grants := make([]*backend.Grant, owners)
		var all sync.WaitGroup
		for i := range grants {
			all.Go(func() { grants[i], _ = d.Acquire(t.Context(), reader(key)) })
		}
		all.Wait()
		fences := make(map[uint64]bool)
		for _, g := range grants {
			if g == nil {
				t.Fatal("a reader was refused")
			}
			fences[g.Fence] = true
		}
		info, err := d.Inspect(t.Context(), key)
		if err != nil || len(info.Holders) != owners || len(fences) != owners {
			t.Errorf("%d holders and %d fences, %v", len(info.Holders), len(fences), err)
		}
		for _, g := range grants {
			raw.Release(t, d, g)
		}
	})
}

// TestFirstWaiterEntersARoster lets a reader wait for a writer behind the first waiter. That waiter
// detects that the row has become a roster, enters it, and gives its connection back.
func TestFirstWaiterEntersARoster(t *testing.T) {
	onEach(t, func(t *testing.T, s *testenv.Server, open openFunc) {
		t.Helper()
		holder, d := open(t, s), open(t, s)
		g := acquire(t, holder, raw.Request(t, time.Minute))
		req, r := raw.Request(t, time.Minute), reader(t.Name())
		answer := raw.Busy(t, d, req)
		_, err := d.Wait(t.Context(), req, answer)
		if err != nil || !d.acquisitions.isFirst(req.Owner) {
			t.Fatalf("the waiter is not the first: %v", err)
		}
		took := make(chan time.Duration)
		go func() {
			began := time.Now()
			if _, err := d.Wait(t.Context(), req, answer); err != nil {
				t.Errorf("Wait: %v", err)
			}
			took <- time.Since(began)
		}()
		_ = raw.Busy(t, holder, r)
		if took := <-took; took >= maxQueueing {
			t.Errorf("the waiter detected the roster after %v", took)
		}
		if raw.Busy(t, d, req).State == nil {
			t.Error("the waiter is not in the roster")
		}
		eventually(t, "no connection waits", func() bool {
			return len(d.queue.free) == maxWaitConns
		})
		raw.Release(t, holder, g)
		raw.Release(t, holder, acquire(t, holder, r))
		raw.Release(t, d, acquire(t, d, req))
	})
}

// fill makes a roster of readers for a name, with at least size bytes, and returns them.
func fill(tb testing.TB, db *sql.DB, table, name string, size int) (r roster.Roster) {
	tb.Helper()
	now := time.Now().UnixMicro()
	for n := 0; n < size; n += len(r[:1].Text()) {
		r = append(r, roster.Entry{
			Word: kind.Reader, Owner: raw.NewOwner(), Meta: strings.Repeat("<", 512),
			Granted: true, Fence: 1, Since: now, Expires: now + roster.Micros(time.Hour),
		})
	}
	do(tb, db, "INSERT INTO "+table+" (name, owner, token, since, expires, meta, roster) VALUES "+
		"(?, '*', 1, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL 1 HOUR, '', ?)",
		[]byte(name), r.Text())
	return r
}

// TestLongRostersAreListed lists rosters that are longer together than an answer may be.
func TestLongRostersAreListed(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			db := database(t, s, "?interpolateParams=true")
			do(t, db, "DROP TABLE IF EXISTS listed")
			d := openURL(t, "mysql://root@"+s.Addr+"/dlock?create=1&table=listed")
			const names, size = 12, maxAnswer / 8
			want := 0
			for i := range names {
				want += len(fill(t, db, "listed", fmt.Sprint("long", i), size))
			}
			raw.Release(t, d, acquire(t, d, reader("long")))
			infos, holders := 0, 0
			for info, err := range d.List(t.Context(), "long") {
				if err != nil {
					t.Fatalf("List: %v", err)
				}
				infos, holders = infos+1, holders+len(info.Holders)
			}
			if infos != names || holders != want {
				t.Errorf("List: %d locks with %d holders, want %d with %d",
					infos, holders, names, want)
			}
			do(t, db, "UPDATE listed SET roster = NULL WHERE name = 'long7'")
			_, err := d.Inspect(t.Context(), "long7")
			raw.WantIs(t, "Inspect of a row without its roster", err, backend.ErrConflict)
		})
	}
}

// TestFullRosterTakesNoMore checks that a roster does not become too long to be read. Its holders
// can still renew and release their grants.
func TestFullRosterTakesNoMore(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			db := database(t, s, "?interpolateParams=true")
			do(t, db, "DROP TABLE IF EXISTS full")
			d := openURL(t, "mysql://root@"+s.Addr+"/dlock?create=1&table=full")
			holder := fill(t, db, "full", "name", maxRoster)[0].Owner
			req := reader("name")
			_, err := d.Acquire(t.Context(), req)
			raw.WantIs(t, "Acquire", err, backend.ErrUnavailable)
			held := *req
			held.Owner = holder
			g := &backend.Grant{Request: held}
			if _, err := d.Renew(t.Context(), g); err != nil {
				t.Errorf("Renew: %v", err)
			}
			raw.Release(t, d, g)
			acquire(t, d, req)
		})
	}
}

// TestKeptLockRefusesReaders checks that a lock that is kept for its first waiter is no free lock
// for readers and permits. The first waiter may be of any kind.
func TestKeptLockRefusesReaders(t *testing.T) {
	onEach(t, func(t *testing.T, s *testenv.Server, open openFunc) {
		t.Helper()
		d, db := open(t, s), database(t, s, "")
		req := raw.Request(t, time.Minute)
		g := acquire(t, d, req)
		raw.Release(t, d, g)
		keep := func(interval string) {
			do(t, db, "UPDATE dlock SET expires = UTC_TIMESTAMP(6) + INTERVAL "+interval+
				" WHERE name = ?", []byte(g.Key))
		}
		for _, other := range []*backend.Request{reader(g.Key), permit(g.Key, 2)} {
			keep("50 SECOND")
			b := raw.Busy(t, d, other)
			if b.State != nil {
				t.Errorf("%s: there is an entry", other.Mode)
			}
			w, err := d.connectWaiter(t.Context(), other.Owner)
			if err != nil || w == nil {
				t.Fatalf("connect: %v, %v", w, err)
			}
			err = d.queue.awaitSignal(t.Context(), w, d.keys.signal(g.Key), patience)
			if err != nil || w.signal == "" {
				t.Fatalf("the signal: %v", err)
			}
			d.acquisitions.keep(other.Owner, w)
			raw.Release(t, d, acquire(t, d, other)) // as the first waiter
			eventually(t, "no connection waits", func() bool {
				return len(d.queue.free) == d.pools.waitConns
			})
			keep("70 SECOND") // released before the clock was set back
			raw.Release(t, d, acquire(t, d, reader(g.Key)))
		}
	})
}

// TestNewRosterEndsASleep lets a reader turn the row of a writer into a roster. The first waiter,
// which sleeps for longer than the test, then enters the roster.
func TestNewRosterEndsASleep(t *testing.T) {
	t.Parallel()
	s := testenv.MySQL(t)
	d := openURL(t, s.URL)
	g := acquire(t, d, raw.Request(t, time.Minute))
	woken := sleepLong(t, s, d.keys.signal(g.Key))
	r := reader(g.Key)
	_ = raw.Busy(t, d, r)
	awaitWoken(t, woken)
	raw.Release(t, d, g)
	raw.Release(t, d, &backend.Grant{Request: *r})
}

// sleepLong makes a connection sleep in the server that has a user-level lock. The channel is
// closed when the sleep has ended.
func sleepLong(t *testing.T, s *testenv.Server, name string) <-chan struct{} {
	t.Helper()
	db := database(t, s, "?interpolateParams=true")
	conn := oneConnection(t, db)
	wantGranted(t, conn, name)
	woken, text := make(chan struct{}), "DO SLEEP(600) /* with "+name+" */"
	go func() {
		defer close(woken)
		_, _ = conn.ExecContext(t.Context(), text)
	}()
	eventually(t, "the connection sleeps", func() bool {
		return ask(t, db, "SELECT COUNT(*) FROM information_schema.PROCESSLIST "+
			"WHERE INFO = ? AND STATE = 'User sleep'", text) == "1"
	})
	return woken
}

func awaitWoken(t *testing.T, woken <-chan struct{}) {
	t.Helper()
	select {
	case <-woken:
	case <-time.After(patience):
		t.Fatal("the connection sleeps on")
	}
}

// TestUnreadableRowIsBroken damages the roster of one of three locks. List yields the other locks
// before the error, and Break of all holders makes the lock free.
func TestUnreadableRowIsBroken(t *testing.T) {
	onEach(t, func(t *testing.T, s *testenv.Server, open openFunc) {
		t.Helper()
		d, key := open(t, s), raw.Request(t, time.Minute).Key
		g := acquire(t, d, permit(key+"/b", 2))
		others := []*backend.Grant{
			acquire(t, d, permit(key+"/a", 2)), acquire(t, d, permit(key+"/c", 2)),
		}
		do(t, d.pools.main, "UPDATE dlock SET roster = 'x' WHERE name = ?", []byte(g.Key))
		var found []string
		var last error
		for info, err := range d.List(t.Context(), key+"/") {
			if last = err; err == nil {
				found = append(found, info.Key)
			}
		}
		raw.WantIs(t, "the last result of List", last, backend.ErrConflict)
		if !slices.Equal(found, []string{others[0].Key, others[1].Key}) {
			t.Errorf("List: %q", found)
		}
		_, err := d.Inspect(t.Context(), g.Key)
		raw.WantIs(t, "Inspect", err, backend.ErrConflict)
		raw.WantIs(t, "Break of one", d.Break(t.Context(), g.Key, g.Owner), backend.ErrConflict)
		if err := d.Break(t.Context(), g.Key, ""); err != nil {
			t.Errorf("Break: %v", err)
		}
		raw.WantIs(t, "a second Break", d.Break(t.Context(), g.Key, ""), backend.ErrNotHeld)
		raw.Release(t, d, acquire(t, d, permit(g.Key, 3)))
		raw.Release(t, d, others[0])
		raw.Release(t, d, others[1])
	})
}

// TestSignalsIgnoreTheCaseOfTables compares the signals of a table whose name is written in two
// ways, and of another table.
func TestSignalsIgnoreTheCaseOfTables(t *testing.T) {
	t.Parallel()
	lower, upper := newKeys(&server{database: "d"}, "t"), newKeys(&server{database: "D"}, "T")
	if lower.signal("k") != upper.signal("k") || lower.bell("k", "b") != upper.bell("k", "b") {
		t.Error("the signals depend on the case of the table")
	}
	if lower.signal("k") == lower.signal("K") {
		t.Error("two keys share a signal")
	}
	if lower.signal("k") == newKeys(&server{database: "d"}, "u").signal("k") {
		t.Error("two tables share a signal")
	}
}
