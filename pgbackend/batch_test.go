package pgbackend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// crowd makes n requests of a batcher while its lane has no slot, and gives the lane one slot when
// all of them wait.
func crowd(t *testing.T, b *batcher, n int, request func(i int)) {
	t.Helper()
	slots := b.lane.slots
	for range cap(slots) {
		slots <- struct{}{}
	}
	var requests sync.WaitGroup
	for i := range n {
		requests.Go(func() { request(i) })
	}
	awaitWaiting(t, b, n)
	<-slots
	awaitWaiting(t, b, 0)
	for range cap(slots) - 1 {
		<-slots
	}
	requests.Wait()
}

// awaitWaiting waits until n requests of a batcher wait.
func awaitWaiting(t *testing.T, b *batcher, n int) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; {
		b.mu.Lock()
		waiting := len(b.waiting)
		b.mu.Unlock()
		if waiting == n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d requests wait, want %d", waiting, n)
		}
	}
}

// several returns requests for n different locks.
func several(t *testing.T, n int) []*backend.Request {
	t.Helper()
	reqs := make([]*backend.Request, n)
	for i := range reqs {
		reqs[i] = raw.Request(t, time.Minute)
		reqs[i].Key += fmt.Sprintf("/%d", i)
	}
	return reqs
}

// TestWaitingRequestsShareAStatement acquires and releases locks while there is no slot.
func TestWaitingRequestsShareAStatement(t *testing.T) {
	t.Parallel()
	s := testenv.NewPostgres(t)
	d, conn := opened(t, s.URL), connected(t, s.URL)
	reqs := several(t, 20)
	grants := make([]*backend.Grant, len(reqs))
	acquire := func(i int) { grants[i] = raw.Acquire(t, d, reqs[i]) }
	release := func(i int) { raw.Release(t, d, grants[i]) }
	isOne := func(what string) {
		var changes int
		err := conn.QueryRow(t.Context(),
			`SELECT count(DISTINCT xmin::text) FROM dlock`).Scan(&changes)
		if err != nil || changes != 1 {
			t.Errorf("%s: %d transactions, %v", what, changes, err)
		}
	}
	crowd(t, d.takes, len(reqs), acquire)
	isOne("acquisitions of new locks")
	before := grants[7].Fence
	crowd(t, d.frees, len(reqs), release)
	isOne("releases")
	crowd(t, d.takes, len(reqs), acquire)
	isOne("acquisitions")
	if grants[7].Fence != before+1 {
		t.Errorf("the fence is %d after %d", grants[7].Fence, before)
	}
	crowd(t, d.takes, len(reqs), acquire) // again, by the same owners
	if grants[7].Fence != before+1 {
		t.Errorf("the fence is %d when the owner acquires again", grants[7].Fence)
	}
	other := raw.Request(t, time.Minute)
	other.Key = reqs[7].Key
	_ = raw.Busy(t, d, other)
	crowd(t, d.frees, len(reqs), release)
}

// TestSharedStatementGrantsOnce acquires one lock by several owners with one statement.
func TestSharedStatementGrantsOnce(t *testing.T) {
	t.Parallel()
	d := opened(t, testenv.NewPostgres(t).URL)
	req := raw.Request(t, time.Minute)
	raw.Release(t, d, raw.Acquire(t, d, req)) // makes the row
	grants := make([]*backend.Grant, 8)
	crowd(t, d.takes, len(grants), func(i int) {
		own := *req
		own.Owner = raw.NewOwner()
		grants[i], _ = d.Acquire(t.Context(), &own)
	})
	granted := 0
	for _, g := range grants {
		if g != nil {
			granted++
			raw.Release(t, d, g)
		}
	}
	if granted != 1 {
		t.Errorf("%d owners have the lock", granted)
	}
}

// TestSharedStatementWaitsForNoRow acquires several locks with one statement, while another
// statement keeps the row of one of them locked.
func TestSharedStatementWaitsForNoRow(t *testing.T) {
	t.Parallel()
	s := testenv.NewPostgres(t)
	d, conn := lent(t, s.URL), connected(t, s.URL)
	reqs := several(t, 5)
	for _, req := range reqs {
		raw.Release(t, d, raw.Acquire(t, d, req))
	}
	lockRow(t, conn, reqs[0].Key)
	acquired := make(chan struct{}, len(reqs))
	var end sync.WaitGroup
	end.Go(func() {
		limit, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		for range len(reqs) - 1 {
			select {
			case <-acquired:
			case <-limit.Done():
				t.Error("a lock whose row is free is not acquired")
			}
		}
		exec(t, conn, `ROLLBACK`)
	})
	crowd(t, d.takes, len(reqs), func(i int) {
		g := raw.Acquire(t, d, reqs[i])
		acquired <- struct{}{}
		raw.Release(t, d, g)
	})
	end.Wait()
}

// TestRequestIsNotSentWhenItsCallerHasGone gives up one of two acquisitions before they are sent.
func TestRequestIsNotSentWhenItsCallerHasGone(t *testing.T) {
	t.Parallel()
	d := opened(t, testenv.NewPostgres(t).URL)
	reqs := several(t, 2)
	for _, req := range reqs {
		raw.Release(t, d, raw.Acquire(t, d, req))
	}
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		awaitWaiting(t, d.takes, 2)
		cancel()
		<-gone
		<-d.main.slots
	}()
	for range cap(d.main.slots) {
		d.main.slots <- struct{}{}
	}
	var requests sync.WaitGroup
	requests.Go(func() {
		_, err := d.Acquire(ctx, reqs[0])
		raw.WantIs(t, "Acquire", err, context.Canceled)
		close(gone)
	})
	requests.Go(func() { raw.Release(t, d, raw.Acquire(t, d, reqs[1])) })
	requests.Wait()
	other := raw.Request(t, time.Minute)
	other.Key = reqs[0].Key
	raw.Release(t, d, raw.Acquire(t, d, other))
}

// TestChosenRequestsShareAStatement chooses from requests whose callers leave at different times.
func TestChosenRequestsShareAStatement(t *testing.T) {
	t.Parallel()
	now := time.Now()
	b := new(batcher)
	wait := func(end time.Time) *member {
		m := &member{end: end}
		b.waiting = append(b.waiting, m)
		return m
	}
	patient, hasty := wait(now.Add(time.Minute)), wait(now.Add(abandonAfter/2))
	endless, hasty2 := wait(time.Time{}), wait(now.Add(abandonAfter/4))
	ended := wait(now)
	want := func(what string, got []*member, want ...*member) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: %d requests are chosen, want other ones", what, len(got))
		}
	}
	want("patient", b.choose(endless, now), endless, patient)
	want("patient, again", b.choose(patient, now))
	want("hasty", b.choose(hasty, now), hasty, hasty2)
	want("ended", b.choose(ended, now))
	want("left", b.waiting)
}

// TestFailedConnectionEndsItsOwnRequest serves the second of two requests by a pool that is closed.
func TestFailedConnectionEndsItsOwnRequest(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), testenv.Postgres(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	lent, err := New(pool, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lent.Close() })
	pool.Close()
	b := lent.(*driver).takes
	first := &member{ctx: t.Context(), done: make(chan struct{})}
	second := &member{ctx: t.Context(), done: make(chan struct{})}
	b.waiting = []*member{first, second}
	b.serve(second)
	if !slices.Equal(b.waiting, []*member{first}) || second.err == nil {
		t.Errorf("%d requests wait, and the outcome is %v", len(b.waiting), second.err)
	}
}

// TestSharedStatementHasNothingLockedWhileItWaits acquires two locks with one statement. The row of
// one of them is not committed.
func TestSharedStatementHasNothingLockedWhileItWaits(t *testing.T) {
	t.Parallel()
	s := testenv.NewPostgres(t)
	d, conn, other := lent(t, s.URL), connected(t, s.URL), connected(t, s.URL)
	reqs := several(t, 2)
	raw.Release(t, d, raw.Acquire(t, d, reqs[0])) // makes the row
	exec(t, conn, `BEGIN`)
	exec(t, conn, `INSERT INTO dlock VALUES ($1, 7, 7, '', '', now(), now())`, name(reqs[1].Key))
	var end sync.WaitGroup
	end.Go(func() {
		awaitLocked(t, s.URL)
		_, err := other.Exec(t.Context(), `SELECT FROM dlock WHERE name = $1 FOR UPDATE NOWAIT`,
			name(reqs[0].Key))
		if err != nil {
			t.Errorf("the row of a free lock: %v", err)
		}
		exec(t, conn, `ROLLBACK`)
	})
	crowd(t, d.takes, len(reqs), func(i int) { raw.Release(t, d, raw.Acquire(t, d, reqs[i])) })
	end.Wait()
}

// TestOneCallerLeavesASharedStatement counts the callers of a statement that have gone.
func TestOneCallerLeavesASharedStatement(t *testing.T) {
	t.Parallel()
	d := opened(t, testenv.Postgres(t).URL)
	a := &attempt{lane: newLane(2), callers: 2}
	_, err := call(t.Context(), d, d.main,
		func(_ context.Context, conn *pgx.Conn) (none struct{}, _ error) {
			a.begin(conn.PgConn(), time.Hour)
			a.abandon()
			first := a.lane.abandoned.Load()
			a.abandon()
			both := a.lane.abandoned.Load()
			if first != 0 || both != 1 {
				t.Errorf("%d statements count as abandoned, then %d", first, both)
			}
			return none, a.end(nil)
		})
	if err != nil {
		t.Error(err)
	}
}

// TestCallerThatGoesExtendsNoLimit has a statement of two callers, of which one goes shortly before
// its limit.
func TestCallerThatGoesExtendsNoLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		own, peer := net.Pipe()
		config, err := pgconn.ParseConfig("host=localhost sslmode=disable")
		if err != nil {
			t.Fatal(err)
		}
		conn, err := pgconn.Construct(&pgconn.HijackedConn{Conn: own, Config: config})
		if err != nil {
			t.Fatal(err)
		}
		const timeout = abandonAfter / 2
		begun := time.Now()
		a := &attempt{lane: newLane(1), callers: 2}
		a.begin(conn, timeout)
		time.Sleep(timeout / 2)
		a.abandon()
		if _, err := peer.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the peer reads until %v", err)
		}
		if took := time.Since(begun); took != timeout {
			t.Errorf("the connection ends after %v, want %v", took, timeout)
		}
	})
}

// TestRequestWithoutASlotIsNotSent has requests that are given up before they get a connection.
func TestRequestWithoutASlotIsNotSent(t *testing.T) {
	t.Parallel()
	d := opened(t, testenv.Postgres(t).URL)
	g := raw.Acquire(t, d, raw.Request(t, time.Minute))
	reader := raw.Request(t, time.Minute)
	reader.Mode = backend.Shared
	for range cap(d.main.slots) {
		d.main.slots <- struct{}{}
	}
	for what, request := range map[string]func(ctx context.Context) error{
		"Acquire": func(ctx context.Context) error {
			_, err := d.Acquire(ctx, raw.Request(t, time.Minute))
			return err
		},
		"Acquire of a reader": func(ctx context.Context) error {
			_, err := d.Acquire(ctx, reader)
			return err
		},
		"Release": func(ctx context.Context) error { return d.Release(ctx, g) },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		err := request(ctx)
		raw.WantIs(t, what, err, backend.ErrUnavailable)
		raw.WantIs(t, what, err, context.DeadlineExceeded)
		cancel()
	}
	for range cap(d.main.slots) {
		<-d.main.slots
	}
	raw.Release(t, d, g)
}

// TestUnreadableAnswerIsUnknown has a statement answer for rows that it was not given. The server
// has executed it, so the core must release what the statement may have locked.
func TestUnreadableAnswerIsUnknown(t *testing.T) {
	t.Parallel()
	conn := connected(t, testenv.Postgres(t).URL)
	for _, position := range []int{0, 3} {
		_, err := numbersOf(t.Context(), conn, 2, "SELECT $1::bigint, 1::bigint", position)
		if err == nil || isSentinel(interpretError(err)) {
			t.Errorf("the answer for row %d of 2: %v", position, err)
		}
	}
}
