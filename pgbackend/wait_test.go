package pgbackend

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/roster"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestReleaseGrantsTheNextWaiter releases a lock that a waiter of another driver waits for. The
// release makes the waiter the holder, so the waiter writes nothing.
func TestReleaseGrantsTheNextWaiter(t *testing.T) {
	t.Parallel()
	s := testenv.Postgres(t)
	d, other := opened(t, s.URL), opened(t, s.URL)
	held, req := raw.Acquire(t, d, raw.Request(t, time.Minute)), raw.Request(t, time.Minute)
	busy := raw.Busy(t, other, req)
	raw.Release(t, d, held)
	released := time.Now()
	stored := stateOf(t, d, req.Key)
	g := wait(t, other, req, busy)
	if g == nil {
		t.Fatal("the waiter has no grant")
	}
	// The server keeps the grant for the rest of the waiter's place, which began earlier.
	end, limit := g.Term.Sent.Add(g.Term.TTL), released.Add(roster.Place(req.TTL))
	if end.After(limit) {
		t.Errorf("the term of the grant ends %v after the place of the waiter", end.Sub(limit))
	}
	if g.Fence <= held.Fence {
		t.Errorf("fence %d after fence %d", g.Fence, held.Fence)
	}
	if now := stateOf(t, d, req.Key); now.version != stored.version {
		t.Errorf("version %d after version %d of the release", now.version, stored.version)
	}
	if _, err := d.Acquire(t.Context(), tryFor(t, req.Key)); err == nil {
		t.Error("a second holder")
	}
	raw.Release(t, other, g)
}

// TestSynchronousStandbyConfirmsAGrant does the same with a synchronous standby. A row that can be
// read does not prove that the standby has it. So the waiter makes an attempt, which waits for it.
func TestSynchronousStandbyConfirmsAGrant(t *testing.T) {
	t.Parallel()
	p := testenv.NewPostgresPair(t, true)
	d, other := opened(t, p.URL), opened(t, p.URL)
	held, req := raw.Acquire(t, d, raw.Request(t, time.Minute)), raw.Request(t, time.Minute)
	busy := raw.Busy(t, other, req)
	raw.Release(t, d, held)
	if g := wait(t, other, req, busy); g != nil {
		t.Errorf("the waiter has a grant without a commit: %+v", g)
	}
	raw.Release(t, other, raw.Acquire(t, other, req))
}

// TestGrantCountsNoMoreThanItsTTL reads a grant with a term that is longer than its TTL, as after
// the clock of the server was set back.
func TestGrantCountsNoMoreThanItsTTL(t *testing.T) {
	t.Parallel()
	s := testenv.Postgres(t)
	d, req := opened(t, s.URL), raw.Request(t, time.Minute)
	held := raw.Acquire(t, d, req)
	exec(t, connected(t, s.URL), "UPDATE dlock SET expires = expires + interval '1 hour' "+
		"WHERE name = $1", name(req.Key))
	g, _, err := d.look(t.Context(), req)
	if err != nil || g == nil || g.Term.TTL > req.TTL {
		t.Errorf("look: %+v, %v, want a term of %v at most", g, err, req.TTL)
	}
	raw.Release(t, d, held)
}

// TestTermBeginsWithTheReading reads a grant while all connections are in use. Its term counts from
// the time at which the reading was sent, and not from before the wait for a connection.
func TestTermBeginsWithTheReading(t *testing.T) {
	t.Parallel()
	d, req := opened(t, testenv.Postgres(t).URL), raw.Request(t, time.Minute)
	held := raw.Acquire(t, d, req)
	for range cap(d.main.slots) {
		d.main.slots <- struct{}{}
	}
	var g *backend.Grant
	var reading sync.WaitGroup
	reading.Go(func() { g, _, _ = d.look(t.Context(), req) })
	time.Sleep(100 * time.Millisecond) // so that the reading waits
	freed := time.Now()
	for range cap(d.main.slots) {
		<-d.main.slots
	}
	if reading.Wait(); g == nil || g.Term.Sent.Before(freed) {
		t.Errorf("the grant is %+v, from before %v", g, freed)
	}
	raw.Release(t, d, held)
}

// TestCrashForgetsNoGrant kills a server that writes what need not last only every ten seconds. It
// forgets the entry of a waiter, but no grant: not even if a request that is refused has made the
// first waiter the holder, because the term of the former holder was over.
func TestCrashForgetsNoGrant(t *testing.T) {
	t.Parallel()
	s := testenv.NewPostgres(t, "-c", "wal_writer_delay=10s")
	d := opened(t, s.URL)
	former := raw.Acquire(t, d, raw.Request(t, time.Hour))
	req, last := raw.Request(t, time.Hour), raw.Request(t, time.Hour)
	_ = raw.Busy(t, d, req)
	_, leave := d.listener.join(req.Key, req.Owner) // so that no statement sends a message
	defer leave()
	r := stateOf(t, d, req.Key)
	entries, err := r.entries()
	if err != nil {
		t.Fatal(err)
	}
	entries.Find(former.Owner).Expires = r.now.UnixMicro()
	exec(t, connected(t, s.URL), "UPDATE dlock SET roster = $2 WHERE name = $1",
		name(req.Key), entries.Text())
	_ = raw.Busy(t, d, last)
	g, _, err := d.look(t.Context(), req)
	if g == nil {
		t.Fatalf("the waiter has no grant: %v", err)
	}
	stored := stateOf(t, d, req.Key)
	s.Restart(t)
	var again *row
	if err := answered(t, func(ctx context.Context) (err error) {
		again, err = d.read(ctx, d.main, req.Key)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if again.fence != stored.fence || !bytes.Equal(again.roster, stored.roster) {
		t.Errorf("before the crash fence %d of %s, afterwards fence %d of %s",
			stored.fence, stored.roster, again.fence, again.roster)
	}
	err = answered(t, acquiring(d, last))
	if err == nil && time.Now().Before(g.Term.Sent.Add(g.Term.TTL)) {
		t.Error("a second holder")
	}
	err = answered(t, func(ctx context.Context) error {
		_, err := d.Renew(ctx, g)
		return err
	})
	if err != nil && time.Now().Before(g.Term.Sent.Add(g.Term.TTL)) {
		t.Errorf("Renew: %v", err)
	}
}

// wait calls Wait after busy.
func wait(t *testing.T, d *driver, req *backend.Request, busy *backend.Busy) *backend.Grant {
	t.Helper()
	g, err := d.Wait(t.Context(), req, busy)
	if err != nil {
		t.Fatalf("Wait: %v", err)
	}
	return g
}

// stateOf reads a row.
func stateOf(t *testing.T, d *driver, key string) *row {
	t.Helper()
	r, err := d.read(t.Context(), d.main, key)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// tryFor returns a request for key that does not wait.
func tryFor(t *testing.T, key string) *backend.Request {
	t.Helper()
	req := raw.Request(t, time.Minute)
	req.Key, req.Queue = key, false
	return req
}
