package pgbackend

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

func TestConformanceSession(t *testing.T) {
	s := testenv.ForSessions(t, testenv.Postgres)
	conformance.Run(t, func(t conformance.TB) conformance.Harness {
		return testenv.NewTied(t, s)
	}, testenv.InapplicableIfTied)
}

// TestSilentSession checks idle_session_timeout, and that no default of the server replaces it.
func TestSilentSession(t *testing.T) {
	t.Parallel()
	s := testenv.NewPostgres(t, "-c", "idle_session_timeout=100ms")
	raw.Silence(t, s, s.URL+"?lock=session")
}

// TestSettingsOfASession checks that no limit of the server ends a statement that locks.
func TestSettingsOfASession(t *testing.T) {
	t.Parallel()
	s := testenv.NewPostgres(t, "-c", "statement_timeout=1")
	base, err := pgx.ParseConfig(s.URL + "?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	a, err := advise(t.Context(), sessionConfig(base, Options{TTL: time.Second}))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	var limit, silence string
	err = a.conn.QueryRow(t.Context(), `SELECT current_setting('statement_timeout'),
		current_setting('idle_session_timeout')`).Scan(&limit, &silence)
	if err != nil || limit != "0" || silence != "1001ms" {
		t.Errorf("statement_timeout %s, idle_session_timeout %s, %v", limit, silence, err)
	}
}

// TestEndedSession ends the connection of a holder on the server.
func TestEndedSession(t *testing.T) {
	t.Parallel()
	s := testenv.NewPostgres(t)
	conn := connected(t, s.URL)
	d := raw.OpenTTL(t, s.URL+"?lock=session", 10*time.Minute)
	raw.Ended(t, d, func(*backend.Grant) {
		exec(t, conn, `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'`)
	})
}

// TestFullLockTable holds as many locks as the server has room for. The next one is refused, and
// costs none of them.
func TestFullLockTable(t *testing.T) {
	t.Parallel()
	const most = 100_000
	s := testenv.NewPostgres(t, "-c", "max_connections=10", "-c", "max_locks_per_transaction=10")
	d := raw.OpenTTL(t, s.URL+"?lock=session", 10*time.Minute)
	var held []*backend.Grant
	for n := range most {
		req := raw.Request(t, time.Minute)
		req.Key += fmt.Sprint(n)
		g, err := d.Acquire(t.Context(), req)
		if err != nil {
			raw.WantIs(t, "Acquire on a full server", err, backend.ErrUnavailable)
			break
		}
		held = append(held, g)
	}
	if len(held) == most {
		t.Fatalf("the server has room for %d locks", most)
	}
	for _, r := range d.(backend.BatchRenewer).RenewAll(t.Context(), held) {
		if r.Err != nil {
			t.Fatalf("RenewAll: %v", r.Err)
		}
	}
	raw.Release(t, d, held[0])
	raw.Release(t, d, raw.Acquire(t, d, raw.Request(t, time.Minute)))
}

// TestSessionOfAPool uses the configuration of a pool, and no connection of it.
func TestSessionOfAPool(t *testing.T) {
	t.Parallel()
	s := testenv.Postgres(t)
	pool, err := pgxpool.New(t.Context(), s.URL+"?sslmode=disable&pool_max_conns=1")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	d, err := New(pool, &Options{Lock: LockSession})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	g := raw.Acquire(t, d, raw.Request(t, time.Minute))
	other := raw.OpenTTL(t, s.URL+"?lock=session", time.Minute)
	_ = raw.Busy(t, other, &g.Request)
	raw.Release(t, d, g)
}

// TestSessionHasNoDurableFence requires what a session does not have.
func TestSessionHasNoDurableFence(t *testing.T) {
	t.Parallel()
	s := testenv.Postgres(t)
	c, err := dlock.Open(t.Context(), s.URL+"?lock=session&require=fence-durable")
	if err == nil {
		_ = c.Close()
	}
	raw.WantIs(t, "Open", err, dlock.ErrUnsupported)
}
