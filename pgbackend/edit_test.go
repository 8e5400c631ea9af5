package pgbackend

import (
	"bytes"
	"context"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/roster"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// permit returns a request for a permit of the test.
func permit(t *testing.T, limit int) *backend.Request {
	t.Helper()
	req := raw.Request(t, time.Minute)
	req.Mode, req.Limit = backend.Permit, limit
	return req
}

// acquirer returns the caller of Acquire.
func acquirer(ctx context.Context, req *backend.Request) *caller {
	m := &caller{ctx: ctx, req: req, done: make(chan error, 1)}
	m.alter = func(entries *roster.Roster, next uint64, now int64) error {
		e, err := entries.Acquire(req, next, now)
		if err == nil {
			m.fence = e.Fence
		}
		return err
	}
	return m
}

// leaver returns the caller of Release.
func leaver(ctx context.Context, owner string) *caller {
	return &caller{
		ctx: ctx, leaves: owner, mode: backend.Permit, done: make(chan error, 1),
		alter: func(entries *roster.Roster, _ uint64, _ int64) error {
			return entries.Remove(owner)
		},
	}
}

// editionOf returns an edition that no lane has begun.
func editionOf(d *driver, key string, callers ...*caller) *edition {
	return &edition{
		d: d, lane: d.main, key: key, callers: callers, deserted: make(chan struct{}),
		contended: true,
	}
}

// owners returns the holders of a name.
func owners(t *testing.T, d *driver, key string) (owners []string) {
	t.Helper()
	info, err := d.Inspect(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range info.Holders {
		owners = append(owners, h.Owner)
	}
	return owners
}

// rowOf returns the version and the roster of a name.
func rowOf(t *testing.T, conn *pgx.Conn, key string) (version int64, text []byte) {
	t.Helper()
	err := conn.QueryRow(t.Context(), `SELECT version, roster FROM dlock WHERE name = $1`,
		name(key)).Scan(&version, &text)
	if err != nil {
		t.Fatal(err)
	}
	return version, text
}

// TestWaitingChangesShareAStatement changes a roster while another change of it has no slot.
func TestWaitingChangesShareAStatement(t *testing.T) {
	t.Parallel()
	s := testenv.Postgres(t)
	d, conn := opened(t, s.URL), connected(t, s.URL)
	first, second, third := permit(t, 2), permit(t, 2), permit(t, 2)
	g := raw.Acquire(t, d, first)
	before, _ := rowOf(t, conn, g.Key)
	for range cap(d.main.slots) {
		d.main.slots <- struct{}{}
	}
	var changes sync.WaitGroup
	var grants [2]*backend.Grant
	changes.Go(func() { grants[0] = raw.Acquire(t, d, second) })
	awaitChanges(t, d, g.Key, 0)
	changes.Go(func() { grants[1] = raw.Acquire(t, d, third) })
	awaitChanges(t, d, g.Key, 1)
	changes.Go(func() { raw.Release(t, d, g) })
	awaitChanges(t, d, g.Key, 2)
	for range cap(d.main.slots) {
		<-d.main.slots
	}
	changes.Wait()
	after, text := rowOf(t, conn, g.Key)
	if after-before != 2 || !bytes.Contains(text, []byte(`"owner": `)) {
		t.Errorf("version %d after %d, with the roster %s", after, before, text)
	}
	if grants[0].Fence <= g.Fence || grants[1].Fence <= grants[0].Fence {
		t.Errorf("fences %d, %d, %d", g.Fence, grants[0].Fence, grants[1].Fence)
	}
	if got := owners(t, d, g.Key); !slices.Equal(got, []string{second.Owner, third.Owner}) {
		t.Errorf("holders %v", got)
	}
	raw.Release(t, d, grants[0])
	raw.Release(t, d, grants[1])
}

// awaitChanges waits until n changes wait for the next edition of a name.
func awaitChanges(t *testing.T, d *driver, key string, n int) {
	t.Helper()
	s := &d.main.editions
	for end := time.Now().Add(30 * time.Second); ; {
		s.mu.Lock()
		q := s.byKey[key]
		ok := q != nil && len(q.waiting) == n
		s.mu.Unlock()
		if ok {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not %d changes wait", n)
		}
	}
}

// TestEditionLeavesOutACallerThatHasGone has a caller that gives up after the row was read.
func TestEditionLeavesOutACallerThatHasGone(t *testing.T) {
	t.Parallel()
	d := opened(t, testenv.Postgres(t).URL)
	stays, goes := permit(t, 2), permit(t, 2)
	ctx, cancel := context.WithCancel(t.Context())
	gone, wanted := acquirer(ctx, goes), acquirer(t.Context(), stays)
	alter := gone.alter
	e := editionOf(d, stays.Key, gone, wanted)
	gone.edition = e
	gone.alter = func(entries *roster.Roster, next uint64, now int64) error {
		if cancel(); !gone.left {
			err := d.main.editions.leave(d, d.main, goes.Key, gone, ctx.Err())
			raw.WantIs(t, "the reading", err, context.Canceled)
		}
		return alter(entries, next, now)
	}
	e.run()
	if err := <-wanted.done; err != nil {
		t.Errorf("Acquire: %v", err)
	}
	if len(gone.done) > 0 {
		t.Errorf("the caller that has gone has the answer %v", <-gone.done)
	}
	if got := owners(t, d, stays.Key); !slices.Equal(got, []string{stays.Owner}) {
		t.Errorf("holders %v", got)
	}
}

// stuck is a context whose Err does not return before its end.
type stuck struct{ context.Context }

// Err implements context.Context.
func (s stuck) Err() error {
	<-s.Done()
	return s.Context.Err()
}

// TestEditionCallsNoContext has a caller with a context that blocks. The other caller of the
// edition has an answer.
func TestEditionCallsNoContext(t *testing.T) {
	t.Parallel()
	d := opened(t, testenv.Postgres(t).URL)
	blocks := acquirer(stuck{t.Context()}, permit(t, 2))
	wanted := acquirer(t.Context(), permit(t, 2))
	go editionOf(d, wanted.req.Key, blocks, wanted).run()
	select {
	case err := <-wanted.done:
		raw.WantIs(t, "Acquire", err, nil)
	case <-time.After(30 * time.Second):
		t.Error("a context that blocks stops the edition")
	}
}

// TestEditionWithoutCallersMakesNoOtherWait gives up a change that has no slot. The next change of
// the row has a slot.
func TestEditionWithoutCallersMakesNoOtherWait(t *testing.T) {
	t.Parallel()
	d := opened(t, testenv.Postgres(t).URL)
	goes, stays := permit(t, 2), permit(t, 2)
	for range cap(d.main.slots) {
		d.main.slots <- struct{}{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var changes sync.WaitGroup
	changes.Go(func() {
		_, err := d.Acquire(ctx, goes)
		raw.WantIs(t, "Acquire", err, context.Canceled)
		raw.WantIs(t, "Acquire", err, backend.ErrUnavailable)
	})
	awaitChanges(t, d, goes.Key, 0)
	changes.Go(func() { raw.Release(t, d, raw.Acquire(t, d, stays)) })
	awaitChanges(t, d, goes.Key, 1)
	cancel()
	awaitChanges(t, d, goes.Key, 0)
	for range cap(d.main.slots) {
		<-d.main.slots
	}
	changes.Wait()
}

// TestChosenChangesShareAnEdition chooses from changes whose callers leave at different times.
func TestChosenChangesShareAnEdition(t *testing.T) {
	t.Parallel()
	now := time.Now()
	patient, endless := &caller{end: now.Add(time.Minute)}, &caller{}
	hasty := &caller{end: now.Add(abandonAfter / 2)}
	leaves := &caller{end: now.Add(time.Minute), leaves: "owner"}
	chosen, rest := choose([]*caller{patient, hasty, endless, leaves}, now)
	if !slices.Equal(chosen, []*caller{leaves, patient, endless}) ||
		!slices.Equal(rest, []*caller{hasty}) {
		t.Errorf("%d changes are chosen and %d are left, or in another order",
			len(chosen), len(rest))
	}
}

// TestSwap makes changes in one statement.
func TestSwap(t *testing.T) {
	t.Parallel()
	s := testenv.Postgres(t)
	d, conn := opened(t, s.URL), connected(t, s.URL)
	swap := func(what string, want bool, callers ...*caller) {
		t.Helper()
		key := raw.Request(t, time.Minute).Key
		before, _ := rowOf(t, conn, key)
		done, err := editionOf(d, key, callers...).swap()
		after, text := rowOf(t, conn, key)
		if err != nil || done != want || (after > before) != want {
			t.Errorf("%s: %v, %v, version %d after %d: %s", what, done, err, after, before, text)
		}
	}
	ctx := t.Context()
	first, second := raw.Acquire(t, d, permit(t, 2)), permit(t, 2)
	last := acquirer(ctx, second)
	swap("the own owner", false, acquirer(ctx, &first.Request))
	swap("another limit", false, acquirer(ctx, permit(t, 3)))
	swap("the last holder leaves", false, leaver(ctx, first.Owner))
	swap("a permit", true, last)
	swap("a stranger leaves", false, leaver(ctx, "stranger"))
	if last.fence <= first.Fence {
		t.Errorf("fence %d after %d", last.fence, first.Fence)
	}
	swap("a permit too many", false, acquirer(ctx, permit(t, 2)))
	third := permit(t, 2)
	third.Meta = "\u00e4 \"quoted\""
	swap("one for one", true, leaver(ctx, first.Owner), acquirer(ctx, third))
	strange := permit(t, 2)
	strange.Meta = "\x00"
	swap("text that JSON cannot have", false, leaver(ctx, third.Owner), acquirer(ctx, strange))
	swap("a writer", false, leaver(ctx, third.Owner), acquirer(ctx, raw.Request(t, time.Minute)))
	if _, err := d.Renew(ctx, &backend.Grant{Request: *second, Fence: last.fence}); err != nil {
		t.Errorf("Renew: %v", err)
	}
	waiter := permit(t, 2)
	_ = raw.Busy(t, d, waiter)
	swap("a waiter", false, leaver(ctx, third.Owner), acquirer(ctx, permit(t, 2)))
	swap("a waiter, again", false, leaver(ctx, third.Owner))
	raw.Release(t, d, &backend.Grant{Request: *waiter})
	swap("one leaves", true, leaver(ctx, third.Owner))
	short := permit(t, 2)
	short.TTL = time.Millisecond
	swap("a short term", true, acquirer(ctx, short))
	time.Sleep(10 * time.Millisecond)
	swap("a holder has expired", false, acquirer(ctx, permit(t, 3)))
	swap("a holder has expired", false, leaver(ctx, short.Owner), acquirer(ctx, permit(t, 2)))
	if got := owners(t, d, second.Key); !slices.Equal(got, []string{second.Owner}) {
		t.Errorf("holders %v", got)
	}
	raw.Release(t, d, &backend.Grant{Request: *second})
}

// TestOvertakenEditionInsists has other clients change the roster whenever a renewal has read it,
// as long as they can do so in one statement.
func TestOvertakenEditionInsists(t *testing.T) {
	t.Parallel()
	s := testenv.Postgres(t)
	d, conn := opened(t, s.URL), connected(t, s.URL)
	g := raw.Acquire(t, d, permit(t, 2))
	swap := func() (done bool) {
		next := permit(t, 2)
		done, err := editionOf(d, g.Key, acquirer(t.Context(), next)).swap()
		if err != nil {
			t.Errorf("the other client: %v", err)
		}
		if done {
			raw.Release(t, d, &backend.Grant{Request: *next})
		}
		return done
	}
	overtaken := 0
	err := d.editPatiently(t.Context(), g.Key,
		func(entries *roster.Roster, _ uint64, now int64) error {
			if swap() {
				overtaken++
			}
			return entries.Renew(g.Owner, time.Hour, now)
		})
	if err != nil || overtaken == 0 {
		t.Errorf("Renew: %v, overtaken %d times", err, overtaken)
	}
	exec(t, conn, `UPDATE dlock SET since = clock_timestamp() + interval '1 hour'
		WHERE name = $1`, name(g.Key))
	next := raw.Acquire(t, d, permit(t, 2))
	raw.Release(t, d, next)
	if swap() {
		t.Error("after another change the roster is changed in one statement")
	}
	raw.Release(t, d, g)
}

// TestSwapHasNoLimitOfReaders adds a reader to others.
func TestSwapHasNoLimitOfReaders(t *testing.T) {
	t.Parallel()
	d := opened(t, testenv.Postgres(t).URL)
	first, second := raw.Request(t, math.MaxInt64), raw.Request(t, math.MaxInt64)
	first.Mode, second.Mode = backend.Shared, backend.Shared
	_ = raw.Acquire(t, d, first)
	if done, err := editionOf(d, first.Key, acquirer(t.Context(), second)).swap(); !done {
		t.Errorf("a reader: %v", err)
	}
	if got := owners(t, d, first.Key); !slices.Equal(got, []string{first.Owner, second.Owner}) {
		t.Errorf("holders %v", got)
	}
}

// TestWaiterOfTheSameDriverNeedsNoMessage releases a lock that a waiter of the same driver waits
// for.
func TestWaiterOfTheSameDriverNeedsNoMessage(t *testing.T) {
	t.Parallel()
	s := testenv.NewPostgres(t)
	d, conn := opened(t, s.URL), connected(t, s.URL)
	exec(t, conn, "LISTEN "+channel)
	g, waiter := raw.Acquire(t, d, raw.Request(t, time.Minute)), raw.Request(t, time.Minute)
	_ = raw.Busy(t, d, waiter)
	woken, leave := d.listener.join(waiter.Key, waiter.Owner)
	defer leave()
	awaitSignal(t, woken, "the first connection")
	raw.Release(t, d, g)
	awaitSignal(t, woken, "the release")
	raw.Release(t, d, raw.Acquire(t, d, waiter))
	exec(t, connected(t, s.URL), "NOTIFY "+channel+", 'last'")
	note, err := conn.WaitForNotification(t.Context())
	if err != nil || note.Payload != "last" {
		t.Errorf("the release sent the message %v, %v", note, err)
	}
}

// TestRepeatedReleaseWakesWaiters removes a holder without a message, as a release whose answer was
// lost does. The repeated release finds nothing, and wakes the waiter of its driver.
func TestRepeatedReleaseWakesWaiters(t *testing.T) {
	t.Parallel()
	s := testenv.Postgres(t)
	d, conn := opened(t, s.URL), connected(t, s.URL)
	g, waiter := raw.Acquire(t, d, raw.Request(t, time.Minute)), raw.Request(t, time.Minute)
	_ = raw.Busy(t, d, waiter)
	woken, leave := d.listener.join(waiter.Key, waiter.Owner)
	defer leave()
	awaitSignal(t, woken, "the first connection")
	other, leaveOther := d.listener.join("another key", "another owner")
	defer leaveOther()
	r := readOn(t, conn, d, g.Key)
	next, _, err := r.edited([]*caller{leaver(t.Context(), g.Owner)})
	if err != nil {
		t.Fatal(err)
	}
	exec(t, conn, d.sql.update, next.updateArgs(g.Key)...)
	raw.WantIs(t, "Release", d.Release(t.Context(), g), backend.ErrNotHeld)
	awaitSignal(t, woken, "the repeated release")
	if len(other) > 0 {
		t.Error("the release wakes the waiter of another key")
	}
	raw.Release(t, d, raw.Acquire(t, d, waiter))
}
