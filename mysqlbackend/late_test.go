package mysqlbackend

import (
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// The tests in this file execute statements later than statements that were sent after them. The
// time of a statement is fixed when it begins. The statement can then wait for a row, for the
// table, for a global read lock, or for a processor. A test cannot choose the order in which the
// server continues two such statements. SET TIMESTAMP fixes the time of a statement as well. So a
// connection "in the past" executes statements that began some seconds ago.

// late is the age of the statements of a driver in the past.
const late = 4 * time.Second

// openFunc opens a driver on a server.
type openFunc func(testing.TB, *testenv.Server) *driver

// openers are the two ways to open a driver.
var openers = map[string]openFunc{
	"url": func(tb testing.TB, s *testenv.Server) *driver {
		tb.Helper()
		return openURL(tb, s.URL)
	},
	"lent": func(tb testing.TB, s *testenv.Server) *driver {
		tb.Helper()
		b, err := New(database(tb, s, "?interpolateParams=true"), &Options{Create: true})
		if err != nil {
			tb.Fatal(err)
		}
		return closing(tb, b)
	},
}

// onEach runs a test on each server, with each opener.
func onEach(t *testing.T, test func(t *testing.T, s *testenv.Server, open openFunc)) {
	t.Helper()
	t.Parallel()
	for server, start := range servers {
		for opener, open := range openers {
			t.Run(server+"/"+opener, func(t *testing.T) {
				t.Parallel()
				test(t, start(t), open)
			})
		}
	}
}

// putIntoThePast makes all statements of d, except reads, begin at the Unix time began.
func putIntoThePast(tb testing.TB, d *driver, began string) {
	tb.Helper()
	d.pools.main.SetMaxOpenConns(1) // control also uses this connection first
	do(tb, d.pools.main.DB, "SET TIMESTAMP = "+began)
}

// row returns the row of a lock on the server.
func row(tb testing.TB, q querier, name string) string {
	tb.Helper()
	return ask(tb, q, "SELECT CONCAT_WS(' ', owner, token, since, expires, meta) "+
		"FROM dlock WHERE name = ?", []byte(name))
}

// requests are the ways in which an owner can request a new term.
var requests = map[string]func(*testing.T, *driver, *backend.Grant) (backend.Term, error){
	"Acquire": func(t *testing.T, d *driver, g *backend.Grant) (backend.Term, error) {
		t.Helper()
		again, err := d.Acquire(t.Context(), &g.Request)
		if err != nil {
			return backend.Term{}, err
		}
		return again.Term, nil
	},
	"Acquire as the first": func(t *testing.T, d *driver, g *backend.Grant) (backend.Term, error) {
		t.Helper()
		sent, micros := time.Now(), ceilMicros(g.TTL)
		args := acquireArgs(&g.Request, micros, true)
		out, err := exec(t.Context(), d.pools.main, d.text.acquire, args...)
		if err == nil && out.id >= busyFlag {
			err = &backend.Busy{}
		}
		return termOf(sent, micros), err
	},
	"AcquireAll": func(t *testing.T, d *driver, g *backend.Grant) (backend.Term, error) {
		t.Helper()
		gs, _, err := d.AcquireAll(t.Context(), []*backend.Request{&g.Request})
		if err != nil {
			return backend.Term{}, err
		}
		return gs[0].Term, nil
	},
	"Renew": func(t *testing.T, d *driver, g *backend.Grant) (backend.Term, error) {
		t.Helper()
		return d.Renew(t.Context(), g)
	},
	"RenewAll": func(t *testing.T, d *driver, g *backend.Grant) (backend.Term, error) {
		t.Helper()
		answers := d.RenewAll(t.Context(), []*backend.Grant{g, g})
		return answers[0].Term, answers[0].Err
	},
}

// TestLateRequestShortensNoTerm checks a request that was given up and is executed after its
// answered successor. It does not shorten the term.
func TestLateRequestShortensNoTerm(t *testing.T) {
	onEach(t, func(t *testing.T, s *testenv.Server, open openFunc) {
		t.Helper()
		d, past, db := open(t, s), open(t, s), database(t, s, "")
		now := ask(t, db, "SELECT UNIX_TIMESTAMP(NOW(6))")
		putIntoThePast(t, past, now+" - "+fmt.Sprint(late.Seconds()))
		for first, answered := range requests {
			for second, late := range requests {
				g := acquire(t, d, raw.Request(t, time.Minute))
				term, err := answered(t, d, g)
				if err != nil {
					t.Errorf("%s: %v", first, err)
					continue
				}
				before := row(t, db, g.Key)
				_, err = late(t, past, g)
				if errors.Is(err, backend.ErrLost) || errors.Is(err, backend.ErrNotAcquired) {
					t.Errorf("%s, executed after %s: %v", second, first, err)
				}
				info, err := d.Inspect(t.Context(), g.Key)
				read := time.Now()
				if err != nil || len(info.Holders) != 1 {
					t.Errorf("%s after %s: Inspect: %+v, %v", second, first, info, err)
				} else if left := term.TTL - read.Sub(term.Sent); info.Holders[0].TTL < left {
					t.Errorf("%s, executed after %s: %v left on the server, %v proven; "+
						"the row was %s and is %s",
						second, first, info.Holders[0].TTL, left, before, row(t, db, g.Key))
				}
				raw.Release(t, d, g)
			}
		}
	})
}

// TestLateRequestOfAnEarlierHolderChangesNothing checks a request that is executed after the lock
// has passed to another owner.
func TestLateRequestOfAnEarlierHolderChangesNothing(t *testing.T) {
	passes := map[string]func(*testing.T, *driver, *sql.DB, *backend.Grant){
		"released": func(t *testing.T, d *driver, _ *sql.DB, g *backend.Grant) {
			t.Helper()
			raw.Release(t, d, g)
		},
		"broken": func(t *testing.T, d *driver, _ *sql.DB, g *backend.Grant) {
			t.Helper()
			if err := d.Break(t.Context(), g.Key, ""); err != nil {
				t.Errorf("Break: %v", err)
			}
		},
		"expired": func(t *testing.T, _ *driver, db *sql.DB, g *backend.Grant) {
			t.Helper()
			do(t, db, "UPDATE dlock SET expires = UTC_TIMESTAMP(6) WHERE name = ?", []byte(g.Key))
		},
		"deleted": func(t *testing.T, _ *driver, db *sql.DB, g *backend.Grant) {
			t.Helper()
			do(t, db, "DELETE FROM dlock WHERE name = ?", []byte(g.Key))
		},
	}
	onEach(t, func(t *testing.T, s *testenv.Server, open openFunc) {
		t.Helper()
		d, past, db := open(t, s), open(t, s), database(t, s, "")
		began := ask(t, db, "SELECT UNIX_TIMESTAMP(NOW(6))")
		putIntoThePast(t, past, began)
		for how, pass := range passes {
			for what, late := range requests {
				g := acquire(t, d, raw.Request(t, time.Minute))
				pass(t, d, db, g)
				next := acquire(t, d, raw.Request(t, time.Minute))
				before := row(t, db, g.Key)
				_, err := late(t, past, g)
				if !errors.Is(err, backend.ErrLost) && !errors.Is(err, backend.ErrNotAcquired) {
					t.Errorf("%s after it was %s: %v", what, how, err)
				}
				// A nil error means that Release removed the queue entry.
				if err := past.Release(t.Context(), g); err != nil &&
					!errors.Is(err, backend.ErrNotHeld) {
					t.Errorf("Release after it was %s: %v", how, err)
				}
				if after := row(t, db, g.Key); after != before {
					t.Errorf("%s after it was %s: the row was %s and is %s",
						what, how, before, after)
				}
				raw.Release(t, d, next)
			}
		}
	})
}

// TestOverlongAcquireShortensNoTerm checks a real Acquire that is executed after the next Acquire
// of its owner. A trigger delays it, before the statement locks the row.
func TestOverlongAcquireShortensNoTerm(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			db := database(t, s, "")
			do(t, db, Schema("gated"))
			do(t, db, "DROP TRIGGER IF EXISTS gate_trigger")
			do(t, db, "CREATE TRIGGER gate_trigger BEFORE INSERT ON gated FOR EACH ROW "+
				"SET @passed = IF(IS_FREE_LOCK('dlock gate is shut'), 0, "+
				"GET_LOCK('dlock gate', 60))")
			gate, err := db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer gate.Close()
			do(t, gate, "DO GET_LOCK('dlock gate', 0), GET_LOCK('dlock gate is shut', 0)")
			url := "mysql://root@" + s.Addr + "/dlock?timeout=1m&table=gated"
			d, req := openURL(t, url), raw.Request(t, time.Minute)
			request := func() error { // ignores the answer, because a trigger hides the fence
				args := acquireArgs(req, ceilMicros(req.TTL), false)
				_, err := exec(t.Context(), d.pools.main, d.text.acquire, args...)
				return err
			}
			first := make(chan error, 1)
			go func() { first <- request() }()
			eventually(t, "the first request is delayed", func() bool {
				return ask(t, db, "SELECT COUNT(*) FROM information_schema.PROCESSLIST "+
					"WHERE STATE = 'User lock' AND INFO LIKE '%gate%'") == "1"
			})
			do(t, gate, "DO RELEASE_LOCK('dlock gate is shut')")
			time.Sleep(10 * time.Millisecond) // so that the server's clock advances
			if err := request(); err != nil {
				t.Errorf("the second Acquire: %v", err)
			}
			expires := "SELECT expires FROM gated"
			before := ask(t, db, expires)
			do(t, gate, "DO RELEASE_LOCK('dlock gate')")
			if err := <-first; err != nil {
				t.Errorf("the first Acquire: %v", err)
			}
			if after := ask(t, db, expires); after < before {
				t.Errorf("the term ended %s and ends %s", before, after)
			}
			do(t, db, "DROP TABLE gated")
		})
	}
}
