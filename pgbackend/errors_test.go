package pgbackend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

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

// TestErrorsHaveNoPassword makes connections that fail. The errors of pgx have the configuration,
// with the password in it. Errors of the driver have neither, but all that callers compare.
func TestErrorsHaveNoPassword(t *testing.T) {
	t.Parallel()
	s := testenv.Postgres(t)
	conn := connected(t, s.URL)
	exec(t, conn, `CREATE USER fenced PASSWORD '`+raw.Secret+`'`)
	exec(t, conn, `ALTER USER fenced SET default_transaction_read_only = on`)
	wrong := strings.Replace(s.URL, "correct-horse", raw.Secret, 1)
	fenced := strings.Replace(wrong, "postgres:"+raw.Secret, "fenced:"+raw.Secret, 1)
	closed := strings.Replace(wrong, s.Addr, "127.0.0.1:1", 1)
	isPgError := func(err error) bool { return hasCode(err, "28P01") }
	isNetError := func(err error) bool {
		_, ok := errors.AsType[*net.OpError](err)
		return ok && errors.Is(err, syscall.ECONNREFUSED)
	}
	for what, c := range map[string]struct {
		open func() (backend.Driver, error)
		is   func(error) bool
	}{
		"a password": {func() (backend.Driver, error) {
			return testenv.Open(t.Context(), wrong)
		}, isPgError},
		"a password of a session": {func() (backend.Driver, error) {
			return testenv.Open(t.Context(), wrong+"?lock=session")
		}, isPgError},
		"a password of a pool": {func() (backend.Driver, error) {
			pool, err := pgxpool.New(t.Context(), wrong)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			return New(pool, nil)
		}, isPgError},
		"a password of a database": {func() (backend.Driver, error) {
			return NewDB(database(t, wrong, 1), nil)
		}, isPgError},
		"a bad URL of a database": {func() (backend.Driver, error) {
			return NewDB(database(t, wrong+"?connect_timeout=x", 1), nil)
		}, func(err error) bool { return strings.Contains(err.Error(), "connect_timeout") }},
		"a server that is away": {func() (backend.Driver, error) {
			return testenv.Open(t.Context(), closed)
		}, isNetError},
		"a fenced server": {func() (backend.Driver, error) {
			return testenv.Open(t.Context(), fenced)
		}, func(err error) bool { return errors.Is(err, errReadOnly) }},
	} {
		d, err := c.open()
		if err == nil {
			_ = d.Close()
			t.Errorf("%s: opened", what)
			continue
		}
		raw.WantIs(t, what, err, backend.ErrUnavailable)
		if !c.is(err) {
			t.Errorf("%s: the cause is not in the error: %v", what, err)
		}
		_, connects := errors.AsType[*pgconn.ConnectError](err)
		_, parses := errors.AsType[*pgconn.ParseConfigError](err)
		if connects || parses || strings.Contains(fmt.Sprintf("%v %#v", err, err), raw.Secret) {
			t.Errorf("%s: the error has the password: %#v", what, err)
		}
	}
}

// TestErrorsKeepTheirText compares the text of an error with the text of pgx's.
func TestErrorsKeepTheirText(t *testing.T) {
	t.Parallel()
	_, err := pgconn.Connect(t.Context(), "postgres://u:"+raw.Secret+"@127.0.0.1:1/db")
	got := withoutConfig(err)
	if got.Error() != err.Error() || !strings.Contains(got.Error(), "user=u") {
		t.Errorf("the text is %q, want %q", got, err)
	}
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
