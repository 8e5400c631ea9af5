package pgbackend

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestInterpretError checks which errors of the server are definite. Nil means unknown.
func TestInterpretError(t *testing.T) {
	t.Parallel()
	answer := func(severity, code string) error {
		return &pgconn.PgError{Severity: "FEHLER", SeverityUnlocalized: severity, Code: code}
	}
	for _, c := range []struct {
		err, want error
	}{
		{answer("ERROR", "40001"), backend.ErrUnavailable}, // serialization failure
		{answer("ERROR", "40P01"), backend.ErrUnavailable}, // deadlock
		{answer("ERROR", "57014"), backend.ErrUnavailable}, // statement_timeout
		{answer("ERROR", "53100"), backend.ErrUnavailable}, // disk full
		{answer("ERROR", codeReadOnly), backend.ErrUnavailable},
		{answer("ERROR", codeUnknownColumn), backend.ErrConflict},
		{answer("FATAL", "57P01"), nil}, // the server may have committed before its shutdown
		{answer("PANIC", "XX000"), nil},
		{io.ErrUnexpectedEOF, nil},
		{context.Canceled, context.Canceled},
		{errPooler, backend.ErrUnsupported},
	} {
		got := interpretError(c.err)
		if !errors.Is(got, c.err) {
			t.Errorf("%v: the chain has lost the error: %v", c.err, got)
		}
		if c.want == nil && isSentinel(got) || c.want != nil && !errors.Is(got, c.want) {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
	pooler := answer("FATAL", codeProtocol)
	raw.WantIs(t, "a pooler without a server", connectSentinel(pooler), backend.ErrUnavailable)
	pooler = &pgconn.PgError{
		Severity: "FATAL", Code: codeProtocol, Message: "unsupported startup parameter: x",
	}
	raw.WantIs(t, "a pooler", connectSentinel(pooler), errPooler)
	raw.WantIs(t, "an old server's answer",
		connectSentinel(answer("FATAL", codeUnknownSetting)), backend.ErrUnsupported)
}

// TestOnlyRow reads results that PostgreSQL does not send.
func TestOnlyRow(t *testing.T) {
	t.Parallel()
	result := func(rows ...[][]byte) *pgconn.Result { return &pgconn.Result{Rows: rows} }
	good := make([][]byte, checked)
	for i, results := range [][]*pgconn.Result{
		nil, {result()}, {result(good[:checked-1])}, {result(good, good)}, {result(good), result()},
	} {
		if values, ok := onlyRow(results); ok {
			t.Errorf("results %d: %q", i, values)
		}
	}
	if values, ok := onlyRow([]*pgconn.Result{result(good)}); !ok || len(values) != checked {
		t.Errorf("the good results: %q, %t", values, ok)
	}
}

// TestPoolerIsDetected connects with a number that is not the number of the server's process, as a
// pooler does.
func TestPoolerIsDetected(t *testing.T) {
	t.Parallel()
	conn, err := pgconn.Connect(t.Context(), testenv.Postgres(t).URL+"?statement_timeout=2000")
	if err != nil {
		t.Fatal(err)
	}
	if err := validate(t.Context(), conn); err != nil {
		t.Errorf("the server itself: %v", err)
	}
	// After a slow write pgx reads on another goroutine, which would take the next answer.
	if err := conn.SyncConn(t.Context()); err != nil {
		t.Fatal(err)
	}
	hijacked, err := conn.Hijack()
	if err != nil {
		t.Fatal(err)
	}
	hijacked.PID++
	conn, err = pgconn.Construct(hijacked)
	if err != nil {
		t.Fatal(err)
	}
	raw.WantIs(t, "a pooler", validate(t.Context(), conn), errPooler)
	_ = conn.Close(t.Context())
}
