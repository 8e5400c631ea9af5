package mysqlbackend

import (
	"bytes"
	"database/sql"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
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

// TestSilentSession checks wait_timeout, and that no default of the server replaces it. The default
// counts until the variable is set, so it is longer than this process stands still.
func TestSilentSession(t *testing.T) {
	t.Parallel()
	for name, start := range starters {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, "--wait-timeout=4")
			raw.Silence(t, s, s.URL+"&lock=session", 8*time.Second)
		})
	}
}

// TestUncertainSession cuts a holder off during its Unlock.
func TestUncertainSession(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			raw.UnlockIntoABlackHole(t, s, s.URL+"&lock=session")
		})
	}
}

// TestEndedSession ends the connection of a holder on the server. It finds the connection by the
// statement for operators.
func TestEndedSession(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			db := database(t, s, "")
			d := raw.OpenTTL(t, s.URL+"&lock=session", 10*time.Minute)
			raw.Ended(t, d, func(g *backend.Grant) {
				find := raw.Documented(t, "SELECT IS_USED_LOCK")
				find = strings.NewReplacer("DATABASE", "dlock", "NAME", g.Key).Replace(find)
				do(t, db, "KILL "+ask(t, db, find))
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

// TestUnlockOnAReader frees one of two locks on a server that has become read-only. It does not
// prove the other lock.
func TestUnlockOnAReader(t *testing.T) {
	t.Parallel()
	for name, start := range starters {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			d := raw.OpenTTL(t, s.URL+"&lock=session", 10*time.Minute)
			g := raw.Acquire(t, d, raw.Request(t, time.Minute))
			req := raw.Request(t, time.Minute)
			req.Key += " other"
			other := raw.Acquire(t, d, req)
			do(t, database(t, s, ""), "SET GLOBAL read_only = 1")
			raw.Release(t, d, g)
			answers := d.(backend.BatchRenewer).RenewAll(t.Context(), []*backend.Grant{other})
			raw.WantIs(t, "RenewAll of the other lock", answers[0].Err, backend.ErrLost)
		})
	}
}

// TestSessionOfAnInnoDBReader executes statements as if InnoDB were read-only, as on a reader of
// Aurora, where read_only may be off. Such a server executes FOR UPDATE without an error.
func TestSessionOfAnInnoDBReader(t *testing.T) {
	t.Parallel()
	onReader := func(text string) string {
		return strings.Replace(plain(text), "@@global.innodb_read_only", "1", 1)
	}
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, id := openLocker(t, server(t), time.Hour), t.Name()
			want := func(what, text, want string, args ...any) {
				t.Helper()
				if got := ask(t, l.conn, onReader(text), args...); got != want {
					t.Errorf("%s returns %s, want %s", what, got, want)
				}
			}
			want("session-lock.sql", sessionLockSQL, "-1", l.mark, id)
			want("session-prove.sql", sessionProveSQL, "0", l.mark)
			want("session-unlock.sql without the lock", sessionUnlockSQL, "0", id)
			do(t, l.conn, "DO GET_LOCK(?, 0)", id)
			want("session-unlock.sql", sessionUnlockSQL, "2", id)
			found, err := query(t.Context(), l.conn, scanServer, onReader(serverSQL))
			if err != nil || !found[0].readOnly {
				t.Errorf("server.sql returns %+v, %v", found, err)
			}
			g := raw.Acquire(t, openURL(t, server(t).URL), raw.Request(t, time.Minute))
			read := onReader(withTable(rosterReadSQL, DefaultTable))
			answers, err := query(t.Context(), l.conn, func(rows *sql.Rows) (is bool, err error) {
				var other any
				err = rows.Scan(&other, &other, &other, &other, &other, &is, &other, &other)
				return is, err
			}, read, []byte(g.Key))
			if err != nil || !answers[0] {
				t.Errorf("roster-read.sql returns %v, %v", answers, err)
			}
		})
	}
}

// TestFreeSession checks a lock that another connection has, and frees.
func TestFreeSession(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, id := server(t), t.Name()
			l, other := openLocker(t, s, time.Hour), openLocker(t, s, time.Hour)
			do(t, l.conn, "DO GET_LOCK(?, 0)", id)
			if isFree, err := other.IsFree(id); isFree || err != nil {
				t.Errorf("IsFree of a held lock: %v, %v", isFree, err)
			}
			do(t, l.conn, "DO RELEASE_LOCK(?)", id)
			if isFree, err := other.IsFree(id); !isFree || err != nil {
				t.Errorf("IsFree of a free lock: %v, %v", isFree, err)
			}
		})
	}
}

// TestSessionBehindAPooler opens servers through a proxy that numbers its connections itself, as a
// pooler does. Behind it another connection can execute the next statement.
func TestSessionBehindAPooler(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			s := server(t)
			proxy := testenv.NewImpostor(t, func(client net.Conn) { renumber(client, s.Addr) })
			url := strings.Replace(s.URL, s.Addr, proxy.Addr(), 1)
			d := openURL(t, url)
			raw.Release(t, d, raw.Acquire(t, d, raw.Request(t, time.Minute)))
			_, err := testenv.Open(t.Context(), url+"&lock=session&timeout=30s")
			raw.WantIs(t, "Open", err, backend.ErrUnsupported)
			if err == nil || !strings.Contains(err.Error(), "pooler") {
				t.Errorf("the error does not name the pooler: %v", err)
			}
		})
	}
}

// renumber forwards a connection to a server, with another number in the greeting.
func renumber(client net.Conn, addr string) {
	server, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer server.Close()
	greeting := make([]byte, 1<<10)
	n, err := server.Read(greeting)
	if err != nil {
		return
	}
	version := bytes.IndexByte(greeting[packetHeader:], 0)
	greeting[packetHeader+version+1]++ // the first byte of the number
	if _, err := client.Write(greeting[:n]); err != nil {
		return
	}
	var back sync.WaitGroup
	back.Go(func() { _, _ = io.Copy(client, server) })
	_, _ = io.Copy(server, client)
	_ = server.Close()
	back.Wait()
}

// TestMovedSession has connections in the place of the first one, as after a proxy has replaced it.
// The second of them has the number of the first one, as after a restart of the server.
func TestMovedSession(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		for number, move := range map[string]func(l *locker){
			"another number": func(l *locker) {
				l.mark = openLocker(t, server(t), time.Hour).mark
			},
			"the same number": func(l *locker) { do(t, l.conn, "DO RELEASE_ALL_LOCKS()") },
		} {
			t.Run(name+" "+number, func(t *testing.T) {
				l, id := openLocker(t, server(t), time.Hour), t.Name()
				move(l)
				_, err := l.Lock(id)
				raw.WantIs(t, "Lock", err, errMoved)
				raw.WantIs(t, "Prove", l.Prove(), errMoved)
				if ask(t, l.conn, "SELECT IS_FREE_LOCK(?)", id) != "1" {
					t.Error("the lock is not free")
				}
				raw.WantIs(t, "Unlock", l.Unlock(id), errNoUserLock)
			})
		}
	}
}

// TestInterruptedSession interrupts single statements of a connection by KILL QUERY, as an operator
// can. They cost no other lock, and leave none.
func TestInterruptedSession(t *testing.T) {
	t.Parallel()
	lock := func(l *locker, id string) error { _, err := l.Lock(id); return err }
	tryLock := func(l *locker, id string) error { _, err := l.TryLock(id); return err }
	prove := func(l *locker, _ string) error { return l.Prove() }
	for name, server := range servers {
		for what, c := range map[string]struct {
			returns string // what the statement returns in the end
			request func(l *locker, id string) error
			want    error
		}{
			"Lock":    {"LENGTH(?) + LENGTH(?)", lock, backend.ErrUnavailable},
			"TryLock": {"LENGTH(?)", tryLock, backend.ErrUnavailable},
			"Unlock":  {"RELEASE_LOCK(?)", (*locker).Unlock, nil},
			"Prove":   {"RELEASE_LOCK(?)", prove, nil},

			"Unlock after a move": {"IFNULL(RELEASE_LOCK(?), 0)", (*locker).Unlock, errMoved},
		} {
			t.Run(name+" "+what, func(t *testing.T) {
				db := database(t, server(t), "")
				l, id := openLocker(t, server(t), time.Hour), t.Name()
				method, _, moved := strings.Cut(what, " ")
				switch {
				case moved:
					do(t, l.conn, "DO RELEASE_ALL_LOCKS()")
				case what != "Prove": // what a Lock leaves that is interrupted late
					do(t, l.conn, "DO GET_LOCK(?, 0)", id)
				}
				delay(t, db, l, method, c.returns)
				err := interrupted(t, db, l, func() error { return c.request(l, id) })
				raw.WantIs(t, what, err, c.want)
				if ask(t, l.conn, "SELECT IS_FREE_LOCK(?)", id) != "1" {
					t.Error("the lock is not free")
				}
			})
		}
	}
}

// delay replaces the statement of a method. The new statement waits for a table, and then returns
// something else.
func delay(t *testing.T, db *sql.DB, l *locker, method, returns string) {
	t.Helper()
	do(t, db, "CREATE TABLE IF NOT EXISTS interrupted (n INT)")
	do(t, db, "DELETE FROM interrupted")
	do(t, db, "INSERT INTO interrupted VALUES (1)")
	made, err := l.conn.PrepareContext(t.Context(), "SELECT "+returns+" FROM interrupted")
	if err != nil {
		t.Fatal(err)
	}
	*map[string]**sql.Stmt{
		"Lock": &l.lock, "TryLock": &l.try, "Unlock": &l.unlock, "Prove": &l.prove,
	}[method] = made
}

// interrupted makes a request whose first statement waits for the table, and interrupts it there.
func interrupted(t *testing.T, db *sql.DB, l *locker, request func() error) error {
	t.Helper()
	operator := oneConnection(t, db)
	do(t, operator, "LOCK TABLES interrupted WRITE")
	waiter := ask(t, l.conn, "SELECT CONNECTION_ID()")
	outcome := make(chan error, 1)
	go func() { outcome <- request() }()
	eventually(t, "the statement waits", func() bool {
		const state = "SELECT STATE FROM information_schema.PROCESSLIST WHERE ID = ?"
		return ask(t, db, state, waiter) == "Waiting for table metadata lock"
	})
	do(t, db, "KILL QUERY "+waiter)
	do(t, operator, "UNLOCK TABLES")
	return <-outcome
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

// TestSessionOpensSlowly has a server that takes longer than the timeout for one of the statements
// with which a session opens.
func TestSessionOpensSlowly(t *testing.T) {
	t.Parallel()
	const tooManyUsers = 1203
	slow := testenv.NewImpostor(t, hostility{answer: func(w io.Writer) {
		time.Sleep(DefaultTimeout + time.Second)
		send(packet(1, "\xff\xb3\x04#42000too many"))(w)
	}}.serve)
	_, err := testenv.Open(t.Context(), "mysql://root@"+slow.Addr()+"/dlock?lock=session")
	if !hasNumber(err, tooManyUsers) {
		t.Errorf("Open: %v, want the answer of the server", err)
	}
}

// TestStatementWithoutAConnection executes statements of which database/sql has already forgotten
// the connection, because Close came first. It then panics.
func TestStatementWithoutAConnection(t *testing.T) {
	t.Parallel()
	raw.WantIs(t, "Prove", new(locker).Prove(), errGarbled)
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
	config, err := raw.Target(tb, parseTarget, s.URL).config()
	if err != nil {
		tb.Fatal(err)
	}
	l, err := connectLocker(tb.Context(), &connector{config: config, silence: ttl}, ttl)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(l.Close)
	return l
}

// TestNoKillBehindAProxy opens a server through a proxy that numbers the connections itself. There
// KILL QUERY would have the number of another program's connection: the waiter polls.
func TestNoKillBehindAProxy(t *testing.T) {
	t.Parallel()
	s := testenv.NewMySQL(t)
	proxy := testenv.NewImpostor(t, func(client net.Conn) { renumber(client, s.Addr) })
	behind := strings.Replace(s.URL, s.Addr, proxy.Addr(), 1)
	if n := killsOfHandoffs(t, s, behind); n != 0 {
		t.Errorf("%d KILL behind the proxy", n)
	}
	if n := killsOfHandoffs(t, s, s.URL); n == 0 {
		t.Error("no KILL without the proxy")
	}
}
