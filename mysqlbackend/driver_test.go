package mysqlbackend_test

import (
	"crypto/rand"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/internal/testenv"
	_ "github.com/dlock-go/dlock/mysqlbackend"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// inapplicable are the cases that do not apply.
var inapplicable = conformance.Inapplicable(
	"ForeignValueIsAConflict",    // each row of the table is a lock
	"NextRequestFollowsARelease", // the driver promises no order of requests
)

func TestConformance(t *testing.T) {
	s := testenv.Alone(t, testenv.MySQL)
	conformance.Run(t, func(t conformance.TB) conformance.Harness {
		return newHarness(t, s)
	}, inapplicable)
}

func TestConformanceMariaDB(t *testing.T) {
	s := testenv.Alone(t, testenv.MariaDB)
	conformance.Run(t, func(t conformance.TB) conformance.Harness {
		return newHarness(t, s)
	}, inapplicable)
}

func BenchmarkConformance(b *testing.B) {
	conformance.Bench(b, func(t conformance.TB) conformance.Harness {
		return testenv.NewHarness(t, testenv.MySQL(t))
	})
}

func BenchmarkConformanceMariaDB(b *testing.B) {
	conformance.Bench(b, func(t conformance.TB) conformance.Harness {
		return testenv.NewHarness(t, testenv.MariaDB(t))
	})
}

// harness is also a conformance.EntryLocker and a conformance.Keeper. It is not a
// conformance.Foreigner: Open checks that the table belongs to dlock, and each row of such a table
// is a lock.
type harness struct {
	*testenv.Harness[conformance.TB]
	server *testenv.Server
}

func newHarness(t conformance.TB, s *testenv.Server) harness {
	t.Helper()
	return harness{testenv.NewHarness(t, s), s}
}

// database opens the server's database without the proxy, as another program does.
func (h harness) database(t conformance.TB) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", "root@tcp("+h.server.Addr+")/dlock")
	if err != nil {
		t.Fatalf("open the database: %v", err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// LockEntry implements conformance.EntryLocker.
func (h harness) LockEntry(t conformance.TB, key string) (unlock func()) {
	t.Helper()
	row, err := h.database(t).Begin()
	if err != nil {
		t.Fatalf("begin: %v", err)
	}
	const lock = "SELECT name FROM dlock WHERE name = ? FOR UPDATE"
	var name []byte
	if err := row.QueryRow(lock, []byte(key)).Scan(&name); err != nil {
		t.Fatalf("lock the row: %v", err)
	}
	t.Cleanup(func() { _ = row.Rollback() }) // if the case ends early
	return func() {
		if err := row.Rollback(); err != nil {
			t.Errorf("unlock the row: %v", err)
		}
	}
}

// Kept implements conformance.Keeper. It ages the rows by more than a day. Then it acquires another
// lock until the sweeps of these acquisitions have covered the whole table. The statement must use
// the index. A scan of the table would wait for a row that another case has locked, and would
// itself lock all rows in front of it.
func (h harness) Kept(t conformance.TB, prefix string) (n int) {
	t.Helper()
	db, d := h.database(t), h.driver(t)
	first, end := []byte(prefix), []byte(prefix+"\xff")
	const age = "UPDATE dlock FORCE INDEX (PRIMARY) SET expires = expires - INTERVAL 25 HOUR " +
		"WHERE name >= ? AND name < ?"
	if _, err := db.Exec(age, first, end); err != nil {
		t.Fatalf("age the rows: %v", err)
	}
	const count = "SELECT COUNT(*) FROM dlock WHERE name >= ? AND name < ?"
	for begun := time.Now(); time.Since(begun) < time.Minute; {
		for range 100 {
			h.use(t, d, strings.TrimSuffix(prefix, "/")+"used")
		}
		if err := db.QueryRow(count, first, end).Scan(&n); err != nil {
			t.Fatalf("count the rows: %v", err)
		}
		if n == 0 {
			return 0
		}
	}
	return n
}

func (h harness) driver(t conformance.TB) backend.Driver {
	t.Helper()
	d, err := h.Driver(t.Context())
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// use acquires and releases a lock.
func (h harness) use(t conformance.TB, d backend.Driver, key string) {
	t.Helper()
	req := &backend.Request{Key: key, Owner: rand.Text(), TTL: time.Minute, Mode: backend.Exclusive}
	g, err := d.Acquire(t.Context(), req)
	if err == nil {
		err = d.Release(t.Context(), g)
	}
	if err != nil && !errors.Is(err, backend.ErrNotAcquired) {
		t.Fatalf("acquire and release: %v", err)
	}
}
