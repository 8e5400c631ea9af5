package pgbackend

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// inapplicable are the cases that do not apply.
var inapplicable = conformance.Inapplicable(
	"ForeignValueIsAConflict",    // each row of the table is a lock
	"NextRequestFollowsARelease", // the driver promises no order of requests
)

func TestConformance(t *testing.T) {
	s := testenv.Alone(t, testenv.Postgres)
	conformance.Run(t, func(t conformance.TB) conformance.Harness {
		return newHarness(t, s)
	}, inapplicable)
}

func BenchmarkConformance(b *testing.B) {
	url := testenv.NewPostgres(b).DirectURL()
	conformance.Bench(b, func(conformance.TB) conformance.Harness {
		return testenv.Direct{URL: url}
	})
}

// harness is also a conformance.EntryLocker and a conformance.Keeper. It is not a
// conformance.Foreigner: Open checks that the table belongs to dlock, and each row of such a table
// is a lock. For a row that cannot be read see TestUnreadableRowIsBroken.
type harness struct {
	*testenv.Harness[conformance.TB]
	url string // of the server, without the proxy
}

func newHarness(t conformance.TB, s *testenv.Server) harness {
	t.Helper()
	return harness{testenv.NewHarness(t, s), s.URL}
}

// connect returns a connection that ends with the test.
func (h harness) connect(t conformance.TB) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), h.url+"?sslmode=disable")
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// LockEntry implements conformance.EntryLocker.
func (h harness) LockEntry(t conformance.TB, key string) (unlock func()) {
	t.Helper()
	conn := h.connect(t)
	exec(t, conn, `BEGIN`)
	exec(t, conn, `SELECT FROM dlock WHERE name = $1 FOR UPDATE`, []byte(key))
	return func() { exec(t, conn, `ROLLBACK`) }
}

// Kept implements conformance.Keeper. It makes the rows a day older, and has each checked.
// The sweep can be in the middle of the table, so it goes to the end twice.
func (h harness) Kept(t conformance.TB, prefix string) (n int) {
	t.Helper()
	conn := h.connect(t)
	exec(t, conn, `UPDATE dlock SET expires = expires - interval '1 day'
		WHERE name >= $1 AND name < $2`, []byte(prefix), pastPrefix(prefix))
	d, err := h.Driver(context.Background())
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer d.Close()
	s := &d.(*driver).sweeper
	s.mu.Lock()
	defer s.mu.Unlock()
	for ends := 0; ends < 2; {
		last, err := s.page(context.Background())
		if err != nil {
			t.Fatalf("%v", err)
		}
		if last {
			ends++
		}
	}
	err = conn.QueryRow(context.Background(), `SELECT count(*) FROM dlock
		WHERE name >= $1 AND name < $2`, []byte(prefix), pastPrefix(prefix)).Scan(&n)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return n
}
