package pgbackend

import (
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestTableOfOneUser opens a table that only one user would find: the schema with the user's name
// is in search_path by $user. Users with a table each would all hold every lock.
func TestTableOfOneUser(t *testing.T) {
	t.Parallel()
	s := testenv.Postgres(t)
	conn := connected(t, s.URL)
	exec(t, conn, `CREATE USER alone PASSWORD 'alone'`)
	exec(t, conn, `CREATE SCHEMA alone AUTHORIZATION alone`)
	url := strings.Replace(s.URL, "postgres:correct-horse@", "alone:alone@", 1)
	refuse := func(what string) {
		_, err := testenv.Open(t.Context(), url+"?table=mine")
		raw.WantIs(t, "Open with "+what, err, backend.ErrUnsupported)
		if err == nil || !strings.Contains(err.Error(), "table=alone.mine") {
			t.Errorf("the error does not show the right form: %v", err)
		}
	}
	refuse("no table")
	var exists bool
	err := conn.QueryRow(t.Context(), `SELECT to_regclass('alone.mine') IS NOT NULL`).Scan(&exists)
	if err != nil || exists {
		t.Errorf("Open that was refused created the table: %v, %v", exists, err)
	}
	named := opened(t, url+"?table=alone.mine")
	refuse("a table")
	exec(t, conn, `ALTER USER alone SET search_path = alone`)
	found := opened(t, url+"?table=mine")
	held := raw.Acquire(t, named, raw.Request(t, time.Minute))
	_ = raw.Busy(t, found, raw.Request(t, time.Minute))
	raw.Release(t, named, held)
}

// TestLeftSearchPath leaves a temporary table and a search path on the connection of a pool, as an
// application does. They would hide the table of locks.
func TestLeftSearchPath(t *testing.T) {
	t.Parallel()
	s := testenv.Postgres(t)
	other := opened(t, s.URL) // creates the table
	d := lent(t, s.URL+"?pool_max_conns=1")
	pool := d.pool.(pgxPool)
	for _, left := range []string{
		`CREATE TEMP TABLE dlock (LIKE dlock INCLUDING ALL)`,
		`CREATE SCHEMA elsewhere`,
		`SET search_path = elsewhere`,
	} {
		if _, err := pool.Exec(t.Context(), left); err != nil {
			t.Fatalf("%s: %v", left, err)
		}
		held := raw.Acquire(t, d, raw.Request(t, time.Minute))
		second := raw.Request(t, time.Minute)
		second.Queue = false
		_ = raw.Busy(t, other, second)
		raw.Release(t, d, held)
	}
}
