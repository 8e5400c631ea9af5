package pgbackend

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/lag"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestStalledConnectionsDelayNoRenewal has requests on connections that the network does not serve
// any more.
func TestStalledConnectionsDelayNoRenewal(t *testing.T) {
	t.Parallel()
	stall(t, 0)
}

// TestSilentConnectionsDelayNoRenewal is the same with connections that were idle, which are
// checked first.
func TestSilentConnectionsDelayNoRenewal(t *testing.T) {
	t.Parallel()
	stall(t, pingAfter)
}

// hasty opens a driver whose timeout is short, because a test waits for it. On a slow machine the
// first connection may take longer, and is opened again.
func hasty(t *testing.T, url string) *driver {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		d, err := testenv.Open(t.Context(), url+"?timeout=1s")
		if err == nil {
			t.Cleanup(func() { _ = d.Close() })
			return d.(*driver)
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// stall has requests time out on connections that were idle for a time, and that the network does
// not serve any more. New connections are served, so a renewal succeeds long before pgx by itself
// gives up the connections, after 15 s.
func stall(t *testing.T, idle time.Duration) {
	t.Helper()
	s := testenv.Postgres(t)
	h, direct := testenv.NewHarness[testenv.TB](t, s), opened(t, s.URL+"?timeout=30s")
	d := hasty(t, h.URL())
	g := raw.Acquire(t, direct, raw.Request(t, time.Minute))
	fillPool(t, d)
	h.Delay(t)
	time.Sleep(idle)
	meter, begun := lag.Start(), time.Now()
	defer meter.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var requests sync.WaitGroup
	for range maxConns { // each has a connection of the pool
		requests.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, 4*time.Second)
			defer cancel()
			conn, err := d.pool.(pgxPool).Acquire(ctx)
			if err == nil {
				conn.Release()
			}
		})
	}
	for range 3 * maxConns {
		requests.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, 4*time.Second)
			defer cancel()
			req := raw.Request(t, time.Minute)
			req.Key += raw.NewOwner()
			_, _ = d.Acquire(ctx, req)
		})
	}
	requests.Wait()
	for {
		attempt, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		_, err := d.Renew(attempt, g)
		cancel()
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("Renew: %v", err)
		}
	}
	took, late := time.Since(begun), meter.Worst(begun)
	if took-late > 12*time.Second {
		t.Errorf("Renew succeeds after %v, in a process that was late by up to %v", took, late)
	}
	raw.Release(t, direct, g)
}

// TestSlotLastsAsLongAsItsConnection ends a request in a black hole. The connection has ended when
// the slot of the request is free, long before the 15 s of pgx.
func TestSlotLastsAsLongAsItsConnection(t *testing.T) {
	t.Parallel()
	h := testenv.NewHarness[testenv.TB](t, testenv.Postgres(t))
	d := hasty(t, h.URL())
	var ended <-chan struct{}
	meter, begun := lag.Start(), time.Now()
	defer meter.Stop()
	_, err := call(context.Background(), d, d.main, // returns when the slot is free
		func(ctx context.Context, conn *pgx.Conn) (struct{}, error) {
			h.Cut(t)
			ended = conn.PgConn().CleanupDone()
			_, err := conn.Exec(ctx, "SELECT")
			return struct{}{}, err
		})
	raw.WantIs(t, "a request in a black hole", err, errNoAnswer)
	select {
	case <-ended:
	default:
		t.Error("the slot is free, and the connection has not ended")
	}
	took, late := time.Since(begun), meter.Worst(begun)
	if took-late > 12*time.Second {
		t.Errorf("the connection has ended after %v, in a process that was late by up to %v",
			took, late)
	}
}

// TestHangingCancelRequestsDelayNoRenewal has renewals on a pool of the caller time out. The cancel
// requests of pgx hang, but later connections are served. So a renewal succeeds long before pgx
// gives up the cancel requests, after 15 s.
func TestHangingCancelRequestsDelayNoRenewal(t *testing.T) {
	t.Parallel()
	opts := &Options{Timeout: time.Second}
	t.Run("New", func(t *testing.T) {
		t.Parallel()
		hangCancelRequests(t, func(config *pgx.ConnConfig, size int) (backend.Driver, error) {
			pooled, err := pgxpool.ParseConfig(config.ConnString())
			if err != nil {
				return nil, err
			}
			pooled.ConnConfig.DialFunc, pooled.MaxConns = config.DialFunc, int32(size)
			pool, err := pgxpool.NewWithConfig(t.Context(), pooled)
			if err != nil {
				return nil, err
			}
			t.Cleanup(pool.Close)
			return New(pool, opts)
		})
	})
	t.Run("NewDB", func(t *testing.T) {
		t.Parallel()
		hangCancelRequests(t, func(config *pgx.ConnConfig, size int) (backend.Driver, error) {
			db := stdlib.OpenDB(*config)
			db.SetMaxOpenConns(size)
			t.Cleanup(func() { _ = db.Close() })
			return NewDB(db, opts)
		})
	})
}

// hangCancelRequests has requests time out that have all slots for renewals, and all connections of
// the pool that lend makes.
func hangCancelRequests(
	t *testing.T, lend func(config *pgx.ConnConfig, size int) (backend.Driver, error),
) {
	t.Helper()
	s := testenv.Postgres(t)
	h := testenv.NewHarness[testenv.TB](t, s)
	config, err := pgx.ParseConfig(h.URL())
	if err != nil {
		t.Fatal(err)
	}
	var dialer net.Dialer
	var isCut, isServed atomic.Bool
	const size = reserved
	cancels := make(chan struct{}, size)
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if isServed.Load() {
			return dialer.DialContext(ctx, network, s.Addr)
		}
		conn, err := dialer.DialContext(ctx, network, addr)
		if isCut.Load() {
			cancels <- struct{}{}
		}
		return conn, err
	}
	lent, err := lend(config, size)
	if err != nil {
		t.Fatal(err)
	}
	d, direct := lent.(*driver), opened(t, s.URL+"?timeout=30s")
	t.Cleanup(func() { _ = d.Close() })
	g := raw.Acquire(t, direct, raw.Request(t, time.Minute))
	var ready, requests sync.WaitGroup
	ready.Add(size)
	for i := range size {
		l := []*lane{d.renewals, d.main}[i%2]
		requests.Go(func() {
			_, err := call(context.Background(), d, l,
				func(ctx context.Context, conn *pgx.Conn) (struct{}, error) {
					ready.Done()
					ready.Wait() // until all connections are made
					h.Cut(t)
					isCut.Store(true)
					_, err := conn.Exec(ctx, "SELECT")
					return struct{}{}, err
				})
			raw.WantIs(t, "a request in a black hole", err, errNoAnswer)
		})
	}
	for range size {
		<-cancels
	}
	isServed.Store(true)
	meter, begun := lag.Start(), time.Now()
	defer meter.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := d.Renew(ctx, g); err != nil {
		t.Errorf("Renew: %v", err)
	}
	took, late := time.Since(begun), meter.Worst(begun)
	if took-late > 10*time.Second {
		t.Errorf("Renew took %v, in a process that was late by up to %v", took, late)
	}
	requests.Wait()
	raw.Release(t, direct, g)
}

// fillPool makes all connections of the pool. On a slow machine one of them may take longer than
// the driver's timeout.
func fillPool(t *testing.T, d *driver) {
	t.Helper()
	end := time.Now().Add(time.Minute)
	for n := 0; n < maxConns; {
		conn, err := d.pool.(pgxPool).Acquire(t.Context())
		if err == nil {
			n++
			defer conn.Release()
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// TestReleaseWaitsForACommit has acquisitions whose commits wait for a standby. They are executed
// when the standby is there again, so that a release before finds nothing, but must not answer so.
func TestReleaseWaitsForACommit(t *testing.T) {
	t.Parallel()
	s := testenv.NewPostgres(t)
	d, other := opened(t, s.URL+"?timeout=1m"), opened(t, s.URL+"?timeout=1m")
	raw.Release(t, d, raw.Acquire(t, d, raw.Request(t, time.Minute)))
	old, fresh := raw.Request(t, time.Hour), raw.Request(t, time.Hour) // with a row, and without
	fresh.Key += "/fresh"
	holdCommits(t, s.URL)
	conn := connected(t, s.URL)
	var ghosts sync.WaitGroup
	for n, ghost := range []*backend.Request{old, fresh} {
		ghosts.Go(func() { _, _ = other.Acquire(t.Context(), ghost) })
		awaitCommits(t, conn, n+1)
		err := d.Release(t.Context(), &backend.Grant{Request: *ghost})
		raw.WantIs(t, "Release during the commit", err, backend.ErrUnavailable)
	}
	never := raw.Request(t, time.Hour)
	never.Key += "/never"
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	raw.WantIs(t, "Release of what was never acquired",
		d.Release(ctx, &backend.Grant{Request: *never}), backend.ErrNotHeld)
	exec(t, conn, `ALTER SYSTEM RESET synchronous_standby_names`)
	exec(t, conn, `SELECT pg_reload_conf()`)
	ghosts.Wait()
	for _, ghost := range []*backend.Request{old, fresh} {
		raw.Release(t, d, &backend.Grant{Request: *ghost})
		next := *ghost
		next.Owner = raw.NewOwner()
		raw.Release(t, d, raw.Acquire(t, d, &next))
	}
}

// holdCommits makes all commits of a server wait for a standby that does not exist.
func holdCommits(t *testing.T, url string) {
	t.Helper()
	conn := connected(t, url)
	exec(t, conn, `ALTER SYSTEM SET synchronous_standby_names = 'nowhere'`)
	exec(t, conn, `SELECT pg_reload_conf()`)
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		_, err := connected(t, url).Exec(ctx, `SELECT pg_logical_emit_message(true, 'test', '')`)
		cancel()
		if err != nil {
			return
		}
	}
	t.Fatal("commits do not wait for a standby")
}

// awaitCommits waits until n commits of drivers wait for a standby.
func awaitCommits(t *testing.T, conn *pgx.Conn, n int) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; {
		var waiting int
		err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE wait_event = 'SyncRep' AND application_name = 'dlock'`).Scan(&waiting)
		if err != nil {
			t.Fatal(err)
		}
		if waiting == n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d commits wait for a standby, want %d", waiting, n)
		}
	}
}
