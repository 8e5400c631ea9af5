package pgbackend

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

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
	var others, end sync.WaitGroup
	others.Add(len(reqs) - 1)
	end.Go(func() {
		others.Wait()
		exec(t, conn, `ROLLBACK`)
	})
	crowd(t, d.takes, len(reqs), func(i int) {
		g := raw.Acquire(t, d, reqs[i])
		if i > 0 {
			others.Done()
		}
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

// TestOneCallerLeavesItsStatementToTheOthers counts the callers of a statement that have gone.
func TestOneCallerLeavesItsStatementToTheOthers(t *testing.T) {
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
