package pgbackend

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

const (
	// failoverTTL is longer than a failover, so that nothing ends with its term.
	failoverTTL = 10 * time.Minute
	// failoverPatience limits the time until a request has an answer after a failover.
	failoverPatience = 2 * time.Minute
)

// named returns a request for another lock of the test, which does not wait.
func named(t *testing.T, name string) *backend.Request {
	t.Helper()
	req := raw.Request(t, failoverTTL)
	req.Key, req.Queue = t.Name()+"/"+name, false
	return req
}

// acquiring returns an attempt for req.
func acquiring(d *driver, req *backend.Request) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		_, err := d.Acquire(ctx, req)
		return err
	}
}

// renewing returns a renewal of g.
func renewing(d *driver, g *backend.Grant) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		_, err := d.Renew(ctx, g)
		return err
	}
}

// answered repeats a request until it has an answer. Its server may be away meanwhile.
func answered(t *testing.T, request func(ctx context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), failoverPatience)
	defer cancel()
	for {
		err := request(ctx)
		if err == nil || isOutcome(err) || ctx.Err() != nil {
			return err
		}
		_ = pause(ctx, maxPause)
	}
}

// isOutcome reports whether err is the outcome of a request.
func isOutcome(err error) bool {
	return slices.ContainsFunc([]error{
		backend.ErrNotAcquired, backend.ErrNotHeld, backend.ErrLost, backend.ErrConflict,
		backend.ErrUnsupported,
	}, func(answer error) bool { return errors.Is(err, answer) })
}

// TestSynchronousStandbyKeepsLocks takes the primary away while a lock is held and waited for, and
// promotes the standby.
func TestSynchronousStandbyKeepsLocks(t *testing.T) {
	t.Parallel()
	t.Run("killed", func(t *testing.T) {
		t.Parallel()
		p := testenv.NewPostgresPair(t, true)
		keepLocks(t, p, p.URL, func() { p.Primary().Kill(t) })
	})
	t.Run("cut off", func(t *testing.T) {
		t.Parallel()
		p := testenv.NewPostgresPair(t, true)
		former := p.Primary().Addr
		proxy := testenv.NewProxy(t, former)
		url := strings.Replace(p.URL, former, proxy.Addr(), 1)
		keepLocks(t, p, url, func() { proxy.Cut(t) })
	})
}

// keepLocks checks a failover of p after leave has taken the primary away from the clients of url.
func keepLocks(t *testing.T, p *testenv.Pair, url string, leave func()) {
	t.Helper()
	d, other := opened(t, url), opened(t, url)
	g := raw.Acquire(t, d, raw.Request(t, failoverTTL))
	next := lockBehind(t, other)
	leave()
	granted := contend(t, d)
	awaitAway(t, d)
	p.Promote(t)
	raw.WantIs(t, "Renew", answered(t, renewing(d, g)), nil)
	second := named(t, "")
	second.Key = g.Key
	raw.WantIs(t, "Acquire of another owner", answered(t, acquiring(other, second)),
		backend.ErrNotAcquired)
	if n := granted(); n != 1 {
		t.Errorf("%d owners got a lock that was free", n)
	}
	raw.WantIs(t, "Release",
		answered(t, func(ctx context.Context) error { return d.Release(ctx, g) }), nil)
	successor := <-next
	if successor == nil {
		t.Fatal("the waiter has not got the lock")
	}
	if successor.Fence <= g.Fence {
		t.Errorf("fence %d after %d", successor.Fence, g.Fence)
	}
	raw.Release(t, other, successor)
}

// lockBehind makes a waiter wait for the held lock of the test. The channel receives its grant, and
// is closed.
func lockBehind(t *testing.T, d *driver) <-chan *backend.Grant {
	t.Helper()
	req := raw.Request(t, failoverTTL)
	busy := raw.Busy(t, d, req)
	granted := make(chan *backend.Grant, 1)
	go func() {
		defer close(granted)
		ctx, cancel := context.WithTimeout(t.Context(), 2*failoverPatience)
		defer cancel()
		g, err := raw.Lock(ctx, d, req, busy, raw.ByServer)
		if err != nil {
			t.Errorf("the waiter: %v", err)
			return
		}
		granted <- g
	}()
	return granted
}

// contend makes attempts of several owners for a free lock, while there is no primary. granted
// waits until each owner has an answer, and returns how many got the lock.
func contend(t *testing.T, d *driver) (granted func() int) {
	t.Helper()
	var owners sync.WaitGroup
	var n atomic.Int32
	for range 4 {
		owners.Go(func() {
			err := answered(t, acquiring(d, named(t, "free")))
			if err == nil {
				n.Add(1)
				return
			}
			raw.WantIs(t, "Acquire of a contender", err, backend.ErrNotAcquired)
		})
	}
	return func() int {
		owners.Wait()
		return int(n.Load())
	}
}

// awaitAway makes attempts until one is refused because there is no primary. None is granted.
func awaitAway(t *testing.T, d *driver) {
	t.Helper()
	req := named(t, "away")
	for end := time.Now().Add(failoverPatience); ; {
		_, err := d.Acquire(t.Context(), req)
		switch {
		case errors.Is(err, backend.ErrUnavailable):
			return
		case err == nil || isOutcome(err) || time.Now().After(end):
			t.Fatalf("Acquire without a primary: %v", err)
		}
	}
}

// TestUnansweredGrantIsKept loses the answer to an acquisition, and then the primary.
func TestUnansweredGrantIsKept(t *testing.T) {
	t.Parallel()
	p := testenv.NewPostgresPair(t, true)
	proxy := testenv.NewProxy(t, p.Primary().Addr)
	d := opened(t, strings.Replace(p.URL, p.Primary().Addr, proxy.Addr(), 1))
	req := named(t, "lock")
	last := raw.Acquire(t, d, req)
	raw.Release(t, d, last)
	req.Owner = raw.NewOwner()
	last = cmp.Or(loseAnswer(t, d, opened(t, p.URL), proxy, req), last)
	p.Primary().Kill(t)
	p.Promote(t)
	second := named(t, "lock")
	raw.WantIs(t, "Acquire of another owner", answered(t, acquiring(d, second)),
		backend.ErrNotAcquired)
	g := raw.Acquire(t, d, req)
	if g.Fence != last.Fence+1 {
		t.Errorf("fence %d after %d", g.Fence, last.Fence)
	}
	raw.Release(t, d, g)
}

// loseAnswer makes attempts for req until one was executed and its answer was dropped by the proxy.
// It returns the last grant before that. The outcome is unknown, so no sentinel describes it. The
// proxy can drop an answer to something else instead: then the attempt is granted, or was not
// executed, which direct checks.
func loseAnswer(
	t *testing.T, d, direct *driver, proxy *testenv.Proxy, req *backend.Request,
) (last *backend.Grant) {
	t.Helper()
	for end := time.Now().Add(failoverPatience); time.Now().Before(end); {
		_ = answered(t, acquiring(d, named(t, "other"))) // so that no connection is made below
		proxy.DropReply(t, 1)
		g, err := d.Acquire(t.Context(), req)
		switch {
		case err == nil:
			last = g
			raw.WantIs(t, "Release",
				answered(t, func(ctx context.Context) error { return d.Release(ctx, g) }), nil)
			req.Owner = raw.NewOwner()
		case isSentinel(err) && isHeld(t, direct, req.Key):
			t.Fatalf("the outcome of an acquisition without an answer is %v", err)
		case isHeld(t, direct, req.Key):
			return last
		}
	}
	t.Fatal("no attempt was executed without an answer")
	return nil
}

func isHeld(t *testing.T, d *driver, key string) bool {
	t.Helper()
	info, err := d.Inspect(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return len(info.Holders) > 0
}

// TestAsynchronousStandbyForgets ends the stream of changes to a standby, grants a lock and
// promotes the standby, which has neither the lock nor its fence. The holder is notified.
func TestAsynchronousStandbyForgets(t *testing.T) {
	t.Parallel()
	p := testenv.NewPostgresPair(t, false)
	url := p.URL + "?ttl=" + failoverTTL.String()
	holder, other := client(t, url), client(t, url)
	lease := locked(t, holder)
	if err := lease.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaitCopy(t, p, t.Name())
	p.Unfollow(t)
	lease = locked(t, holder)
	p.Primary().Kill(t)
	p.Promote(t)
	err := answered(t, lease.Extend)
	raw.WantIs(t, "Extend", err, dlock.ErrLost)
	raw.WantIs(t, "Err", lease.Err(), dlock.ErrLost)
	next := locked(t, other)
	if next.Fence() > lease.Fence() {
		t.Errorf("the standby had the fence %d: the next one is %d",
			lease.Fence(), next.Fence())
	}
	if err := next.Unlock(t.Context()); err != nil {
		t.Errorf("Unlock: %v", err)
	}
}

// client opens a client that is closed with the test.
func client(t *testing.T, url string) *dlock.Client {
	t.Helper()
	c, err := dlock.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// locked locks the lock of the test.
func locked(t *testing.T, c *dlock.Client) *dlock.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), failoverPatience)
	defer cancel()
	lease, err := c.Lock(ctx, t.Name())
	if err != nil {
		t.Fatalf("Lock: %v", err)
	}
	return lease
}

// awaitCopy waits until the standby has the last change of a name.
func awaitCopy(t *testing.T, p *testenv.Pair, key string) {
	t.Helper()
	version := func(conn *pgx.Conn) (version int64) {
		err := conn.QueryRow(t.Context(), `SELECT coalesce(max(version), 0) FROM dlock
			WHERE name = $1`, name(key)).Scan(&version)
		if err != nil {
			t.Fatal(err)
		}
		return version
	}
	from, to := connected(t, p.Primary().URL), connected(t, p.Standby().URL)
	for end := time.Now().Add(30 * time.Second); version(to) != version(from); {
		if time.Now().After(end) {
			t.Fatal("the standby does not receive the changes")
		}
	}
}

// TestFormerPrimaryGrantsNothing lets a primary go on after its standby was promoted. Its commits
// wait for the standby. When a request is given up, pgx cancels its commit, which then ends without
// the standby. So the second requests of the same owners find rows as if they held the locks.
func TestFormerPrimaryGrantsNothing(t *testing.T) {
	t.Parallel()
	p := testenv.NewPostgresPair(t, true)
	former := p.Primary()
	d, conn := opened(t, p.URL+"?timeout=1m"), connected(t, former.URL)
	held, free := raw.Acquire(t, d, named(t, "held")), named(t, "free")
	raw.Release(t, d, raw.Acquire(t, d, free))
	fresh, shared := named(t, "fresh"), named(t, "shared")
	shared.Mode = backend.Shared
	set := []*backend.Request{named(t, "one"), named(t, "two")}
	requests := map[string]func(context.Context) error{
		"Acquire of a free lock": acquiring(d, free),
		"Acquire of a reader":    acquiring(d, shared),
		"AcquireAll": func(ctx context.Context) error {
			_, _, err := d.AcquireAll(ctx, set)
			return err
		},
		"Renew": renewing(d, held),
	}
	goOn := former.Pause(t)
	p.Promote(t)
	now := opened(t, p.Primary().URL)
	var grants []*backend.Grant
	for _, req := range append(set, free, fresh, shared) {
		other := *req
		other.Owner, other.Mode = raw.NewOwner(), backend.Exclusive
		grants = append(grants, raw.Acquire(t, now, &other))
	}
	goOn()
	alone := map[string]func(context.Context) error{ // otherwise both can share a commit
		"Acquire of a new lock": acquiring(d, fresh),
	}
	for range 2 {
		giveUpCommits(t, conn, requests)
		giveUpCommits(t, conn, alone)
	}
	for _, g := range grants {
		raw.WantIs(t, "Renew", answered(t, renewing(now, g)), nil)
		raw.Release(t, now, g)
	}
}

// TestRowOfAFormerPrimaryIsNotStored lets a former primary live on. It gives the same versions to
// other changes than the new primary. A pool has connections to both: each request reads free rows
// on the former primary, and stores them on the new one, where the locks are held.
func TestRowOfAFormerPrimaryIsNotStored(t *testing.T) {
	t.Parallel()
	p := testenv.NewPostgresPair(t, false)
	former, conn := opened(t, p.Primary().URL), connected(t, p.Primary().URL)
	reqs := []*backend.Request{named(t, "one"), named(t, "two")}
	for _, req := range reqs {
		raw.Release(t, former, raw.Acquire(t, former, req))
		awaitCopy(t, p, req.Key)
	}
	p.Promote(t)
	now := opened(t, p.Primary().URL)
	for _, req := range reqs {
		raw.Acquire(t, former, req)
		exec(t, conn, `UPDATE dlock SET expires = now() WHERE name = $1`, name(req.Key))
		g := *req
		g.Owner = raw.NewOwner()
		held := raw.Acquire(t, now, &g)
		defer func() {
			raw.WantIs(t, "Renew", renewing(now, held)(t.Context()), nil)
			raw.Release(t, now, held)
		}()
	}
	both := opened(t, p.Primary().URL)
	own := both.pool
	lendOnce := func() { both.pool = &once{pool: own, former: former.pool} }
	lendOnce()
	_, _, err := both.AcquireAll(t.Context(), reqs)
	raw.WantIs(t, "AcquireAll", err, backend.ErrNotAcquired)
	lendOnce()
	reader := *reqs[0]
	reader.Mode = backend.Shared
	raw.WantIs(t, "Acquire", acquiring(both, &reader)(t.Context()), backend.ErrNotAcquired)
}

// once lends a connection to a former primary once, and then connections of the pool.
type once struct {
	pool

	former pool
	isLent atomic.Bool
}

func (p *once) with(ctx context.Context, use func(*pgx.Conn)) error {
	if p.isLent.CompareAndSwap(false, true) {
		return p.former.with(ctx, use)
	}
	return p.pool.with(ctx, use)
}

// giveUpCommits makes requests, gives them up when all of their commits wait for a standby, and
// ends the commits as an operator does.
func giveUpCommits(
	t *testing.T, conn *pgx.Conn, requests map[string]func(context.Context) error,
) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running sync.WaitGroup
	for what, request := range requests {
		running.Go(func() { raw.WantIs(t, what, request(ctx), context.Canceled) })
	}
	awaitCommits(t, conn, len(requests))
	cancel()
	running.Wait()
	exec(t, conn, `SELECT pg_cancel_backend(pid) FROM pg_stat_activity
		WHERE wait_event = 'SyncRep' AND application_name = 'dlock'`)
	awaitCommits(t, conn, 0)
}
