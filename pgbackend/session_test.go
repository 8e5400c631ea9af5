package pgbackend

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
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
	raw.Silence(t, s, s.URL+"?lock=session", 2*time.Second)
}

// TestUncertainSession cuts a holder off during its Unlock.
func TestUncertainSession(t *testing.T) {
	t.Parallel()
	s := testenv.Postgres(t)
	raw.UnlockIntoABlackHole(t, s, s.URL+"?lock=session")
}

// TestSettingsOfASession checks that no limit of the server ends a statement that locks, and that
// its TCP does not end a silent connection before idle_session_timeout.
func TestSettingsOfASession(t *testing.T) {
	t.Parallel()
	s := testenv.NewPostgres(t, "-c", "statement_timeout=1", "-c", "tcp_user_timeout=1000",
		"-c", "tcp_keepalives_idle=1")
	base, err := pgx.ParseConfig(s.URL + "?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	ttl := 5 * time.Second
	a, err := advise(t.Context(), sessionConfig(base, Options{TTL: ttl}), ttl)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for name, want := range map[string]string{
		"statement_timeout": "0", "idle_session_timeout": "5001ms", "tcp_user_timeout": "5001",
		"tcp_keepalives_idle": "6",
	} {
		var got string
		err = a.conn.QueryRow(t.Context(), `SELECT current_setting($1)`, name).Scan(&got)
		if err != nil || got != want {
			t.Errorf("%s is %q, %v, want %q", name, got, err, want)
		}
	}
}

// TestHooksOfAPool has a pool that makes its password, one that wraps its connections, and one that
// changes their settings.
func TestHooksOfAPool(t *testing.T) {
	t.Parallel()
	s := testenv.Postgres(t)
	for what, change := range map[string]struct {
		with func(*pgxpool.Config)
		want error
	}{
		"a password": {func(c *pgxpool.Config) {
			right := c.ConnConfig.Password
			c.ConnConfig.Password = "wrong"
			c.BeforeConnect = func(_ context.Context, config *pgx.ConnConfig) error {
				config.Password = right
				return nil
			}
		}, nil},
		"a wrapper": {func(c *pgxpool.Config) {
			c.ConnConfig.AfterNetConnect = func(
				_ context.Context, _ *pgconn.Config, conn net.Conn,
			) (net.Conn, error) {
				return struct{ net.Conn }{conn}, nil
			}
		}, backend.ErrUnsupported},
		"another TCP": {func(c *pgxpool.Config) {
			c.ConnConfig.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
				return conn.Exec(ctx, "SET tcp_user_timeout = 0").Close()
			}
		}, backend.ErrUnsupported},
		"a shorter silence": {func(c *pgxpool.Config) {
			c.ConnConfig.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
				return conn.Exec(ctx, "SET idle_session_timeout = 1000").Close()
			}
		}, backend.ErrUnsupported},
	} {
		config, err := pgxpool.ParseConfig(s.URL + "?sslmode=disable")
		if err != nil {
			t.Fatal(err)
		}
		change.with(config)
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		d, err := New(pool, &Options{Lock: LockSession})
		raw.WantIs(t, "New with "+what, err, change.want)
		if err == nil {
			raw.Release(t, d, raw.Acquire(t, d, raw.Request(t, time.Minute)))
			_ = d.Close()
		}
		pool.Close()
	}
}

// TestSilentHostIsPassed has two hosts, of which the first does not answer.
func TestSilentHostIsPassed(t *testing.T) {
	t.Parallel()
	s := testenv.Postgres(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	both := strings.Replace(s.URL, s.Addr, silent.Addr().String()+","+s.Addr, 1)
	d, err := testenv.Open(t.Context(), both+"?lock=session")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	raw.Release(t, d, raw.Acquire(t, d, raw.Request(t, time.Minute)))
}

// TestEndedSession ends the connection of a holder on the server. It finds the connection by the
// statement for operators.
func TestEndedSession(t *testing.T) {
	t.Parallel()
	s := testenv.Postgres(t)
	conn := connected(t, s.URL)
	d := raw.OpenTTL(t, s.URL+"?lock=session", 10*time.Minute)
	raw.Ended(t, d, func(g *backend.Grant) {
		find := strings.Replace(raw.Documented(t, "SELECT pid FROM pg_locks"), "NAME", g.Key, 1)
		var pid int32
		if err := conn.QueryRow(t.Context(), find).Scan(&pid); err != nil {
			t.Fatalf("%s: %v", find, err)
		}
		exec(t, conn, `SELECT pg_terminate_backend($1)`, pid)
	})
}

// TestSessionOfAReader makes a server read-only while a lock is held, as an operator does before a
// switchover. Clients that connect now look for another server, so the lock excludes no client any
// more.
func TestSessionOfAReader(t *testing.T) {
	t.Parallel()
	s := testenv.NewPostgres(t)
	conn := connected(t, s.URL)
	d := raw.OpenTTL(t, s.URL+"?lock=session", 10*time.Minute)
	other := raw.Request(t, time.Minute)
	other.Key += " other"
	for what, request := range map[string]func(g *backend.Grant) error{
		"Renew": func(g *backend.Grant) error {
			_, err := d.Renew(t.Context(), g)
			return err
		},
		"Acquire": func(*backend.Grant) error {
			_, err := d.Acquire(t.Context(), other)
			return err
		},
	} {
		raw.Ended(t, d, func(g *backend.Grant) {
			setReadOnly(t, s, conn, "on")
			if err := request(g); err == nil {
				t.Errorf("%s on a server that is read-only: nil", what)
			}
			_, err := d.Acquire(t.Context(), other)
			raw.WantIs(t, "Acquire on a reader", err, backend.ErrUnavailable)
			setReadOnly(t, s, conn, "off")
		})
	}
}

// TestUnlockOnAReader frees one of two locks on a server that has become read-only. It does not
// prove the other lock.
func TestUnlockOnAReader(t *testing.T) {
	t.Parallel()
	s := testenv.NewPostgres(t)
	conn := connected(t, s.URL)
	d := raw.OpenTTL(t, s.URL+"?lock=session", 10*time.Minute)
	g := raw.Acquire(t, d, raw.Request(t, time.Minute))
	req := raw.Request(t, time.Minute)
	req.Key += " other"
	other := raw.Acquire(t, d, req)
	setReadOnly(t, s, conn, "on")
	raw.Release(t, d, g)
	answers := d.(backend.BatchRenewer).RenewAll(t.Context(), []*backend.Grant{other})
	raw.WantIs(t, "RenewAll of the other lock", answers[0].Err, backend.ErrLost)
}

// setReadOnly sets default_transaction_read_only of a server, by the connection of an operator. It
// returns when the next statement of each connection has the new value: the server notifies its
// connections before it accepts another one with the new value.
func setReadOnly(t *testing.T, s *testenv.Server, conn *pgx.Conn, value string) {
	t.Helper()
	exec(t, conn, `ALTER SYSTEM SET default_transaction_read_only = `+value)
	exec(t, conn, `SELECT pg_reload_conf()`)
	for end := time.Now().Add(30 * time.Second); ; {
		next := connected(t, s.URL)
		var got string
		err := next.QueryRow(t.Context(), `SHOW default_transaction_read_only`).Scan(&got)
		_ = next.Close(t.Context())
		switch {
		case err != nil:
			t.Fatal(err)
		case got == value:
			return
		case time.Now().After(end):
			t.Fatalf("default_transaction_read_only stays %s", got)
		}
	}
}

// TestCancelledStatements cancels single statements of a connection, as an operator can. They cost
// no other lock, and leave none.
func TestCancelledStatements(t *testing.T) {
	t.Parallel()
	s := testenv.NewPostgres(t)
	for what, c := range map[string]struct {
		request func(a *adviser, id string) error
		want    error
	}{
		"Lock": {func(a *adviser, id string) error {
			_, err := a.Lock(id)
			return err
		}, backend.ErrUnavailable},
		"TryLock": {func(a *adviser, id string) error {
			_, err := a.TryLock(id)
			return err
		}, backend.ErrUnavailable},
		"Unlock": {(*adviser).Unlock, nil},
	} {
		a, id := advised(t, s), advisoryKey(what)
		// What a Lock leaves that is cancelled late.
		exec(t, a.conn, `SELECT pg_advisory_lock($1)`, number(id))
		outcome := cancelled(t, s, a, func() error { return c.request(a, id) })
		raw.WantIs(t, what, outcome, c.want)
		var held int
		err := a.conn.QueryRow(t.Context(),
			`SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'`).Scan(&held)
		if err != nil || held != 0 {
			t.Errorf("%s: the connection has %d locks, %v", what, held, err)
		}
	}
}

// cancelled makes a request of a connection that has not made it before, and cancels its first
// statement. The statement waits for a catalog that the server reads to find a function by name.
func cancelled(t *testing.T, s *testenv.Server, a *adviser, request func() error) error {
	t.Helper()
	operator := connected(t, s.URL)
	exec(t, operator, `BEGIN`)
	exec(t, operator, `LOCK TABLE pg_proc IN ACCESS EXCLUSIVE MODE`)
	outcome := make(chan error, 1)
	go func() { outcome <- request() }()
	for n := 0; n == 0; {
		err := operator.QueryRow(t.Context(), `SELECT count(pg_cancel_backend(pid))
			FROM pg_locks WHERE NOT granted AND pid = $1`, int32(a.conn.PgConn().PID())).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
	}
	exec(t, operator, `ROLLBACK`)
	return <-outcome
}

// TestErrorIsAnAnswer has a connection on which each statement fails.
func TestErrorIsAnAnswer(t *testing.T) {
	t.Parallel()
	a := advised(t, testenv.Postgres(t))
	exec(t, a.conn, `BEGIN`)
	if _, err := a.conn.Exec(t.Context(), `SELECT 1/0`); err == nil {
		t.Fatal("the server divides by 0")
	}
	if err := a.Prove(); err != nil {
		t.Errorf("Prove: %v", err)
	}
	_, err := a.Count()
	raw.WantIs(t, "Count", err, backend.ErrUnavailable)
}

// TestFreeSession checks a lock that another connection has, and frees. The check leaves no lock.
func TestFreeSession(t *testing.T) {
	t.Parallel()
	s := testenv.Postgres(t)
	a, other, id := advised(t, s), advised(t, s), advisoryKey(t.Name())
	for range 2 {
		if fence, err := a.Lock(id); fence == 0 || err != nil {
			t.Errorf("Lock: %d, %v", fence, err)
		}
		if isFree, err := other.IsFree(id); isFree || err != nil {
			t.Errorf("IsFree of a held lock: %v, %v", isFree, err)
		}
		if err := a.Unlock(id); err != nil {
			t.Errorf("Unlock: %v", err)
		}
		if isFree, err := other.IsFree(id); !isFree || err != nil {
			t.Errorf("IsFree of a free lock: %v, %v", isFree, err)
		}
	}
}

// TestMovedSession has connections in the place of the first one, as after a proxy has replaced it.
// The second of them has the number of the first one, as after a restart of the server.
func TestMovedSession(t *testing.T) {
	t.Parallel()
	s := testenv.Postgres(t)
	for what, move := range map[string]func(pid, start string) string{
		"another number":  func(_, start string) string { return "1 " + start },
		"the same number": func(pid, _ string) string { return pid + " 1.000000" },
	} {
		a, id := advised(t, s), advisoryKey(what)
		pid, start, _ := strings.Cut(a.mark, " ")
		a.mark = move(pid, start)
		_, err := a.Lock(id)
		raw.WantIs(t, "Lock with "+what, err, errMoved)
		raw.WantIs(t, "Prove with "+what, a.Prove(), errMoved)
		raw.WantIs(t, "Unlock with "+what, a.Unlock(id), errNoAdvisoryLock)
		// The other session does not have the prepared statement of the first one.
		if _, err := a.conn.Exec(t.Context(), "DEALLOCATE ALL", pgx.QueryExecModeExec); err != nil {
			t.Fatal(err)
		}
		raw.WantIs(t, "Unlock after an error, with "+what, a.Unlock(id), errMoved)
	}
}

// advised makes a connection that is not part of a driver.
func advised(t *testing.T, s *testenv.Server) *adviser {
	t.Helper()
	base, err := pgx.ParseConfig(s.URL + "?sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	const ttl = time.Hour
	a, err := advise(t.Context(), sessionConfig(base, Options{TTL: ttl}), ttl)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
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
