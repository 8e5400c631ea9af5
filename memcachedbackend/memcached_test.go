package memcachedbackend

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/announce"
	"github.com/dlock-go/dlock/internal/bound"
	"github.com/dlock-go/dlock/internal/lag"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// LockKey and CounterKey return the keys of a lock and of its counter on the server.
func LockKey(name string) string    { return newKeys(name).lock }
func CounterKey(name string) string { return newKeys(name).counter }

// openURL opens a driver and closes it at the end of the test. Its requests have a timeout of a
// minute, unless the URL sets another one.
func openURL(tb testing.TB, raw string) *driver {
	tb.Helper()
	if !strings.Contains(raw, "?") {
		raw += "?timeout=1m"
	}
	d, err := testenv.Open(tb.Context(), raw)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := d.Close(); err != nil {
			tb.Errorf("Close: %v", err)
		}
	})
	return d.(*driver)
}

// admin returns a client with which a test changes the server.
func admin(tb testing.TB, s *testenv.Server) *memcache.Client {
	tb.Helper()
	c := memcache.New(s.Addr)
	c.Timeout = patience
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

const (
	// patience limits the wait for events that happen at once on any machine. Without the event the
	// next chance comes at least a minute later.
	patience = 30 * time.Second
	// long is the TTL of a lock that does not expire during a test.
	long = 24 * time.Hour
)

func wantBusy(tb testing.TB, d *driver, req *backend.Request) {
	tb.Helper()
	_, err := d.Acquire(tb.Context(), req)
	if _, ok := errors.AsType[*backend.Busy](err); !ok {
		tb.Fatalf("Acquire: %v, want *Busy", err)
	}
}

// stats returns the statistics of the server.
func stats(tb testing.TB, s *testenv.Server) map[string]int {
	tb.Helper()
	conn, err := net.DialTimeout("tcp", s.Addr, patience)
	if err != nil {
		tb.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		tb.Fatal(err)
	}
	if _, err := conn.Write([]byte("stats\r\n")); err != nil {
		tb.Fatal(err)
	}
	counts := make(map[string]int)
	for lines := bufio.NewScanner(conn); lines.Scan() && lines.Text() != "END"; {
		var name string
		var n int
		if _, err := fmt.Sscanf(lines.Text(), "STAT %s %d", &name, &n); err == nil {
			counts[name] = n
		}
	}
	return counts
}

// commands counts the commands that a driver can send.
func commands(tb testing.TB, s *testenv.Server) int {
	tb.Helper()
	c := stats(tb, s)
	return c["cmd_get"] + c["cmd_set"] + c["incr_hits"] + c["incr_misses"]
}

func TestAPairIsFourCommands(t *testing.T) {
	t.Parallel()
	s := testenv.NewMemcached(t)
	d, other := openURL(t, s.URL), openURL(t, s.URL)
	for i, c := range []struct {
		by          *driver
		pairs, want int
	}{
		{d, 1, 5}, // includes the seed of the counter
		{d, 10, 40},
		{other, 1, 6}, // the foreseen fence was wrong: a gets and a cas correct it
		{other, 10, 40},
	} {
		before, start := commands(t, s), time.Now()
		for range c.pairs {
			raw.Release(t, c.by, raw.Acquire(t, c.by, raw.Request(t, long)))
		}
		n := commands(t, s) - before
		if i == 0 && time.Since(start) > maxSeedAge*time.Microsecond && n == c.want+2 {
			continue // on such a slow machine, a seed can be too old when it is added
		}
		if n != c.want {
			t.Errorf("step %d: %d pairs need %d commands, want %d", i, c.pairs, n, c.want)
		}
	}
}

// hookConn calls its hook once, before it sends the first request that begins with verb.
type hookConn struct {
	net.Conn
	verb string
	hook func()
}

func (c *hookConn) Write(b []byte) (int, error) {
	if hook := c.hook; hook != nil && strings.HasPrefix(string(b), c.verb) {
		c.hook = nil
		hook()
	}
	return c.Conn.Write(b)
}

// hooked returns a client that calls hook before it sends its first verb.
func hooked(tb testing.TB, s *testenv.Server, verb string, hook func()) *memcache.Client {
	tb.Helper()
	c := memcache.New(s.Addr)
	c.Timeout = patience
	c.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return &hookConn{Conn: conn, verb: verb, hook: hook}, err
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// TestFenceIsDrawnWhileHolding breaks the lock between the add and the incr. A fence that is drawn
// after this would be greater than the fence of the next holder.
func TestFenceIsDrawnWhileHolding(t *testing.T) {
	t.Parallel()
	s := testenv.Memcached(t)
	for name, c := range map[string]struct {
		drawn bool   // a fence is drawn before, so that the next one is foreseen
		verb  string // the lock is broken before this verb
	}{
		"a seed is foreseen":         {false, "incr"},
		"another seeds":              {false, "add " + counterPrefix},
		"the next fence is foreseen": {true, "incr"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, other := openURL(t, s.URL), openURL(t, s.URL)
			req := raw.Request(t, long)
			if c.drawn {
				raw.Release(t, d, raw.Acquire(t, d, raw.Request(t, long)))
			}
			var next *backend.Grant
			g, err := d.attempt(hooked(t, s, c.verb, func() {
				if err := other.Break(t.Context(), req.Key, req.Owner); err != nil {
					t.Errorf("Break: %v", err)
				}
				next = raw.Acquire(t, other, raw.Request(t, long))
			}), req)
			raw.WantIs(t, "Acquire of a lock that is broken during the call", err, backend.ErrLost)
			if g != nil && g.Fence > next.Fence {
				t.Errorf("fence %d, and the holder has fence %d", g.Fence, next.Fence)
			}
			raw.Release(t, other, next)
		})
	}
}

// TestOldSeed stops a process before it seeds the counter. The lock passes to another holder, which
// draws a fence. Then the counter is deleted.
func TestOldSeed(t *testing.T) {
	t.Parallel()
	s := testenv.Memcached(t)
	d, other, ops := openURL(t, s.URL), openURL(t, s.URL), admin(t, s)
	req := raw.Request(t, long)
	var next *backend.Grant
	_, err := d.attempt(hooked(t, s, "incr", func() {
		time.Sleep(2 * maxSeedAge * time.Microsecond)
		if err := other.Break(t.Context(), req.Key, req.Owner); err != nil {
			t.Errorf("Break: %v", err)
		}
		next = raw.Acquire(t, other, raw.Request(t, long))
		raw.Release(t, other, next)
		if err := ops.Delete(newKeys(req.Key).counter); err != nil {
			t.Error(err)
		}
	}), req)
	raw.WantIs(t, "Acquire of a lock that is broken during the call", err, backend.ErrLost)
	last := raw.Acquire(t, openURL(t, s.URL), raw.Request(t, long))
	if last.Fence <= next.Fence {
		t.Errorf("fence %d after %d", last.Fence, next.Fence)
	}
}

// TestFenceIsStored checks that the server stores the fence of a grant. This includes a foreseen
// fence, and a fence that was foreseen wrongly.
func TestFenceIsStored(t *testing.T) {
	t.Parallel()
	s := testenv.Memcached(t)
	d, other := openURL(t, s.URL), openURL(t, s.URL)
	c := admin(t, s)
	for i, by := range []*driver{d, d, other, other, d, other, other} {
		if i == 6 { // the driver foresees the next fence, and finds no counter
			if err := c.Delete(newKeys(t.Name()).counter); err != nil {
				t.Fatal(err)
			}
		}
		g := raw.Acquire(t, by, raw.Request(t, long))
		info, err := other.Inspect(t.Context(), g.Key)
		if err != nil || len(info.Holders) != 1 || info.Holders[0].Fence != g.Fence<<12 {
			t.Errorf("grant %d: fence %d, Inspect returns %+v, error %v", i, g.Fence, info, err)
		}
		_, err = other.Acquire(t.Context(), raw.Request(t, long))
		if busy, ok := errors.AsType[*backend.Busy](err); !ok || busy.Fence != g.Fence {
			t.Errorf("grant %d: fence %d, refused with %+v", i, g.Fence, err)
		}
		raw.Release(t, by, g)
	}
}

// TestFenceOutlivesItsCounter checks that fences still grow if the counter is seeded again from a
// clock that is behind.
func TestFenceOutlivesItsCounter(t *testing.T) {
	t.Parallel()
	s := testenv.Memcached(t)
	d, c := openURL(t, s.URL), admin(t, s)
	k := newKeys(t.Name())
	last := uint64(0)
	for i, counter := range []string{"", "", "17", "99999999999", ""} {
		if counter != "" {
			if err := c.Set(&memcache.Item{Key: k.counter, Value: []byte(counter)}); err != nil {
				t.Fatal(err)
			}
		} else if err := c.Delete(k.counter); err != nil && !errors.Is(err, memcache.ErrCacheMiss) {
			t.Fatal(err)
		}
		g := raw.Acquire(t, d, raw.Request(t, long))
		if g.Fence <= last || g.Fence >= backend.MaxFence {
			t.Errorf("fence %d of grant %d after %d", g.Fence, i, last)
		}
		last = g.Fence
		raw.Release(t, d, g)
	}
}

// TestForeignCounterIsForgotten checks that a counter with a number beyond all fences is a
// conflict. The name works again as soon as an operator has deleted the counter.
func TestForeignCounterIsForgotten(t *testing.T) {
	t.Parallel()
	s := testenv.Memcached(t)
	d, c := openURL(t, s.URL), admin(t, s)
	k := newKeys(t.Name())
	const last = backend.MaxFence - 1
	for _, number := range []uint64{last, last - 1} { // one more fence can follow last-1
		value := []byte(strconv.FormatUint(number, 10))
		if err := c.Set(&memcache.Item{Key: k.counter, Value: value}); err != nil {
			t.Fatal(err)
		}
		if number < last {
			raw.Release(t, d, raw.Acquire(t, d, raw.Request(t, long)))
		}
		for range 2 {
			_, err := d.Acquire(t.Context(), raw.Request(t, long))
			raw.WantIs(t, "Acquire with a counter beyond all fences", err, backend.ErrConflict)
			if _, err := c.Get(k.lock); !errors.Is(err, memcache.ErrCacheMiss) {
				t.Errorf("Acquire left a lock: %v", err)
			}
		}
		if err := c.Delete(k.counter); err != nil {
			t.Fatal(err)
		}
		g := raw.Acquire(t, d, raw.Request(t, long))
		if now := seedNow(); g.Fence > now {
			t.Errorf("the fence after the counter is deleted is %d, the time is %d", g.Fence, now)
		}
		raw.Release(t, d, g)
		if err := c.Delete(k.counter); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWrongClockSeedsNoCounter checks that a client sends no request if its clock is so far in the
// future that no fence can follow.
func TestWrongClockSeedsNoCounter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(100 * 365 * 24 * time.Hour) // from 2000 to 2099
		c := memcache.New("localhost:1")
		c.DialContext = func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("a request was sent")
		}
		d := newDriver([]string{"localhost:1"}, Options{Conns: 1})
		d.fences.remember(t.Name(), 1)
		_, err := d.attempt(c, raw.Request(t, long))
		raw.WantIs(t, "Acquire", err, errClock)
	})
}

func TestFencesAreBounded(t *testing.T) {
	t.Parallel()
	var f fences
	for i := range 3 * maxFences {
		f.remember(fmt.Sprint(i), uint64(i+1))
		if n := len(f.last) + len(f.before); n > maxFences {
			t.Fatalf("the driver keeps %d names", n)
		}
	}
	for _, i := range []int{3*maxFences - 1, 3*maxFences - maxFences/2} {
		if next := f.foresee(fmt.Sprint(i)); next != (forecast{uint64(i + 2), true}) {
			t.Errorf("the forecast is %+v", next)
		}
	}
	if seed := f.foresee("never seen"); seed.next || seed.fence < 3*maxFences {
		t.Errorf("the forecast for an unknown name is %+v", seed)
	}
}

// TestNothingIsOverwritten passes the lock to another owner between gets and cas.
func TestNothingIsOverwritten(t *testing.T) {
	t.Parallel()
	s := testenv.Memcached(t)
	d := openURL(t, s.URL)
	for _, e := range []edit{prolong(time.Minute), remove} {
		g := raw.Acquire(t, d, raw.Request(t, long))
		var next *backend.Grant
		c := hooked(t, s, "cas", func() {
			raw.Release(t, d, g)
			next = raw.Acquire(t, d, raw.Request(t, long))
		})
		_, err := rewrite(c, newKeys(g.Key).lock, ownedBy(g.Owner), e)
		raw.WantIs(t, "rewrite of another owner's lock", err, errGone)
		raw.Release(t, d, next)
	}
}

// TestLateAddRevivesNoLease breaks a lock. After the next holder has released it, an add of the
// first holder's owner is executed that was sent before its grant. The broken grant stays lost, but
// a repeated Acquire of the owner returns a grant that can be renewed.
func TestLateAddRevivesNoLease(t *testing.T) {
	t.Parallel()
	s := testenv.Memcached(t)
	d, other := openURL(t, s.URL), openURL(t, s.URL)
	req, earlier := raw.Request(t, long), time.Now()
	time.Sleep(time.Millisecond)
	g := raw.Acquire(t, d, req)
	raw.WantIs(t, "Break", other.Break(t.Context(), req.Key, req.Owner), nil)
	raw.Release(t, other, raw.Acquire(t, other, raw.Request(t, long)))
	late := newRecord(req, d.list, g.Fence, earlier).encode()
	if err := admin(t, s).Add(&memcache.Item{Key: newKeys(req.Key).lock, Value: late}); err != nil {
		t.Fatal(err)
	}
	_, err := d.Renew(t.Context(), g)
	raw.WantIs(t, "Renew", err, backend.ErrLost)
	r := d.RenewAll(t.Context(), []*backend.Grant{g})[0]
	raw.WantIs(t, "RenewAll", r.Err, backend.ErrLost)
	again := raw.Acquire(t, d, req)
	if again.Fence <= g.Fence {
		t.Errorf("fence %d of the new grant after %d", again.Fence, g.Fence)
	}
	_, err = d.Renew(t.Context(), again)
	raw.WantIs(t, "Renew of the new grant", err, nil)
	raw.Release(t, d, again)
}

// TestCasIDsAreNotTakenAcrossARestart checks that an id from before a restart is refused. A
// restarted server counts its ids from one again.
func TestCasIDsAreNotTakenAcrossARestart(t *testing.T) {
	t.Parallel()
	s := testenv.NewMemcached(t)
	d, other := openURL(t, s.URL), openURL(t, s.URL)
	g := raw.Acquire(t, d, raw.Request(t, long))
	var next *backend.Grant
	err := d.server(g.Key).main.do(t.Context(), func(c *memcache.Client) error {
		lock, owned := newKeys(g.Key).lock, ownedBy(g.Owner)
		_, err := rewrite(c, lock, owned, func(r *record) ([]byte, int32) {
			s.Restart(t)
			for range 3 { // so that any id that the first client has read is used again
				next = raw.Acquire(t, other, raw.Request(t, long))
				info, err := other.Inspect(t.Context(), g.Key)
				if err != nil || len(info.Holders) != 1 {
					t.Errorf("Inspect: %+v, %v", info, err)
				}
				raw.Release(t, other, next)
			}
			next = raw.Acquire(t, other, raw.Request(t, long))
			return r.encode(), expired
		})
		return err
	})
	if err == nil {
		t.Error("cas with an id from before the restart was accepted")
	}
	raw.Release(t, other, next)
}

// TestBatchOutlivesItsConnection checks that a lost answer affects only one lock of a batch. Ids
// that were read on the broken connection are not used on the next connection.
func TestBatchOutlivesItsConnection(t *testing.T) {
	t.Parallel()
	s := testenv.Memcached(t)
	proxy := testenv.NewProxy(t, s.Addr)
	d := openURL(t, "memcached://"+proxy.Addr())
	var gs []*backend.Grant
	for i := range 20 {
		req := raw.Request(t, long)
		req.Key = fmt.Sprint(t.Name(), i)
		gs = append(gs, raw.Acquire(t, d, req))
	}
	oneBatch(d)
	proxy.DropReply(t, 6) // counts the reply to gets and the replies to cas
	failed := 0
	for i, r := range d.RenewAll(t.Context(), gs) {
		switch {
		case r.Err == nil && r.Term.TTL != long, errors.Is(r.Err, backend.ErrLost):
			t.Errorf("renewal %d: %+v", i, r)
		case r.Err != nil:
			failed++
		}
	}
	if failed != 1 {
		t.Errorf("%d renewals failed, want 1", failed)
	}
	for _, g := range gs {
		raw.Release(t, d, g)
	}

	g := gs[0]
	c := admin(t, s)
	next := raw.Acquire(t, d, raw.Request(t, long))
	item, err := c.Get(newKeys(next.Key).lock)
	if err != nil {
		t.Fatal(err)
	}
	// The id of the item is used again, for another value.
	g.Key, item.Value = next.Key, newRecord(&g.Request, "1", 1, time.Now()).encode()
	b := batch{client: c, sent: time.Now(), stale: true}
	if answer := b.renew(g, item); !errors.Is(answer.Err, errGone) {
		t.Errorf("renewal: %+v", answer)
	}
	raw.Release(t, d, next)
}

// oneBatch makes d, which has one server, renew all locks in one batch.
func oneBatch(d *driver) { d.servers[0].renewals = newLane(d.servers[0].pool, 1) }

// TestBatchesUseAllConnections checks that a renewal of many locks is spread over the connections
// for renewals.
func TestBatchesUseAllConnections(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]int{1: 1, 12: 1, 13: 2, 24: 2, 1200: 100, 5000: 100} {
		if got := batchSize(n, 12); got != want {
			t.Errorf("%d locks are renewed in batches of %d, want %d", n, got, want)
		}
	}
	gs := make([]*backend.Grant, 3*(controlConns+reservedConns))
	for i := range gs {
		gs[i] = &backend.Grant{Request: *raw.Request(t, long)}
	}
	var conns sync.WaitGroup
	conns.Add(controlConns + reservedConns)
	d := newDriver([]string{listen(t, func(conn net.Conn) {
		conns.Done()
		conns.Wait() // no renewal is answered before all connections are in use
		answer(conn)
	})}, (&Options{Timeout: time.Hour}).withDefaults())
	within(t, func() {
		for _, r := range d.RenewAll(t.Context(), gs) {
			raw.WantIs(t, "renewal of a lock that is gone", r.Err, backend.ErrLost)
		}
	})
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// TestLossesAreReported checks that the driver reports a lock that the server has lost. An eviction
// looks like flush_all, and a restart also deletes all locks.
func TestLossesAreReported(t *testing.T) {
	t.Parallel()
	s := testenv.NewMemcached(t, "-m", "2")
	d := openURL(t, s.URL)
	losses := map[string]func(g *backend.Grant){
		"flush_all": func(*backend.Grant) {
			if err := admin(t, s).FlushAll(); err != nil {
				t.Fatal(err)
			}
		},
		"restart": func(*backend.Grant) { s.Restart(t) },
		"eviction": func(g *backend.Grant) {
			// Only items of its size push the lock out.
			size := len(newKeys(g.Key).lock)
			filler := admin(t, s)
			value := newRecord(&g.Request, d.list, g.Fence, time.Now()).encode()
			for i := range 200_000 {
				if i%2000 == 0 && stats(t, s)["evictions"] > 20_000 {
					return
				}
				key := fmt.Sprintf("%0*d", size, i)
				if err := filler.Set(&memcache.Item{Key: key, Value: value}); err != nil {
					t.Fatal(err)
				}
			}
		},
	}
	for what, lose := range losses {
		g := raw.Acquire(t, d, raw.Request(t, long))
		lose(g)
		_, err := d.Renew(t.Context(), g)
		raw.WantIs(t, "Renew after "+what, err, backend.ErrLost)
		raw.WantIs(t, "Release after "+what, d.Release(t.Context(), g), backend.ErrNotHeld)
		next := raw.Acquire(t, d, raw.Request(t, long))
		if next.Fence <= g.Fence {
			t.Errorf("after %s: fence %d after %d", what, next.Fence, g.Fence)
		}
		raw.Release(t, d, next)
	}
}

// TestIdleConnectionsMayDie checks that the first request after a restart has a definite answer.
func TestIdleConnectionsMayDie(t *testing.T) {
	t.Parallel()
	s := testenv.NewMemcached(t)
	d := openURL(t, s.URL)
	for range 5 {
		g := raw.Acquire(t, d, raw.Request(t, long))
		s.Restart(t)
		raw.WantIs(t, "Release", d.Release(t.Context(), g), backend.ErrNotHeld)
		s.Restart(t)
		raw.Release(t, d, raw.Acquire(t, d, raw.Request(t, long)))
	}
}

// TestNamesStayOnTheirServer checks that the order of the list does not change the server of a
// name.
func TestNamesStayOnTheirServer(t *testing.T) {
	t.Parallel()
	var addrs []string
	for range 3 {
		addrs = append(addrs, testenv.NewMemcached(t).Addr)
	}
	d := openURL(t, "memcached://"+strings.Join(addrs, ","))
	other := openURL(t, "memcached://"+addrs[2]+","+addrs[0]+","+addrs[1]+","+addrs[2])
	served := make(map[address]int)
	for i := range 300 {
		req := raw.Request(t, long)
		req.Key += strconv.Itoa(i)
		g := raw.Acquire(t, d, req)
		second := raw.Request(t, long)
		second.Key = req.Key
		wantBusy(t, other, second)
		raw.Release(t, other, g)
		served[d.server(req.Key).pool.address]++
	}
	for _, addr := range addrs {
		if n := served[address(addr)]; n < 50 {
			t.Errorf("%d of 300 names are on %s", n, addr)
		}
	}
}

// TestSilentServerCostsNoOtherLease stops one of two servers. The leases on the other server are
// still renewed.
func TestSilentServerCostsNoOtherLease(t *testing.T) {
	t.Parallel()
	const locks, ttl = 40, 20 * time.Second
	servers := map[address]*testenv.Server{}
	var addrs []string
	for range 2 {
		s := testenv.NewMemcached(t)
		servers[address(s.Addr)] = s
		addrs = append(addrs, s.Addr)
	}
	// Requests to the silent server end after 2 s.
	d := openURL(t, "memcached://"+strings.Join(addrs, ",")+"?timeout=2s")
	c, err := dlock.New(unclosed{d}, dlock.WithTTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	silent := address(addrs[0])
	var others []*dlock.Lease
	var gone *dlock.Lease
	for i := range locks {
		name := fmt.Sprint(t.Name(), i)
		lease, err := c.Lock(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if d.server(name).pool.address == silent {
			gone = lease
		} else {
			others = append(others, lease)
		}
	}
	if gone == nil || len(others) == 0 {
		t.Fatalf("all of %d locks are on one server", locks)
	}
	servers[silent].Pause(t)
	<-gone.Lost() // at the end of its term
	paused := time.Now()
	for _, lease := range others {
		// Wait for the next renewal.
		for time.Until(lease.Deadline()) < ttl/2 || lease.Deadline().Before(paused.Add(ttl)) {
			if err := lease.Err(); err != nil {
				t.Fatalf("a lease on the server that answers: %v", err)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// unclosed is a driver that the test closes itself.
type unclosed struct{ *driver }

func (unclosed) Close() error { return nil }

// TestOneServerMoreMovesFewNames checks that a name either moves to the new server or does not
// move.
func TestOneServerMoreMovesFewNames(t *testing.T) {
	t.Parallel()
	few := newDriver([]string{"a:1", "b:1", "c:1"}, Options{Conns: 1})
	more := newDriver([]string{"a:1", "b:1", "c:1", "d:1"}, Options{Conns: 1})
	moved := 0
	for i := range 4000 {
		name := fmt.Sprint("name", i)
		before, after := few.server(name).pool.address, more.server(name).pool.address
		if before != after {
			moved++
			if after != "d:1" {
				t.Fatalf("%s moves from %s to %s", name, before, after)
			}
		}
	}
	if moved < 800 || moved > 1200 {
		t.Errorf("%d of 4000 names move, about 1000 should", moved)
	}
}

// TestOtherListOfServers checks that different lists of servers are detected. Two processes with
// different lists would exclude each other only for some names. So the first lock fails whose name
// both lists give to the same server. The order of the list does not matter.
func TestOtherListOfServers(t *testing.T) {
	t.Parallel()
	a, b := testenv.NewMemcached(t), testenv.NewMemcached(t)
	one, both := openURL(t, "memcached://"+a.Addr), openURL(t, "memcached://"+a.Addr+","+b.Addr)
	same := openURL(t, "memcached://"+b.Addr+","+a.Addr)
	req := raw.Request(t, long)
	for i := 0; string(both.server(req.Key).pool.address) != a.Addr; i++ {
		req.Key = fmt.Sprint(t.Name(), i)
	}
	g := raw.Acquire(t, both, req)
	other := raw.Request(t, long)
	other.Key = req.Key
	_, err := one.Acquire(t.Context(), other)
	raw.WantIs(t, "Acquire with another list", err, backend.ErrConflict)
	_, err = same.Acquire(t.Context(), other)
	raw.WantIs(t, "Acquire with the same list", err, backend.ErrNotAcquired)
	raw.Release(t, both, g)
	if g, err = one.Acquire(t.Context(), other); err != nil {
		t.Fatalf("Acquire of the free lock: %v", err)
	}
	raw.Release(t, one, g)
}

// TestDeadServerOfSeveral checks that only the names on the dead server cannot be locked.
func TestDeadServerOfSeveral(t *testing.T) {
	t.Parallel()
	const dead = "127.0.0.1:1" // refuses connections
	d := openURL(t, "memcached://"+testenv.Memcached(t).Addr+","+dead)
	seen := map[bool]bool{}
	for i := 0; len(seen) < 2; i++ {
		req := raw.Request(t, long)
		req.Key = fmt.Sprint(req.Key, i)
		away := string(d.server(req.Key).pool.address) == dead
		seen[away] = true
		g, err := d.Acquire(t.Context(), req)
		if away {
			raw.WantIs(t, "Acquire on the dead server", err, backend.ErrUnavailable)
			continue
		}
		if err != nil {
			t.Fatalf("Acquire on the server that answers: %v", err)
		}
		raw.Release(t, d, g)
	}
	_, err := testenv.Open(t.Context(), "memcached://"+dead+",127.0.0.1:2")
	raw.WantIs(t, "Open without a server that answers", err, backend.ErrUnavailable)
}

// TestSilentServerOfSeveral checks that Open succeeds if one of several servers accepts connections
// but does not answer.
func TestSilentServerOfSeveral(t *testing.T) {
	t.Parallel()
	silent := testenv.NewMemcached(t)
	silent.Pause(t)
	openURL(t, "memcached://"+testenv.Memcached(t).Addr+","+silent.Addr+"?timeout=5s")
}

// TestClosingServerOfSeveral checks that Open succeeds if one of several servers, or a proxy of it,
// accepts connections and closes them.
func TestClosingServerOfSeveral(t *testing.T) {
	t.Parallel()
	living := testenv.Memcached(t).Addr
	for name, serve := range map[string]func(net.Conn){
		"at once":       func(net.Conn) {},
		"after a while": func(conn net.Conn) { _, _ = conn.Read(make([]byte, 4<<10)) },
		"with a reset": func(conn net.Conn) {
			_, _ = conn.Read(make([]byte, 1))
			_ = conn.(*net.TCPConn).SetLinger(0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			closing := listen(t, serve)
			openURL(t, "memcached://"+living+","+closing)
			opts := Options{Timeout: time.Hour, TLS: &tls.Config{InsecureSkipVerify: true}}
			d := newDriver([]string{closing}, opts.withDefaults())
			if err := d.probe(t.Context()); !isUnreachable(err) {
				t.Errorf("with TLS: %v is an answer", err)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestCancelledOpen checks that a cancelled Open fails, even if one of several servers has
// answered.
func TestCancelledOpen(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{})
	silent := listen(t, func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 1))
		close(asked)
		_, _ = io.Copy(io.Discard, conn)
	})
	living := testenv.Memcached(t).Addr
	opts := Options{Timeout: time.Hour}
	d := newDriver([]string{silent, living}, opts.withDefaults())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	probed := make(chan error, 1)
	go func() { probed <- d.probe(ctx) }()
	<-asked
	for answered := d.servers[1].pool; !hasIdle(answered); time.Sleep(time.Millisecond) {
	}
	cancel()
	raw.WantIs(t, "probe", <-probed, context.Canceled)
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// hasIdle reports whether a connection of p is idle.
func hasIdle(p *pool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.idle) > 0
}

// TestFullServer checks that a full server reports that it cannot store another lock, and still
// frees its locks.
func TestFullServer(t *testing.T) {
	t.Parallel()
	s := testenv.NewMemcached(t, "-m", "8", "-M")
	d := openURL(t, s.URL)
	g := raw.Acquire(t, d, raw.Request(t, long))
	fill(t, s, newKeys(g.Key).lock, newRecord(&g.Request, "1", g.Fence, time.Now()).encode())
	probe := &backend.Request{Key: "probe", Owner: rand.Text(), Meta: "dlock"}
	fill(t, s, "dlock-probe:"+probe.Owner, newRecord(probe, "1", 0, time.Now()).encode())

	another := raw.Request(t, long)
	another.Key = strings.Repeat("x", len(g.Key))
	_, err := d.Acquire(t.Context(), another)
	raw.WantIs(t, "Acquire", err, backend.ErrUnavailable)
	if err != nil && !strings.Contains(err.Error(), "out of memory") {
		t.Errorf("Acquire: %v", err)
	}
	_, err = testenv.Open(t.Context(), s.URL)
	raw.WantIs(t, "open", err, backend.ErrUnavailable)
	raw.Release(t, d, g)
	if info, err := d.Inspect(t.Context(), g.Key); err != nil || len(info.Holders) > 0 {
		t.Errorf("Inspect of the released lock: %+v, %v", info, err)
	}
}

// fill stores values until the server has no room for another value of this size. A full server
// manages each size class separately, and each class has its own first page.
func fill(t *testing.T, s *testenv.Server, key string, value []byte) {
	t.Helper()
	c := admin(t, s)
	for i := range 200_000 {
		name := fmt.Sprintf("%0*d", len(key), i)
		if err := c.Set(&memcache.Item{Key: name, Value: value}); err != nil {
			if !strings.Contains(err.Error(), "out of memory") {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatal("the server is not full")
}

// TestNoRoomForTheCounter checks that a failure to store the counter is not definite, because the
// lock is already taken.
func TestNoRoomForTheCounter(t *testing.T) {
	t.Parallel()
	err := interpretError(t.Context(),
		incompleteError{errors.New(`memcache: "SERVER_ERROR out of memory storing object"`)})
	if errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("%v is definite", err)
	}
}

func TestForeignValues(t *testing.T) {
	t.Parallel()
	s := testenv.Memcached(t)
	d, c := openURL(t, s.URL), admin(t, s)
	k := newKeys(t.Name())
	set := func(key, value string) {
		item := &memcache.Item{Key: key, Value: []byte(value), Expiration: 60}
		if err := c.Set(item); err != nil {
			t.Fatal(err)
		}
	}
	other := raw.Request(t, long)
	other.Key = "another name"
	theirs := string(newRecord(other, "1", 1, time.Now()).encode())
	for _, value := range []string{"", "x", "dlock3\n\n\n\n\n\n\n\n", theirs} {
		set(k.lock, value)
		req := raw.Request(t, long)
		_, err := d.Acquire(t.Context(), req)
		raw.WantIs(t, fmt.Sprintf("Acquire over %q", value), err, backend.ErrConflict)
		_, err = d.Inspect(t.Context(), req.Key)
		raw.WantIs(t, fmt.Sprintf("Inspect of %q", value), err, backend.ErrConflict)
		err = d.Release(t.Context(), &backend.Grant{Request: *req})
		raw.WantIs(t, fmt.Sprintf("Release over %q", value), err, backend.ErrNotHeld)
		if item, err := c.Get(k.lock); err != nil || string(item.Value) != value {
			t.Errorf("%q became %+v, %v", value, item, err)
		}
	}
	if err := c.Delete(k.lock); err != nil {
		t.Fatal(err)
	}
	set(k.counter, "no number")
	_, err := d.Acquire(t.Context(), raw.Request(t, long))
	raw.WantIs(t, "Acquire with a counter that is not a number", err, backend.ErrConflict)
	if _, err := c.Get(k.lock); !errors.Is(err, memcache.ErrCacheMiss) {
		t.Errorf("Acquire left a lock: %v", err)
	}
}

// TestTermOutlivesTheTicks checks terms in the worst case of the server's clock. The server adds
// whole seconds to a time that it reads once a second, without its fraction. If a pause moves the
// server's ticks, two successive readings differ by two seconds. A machine that misses the right
// instants proves nothing.
func TestTermOutlivesTheTicks(t *testing.T) {
	s := testenv.NewMemcached(t)
	holder, other := openURL(t, s.URL), openURL(t, s.URL)
	const enough, most = 3, 15
	hits := 0
	for try := 0; try < most && hits < enough; try++ {
		if outliveTicks(t, s, holder, other) {
			hits++
		} else {
			t.Log(announce.Void("the instants of the server's ticks were missed"))
		}
	}
	if hits == 0 {
		t.Errorf("the instants of the server's ticks were missed %d times", most)
	}
}

// outliveTicks reports whether the ticks were moved as intended.
func outliveTicks(t *testing.T, s *testenv.Server, holder, other *driver) (hit bool) {
	t.Helper()
	resume := s.Pause(t)
	awaitFraction(0.85)
	resume() // then the server reads its time and drops the fraction
	moved := isFraction(0.85, 1)
	awaitFraction(0.05)
	awaitFraction(0.6)
	began := time.Now()
	req := raw.Request(t, minTTL)
	g := raw.Acquire(t, holder, req)
	resume = s.Pause(t) // before its next tick
	moved = moved && isFraction(0.6, 0.85)
	awaitFraction(0.02)
	resume()
	moved = moved && isFraction(0.02, 0.5) && time.Since(began) < time.Second
	next := raw.Request(t, minTTL)
	_, err := other.Acquire(t.Context(), next)
	left := time.Until(g.Term.Sent.Add(g.Term.TTL))
	if err != nil {
		raw.Release(t, holder, g)
		return moved && left > 0
	}
	if left > 0 {
		t.Fatalf("the lock was granted again %v before the end of the term", left)
	}
	raw.Release(t, other, &backend.Grant{Request: *next})
	return false
}

// awaitFraction waits until the fraction f of a second has elapsed on CLOCK_MONOTONIC, which the
// server uses.
func awaitFraction(f float64) {
	left := time.Duration((f - fraction()) * float64(time.Second))
	if left < 0 {
		left += time.Second
	}
	time.Sleep(left)
}

// isFraction reports whether the elapsed fraction of that second is between from and to.
func isFraction(from, to float64) bool {
	f := fraction()
	return f >= from && f < to
}

func TestTerms(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		ttl, term time.Duration
		seconds   int32
	}{
		{time.Second, time.Second, 3},
		{time.Second + 1, 2 * time.Second, 4},
		{30 * time.Second, 30 * time.Second, 32},
		{maxTTL, maxTTL, 30 * 24 * 60 * 60},
	} {
		if got, n := grantedTTL(tt.ttl), expiry(tt.ttl); got != tt.term || n != tt.seconds {
			t.Errorf("%v: term %v, %d s in the request; want %v, %d s",
				tt.ttl, got, n, tt.term, tt.seconds)
		}
	}
}

// TestLongestTermIsADuration uses the maximum TTL. The server would take a longer one for an
// instant in 1970.
func TestLongestTermIsADuration(t *testing.T) {
	t.Parallel()
	d := openURL(t, testenv.Memcached(t).URL)
	g := raw.Acquire(t, d, raw.Request(t, maxTTL))
	wantBusy(t, d, raw.Request(t, long))
	raw.Release(t, d, g)
}

func TestRecordKeepsItsLength(t *testing.T) {
	t.Parallel()
	req := raw.Request(t, long)
	req.Meta = "a meta\nof two lines"
	foreseen := newRecord(req, "1", 0, time.Now())
	drawn := newRecord(req, "1", backend.MaxFence-1, time.Now())
	drawn.ticket = rand.Text()
	if a, b := len(foreseen.encode()), len(drawn.encode()); a != b {
		t.Errorf("%d bytes become %d", a, b)
	}
	r, ok := decode(drawn.encode())
	if !ok || r.owner != req.Owner || r.fence != backend.MaxFence-1 ||
		r.ticket != drawn.ticket || r.name != req.Key || r.meta != req.Meta ||
		!r.since.Equal(drawn.since.Truncate(time.Microsecond)) ||
		!r.until.Equal(drawn.until.Truncate(time.Microsecond)) {
		t.Errorf("%+v became %+v, %v", drawn, r, ok)
	}
}

// TestThousandHoldAndWait checks that a thousand leases and as many waiters share few connections.
// The server accepts 100. Each of the two clients has 28, and briefly more while a busy server has
// not detected a closed connection.
func TestThousandHoldAndWait(t *testing.T) {
	t.Parallel()
	const locks = 1000
	s := testenv.NewMemcached(t, "-c", "100")
	holder, waiter := openClient(t, s), openClient(t, s)
	var leases [locks]*dlock.Lease
	var all sync.WaitGroup
	for i := range locks {
		all.Go(func() {
			var err error
			if leases[i], err = holder.Lock(t.Context(), fmt.Sprint(i)); err != nil {
				t.Errorf("Lock: %v", err)
			}
		})
	}
	all.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	for i := range locks {
		all.Go(func() {
			if _, err := waiter.Lock(ctx, fmt.Sprint(i)); !errors.Is(err, context.Canceled) {
				t.Errorf("Lock: %v", err)
			}
		})
	}
	before, end := stats(t, s)["cmd_get"], time.Now().Add(4*patience)
	for stats(t, s)["cmd_get"]-before < 2*locks {
		if time.Sleep(20 * time.Millisecond); time.Now().After(end) {
			t.Error("not all waiters poll")
			break
		}
	}
	c := stats(t, s)
	if n := c["curr_connections"]; n >= 100 || c["listen_disabled_num"] > 0 {
		t.Errorf("%d connections, refused %d times", n, c["listen_disabled_num"])
	}
	cancel()
	all.Wait()
	for i, lease := range leases { // because Close gives up after 5 s
		if lease == nil {
			continue
		}
		if err := lease.Unlock(t.Context()); err != nil {
			t.Fatalf("Unlock of lease %d: %v", i, err)
		}
	}
}

func openClient(t *testing.T, s *testenv.Server) *dlock.Client {
	t.Helper()
	c, err := dlock.Open(t.Context(), s.URL+"?timeout=1m", dlock.WithTTL(long))
	if err != nil {
		t.Fatal(err)
	}
	meter := lag.Start()
	t.Cleanup(func() {
		defer meter.Stop()
		due := time.Now().Add(5 * time.Second) // the limit of Close
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if late := time.Since(due) - meter.Worst(due); late > 2*time.Second {
			t.Errorf("Close returned %v late", late)
		}
	})
	return c
}

// TestCancelledCallGivesItsConnectionBack checks that a cancelled call returns its connection at
// once, whatever the server does.
func TestCancelledCallGivesItsConnectionBack(t *testing.T) {
	t.Parallel()
	s := testenv.NewMemcached(t)
	d := openURL(t, s.URL+"?conns=1&timeout=1m")
	raw.Release(t, d, raw.Acquire(t, d, raw.Request(t, long)))
	resume := s.Pause(t)
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		timer := time.AfterFunc(100*time.Millisecond, cancel)
		begun := time.Now()
		// The term is short, because the server may execute the request later.
		_, err := d.Acquire(ctx, raw.Request(t, time.Second))
		raw.WantIs(t, "Acquire", err, context.Canceled)
		if took := time.Since(begun); took > patience {
			t.Errorf("Acquire took %v", took)
		}
		timer.Stop()
	}
	resume()
	deadline := time.Now().Add(patience)
	for { // the server may now execute the requests that were given up
		g, err := d.Acquire(t.Context(), raw.Request(t, long))
		if err == nil {
			raw.Release(t, d, g)
			return
		}
		if !errors.Is(err, backend.ErrNotAcquired) || time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestDeadlineOfTheCall checks that the deadline limits a request that runs in the caller's
// goroutine, without another goroutine to watch it.
func TestDeadlineOfTheCall(t *testing.T) {
	t.Parallel()
	s := testenv.NewMemcached(t)
	d := openURL(t, s.URL+"?timeout=1m")
	raw.Release(t, d, raw.Acquire(t, d, raw.Request(t, long)))
	s.Pause(t)
	// The parent is not the test's context, because only the bound may end ctx.
	ctx := bound.New(context.Background(), 100*time.Millisecond) //nolint:usetesting // see above
	defer ctx.Cancel()
	begun := time.Now()
	_, err := d.Acquire(ctx, raw.Request(t, long))
	raw.WantIs(t, "Acquire", err, context.DeadlineExceeded)
	if took := time.Since(begun); took > patience {
		t.Errorf("Acquire took %v", took)
	}
}

// TestOpenRefuses opens servers that cannot be used.
func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	s := testenv.Memcached(t)
	noCAS := testenv.NewMemcached(t, "-C")
	locked := testenv.NewMemcached(t, "-Y", "/etc/passwd") // see TestPassword
	closed := "127.0.0.1:1"
	for _, tt := range []struct {
		url string
		is  error
	}{
		{"memcached://" + closed, backend.ErrUnavailable},
		{"memcached://" + raw.Login + "127.0.0.1:2," + closed, backend.ErrUnavailable},
		{"memcached://" + raw.Login + closed + "?tls=1", backend.ErrUnavailable},
		{s.URL + "?tls=1", backend.ErrUnavailable},
		{noCAS.URL, backend.ErrUnsupported},
		{locked.URL, backend.ErrUnavailable},
		{"memcached://" + raw.Login + locked.Addr, backend.ErrUnavailable},
	} {
		raw.WantIs(t, tt.url, raw.Refused(t, tt.url, ""), tt.is)
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	addr := []string{testenv.Memcached(t).Addr}
	for i, tt := range []struct {
		servers []string
		opts    *Options
	}{
		{nil, nil},
		{addr, &Options{Conns: -1}},
		{addr, &Options{Timeout: -1}},
	} {
		if d, err := New(tt.servers, tt.opts); err == nil {
			_ = d.Close()
			t.Errorf("row %d: opened", i)
		}
	}
}

func TestSocket(t *testing.T) {
	t.Parallel()
	s := testenv.Memcached(t)
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	testenv.Forward(t, listener, s.Addr)
	d := openURL(t, "memcached:?socket="+path)
	for range 2 {
		raw.Release(t, d, raw.Acquire(t, d, raw.Request(t, long)))
	}
}

func TestInterpretError(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	answer := func(line string) string {
		return fmt.Sprintf(`memcache: unexpected response line from "add": %q`, line+"\r\n")
	}
	for _, tt := range []struct {
		ctx  context.Context
		text string
		want error // nil means an unknown outcome
	}{
		{t.Context(), answer("SERVER_ERROR out of memory storing object"), backend.ErrUnavailable},
		{t.Context(), answer("ERROR Too many open connections"), backend.ErrUnavailable},
		{t.Context(), answer("CLIENT_ERROR unauthenticated"), backend.ErrUnavailable},
		{t.Context(), answer("SERVER_ERROR object too large for cache"), backend.ErrUnsupported},
		{t.Context(), answer("ERROR"), backend.ErrUnsupported},
		{t.Context(), answer("SERVER_ERROR proxy timeout"), nil},
		{t.Context(), "EOF", nil},
		{ended, "i/o timeout", context.Canceled},
	} {
		err := interpretError(tt.ctx, errors.New(tt.text))
		if tt.want != nil {
			raw.WantIs(t, tt.text, err, tt.want)
		} else if errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrUnsupported) {
			t.Errorf("%s: %v is definite", tt.text, err)
		}
		if !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%v does not contain %s", err, tt.text)
		}
	}
}

func TestListIsUnsupported(t *testing.T) {
	t.Parallel()
	d := openURL(t, testenv.Memcached(t).URL)
	n := 0
	for info, err := range d.List(t.Context(), "") {
		n++
		raw.WantIs(t, fmt.Sprint("List ", info), err, backend.ErrUnsupported)
	}
	if n != 1 {
		t.Errorf("%d answers", n)
	}
}
