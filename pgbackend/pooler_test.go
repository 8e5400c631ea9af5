package pgbackend

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// inapplicableIfPooled are the cases that do not apply behind a pooler: the core polls.
var inapplicableIfPooled = conformance.Inapplicable(
	"BrokenLockGoesToTheQueue", "CancelledWaitsLeaveNoMemory",
	"LeavingTheQueueOfAFreeLockWakesTheNext", "NextRequestFollowsARelease",
	"ReleaseBeforeWaitIsNotMissed", "ReleaseDuringWaitIsNotMissed", "WaitEndsWithItsContext",
	"WaitersOfOneConnectionMissNoRelease",
)

func TestConformancePooledSessions(t *testing.T) { pooled(t, "session") }

func TestConformancePooledTransactions(t *testing.T) { pooled(t, "transaction") }

// pooled runs the suite behind a PgBouncer.
func pooled(t *testing.T, mode string) {
	t.Helper()
	server := testenv.Alone(t, testenv.Postgres)
	pooler := testenv.NewPgBouncer(t, server, mode)
	conformance.Run(t, func(t conformance.TB) conformance.Harness {
		return &harness{testenv.NewHarness(t, pooler), server.URL}
	}, inapplicableIfPooled)
}

// TestPooledSettings has a role whose settings would break the guarantees, and which a pooler does
// not let the driver change.
func TestPooledSettings(t *testing.T) {
	t.Parallel()
	s := testenv.NewPostgres(t)
	exec(t, connected(t, s.URL), `ALTER ROLE postgres SET synchronous_commit = off`)
	p := testenv.NewPgBouncer(t, s, "transaction")
	_, err := testenv.Open(t.Context(), p.URL)
	raw.WantIs(t, "Open", err, backend.ErrUnsupported)
}

// TestPooledStatementsHaveNoNames uses all statements of a lock through a pooler, which may not
// support prepared statements.
func TestPooledStatementsHaveNoNames(t *testing.T) {
	t.Parallel()
	s := testenv.NewPostgres(t)
	d := opened(t, testenv.NewPgBouncer(t, s, "session").URL)
	raw.Release(t, d, raw.Acquire(t, d, raw.Request(t, time.Minute)))
	conn, err := d.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	var prepared int
	err = conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_prepared_statements
		WHERE name <> ''`, pgx.QueryExecModeExec).Scan(&prepared)
	if err != nil || prepared > 0 {
		t.Errorf("%d statements have names, %v", prepared, err)
	}
}

// TestPooledSession refuses locks of a connection that is not the client's own.
func TestPooledSession(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"session", "transaction"} {
		p := testenv.NewPgBouncer(t, testenv.Postgres(t), mode)
		_, err := testenv.Open(t.Context(), p.URL+"?lock=session")
		raw.WantIs(t, "Open in front of a pool of "+mode+"s", err, backend.ErrUnsupported)
	}
}

// TestNewWithAPooler has a pool of the caller in front of a pooler, and a waiter of another client.
func TestNewWithAPooler(t *testing.T) {
	t.Parallel()
	s := testenv.Postgres(t)
	p := testenv.NewPgBouncer(t, s, "transaction")
	pool, err := pgxpool.New(t.Context(), p.URL+"?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	d, err := New(pool, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if d.Capabilities().Notify {
		t.Error("the driver listens through a pool of transactions")
	}
	direct := opened(t, s.URL)
	g, waiter := raw.Acquire(t, d, raw.Request(t, time.Minute)), raw.Request(t, time.Minute)
	busy := raw.Busy(t, direct, waiter)
	woken := make(chan error)
	go func() {
		_, err := direct.Wait(t.Context(), waiter, busy)
		woken <- err
	}()
	raw.Release(t, d, g)
	if err := <-woken; err != nil {
		t.Errorf("Wait: %v", err)
	}
	raw.Release(t, direct, raw.Acquire(t, direct, waiter))
}
