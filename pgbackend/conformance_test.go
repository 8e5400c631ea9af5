package pgbackend

import (
	"bytes"
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/internal/testenv"
)

func TestConformance(t *testing.T) {
	s := testenv.Alone(t, testenv.Postgres)
	conformance.Run(t, func(t conformance.TB) conformance.Harness {
		return &harness{testenv.NewHarness(t, s), s.URL}
	}, conformance.Inapplicable("NextRequestFollowsARelease")) // the driver is no Pipeliner
}

// harness is a Harness with access to the table.
type harness struct {
	*testenv.Harness[conformance.TB]
	url string // of the server, without the proxy
}

// connect returns a connection that ends with the test.
func (h *harness) connect(tb testenv.TB) *pgx.Conn {
	tb.Helper()
	conn, err := pgx.Connect(context.Background(), h.url+"?sslmode=disable")
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

// Foreign implements conformance.Foreigner.
func (h *harness) Foreign(tb conformance.TB, key string) (intact func() bool) {
	tb.Helper()
	const foreign = "not a roster"
	conn := h.connect(tb)
	exec(tb, conn, `INSERT INTO dlock VALUES ($1, 7, 7, '', '', now(), now(), $2)`,
		[]byte(key), []byte(foreign))
	tb.Cleanup(func() { exec(tb, h.connect(tb), `DELETE FROM dlock WHERE name = $1`, []byte(key)) })
	return func() bool {
		var version int64
		var roster []byte
		err := conn.QueryRow(context.Background(),
			`SELECT version, roster FROM dlock WHERE name = $1`, []byte(key)).
			Scan(&version, &roster)
		return err == nil && version == 7 && bytes.Equal(roster, []byte(foreign))
	}
}

// LockEntry implements conformance.EntryLocker.
func (h *harness) LockEntry(tb conformance.TB, key string) (unlock func()) {
	tb.Helper()
	conn := h.connect(tb)
	exec(tb, conn, `BEGIN`)
	exec(tb, conn, `SELECT FROM dlock WHERE name = $1 FOR UPDATE`, []byte(key))
	return func() { exec(tb, conn, `ROLLBACK`) }
}

// Kept implements conformance.Keeper. It makes the rows a day older, and has each checked.
func (h *harness) Kept(tb conformance.TB, prefix string) (n int) {
	tb.Helper()
	conn := h.connect(tb)
	exec(tb, conn, `UPDATE dlock SET expires = expires - interval '1 day'
		WHERE name >= $1 AND name < $2`, []byte(prefix), pastPrefix(prefix))
	d, err := h.Driver(context.Background())
	if err != nil {
		tb.Fatalf("%v", err)
	}
	defer d.Close()
	s := &d.(*driver).sweeper
	s.mu.Lock()
	defer s.mu.Unlock()
	s.after = []byte(prefix)
	for bytes.HasPrefix(s.after, []byte(prefix)) {
		if err := s.page(context.Background()); err != nil {
			tb.Fatalf("%v", err)
		}
	}
	err = conn.QueryRow(context.Background(), `SELECT count(*) FROM dlock
		WHERE name >= $1 AND name < $2`, []byte(prefix), pastPrefix(prefix)).Scan(&n)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return n
}
