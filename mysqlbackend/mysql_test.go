package mysqlbackend

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/bound"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// patience limits the wait for events that happen at once, even on a busy machine.
const patience = 30 * time.Second

// servers are the servers that all tests share.
var servers = map[string]func(testenv.TB) *testenv.Server{
	"mysql": testenv.MySQL, "mariadb": testenv.MariaDB,
}

// starters start a server for one test alone.
var starters = map[string]func(testenv.TB, ...string) *testenv.Server{
	"mysql": testenv.NewMySQL, "mariadb": testenv.NewMariaDB,
}

// openURL opens a driver with a timeout that is long enough for a slow machine, and closes it at
// the end of the test.
func openURL(tb testing.TB, raw string) *driver {
	tb.Helper()
	if !strings.Contains(raw, "timeout=") {
		separator := "?"
		if strings.Contains(raw, "?") {
			separator = "&"
		}
		raw += separator + "timeout=30s"
	}
	d, err := testenv.Open(tb.Context(), raw)
	if err != nil {
		tb.Fatal(err)
	}
	return closing(tb, d)
}

func closing(tb testing.TB, d backend.Driver) *driver {
	tb.Helper()
	tb.Cleanup(func() {
		if err := d.Close(); err != nil {
			tb.Errorf("Close: %v", err)
		}
	})
	return d.(*driver)
}

// database opens the server's database as an application does that also stores other data there.
func database(tb testenv.TB, s *testenv.Server, params string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("mysql", "root@tcp("+s.Addr+")/dlock"+params)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

func do(tb testenv.TB, q querier, text string, args ...any) {
	tb.Helper()
	if _, err := q.ExecContext(context.Background(), text, args...); err != nil {
		tb.Fatalf("%s: %v", text, err)
	}
}

func ask(tb testing.TB, q querier, text string, args ...any) string {
	tb.Helper()
	scan := func(rows *sql.Rows) (s sql.NullString, err error) { return s, rows.Scan(&s) }
	found, err := query(context.Background(), q, scan, text, args...)
	if err != nil || len(found) != 1 {
		tb.Fatalf("%s: %v, %v", text, found, err)
	}
	return found[0].String
}

func acquire(tb testing.TB, d *driver, req *backend.Request) *backend.Grant {
	tb.Helper()
	g, err := d.Acquire(tb.Context(), req)
	if err != nil {
		tb.Errorf("Acquire: %v", err)
		return &backend.Grant{Request: *req}
	}
	return g
}

// acquireSoon acquires a lock that has just been released. The server may still keep it for a
// waiter that has left.
func acquireSoon(tb testing.TB, d *driver, req *backend.Request) (g *backend.Grant) {
	tb.Helper()
	eventually(tb, "the lock is acquired", func() bool {
		var err error
		g, err = d.Acquire(tb.Context(), req)
		if err != nil && !errors.Is(err, backend.ErrNotAcquired) {
			tb.Fatalf("Acquire: %v", err)
		}
		return err == nil
	})
	return g
}

func eventually(tb testing.TB, what string, cond func() bool) {
	tb.Helper()
	for end := time.Now().Add(patience); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("not in %v: %s", patience, what)
		}
	}
}

func TestInterpretError(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	reply := func(number uint16) error {
		return &mysql.MySQLError{Number: number, Message: "the server's message"}
	}
	type test struct {
		name string
		ctx  context.Context
		err  error
		want error // nil means an unknown outcome
	}
	tests := []test{
		{
			name: "connector", err: fmt.Errorf("%w: refused", backend.ErrUnavailable),
			want: backend.ErrUnavailable,
		},
		{
			name: "dial of a lent database", err: &net.OpError{Op: "dial", Err: io.EOF},
			want: backend.ErrUnavailable,
		},
		{name: "not sent", err: sqldriver.ErrBadConn, want: backend.ErrUnavailable},
		{name: "connection lost", err: mysql.ErrInvalidConn},
		{name: "read timeout", err: &net.OpError{Op: "read", Err: io.ErrNoProgress}},
		{name: "killed, perhaps while committing", err: reply(1317)},
		{name: "shut down", err: reply(1053)},
		{name: "an error while committing", err: reply(1180)},
		{name: "cancelled", ctx: ended, err: mysql.ErrInvalidConn},
		{
			name: "cancelled before the sending", ctx: ended, err: sqldriver.ErrBadConn,
			want: backend.ErrUnavailable,
		},
	}
	for sentinel, numbers := range map[error][]uint16{
		backend.ErrUnavailable: {
			1020, 1040, 1045, 1049, 1142, 1146, 1205, 1213, 1290, 1792, 1836, 3101,
		},
		backend.ErrConflict:    {1054, 1364, 1406},
		backend.ErrUnsupported: {1064, 1305},
	} {
		for _, number := range numbers {
			name := fmt.Sprint(number)
			tests = append(tests, test{name: name, err: reply(number), want: sentinel})
		}
	}
	definite := []error{
		backend.ErrUnavailable, backend.ErrConflict, backend.ErrUnsupported,
		backend.ErrLost, backend.ErrNotHeld,
	}
	for _, tt := range tests {
		ctx := tt.ctx
		if ctx == nil {
			ctx = context.Background()
		}
		got := interpretError(ctx, tt.err)
		if !errors.Is(got, tt.err) {
			t.Errorf("%s: %v does not wrap the client's own error", tt.name, got)
		}
		if ctx.Err() != nil && !errors.Is(got, ctx.Err()) {
			t.Errorf("%s: %v does not wrap the end of the context", tt.name, got)
		}
		for _, d := range definite {
			if errors.Is(got, d) != errors.Is(tt.want, d) {
				t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
			}
		}
	}
	if interpretError(ended, nil) != nil {
		t.Error("interpretError of nil returned an error")
	}
}

// TestOpenExplainsWithoutSecrets checks the errors of servers, users and tables that cannot be
// used. They contain no password.
func TestOpenExplainsWithoutSecrets(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			db := database(t, s, "?multiStatements=true")
			isam := strings.NewReplacer("InnoDB ROW_FORMAT=DYNAMIC", "MyISAM", "1024", "512")
			do(t, db, "CREATE USER IF NOT EXISTS "+
				"u IDENTIFIED BY 'right', v IDENTIFIED BY 'right'; "+
				"GRANT SELECT, INSERT, UPDATE ON dlock.* TO v;"+
				"CREATE TABLE IF NOT EXISTS other (name VARCHAR(512) PRIMARY KEY, owner INT) "+
				"ENGINE=InnoDB; "+
				"CREATE VIEW one_view AS SELECT 1 AS name; "+
				isam.Replace(Schema("isam"))+";"+Schema("here"))
			// The system accepts connections to silent, and no program answers.
			silent, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer silent.Close()
			for _, tt := range []struct {
				url, want string // url is without the scheme
				is        error
			}{
				{raw.Login + s.Addr + "/dlock", "Access denied", backend.ErrUnavailable},
				{"u@" + s.Addr + "/dlock", "Access denied", backend.ErrUnavailable},
				{"u:right@" + s.Addr + "/dlock", "Access denied", backend.ErrUnavailable},
				{"root@" + s.Addr + "/nowhere", "Unknown database", backend.ErrUnavailable},
				{"root@" + s.Addr + "/dlock?table=absent", "CREATE TABLE", backend.ErrUnavailable},
				{
					"v:right@" + s.Addr + "/dlock?table=absent&create=1",
					"CREATE command denied", backend.ErrUnavailable,
				},
				{
					"v:right@" + s.Addr + "/dlock?table=here",
					"DELETE command denied", backend.ErrUnavailable,
				},
				{"root@" + s.Addr + "/dlock?table=other", "shape", backend.ErrConflict},
				{
					"root@" + s.Addr + "/dlock?table=one_view&create=1",
					"InnoDB", backend.ErrConflict,
				},
				{"root@" + s.Addr + "/dlock?table=isam", "InnoDB", backend.ErrConflict},
				{raw.Login + "127.0.0.1:1" + "/dlock", "refused", backend.ErrUnavailable},
				{
					raw.Login + silent.Addr().String() + "/dlock",
					"not connected within 3s", backend.ErrUnavailable,
				},
				{raw.Login + "nowhere.invalid/dlock", "nowhere.invalid", backend.ErrUnavailable},
				{
					raw.Login + "/dlock?socket=/does/not/exist",
					"/does/not/exist", backend.ErrUnavailable,
				},
			} {
				url := "mysql://" + tt.url
				if !strings.Contains(tt.want, "within 3s") { // the default timeout
					separator := "?"
					if strings.Contains(url, "?") {
						separator = "&"
					}
					url += separator + "timeout=30s"
				}
				err := raw.Refused(t, url, tt.want)
				raw.WantIs(t, url, err, tt.is)
				if strings.Contains(fmt.Sprint(err), "right") {
					t.Errorf("%s: the error %v contains a credential", url, err)
				}
			}
			left := "SELECT COUNT(*) FROM information_schema.%s WHERE %s"
			eventually(t, "all connections are closed", func() bool {
				return ask(t, db, fmt.Sprintf(left, "PROCESSLIST", "USER IN ('u', 'v')")) == "0"
			})
			if n := ask(t, db, fmt.Sprintf(left, "TABLES", "TABLE_NAME = 'absent'")); n != "0" {
				t.Error("Open created a table")
			}
		})
	}
}

func TestRefusesUnsuitableServers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		version string
		want    error
	}{
		{"8.0.11", nil},
		{"8.4.6", nil},
		{"9.7.4-2", nil},
		{"10.6.21-MariaDB", nil},
		{"11.8.9-MariaDB-4 from Debian", nil},
		{"unknown", nil},
		{"5.7.44-log", backend.ErrUnsupported},
		{"10.5.28-MariaDB", backend.ErrUnsupported},
		{"8.0-MariaDB", backend.ErrUnsupported},
	} {
		s := server{version: tt.version, database: "d", autocommit: true}
		if err := s.check(); !errors.Is(err, tt.want) {
			t.Errorf("%q: %v, want %v", tt.version, err, tt.want)
		}
	}
	for _, s := range []server{
		{version: "9.7.4", autocommit: true},
		{version: "9.7.4", database: "d"},
		{version: "9.7.4", database: "d", autocommit: true, readOnly: true},
		{version: "11.8.9-MariaDB", database: "d", autocommit: true, simultaneous: true},
	} {
		if s.check() == nil {
			t.Errorf("check accepts %+v", s)
		}
	}
}

func TestSchemaMakesTheTable(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			do(t, database(t, s, ""), Schema("migrated"))
			d := openURL(t, "mysql://root@"+s.Addr+"/dlock?table=migrated")
			raw.Release(t, d, acquire(t, d, raw.Request(t, time.Minute)))
		})
	}
}

func TestConcurrentTableCreation(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			url := "mysql://root@" + s.Addr + "/dlock?create=1&table=rush&timeout=30s"
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					d, err := testenv.Open(t.Context(), url)
					if err != nil {
						t.Errorf("open: %v", err)
						return
					}
					_ = d.Close()
				})
			}
			wg.Wait()
		})
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			for params, lockWait := range map[string]time.Duration{
				// Prepared statements, and the server's default innodb_lock_wait_timeout.
				"": 50 * time.Second,
				"?interpolateParams=true&clientFoundRows=true&parseTime=true&loc=Local" +
					"&innodb_lock_wait_timeout=2": 2 * time.Second,
				"?collation=latin1_swedish_ci&sql_mode=%27ANSI%27" +
					"&sql_safe_updates=1": 50 * time.Second,
			} {
				db := database(t, s, params)
				opened, err := New(db, &Options{Create: true})
				if err != nil {
					t.Fatalf("%s: %v", params, err)
				}
				d := opened.(*driver)
				late := lockWait + timerSlack + abandonAfter
				if got := d.Capabilities().Late; got != late {
					t.Errorf("%s: Late is %v, want %v", params, got, late)
				}
				g := acquireSoon(t, d, raw.Request(t, time.Minute))
				waiter := raw.Request(t, time.Minute)
				waiter.Meta = "é ✓"
				answer := raw.Busy(t, d, waiter)
				if answer.RetryAfter < 50*time.Second || answer.RetryAfter > time.Minute {
					t.Errorf("%s: RetryAfter is %v", params, answer.RetryAfter)
				}
				if _, err := d.Renew(t.Context(), g); err != nil {
					t.Errorf("%s: Renew: %v", params, err)
				}
				another := raw.Request(t, time.Minute)
				another.Key += "/another"
				both := []*backend.Grant{g, acquire(t, d, another)}
				for i, r := range d.RenewAll(t.Context(), both) {
					if r.Err != nil {
						t.Errorf("%s: renewal %d: %v", params, i, r.Err)
					}
				}
				raw.Release(t, d, both[1])
				raw.Release(t, d, g)
				if _, err := d.Wait(t.Context(), waiter, answer); err != nil {
					t.Errorf("%s: Wait: %v", params, err)
				}
				next := acquire(t, d, waiter)
				info, err := d.Inspect(t.Context(), t.Name())
				if err != nil || len(info.Holders) != 1 || info.Holders[0].Meta != waiter.Meta {
					t.Errorf("%s: Inspect: %+v, %v", params, info, err)
				}
				if next.Fence <= g.Fence {
					t.Errorf("%s: fence %d after %d", params, next.Fence, g.Fence)
				}
				raw.Release(t, d, next)
				if err := d.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
				if err := db.PingContext(t.Context()); err != nil {
					t.Errorf("%s: the database after Close: %v", params, err)
				}
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			if _, err := New(nil, nil); err == nil {
				t.Error("New accepted a nil database")
			}
			_, err := New(database(t, s, "?autocommit=0"), &Options{Create: true})
			raw.WantIs(t, "without autocommit", err, backend.ErrUnsupported)
			if name == "mariadb" {
				db := database(t, s, "?sql_mode=%27SIMULTANEOUS_ASSIGNMENT%27")
				_, err = New(db, &Options{Create: true})
				raw.WantIs(t, "with simultaneous assignments", err, backend.ErrUnsupported)
			}
			_, err = New(database(t, s, ""), &Options{Table: "a b"})
			if err == nil {
				t.Error("New accepted a table name with a blank")
			}
			none, err := sql.Open("mysql", "root@tcp("+s.Addr+")/")
			if err != nil {
				t.Fatal(err)
			}
			defer none.Close()
			_, err = New(none, nil)
			raw.WantIs(t, "without a database", err, backend.ErrUnsupported)
		})
	}
}

// TestCancelledAcquireEndsInTime checks Capabilities.Late. An acquisition is given up while it
// waits for the row. It is executed within that time or never.
func TestCancelledAcquireEndsInTime(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			d, db := openURL(t, s.URL), database(t, s, "")
			raw.Release(t, d, acquire(t, d, raw.Request(t, time.Minute)))
			req := raw.Request(t, time.Minute)
			giveUp := func(row *sql.Tx) {
				t.Helper()
				do(t, db, "SELECT 1") // opens another connection of the pool
				_, err := row.Exec("UPDATE dlock SET meta = 'locked' WHERE name = ?", t.Name())
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				_, err = d.Acquire(ctx, req)
				raw.WantIs(t, "Acquire of a locked row", err, context.DeadlineExceeded)
			}
			begin := func() *sql.Tx {
				t.Helper()
				row, err := db.Begin()
				if err != nil {
					t.Fatal(err)
				}
				return row
			}
			row := begin()
			giveUp(row)
			// After the commit the acquisition is executed, unless the server has detected its end.
			if err := row.Commit(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(d.Capabilities().Late)
			err := d.Release(t.Context(), &backend.Grant{Request: *req})
			if err != nil && !errors.Is(err, backend.ErrNotHeld) {
				t.Errorf("Release: %v", err)
			}
			raw.Release(t, d, acquire(t, d, raw.Request(t, time.Minute)))

			row = begin()
			giveUp(row)
			time.Sleep(d.Capabilities().Late)
			if err := row.Commit(); err != nil { // too late for the acquisition
				t.Fatal(err)
			}
			raw.Release(t, d, acquire(t, d, raw.Request(t, time.Minute)))
		})
	}
}

// TestStaleStatementsReviveNothing executes statements that began before the release and then
// waited for the row. For these statements the term has not ended.
func TestStaleStatementsReviveNothing(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			d := openURL(t, s.URL)
			conn, err := database(t, s, "?interpolateParams=true").Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			g := acquire(t, d, raw.Request(t, time.Minute))
			time.Sleep(20 * time.Millisecond)
			began := ask(t, conn, "SELECT UNIX_TIMESTAMP(NOW(6))")
			time.Sleep(20 * time.Millisecond)
			raw.Release(t, d, g)
			do(t, conn, "SET TIMESTAMP = "+began)
			name, owner := []byte(g.Key), []byte(g.Owner)
			out, err := exec(t.Context(), conn, d.text.renew, 60_000_000, name, owner, 0, 0)
			if err != nil || out.changed != 0 || out.id != 0 {
				t.Errorf("a renewal revived the grant: %+v, %v", out, err)
			}
			args := acquireArgs(&g.Request, 60_000_000, false)
			out, err = exec(t.Context(), conn, d.text.acquire, args...)
			if err != nil || out.id < busyFlag {
				t.Errorf("an acquisition revived the grant: %+v, %v", out, err)
			}
			raw.Release(t, d, acquire(t, d, raw.Request(t, time.Minute)))
		})
	}
}

func TestFenceGrowsAcrossASweep(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			d := openURL(t, "mysql://root@"+s.Addr+"/dlock?create=1&table=swept")
			d.sweeping.Store(true) // prevents sweeps
			db := database(t, s, "")
			old := acquire(t, d, raw.Request(t, time.Minute))
			raw.Release(t, d, old)
			kept := raw.Request(t, time.Minute)
			kept.Key += "/held"
			held := acquire(t, d, kept)
			do(t, db, "INSERT INTO swept (name, owner, token, since, expires, meta) "+
				"SELECT CONCAT('old', a.x, b.x, c.x), '', 1, '2026-01-01', '2026-01-01', '' FROM "+
				digits("a")+" JOIN "+digits("b")+" JOIN "+digits("c"))
			do(t, db, "UPDATE swept SET expires = expires - INTERVAL 25 HOUR WHERE name = ?",
				t.Name())
			for last := false; !last; {
				var err error
				if last, err = d.sweep(t.Context()); err != nil {
					t.Fatalf("sweep: %v", err)
				}
			}
			left := ask(t, db, "SELECT GROUP_CONCAT(name) FROM swept WHERE name >= ' '")
			if left != kept.Key {
				t.Errorf("the rows %s remain, want %s", left, kept.Key)
			}
			if g := acquire(t, d, raw.Request(t, time.Minute)); g.Fence <= old.Fence {
				t.Errorf("fence %d after %d", g.Fence, old.Fence)
			}
			raw.Release(t, d, held)
		})
	}
}

// TestSweepLeavesReusedNames checks that a sweep keeps a name that is acquired between the two
// statements of the sweep.
func TestSweepLeavesReusedNames(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := openURL(t, server(t).URL)
			g := acquire(t, d, raw.Request(t, time.Minute))
			sweep := withNames(d.text.sweep, 1)
			_, err := exec(t.Context(), d.pools.main, sweep, []byte(g.Key), ceilMicros(keep))
			if err != nil {
				t.Fatal(err)
			}
			raw.Release(t, d, g)
		})
	}
}

// TestSweepKeepsUp checks that the work of a sweep is proportional to the number of acquisitions,
// and that all drivers share it. So names that are never used again do not accumulate, wherever
// they are among the used names.
func TestSweepKeepsUp(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			db, url := database(t, s, ""), "mysql://root@"+s.Addr+"/dlock?create=1&table=piled"
			do(t, db, "DROP TABLE IF EXISTS piled")
			drivers := []*driver{openURL(t, url), openURL(t, url)}
			fill := func(prefix, expires string) {
				do(t, db, "INSERT INTO piled (name, owner, token, since, expires, meta) "+
					"SELECT CONCAT(?, a.x, b.x, c.x), '', 1, '2026-01-01', "+expires+", '' FROM "+
					digits("a")+" JOIN "+digits("b")+" JOIN "+digits("c"), prefix)
			}
			fill("a", "UTC_TIMESTAMP(6)")
			fill("b", "UTC_TIMESTAMP(6) - INTERVAL 25 HOUR")
			fill("c", "UTC_TIMESTAMP(6)")
			fill("d", "UTC_TIMESTAMP(6) - INTERVAL 25 HOUR")
			const rows = 4000
			count := "SELECT COUNT(*) FROM piled WHERE name LIKE ?"
			for i := range rows { // acquisitions; on average, a quarter of them is enough
				d := drivers[i%len(drivers)]
				d.sweepSometimes()
				for d.sweeping.Load() {
					time.Sleep(time.Millisecond)
				}
			}
			for prefix, want := range map[string]string{
				"a%": "1000", "b%": "0", "c%": "1000", "d%": "0",
			} {
				if left := ask(t, db, count, prefix); left != want {
					t.Errorf("%s rows of %s remain, want %s", left, prefix, want)
				}
			}
			for info, err := range drivers[0].List(t.Context(), "") {
				t.Errorf("List: %+v, %v", info, err)
			}
		})
	}
}

// digits returns a table of ten rows.
func digits(name string) string {
	return "(SELECT 0 x UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 " +
		"UNION SELECT 5 UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9) " + name
}

// TestFenceFollowsAClockThatWasSetBack changes no clock. It moves the last fence forward instead.
func TestFenceFollowsAClockThatWasSetBack(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			d := openURL(t, s.URL)
			first := acquire(t, d, raw.Request(t, time.Minute))
			do(t, database(t, s, ""),
				"UPDATE dlock SET token = token + 1000000000000 WHERE name = ?", t.Name())
			raw.Release(t, d, first)
			g := acquire(t, d, raw.Request(t, time.Minute))
			if want := first.Fence + 1_000_000_000_001; g.Fence != want {
				t.Errorf("fence %d, want %d", g.Fence, want)
			}
			raw.Release(t, d, g)
		})
	}
}

func TestRenewAllTakesAnyBatch(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			d := openURL(t, s.URL)
			gs := make([]*backend.Grant, renewBatch+50)
			var wg sync.WaitGroup
			for worker := range mainConns {
				wg.Go(func() {
					for i := worker; i < len(gs); i += mainConns {
						req := raw.Request(t, time.Minute+time.Duration(i%2)*time.Minute)
						req.Key = fmt.Sprintf("%s/%d", t.Name(), i)
						gs[i] = acquire(t, d, req)
					}
				})
			}
			wg.Wait()
			raw.Release(t, d, gs[7])
			stranger := *gs[8]
			stranger.Owner = gs[9].Owner
			all := append(gs, gs[0], &stranger)
			before := time.Now()
			renewals := d.RenewAll(t.Context(), all)
			took := time.Since(before)
			for i, r := range renewals {
				end := r.Term.Sent.Add(r.Term.TTL)
				switch lost := i == 7 || i == len(all)-1; {
				case lost:
					raw.WantIs(t, fmt.Sprint("renewal ", i), r.Err, backend.ErrLost)
				case r.Err != nil || end.Before(before.Add(all[i].TTL)) ||
					end.After(before.Add(all[i].TTL+took)):
					t.Errorf("renewal %d: %+v ends %v after the call, which took %v",
						i, r, end.Sub(before), took)
				}
			}
			other := *gs[6]
			other.Owner = gs[9].Owner
			before6 := row(t, d.pools.main, gs[6].Key)
			for i, r := range d.RenewAll(t.Context(), []*backend.Grant{&stranger, &other}) {
				what := fmt.Sprint("renewal of another owner's grant ", i)
				raw.WantIs(t, what, r.Err, backend.ErrLost)
			}
			if after := row(t, d.pools.main, gs[6].Key); after != before6 {
				t.Errorf("the row was %s and is %s", before6, after)
			}
			for i, g := range gs {
				if i != 7 {
					raw.Release(t, d, g)
				}
			}
		})
	}
}

// TestLockedRowDelaysNoOtherRenewal renews many grants while another program keeps two rows locked,
// of a writer and of a reader. The other renewals are answered long before the server gives up the
// wait for these rows, also those of writers whose rows have become rosters.
func TestLockedRowDelaysNoOtherRenewal(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			lent := database(t, s, "?interpolateParams=true&innodb_lock_wait_timeout=600")
			b, err := New(lent, &Options{Create: true})
			if err != nil {
				t.Fatal(err)
			}
			d := closing(t, b)
			var gs []*backend.Grant
			for i := range 20 {
				req := raw.Request(t, time.Minute)
				req.Key = fmt.Sprintf("%s/%02d", t.Name(), i)
				gs = append(gs, acquire(t, d, req))
			}
			for _, g := range gs[10:12] {
				_ = raw.Busy(t, openURL(t, s.URL), reader(g.Key))
			}
			gs = append(gs, acquire(t, d, reader(t.Name()+"/reader")))
			gone := *gs[19]
			gone.Key += "/absent"
			gs = append(gs, &gone)
			db := database(t, s, "")
			writersRow, readersRow := lockRow(t, db, gs[3].Key), lockRow(t, db, gs[20].Key)
			renewAroundLocked(t, d, gs)
			eventually(t, "the server has given up, too", func() bool {
				return waitingRenewals(t, db, t.Name()) == 0
			})
			unlock(t, writersRow)
			unlock(t, readersRow)
			for _, g := range gs[:21] {
				raw.Release(t, d, g)
			}
		})
	}
}

// renewAroundLocked renews gs. Another program keeps the fourth row and the last one locked, and
// the last grant has no row.
func renewAroundLocked(t *testing.T, d *driver, gs []*backend.Grant) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience/3)
	defer cancel()
	for i, r := range d.RenewAll(ctx, gs) {
		switch {
		case i == 3 || i == len(gs)-2:
			if !wasLocked(r.Err) {
				t.Errorf("renewal of the locked row: %v", r.Err)
			}
		case i == len(gs)-1:
			raw.WantIs(t, "renewal of an absent row", r.Err, backend.ErrLost)
		case r.Err != nil:
			t.Errorf("renewal %d: %v", i, r.Err)
		}
	}
}

// lockRow locks the row of a lock, as a program without the driver does.
func lockRow(tb testing.TB, db *sql.DB, name string) *sql.Tx {
	tb.Helper()
	row, err := db.Begin()
	if err != nil {
		tb.Fatal(err)
	}
	const lock = "SELECT name FROM dlock WHERE name = ? FOR UPDATE"
	var found string
	if err := row.QueryRow(lock, []byte(name)).Scan(&found); err != nil {
		tb.Fatal(err)
	}
	return row
}

func unlock(tb testing.TB, row *sql.Tx) {
	tb.Helper()
	if err := row.Rollback(); err != nil {
		tb.Fatal(err)
	}
}

// splitter connects like a proxy that sends reads to a replica. The replica is the database
// "replica" of the same server.
type splitter struct{ sqldriver.Connector }

func (s splitter) Connect(ctx context.Context) (sqldriver.Conn, error) {
	writer, err := s.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &splitConn{writer.(libraryConn)}, nil
}

type splitConn struct{ libraryConn }

func (c *splitConn) QueryContext(
	ctx context.Context, text string, args []sqldriver.NamedValue,
) (sqldriver.Rows, error) {
	if strings.HasPrefix(text, "SELECT") && !strings.Contains(text, "FOR UPDATE") {
		text = strings.Replace(text, "FROM `dlock`", "FROM replica.dlock", 1)
	}
	return c.libraryConn.QueryContext(ctx, text, args)
}

// TestRenewalIgnoresReplicas sends reads to a replica that lags. On the replica a broken lock is
// still held, but renewals report its loss.
func TestRenewalIgnoresReplicas(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			config, err := mysql.ParseDSN("root@tcp(" + s.Addr + ")/dlock?interpolateParams=true")
			if err != nil {
				t.Fatal(err)
			}
			connector, err := mysql.NewConnector(config)
			if err != nil {
				t.Fatal(err)
			}
			lent := sql.OpenDB(splitter{connector})
			defer lent.Close()
			b, err := New(lent, &Options{Create: true})
			if err != nil {
				t.Fatal(err)
			}
			d, db := closing(t, b), database(t, s, "")
			var gs []*backend.Grant
			for i := range 3 {
				req := raw.Request(t, time.Minute)
				req.Key = fmt.Sprintf("%s/%d", t.Name(), i)
				gs = append(gs, acquire(t, d, req))
			}
			do(t, db, "DROP DATABASE IF EXISTS replica")
			do(t, db, "CREATE DATABASE replica")
			do(t, db, "CREATE TABLE replica.dlock AS "+
				"SELECT * FROM dlock WHERE name >= ? AND name < ?",
				[]byte(gs[0].Key), []byte(gs[2].Key+"/"))
			info, err := d.Inspect(t.Context(), gs[0].Key)
			if err != nil || len(info.Holders) != 1 {
				t.Fatalf("Inspect: %+v, %v", info, err)
			}
			for _, g := range gs[:2] {
				if err := d.Break(t.Context(), g.Key, ""); err != nil {
					t.Fatal(err)
				}
			}
			_, err = d.Renew(t.Context(), gs[0])
			raw.WantIs(t, "Renew of a broken lock", err, backend.ErrLost)
			for i, r := range d.RenewAll(t.Context(), gs) {
				if i < 2 {
					raw.WantIs(t, fmt.Sprint("renewal ", i), r.Err, backend.ErrLost)
				} else if r.Err != nil {
					t.Errorf("renewal %d: %v", i, r.Err)
				}
			}
			raw.Release(t, d, gs[2])
		})
	}
}

// TestNoDeadlocks lets many processes acquire, renew, release and sweep few locks at the same time.
func TestNoDeadlocks(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			const names = 4
			url := "mysql://root@" + s.Addr + "/dlock?create=1&table=deadlocks"
			end := time.Now().Add(2 * time.Second)
			var wg sync.WaitGroup
			for worker := range 8 {
				d := openURL(t, url)
				check := func(what string, err error) {
					if err != nil && !errors.Is(err, backend.ErrNotAcquired) &&
						!errors.Is(err, backend.ErrLost) {
						t.Errorf("%s: %v", what, err)
					}
				}
				wg.Go(func() {
					for i := worker; time.Now().Before(end); i++ {
						req := raw.Request(t, time.Minute)
						req.Key = fmt.Sprint("name", i%names)
						g, err := d.Acquire(t.Context(), req)
						check("Acquire", err)
						if err != nil {
							continue
						}
						if _, err := d.Renew(t.Context(), g); err != nil {
							t.Errorf("Renew: %v", err)
						}
						raw.Release(t, d, g)
					}
				})
				wg.Go(func() {
					for i := worker; time.Now().Before(end); i++ {
						var reqs []*backend.Request
						for n := range names {
							req := raw.Request(t, time.Minute)
							req.Key, req.Queue = fmt.Sprint("name", (i+(1+2*(i%2))*n)%names), false
							reqs = append(reqs, req)
						}
						gs, _, err := d.AcquireAll(t.Context(), reqs)
						if !errors.Is(err, backend.ErrUnsupported) { // a row stays locked
							check("AcquireAll", err)
						}
						if err != nil {
							continue
						}
						for _, err := range d.ReleaseAll(t.Context(), gs) {
							check("ReleaseAll", err)
						}
					}
				})
				wg.Go(func() {
					var all []*backend.Grant
					for i := range names {
						req := raw.Request(t, time.Minute)
						req.Key = fmt.Sprint("name", (worker+i)%names)
						all = append(all, &backend.Grant{Request: *req})
					}
					for time.Now().Before(end) {
						for _, r := range d.RenewAll(t.Context(), all) {
							if !wasLocked(r.Err) {
								check("RenewAll", r.Err)
							}
						}
						_, err := d.sweep(t.Context())
						check("sweep", err)
					}
				})
			}
			wg.Wait()
		})
	}
}

// wasLocked reports whether a renewal failed because its row was locked, or because no connection
// was free to wait for the row.
func wasLocked(err error) bool {
	unsent := errors.Is(err, backend.ErrUnavailable) && !isReply(err)
	return unsent || hasNumber(err, errNoWait, errLockWait) ||
		errors.Is(err, context.DeadlineExceeded)
}

// TestPairIsTwoStatements counts the statements of a pair on a separate server.
func TestPairIsTwoStatements(t *testing.T) {
	t.Parallel()
	for name, start := range starters {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			d := openURL(t, s.URL)
			d.sweeping.Store(true) // prevents sweeps
			db := database(t, s, "")
			pair := func() { raw.Release(t, d, acquire(t, d, raw.Request(t, time.Minute))) }
			pair() // opens the connections
			inserts, updates := status(t, db, "Com_insert"), status(t, db, "Com_update")
			all := status(t, db, "Questions")
			for range 10 {
				pair()
			}
			all, counting := status(t, db, "Questions")-all, 1
			inserts = status(t, db, "Com_insert") - inserts
			updates = status(t, db, "Com_update") - updates
			if inserts != 10 || updates != 10 || all != 20+counting {
				t.Errorf("ten pairs need %d INSERT, %d UPDATE, %d statements in all, %d to count",
					inserts, updates, all, counting)
			}
		})
	}
}

// TestServerThatPreparesNothing uses a server without prepared statements. The driver executes its
// statements without a prepare.
func TestServerThatPreparesNothing(t *testing.T) {
	t.Parallel()
	for name, start := range starters {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, "--max-prepared-stmt-count=0")
			d := openURL(t, s.URL)
			raw.Release(t, d, acquire(t, d, raw.Request(t, time.Minute)))
			raw.Release(t, d, acquire(t, d, raw.Request(t, time.Minute)))
		})
	}
}

// TestRequestInPlaceEndsAtItsDeadline checks a context that can end only at its deadline. The
// driver applies this deadline to the socket.
func TestRequestInPlaceEndsAtItsDeadline(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			d := openURL(t, s.URL)
			g := acquire(t, d, raw.Request(t, time.Minute))
			row, err := database(t, s, "").Begin()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = row.Rollback() }()
			_, err = row.Exec("UPDATE dlock SET meta = 'locked' WHERE name = ?", t.Name())
			if err != nil {
				t.Fatal(err)
			}
			ctx := bound.New(context.Background(), 100*time.Millisecond)
			defer ctx.Cancel()
			_, err = d.Acquire(ctx, &g.Request)
			raw.WantIs(t, "Acquire of a locked row", err, context.DeadlineExceeded)
			if isDefinite(err) {
				t.Errorf("Acquire of a locked row: %v is definite", err)
			}
			if err := row.Rollback(); err != nil {
				t.Fatal(err)
			}
			raw.Release(t, d, g)
		})
	}
}

// TestThousandWaitersShareAConnection counts the connections of a process. A thousand of its
// goroutines wait for one lock of another process.
func TestThousandWaitersShareAConnection(t *testing.T) {
	t.Parallel()
	for name, start := range starters {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			var wg sync.WaitGroup
			var begun sync.WaitGroup
			const waiters = 1000
			begun.Add(waiters)
			holder := openURL(t, s.URL)
			g := acquire(t, holder, raw.Request(t, time.Minute))
			db := database(t, s, "")
			before := status(t, db, "Max_used_connections")
			client, err := dlock.New(openURL(t, s.URL), dlock.WithObserver(&dlock.Observer{
				Attempt: func(context.Context, dlock.Event) { begun.Done() },
			}))
			if err != nil {
				t.Fatal(err)
			}
			for range waiters {
				wg.Go(func() {
					lease, err := client.Lock(t.Context(), g.Key)
					if err != nil {
						t.Errorf("Lock: %v", err)
						return
					}
					if err := lease.Unlock(t.Context()); err != nil {
						t.Errorf("Unlock: %v", err)
					}
				})
			}
			begun.Wait()
			eventually(t, "a waiter is the first", func() bool {
				return ask(t, db, "SELECT IS_USED_LOCK(?)", holder.keys.signal(g.Key)) != ""
			})
			raw.Release(t, holder, g)
			wg.Wait()
			// One connection waits, one acquires, and two release and wake, or prove a grant. The
			// holder needs one to release.
			if n := status(t, db, "Max_used_connections") - before; n > 5 {
				t.Errorf("%d connections for %d waiters", n, waiters)
			}
			if err := client.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
}

func status(tb testing.TB, q querier, name string) int {
	tb.Helper()
	found, err := query(context.Background(), q, func(rows *sql.Rows) (n int, err error) {
		return n, rows.Scan(new(string), &n)
	}, "SHOW GLOBAL STATUS LIKE '"+name+"'")
	if err != nil || len(found) != 1 {
		tb.Fatalf("%s: %v, %v", name, found, err)
	}
	return found[0]
}

// TestWaitersAreFoundAndWoken checks that the single statement of a release names the first waiter,
// even with further waiters behind it. At the end no place is in use.
func TestWaitersAreFoundAndWoken(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			holder := openURL(t, s.URL)
			g := acquire(t, holder, raw.Request(t, time.Minute))
			db := database(t, s, "")
			var wg sync.WaitGroup
			drivers := []*driver{openURL(t, s.URL), openURL(t, s.URL), openURL(t, s.URL)}
			fences := make(chan uint64, len(drivers))
			for _, d := range drivers {
				wg.Go(func() {
					req := raw.Request(t, time.Minute)
					for {
						_, err := d.Acquire(t.Context(), req)
						answer, ok := errors.AsType[*backend.Busy](err)
						if !ok {
							break
						}
						if _, err := d.Wait(t.Context(), req, answer); err != nil {
							t.Errorf("Wait: %v", err)
							return
						}
					}
					got := acquire(t, d, req) // the second Acquire returns the same grant
					fences <- got.Fence
					raw.Release(t, d, got)
				})
			}
			eventually(t, "a waiter is the first", func() bool {
				return ask(t, db, "SELECT IS_USED_LOCK(?)", holder.keys.signal(g.Key)) != ""
			})
			raw.Release(t, holder, g)
			wg.Wait()
			close(fences)
			last := g.Fence
			for fence := range fences {
				if fence <= last {
					t.Errorf("fence %d after %d", fence, last)
				}
				last = fence
			}
			for _, d := range drivers {
				eventually(t, "no place is in use", func() bool {
					return len(d.queue.free) == maxWaitConns
				})
			}
		})
	}
}

// TestFormerWaiterPassesTheSignalOn checks a holder that has waited before and holds the lock
// for some time. The next waiters are still woken, and the holder's place becomes free. Its release
// still returns the correct result.
func TestFormerWaiterPassesTheSignalOn(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			first, second := openURL(t, s.URL), openURL(t, s.URL)
			waited := func(d *driver, req *backend.Request) *backend.Grant {
				for {
					g, err := d.Acquire(t.Context(), req)
					if err == nil {
						return g
					}
					answer, ok := errors.AsType[*backend.Busy](err)
					if ok {
						_, err = d.Wait(t.Context(), req, answer)
					}
					if err != nil {
						t.Errorf("waiting: %v", err)
						return &backend.Grant{Request: *req}
					}
				}
			}
			g := acquire(t, second, raw.Request(t, time.Minute))
			next := make(chan *backend.Grant, 1)
			wait := func(d *driver) {
				req := raw.Request(t, time.Minute)
				go func() { next <- waited(d, req) }()
				eventually(t, "the driver waits", func() bool {
					return len(d.queue.free) < maxWaitConns
				})
			}
			wait(first)
			raw.Release(t, second, g)
			g = <-next
			wait(second)
			eventually(t, "the holder's place is free", func() bool {
				return len(first.queue.free) == maxWaitConns
			})
			raw.Release(t, first, g)
			g = <-next
			if err := first.Break(t.Context(), g.Key, ""); err != nil {
				t.Errorf("Break: %v", err)
			}
			// If true, the release uses the connection that Break wakes.
			behind := second.acquisitions.isFirst(g.Owner)
			err := second.Release(t.Context(), g)
			if behind && hasNumber(err, errInterrupted) {
				err = second.Release(t.Context(), g)
			}
			raw.WantIs(t, "Release after a break", err, backend.ErrNotHeld)
			eventually(t, "no place is in use", func() bool {
				return len(second.queue.free) == maxWaitConns
			})
		})
	}
}

// TestReleaseWaitsForThePassingSignal checks a release while the holder's own connection still has
// the signal. If the release did not wait, the server would keep the released lock for that
// connection and refuse all other owners.
func TestReleaseWaitsForThePassingSignal(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := openURL(t, server(t).URL)
			g := acquire(t, d, raw.Request(t, time.Minute))
			p, err := d.connectWaiter(t.Context(), g.Owner)
			if err != nil || p == nil {
				t.Fatalf("enter: %v, %v", p, err)
			}
			d.acquisitions.keep(g.Owner, p)
			d.acquisitions.hold(g.Owner)
			d.acquisitions.pass(g.Owner)
			start := time.Now()
			raw.Release(t, d, g)
			if took := time.Since(start); took < reserve {
				t.Errorf("released after %v, before the signal was given away", took)
			}
			d.queue.giveBack(t.Context(), p)
		})
	}
}

// TestReleaseReportsABreakWhilePassing breaks a lease while the holder's own connection gives the
// signal away. The release reports the break.
func TestReleaseReportsABreakWhilePassing(t *testing.T) {
	onEach(t, func(t *testing.T, s *testenv.Server, open openFunc) {
		t.Helper()
		d := open(t, s)
		g := acquire(t, d, raw.Request(t, time.Minute))
		p, err := d.connectWaiter(t.Context(), g.Owner)
		if err != nil || p == nil {
			t.Fatalf("enter: %v, %v", p, err)
		}
		d.acquisitions.keep(g.Owner, p)
		if !d.acquisitions.hold(g.Owner) || d.acquisitions.pass(g.Owner).conn != p {
			t.Fatal("the place does not belong to the holder")
		}
		if err := d.Break(t.Context(), g.Key, ""); err != nil {
			t.Fatal(err)
		}
		raw.WantIs(t, "Release after a break", d.Release(t.Context(), g), backend.ErrNotHeld)
		d.queue.giveBack(t.Context(), p)
	})
}

// TestCloseEndsNoWakeUp checks that the first waiter is woken although its holder closes the driver
// at once after the release. The context of the background work ends when Close begins.
func TestCloseEndsNoWakeUp(t *testing.T) {
	t.Parallel()
	s := testenv.MySQL(t)
	holder, waiter := openURL(t, s.URL), openURL(t, s.URL)
	g := acquire(t, holder, raw.Request(t, time.Minute))
	w, err := waiter.connectWaiter(t.Context(), "waiter")
	if err != nil || w == nil {
		t.Fatalf("connectWaiter: %v, %v", w, err)
	}
	defer waiter.queue.discard(w)
	err = waiter.queue.awaitSignal(t.Context(), w, waiter.keys.signal(g.Key), time.Second)
	if err != nil || w.signal == "" {
		t.Fatalf("the waiter is not the first: %v", err)
	}
	asleep := ask(t, w.conn, "SELECT CONNECTION_ID()")
	do(t, w.conn, "SET SESSION wait_timeout = 600") // the test may be slow
	woken := make(chan error, 1)
	go func() {
		_, err := query(t.Context(), w.conn, scanWait, waiter.text.sleep,
			time.Minute.Microseconds(), []byte(g.Key))
		woken <- err
	}()
	eventually(t, "the waiter sleeps", func() bool {
		return ask(t, waiter.pools.main, "SELECT COUNT(*) FROM information_schema.PROCESSLIST "+
			"WHERE ID = ? AND STATE = 'User sleep'", asleep) == "1"
	})
	holder.cancel()
	raw.Release(t, holder, g)
	select {
	case err := <-woken: // KILL QUERY may end the sleep with an error or without
		t.Logf("woken: %v", err)
	case <-time.After(patience):
		t.Error("the waiter is not woken")
	}
}

// TestPassedSignalForgetsNoOtherAcquisition checks the end of a hand-off of the signal, if the
// same owner has waited again meanwhile. The connection of the new wait would be lost for ever.
func TestPassedSignalForgetsNoOtherAcquisition(t *testing.T) {
	t.Parallel()
	q := newAcquisitions()
	q.keep("owner", new(waitConn))
	q.hold("owner")
	passing := q.pass("owner")
	q.keep("owner", new(waitConn))
	q.endPassing("owner", passing)
	if !q.isFirst("owner") {
		t.Error("the newer acquisition is forgotten")
	}
}

// TestSecondGrantGivesNoPlaceBack checks that a place is returned only once. An owner can receive a
// lock twice during one wait. A place that is returned twice would make Close wait for ever.
func TestSecondGrantGivesNoPlaceBack(t *testing.T) {
	q := acquisitions{byOwner: make(map[string]*acquisition)}
	q.keep("owner", new(waitConn))
	if !q.hold("owner") {
		t.Error("the first grant does not return the place")
	}
	if q.hold("owner") {
		t.Error("the second grant also returns the place")
	}
}

// TestLateKillCostsNoRelease checks a KILL for the end of a wait that hits the following release.
// The release still succeeds.
func TestLateKillCostsNoRelease(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			lent := database(t, s, "?interpolateParams=true&innodb_lock_wait_timeout=600")
			b, err := New(lent, &Options{Create: true})
			if err != nil {
				t.Fatal(err)
			}
			d, db := closing(t, b), database(t, s, "")
			g := acquire(t, d, raw.Request(t, time.Minute))
			p, err := d.connectWaiter(t.Context(), g.Owner)
			if err != nil || p == nil {
				t.Fatalf("enter: %v, %v", p, err)
			}
			if err := d.await(t.Context(), p, g.Key, time.Second); err != nil {
				t.Fatalf("await: %v", err)
			}
			d.acquisitions.keep(g.Owner, p)
			d.acquisitions.hold(g.Owner) // as after a wait
			connection := ask(t, p.conn, "SELECT CONNECTION_ID()")
			// The test may be slow.
			do(t, p.conn, "SET SESSION wait_timeout = 600, innodb_lock_wait_timeout = 600")

			slow, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = slow.Rollback() }()
			do(t, slow, "UPDATE dlock SET meta = '' WHERE name = '"+g.Key+"'")
			released := make(chan error, 1)
			go func() { released <- d.Release(t.Context(), g) }()
			eventually(t, "the release waits for the row", func() bool {
				return ask(t, db, "SELECT COUNT(*) FROM information_schema.PROCESSLIST "+
					"WHERE ID = ? AND INFO LIKE 'UPDATE%'", connection) == "1"
			})
			do(t, db, "KILL QUERY "+connection)
			eventually(t, "the release is interrupted", func() bool {
				return len(d.queue.free) == maxWaitConns
			})
			if err := slow.Rollback(); err != nil {
				t.Fatal(err)
			}
			if err := <-released; err != nil {
				t.Errorf("Release: %v", err)
			}
			raw.Release(t, d, acquireSoon(t, d, raw.Request(t, time.Minute)))
		})
	}
}

// TestLentConnectionIsClosedDuringAWait checks that a waiter's connection is closed and not
// returned to the lent database. So a late KILL cannot hit a statement of the application.
func TestLentConnectionIsClosedDuringAWait(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			lent, db := database(t, s, "?interpolateParams=true"), database(t, s, "")
			b, err := New(lent, &Options{Create: true})
			if err != nil {
				t.Fatal(err)
			}
			d := closing(t, b)
			connected := func(id string) bool {
				return ask(t, db, "SELECT COUNT(*) FROM information_schema.PROCESSLIST "+
					"WHERE ID = ?", id) == "1"
			}
			p, err := d.connectWaiter(t.Context(), raw.NewOwner())
			if err != nil || p == nil {
				t.Fatalf("enter: %v, %v", p, err)
			}
			id := ask(t, p.conn, "SELECT CONNECTION_ID()")
			if err := d.await(t.Context(), p, t.Name(), time.Second); err != nil {
				t.Fatalf("await: %v", err)
			}
			if !connected(id) {
				t.Error("the connection of the first waiter is closed")
			}
			open := lent.Stats().OpenConnections
			d.queue.giveBack(t.Context(), p)
			if got := lent.Stats().OpenConnections; got != open-1 {
				t.Errorf("the database has %d connections, want %d without the waiter's",
					got, open-1)
			}
			eventually(t, "the connection is closed", func() bool { return !connected(id) })
		})
	}
}

// TestStoppedWaiterIsClosed checks that the first waiter loses the signal within seconds if its
// process has stopped. A waiter that runs keeps the signal for longer.
func TestStoppedWaiterIsClosed(t *testing.T) {
	onEach(t, func(t *testing.T, s *testenv.Server, open openFunc) {
		t.Helper()
		d, db := open(t, s), database(t, s, "")
		g := acquire(t, d, raw.Request(t, time.Minute))
		signal := d.keys.signal(g.Key)
		enter := func() (*waitConn, string) {
			p, err := d.connectWaiter(t.Context(), raw.NewOwner())
			if err != nil || p == nil {
				t.Fatalf("enter: %v, %v", p, err)
			}
			return p, ask(t, p.conn, "SELECT CONNECTION_ID()")
		}
		wait := func(p *waitConn, bound time.Duration) {
			if err := d.await(t.Context(), p, g.Key, bound); err != nil {
				t.Errorf("await: %v", err)
			}
		}
		isFirst := func(id string) func() bool {
			return func() bool { return ask(t, db, "SELECT IS_USED_LOCK(?)", signal) == id }
		}
		stopped, stoppedID := enter()
		wait(stopped, time.Second)
		if !isFirst(stoppedID)() {
			t.Fatal("the stopped waiter was never the first")
		}
		living, id := enter()
		second := make(chan struct{})
		go func() { defer close(second); wait(living, maxQueueing) }()
		eventually(t, "the next waiter has the signal", isFirst(id))
		<-second
		last, _ := enter()
		behind := make(chan struct{})
		// This is one statement, which is longer than maxIdle.
		go func() { defer close(behind); wait(last, (2*maxIdle+1)*time.Second) }()
		for range 2*maxIdle + 2 {
			wait(living, time.Second)
		}
		<-behind
		if !isFirst(id)() {
			t.Error("a running waiter has lost the signal")
		}
		for _, p := range []*waitConn{stopped, living, last} {
			d.queue.giveBack(t.Context(), p)
		}
		raw.Release(t, d, g)
	})
}

// TestReleasedLockIsKeptForTheFirst checks that a former holder that acquires again does not pass
// the first waiter. If that waiter has died, the former holder does not wait for it.
func TestReleasedLockIsKeptForTheFirst(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			holder, waiter, db := openURL(t, s.URL), openURL(t, s.URL), database(t, s, "")
			g := acquire(t, holder, raw.Request(t, time.Minute))
			req := raw.Request(t, time.Minute)
			answer := raw.Busy(t, waiter, req)
			woken := make(chan error, 1)
			go func() { _, err := waiter.Wait(t.Context(), req, answer); woken <- err }()
			eventually(t, "the waiter is the first", func() bool {
				return ask(t, db, "SELECT IS_USED_LOCK(?)", holder.keys.signal(g.Key)) != ""
			})
			conn, err := database(t, s, "?interpolateParams=true").Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			raw.Release(t, holder, g)
			released := ask(t, conn, "SELECT UNIX_TIMESTAMP("+
				"CONVERT_TZ(since, '+00:00', @@session.time_zone)) FROM dlock WHERE name = ?",
				[]byte(g.Key))
			info, err := holder.Inspect(t.Context(), g.Key)
			if err != nil || len(info.Holders) != 0 {
				t.Errorf("Inspect: %+v, %v", info, err)
			}
			do(t, conn, "SET TIMESTAMP = "+released+" + 0.001") // stops the clock of conn
			again := raw.Request(t, time.Millisecond)
			text := holder.text.acquire
			out, err := exec(t.Context(), conn, text, acquireArgs(again, 1, false)...)
			if err != nil || out.id != busyFlag {
				t.Errorf("another owner: %+v, %v", out, err)
			}
			out, err = exec(t.Context(), conn, text, acquireArgs(again, 1, true)...)
			if err != nil || out.id <= int64(g.Fence) || out.id >= busyFlag {
				t.Errorf("the first waiter: %+v, %v", out, err)
			}
			if err := <-woken; err != nil {
				t.Errorf("Wait: %v", err)
			}
			eventually(t, "the lock is no longer kept", func() bool {
				_, err := holder.Acquire(t.Context(), &g.Request)
				return err == nil
			})
			raw.Release(t, holder, g)
			if err := waiter.Release(t.Context(), &backend.Grant{Request: *req}); err != nil {
				t.Errorf("Release of a queue entry: %v", err)
			}
		})
	}
}

// TestOtherUsersWaitASecond checks a release by a user without the right to end another user's
// sleep. The sleep then ends by itself.
func TestOtherUsersWaitASecond(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			do(t, database(t, s, "?multiStatements=true"),
				"CREATE USER IF NOT EXISTS w IDENTIFIED BY 'w'; "+
					"GRANT SELECT, INSERT, UPDATE, DELETE ON dlock.* TO w")
			d := openURL(t, s.URL)
			other := openURL(t, "mysql://w:w@"+s.Addr+"/dlock")
			g := acquire(t, other, raw.Request(t, time.Minute))
			req := raw.Request(t, time.Minute)
			answer := raw.Busy(t, d, req)
			woken := make(chan error, 1)
			go func() { _, err := d.Wait(t.Context(), req, answer); woken <- err }()
			eventually(t, "the waiter is the first", func() bool {
				return ask(t, d.pools.main, "SELECT IS_USED_LOCK(?)", d.keys.signal(g.Key)) != ""
			})
			raw.Release(t, other, g)
			select {
			case err := <-woken:
				if err != nil {
					t.Errorf("Wait: %v", err)
				}
			case <-time.After(patience):
				t.Error("the waiter still sleeps")
			}
			raw.Release(t, d, acquire(t, d, req))
		})
	}
}

func TestReadOnlyServerIsUnavailable(t *testing.T) {
	t.Parallel()
	s := testenv.NewMySQL(t)
	d, db := openURL(t, s.URL), database(t, s, "")
	g := acquire(t, d, raw.Request(t, time.Minute))
	do(t, db, "SET GLOBAL super_read_only = ON")
	free := raw.Request(t, time.Minute)
	free.Key += "/another"
	_, err := d.Acquire(t.Context(), free)
	raw.WantIs(t, "Acquire", err, backend.ErrUnavailable)
	_, err = d.Renew(t.Context(), g)
	raw.WantIs(t, "Renew", err, backend.ErrUnavailable)
	raw.WantIs(t, "Release", d.Release(t.Context(), g), backend.ErrUnavailable)
	_, err = testenv.Open(t.Context(), s.URL+"&timeout=30s")
	if err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("open: %v", err)
	}
	do(t, db, "SET GLOBAL read_only = OFF")
	raw.Release(t, d, g)
}

// TestDowngradePassesTheSignalOn has a holder that has waited and still has the signal. Its
// Downgrade gives the signal away, so that its release needs not do so first.
func TestDowngradePassesTheSignalOn(t *testing.T) {
	onEach(t, func(t *testing.T, s *testenv.Server, open openFunc) {
		t.Helper()
		d, db := open(t, s), database(t, s, "")
		g := acquire(t, d, raw.Request(t, time.Minute))
		w, err := d.connectWaiter(t.Context(), g.Owner)
		if err != nil || w == nil {
			t.Fatalf("connect: %v, %v", w, err)
		}
		err = d.queue.awaitSignal(t.Context(), w, d.keys.signal(g.Key), patience)
		if err != nil || w.signal == "" {
			t.Fatalf("the signal: %v", err)
		}
		d.acquisitions.keep(g.Owner, w)
		d.acquisitions.hold(g.Owner)
		shared, err := d.Downgrade(t.Context(), g)
		if err != nil {
			t.Fatal(err)
		}
		// The server itself would end the idle connection, and with it the signal, after maxIdle.
		eventually(t, "the driver gives the signal away", func() bool {
			return !d.acquisitions.has(g.Owner)
		})
		// The server notices the end of a lent connection later.
		eventually(t, "the signal is free", func() bool {
			return ask(t, db, "SELECT IS_FREE_LOCK(?)", d.keys.signal(g.Key)) == "1"
		})
		raw.Release(t, d, shared)
		if len(d.queue.free) != d.pools.waitConns {
			t.Error("the connection was not given back")
		}
	})
}

// TestClientsThatPollWakeWaiters releases locks by clients whose own waiters poll. The waiters of
// other clients, which sleep for longer than the test, are woken.
func TestClientsThatPollWakeWaiters(t *testing.T) {
	t.Parallel()
	s := testenv.MySQL(t)
	single := database(t, s, "?interpolateParams=true")
	single.SetMaxOpenConns(1)
	lent, err := New(single, &Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	for name, d := range map[string]*driver{
		"notify=poll": openURL(t, s.URL+"&notify=poll"), "one connection": closing(t, lent),
	} {
		t.Run(name, func(t *testing.T) {
			if d.caps.Notify {
				t.Error("the waiters of the driver do not poll")
			}
			g := acquire(t, d, raw.Request(t, time.Minute))
			woken := sleepLong(t, s, d.keys.signal(g.Key))
			raw.Release(t, d, g)
			awaitWoken(t, woken)
			gs := acquireAll(t, d, several(t, 2))
			woken = sleepLong(t, s, d.keys.signal(gs[0].Key))
			releaseAll(t, d, gs)
			awaitWoken(t, woken)
			other, key := openURL(t, s.URL), raw.Request(t, time.Minute).Key+"/roster"
			g, req := acquire(t, d, permit(key, 1)), permit(key, 1)
			_ = raw.Busy(t, other, req)
			woken = sleepLong(t, s, d.keys.bell(key, other.bell))
			raw.Release(t, d, g)
			awaitWoken(t, woken)
			raw.Release(t, other, acquire(t, other, req))
		})
	}
}

// TestServersLimitEndsNoWait sets a limit for the time of each statement of a server, below that
// of a wait. On MariaDB a waiter would lose its place, and on MySQL the first waiter would poll.
func TestServersLimitEndsNoWait(t *testing.T) {
	t.Parallel()
	// MariaDB's limit holds for writes too, which a slow disk delays.
	limits := map[string]limit{
		"mysql":   {"max_execution_time = 500", 750 * time.Millisecond},
		"mariadb": {"max_statement_time = 3", 4 * time.Second},
	}
	for name, start := range starters {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			for opener, open := range openers {
				t.Run(opener, func(t *testing.T) { waitBeyond(t, s, open(t, s), limits[name]) })
			}
		})
	}
}

// limit is a server's limit for the time of a statement.
type limit struct {
	setting string
	beyond  time.Duration // longer than the limit
}

// waitBeyond waits for longer than a limit: in the queue of a lock, and then as the first waiter.
func waitBeyond(t *testing.T, s *testenv.Server, d *driver, l limit) {
	t.Helper()
	first := oneConnection(t, database(t, s, "?interpolateParams=true"))
	g := acquire(t, d, raw.Request(t, time.Minute))
	wantGranted(t, first, d.keys.signal(g.Key))
	do(t, first, "SET GLOBAL "+l.setting)
	d.pools.waiting.SetMaxIdleConns(0) // the next connections have the limit
	req := raw.Request(t, time.Minute)
	answer := raw.Busy(t, d, req)
	wait := func(what string, shortest time.Duration) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		began := time.Now()
		_, err := d.Wait(ctx, req, answer)
		if took := time.Since(began); took < shortest || err != nil && ctx.Err() == nil {
			t.Errorf("%s: Wait ended after %v: %v", what, took, err)
		}
	}
	wait("in the queue", l.beyond)
	do(t, first, "DO RELEASE_LOCK(?)", d.keys.signal(g.Key))
	eventually(t, "the waiter is the first", func() bool {
		wait("at the end of the queue", 0)
		return d.acquisitions.isFirst(req.Owner)
	})
	wait("as the first waiter", l.beyond)
	raw.Release(t, d, &backend.Grant{Request: *req})
	raw.Release(t, d, g)
}

// TestCharacterSets lends databases whose connections have another character set. Names are bytes,
// so a connection on which the server converts them is refused.
func TestCharacterSets(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		for parameters, want := range map[string]error{
			"?collation=latin1_swedish_ci":                            nil,
			"?collation=latin1_swedish_ci&interpolateParams=true":     nil,
			"?character_set_client=latin1":                            backend.ErrUnsupported,
			"?character_set_connection=latin1":                        backend.ErrUnsupported,
			"?character_set_connection=latin1&interpolateParams=true": backend.ErrUnsupported,
		} {
			t.Run(name+parameters, func(t *testing.T) {
				t.Parallel()
				s := server(t)
				lent, err := New(database(t, s, parameters), &Options{Create: true})
				raw.WantIs(t, "New", err, want)
				if err != nil {
					return
				}
				other, req := openURL(t, s.URL), raw.Request(t, time.Minute)
				req.Key = "é ✓" + raw.NewOwner()
				late := *req
				late.Owner = raw.NewOwner()
				g := raw.Acquire(t, lent, req)
				_ = raw.Busy(t, other, &late)
				if _, err := other.Renew(t.Context(), g); err != nil {
					t.Errorf("Renew by another driver: %v", err)
				}
				raw.Release(t, lent, g)
			})
		}
	}
}
