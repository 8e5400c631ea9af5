package pgbackend

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// opened opens a driver that is closed with the test.
func opened(tb testenv.TB, url string) *driver {
	tb.Helper()
	d, err := testenv.Open(tb.Context(), url)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(func() { _ = d.Close() })
	return d.(*driver)
}

// connected returns a connection that is closed with the test.
func connected(tb testenv.TB, url string) *pgx.Conn {
	tb.Helper()
	conn, err := pgx.Connect(tb.Context(), url)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// TestDefaultsOfTheServerDoNotMatter opens a server whose defaults would break the guarantees.
func TestDefaultsOfTheServerDoNotMatter(t *testing.T) {
	t.Parallel()
	s := testenv.NewPostgres(t, "-c", "synchronous_commit=off",
		"-c", "default_transaction_isolation=serializable",
		"-c", "default_transaction_read_only=on", "-c", "statement_timeout=1")
	d := opened(t, s.URL)
	for name, want := range settings {
		if name == "statement_timeout" {
			want = "2s"
		}
		var got string
		err := d.pool.(pgxPool).QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&got)
		if err != nil || got != want {
			t.Errorf("%s is %q, %v, want %q", name, got, err, want)
		}
	}
	g := raw.Acquire(t, d, raw.Request(t, time.Minute))
	_ = raw.Busy(t, d, raw.Request(t, time.Minute))
	if _, err := d.Renew(t.Context(), g); err != nil {
		t.Errorf("Renew: %v", err)
	}
	raw.Release(t, d, g)
}

// TestStandbyIsUnavailable makes a server a standby while a driver uses it. Then it promotes the
// server.
func TestStandbyIsUnavailable(t *testing.T) {
	t.Parallel()
	s, other := testenv.NewPostgres(t), testenv.Postgres(t)
	d := opened(t, s.URL)
	g := raw.Acquire(t, d, raw.Request(t, 10*time.Minute))
	exec(t, connected(t, s.URL), `COPY (SELECT '') TO PROGRAM 'cat >standby.signal'`)
	s.Restart(t)
	awaitUnavailable(t, d)
	if _, err := testenv.Open(t.Context(), s.URL); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("Open of a standby: %v", err)
	}
	both := strings.Replace(other.URL, other.Addr, s.Addr+","+other.Addr, 1)
	second := opened(t, both)
	raw.Release(t, second, raw.Acquire(t, second, raw.Request(t, time.Minute)))
	exec(t, connected(t, s.URL), `SELECT pg_promote()`)
	_ = raw.Busy(t, opened(t, s.URL), raw.Request(t, time.Minute))
	raw.Release(t, d, g)
}

// awaitUnavailable makes attempts until one is refused because the server is a standby.
func awaitUnavailable(t *testing.T, d *driver) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; {
		_, err := d.Acquire(t.Context(), raw.Request(t, time.Minute))
		if errors.Is(err, backend.ErrUnavailable) && strings.Contains(err.Error(), "standby") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("Acquire on a standby: %v", err)
		}
	}
}

// TestTables opens tables that are no tables of locks, and creates one without the privilege.
func TestTables(t *testing.T) {
	t.Parallel()
	s := testenv.Postgres(t)
	conn := connected(t, s.URL)
	exec(t, conn, `CREATE TABLE other (name text)`)
	exec(t, conn, strings.Replace(Schema("fleeting"), "CREATE", "CREATE UNLOGGED", 1))
	exec(t, conn, `CREATE VIEW looking AS SELECT 1`)
	for table, want := range map[string]error{
		"other": backend.ErrConflict, "looking": backend.ErrConflict,
		"fleeting": backend.ErrUnsupported, "nowhere.locks": backend.ErrUnavailable,
	} {
		_, err := testenv.Open(t.Context(), s.URL+"?table="+table)
		raw.WantIs(t, "Open with the table "+table, err, want)
	}
	exec(t, conn, `CREATE SCHEMA "Own"`)
	d := opened(t, s.URL+"?table=Own.Locks")
	raw.Release(t, d, raw.Acquire(t, d, raw.Request(t, time.Minute)))

	exec(t, conn, `CREATE USER reader PASSWORD 'reads'`)
	limited := strings.Replace(s.URL, "postgres:correct-horse@", "reader:reads@", 1)
	_, err := testenv.Open(t.Context(), limited+"?table=denied")
	raw.WantIs(t, "Open without CREATE", err, backend.ErrUnavailable)
	if err != nil && !strings.Contains(err.Error(), Schema("denied")) {
		t.Errorf("the error has no migration: %v", err)
	}
	opened(t, s.URL) // creates the table
	_, err = testenv.Open(t.Context(), limited)
	raw.WantIs(t, "Open without privileges on the table", err, backend.ErrUnavailable)
}

// TestTableIsCreatedByMany opens the same new table by many clients at the same time. PostgreSQL
// refuses CREATE TABLE IF NOT EXISTS of all but one, with one of three errors.
func TestTableIsCreatedByMany(t *testing.T) {
	t.Parallel()
	s := testenv.Postgres(t)
	for n := range 10 {
		var clients sync.WaitGroup
		for range 8 {
			clients.Go(func() {
				d, err := testenv.Open(t.Context(), fmt.Sprintf("%s?table=many%d", s.URL, n))
				if err != nil {
					t.Error(err)
					return
				}
				_ = d.Close()
			})
		}
		clients.Wait()
	}
}

// TestBadURLs opens URLs with an error.
func TestBadURLs(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"postgres:", "postgres://host", "postgres://host/", "postgres://host/a/b",
		"postgres:///db", "postgres://host/db?socket=/tmp", "postgres://host/db?table=a.b.c",
		"postgres://host/db?table=a;b", "postgres:///db?socket=/tmp&tls=1",
		"postgres://host/db?table=.a", "postgres://host/db?table=a.",
		"postgres://host/db?table=1a", "postgres://host/db?table=a.1",
		"postgres://host/db?table=" + strings.Repeat("a", 64),
		"postgres://host/db?lock=table",
		"postgres://host/db?timeout=0", "postgres://host/db?ca=/tmp/x",
	} {
		d, err := testenv.Open(t.Context(), url)
		if err == nil {
			_ = d.Close()
			t.Errorf("Open(%q): nil", url)
		}
		if errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("Open(%q) connects: %v", url, err)
		}
	}
}

// TestFailures checks the meaning of what a server refuses.
func TestFailures(t *testing.T) {
	t.Parallel()
	s := testenv.Postgres(t)
	for what, url := range map[string]string{
		"a missing database": s.URL + "x",
		"a wrong password":   strings.Replace(s.URL, "correct-horse", "wrong-horse", 1),
		"a missing socket":   "postgres://postgres@/dlock?socket=" + t.TempDir(),
		"TLS":                s.URL + "?tls=1",
	} {
		_, err := testenv.Open(t.Context(), url)
		raw.WantIs(t, "Open with "+what, err, backend.ErrUnavailable)
	}
}

// TestNew uses pools of the caller.
func TestNew(t *testing.T) {
	t.Parallel()
	s := testenv.Postgres(t)
	for _, query := range []string{"?pool_max_conns=1", "?pool_max_conns=8"} {
		pool, err := pgxpool.New(t.Context(), s.URL+query)
		if err != nil {
			t.Fatal(err)
		}
		d, err := New(pool, &Options{Table: "lent"})
		if err != nil {
			t.Fatal(err)
		}
		lendsLocks(t, d)
		if err := pool.Ping(t.Context()); err != nil {
			t.Errorf("Close has closed the pool: %v", err)
		}
		pool.Close()
	}
}

// TestNewDB uses databases of the caller.
func TestNewDB(t *testing.T) {
	t.Parallel()
	s := testenv.Postgres(t)
	for _, limit := range []int{0, 1, 8} {
		db := database(t, s.URL, limit)
		d, err := NewDB(db, &Options{Table: "lent"})
		if err != nil {
			t.Fatal(err)
		}
		lendsLocks(t, d)
		if err := db.PingContext(t.Context()); err != nil {
			t.Errorf("Close has closed the database: %v", err)
		}
	}
	d, err := NewDB(database(t, s.URL, 1), &Options{Lock: LockSession})
	if err != nil {
		t.Fatal(err)
	}
	raw.Release(t, d, raw.Acquire(t, d, raw.Request(t, 10*time.Second)))
	if err := d.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// database opens a database of at most limit connections, which is closed with the test.
func database(t *testing.T, url string, limit int) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(limit)
	return db
}

// lendsLocks uses a driver whose connections belong to the caller, with a waiter, and closes it.
func lendsLocks(t *testing.T, d backend.Driver) {
	t.Helper()
	g := raw.Acquire(t, d, raw.Request(t, time.Minute))
	woken := make(chan error)
	waiter := raw.Request(t, time.Minute)
	busy := raw.Busy(t, d, waiter)
	go func() {
		_, err := d.(backend.Waiter).Wait(t.Context(), waiter, busy)
		woken <- err
	}()
	raw.Release(t, d, g)
	if err := <-woken; err != nil {
		t.Errorf("Wait: %v", err)
	}
	raw.Release(t, d, raw.Acquire(t, d, waiter))
	if err := d.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// TestEndedConnectionLeavesItsPlace ends the only connection of a database while a request is under
// way. The database would otherwise count it until its next use.
func TestEndedConnectionLeavesItsPlace(t *testing.T) {
	t.Parallel()
	s := testenv.NewPostgres(t)
	db, conn := database(t, s.URL, 1), connected(t, s.URL)
	d, err := NewDB(db, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	req := raw.Request(t, time.Minute)
	raw.Release(t, d, raw.Acquire(t, d, req))
	lockRow(t, conn, req.Key)
	outcome := make(chan error)
	go func() {
		_, err := d.Acquire(t.Context(), req)
		outcome <- err
	}()
	awaitLocked(t, s.URL)
	exec(t, connected(t, s.URL), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE wait_event_type = 'Lock'`)
	if err := <-outcome; err == nil || errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("Acquire on a connection that has ended: %v", err)
	}
	if n := db.Stats().OpenConnections; n != 0 {
		t.Errorf("%d connections count as open", n)
	}
	exec(t, conn, `ROLLBACK`)
	raw.Release(t, d, raw.Acquire(t, d, req))
}

// TestMessagesReachTheDriver sends messages to drivers whose connections belong to the caller.
func TestMessagesReachTheDriver(t *testing.T) {
	t.Parallel()
	s := testenv.Postgres(t)
	config, err := pgxpool.ParseConfig(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) {
		t.Error("a message has reached the handler of the program")
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	overPool, err := New(pool, nil)
	if err != nil {
		t.Fatal(err)
	}
	hears(t, s, overPool.(*driver))
	overDB, err := NewDB(database(t, s.URL, 8), nil)
	if err != nil {
		t.Fatal(err)
	}
	hears(t, s, overDB.(*driver))
}

// hears checks that a message wakes a waiter of d, and closes d.
func hears(t *testing.T, s *testenv.Server, d *driver) {
	t.Helper()
	_, leave := d.listener.join("first")
	defer leave()
	if err := d.listener.await(t.Context()); err != nil {
		t.Fatal(err)
	}
	owner := raw.NewOwner()
	woken, leave := d.listener.join(owner)
	defer leave()
	exec(t, connected(t, s.URL), `SELECT pg_notify($1, $2)`, channel, owner)
	select {
	case <-woken:
	case <-time.After(30 * time.Second):
		t.Error("the message has not reached the waiter")
	}
	if err := d.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// TestCloseEndsRequestsThatWereGivenUp closes a driver while the program uses the only connection.
func TestCloseEndsRequestsThatWereGivenUp(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), testenv.Postgres(t).URL+"?pool_max_conns=1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	d, err := New(pool, nil)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = d.Acquire(ctx, raw.Request(t, time.Minute))
	raw.WantIs(t, "Acquire without a connection", err, context.DeadlineExceeded)
	if err := d.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if n := pool.Stat().CanceledAcquireCount(); n != 1 {
		t.Errorf("%d requests have left the queue for a connection, want 1", n)
	}
}

// TestPatience checks that a connection can try each host.
func TestPatience(t *testing.T) {
	t.Parallel()
	config, err := pgx.ParseConfig("host=a,b,c sslmode=disable")
	if err != nil {
		t.Fatal(err)
	}
	for timeout, want := range map[time.Duration]time.Duration{
		time.Second: openTimeout, 10 * time.Second: 30 * time.Second,
	} {
		if got := patienceOf(origin{config: config}, timeout); got != want {
			t.Errorf("with a timeout of %v: %v, want %v", timeout, got, want)
		}
	}
}

// otherDriver makes connections that are not pgx's.
type otherDriver struct{ sqldriver.Connector }

func (otherDriver) Connect(context.Context) (sqldriver.Conn, error) { return otherConn{}, nil }

type otherConn struct{ sqldriver.Conn }

func (otherConn) Close() error { return nil }

// TestNewDBRefuses passes databases and pools that cannot be used.
func TestNewDBRefuses(t *testing.T) {
	t.Parallel()
	other := sql.OpenDB(otherDriver{})
	defer other.Close()
	_, err := NewDB(other, nil)
	raw.WantIs(t, "NewDB with another driver", err, backend.ErrUnsupported)
	_, err = NewDB(database(t, "postgres://localhost:1/missing", 1), nil)
	raw.WantIs(t, "NewDB without a server", err, backend.ErrUnavailable)
	if _, err := NewDB(nil, nil); err == nil {
		t.Error("NewDB without a database: nil")
	}
	if _, err := New(nil, nil); err == nil {
		t.Error("New without a pool: nil")
	}
}

// TestClosedPoolIsUnavailable closes the pool of the caller before the driver.
func TestClosedPoolIsUnavailable(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), testenv.Postgres(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(pool, nil)
	pool.Close()
	if err != nil {
		t.Fatal(err)
	}
	req := raw.Request(t, time.Minute)
	_, err = d.Acquire(t.Context(), req)
	raw.WantIs(t, "Acquire with a closed pool", err, backend.ErrUnavailable)
	_, err = d.Renew(t.Context(), &backend.Grant{Request: *req, Fence: 1})
	raw.WantIs(t, "Renew with a closed pool", err, backend.ErrUnavailable)
	if err := d.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// TestLentPoolWithOtherSettingsIsRefused checks the settings that New cannot change.
func TestLentPoolWithOtherSettingsIsRefused(t *testing.T) {
	t.Parallel()
	s := testenv.Postgres(t)
	for _, setting := range []string{
		"default_transaction_isolation=serializable", "synchronous_commit=off",
		"synchronous_commit=local",
	} {
		pool, err := pgxpool.New(t.Context(), s.URL+"?"+setting)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		_, err = New(pool, nil)
		raw.WantIs(t, "New with "+setting, err, backend.ErrUnsupported)
	}
}

// TestSocket opens a server by the path of a unix socket, and by the path of its folder.
func TestSocket(t *testing.T) {
	t.Parallel()
	s := testenv.Postgres(t)
	//nolint:usetesting // the path of a socket has at most 107 bytes
	dir, err := os.MkdirTemp("", "dlock")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	file := filepath.Join(dir, ".s.PGSQL.5432")
	listener, err := net.Listen("unix", file)
	if err != nil {
		t.Fatal(err)
	}
	testenv.Forward(t, listener, s.Addr)
	for _, path := range []string{file, dir} {
		d := opened(t, "postgres://postgres:correct-horse@/dlock?socket="+path)
		raw.Release(t, d, raw.Acquire(t, d, raw.Request(t, time.Minute)))
		if err := d.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
}
