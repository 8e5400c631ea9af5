package mysqlbackend

import (
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

func TestConformanceSession(t *testing.T) {
	s := testenv.ForSessions(t, testenv.MySQL)
	conformance.Run(t, func(t conformance.TB) conformance.Harness {
		return testenv.NewTied(t, s)
	}, testenv.InapplicableIfTied)
}

func TestConformanceMariaDBSession(t *testing.T) {
	s := testenv.ForSessions(t, testenv.MariaDB)
	conformance.Run(t, func(t conformance.TB) conformance.Harness {
		return testenv.NewTied(t, s)
	}, testenv.InapplicableIfTied)
}

// TestSilentSession checks wait_timeout, and that no default of the server replaces it.
func TestSilentSession(t *testing.T) {
	t.Parallel()
	for name, start := range starters {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, "--wait-timeout=1")
			raw.Silence(t, s, s.URL+"&lock=session")
		})
	}
}

// TestEndedSession ends the connection of a holder on the server.
func TestEndedSession(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			db := database(t, s, "")
			d := raw.OpenTTL(t, s.URL+"&lock=session", 10*time.Minute)
			raw.Ended(t, d, func(g *backend.Grant) {
				id := ask(t, db, "SELECT IS_USED_LOCK(?)", userLock("dlock", g.Key))
				do(t, db, "KILL "+id)
			})
		})
	}
}

// TestSessionOfAReader makes a server read-only while a lock is held. Clients that connect now
// look for another server, so the lock excludes no client any more.
func TestSessionOfAReader(t *testing.T) {
	t.Parallel()
	for name, start := range starters {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			db := database(t, s, "")
			d := raw.OpenTTL(t, s.URL+"&lock=session", 10*time.Minute)
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
					do(t, db, "SET GLOBAL read_only = 1")
					if err := request(g); err == nil {
						t.Errorf("%s on a server that is read-only: nil", what)
					}
					_, err := d.Acquire(t.Context(), other)
					raw.WantIs(t, "Acquire on a reader", err, backend.ErrUnavailable)
					do(t, db, "SET GLOBAL read_only = 0")
				})
			}
		})
	}
}

// TestMovedSession has a connection that a proxy has replaced.
func TestMovedSession(t *testing.T) {
	t.Parallel()
	l := openLocker(t, testenv.MySQL(t), time.Hour)
	l.id++
	if _, err := l.Lock("x"); !errors.Is(err, errMoved) {
		t.Errorf("Lock: %v", err)
	}
	if err := l.Prove(); !errors.Is(err, errMoved) {
		t.Errorf("Prove: %v", err)
	}
	if used := ask(t, l.conn, "SELECT IFNULL(IS_USED_LOCK('x'), 'free')"); used != "free" {
		t.Errorf("the lock is used by %s", used)
	}
	if err := l.Unlock("x"); !errors.Is(err, errNoUserLock) {
		t.Errorf("Unlock: %v", err)
	}
}

// TestSettingsOfASession checks that no limit of the server ends a statement that locks.
func TestSettingsOfASession(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]string{
		"mysql": "max_execution_time", "mariadb": "max_statement_time",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := starters[name](t, "--"+limit+"=1000", "--default-time-zone=+05:00")
			l := openLocker(t, s, 1500*time.Millisecond)
			got := ask(t, l.conn,
				"SELECT CONCAT_WS(' ', @@wait_timeout, @@time_zone, @@"+limit+" = 0)")
			if got != "2 +00:00 1" {
				t.Errorf("the settings are %q", got)
			}
		})
	}
}

// TestSessionNeedsAClock starts servers whose SYSDATE is the time of the statement.
func TestSessionNeedsAClock(t *testing.T) {
	t.Parallel()
	for name, start := range starters {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, "--sysdate-is-now")
			d, err := testenv.Open(t.Context(), s.URL+"&lock=session&timeout=30s")
			if err == nil {
				_ = d.Close()
			}
			raw.WantIs(t, "Open", err, backend.ErrUnsupported)
		})
	}
}

// TestAnswersOfASession makes a request after answers that reach the limit of one answer.
func TestAnswersOfASession(t *testing.T) {
	t.Parallel()
	l := openLocker(t, testenv.MySQL(t), time.Minute)
	var s *socket
	_ = l.conn.Raw(func(made any) error { s = made.(*conn).socket; return nil })
	for what, request := range map[string]func() error{
		"Lock":   func() error { _, err := l.Lock("answers"); return err },
		"Prove":  l.Prove,
		"Unlock": func() error { return l.Unlock("answers") },
	} {
		s.answered = maxAnswer + 1 // of earlier requests
		if err := request(); err != nil && !errors.Is(err, errNoUserLock) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestServersOfSessions has the variables of servers.
func TestServersOfSessions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		variable, value string
		want            error
	}{
		{"wsrep_on", "ON", backend.ErrUnsupported},
		{"wsrep_on", "OFF", nil},
		{"group_replication_single_primary_mode", "OFF", backend.ErrUnsupported},
		{"group_replication_single_primary_mode", "ON", nil},
		{"tcp_keepalive_time", "0", nil},
		{"tcp_keepalive_time", "29", backend.ErrUnsupported},
		{"tcp_keepalive_time", "30", nil},
	} {
		err := allow(map[string]string{c.variable: c.value}, 30*time.Second)
		raw.WantIs(t, c.variable+" "+c.value, err, c.want)
	}
}

// TestEagerKeepalive starts a server whose TCP gives up silent connections early. Only MariaDB has
// the variable.
func TestEagerKeepalive(t *testing.T) {
	t.Parallel()
	s := testenv.NewMariaDB(t, "--tcp-keepalive-time=5")
	u := s.URL + "&lock=session"
	_, err := testenv.Open(t.Context(), u)
	raw.WantIs(t, "Open", err, backend.ErrUnsupported)
	d := raw.OpenTTL(t, u, 5*time.Second)
	raw.Release(t, d, raw.Acquire(t, d, raw.Request(t, time.Second)))
}

// TestSpellingOfADatabase has one database in two spellings, which some servers allow.
func TestSpellingOfADatabase(t *testing.T) {
	t.Parallel()
	lock := userLock("jobs", "x")
	if userLock("Jobs", "x") != lock || userLock("jobs", "X") == lock {
		t.Error("the names of the locks are wrong")
	}
}

// TestSessionNeedsAURL refuses a database of the caller.
func TestSessionNeedsAURL(t *testing.T) {
	t.Parallel()
	_, err := New(database(t, testenv.MySQL(t), ""), &Options{Lock: LockSession})
	raw.WantIs(t, "New", err, backend.ErrUnsupported)
}

// openLocker makes a connection that is not part of a driver.
func openLocker(tb testing.TB, s *testenv.Server, ttl time.Duration) *locker {
	tb.Helper()
	u, err := backend.ParseURL(s.URL)
	if err != nil {
		tb.Fatal(err)
	}
	to, err := parseTarget(u)
	if err != nil {
		tb.Fatal(err)
	}
	config, err := to.config()
	if err != nil {
		tb.Fatal(err)
	}
	l, err := connectLocker(tb.Context(), &connector{config: config, watched: true}, ttl)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(l.Close)
	return l
}
