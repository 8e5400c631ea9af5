package pgbackend

import (
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestCloseInABlackHole closes a driver with a request that does not arrive.
func TestCloseInABlackHole(t *testing.T) {
	t.Parallel()
	h := testenv.NewHarness[testenv.TB](t, testenv.Postgres(t))
	d := opened(t, h.URL()+"?timeout=1m")
	req := raw.Request(t, time.Hour)
	g := raw.Acquire(t, d, req)
	heal := h.Cut(t)
	failed := make(chan error)
	go func() {
		_, err := d.Renew(t.Context(), g)
		failed <- err
	}()
	for len(d.renewals.slots) == 0 {
		runtime.Gosched()
	}
	begun := time.Now()
	if err := d.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if took := time.Since(begun); took > patience { // the request lasts for a minute
		t.Errorf("Close took %v", took)
	}
	if err := <-failed; err == nil {
		t.Error("Renew through a black hole: nil")
	}
	heal()
	other := opened(t, h.URL())
	raw.Release(t, other, g)
}

// TestSweepWaitsForNoRow sweeps while a name that was free for a day is locked again.
func TestSweepWaitsForNoRow(t *testing.T) {
	t.Parallel()
	s := testenv.NewPostgres(t)
	d, conn := opened(t, s.URL), connected(t, s.URL)
	req := raw.Request(t, time.Minute)
	raw.Release(t, d, raw.Acquire(t, d, req))
	age(t, d, conn, "dlock")
	exec(t, conn, `BEGIN`)
	exec(t, conn, `UPDATE dlock SET owner = 'x', expires = now() + interval '1 day'`)
	sweep(t, d) // skips the row
	exec(t, conn, `COMMIT`)
	_ = raw.Busy(t, d, req)
}

// age makes all rows of a table two days older. The grants of d may have begun a page in the
// background, which would delete them.
func age(t *testing.T, d *driver, conn *pgx.Conn, table string) {
	t.Helper()
	d.sweeper.pages.Wait()
	exec(t, conn, `UPDATE `+table+` SET expires = expires - interval '2 days'`)
}

// sweep checks all rows of a small table.
func sweep(t *testing.T, d *driver) {
	t.Helper()
	d.sweeper.mu.Lock()
	defer d.sweeper.mu.Unlock()
	if last, err := d.sweeper.page(t.Context()); !last || err != nil {
		t.Errorf("page: %v, %v", last, err)
	}
}

// TestSweepKeepsUp has many drivers with one grant each. Together they keep the table small: names
// that are never used again do not accumulate, wherever they are among the used names.
func TestSweepKeepsUp(t *testing.T) {
	t.Parallel()
	s := testenv.NewPostgres(t)
	d, conn := opened(t, s.URL), connected(t, s.URL)
	fill := func(prefix, age string) {
		exec(t, conn, `INSERT INTO dlock (name, version, fence, owner, meta, since, expires)
			SELECT convert_to($1 || n, 'UTF8'), 1, 1, '', '', now(), now() - $2::interval
			FROM generate_series(1, 1000) AS n`, prefix, age)
	}
	fill("a", "25 hours")
	fill("b", "0")
	fill("c", "25 hours")
	fill("d", "0")
	fill("e", "25 hours")
	const rows = 5000
	for range rows { // acquisitions; on average, a quarter of them is enough
		var own sweeper
		own.init(d)
		own.onGrant()
		own.pages.Wait()
		own.close()
	}
	for prefix, want := range map[string]int{"a": 0, "b": 1000, "c": 0, "d": 1000, "e": 0} {
		var left int
		err := conn.QueryRow(t.Context(), `SELECT count(*) FROM dlock
			WHERE name >= $1 AND name < $2`, []byte(prefix), pastPrefix(prefix)).Scan(&left)
		if err != nil || left != want {
			t.Errorf("%d rows of %s remain, %v, want %d", left, prefix, err, want)
		}
	}
	for info, err := range d.List(t.Context(), "") {
		t.Errorf("List: %+v, %v", info, err)
	}
}

// TestSweepsShareTheTable sweeps while another driver is doing so: it leaves the page to that
// driver. Later it begins where the last sweep ended, and keeps the row that has this place.
func TestSweepsShareTheTable(t *testing.T) {
	t.Parallel()
	s := testenv.NewPostgres(t)
	d, other, conn := opened(t, s.URL), opened(t, s.URL), connected(t, s.URL)
	exec(t, conn, `INSERT INTO dlock (name, version, fence, owner, meta, since, expires)
		SELECT convert_to('n' || n, 'UTF8'), 1, 1, '', '', now(), now()
		FROM generate_series(1000, 999 + $1) AS n`, 2*sweepPage)
	page := func(d *driver, wantLast bool, want string) {
		t.Helper()
		d.sweeper.mu.Lock()
		defer d.sweeper.mu.Unlock()
		last, err := d.sweeper.page(t.Context())
		if err != nil || last != wantLast {
			t.Errorf("page: %v, %v, want %v", last, err, wantLast)
		}
		var next []byte
		err = conn.QueryRow(t.Context(), `SELECT meta FROM dlock WHERE name = $1`,
			[]byte(sweepCursor)).Scan(&next)
		if err != nil || string(next) != want {
			t.Errorf("the next page begins after %q, %v, want %q", next, err, want)
		}
	}
	page(d, false, "n1499")
	exec(t, conn, `UPDATE dlock SET expires = expires - interval '2 days'`)
	locker := connected(t, s.URL)
	exec(t, locker, `BEGIN`)
	exec(t, locker, `SELECT FROM dlock WHERE name = $1 FOR UPDATE`, []byte(sweepCursor))
	page(other, false, "n1499")
	exec(t, locker, `ROLLBACK`)
	page(other, false, "n1999")
	page(d, true, "")
	page(d, false, "n1499")
	page(d, true, "")
	var left int
	err := conn.QueryRow(t.Context(), `SELECT count(*) FROM dlock`).Scan(&left)
	if err != nil || left != 1 {
		t.Errorf("%d rows remain, %v, want the cursor", left, err)
	}
}

// TestTablesWithTheNamesOfQueries uses tables with the words of the statements as their names, so
// that no query of WITH hides the table. The sweep meets a lock that is taken meanwhile.
func TestTablesWithTheNamesOfQueries(t *testing.T) {
	t.Parallel()
	s := testenv.NewPostgres(t)
	conn := connected(t, s.URL)
	for _, table := range []string{
		"updated", "asked", "locked", "page", "stale", "deleted", "cursor", "begin", "moved",
		"held", "fast", "unsettled", "next", "stored", "wanted", "taken", "made", "last",
	} {
		d := opened(t, s.URL+"?table="+table)
		g := raw.Acquire(t, d, raw.Request(t, time.Minute))
		raw.WantIs(t, "RenewAll in "+table,
			d.RenewAll(t.Context(), []*backend.Grant{g})[0].Err, nil)
		raw.Release(t, d, g)
		second, first := raw.Request(t, time.Minute), raw.Request(t, time.Minute)
		second.Key += "/second"
		grants, _, err := d.AcquireAll(t.Context(), []*backend.Request{second, first})
		raw.WantIs(t, "AcquireAll in "+table, err, nil)
		for _, err := range d.ReleaseAll(t.Context(), grants) {
			raw.WantIs(t, "ReleaseAll in "+table, err, nil)
		}
		shared := []*backend.Request{second, first}
		crowd(t, d.takes, len(shared), func(i int) {
			raw.Release(t, d, raw.Acquire(t, d, shared[i]))
		})
		age(t, d, conn, table)
		exec(t, conn, `BEGIN`)
		exec(t, conn, `UPDATE `+table+` SET owner = 'x', expires = now() + interval '1 day'`)
		sweep(t, d)
		exec(t, conn, `COMMIT`)
		_ = raw.Busy(t, d, raw.Request(t, time.Minute))
	}
}
