package redisbackend

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

const (
	// failoverTTL is long, so that neither its end nor the poll after a third of it ends a wait.
	failoverTTL = 10 * time.Minute
	// failoverPatience limits a failover, and each wait for one.
	failoverPatience = 2 * time.Minute
)

// groups are the kinds of server groups that can be without a master for a while.
var groups = []struct {
	name   string
	start  func(tb testenv.TB) *testenv.RedisGroup
	master func(g *testenv.RedisGroup, tb testenv.TB, name string) *testenv.Server
}{
	{
		name:  "cluster",
		start: testenv.RedisCluster,
		master: func(g *testenv.RedisGroup, tb testenv.TB, name string) *testenv.Server {
			return g.Master(tb, newKeys(name).lock)
		},
	},
	{
		name:  "sentinel",
		start: testenv.RedisSentinel,
		master: func(g *testenv.RedisGroup, tb testenv.TB, _ string) *testenv.Server {
			return g.SentinelMaster(tb)
		},
	},
}

// eachFailover runs a test for each kind of group and each way to lose a master. A master that is
// only stopped leaves connections without answers.
func eachFailover(t *testing.T, query string, run func(t *testing.T, f *failover)) {
	t.Helper()
	t.Parallel()
	for _, group := range groups {
		for _, kill := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/kill=%v", group.name, kill), func(t *testing.T) {
				t.Parallel()
				g := testenv.Alone(t, group.start)
				g.Await(t)
				run(t, &failover{
					url: g.URL + "?ttl=" + failoverTTL.String() + query,
					remove: func() (back func()) {
						old := group.master(g, t, t.Name())
						back = g.Take(t, old, kill)
						end := time.Now().Add(failoverPatience)
						for ; group.master(g, t, t.Name()) == old; pause(t, 50*time.Millisecond) {
							if time.Now().After(end) {
								t.Fatal("no other master takes over")
							}
						}
						return back
					},
				})
			})
		}
	}
}

type failover struct {
	url string
	// remove takes the master away, and returns when another master has taken over.
	remove func() (back func())
}

func (f *failover) client(t *testing.T) *dlock.Client {
	t.Helper()
	c, err := dlock.Open(t.Context(), f.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Logf("Close: %v", err)
		}
	})
	return c
}

func lock(t *testing.T, c *dlock.Client) *dlock.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), failoverPatience)
	defer cancel()
	lease, err := c.Lock(ctx, t.Name())
	if err != nil {
		t.Fatalf("Lock: %v", err)
	}
	return lease
}

// TestMasterFailsWhileHeld checks that a lock which replicas have acknowledged outlives its master.
// This requires enough replicas again within the lock's term.
func TestMasterFailsWhileHeld(t *testing.T) {
	eachFailover(t, "&wait=1", func(t *testing.T, f *failover) {
		t.Helper()
		c, other := f.client(t), f.client(t)
		lease := lock(t, c)
		f.remove()()
		ctx, cancel := context.WithTimeout(t.Context(), failoverPatience)
		defer cancel()
		for lease.Extend(ctx) != nil {
			if err := lease.Err(); err != nil {
				t.Fatalf("the lease: %v", err)
			}
			pause(t, 50*time.Millisecond)
		}
		_, err := other.TryLock(ctx, t.Name())
		// The failure has cut connections, so the first requests can fail.
		for errors.Is(err, dlock.ErrUncertain) || errors.Is(err, dlock.ErrUnavailable) {
			_, err = other.TryLock(ctx, t.Name())
		}
		raw.WantIs(t, "TryLock of another client", err, dlock.ErrNotAcquired)
		if err := lease.Unlock(ctx); err != nil {
			t.Errorf("Unlock: %v", err)
		}
		next := lock(t, other)
		if next.Fence() <= lease.Fence() {
			t.Errorf("fence %d after %d", next.Fence(), lease.Fence())
		}
	})
}

// TestMasterFailsWhileWaitedFor checks a failover of locks without acknowledgements. The holder
// after the failover has a greater fence, and no waiter hangs.
func TestMasterFailsWhileWaitedFor(t *testing.T) {
	eachFailover(t, "", func(t *testing.T, f *failover) {
		t.Helper()
		for _, down := range []bool{true, false} {
			c, other := f.client(t), f.client(t)
			lease := lock(t, c)
			granted := make(chan *dlock.Lease, 1)
			go func() {
				defer close(granted)
				ctx, cancel := context.WithTimeout(t.Context(), 2*failoverPatience)
				defer cancel()
				next, err := other.Lock(ctx, t.Name())
				if err != nil {
					t.Errorf("the waiter: %v", err)
					return
				}
				granted <- next
			}()
			awaitWaiter(t, c)
			if down {
				f.remove()
			}
			start := time.Now()
			unlock(t, lease)
			next := <-granted
			if next == nil {
				t.FailNow()
			}
			if next.Fence() <= lease.Fence() {
				t.Errorf("fence %d after %d", next.Fence(), lease.Fence())
			}
			if took := time.Since(start); took > failoverPatience {
				t.Errorf("the waiter waited for %v", took)
			}
			unlock(t, next)
		}
	})
}

// unlock unlocks while a master is away.
func unlock(t *testing.T, lease *dlock.Lease) {
	t.Helper()
	if err := lease.Unlock(t.Context()); err != nil && !errors.Is(err, dlock.ErrUncertain) {
		t.Errorf("Unlock: %v", err)
	}
}

func awaitWaiter(t *testing.T, c *dlock.Client) {
	t.Helper()
	for end := time.Now().Add(patience); ; pause(t, 10*time.Millisecond) {
		if info, err := c.Inspect(t.Context(), t.Name()); err == nil && info.Waiters > 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatal("there is no waiter")
		}
	}
}

func pause(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
}

// TestConnectionsFollowTheMaster checks that the driver closes its connections to a former master
// when the sentinels announce another master. It does not wait until the connections are silent for
// too long.
func TestConnectionsFollowTheMaster(t *testing.T) {
	t.Parallel()
	g := testenv.Alone(t, testenv.RedisSentinel)
	g.Await(t)
	d := openURL(t, g.URL)
	home := func() *link {
		d.hub.mu.Lock()
		defer d.hub.mu.Unlock()
		return d.hub.link
	}
	first := home()
	former := g.SentinelMaster(t)
	g.Take(t, former, false)
	believed := func() string {
		d.conn.sentinels.mu.Lock()
		defer d.conn.sentinels.mu.Unlock()
		return d.conn.sentinels.accepted.master
	}
	end := time.Now().Add(failoverPatience)
	for ; believed() == former.Addr; pause(t, 10*time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no other master is announced")
		}
	}
	end = time.Now().Add(silence - 5*time.Second)
	for ; home() == first; pause(t, 10*time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the driver still listens to the former master")
		}
	}
	raw.Release(t, d, raw.Acquire(t, d, raw.Request(t, longTerm)))
}

// TestSlotMovesWhileHeld checks that a slot which moves to another master takes its locks along.
// The locks can be renewed at any time, and a waiter receives the release.
func TestSlotMovesWhileHeld(t *testing.T) {
	g := testenv.RedisCluster(t)
	g.Await(t)
	holder, waiter := openURL(t, g.URL), openURL(t, g.URL)
	held := raw.Acquire(t, holder, raw.Request(t, longTerm))
	req := raw.Request(t, longTerm)
	woken := make(chan error, 1)
	b := raw.Busy(t, waiter, req)
	go func() {
		for {
			if passed, err := waiter.Wait(t.Context(), req, b); passed != nil || err != nil {
				woken <- err
				return
			}
			_, err := waiter.Acquire(t.Context(), req)
			next, ok := errors.AsType[*backend.Busy](err)
			if !ok {
				woken <- err
				return
			}
			b = next
		}
	}()
	m := newMove(t, g, newClusterKeys(held.Key))
	renewed := func(when string) {
		t.Helper()
		if _, err := holder.Renew(t.Context(), held); err != nil {
			t.Errorf("Renew %s: %v", when, err)
		}
	}
	m.begin(t)
	renewed("when the slot is about to move")
	m.keys(t)
	renewed("when the keys have moved")
	m.end(t)
	renewed("when the slot has moved")
	raw.Release(t, holder, held)
	select {
	case err := <-woken:
		if err != nil {
			t.Errorf("the waiter: %v", err)
		}
	case <-time.After(patience):
		t.Error("the waiter was not woken")
	}
	raw.Release(t, waiter, &backend.Grant{Request: *req})
}

// move moves a slot from one master to another, in the steps of redis-cli.
type move struct {
	slot         int64
	from, to     *redis.Client
	toAddr       string
	fromID, toID string
	all          []*redis.Client
	names        keys
}

func newMove(t *testing.T, g *testenv.RedisGroup, k keys) *move {
	t.Helper()
	m := &move{names: k}
	source := g.Master(t, k.lock)
	for _, s := range g.Nodes {
		c := admin(t, s)
		if info := do(t, c, "role").([]any); info[0] != "master" {
			continue
		}
		m.all = append(m.all, c)
		if s == source {
			m.from = c
		} else {
			m.to, m.toAddr = c, s.Addr
		}
	}
	m.slot = do(t, m.from, "cluster", "keyslot", k.lock).(int64)
	m.fromID = do(t, m.from, "cluster", "myid").(string)
	m.toID = do(t, m.to, "cluster", "myid").(string)
	return m
}

func (m *move) begin(t *testing.T) {
	t.Helper()
	do(t, m.to, "cluster", "setslot", m.slot, "importing", m.fromID)
	do(t, m.from, "cluster", "setslot", m.slot, "migrating", m.toID)
}

func (m *move) keys(t *testing.T) {
	t.Helper()
	host, port, _ := strings.Cut(m.toAddr, ":")
	do(t, m.from, "migrate", host, port, "", 0, 5000, "keys",
		m.names.lock, m.names.fence, m.names.queue, m.names.waiters)
}

func (m *move) end(t *testing.T) {
	t.Helper()
	for _, c := range append([]*redis.Client{m.to, m.from}, m.all...) {
		do(t, c, "cluster", "setslot", m.slot, "node", m.toID)
	}
}
