package pgbackend

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
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

// TestResetSocketDiscards has more to send than its peer reads.
func TestResetSocketDiscards(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	peer, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
	for err == nil { // until all buffers are full
		_, err = conn.Write(make([]byte, 1<<20))
	}
	resetSocket(&trackedConn{Conn: conn})
	if _, err := io.Copy(io.Discard, peer); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the peer reads until %v", err)
	}
}

// TestLockedRowsTakeNoRenewal renews grants in rosters, whose rows are locked. No statement may
// wait for them, because the renewals of all locks have few connections.
func TestLockedRowsTakeNoRenewal(t *testing.T) {
	t.Parallel()
	s := testenv.Postgres(t)
	d, conn := opened(t, s.URL), connected(t, s.URL)
	plain, reader := raw.Request(t, time.Minute), raw.Request(t, time.Minute)
	reader.Key, reader.Mode = plain.Key+"/reader", backend.Shared
	for _, req := range []*backend.Request{plain, reader} {
		g := raw.Acquire(t, d, req)
		lockRow(t, conn, req.Key)
		_, err := d.Renew(t.Context(), g)
		raw.WantIs(t, "Renew with a locked row", err, errLocked)
		err = d.RenewAll(t.Context(), []*backend.Grant{g})[0].Err
		raw.WantIs(t, "RenewAll with a locked row", err, errLocked)
		exec(t, conn, `ROLLBACK`)
		if _, err := d.Renew(t.Context(), g); err != nil {
			t.Errorf("Renew: %v", err)
		}
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
	s := testenv.NewPostgres(t)
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
