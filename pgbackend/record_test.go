package pgbackend

import (
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dlock-go/dlock/backend/kind"
	"github.com/dlock-go/dlock/backend/roster"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// noRow has the columns of a name without a row, read at this time.
type noRow time.Time

// Scan implements pgx.Row.
func (now noRow) Scan(to ...any) error {
	*to[0].(*time.Time) = time.Time(now)
	return nil
}

// TestFenceOfAWrongClock reads a name without a row from a server with a clock in the past: fences
// and versions that are not positive would be no grants and no changes.
func TestFenceOfAWrongClock(t *testing.T) {
	t.Parallel()
	var r row
	err := r.scan(noRow(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)))
	if err != nil || r.fence <= 0 || r.version <= 0 {
		t.Errorf("the fence is %d, the version is %d, error %v", r.fence, r.version, err)
	}
}

// TestFenceOfABrokenGrantIsStored breaks a grant in the edition that has made it. Its holder has
// the fence, so no other grant may have it.
func TestFenceOfABrokenGrantIsStored(t *testing.T) {
	t.Parallel()
	holder := acquirer(t.Context(), raw.Request(t, time.Minute))
	breaker := &caller{alter: func(entries *roster.Roster, _ uint64, _ int64) error {
		return entries.Break("")
	}}
	r := &row{found: true, fence: 7, now: time.Now()}
	next, _, err := r.edited([]*caller{holder, breaker})
	if err != nil || holder.answer != nil || breaker.answer != nil || holder.fence != 8 {
		t.Fatalf("edited: %v, %v, %v, fence %d", err, holder.answer, breaker.answer, holder.fence)
	}
	if next == nil || next.fence != 8 || next.owner != "" || next.roster != nil {
		t.Errorf("the row is %+v, want a free row with the fence 8", next)
	}
	if next, _, err = r.edited([]*caller{breaker}); next != nil || err != nil {
		t.Errorf("Break of a free lock stores %+v, %v", next, err)
	}
}

// TestSuccessIsStoredWithAStandby repeats the request of a holder, which has a longer term already.
// The commit that made the row may not be on the standby, so the answer needs another one.
func TestSuccessIsStoredWithAStandby(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, isAlone := range []bool{true, false} {
		req, last := raw.Request(t, time.Minute), raw.Request(t, time.Minute)
		end := now.Add(2 * time.Minute).UnixMicro()
		r := &row{found: true, fence: 7, now: now, isAlone: isAlone, roster: roster.Roster{
			{Word: kind.Writer, Owner: req.Owner, Granted: true, Fence: 7, Expires: end},
			{Word: kind.Writer, Owner: last.Owner, Expires: now.Add(time.Second).UnixMicro()},
		}.Text()}
		holder := acquirer(t.Context(), req)
		next, _, err := r.edited([]*caller{holder})
		if err != nil || holder.answer != nil || (next == nil) != isAlone {
			t.Errorf("without a standby %t: %+v, %v, %v", isAlone, next, err, holder.answer)
		}
	}
}

// TestRowOfAnotherServerIsNotStored stores a row that was read on another server, where the same
// version has another content. A former primary that lives on has such rows.
func TestRowOfAnotherServerIsNotStored(t *testing.T) {
	t.Parallel()
	s := testenv.Postgres(t)
	d, conn := opened(t, s.URL), connected(t, s.URL)
	req := permit(t, 2)
	defer raw.Release(t, d, raw.Acquire(t, d, req))
	differences := []string{
		"fence = fence + 1", "owner = 'x'", "expires = expires + interval '1 microsecond'",
		"roster = roster || ' '", "roster = NULL",
	}
	for _, difference := range differences {
		exec(t, conn, `BEGIN`)
		exec(t, conn, `UPDATE dlock SET `+difference+` WHERE name = $1`, name(req.Key))
		other := readOn(t, conn, d, req.Key)
		exec(t, conn, `ROLLBACK`)
		wantStored(t, d, req.Key, difference, other, 0)
	}
	wantStored(t, d, req.Key, "nothing", readOn(t, conn, d, req.Key), 1)
}

// readOn reads a row on a connection.
func readOn(t *testing.T, conn *pgx.Conn, d *driver, key string) *row {
	t.Helper()
	r := new(row)
	if err := r.scan(conn.QueryRow(t.Context(), d.sql.read, name(key))); err != nil {
		t.Fatal(err)
	}
	return r
}

// wantStored stores r by each statement that stores rows, and undoes it.
func wantStored(t *testing.T, d *driver, key, difference string, r *row, want int64) {
	t.Helper()
	rows := new(set)
	rows.add(key, r, 0)
	args := r.updateArgs(key)
	for what, statement := range map[string]struct {
		sql  string
		args []any
	}{
		"update":         {d.sql.update, args},
		"updateSkipping": {d.sql.updateSkipping, args},
		"updateWaking":   {d.sql.updateWaking, slices.Concat(args, []any{[]string{"x"}})},
		"updateBounded":  {d.sql.updateBounded, slices.Concat(args, []any{"1"})},
		"updateWakingBounded": {
			d.sql.updateWakingBounded, slices.Concat(args, []any{"1", []string{"x"}}),
		},
		"storeAll": {d.sql.storeAll, rows.args()},
	} {
		stored := storedBy(t, d, statement.sql, statement.args)
		if min(stored, 1) != want {
			t.Errorf("%s of a row with the difference %q: %d", what, difference, stored)
		}
	}
}

// storedBy executes a statement and undoes it. It returns the number that the statement returns.
func storedBy(t *testing.T, d *driver, sql string, args []any) (number int64) {
	t.Helper()
	err := d.pool.with(t.Context(), func(conn *pgx.Conn) {
		exec(t, conn, `BEGIN`)
		defer exec(t, conn, `ROLLBACK`)
		var err error
		if number, err = numberOf(t.Context(), conn, sql, args...); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return number
}
