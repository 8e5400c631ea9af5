package pgbackend

import (
	"errors"
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
	"ForeignValueIsAConflict", // each row of the table is a lock
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
	pooler := pooler(t, server, mode)
	conformance.Run(t, func(t conformance.TB) conformance.Harness {
		return harness{testenv.NewHarness(t, pooler), server.URL}
	}, inapplicableIfPooled)
}

// pooler starts a PgBouncer in front of a server, whose user gets the settings for it.
func pooler(t *testing.T, server *testenv.Server, mode string) *testenv.Server {
	t.Helper()
	exec(t, connected(t, server.URL), `ALTER ROLE postgres SET statement_timeout = '2s'`)
	return testenv.NewPgBouncer(t, server, mode)
}

// TestPooledSettings has a role whose settings would break the guarantees, and which a pooler does
// not let the driver change.
func TestPooledSettings(t *testing.T) {
	t.Parallel()
	s := testenv.NewPostgres(t)
	conn := connected(t, s.URL)
	for _, setting := range []string{
		"statement_timeout = 0", "statement_timeout = '3s'", "synchronous_commit = off",
		"client_min_messages = error", "default_transaction_isolation = serializable",
	} {
		exec(t, conn, `ALTER ROLE postgres RESET ALL`)
		exec(t, conn, `ALTER ROLE postgres SET statement_timeout = '2s'`)
		exec(t, conn, `ALTER ROLE postgres SET `+setting)
		p := testenv.NewPgBouncer(t, s, "transaction") // with new connections
		_, err := testenv.Open(t.Context(), p.URL)
		raw.WantIs(t, "Open with "+setting, err, backend.ErrUnsupported)
	}
}

// TestServerBehindAPoolerIsAway stops the server behind a pooler, which then refuses each login.
func TestServerBehindAPoolerIsAway(t *testing.T) {
	t.Parallel()
	s := testenv.NewPostgres(t)
	p := pooler(t, s, "transaction")
	d := opened(t, p.URL)
	s.Kill(t)
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		d.pool.(pgxPool).Reset()
		_, err := d.Acquire(t.Context(), raw.Request(t, time.Minute))
		if err == nil || errors.Is(err, backend.ErrUnsupported) {
			t.Fatalf("Acquire without a server: %v", err)
		}
		if hasCode(err, codeProtocol) {
			raw.WantIs(t, "Acquire without a server", err, backend.ErrUnavailable)
			_, err = testenv.Open(t.Context(), p.URL)
			raw.WantIs(t, "Open without a server", err, backend.ErrUnavailable)
			break
		}
	}
	s.Start(t)
	for end := time.Now().Add(time.Minute); ; {
		g, err := d.Acquire(t.Context(), raw.Request(t, time.Minute))
		if err == nil {
			raw.Release(t, d, g)
			return
		}
		if time.Now().After(end) {
			t.Fatalf("Acquire: %v", err)
		}
	}
}

// TestPooledStatementsHaveNoNames uses all statements of a lock through a pooler, which may not
// support prepared statements.
func TestPooledStatementsHaveNoNames(t *testing.T) {
	t.Parallel()
	s := testenv.NewPostgres(t)
	d := opened(t, pooler(t, s, "session").URL)
	raw.Release(t, d, raw.Acquire(t, d, raw.Request(t, time.Minute)))
	conn, err := d.pool.(pgxPool).Acquire(t.Context())
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
	s := testenv.NewPostgres(t)
	p := pooler(t, s, "transaction")
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
