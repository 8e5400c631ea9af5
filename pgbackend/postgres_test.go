package pgbackend

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/roster"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// patience limits the wait for events that happen at once on any machine. Without the event the
// next chance comes at least a minute later.
const patience = 30 * time.Second

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

// exec executes a statement.
func exec(tb testenv.TB, conn *pgx.Conn, sql string, args ...any) {
	tb.Helper()
	if _, err := conn.Exec(context.Background(), sql, args...); err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
}

// TestDefaultsOfTheServerDoNotMatter opens a server whose defaults would break the guarantees.
func TestDefaultsOfTheServerDoNotMatter(t *testing.T) {
	t.Parallel()
	s := testenv.NewPostgres(t, "-c", "synchronous_commit=off",
		"-c", "default_transaction_isolation=serializable",
		"-c", "statement_timeout=1", "-c", "transaction_timeout=1min",
		"-c", "quote_all_identifiers=on")
	d := opened(t, s.URL)
	wanted := maps.Clone(settings)
	wanted["transaction_timeout"] = "0"
	for name, want := range wanted {
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

// TestFencesAreAsDurableAsCommits has servers that answer a commit before it is on the disk.
func TestFencesAreAsDurableAsCommits(t *testing.T) {
	t.Parallel()
	for fsync, want := range map[string]backend.Fencing{
		"on": backend.FenceDurable, "off": backend.FenceVolatile,
	} {
		s := testenv.NewPostgres(t, "-c", "fsync="+fsync)
		pool, err := pgxpool.New(t.Context(), s.URL)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		lent, err := New(pool, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = lent.Close() })
		for _, d := range []backend.Driver{opened(t, s.URL), lent} {
			if got := d.Capabilities().Fencing; got != want {
				t.Errorf("with fsync %s Fencing is %d, want %d", fsync, got, want)
			}
		}
		client, err := dlock.Open(t.Context(), s.URL+"?require=fence-durable")
		if err == nil {
			_ = client.Close()
		}
		if want == backend.FenceDurable && err != nil {
			t.Errorf("Open with a durable fence: %v", err)
		} else if want != backend.FenceDurable {
			raw.WantIs(t, "Open with a volatile fence", err, backend.ErrUnsupported)
		}
	}
}

// TestSettingsThatAreNotKept opens a server that undoes settings of each new connection. Locks of a
// session do not depend on the last one.
func TestSettingsThatAreNotKept(t *testing.T) {
	t.Parallel()
	s := testenv.NewPostgres(t)
	conn := connected(t, s.URL)
	const function = `CREATE OR REPLACE FUNCTION undo() RETURNS event_trigger LANGUAGE plpgsql
		AS $$BEGIN IF current_setting('application_name') = 'dlock' THEN %s END IF; END$$`
	exec(t, conn, fmt.Sprintf(function, ""))
	exec(t, conn, `CREATE EVENT TRIGGER undo ON login EXECUTE FUNCTION undo()`)
	opened(t, s.URL)
	for _, setting := range []string{"statement_timeout = '3s'", "client_min_messages = error"} {
		exec(t, conn, fmt.Sprintf(function, "SET "+setting+";"))
		_, err := testenv.Open(t.Context(), s.URL)
		raw.WantIs(t, "Open with "+setting, err, backend.ErrUnsupported)
	}
	raw.OpenTTL(t, s.URL+"?lock=session", time.Minute)
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
	if err != nil && !strings.Contains(err.Error(), schema(`"public"."denied"`)) {
		t.Errorf("the error has no migration: %v", err)
	}
	opened(t, s.URL) // creates the table
	_, err = testenv.Open(t.Context(), limited)
	raw.WantIs(t, "Open without privileges on the table", err, backend.ErrUnavailable)
}

// TestTablesWithoutTheirKey opens tables with the columns of dlock's table and other indexes. With
// them a name could have two rows, and so two holders. The error has the statement that repairs the
// table.
func TestTablesWithoutTheirKey(t *testing.T) {
	t.Parallel()
	s := testenv.Postgres(t)
	conn := connected(t, s.URL)
	for what, key := range map[string]string{
		"nothing":    ``,
		"plain":      `CREATE INDEX ON keyless (name)`,
		"another":    `ALTER TABLE keyless ADD PRIMARY KEY (version)`,
		"wide":       `ALTER TABLE keyless ADD PRIMARY KEY (name, version)`,
		"expression": `CREATE UNIQUE INDEX ON keyless (sha256(name))`,
		"partial":    `CREATE UNIQUE INDEX ON keyless (name) WHERE owner <> ''`,
		"deferrable": `ALTER TABLE keyless ADD UNIQUE (name) DEFERRABLE`,
		"invalid": `INSERT INTO keyless SELECT '', n, 0, '', '', now(), now()
			FROM generate_series(1, 2) AS n`,
	} {
		exec(t, conn, `DROP TABLE IF EXISTS keyless`)
		exec(t, conn, strings.Replace(Schema("keyless"), "bytea PRIMARY KEY", "bytea", 1))
		exec(t, conn, key)
		if what == "invalid" {
			_, err := conn.Exec(t.Context(), `CREATE UNIQUE INDEX CONCURRENTLY ON keyless (name)`)
			if err == nil {
				t.Error("the index of equal names is valid")
			}
			exec(t, conn, `DELETE FROM keyless`)
		}
		_, err := testenv.Open(t.Context(), s.URL+"?table=keyless")
		raw.WantIs(t, "Open with the key "+what, err, backend.ErrConflict)
		const repair = `CREATE UNIQUE INDEX ON "public"."keyless" (name)`
		if err == nil || !strings.Contains(err.Error(), repair) {
			t.Errorf("the error has no migration: %v", err)
		}
		exec(t, conn, repair)
		if what == "deferrable" {
			_, err := testenv.Open(t.Context(), s.URL+"?table=keyless")
			raw.WantIs(t, "Open with two indexes", err, backend.ErrConflict)
			exec(t, conn, `ALTER TABLE keyless DROP CONSTRAINT keyless_name_key`)
		}
		d := opened(t, s.URL+"?table=keyless")
		raw.Release(t, d, raw.Acquire(t, d, raw.Request(t, time.Minute)))
	}
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
				url := fmt.Sprintf("%s?timeout=1m&table=many%d", s.URL, n)
				d, err := testenv.Open(t.Context(), url)
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

// TestFailures checks the meaning of what a server refuses.
func TestFailures(t *testing.T) {
	t.Parallel()
	s := testenv.Postgres(t)
	for what, url := range map[string]string{
		"a missing database": s.URL + "x",
		"a wrong password":   strings.Replace(s.URL, "correct-horse", raw.Secret, 1),
		"a missing socket":   "postgres://postgres@/dlock?socket=" + t.TempDir(),
		"TLS":                s.URL + "?tls=1",
	} {
		raw.WantIs(t, "Open with "+what, raw.Refused(t, url, ""), backend.ErrUnavailable)
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
// way. The database would otherwise count it until its next use. It no longer counts when the slot
// of the request is free, which is after the answer. The timeout is so long that it does not end
// the connection first.
func TestEndedConnectionLeavesItsPlace(t *testing.T) {
	t.Parallel()
	s := testenv.NewPostgres(t)
	db, conn := database(t, s.URL, 1), connected(t, s.URL)
	d, err := NewDB(db, &Options{Timeout: time.Minute})
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
	slots := d.(*driver).main.slots
	slots <- struct{}{} // the only one
	if n := db.Stats().OpenConnections; n != 0 {
		t.Errorf("%d connections count as open", n)
	}
	<-slots
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
	_, leave := d.listener.join("key", "first")
	defer leave()
	if err := d.listener.await(t.Context()); err != nil {
		t.Fatal(err)
	}
	owner := raw.NewOwner()
	woken, leave := d.listener.join("key", owner)
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
		time.Second: backend.OpenTimeout, 10 * time.Second: 30 * time.Second,
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

// TestReadOnlyConnectionIsLeft makes the connection of a lent pool read-only, as a connection to a
// standby is. A request on it is ErrUnavailable, whatever it reads, and the next one has another
// connection.
func TestReadOnlyConnectionIsLeft(t *testing.T) {
	t.Parallel()
	s := testenv.Postgres(t)
	pool, err := pgxpool.New(t.Context(), s.URL+"?pool_max_conns=1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	overPool, err := New(pool, nil)
	if err != nil {
		t.Fatal(err)
	}
	overDB, err := NewDB(database(t, s.URL, 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	for what, lent := range map[string]backend.Driver{"New": overPool, "NewDB": overDB} {
		t.Cleanup(func() { _ = lent.Close() })
		t.Run(what, func(t *testing.T) { leavesReadOnly(t, lent.(*driver)) })
	}
}

// leavesReadOnly makes requests on read-only connections of d.
func leavesReadOnly(t *testing.T, d *driver) {
	t.Helper()
	g := raw.Acquire(t, d, named(t, "held"))
	defer raw.Release(t, d, g)
	for what, request := range map[string]func(context.Context) error{
		"Renew": renewing(d, g),
		"Inspect": func(ctx context.Context) error {
			_, err := d.Inspect(ctx, g.Key)
			return err
		},
		"List": func(ctx context.Context) error {
			_, err := d.list(ctx, name(g.Key), pastPrefix(g.Key), 1)
			return err
		},
		"Break of a free lock": func(ctx context.Context) error {
			err := d.Break(ctx, "free", "")
			if errors.Is(err, backend.ErrNotHeld) {
				err = nil
			}
			return err
		},
		"reading of free locks": func(ctx context.Context) error {
			_, err := d.readAll(ctx, []string{"free"})
			return err
		},
	} {
		failed := d.pool.with(t.Context(), func(conn *pgx.Conn) {
			exec(t, conn, "SET default_transaction_read_only = on")
		})
		if failed != nil {
			t.Fatal(failed)
		}
		raw.WantIs(t, what+" on a standby", request(t.Context()), backend.ErrUnavailable)
		raw.WantIs(t, what+" on the next connection", request(t.Context()), nil)
	}
}

// TestFencedServerIsLeft makes a server read-only, as an operator does before a switchover. The
// driver has no answer of it, and ends all connections, also the connection for its waiters.
func TestFencedServerIsLeft(t *testing.T) {
	t.Parallel()
	s := testenv.NewPostgres(t)
	d, conn := opened(t, s.URL), connected(t, s.URL)
	g := raw.Acquire(t, d, named(t, "held"))
	woken, leave := d.listener.join("key", "owner")
	defer leave()
	awaitSignal(t, woken, "the first connection")
	exec(t, conn, `ALTER SYSTEM SET default_transaction_read_only = on`)
	exec(t, conn, `SELECT pg_reload_conf()`)
	awaitUnavailable(t, d)
	for what, request := range map[string]func(context.Context) error{
		"Renew":   renewing(d, g),
		"Acquire": acquiring(d, named(t, "free")),
		"Inspect": func(ctx context.Context) error {
			_, err := d.Inspect(ctx, g.Key)
			return err
		},
	} {
		raw.WantIs(t, what, request(t.Context()), backend.ErrUnavailable)
	}
	awaitNoConnection(t, conn)
	exec(t, conn, `ALTER SYSTEM RESET default_transaction_read_only`)
	exec(t, conn, `SELECT pg_reload_conf()`)
	raw.WantIs(t, "Renew", answered(t, renewing(d, g)), nil)
	raw.WantIs(t, "Acquire", answered(t, acquiring(d, named(t, "free"))), nil)
	awaitSignal(t, woken, "the next connection")
	raw.Release(t, d, g)
}

// awaitNoConnection waits until no driver has a connection to the server.
func awaitNoConnection(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	for end := time.Now().Add(3 * pingInterval); ; {
		var n int
		err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE application_name = $1`, settings["application_name"]).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d connections to a read-only server", n)
		}
		_ = pause(t.Context(), maxPause)
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

// TestUncontendedPairSendsNoMessage listens while locks are taken and freed without waiters. NOTIFY
// would make the commits of the whole server wait for each other.
func TestUncontendedPairSendsNoMessage(t *testing.T) {
	t.Parallel()
	s := testenv.NewPostgres(t)
	d, conn := opened(t, s.URL), connected(t, s.URL)
	exec(t, conn, "LISTEN "+channel)
	for range 3 {
		g := raw.Acquire(t, d, raw.Request(t, time.Minute))
		busy := raw.Request(t, time.Minute)
		busy.Queue = false
		_ = raw.Busy(t, d, busy)
		d.RenewAll(t.Context(), []*backend.Grant{g})
		raw.Release(t, d, g)
	}
	exec(t, connected(t, s.URL), "NOTIFY "+channel+", 'last'")
	note, err := conn.WaitForNotification(t.Context())
	if err != nil || note.Payload != "last" {
		t.Errorf("a pair without a waiter sent the message %v, %v", note, err)
	}
}

// TestWaiterKeepsItsPlace has a waiter wait for longer than a place lasts without another attempt.
func TestWaiterKeepsItsPlace(t *testing.T) {
	t.Parallel()
	d := opened(t, testenv.Postgres(t).URL)
	g, waiter := raw.Acquire(t, d, raw.Request(t, time.Hour)), raw.Request(t, time.Hour)
	busy := raw.Busy(t, d, waiter)
	for end := time.Now().Add(roster.MaxPlace + time.Second); time.Now().Before(end); {
		if _, err := d.Wait(t.Context(), waiter, busy); err != nil {
			t.Fatal(err)
		}
		info, err := d.Inspect(t.Context(), g.Key)
		if err != nil || info.Waiters != 1 {
			t.Fatalf("the waiter has lost its place: %+v, %v", info, err)
		}
		busy = raw.Busy(t, d, waiter)
	}
	raw.Release(t, d, g)
	raw.Release(t, d, raw.Acquire(t, d, waiter))
}

// TestWaiterWithoutListener waits with a driver that cannot make the connection of its waiters.
func TestWaiterWithoutListener(t *testing.T) {
	t.Parallel()
	d := opened(t, testenv.Postgres(t).URL)
	d.listener.base.beforeConnect = func(context.Context, *pgx.ConnConfig) error {
		return errors.New("refused by the test")
	}
	g, waiter := raw.Acquire(t, d, raw.Request(t, time.Hour)), raw.Request(t, time.Minute)
	busy := raw.Busy(t, d, waiter)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := d.Wait(ctx, waiter, busy); err != nil {
		t.Errorf("Wait: %v", err)
	}
	raw.Release(t, d, g)
	raw.Release(t, d, raw.Acquire(t, d, waiter))
}

// TestLateRequestShortensNoTerm makes an Acquire wait for the row while its term grows, and sends a
// Renew after that.
func TestLateRequestShortensNoTerm(t *testing.T) {
	t.Parallel()
	s := testenv.Postgres(t)
	d, conn := opened(t, s.URL), connected(t, s.URL)
	req := raw.Request(t, 10*time.Second)
	g := raw.Acquire(t, d, req)
	isLong := func(what string) {
		t.Helper()
		info, err := d.Inspect(t.Context(), req.Key)
		if err != nil || len(info.Holders) != 1 || info.Holders[0].TTL < 50*time.Minute {
			t.Errorf("%s has shortened the term: %+v, %v", what, info, err)
		}
	}
	exec(t, conn, `BEGIN`)
	exec(t, conn, `UPDATE dlock SET expires = clock_timestamp() + interval '1 hour',
		version = version + 1 WHERE name = $1`, []byte(req.Key))
	answered := make(chan error)
	go func() {
		_, err := d.Acquire(t.Context(), req)
		answered <- err
	}()
	awaitLocked(t, s.URL)
	exec(t, conn, `COMMIT`)
	if err := <-answered; err != nil {
		t.Errorf("Acquire: %v", err)
	}
	isLong("Acquire")
	if _, err := d.Renew(t.Context(), g); err != nil {
		t.Errorf("Renew: %v", err)
	}
	isLong("Renew")
	raw.Release(t, d, g)
}

// awaitLocked waits until a statement of a driver waits for a row.
func awaitLocked(t *testing.T, url string) {
	t.Helper()
	conn := connected(t, url)
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		var n int
		err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE wait_event_type = 'Lock' AND query LIKE '%"dlock"%'`).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			return
		}
	}
	t.Fatal("no statement waits for the row")
}

// TestRenewalCreatesNothing deletes the row of a lock, as an operator may.
func TestRenewalCreatesNothing(t *testing.T) {
	t.Parallel()
	s := testenv.Postgres(t)
	d := opened(t, s.URL)
	g := raw.Acquire(t, d, raw.Request(t, time.Minute))
	exec(t, connected(t, s.URL), `DELETE FROM dlock WHERE name = $1`, []byte(g.Key))
	_, err := d.Renew(t.Context(), g)
	raw.WantIs(t, "Renew without a row", err, backend.ErrLost)
	raw.WantIs(t, "RenewAll without a row",
		d.RenewAll(t.Context(), []*backend.Grant{g})[0].Err, backend.ErrLost)
	next := raw.Acquire(t, d, raw.Request(t, time.Minute))
	if next.Fence <= g.Fence {
		t.Errorf("fence %d after %d", next.Fence, g.Fence)
	}
	raw.Release(t, d, next)
}

// TestGivenUpStatementEnds gives up an attempt that waits for the row, and frees the row after
// Capabilities.Late.
func TestGivenUpStatementEnds(t *testing.T) {
	t.Parallel()
	s := testenv.Postgres(t)
	d, conn := opened(t, s.URL+"?timeout=1m"), connected(t, s.URL)
	req := raw.Request(t, time.Minute)
	raw.Release(t, d, raw.Acquire(t, d, req))
	exec(t, conn, `BEGIN`)
	exec(t, conn, `SELECT FROM dlock WHERE name = $1 FOR UPDATE`, []byte(req.Key))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	ghost := raw.Request(t, time.Minute)
	if _, err := d.Acquire(ctx, ghost); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Acquire of a locked row: %v", err)
	}
	time.Sleep(d.Capabilities().Late)
	exec(t, conn, `COMMIT`)
	g := raw.Acquire(t, d, raw.Request(t, time.Minute))
	raw.Release(t, d, g)
	raw.WantIs(t, "Release of the ghost",
		d.Release(t.Context(), &backend.Grant{Request: *ghost}), backend.ErrNotHeld)
}

// TestLostListenerWakesWaiters ends the connection on which a waiter listens.
func TestLostListenerWakesWaiters(t *testing.T) {
	t.Parallel()
	s := testenv.NewPostgres(t)
	d, conn := opened(t, s.URL), connected(t, s.URL)
	woken, leave := d.listener.join("key", "owner")
	defer leave()
	awaitSignal(t, woken, "the first connection")
	for ended := false; !ended; {
		err := conn.QueryRow(t.Context(), `SELECT count(pg_terminate_backend(pid)) > 0
			FROM pg_stat_activity WHERE query = 'LISTEN dlock'`).Scan(&ended)
		if err != nil {
			t.Fatal(err)
		}
	}
	awaitSignal(t, woken, "the next connection")
}

// awaitSignal waits for a signal.
func awaitSignal(t *testing.T, woken <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-woken:
	case <-time.After(30 * time.Second):
		t.Fatalf("%s wakes no waiter", what)
	}
}

// TestLateRequestRevivesNoBrokenLease breaks a lock, and then executes a request of its holder that
// was sent before.
func TestLateRequestRevivesNoBrokenLease(t *testing.T) {
	t.Parallel()
	d := opened(t, testenv.Postgres(t).URL)
	req := raw.Request(t, time.Minute)
	g := raw.Acquire(t, d, req)
	if err := d.Break(t.Context(), req.Key, ""); err != nil {
		t.Fatal(err)
	}
	ghost := raw.Acquire(t, d, req)
	if ghost.Fence <= g.Fence {
		t.Errorf("fence %d after %d", ghost.Fence, g.Fence)
	}
	_, err := d.Renew(t.Context(), g)
	raw.WantIs(t, "Renew of the broken grant", err, backend.ErrLost)
	raw.WantIs(t, "RenewAll of the broken grant",
		d.RenewAll(t.Context(), []*backend.Grant{g})[0].Err, backend.ErrLost)
	waiter := raw.Request(t, time.Minute)
	_ = raw.Busy(t, d, waiter) // makes a roster of the row
	_, err = d.Renew(t.Context(), g)
	raw.WantIs(t, "Renew of the broken grant in a roster", err, backend.ErrLost)
	raw.Release(t, d, ghost)
	raw.Release(t, d, raw.Acquire(t, d, waiter))
}

// TestRebuiltGrantIsOwnerChecked renews grants without a fence: the caller has only the owner.
func TestRebuiltGrantIsOwnerChecked(t *testing.T) {
	t.Parallel()
	d := opened(t, testenv.Postgres(t).URL)
	g := raw.Acquire(t, d, raw.Request(t, time.Minute))
	own, other := &backend.Grant{Request: g.Request}, &backend.Grant{Request: g.Request}
	other.Owner = raw.NewOwner()
	for what, want := range map[*backend.Grant]error{own: nil, other: backend.ErrLost} {
		_, err := d.Renew(t.Context(), what)
		raw.WantIs(t, "Renew", err, want)
		err = d.RenewAll(t.Context(), []*backend.Grant{what})[0].Err
		raw.WantIs(t, "RenewAll", err, want)
	}
	raw.Release(t, d, g)
}

// TestHoldersOfOneNameAreRenewedAtOnce renews the permits of one name, of which one is gone.
func TestHoldersOfOneNameAreRenewedAtOnce(t *testing.T) {
	t.Parallel()
	s := testenv.Postgres(t)
	d, conn := opened(t, s.URL), connected(t, s.URL)
	version := func() (version int64) {
		err := conn.QueryRow(t.Context(), `SELECT version FROM dlock WHERE name = $1`,
			name(t.Name())).Scan(&version)
		if err != nil {
			t.Fatal(err)
		}
		return version
	}
	grants := make([]*backend.Grant, 50)
	for i := range grants {
		req := raw.Request(t, time.Minute)
		req.Mode, req.Limit = backend.Permit, len(grants)
		grants[i] = raw.Acquire(t, d, req)
	}
	raw.Release(t, d, grants[7])
	before := version()
	for i, renewal := range d.RenewAll(t.Context(), grants) {
		if want := i == 7; errors.Is(renewal.Err, backend.ErrLost) != want {
			t.Errorf("renewal %d: %v", i, renewal.Err)
		}
	}
	if changes := version() - before; changes != 1 {
		t.Errorf("the row was changed %d times", changes)
	}
	for _, g := range slices.Delete(grants, 7, 8) {
		raw.Release(t, d, g)
	}
}

// TestRequestsDelayNoRenewal renews a reader while other requests have all of their connections.
// One of them has the turn to change the name.
func TestRequestsDelayNoRenewal(t *testing.T) {
	t.Parallel()
	d := opened(t, testenv.Postgres(t).URL)
	req, other := raw.Request(t, time.Minute), raw.Request(t, time.Minute)
	req.Mode, other.Mode = backend.Shared, backend.Shared
	g := raw.Acquire(t, d, req)
	for range cap(d.main.slots) {
		d.main.slots <- struct{}{}
	}
	acquired := make(chan *backend.Grant)
	go func() {
		grant, err := d.Acquire(t.Context(), other)
		if err != nil {
			t.Errorf("Acquire: %v", err)
		}
		acquired <- grant
	}()
	for !d.main.editions.has(req.Key) {
		runtime.Gosched()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := d.Renew(ctx, g); err != nil {
		t.Errorf("Renew: %v", err)
	}
	if err := d.RenewAll(ctx, []*backend.Grant{g})[0].Err; err != nil {
		t.Errorf("RenewAll: %v", err)
	}
	for range cap(d.main.slots) {
		<-d.main.slots
	}
	raw.Release(t, d, g)
	if next := <-acquired; next != nil {
		raw.Release(t, d, next)
	}
}

// has reports whether there are edits of a name.
func (s *editions) has(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byKey[key] != nil
}

// TestRostersAreRenewedInABatch renews grants in rosters together with others.
func TestRostersAreRenewedInABatch(t *testing.T) {
	t.Parallel()
	d := opened(t, testenv.Postgres(t).URL)
	var grants []*backend.Grant
	for i := range 20 {
		req := raw.Request(t, time.Minute)
		req.Key += string(rune('a' + i))
		if i%2 == 0 {
			req.Mode = backend.Shared
		}
		grants = append(grants, raw.Acquire(t, d, req))
	}
	for i, renewal := range d.RenewAll(t.Context(), grants) {
		if renewal.Err != nil {
			t.Errorf("renewal %d: %v", i, renewal.Err)
		}
	}
	for _, g := range grants {
		raw.Release(t, d, g)
	}
}
