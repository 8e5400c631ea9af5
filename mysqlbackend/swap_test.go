package mysqlbackend

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/kind"
	"github.com/dlock-go/dlock/backend/roster"
	"github.com/dlock-go/dlock/internal/announce"
	"github.com/dlock-go/dlock/internal/lag"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// permit returns the request for one of n permits, which waits.
func permit(key string, n int) *backend.Request {
	return &backend.Request{
		Key: key, Owner: raw.NewOwner(), TTL: time.Minute, Mode: backend.Permit, Limit: n,
		Queue: true, Meta: `"quoted" <ü>`,
	}
}

// updates returns how many UPDATE statements a server has executed.
func updates(tb testing.TB, q querier) int {
	tb.Helper()
	return status(tb, q, "Com_update")
}

// TestPermitIsOneStatement checks that a permit costs as many statements as a mutex: one to acquire
// it, and one to release it. The first permit of a name also makes the row.
func TestPermitIsOneStatement(t *testing.T) {
	t.Parallel()
	for name, start := range starters {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			d, db := openURL(t, s.URL), database(t, s, "")
			d.sweeping.Store(true) // prevents sweeps
			key := t.Name()
			raw.Release(t, d, acquire(t, d, permit(key, 8)))
			selects, before := status(t, db, "Com_select"), updates(t, db)
			g := acquire(t, d, permit(key, 8))
			second := acquire(t, d, permit(key, 8))
			if second.Fence <= g.Fence {
				t.Errorf("the fence %d follows %d", second.Fence, g.Fence)
			}
			raw.Release(t, d, g)
			raw.Release(t, d, second)
			if n := updates(t, db) - before; n != 4 {
				t.Errorf("%d UPDATE, want 4", n)
			}
			if n := status(t, db, "Com_select") - selects; n != 0 {
				t.Errorf("%d SELECT, want 0", n)
			}
		})
	}
}

// TestSwapKeepsTheRules checks what roster-take.sql refuses or leaves to editions: a permit beyond
// the limit, another limit, another kind, a waiter that is in front, and an owner that repeats its
// request.
func TestSwapKeepsTheRules(t *testing.T) {
	onEach(t, func(t *testing.T, s *testenv.Server, open openFunc) {
		t.Helper()
		d, key := open(t, s), raw.Request(t, time.Minute).Key
		first := acquire(t, d, permit(key, 2))
		again := acquire(t, d, &first.Request)
		if again.Fence < first.Fence {
			t.Errorf("a repeated request has the fence %d after %d", again.Fence, first.Fence)
		}
		_, err := d.Acquire(t.Context(), permit(key, 3))
		raw.WantIs(t, "Acquire with another limit", err, backend.ErrConflict)
		_, err = d.Acquire(t.Context(), reader(key))
		raw.WantIs(t, "Acquire of a reader", err, backend.ErrConflict)
		second := acquire(t, d, permit(key, 2))
		waiter := permit(key, 2)
		_ = raw.Busy(t, d, waiter)
		raw.Release(t, d, first)
		late := permit(key, 2)
		late.Queue = false
		_ = raw.Busy(t, d, late) // the waiter is in front
		third := acquire(t, d, waiter)
		info, err := d.Inspect(t.Context(), key)
		if err != nil || len(info.Holders) != 2 || info.Waiters != 0 ||
			info.Holders[0].Meta != second.Meta {
			t.Errorf("Inspect: %+v, %v", info, err)
		}
		raw.Release(t, d, second)
		raw.Release(t, d, third)
		raw.WantIs(t, "a second release", d.Release(t.Context(), third), backend.ErrNotHeld)
		raw.Release(t, d, acquire(t, d, raw.Request(t, time.Minute))) // the row is free
	})
}

// churn makes d request and release all the time what request returns, until stop is called or the
// test ends. With the pauses the changes still come much faster than the answers of a slow network.
func churn(t *testing.T, d *driver, request func() *backend.Request) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				req := request()
				_, err := d.Acquire(ctx, req)
				if err == nil || req.Queue {
					_ = d.Release(context.WithoutCancel(ctx), &backend.Grant{Request: *req})
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	stop = func() { cancel(); wg.Wait() }
	t.Cleanup(stop)
	return stop
}

// openSlow opens a driver on a slow network.
func openSlow(t *testing.T, s *testenv.Server) *driver {
	t.Helper()
	proxy := testenv.NewProxy(t, s.Addr)
	d := openURL(t, strings.Replace(s.URL, s.Addr, proxy.Addr(), 1))
	proxy.Latency(t, 40*time.Millisecond) // also on a slow machine other clients are faster
	return d
}

// overtaken is the time after which a slow client counts as overtaken for ever. Its changes take
// less than a second, and some seconds on a busy machine.
const overtaken = 30 * time.Second

// TestSlowClientIsNotOvertaken lets a client with a slow network use a semaphore that other clients
// change all the time. It acquires, renews and releases its permits as if it were alone.
func TestSlowClientIsNotOvertaken(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			busy, slow := openURL(t, s.URL), openSlow(t, s)
			key := t.Name()
			acquire(t, busy, permit(key, 1000)) // the row stays a roster
			churn(t, busy, func() *backend.Request { return permit(key, 1000) })
			g, other := acquire(t, slow, permit(key, 1000)), acquire(t, slow, permit(key, 1000))
			for range 5 {
				ctx, cancel := context.WithTimeout(t.Context(), overtaken)
				_, err := slow.Renew(ctx, g)
				if cancel(); err != nil {
					t.Fatalf("Renew: %v", err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), overtaken)
			defer cancel()
			for i, r := range slow.RenewAll(ctx, []*backend.Grant{g, other}) {
				if r.Err != nil {
					t.Errorf("RenewAll, grant %d: %v", i, r.Err)
				}
			}
			raw.Release(t, slow, g)
			raw.Release(t, slow, other)
		})
	}
}

// TestSlowWaiterIsNotOvertaken lets a writer with a slow network wait among readers of three other
// drivers, which come and go all the time. It enters the queue, and soon if the machine is not
// slow.
func TestSlowWaiterIsNotOvertaken(t *testing.T) {
	t.Parallel()
	const limit = 2 * time.Second
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			proxy := testenv.NewProxy(t, s.Addr)
			slow := openURL(t, strings.Replace(s.URL, s.Addr, proxy.Addr(), 1))
			proxy.Latency(t, 15*time.Millisecond)
			key := t.Name()
			for range 3 {
				d := openURL(t, s.URL)
				acquire(t, d, reader(key)) // the row stays a roster
				churn(t, d, func() *backend.Request {
					req := reader(key)
					req.Queue = false
					return req
				})
			}
			req := raw.Request(t, 2*overtaken)
			ctx, cancel := context.WithTimeout(t.Context(), overtaken)
			defer cancel()
			meter, began := lag.Start(), time.Now()
			defer meter.Stop()
			_, err := slow.Acquire(ctx, req)
			took, late := time.Since(began), meter.Worst(began)
			if b, ok := errors.AsType[*backend.Busy](err); !ok || !b.Queued {
				t.Errorf("Acquire after %v: %v, want a place in the queue", took, err)
			}
			inspected := time.Now()
			_, err = openURL(t, s.URL).Inspect(t.Context(), key)
			raw.WantIs(t, "Inspect", err, nil)
			answer := time.Since(inspected) // of a client that is near, which also connects
			text := fmt.Sprintf("Acquire took %v, in a process that was late by up to %v, and the "+
				"server took %v for a near client", took, late, answer)
			switch isSlow := late > limit/10 || answer > limit/4; {
			case took-late <= limit:
			case isSlow:
				t.Log(announce.Void(text))
			default:
				t.Error(text)
			}
			raw.Release(t, slow, &backend.Grant{Request: *req})
		})
	}
}

// placeOf returns since when the owner of req has its entry, or 0 if it has none.
func placeOf(t *testing.T, d *driver, req *backend.Request) (since int64) {
	t.Helper()
	r, err := roster.Parse([]byte(ask(t, d.pools.main.DB,
		"SELECT roster FROM dlock WHERE name = ?", []byte(req.Key))))
	if err != nil {
		t.Fatalf("the roster is %v, %v", r, err)
	}
	if e := r.Find(req.Owner); e != nil {
		return e.Since
	}
	return 0
}

// TestSlowWaiterIsServed lets a waiter with a slow network stand in the queue, while three other
// drivers enter and leave it all the time. It keeps its place for longer than an entry lasts, and
// then gets the lock.
func TestSlowWaiterIsServed(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			drivers := []*driver{openURL(t, s.URL), openURL(t, s.URL), openURL(t, s.URL)}
			slow := openSlow(t, s)
			// A waiter can keep its place if it comes often enough.
			for ttl := 3 * time.Second; ; ttl *= 2 {
				failure, slowest := serve(t, drivers, slow, ttl)
				if failure == "" {
					break
				}
				text := fmt.Sprintf("%s; it came after %v at most, and an entry lasts for %v",
					failure, slowest, roster.Place(ttl))
				if slowest < roster.Place(ttl)/2 || ttl > 2*roster.MaxPlace {
					t.Fatal(text)
				}
				t.Log(announce.Void(text))
			}
		})
	}
}

// serve lets a waiter of slow keep its place for twice its TTL, and then releases the lock for it.
// It returns what went wrong, and the longest time between two answers to the waiter.
func serve(
	t *testing.T, busy []*driver, slow *driver, ttl time.Duration,
) (failure string, slowest time.Duration) {
	t.Helper()
	fair := func(ttl time.Duration) *backend.Request {
		req := raw.Request(t, ttl)
		req.Fair = true
		return req
	}
	waiter := fair(ttl)
	request := func() *backend.Request {
		req := fair(time.Minute)
		req.Key = waiter.Key
		return req
	}
	first := request()
	first.TTL = 10 * time.Minute // nothing renews it
	holder := acquireSoon(t, busy[0], first)
	_ = raw.Busy(t, slow, waiter)
	since, last := placeOf(t, busy[0], waiter), time.Now()
	for _, d := range busy {
		defer churn(t, d, request)()
	}
	answered := func() {
		slowest, last = max(slowest, time.Since(last)), time.Now()
	}
	for began := last; time.Since(began) < 2*ttl; answered() {
		_ = raw.Busy(t, slow, waiter)
	}
	if again := placeOf(t, busy[0], waiter); again != since || since == 0 {
		failure = fmt.Sprintf("the waiter lost its place of %d, and has one of %d", since, again)
	}
	raw.Release(t, busy[0], holder)
	g, err := slow.Acquire(t.Context(), waiter)
	answered()
	if err != nil {
		g = &backend.Grant{Request: *waiter}
		failure = cmp.Or(failure, fmt.Sprintf("Acquire of the first waiter: %v", err))
	}
	_ = slow.Release(t.Context(), g)
	return failure, slowest
}

// brokenQuerier answers each statement with an error of the server.
type brokenQuerier struct {
	number uint16
	texts  []string // of the statements
}

func (q *brokenQuerier) ExecContext(_ context.Context, text string, _ ...any) (sql.Result, error) {
	q.texts = append(q.texts, text)
	return nil, &mysql.MySQLError{Number: q.number, Message: "broken"}
}

func (q *brokenQuerier) QueryContext(_ context.Context, text string, _ ...any) (*sql.Rows, error) {
	q.texts = append(q.texts, text)
	return nil, &mysql.MySQLError{Number: q.number, Message: "broken"}
}

// TestUnknownOutcomeIsReturned checks that a driver reads and writes a roster only after an error
// which proves that the simple change was not made. After any other error it may have been made, so
// a second attempt could report that the lock was not held.
func TestUnknownOutcomeIsReturned(t *testing.T) {
	t.Parallel()
	for number, want := range map[uint16]int{
		1053: 1, 1180: 1, 1205: 1, 1317: 1, 1927: 1, 1969: 1, 2013: 1, 3024: 1,
		1054: 2, 1064: 2, 1305: 2, 3140: 2, 3141: 2, 3157: 2, 4038: 2,
	} {
		for _, c := range []*change{{leaves: "a"}, {req: permit("key", 2)}} {
			d := &driver{text: newStatements("t"), changes: newChanges(), turns: newTurns()}
			q := &brokenQuerier{number: number}
			err := d.make(t.Context(), &edition{key: "key", q: q, changes: []*change{c}})
			if !hasNumber(err, number) || len(q.texts) != want {
				t.Errorf("error %d: %v after the statements %q", number, err, q.texts)
			}
		}
		d, q := &driver{text: newStatements("t")}, &brokenQuerier{number: number}
		a, done := d.renewEntry(t.Context(), q, &backend.Grant{Request: *permit("key", 2)})
		if done != (want == 1) || done && !hasNumber(a.Err, number) {
			t.Errorf("a renewal with error %d: %v, %t", number, a.Err, done)
		}
	}
}

// TestSwapOf checks which changes are made together in one statement.
func TestSwapOf(t *testing.T) {
	t.Parallel()
	leaves := func(owner string) *change { return &change{leaves: owner} }
	comes := func(req *backend.Request) *change { return &change{req: req} }
	many := make([]*change, maxLeaving+1)
	for i := range many {
		many[i] = leaves(raw.NewOwner())
	}
	wild := permit("key", 2)
	wild.Owner = "%"
	for _, tt := range []struct {
		name    string
		changes []*change
		want    bool
	}{
		{"none", nil, false},
		{"one leaves", []*change{leaves("a")}, true},
		{"two leave", []*change{leaves("a"), leaves("b")}, true},
		{"one leaves twice", []*change{leaves("a"), leaves("b"), leaves("a")}, false},
		{"too many leave", many, false},
		{"as many leave as possible", many[1:], true},
		{"one leaves, and one comes", []*change{leaves("a"), comes(reader("key"))}, true},
		{"two come", []*change{comes(permit("key", 2)), comes(permit("key", 2))}, false},
		{"a writer comes", []*change{comes(raw.Request(t, time.Minute))}, false},
		{"a wildcard comes", []*change{comes(wild)}, false},
		{"a wildcard leaves", []*change{leaves("a_")}, false},
		{"another change", []*change{{}}, false},
	} {
		if _, ok := swapOf(tt.changes); ok != tt.want {
			t.Errorf("%s: one statement is %t, want %t", tt.name, ok, tt.want)
		}
	}
}

// TestLateKillEndsNoWait lets a KILL QUERY, which was meant for the sleep of a watcher, interrupt
// the statement after it. The watcher reads the roster again.
func TestLateKillEndsNoWait(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := openURL(t, server(t).URL)
			g := acquire(t, d, reader(t.Name()))
			conn := oneConnection(t, d.pools.main.DB)
			once := &killedOnce{querier: conn}
			v, _, err := d.lookTwice(t.Context(), once, g.Key, nil)
			if err != nil || v.roster.Find(g.Owner) == nil || !once.isKilled {
				t.Errorf("the roster after a KILL QUERY: %+v, %v", v, err)
			}
			raw.Release(t, d, g)
		})
	}
}

// killedOnce interrupts its first query.
type killedOnce struct {
	querier
	isKilled bool
}

func (q *killedOnce) QueryContext(
	ctx context.Context, text string, args ...any,
) (*sql.Rows, error) {
	if !q.isKilled {
		q.isKilled = true
		return nil, &mysql.MySQLError{Number: errInterrupted, Message: "killed"}
	}
	return q.querier.QueryContext(ctx, text, args...)
}

// errorOf returns the error of exec.
func errorOf(_ outcome, err error) error { return err }

// renewalError returns the error of roster-renew.sql.
func renewalError(t *testing.T, d *driver, g *backend.Grant) error {
	t.Helper()
	return errorOf(exec(t.Context(), d.pools.main, d.text.rosterRenew,
		renewArgs(g.Key, g.Owner, int64(g.Fence), ceilMicros(g.TTL))...))
}

// TestUnreadableRosters checks that the errors of the servers' functions for JSON are known.
func TestUnreadableRosters(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := openURL(t, server(t).URL)
			key := raw.Request(t, time.Minute).Key
			g := acquire(t, d, permit(key, 2))
			s := &swap{coming: &change{req: permit(key, 2)}}
			leaving := &swap{leaving: []string{g.Owner}}
			entry := `[{"kind":"p2","owner":"` + g.Owner + `","granted":true,"expires":`
			for _, text := range []string{
				"", "x", "1", `"x"`, "{}", "[", "[1]", "null", `["\x"]`, "[\"\xff\"]",
				strings.Repeat("[", 200) + strings.Repeat("]", 200),
				entry + "null}]", entry + `"x"}]`, entry + "{}}]", entry + "1e99}]",
			} {
				do(t, d.pools.main.DB, "UPDATE dlock SET roster = ? WHERE name = ?",
					[]byte(text), []byte(key))
				for statement, err := range map[string]error{
					"take": errorOf(exec(t.Context(), d.pools.main, d.text.take(0),
						d.takeArgs(key, s)...)),
					"drop": errorOf(exec(t.Context(), d.pools.main, d.text.drop(1),
						d.dropArgs(key, leaving)...)),
					"renew": renewalError(t, d, g),
				} {
					if isReply(err) && !isUnreadable(err) {
						t.Errorf("%s of %.60q: %v", statement, text, err)
					}
				}
			}
		})
	}
}

// TestSlowReleaseIsNotOvertaken lets a reader with a slow network release its lock while a writer
// waits, and while other readers enter the queue and leave it all the time.
func TestSlowReleaseIsNotOvertaken(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			busy, slow := openURL(t, s.URL), openSlow(t, s)
			key, writer := t.Name(), raw.Request(t, time.Minute)
			g := acquire(t, slow, reader(key))
			_ = raw.Busy(t, busy, writer)
			churn(t, busy, func() *backend.Request { return reader(key) })
			meter, begun := lag.Start(), time.Now()
			defer meter.Stop()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := slow.Release(ctx, g); err != nil {
				t.Errorf("Release: %v", err)
			}
			took, late := time.Since(begun), meter.Worst(begun)
			if took-late > 5*time.Second {
				t.Errorf("Release took %v, in a process that was late by up to %v", took, late)
			}
			raw.Release(t, busy, acquire(t, busy, writer))
		})
	}
}

// TestOvertakenReleaseIsMadeAtOnce checks what follows after another client was faster than a
// release: a statement removes the holder, whatever the other entries are now.
func TestOvertakenReleaseIsMadeAtOnce(t *testing.T) {
	onEach(t, func(t *testing.T, s *testenv.Server, open openFunc) {
		t.Helper()
		d := open(t, s)
		g := acquire(t, d, reader(raw.Request(t, time.Minute).Key))
		writer := raw.Request(t, time.Minute)
		_ = raw.Busy(t, d, writer)
		c := &change{leaves: g.Owner}
		e := &edition{key: g.Key, q: d.pools.control.of(g.Key), changes: []*change{c}}
		err := d.insist(t.Context(), e, roster.Roster{{Owner: g.Owner}}, e.changes)
		if err != nil || !c.isMade || len(e.changes) > 0 {
			t.Errorf("insist: %v; made: %t; left: %v", err, c.isMade, e.changes)
		}
		raw.Release(t, d, acquire(t, d, writer))
	})
}

// TestOvertakenRequestIsGrantedAtOnce checks what follows after another client was faster than the
// request of a waiter: a statement grants the lock to it, or prolongs its place.
func TestOvertakenRequestIsGrantedAtOnce(t *testing.T) {
	onEach(t, func(t *testing.T, s *testenv.Server, open openFunc) {
		t.Helper()
		d := open(t, s)
		g := acquire(t, d, reader(raw.Request(t, time.Minute).Key))
		writer := raw.Request(t, time.Minute)
		_ = raw.Busy(t, d, writer)
		was := roster.Roster{
			{Owner: g.Owner, Word: kind.Reader}, {Owner: writer.Owner, Word: kind.Writer},
		}
		insist := func(was roster.Roster) (*change, *edition) {
			c := &change{req: writer}
			e := &edition{key: g.Key, q: d.pools.main.of(g.Key), changes: []*change{c}}
			if err := d.insist(t.Context(), e, was, e.changes); err != nil {
				t.Errorf("insist: %v", err)
			}
			return c, e
		}
		if c, e := insist(was); c.isMade || len(e.changes) != 1 {
			t.Error("a waiter behind a reader was granted")
		}
		raw.Release(t, d, g)
		c, e := insist(was[1:])
		if !c.isMade || c.grant == nil || len(e.changes) > 0 {
			t.Fatalf("made: %t; grant: %v; left: %v", c.isMade, c.grant, e.changes)
		}
		if again := acquire(t, d, writer); again.Fence != c.grant.Fence {
			t.Errorf("the grant has the fence %d, want %d", c.grant.Fence, again.Fence)
		}
		raw.Release(t, d, c.grant)
	})
}

// TestImpatientCallerDisturbsNoOther lets callers with short contexts share their editions with a
// patient one, on a network that takes longer. The patient caller has its answer.
func TestImpatientCallerDisturbsNoOther(t *testing.T) {
	t.Parallel()
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			proxy := testenv.NewProxy(t, s.Addr)
			near := openURL(t, s.URL)
			d := openURL(t, strings.Replace(s.URL, s.Addr, proxy.Addr(), 1))
			key := t.Name()
			acquire(t, near, permit(key, 1000))
			proxy.Latency(t, 100*time.Millisecond)
			ctx, cancel := context.WithCancel(t.Context())
			var impatient sync.WaitGroup
			for i := range time.Duration(6) { // some end during the reading, and some after it
				impatient.Go(func() {
					for ctx.Err() == nil {
						short, end := context.WithTimeout(ctx, (20+80*i)*time.Millisecond)
						_, _ = d.Acquire(short, permit(key, 1000))
						end()
					}
				})
			}
			defer func() { cancel(); impatient.Wait() }()
			for range 10 {
				if _, err := d.Acquire(t.Context(), permit(key, 1000)); err != nil {
					t.Errorf("a patient Acquire: %v", err)
				}
			}
		})
	}
}

// stuck is a context whose Deadline does not return before its end.
type stuck struct {
	context.Context
	called chan struct{} // is closed by the call
}

// Deadline implements context.Context.
func (s stuck) Deadline() (time.Time, bool) {
	close(s.called)
	<-s.Done()
	return time.Time{}, false
}

// TestContextOfACallerStopsNoOther has a caller whose context blocks.
func TestContextOfACallerStopsNoOther(t *testing.T) {
	t.Parallel()
	s, called := newChanges(), make(chan struct{})
	s.enter(t.Context(), "key", new(change))
	go s.enter(stuck{t.Context(), called}, "key", new(change))
	<-called
	entered := make(chan bool, 1)
	go func() { entered <- s.enter(t.Context(), "another key", new(change)) }()
	select {
	case <-entered:
	case <-time.After(patience):
		t.Error("a context that blocks stops all changes")
	}
}

// TestGivenUpChangeIsNotMade ends the context of a caller whose change waits for an edition. No
// statement contains the change afterwards.
func TestGivenUpChangeIsNotMade(t *testing.T) {
	onEach(t, func(t *testing.T, s *testenv.Server, open openFunc) {
		t.Helper()
		d, db := open(t, s), database(t, s, "")
		for void := 1; !giveUpAChange(t, d, db); void++ {
			t.Log(announce.Void("the change was sent before its caller gave up"))
			if void == 5 {
				t.Fatalf("%d changes were sent before their callers gave up", void)
			}
		}
	})
}

// giveUpAChange lets two changes of a locked roster begin, and gives up the second one while it
// waits. It returns false if a second edition had already begun with the change.
func giveUpAChange(t *testing.T, d *driver, db *sql.DB) bool {
	t.Helper()
	key := raw.Request(t, time.Minute).Key
	g := acquire(t, d, permit(key, 8))
	defer raw.Release(t, d, g)
	conn := oneConnection(t, db)
	do(t, conn, "START TRANSACTION")
	do(t, conn, "SELECT name FROM dlock FORCE INDEX (PRIMARY) WHERE name = ? FOR UPDATE",
		[]byte(key))
	first, second := permit(key, 8), permit(key, 8)
	done, given := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := d.Acquire(t.Context(), first)
		done <- err
	}()
	editions := func() (under, waiting int) {
		d.changes.mu.Lock()
		defer d.changes.mu.Unlock()
		if k := d.changes.byKey[key]; k != nil {
			return k.editions, len(k.waiting)
		}
		return 0, 0
	}
	eventually(t, "an edition is under way", func() bool { n, _ := editions(); return n > 0 })
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, err := d.Acquire(ctx, second)
		given <- err
	}()
	eventually(t, "the second change waits", func() bool { n, m := editions(); return n+m > 1 })
	cancel()
	raw.WantIs(t, "the second Acquire", <-given, context.Canceled)
	under, _ := editions()
	do(t, conn, "COMMIT")
	if err := <-done; err != nil && !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("the first Acquire: %v", err)
	}
	eventually(t, "no edition is under way", func() bool { n, _ := editions(); return n == 0 })
	err := d.Release(t.Context(), &backend.Grant{Request: *second})
	if under > 1 {
		return false
	}
	raw.WantIs(t, "Release of the second", err, backend.ErrNotHeld)
	return true
}

// overtakenQuerier is overtaken by another client at the first write of a roster, and its server
// then refuses each further read.
type overtakenQuerier struct {
	querier
	text        *statements
	isOvertaken bool
}

func (q *overtakenQuerier) ExecContext(
	ctx context.Context, text string, args ...any,
) (sql.Result, error) {
	if text == q.text.rosterWrite {
		q.isOvertaken = true
		return unchanged{}, nil
	}
	return q.querier.ExecContext(ctx, text, args...)
}

func (q *overtakenQuerier) QueryContext(
	ctx context.Context, text string, args ...any,
) (*sql.Rows, error) {
	if q.isOvertaken {
		return nil, &mysql.MySQLError{Number: errLockWait, Message: "the row is locked"}
	}
	return q.querier.QueryContext(ctx, text, args...)
}

// unchanged is the result of a statement that has changed nothing.
type unchanged struct{}

func (unchanged) RowsAffected() (int64, error) { return 0, nil }
func (unchanged) LastInsertId() (int64, error) { return 0, nil }

// TestWaiterWithAnEntryIsQueued lets the server refuse a request whose waiter has an entry already.
// The request must not count as one that was not executed: the caller would not release the entry.
func TestWaiterWithAnEntryIsQueued(t *testing.T) {
	onEach(t, func(t *testing.T, s *testenv.Server, open openFunc) {
		t.Helper()
		d := open(t, s)
		g := acquire(t, d, reader(raw.Request(t, time.Minute).Key))
		req := raw.Request(t, time.Minute)
		q := &overtakenQuerier{querier: oneConnection(t, d.pools.main.DB), text: d.text}
		c := &change{q: q, req: req, apply: func(r *roster.Roster, row *rosterRow) error {
			_, err := r.Acquire(req, uint64(row.draw()), row.now)
			return err
		}}
		err := d.change(t.Context(), g.Key, c)
		if b, ok := errors.AsType[*backend.Busy](err); !ok || !b.Queued {
			t.Errorf("the answer is %v, want a place in the queue", err)
		}
		v, _, err := d.lookTwice(t.Context(), d.pools.main, g.Key, nil)
		if err != nil || v.roster.Find(req.Owner) == nil || v.token != c.token {
			t.Errorf("the roster: %+v, %v; the token of the entry: %d", v, err, c.token)
		}
		raw.Release(t, d, g)
		raw.Release(t, d, acquire(t, d, req))
	})
}

// TestUnreadableChangeIsRepeated has a server that cannot read a roster in the statement of a slow
// client, for example because of the connection's character set. The next round reads the roster.
func TestUnreadableChangeIsRepeated(t *testing.T) {
	t.Parallel()
	for number, want := range map[uint16]bool{3144: true, errLockWait: false} {
		d := &driver{text: newStatements("dlock"), maxRoster: maxRoster}
		e := &edition{q: &brokenQuerier{number: number}, changes: []*change{{req: reader("x")}}}
		if err := d.insist(t.Context(), e, nil, e.changes); (err == nil) != want {
			t.Errorf("after error %d: %v", number, err)
		}
	}
}

// TestSmallPackets has a server with a small max_allowed_packet. Rosters that it grants can be
// renewed and released, and so can many locks with long names. A sweep deletes their rows.
func TestSmallPackets(t *testing.T) {
	t.Parallel()
	for name, start := range starters {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, "--max-allowed-packet=65536")
			d := openURL(t, s.URL)
			d.sweeping.Store(true) // prevents sweeps
			var gs []*backend.Grant
			for i := range 80 {
				req := raw.Request(t, time.Minute)
				req.Key = fmt.Sprint(strings.Repeat("n", 1000), i)
				gs = append(gs, acquire(t, d, req))
			}
			for {
				req := permit("full", 1000)
				req.Meta = strings.Repeat(`"`, 200)
				g, err := d.Acquire(t.Context(), req)
				if err != nil {
					raw.WantIs(t, "Acquire without room", err, backend.ErrUnavailable)
					break
				}
				gs = append(gs, g)
			}
			for i, r := range d.RenewAll(t.Context(), gs) {
				if r.Err != nil {
					t.Fatalf("renewal %d of %d: %v", i, len(gs), r.Err)
				}
			}
			for _, g := range gs {
				raw.Release(t, d, g)
			}
			db := database(t, s, "")
			do(t, db, "UPDATE dlock SET expires = expires - INTERVAL 2 DAY")
			_, err := d.sweep(t.Context())
			raw.WantIs(t, "sweep", err, nil)
			const unused = "SELECT COUNT(*) FROM dlock WHERE name LIKE 'nnn%'"
			if n := ask(t, db, unused); n != "0" {
				t.Errorf("%s names are left after a sweep", n)
			}
		})
	}
}
