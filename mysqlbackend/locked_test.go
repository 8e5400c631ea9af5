package mysqlbackend

import (
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestLockedRowsTakeFewConnections keeps the rows of many leases locked, like a renewal whose
// commit stalls. The driver must not use one connection per row, neither of the lent database nor
// of the server.
func TestLockedRowsTakeFewConnections(t *testing.T) {
	t.Parallel()
	for name, start := range starters {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			lent := database(t, s, "?interpolateParams=true&innodb_lock_wait_timeout=600")
			db := database(t, s, "")
			b, err := New(lent, &Options{Create: true})
			if err != nil {
				t.Fatal(err)
			}
			d := closing(t, b)
			d.sweeping.Store(true) // prevents sweeps
			gs := acquireMany(t, d, 100)
			rows := lockRows(t, db, t.Name())
			before, waited := status(t, db, "Connections"), 0
			for i, r := range d.RenewAll(t.Context(), gs) {
				if r.Err == nil || errors.Is(r.Err, backend.ErrLost) {
					t.Errorf("renewal %d of a locked row: %v", i, r.Err)
				}
				if hasNumber(r.Err, errLockWait) {
					waited++
				}
			}
			if waited > 2*maxRowWaiters {
				t.Errorf("the batch waited for %d rows, %d at a time, one after the other",
					waited, maxRowWaiters)
			}
			if n := status(t, db, "Connections") - before; n > len(gs)/10 {
				t.Errorf("%d connections were opened for the rows of %d leases", n, len(gs))
			}
			eventually(t, "the server has given up, too", func() bool {
				return waitingRenewals(t, db, "") == 0
			})
			unlock(t, rows)
			for i, r := range d.RenewAll(t.Context(), gs) {
				if r.Err != nil {
					t.Errorf("renewal %d: %v", i, r.Err)
				}
			}
		})
	}
}

// TestManyAbsentRowsAreLost checks that a table which was emptied needs few connections, too, and
// that each loss is reported.
func TestManyAbsentRowsAreLost(t *testing.T) {
	onEach(t, func(t *testing.T, s *testenv.Server, open openFunc) {
		t.Helper()
		d := open(t, s)
		var gs []*backend.Grant
		for i := range 50 {
			req := raw.Request(t, time.Minute)
			req.Key += "/" + strconv.Itoa(i)
			gs = append(gs, &backend.Grant{Request: *req})
		}
		lost := make(map[*backend.Grant]bool)
		eventually(t, "each loss is reported", func() bool {
			for i, r := range d.RenewAll(t.Context(), gs) {
				if r.Err == nil {
					t.Fatalf("renewal %d of an absent row: %v", i, r)
				}
				lost[gs[i]] = lost[gs[i]] || errors.Is(r.Err, backend.ErrLost)
			}
			for _, g := range gs {
				if !lost[g] {
					return false
				}
			}
			return true
		})
	})
}

// acquireMany acquires n locks with the test's name as prefix.
func acquireMany(tb testing.TB, d *driver, n int) (gs []*backend.Grant) {
	tb.Helper()
	for i := range n {
		req := raw.Request(tb, 10*time.Minute)
		req.Key = fmt.Sprintf("%s/%04d", tb.Name(), i)
		gs = append(gs, acquire(tb, d, req))
	}
	return gs
}

// lockRows locks all rows with the prefix name.
func lockRows(tb testing.TB, db *sql.DB, name string) *sql.Tx {
	tb.Helper()
	rows, err := db.Begin()
	if err != nil {
		tb.Fatal(err)
	}
	_, err = rows.Exec("UPDATE dlock SET meta = 'locked' WHERE name >= ? AND name < ?",
		[]byte(name+"/"), []byte(name+"0"))
	if err != nil {
		tb.Fatal(err)
	}
	return rows
}

// waitingRenewals returns the number of renewals of locks with the prefix name that the server is
// executing. A renewal also waits for the row when it reads a roster.
func waitingRenewals(tb testing.TB, db *sql.DB, name string) int {
	tb.Helper()
	n, err := strconv.Atoi(ask(tb, db,
		"SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INSTR(INFO, ?) > 0 "+
			"AND (INFO LIKE 'UPDATE%' OR INFO LIKE '%FOR UPDATE')", name))
	if err != nil {
		tb.Fatal(err)
	}
	return n
}
