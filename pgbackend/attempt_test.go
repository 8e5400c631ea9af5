package pgbackend

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// lent returns a driver of a pool whose statements have no limit on the server, and which allows
// each request more time than a test has.
func lent(t *testing.T, url string) *driver {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	d, err := New(pool, &Options{Timeout: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d.(*driver)
}

// lockRow locks the row of a name until the connection ends its transaction.
func lockRow(t *testing.T, conn *pgx.Conn, key string) {
	t.Helper()
	exec(t, conn, `BEGIN`)
	exec(t, conn, `SELECT FROM dlock WHERE name = $1 FOR UPDATE`, name(key))
}

// giveUp gives up attempts to acquire a lock whose row is locked, at the same time.
func giveUp(t *testing.T, d *driver, key string, n int) {
	t.Helper()
	var attempts sync.WaitGroup
	for range n {
		attempts.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			req := raw.Request(t, time.Minute)
			req.Key = key
			_, err := d.Acquire(ctx, req)
			raw.WantIs(t, "Acquire of a locked row", err, context.DeadlineExceeded)
		})
	}
	attempts.Wait()
}

// TestAbandonedRequestEnds gives up an attempt that waits for a row, which stays locked.
func TestAbandonedRequestEnds(t *testing.T) {
	t.Parallel()
	s := testenv.NewPostgres(t)
	d, conn := lent(t, s.URL), connected(t, s.URL)
	req := raw.Request(t, time.Minute)
	raw.Release(t, d, raw.Acquire(t, d, req))
	lockRow(t, conn, req.Key)
	giveUp(t, d, req.Key, 1)
	other := connected(t, s.URL)
	for end := time.Now().Add(30 * time.Second); ; {
		var waiting int
		err := other.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE wait_event_type = 'Lock'`).Scan(&waiting)
		if err != nil {
			t.Fatal(err)
		}
		if waiting == 0 && len(d.main.slots) == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d statements wait, %d slots are taken", waiting, len(d.main.slots))
		}
	}
	if n := d.main.abandoned.Load(); n != 0 {
		t.Errorf("%d requests count as abandoned", n)
	}
}

// TestAbandonedRequestsLeaveSlots gives up more attempts than there are slots, for one row that is
// locked. Those for the other rows are served meanwhile.
func TestAbandonedRequestsLeaveSlots(t *testing.T) {
	t.Parallel()
	s := testenv.NewPostgres(t)
	d, conn := lent(t, s.URL+"?pool_max_conns=8"), connected(t, s.URL)
	req, other := raw.Request(t, time.Minute), raw.Request(t, time.Minute)
	other.Key += "/other"
	raw.Release(t, d, raw.Acquire(t, d, req))
	lockRow(t, conn, req.Key)
	l := d.main
	for range (cap(l.slots) + 1) / 2 {
		if !l.abandon() {
			t.Fatal("no request can be abandoned")
		}
	}
	if l.abandon() {
		t.Error("requests that were given up can have all slots")
	}
	giveUp(t, d, req.Key, 2*cap(l.slots)) // none of them may go on
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	g, err := d.Acquire(ctx, other)
	if err != nil {
		t.Fatalf("Acquire of another lock: %v", err)
	}
	raw.Release(t, d, g)
}

// TestReleasesOfALockedRowTakeOneSlot releases what was never acquired, while the row is locked.
// The releases wait for it, and only one of them has a slot.
func TestReleasesOfALockedRowTakeOneSlot(t *testing.T) {
	t.Parallel()
	s := testenv.NewPostgres(t)
	d, conn := lent(t, s.URL+"?pool_max_conns=8"), connected(t, s.URL)
	req, other := raw.Request(t, time.Minute), raw.Request(t, time.Minute)
	other.Key += "/other"
	raw.Release(t, d, raw.Acquire(t, d, req))
	exec(t, conn, `BEGIN`)
	exec(t, conn, `UPDATE dlock SET version = version + 1 WHERE name = $1`, name(req.Key))
	var releases sync.WaitGroup
	for range 4 * cap(d.main.slots) {
		releases.Go(func() {
			ghost := raw.Request(t, time.Minute)
			ghost.Key = req.Key
			err := d.Release(t.Context(), &backend.Grant{Request: *ghost})
			raw.WantIs(t, "Release of a ghost", err, backend.ErrNotHeld)
		})
	}
	awaitLocked(t, s.URL)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for range 20 {
		g, err := d.Acquire(ctx, other)
		if err != nil {
			t.Fatalf("Acquire of another lock: %v", err)
		}
		raw.Release(t, d, g)
	}
	exec(t, conn, `ROLLBACK`)
	releases.Wait()
}

// TestResetConnectionSendsNothing gives up a request that the server does not read.
func TestResetConnectionSendsNothing(t *testing.T) {
	t.Parallel()
	raw.Discards(t, true, func(addr string) (net.Conn, error) {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return nil, err
		}
		tracked := &trackedConn{Conn: conn, dialer: newDialer(nil, 0)}
		made, err := pgconn.Construct(&pgconn.HijackedConn{Conn: tracked, Config: &pgconn.Config{
			BuildFrontend: func(r io.Reader, w io.Writer) *pgproto3.Frontend {
				return pgproto3.NewFrontend(r, w)
			},
			BuildContextWatcherHandler: func(*pgconn.PgConn) ctxwatch.Handler { return nil },
		}})
		a := &attempt{lane: newLane(1)}
		a.begin(made, time.Minute)
		return aborted{tracked, a}, err
	})
}

// aborted is a connection whose Close gives up its request.
type aborted struct {
	net.Conn
	attempt *attempt
}

func (c aborted) Close() error {
	c.attempt.mu.Lock()
	defer c.attempt.mu.Unlock()
	c.attempt.reset()
	return nil
}

// TestLockedRowsTakeHalfOfTheRenewals renews grants whose rows are locked. The renewals of all
// locks have few connections, and only half of them may wait for rows.
func TestLockedRowsTakeHalfOfTheRenewals(t *testing.T) {
	t.Parallel()
	s := testenv.NewPostgres(t)
	d, conn, locker := opened(t, s.URL+"?timeout=1m"), connected(t, s.URL), connected(t, s.URL)
	var grants []*backend.Grant
	exec(t, locker, `BEGIN`)
	for i := range 2 * reserved {
		req := raw.Request(t, time.Minute)
		req.Key += string(rune('a' + i))
		if i%2 == 0 {
			req.Mode = backend.Shared
		}
		grants = append(grants, raw.Acquire(t, d, req))
		exec(t, locker, `SELECT FROM dlock WHERE name = $1 FOR UPDATE`, name(req.Key))
	}
	var renewals sync.WaitGroup
	for _, g := range grants {
		renewals.Go(func() {
			_, err := d.Renew(t.Context(), g)
			raw.WantIs(t, "Renew with a locked row", err, backend.ErrUnavailable)
		})
	}
	done := make(chan struct{})
	go func() { renewals.Wait(); close(done) }()
	most := 0
	for waiting := 0; ; most = max(most, waiting) {
		err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE wait_event_type = 'Lock' AND application_name = 'dlock'`).Scan(&waiting)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-done:
		default:
			continue
		}
		break
	}
	if most < 1 || most > reserved/2 {
		t.Errorf("%d renewals waited for locked rows", most)
	}
	exec(t, locker, `ROLLBACK`)
	for _, g := range grants {
		raw.Release(t, d, g)
	}
}

// TestRenewalGetsItsTurn renews locks whose row is locked until the statement waits for it. Only so
// it gets its turn at a row that many clients change. Other renewals have connections meanwhile.
func TestRenewalGetsItsTurn(t *testing.T) {
	t.Parallel()
	s := testenv.NewPostgres(t)
	d, conn := opened(t, s.URL), connected(t, s.URL)
	for _, mode := range []backend.Mode{backend.Exclusive, backend.Shared} {
		req := raw.Request(t, time.Minute)
		req.Mode = mode
		g := raw.Acquire(t, d, req)
		lockRow(t, conn, g.Key)
		answered := make(chan error)
		go func() {
			_, err := d.Renew(t.Context(), g)
			answered <- err
		}()
		awaitLocked(t, s.URL)
		if waiting, more := len(d.patient.slots), len(d.renewals.slots); waiting != 1 || more > 0 {
			t.Errorf("%d statements may wait, %d more are under way", waiting, more)
		}
		exec(t, conn, `ROLLBACK`)
		if err := <-answered; err != nil {
			t.Errorf("Renew: %v", err)
		}
		raw.Release(t, d, g)
	}
}

// TestLockedRosterEndsNoConnection renews readers whose rows stay locked. The server ends the waits
// before the client gives up, so the connections are there for other renewals.
func TestLockedRosterEndsNoConnection(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), testenv.Postgres(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	lent, err := New(pool, &Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	d := lent.(*driver)
	t.Cleanup(func() { _ = d.Close() })
	var renewals sync.WaitGroup
	for i := range cap(d.patient.slots) {
		req := raw.Request(t, time.Minute)
		req.Mode = backend.Shared
		req.Key += string(rune('a' + i))
		g := raw.Acquire(t, d, req)
		locker := connected(t, testenv.Postgres(t).URL)
		lockRow(t, locker, req.Key)
		renewals.Go(func() {
			// Of 20 s, the server has 10 s to wait, and then 5 s to answer.
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			_, err := d.Renew(ctx, g)
			raw.WantIs(t, "Renew of a locked row", err, backend.ErrUnavailable)
			if !hasCode(err, "55P03") { // lock_not_available
				t.Errorf("Renew of a locked row: %v, want an answer of the server", err)
			}
			exec(t, locker, `ROLLBACK`)
			raw.Release(t, d, g)
		})
	}
	renewals.Wait()
}

// TestLockedRostersDelayNoOther renews readers of which most have locked rows. The rest is renewed
// before any renewal waits.
func TestLockedRostersDelayNoOther(t *testing.T) {
	t.Parallel()
	s := testenv.Postgres(t)
	d, locker := opened(t, s.URL+"?timeout=1m"), connected(t, s.URL)
	var grants []*backend.Grant
	for i := range 24 {
		req := raw.Request(t, time.Hour)
		req.Mode = backend.Shared
		req.Key += string(rune('a' + i))
		grants = append(grants, raw.Acquire(t, d, req))
	}
	exec(t, locker, `BEGIN`)
	for _, g := range grants[4:] {
		exec(t, locker, `SELECT FROM dlock WHERE name = $1 FOR UPDATE`, name(g.Key))
	}
	for range cap(d.patient.slots) { // so that what waits has no answer
		d.patient.slots <- struct{}{}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for i, r := range d.RenewAll(ctx, grants) {
		if isLocked := i >= 4; isLocked != (r.Err != nil) {
			t.Errorf("renewal %d: %v", i, r.Err)
		}
	}
	for range cap(d.patient.slots) {
		<-d.patient.slots
	}
	exec(t, locker, `ROLLBACK`)
	for _, g := range grants {
		raw.Release(t, d, g)
	}
}

// TestSilentConnectionsAreNotTriedSingly has idle connections that the network does not serve any
// more. A check of one takes a second, and a renewal has no time to check all of them.
func TestSilentConnectionsAreNotTriedSingly(t *testing.T) {
	t.Parallel()
	h := testenv.NewHarness[testenv.TB](t, testenv.Postgres(t))
	d := opened(t, h.URL())
	g := raw.Acquire(t, d, raw.Request(t, time.Minute))
	fillPool(t, d)
	h.Delay(t)
	time.Sleep(pingAfter) // otherwise they are not checked
	ctx, cancel := context.WithTimeout(t.Context(), maxConns*pingTimeout/2)
	defer cancel()
	if _, err := d.Renew(ctx, g); err != nil {
		t.Errorf("Renew: %v", err)
	}
	raw.Release(t, d, g)
}

// TestCancelledCommitIsNoSuccess has an operator cancel a commit that waits for a standby. The
// server then answers as if the standby had it.
func TestCancelledCommitIsNoSuccess(t *testing.T) {
	t.Parallel()
	s := testenv.NewPostgres(t, "-c", "client_min_messages=error")
	d, conn := opened(t, s.URL+"?timeout=1m"), connected(t, s.URL)
	req := raw.Request(t, time.Minute)
	raw.Release(t, d, raw.Acquire(t, d, req))
	holdCommits(t, s.URL)
	answer := make(chan error)
	go func() {
		_, err := d.Acquire(t.Context(), req)
		answer <- err
	}()
	for {
		select {
		case err := <-answer:
			raw.WantIs(t, "Acquire without a standby", err, errUnreplicated)
			return
		case <-t.Context().Done():
			return
		default:
			exec(t, conn, `SELECT pg_cancel_backend(pid) FROM pg_stat_activity
				WHERE wait_event = 'SyncRep' AND application_name = 'dlock'`)
		}
	}
}

// TestRefusedMessageDelaysNoRelease has a user that may not send messages. A release with a waiter
// succeeds without one.
func TestRefusedMessageDelaysNoRelease(t *testing.T) {
	t.Parallel()
	s := testenv.NewPostgres(t)
	conn := connected(t, s.URL)
	for _, sql := range []string{
		`CREATE ROLE quiet LOGIN PASSWORD 'correct-horse'`,
		`GRANT CREATE ON SCHEMA public TO quiet`,
		`REVOKE EXECUTE ON FUNCTION pg_notify(text, text) FROM PUBLIC`,
	} {
		exec(t, conn, sql)
	}
	d := opened(t, "postgres://quiet:correct-horse@"+s.Addr+"/dlock")
	g, waiter := raw.Acquire(t, d, raw.Request(t, time.Minute)), raw.Request(t, time.Minute)
	_ = raw.Busy(t, d, waiter)
	raw.Release(t, d, g)
	raw.Release(t, d, raw.Acquire(t, d, waiter))
}
