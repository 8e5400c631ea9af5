package pgbackend

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/roster"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestUncontendedPairSendsNoMessage listens while locks are taken and freed without waiters. NOTIFY
// would make the commits of the whole server wait for each other.
func TestUncontendedPairSendsNoMessage(t *testing.T) {
	t.Parallel()
	s := testenv.NewPostgres(t)
	d, conn := opened(t, s.URL), connected(t, s.URL)
	exec(t, conn, "LISTEN "+channel)
	for range 3 {
		g := raw.Acquire(t, d, raw.Request(t, time.Minute))
		busy := raw.Request(t, time.Minute)
		busy.Queue = false
		_ = raw.Busy(t, d, busy)
		d.RenewAll(t.Context(), []*backend.Grant{g})
		raw.Release(t, d, g)
	}
	exec(t, connected(t, s.URL), "NOTIFY "+channel+", 'last'")
	note, err := conn.WaitForNotification(t.Context())
	if err != nil || note.Payload != "last" {
		t.Errorf("a pair without a waiter sent the message %v, %v", note, err)
	}
}

// TestWaiterKeepsItsPlace has a waiter wait for longer than a place lasts without another attempt.
func TestWaiterKeepsItsPlace(t *testing.T) {
	t.Parallel()
	d := opened(t, testenv.Postgres(t).URL)
	g, waiter := raw.Acquire(t, d, raw.Request(t, time.Hour)), raw.Request(t, time.Hour)
	busy := raw.Busy(t, d, waiter)
	for end := time.Now().Add(roster.MaxPlace + time.Second); time.Now().Before(end); {
		if _, err := d.Wait(t.Context(), waiter, busy); err != nil {
			t.Fatal(err)
		}
		info, err := d.Inspect(t.Context(), g.Key)
		if err != nil || info.Waiters != 1 {
			t.Fatalf("the waiter has lost its place: %+v, %v", info, err)
		}
		busy = raw.Busy(t, d, waiter)
	}
	raw.Release(t, d, g)
	raw.Release(t, d, raw.Acquire(t, d, waiter))
}

// TestWaiterWithoutListener waits with a driver that cannot make the connection of its waiters.
func TestWaiterWithoutListener(t *testing.T) {
	t.Parallel()
	d := opened(t, testenv.Postgres(t).URL)
	d.listener.base.beforeConnect = func(context.Context, *pgx.ConnConfig) error {
		return errors.New("refused by the test")
	}
	g, waiter := raw.Acquire(t, d, raw.Request(t, time.Hour)), raw.Request(t, time.Minute)
	busy := raw.Busy(t, d, waiter)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := d.Wait(ctx, waiter, busy); err != nil {
		t.Errorf("Wait: %v", err)
	}
	raw.Release(t, d, g)
	raw.Release(t, d, raw.Acquire(t, d, waiter))
}

// TestLateRequestShortensNoTerm makes an Acquire wait for the row while its term grows, and sends a
// Renew after that.
func TestLateRequestShortensNoTerm(t *testing.T) {
	t.Parallel()
	s := testenv.Postgres(t)
	d, conn := opened(t, s.URL), connected(t, s.URL)
	req := raw.Request(t, 10*time.Second)
	g := raw.Acquire(t, d, req)
	isLong := func(what string) {
		t.Helper()
		info, err := d.Inspect(t.Context(), req.Key)
		if err != nil || len(info.Holders) != 1 || info.Holders[0].TTL < 50*time.Minute {
			t.Errorf("%s has shortened the term: %+v, %v", what, info, err)
		}
	}
	exec(t, conn, `BEGIN`)
	exec(t, conn, `UPDATE dlock SET expires = clock_timestamp() + interval '1 hour',
		version = version + 1 WHERE name = $1`, []byte(req.Key))
	answered := make(chan error)
	go func() {
		_, err := d.Acquire(t.Context(), req)
		answered <- err
	}()
	awaitLocked(t, s.URL)
	exec(t, conn, `COMMIT`)
	if err := <-answered; err != nil {
		t.Errorf("Acquire: %v", err)
	}
	isLong("Acquire")
	if _, err := d.Renew(t.Context(), g); err != nil {
		t.Errorf("Renew: %v", err)
	}
	isLong("Renew")
	raw.Release(t, d, g)
}

// awaitLocked waits until a statement of a driver waits for a row.
func awaitLocked(t *testing.T, url string) {
	t.Helper()
	conn := connected(t, url)
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		var n int
		err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE wait_event_type = 'Lock' AND query LIKE '%"dlock"%'`).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			return
		}
	}
	t.Fatal("no statement waits for the row")
}

// TestRenewalCreatesNothing deletes the row of a lock, as an operator may.
func TestRenewalCreatesNothing(t *testing.T) {
	t.Parallel()
	s := testenv.Postgres(t)
	d := opened(t, s.URL)
	g := raw.Acquire(t, d, raw.Request(t, time.Minute))
	exec(t, connected(t, s.URL), `DELETE FROM dlock WHERE name = $1`, []byte(g.Key))
	_, err := d.Renew(t.Context(), g)
	raw.WantIs(t, "Renew without a row", err, backend.ErrLost)
	raw.WantIs(t, "RenewAll without a row",
		d.RenewAll(t.Context(), []*backend.Grant{g})[0].Err, backend.ErrLost)
	next := raw.Acquire(t, d, raw.Request(t, time.Minute))
	if next.Fence <= g.Fence {
		t.Errorf("fence %d after %d", next.Fence, g.Fence)
	}
	raw.Release(t, d, next)
}

// TestGivenUpStatementEnds gives up an attempt that waits for the row, and frees the row after
// Capabilities.Late.
func TestGivenUpStatementEnds(t *testing.T) {
	t.Parallel()
	s := testenv.Postgres(t)
	d, conn := opened(t, s.URL+"?timeout=1m"), connected(t, s.URL)
	req := raw.Request(t, time.Minute)
	raw.Release(t, d, raw.Acquire(t, d, req))
	exec(t, conn, `BEGIN`)
	exec(t, conn, `SELECT FROM dlock WHERE name = $1 FOR UPDATE`, []byte(req.Key))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	ghost := raw.Request(t, time.Minute)
	if _, err := d.Acquire(ctx, ghost); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Acquire of a locked row: %v", err)
	}
	time.Sleep(d.Capabilities().Late)
	exec(t, conn, `COMMIT`)
	g := raw.Acquire(t, d, raw.Request(t, time.Minute))
	raw.Release(t, d, g)
	raw.WantIs(t, "Release of the ghost",
		d.Release(t.Context(), &backend.Grant{Request: *ghost}), backend.ErrNotHeld)
}

// TestLostListenerWakesWaiters ends the connection on which a waiter listens.
func TestLostListenerWakesWaiters(t *testing.T) {
	t.Parallel()
	s := testenv.NewPostgres(t)
	d, conn := opened(t, s.URL), connected(t, s.URL)
	woken, leave := d.listener.join("owner")
	defer leave()
	awaitSignal(t, woken, "the first connection")
	for ended := false; !ended; {
		err := conn.QueryRow(t.Context(), `SELECT count(pg_terminate_backend(pid)) > 0
			FROM pg_stat_activity WHERE query = 'LISTEN dlock'`).Scan(&ended)
		if err != nil {
			t.Fatal(err)
		}
	}
	awaitSignal(t, woken, "the next connection")
}

// awaitSignal waits for a signal.
func awaitSignal(t *testing.T, woken <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-woken:
	case <-time.After(30 * time.Second):
		t.Fatalf("%s wakes no waiter", what)
	}
}

// TestLateRequestRevivesNoBrokenLease breaks a lock, and then executes a request of its holder that
// was sent before.
func TestLateRequestRevivesNoBrokenLease(t *testing.T) {
	t.Parallel()
	d := opened(t, testenv.Postgres(t).URL)
	req := raw.Request(t, time.Minute)
	g := raw.Acquire(t, d, req)
	if err := d.Break(t.Context(), req.Key, ""); err != nil {
		t.Fatal(err)
	}
	ghost := raw.Acquire(t, d, req)
	if ghost.Fence <= g.Fence {
		t.Errorf("fence %d after %d", ghost.Fence, g.Fence)
	}
	_, err := d.Renew(t.Context(), g)
	raw.WantIs(t, "Renew of the broken grant", err, backend.ErrLost)
	raw.WantIs(t, "RenewAll of the broken grant",
		d.RenewAll(t.Context(), []*backend.Grant{g})[0].Err, backend.ErrLost)
	waiter := raw.Request(t, time.Minute)
	_ = raw.Busy(t, d, waiter) // makes a roster of the row
	_, err = d.Renew(t.Context(), g)
	raw.WantIs(t, "Renew of the broken grant in a roster", err, backend.ErrLost)
	raw.Release(t, d, ghost)
	raw.Release(t, d, raw.Acquire(t, d, waiter))
}

// TestRebuiltGrantIsOwnerChecked renews grants without a fence: the caller has only the owner.
func TestRebuiltGrantIsOwnerChecked(t *testing.T) {
	t.Parallel()
	d := opened(t, testenv.Postgres(t).URL)
	g := raw.Acquire(t, d, raw.Request(t, time.Minute))
	own, other := &backend.Grant{Request: g.Request}, &backend.Grant{Request: g.Request}
	other.Owner = raw.NewOwner()
	for what, want := range map[*backend.Grant]error{own: nil, other: backend.ErrLost} {
		_, err := d.Renew(t.Context(), what)
		raw.WantIs(t, "Renew", err, want)
		err = d.RenewAll(t.Context(), []*backend.Grant{what})[0].Err
		raw.WantIs(t, "RenewAll", err, want)
	}
	raw.Release(t, d, g)
}

// TestHoldersOfOneNameAreRenewedAtOnce renews the permits of one name, of which one is gone.
func TestHoldersOfOneNameAreRenewedAtOnce(t *testing.T) {
	t.Parallel()
	s := testenv.Postgres(t)
	d, conn := opened(t, s.URL), connected(t, s.URL)
	version := func() (version int64) {
		err := conn.QueryRow(t.Context(), `SELECT version FROM dlock WHERE name = $1`,
			name(t.Name())).Scan(&version)
		if err != nil {
			t.Fatal(err)
		}
		return version
	}
	grants := make([]*backend.Grant, 50)
	for i := range grants {
		req := raw.Request(t, time.Minute)
		req.Mode, req.Limit = backend.Permit, len(grants)
		grants[i] = raw.Acquire(t, d, req)
	}
	raw.Release(t, d, grants[7])
	before := version()
	for i, renewal := range d.RenewAll(t.Context(), grants) {
		if want := i == 7; errors.Is(renewal.Err, backend.ErrLost) != want {
			t.Errorf("renewal %d: %v", i, renewal.Err)
		}
	}
	if changes := version() - before; changes != 1 {
		t.Errorf("the row was changed %d times", changes)
	}
	for _, g := range slices.Delete(grants, 7, 8) {
		raw.Release(t, d, g)
	}
}

// TestRequestsDelayNoRenewal renews a reader while other requests have all of their connections.
// One of them has the turn to change the name.
func TestRequestsDelayNoRenewal(t *testing.T) {
	t.Parallel()
	d := opened(t, testenv.Postgres(t).URL)
	req, other := raw.Request(t, time.Minute), raw.Request(t, time.Minute)
	req.Mode, other.Mode = backend.Shared, backend.Shared
	g := raw.Acquire(t, d, req)
	for range cap(d.main.slots) {
		d.main.slots <- struct{}{}
	}
	acquired := make(chan *backend.Grant)
	go func() {
		grant, err := d.Acquire(t.Context(), other)
		if err != nil {
			t.Errorf("Acquire: %v", err)
		}
		acquired <- grant
	}()
	for !d.main.editions.has(req.Key) {
		runtime.Gosched()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := d.Renew(ctx, g); err != nil {
		t.Errorf("Renew: %v", err)
	}
	if err := d.RenewAll(ctx, []*backend.Grant{g})[0].Err; err != nil {
		t.Errorf("RenewAll: %v", err)
	}
	for range cap(d.main.slots) {
		<-d.main.slots
	}
	raw.Release(t, d, g)
	if next := <-acquired; next != nil {
		raw.Release(t, d, next)
	}
}

// has reports whether there are edits of a name.
func (s *editions) has(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byKey[key] != nil
}

// TestRostersAreRenewedInABatch renews grants in rosters together with others.
func TestRostersAreRenewedInABatch(t *testing.T) {
	t.Parallel()
	d := opened(t, testenv.Postgres(t).URL)
	var grants []*backend.Grant
	for i := range 20 {
		req := raw.Request(t, time.Minute)
		req.Key += string(rune('a' + i))
		if i%2 == 0 {
			req.Mode = backend.Shared
		}
		grants = append(grants, raw.Acquire(t, d, req))
	}
	for i, renewal := range d.RenewAll(t.Context(), grants) {
		if renewal.Err != nil {
			t.Errorf("renewal %d: %v", i, renewal.Err)
		}
	}
	for _, g := range grants {
		raw.Release(t, d, g)
	}
}
