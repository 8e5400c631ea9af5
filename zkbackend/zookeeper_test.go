package zkbackend

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/kind"
	"github.com/dlock-go/dlock/internal/lag"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// mark separates the owner of a writer from the number of its node.
const mark = "-w-"

// patience limits the wait for events that happen at once on a fast machine. Without the event,
// nothing else replaces it within this time.
const patience = 30 * time.Second

// fastTick gives sessions of 500 ms to 5 s.
const fastTick = 250 * time.Millisecond

func openURL(tb testing.TB, raw string) *driver {
	tb.Helper()
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
func admin(tb testing.TB, addr string) *zk.Conn {
	tb.Helper()
	conn, _, err := zk.Connect([]string{addr}, 40*time.Second, zk.WithLogger(silent{}))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(conn.Close)
	return conn
}

// keepQueue creates the queue of the test's name, and a node in it that is not a queue entry. So
// the server does not remove the empty queue while the test uses it.
func keepQueue(tb testing.TB, conn *zk.Conn, d *driver) {
	tb.Helper()
	g := raw.Acquire(tb, d, raw.Request(tb, patience))
	kept := d.queue(g.Key) + "/kept"
	_, err := conn.Create(kept, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll))
	must(tb, err)
	tb.Cleanup(func() { must(tb, conn.Delete(kept, -1)) })
	raw.Release(tb, d, g)
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func within(tb testing.TB, what string, done <-chan struct{}) {
	tb.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		tb.Fatalf("%s: not within %v", what, patience)
	}
}

// nodeOf returns the path of the node of an acquisition of d.
func nodeOf(tb testing.TB, d *driver, req *backend.Request) string {
	tb.Helper()
	e := d.find(&backend.Grant{Request: *req})
	if e == nil {
		tb.Fatal("no such acquisition")
	}
	return e.node
}

// received returns the number of packets that the server has received from its clients.
func received(tb testing.TB, addr string) int {
	tb.Helper()
	conn, err := net.Dial("tcp", addr)
	must(tb, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "srvr")
	must(tb, err)
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		var n int
		if k, _ := fmt.Sscanf(lines.Text(), "Received: %d", &n); k == 1 {
			return n
		}
	}
	tb.Fatal("the server does not report how many packets it has received")
	return 0
}

func TestInterpretError(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err, want error // nil means an unknown outcome
		answered  bool
	}{
		{zk.ErrNoServer, backend.ErrUnavailable, true},
		{zk.ErrNoAuth, backend.ErrUnavailable, true},
		{zk.ErrAuthFailed, backend.ErrUnavailable, true},
		{zk.ErrInvalidACL, backend.ErrUnavailable, true},
		{zk.ErrSessionExpired, backend.ErrUnavailable, true},
		{zk.ErrSessionMoved, backend.ErrUnavailable, true},
		{zk.ErrNoNode, backend.ErrUnavailable, true},
		{errors.New(quotaExceeded), backend.ErrUnavailable, true},
		{errors.New(throttled), backend.ErrUnavailable, true},
		{errors.New(unimplemented), backend.ErrUnsupported, false},
		{zk.ErrConnectionClosed, nil, false},
		{zk.ErrClosing, nil, false},
		{zk.ErrAPIError, nil, false},
		{io.ErrUnexpectedEOF, nil, false},
	} {
		got := interpretError(tt.err)
		unchanged := got == tt.err //nolint:errorlint // as it is
		if !errors.Is(got, tt.err) || tt.want != nil && !errors.Is(got, tt.want) ||
			tt.want == nil && !unchanged {
			t.Errorf("%v: %v, want %v", tt.err, got, tt.want)
		}
		if isDefinite(tt.err) != tt.answered {
			t.Errorf("%v: answered is %v", tt.err, !tt.answered)
		}
	}
}

// TestQueueOrderWrapsAround checks queue numbers that overflow: after 2147483647 comes -2147483648,
// and none of the negative numbers is before a number that shows its place.
func TestQueueOrderWrapsAround(t *testing.T) {
	t.Parallel()
	owner := raw.NewOwner()
	order := []string{
		"0000000000", "2147483646", "2147483647", "-2147483648", "-2147483647", "-000000001",
	}
	for i := range len(order) - 1 {
		a, ok1 := parseEntry(owner + mark + order[i])
		b, ok2 := parseEntry(owner + mark + order[i+1])
		if !ok1 || !ok2 || compareEntries(a, b) >= 0 || compareEntries(b, a) <= 0 ||
			compareEntries(a, a) != 0 {
			t.Errorf("%s is not before %s", order[i], order[i+1])
		}
	}
	for _, name := range []string{
		"", "_c_", "lock-0000000001", owner, owner + mark, owner + mark + "1",
		owner[:31] + mark + order[0], owner + mark + "99999999999",
		strings.ToUpper(owner) + mark + order[0],
	} {
		if m, ok := parseEntry(name); ok {
			t.Errorf("%q was parsed as %v", name, m)
		}
	}
}

// pings returns the maximum number of pings from clients since begun, with the default session.
func pings(begun time.Time, clients int) int { return clients * int(time.Since(begun)/time.Second) }

func TestUncontendedPairIsThreeRequests(t *testing.T) {
	s := testenv.NewZooKeeper(t, 2*time.Second)
	d := openURL(t, s.URL)
	raw.Release(t, d, raw.Acquire(t, d, raw.Request(t, 5*time.Second))) // the lock's node is made
	const pairs = 100
	before, begun := received(t, s.Addr), time.Now()
	for range pairs {
		raw.Release(t, d, raw.Acquire(t, d, raw.Request(t, 5*time.Second)))
	}
	if n := received(t, s.Addr) - before; n > 3*pairs+10+pings(begun, 1) {
		t.Errorf("%d requests for %d pairs", n, pairs)
	}
}

// TestSuccessorIsGrantedWithoutARequest checks that the first waiter needs no request when the
// holder leaves. A change of owner needs five requests, none of them between the release and the
// grant.
func TestSuccessorIsGrantedWithoutARequest(t *testing.T) {
	s := testenv.NewZooKeeper(t, 2*time.Second)
	holder, waiter := openURL(t, s.URL), openURL(t, s.URL)
	g := raw.Acquire(t, holder, raw.Request(t, 30*time.Second))
	const changes = 100
	before, begun := received(t, s.Addr), time.Now()
	for range changes {
		req := raw.Request(t, 30*time.Second)
		b := raw.Busy(t, waiter, req)
		raw.Release(t, holder, g)
		if _, err := waiter.Wait(t.Context(), req, b); err != nil {
			t.Fatal(err)
		}
		next := raw.Acquire(t, waiter, req)
		if next.Fence <= g.Fence {
			t.Errorf("fence %d after %d", next.Fence, g.Fence)
		}
		g, holder, waiter = next, waiter, holder
	}
	if n := received(t, s.Addr) - before; n > 5*changes+20+pings(begun, 2) {
		t.Errorf("%d requests for %d changes of owner", n, changes)
	}
	raw.Release(t, holder, g)
}

func TestOneRequestRenewsAll(t *testing.T) {
	s := testenv.NewZooKeeper(t, 2*time.Second)
	d := openURL(t, s.URL)
	grants := make([]*backend.Grant, 200)
	for i := range grants {
		req := raw.Request(t, 5*time.Second)
		req.Key = fmt.Sprint(req.Key, i)
		grants[i] = raw.Acquire(t, d, req)
	}
	before := received(t, s.Addr)
	for range 3 {
		for i, r := range d.RenewAll(t.Context(), grants) {
			if r.Err != nil {
				t.Errorf("renewal %d: %v", i, r.Err)
			}
		}
	}
	if n := received(t, s.Addr) - before; n > 10 {
		t.Errorf("%d requests for three renewals of %d locks", n, len(grants))
	}
}

// TestReleaseWakesOneWaiter checks that a release wakes only the next waiter.
func TestReleaseWakesOneWaiter(t *testing.T) {
	t.Parallel()
	s := testenv.ZooKeeper(t)
	holder := openURL(t, s.URL)
	g := raw.Acquire(t, holder, raw.Request(t, patience))
	var drivers []*driver
	var requests []*backend.Request
	var places []*position
	for range 4 {
		d, req := openURL(t, s.URL), raw.Request(t, patience)
		b := raw.Busy(t, d, req)
		drivers, requests = append(drivers, d), append(requests, req)
		places = append(places, b.State.(*position))
	}
	raw.Release(t, holder, g)
	within(t, "the first waiter is woken", places[0].ahead.fired)
	next := raw.Acquire(t, drivers[0], requests[0])
	for i, p := range places[1:] {
		// After Sync, all earlier notifications have arrived.
		if _, err := p.session.conn.Sync("/"); err != nil {
			t.Fatal(err)
		}
		select {
		case <-p.ahead.fired:
			t.Errorf("waiter %d was woken, too", i+1)
		default:
		}
	}
	raw.Release(t, drivers[0], next)
}

// TestPredecessorThatQuits checks that a waiter does not pass the owners in front when its
// predecessor gives up.
func TestPredecessorThatQuits(t *testing.T) {
	t.Parallel()
	s := testenv.ZooKeeper(t)
	holder, first, second := openURL(t, s.URL), openURL(t, s.URL), openURL(t, s.URL)
	g := raw.Acquire(t, holder, raw.Request(t, patience))
	quits, stays := raw.Request(t, patience), raw.Request(t, patience)
	b := raw.Busy(t, first, quits)
	p := raw.Busy(t, second, stays).State.(*position)
	must(t, first.Release(t.Context(), &backend.Grant{Request: *quits, State: b.State}))
	within(t, "the successor is woken", p.ahead.fired)
	again := raw.Busy(t, second, stays)
	raw.Release(t, holder, g)
	if _, err := second.Wait(t.Context(), stays, again); err != nil {
		t.Fatal(err)
	}
	raw.Release(t, second, raw.Acquire(t, second, stays))
}

// TestNegotiatedTimeout checks that the driver uses the session timeout that the server grants, and
// limits TTLs by it.
func TestNegotiatedTimeout(t *testing.T) {
	t.Parallel()
	const tick = 2 * time.Second // so that even the shortest session is long
	s := testenv.NewZooKeeper(t, tick)
	const most, least = 20 * tick * 3 / 4, tick // a proof is shorter than its session
	begun := time.Now()
	d := openURL(t, s.URL+"?session=60s")
	if got := d.Capabilities().MaxTTL; got != most {
		t.Errorf("MaxTTL is %v, want the server's limit %v", got, most)
	}
	g := raw.Acquire(t, d, raw.Request(t, time.Minute))
	// The session's timeout counts from a request between Open and Acquire.
	if end := g.Term.Sent.Add(g.Term.TTL); g.Term.TTL > 20*tick || end.Before(begun.Add(20*tick)) {
		t.Errorf("a term of %v that ends %v after Open, the session's timeout is %v",
			g.Term.TTL, end.Sub(begun), 20*tick)
	}
	raw.Release(t, d, g)
	if got := openURL(t, s.URL+"?session=1ms").Capabilities().MaxTTL; got != least {
		t.Errorf("MaxTTL is %v, want the server's limit %v", got, least)
	}
	_, err := dlock.Open(t.Context(), s.URL+"?ttl=1m")
	raw.WantIs(t, "Open with a TTL above the limit", err, dlock.ErrUnsupported)
	if err != nil && !strings.Contains(err.Error(), (19*tick).String()) {
		t.Errorf("the error does not name the limit: %v", err)
	}
}

// TestSessionFollowsTheTTL checks that the session follows the TTL of the client, within the
// server's limits, unless the URL sets the session.
func TestSessionFollowsTheTTL(t *testing.T) {
	t.Parallel()
	s := testenv.NewZooKeeper(t, fastTick) // sessions of 500 ms to 5 s
	for _, tt := range []struct {
		query  string
		opts   []dlock.Option
		maxTTL time.Duration
	}{
		{"?ttl=2s", nil, 2 * time.Second}, // session of 2.25 s
		{"", []dlock.Option{dlock.WithTTL(3 * time.Second)}, 3 * time.Second},
		{"?ttl=2s", []dlock.Option{dlock.WithTTL(3 * time.Second)}, 2 * time.Second},
		{"?ttl=2s&session=4s", nil, 3 * time.Second},
		{"?ttl=4s&session=4s", nil, 0}, // the TTL is a tick too long
		// The session is the shortest, so the lock of a dead process is freed later than its TTL.
		{"?ttl=200ms", nil, fastTick},
		{"?ttl=4750ms", nil, 19 * fastTick}, // the longest session, 20 ticks
		{"", nil, 19 * fastTick},            // lowers the default of 30 s
	} {
		c, err := dlock.Open(t.Context(), s.URL+tt.query, tt.opts...)
		if tt.maxTTL == 0 {
			raw.WantIs(t, tt.query, err, dlock.ErrUnsupported)
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", tt.query, err)
			continue
		}
		if got := c.Capabilities().MaxTTL; got != tt.maxTTL {
			t.Errorf("%q: MaxTTL is %v, want %v", tt.query, got, tt.maxTTL)
		}
		if _, err := c.Mutex(t.Name(), dlock.WithTTL(minTTL)); err != nil { // any shorter TTL
			t.Errorf("%q: %v", tt.query, err)
		}
		must(t, c.Close())
	}
}

// isolated opens a driver whose connection can be cut.
func isolated(t *testing.T, s *testenv.Server, query string) (*driver, *testenv.Proxy) {
	t.Helper()
	p := testenv.NewProxy(t, s.Addr)
	return openURL(t, "zk://"+p.Addr()+query), p
}

// TestIsolatedHolderLosesFirst cuts off one of two processes. Its lease is lost before the other
// process gets the lock.
func TestIsolatedHolderLosesFirst(t *testing.T) {
	t.Parallel()
	s := testenv.NewZooKeeper(t, fastTick)
	p := testenv.NewProxy(t, s.Addr)
	const query = "?ttl=4750ms" // a session of 5 s
	holder, err := dlock.Open(t.Context(), "zk://"+p.Addr()+query)
	must(t, err)
	defer holder.Close()
	other, err := dlock.Open(t.Context(), s.URL+query)
	must(t, err)
	defer other.Close()
	lease, err := holder.Lock(t.Context(), t.Name())
	must(t, err)
	heal := p.Cut(t)
	next, err := other.Lock(t.Context(), t.Name())
	granted := time.Now()
	must(t, err)
	raw.WantIs(t, "Err of the isolated holder after the next grant", lease.Err(), dlock.ErrLost)
	if !lease.Deadline().Before(granted) {
		t.Errorf("the deadline was %v after the next grant", lease.Deadline().Sub(granted))
	}
	within(t, "Lost is closed", lease.Lost())
	if next.Fence() <= lease.Fence() {
		t.Errorf("fence %d after %d", next.Fence(), lease.Fence())
	}
	heal()
	raw.WantIs(t, "Unlock", lease.Unlock(t.Context()), dlock.ErrLost)
	must(t, next.Unlock(t.Context()))
	again, err := holder.Lock(t.Context(), t.Name()) // in a new session
	must(t, err)
	must(t, again.Unlock(t.Context()))
}

// expire cuts d off until the server has ended its session. It returns when d has detected the end.
func expire(t *testing.T, s *testenv.Server, d *driver, p *testenv.Proxy, node string) {
	t.Helper()
	old := d.session
	heal := p.Cut(t)
	conn := admin(t, s.Addr)
	for {
		exists, _, gone, err := conn.ExistsW(node)
		must(t, err)
		if !exists {
			break
		}
		<-gone
	}
	heal()
	within(t, "the driver detects the end of its session", old.ctx.Done())
}

func TestNewSessionResurrectsNothing(t *testing.T) {
	t.Parallel()
	s := testenv.NewZooKeeper(t, fastTick)
	d, p := isolated(t, s, "?session=5s")
	lost := make(chan struct{})
	req := raw.Request(t, time.Second)
	var once sync.Once
	req.Lost = func(err error) {
		raw.WantIs(t, "Lost", err, backend.ErrLost)
		once.Do(func() { close(lost) })
	}
	g := raw.Acquire(t, d, req)
	waiting := raw.Request(t, time.Second)
	place := raw.Busy(t, d, waiting)
	first := d.session
	expire(t, s, d, p, nodeOf(t, d, req))
	within(t, "the driver reports the loss", lost)
	if _, err := d.Wait(t.Context(), waiting, place); err != nil {
		t.Errorf("Wait in a session that is over: %v", err)
	}
	_, err := d.Renew(t.Context(), g)
	raw.WantIs(t, "Renew", err, backend.ErrLost)
	raw.WantIs(t, "RenewAll", d.RenewAll(t.Context(), []*backend.Grant{g})[0].Err, backend.ErrLost)
	next := raw.Acquire(t, d, waiting) // the same owner in a new session
	if next.Fence <= g.Fence || d.session == first {
		t.Errorf("fence %d after %d", next.Fence, g.Fence)
	}
	_, err = d.Renew(t.Context(), g)
	raw.WantIs(t, "Renew in the new session", err, backend.ErrLost)
	raw.WantIs(t, "Release of the old grant", d.Release(t.Context(), g), backend.ErrNotHeld)
	raw.Release(t, d, next)
}

// TestGhostOfAFormerSession checks a node of the same owner that another session has created. The
// driver does not use it, although it has the expected name. A sweep removes it: the search that
// found it may have missed the node of this session.
func TestGhostOfAFormerSession(t *testing.T) {
	t.Parallel()
	s := testenv.ZooKeeper(t)
	d := openURL(t, s.URL)
	req := raw.Request(t, patience)
	conn := admin(t, s.Addr)
	keepQueue(t, conn, d)
	_, err := conn.Create(d.queue(req.Key)+"/"+req.Owner+mark, nil,
		zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
	must(t, err)
	d.admit(d.session, id{req.Key, req.Owner}, kind.Writer).markUnknown() // as after a lost reply
	if g, err := d.Acquire(t.Context(), req); err == nil {
		t.Fatalf("granted by a node of another session: %v", g)
	}
	awaitFree(t, d, req)
}

// TestNodeOfALostReplyIsFound checks that the driver finds the node of a request whose answer was
// lost, and does not create a second node. Each driver loses one reply: the sweep that follows it
// would have replies of its own.
func TestNodeOfALostReplyIsFound(t *testing.T) {
	t.Parallel()
	s := testenv.ZooKeeper(t)
	conn := admin(t, s.Addr)
	for range 5 {
		d, p := isolated(t, s, "")
		g := raw.Acquire(t, d, raw.Request(t, patience))
		within(t, "the node is watched", d.find(g).own.Load().armed)
		raw.Release(t, d, g)
		req := raw.Request(t, patience)
		p.DropReply(t, 1)
		_, err := d.Acquire(t.Context(), req)
		if err == nil || errors.Is(err, backend.ErrUnavailable) {
			t.Fatalf("Acquire without an answer: %v, want an unknown outcome", err)
		}
		g = raw.Acquire(t, d, req)
		names, _, err := conn.Children(d.queue(req.Key))
		must(t, err)
		if len(names) != 1 {
			t.Errorf("one owner has the nodes %q", names)
		}
		raw.Release(t, d, g)
	}
}

// TestLateNodeOfTheSameOwner checks a create without an answer that is executed late. The driver
// has already searched for its node and has created a second one. No node of the owner remains
// after the release.
func TestLateNodeOfTheSameOwner(t *testing.T) {
	t.Parallel()
	s := testenv.ZooKeeper(t)
	d, other := openURL(t, s.URL), openURL(t, s.URL)
	raw.Release(t, d, raw.Acquire(t, d, raw.Request(t, patience))) // the lock's node is made
	req, next := raw.Request(t, patience), raw.Request(t, patience)
	d.admit(d.session, id{req.Key, req.Owner}, kind.Writer).markUnknown() // as after a lost reply
	g := raw.Acquire(t, d, req)
	_, err := d.session.conn.Create(d.queue(req.Key)+"/"+req.Owner+mark, nil,
		zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll))
	must(t, err)
	raw.Release(t, d, g)
	awaitFree(t, other, next)
}

// awaitFree makes attempts until one is granted, and releases the lock.
func awaitFree(t *testing.T, d *driver, req *backend.Request) {
	t.Helper()
	for {
		g, err := d.Acquire(t.Context(), req)
		if err == nil {
			raw.Release(t, d, g)
			return
		}
		b, ok := errors.AsType[*backend.Busy](err)
		if !ok {
			t.Fatalf("Acquire: %v", err)
		}
		within(t, "the predecessor leaves", b.State.(*position).ahead.fired)
	}
}

// TestSweepSparesTheNextAttempt checks an attempt that begins a sweep and then fails without a
// node. The sweep does not remove the node of the owner's next attempt.
func TestSweepSparesTheNextAttempt(t *testing.T) {
	t.Parallel()
	s := testenv.ZooKeeper(t)
	d, conn := openURL(t, s.URL), admin(t, s.Addr)
	req := raw.Request(t, patience)
	req.Key += raw.NewOwner() // another lock than in an earlier run of the test
	path := d.path(req.Key)
	_, err := conn.Create(path, []byte("precious"), zk.FlagPersistent, zk.WorldACL(zk.PermAll))
	must(t, err)
	a := d.admit(d.session, id{req.Key, req.Owner}, kind.Writer)
	a.markUnknown() // as after a lost reply
	_, err = d.Acquire(t.Context(), req)
	raw.WantIs(t, "Acquire of a foreign node", err, backend.ErrConflict)
	must(t, conn.Delete(path, -1))
	g := raw.Acquire(t, d, req)
	must(t, d.sweep(a))
	_, err = d.Renew(t.Context(), g)
	must(t, err)
	raw.Release(t, d, g)
}

// TestLateRemovalFreesNoGrant checks an attempt whose removal of its own node may be executed after
// the next attempt of the owner. That attempt must not be granted: its node is about to be removed.
func TestLateRemovalFreesNoGrant(t *testing.T) {
	t.Parallel()
	s := testenv.ZooKeeper(t)
	d, p := isolated(t, s, "")
	other, req := openURL(t, s.URL), raw.Request(t, patience)
	a := d.admit(d.session, id{req.Key, req.Owner}, kind.Writer)
	must(t, d.enqueue(a, req))
	execute := p.Delay(t)
	sent := make(chan struct{})
	defer a.session.onSent(action{opDelete, a.node}, func() { close(sent) })()
	failed := make(chan error, 1)
	go func() { failed <- d.stepBack(a, &backend.Busy{}) }()
	within(t, "the removal is sent", sent)
	d.session.dropConnection()
	if err := <-failed; err == nil || isDefinite(err) || errors.Is(err, backend.ErrNotAcquired) {
		t.Errorf("the attempt: %v, want an unknown outcome", err)
	}
	_, err := d.Acquire(t.Context(), req)
	raw.WantIs(t, "the next attempt of the owner", err, backend.ErrLost)
	execute()
	awaitFree(t, other, raw.Request(t, patience))
}

// TestLateSweepFreesNoGrant checks the same for the removal by a sweep that had no answer.
func TestLateSweepFreesNoGrant(t *testing.T) {
	t.Parallel()
	s := testenv.ZooKeeper(t)
	d, other, req := openURL(t, s.URL), openURL(t, s.URL), raw.Request(t, patience)
	a := d.admit(d.session, id{req.Key, req.Owner}, kind.Writer)
	must(t, d.enqueue(a, req))
	a.markAbsent()
	a.markUnknown() // as after a lost reply
	queue := a.queue
	a.queue = "" // which is no path
	if err := d.sweep(a); err == nil {
		t.Error("the sweep has not failed")
	}
	a.queue = queue
	_, err := d.Acquire(t.Context(), req)
	raw.WantIs(t, "the next attempt of the owner", err, backend.ErrLost)
	awaitFree(t, other, raw.Request(t, patience))
}

func TestBreakIsReportedAtOnce(t *testing.T) {
	t.Parallel()
	s := testenv.ZooKeeper(t)
	d, other := openURL(t, s.URL), openURL(t, s.URL)
	lost := make(chan struct{})
	req := raw.Request(t, patience)
	req.Lost = func(error) { close(lost) }
	g := raw.Acquire(t, d, req)
	must(t, other.Break(t.Context(), req.Key, req.Owner))
	within(t, "the driver reports the loss", lost)
	raw.WantIs(t, "Release", d.Release(t.Context(), g), backend.ErrNotHeld)
}

// TestReleaseIsNoLoss checks that a release is not reported as a loss, although the server reports
// the deletion of the node.
func TestReleaseIsNoLoss(t *testing.T) {
	t.Parallel()
	d := openURL(t, testenv.ZooKeeper(t).URL)
	req := raw.Request(t, patience)
	req.Lost = func(err error) { t.Errorf("Lost: %v", err) }
	raw.Release(t, d, raw.Acquire(t, d, req))
	_, err := d.session.conn.Sync("/")
	must(t, err)
}

// TestWriteToTheOwnNode checks that a write to the holder's node is not reported as a loss. The
// write consumes the watch. A later deletion is still reported.
func TestWriteToTheOwnNode(t *testing.T) {
	t.Parallel()
	s := testenv.ZooKeeper(t)
	d, conn := openURL(t, s.URL), admin(t, s.Addr)
	lost := make(chan struct{})
	var renewed atomic.Bool
	req := raw.Request(t, patience)
	req.Lost = func(error) {
		if !renewed.Load() {
			t.Error("a write is reported as a loss")
		}
		close(lost)
	}
	g := raw.Acquire(t, d, req)
	node := nodeOf(t, d, req)
	_, err := conn.Set(node, []byte("other"), -1)
	must(t, err)
	for range 2 {
		_, err = d.Renew(t.Context(), g)
		must(t, err)
	}
	renewed.Store(true)
	must(t, conn.Delete(node, -1))
	within(t, "the driver reports the loss", lost)
}

// TestRenewalDuringALoss checks that a renewal returns the loss, too, if the same acquisition
// detects it during the renewal.
func TestRenewalDuringALoss(t *testing.T) {
	t.Parallel()
	s := testenv.ZooKeeper(t)
	d, conn := openURL(t, s.URL), admin(t, s.Addr)
	g := raw.Acquire(t, d, raw.Request(t, patience))
	e := d.find(g) // the entry that the renewal has found
	must(t, conn.Delete(e.node, -1))
	within(t, "the driver detects the deletion", e.own.Load().fired)
	raw.WantIs(t, "the acquisition", e.dropNode(e.gone()), backend.ErrLost)
	d.mu.Lock()
	d.acquisitions[e.id] = e
	d.mu.Unlock()
	_, err := d.Renew(context.WithoutCancel(t.Context()), g)
	raw.WantIs(t, "Renew", err, backend.ErrLost)
}

// TestRenewalWithoutAWatch checks a renewal while another request of the same acquisition runs and
// the watch of the node is consumed. The renewal proves nothing, because the node may no longer
// exist. The other locks of the renewal are renewed.
func TestRenewalWithoutAWatch(t *testing.T) {
	t.Parallel()
	s := testenv.ZooKeeper(t)
	d, conn := openURL(t, s.URL), admin(t, s.Addr)
	g := raw.Acquire(t, d, raw.Request(t, patience))
	req := raw.Request(t, patience)
	req.Key += "2"
	watched := raw.Acquire(t, d, req)
	e := d.find(g)
	within(t, "the node is watched", e.own.Load().armed)
	e.turn <- struct{}{}
	_, err := conn.Set(e.node, []byte("other"), -1)
	must(t, err)
	within(t, "the driver detects the write", e.own.Load().fired)
	must(t, conn.Delete(e.node, -1))
	if term, err := d.Renew(t.Context(), g); err == nil || errors.Is(err, backend.ErrLost) {
		t.Errorf("Renew: %v, %v, want an unknown outcome", term, err)
	}
	renewals := d.RenewAll(t.Context(), []*backend.Grant{g, watched})
	if renewals[0].Err == nil {
		t.Error("RenewAll renews a lock that is not watched")
	}
	must(t, renewals[1].Err)
	<-e.turn
	_, err = d.Renew(t.Context(), g)
	raw.WantIs(t, "Renew", err, backend.ErrLost)
	raw.Release(t, d, watched)
}

// TestForeignWatchFails checks a holder that shares the watch of another acquisition, whose
// request for the watch fails. The lock is lost if the node no longer exists. If the connection
// failed, the node is watched again.
func TestForeignWatchFails(t *testing.T) {
	t.Parallel()
	s := testenv.ZooKeeper(t)
	for name, lost := range map[string]bool{"no node": true, "no connection": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, p := isolated(t, s, "")
			conn, g := admin(t, s.Addr), raw.Acquire(t, d, raw.Request(t, patience))
			e := d.find(g)
			within(t, "the node is watched", e.own.Load().armed)
			data, _, err := conn.Get(e.node)
			must(t, err)
			// The write consumes the watch. This is the state before the holder watches its node.
			_, err = conn.Set(e.node, data, -1)
			must(t, err)
			within(t, "the watch is consumed", e.own.Load().fired)
			deliver := p.Delay(t)
			other := make(chan error, 1)
			go func() {
				_, err := e.session.watch(e.node)
				other <- err
			}()
			eventually(t, "the watch of the other acquisition", e.session.watching)
			e.own.Store(e.session.watchInBackground(e.node))
			if lost {
				must(t, conn.Delete(e.node, -1))
			} else {
				p.Reset(t)
			}
			deliver()
			if err := <-other; err == nil {
				t.Fatal("the other acquisition watches the node")
			}
			_, err = d.Renew(t.Context(), g)
			if lost {
				raw.WantIs(t, "Renew", err, backend.ErrLost)
				return
			}
			must(t, err)
			raw.Release(t, d, g)
		})
	}
}

// TestReleaseAfterTheUserWasRefused checks a session that ends because its user was refused. It
// leaves its nodes on the server, and a release removes them.
func TestReleaseAfterTheUserWasRefused(t *testing.T) {
	t.Parallel()
	s := testenv.ZooKeeper(t)
	d, p := isolated(t, s, "?session=40s")
	conn, g := admin(t, s.Addr), raw.Acquire(t, d, raw.Request(t, patience))
	old, node, e := d.session, nodeOf(t, d, &g.Request), d.find(g)
	heal := p.Cut(t)
	sent, underWay := make(chan struct{}), make(chan error, 1)
	go func() { underWay <- d.ReleaseThen(t.Context(), g, func() { close(sent) }) }()
	within(t, "the request to delete is sent", sent)
	old.end(zk.ErrAuthFailed) // as authenticate does
	old.dropConnection()
	if err := <-underWay; err == nil || errors.Is(err, backend.ErrNotHeld) {
		t.Errorf("a release without an answer: %v, want an unknown outcome", err)
	}
	raw.WantIs(t, "a release after its wait for the turn", interpretError(d.release(e)),
		backend.ErrUnavailable)
	heal()
	raw.Release(t, d, g)
	if exists, _, err := conn.Exists(node); exists || err != nil {
		t.Errorf("the node exists: %v, %v", exists, err)
	}
}

// TestForeignNodeUnderTheKey checks that the driver does not change a node of another program under
// the key. The lock can be acquired after that node is deleted.
func TestForeignNodeUnderTheKey(t *testing.T) {
	t.Parallel()
	s := testenv.ZooKeeper(t)
	d, conn := openURL(t, s.URL), admin(t, s.Addr)
	name := t.Name() + raw.NewOwner()
	path, precious := d.path(name), []byte("precious")
	_, err := conn.Create(path, precious, zk.FlagPersistent, zk.WorldACL(zk.PermAll))
	must(t, err)
	_, before, err := conn.Get(path)
	must(t, err)
	for _, queue := range []bool{true, false} {
		req := raw.Request(t, patience)
		req.Key, req.Queue = name, queue
		_, err = d.Acquire(t.Context(), req)
		raw.WantIs(t, "Acquire", err, backend.ErrConflict)
		err = d.Release(t.Context(), &backend.Grant{Request: *req})
		raw.WantIs(t, "Release", err, backend.ErrNotHeld)
	}
	_, err = d.Inspect(t.Context(), name)
	raw.WantIs(t, "Inspect", err, backend.ErrConflict)
	raw.WantIs(t, "Break", d.Break(t.Context(), name, ""), backend.ErrNotHeld)
	data, after, err := conn.Get(path)
	if err != nil || string(data) != string(precious) || *after != *before {
		t.Errorf("the node was %+v and is %q, %+v, %v", before, data, after, err)
	}
	must(t, conn.Delete(path, -1))
	req := raw.Request(t, patience)
	req.Key = name
	raw.Release(t, d, raw.Acquire(t, d, req))
}

// TestRemadeNode checks a node that an operator deletes and creates again under the same
// name while the holder is cut off. The new node does not belong to the holder.
func TestRemadeNode(t *testing.T) {
	t.Parallel()
	s := testenv.ZooKeeper(t)
	d, p := isolated(t, s, "")
	conn := admin(t, s.Addr)
	g := raw.Acquire(t, d, raw.Request(t, patience))
	e := d.find(g)
	within(t, "the node is watched", e.own.Load().armed)
	heal := p.Cut(t)
	_, err := conn.Multi( // in one step, or the server could remove the empty container meanwhile
		&zk.DeleteRequest{Path: e.node, Version: -1},
		&zk.CreateRequest{Path: e.node, Acl: zk.WorldACL(zk.PermAll)},
	)
	must(t, err)
	p.Reset(t)
	heal()
	within(t, "the driver detects a change", e.own.Load().fired)
	eventually(t, "a definite answer", func() bool {
		_, err = d.Renew(t.Context(), g)
		return err == nil || errors.Is(err, backend.ErrLost)
	})
	raw.WantIs(t, "Renew", err, backend.ErrLost)
	must(t, conn.Delete(e.node, -1))
}

// TestDeletedWaiterQueuesAgain checks that a waiter whose node was deleted enters the queue again.
func TestDeletedWaiterQueuesAgain(t *testing.T) {
	t.Parallel()
	s := testenv.ZooKeeper(t)
	d, other, conn := openURL(t, s.URL), openURL(t, s.URL), admin(t, s.Addr)
	g := raw.Acquire(t, d, raw.Request(t, patience))
	req := raw.Request(t, patience)
	b := raw.Busy(t, other, req)
	must(t, conn.Delete(nodeOf(t, other, req), -1))
	if _, err := other.Wait(t.Context(), req, b); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Acquire(t.Context(), req); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("Acquire: %v", err)
	}
	b = raw.Busy(t, other, req)
	raw.Release(t, d, g)
	if _, err := other.Wait(t.Context(), req, b); err != nil {
		t.Fatal(err)
	}
	raw.Release(t, other, raw.Acquire(t, other, req))
}

// TestDeletedWaiterIsPassedOver checks that a waiter whose node was deleted gets no grant when its
// predecessor leaves. The next waiter behind it gets the grant.
func TestDeletedWaiterIsPassedOver(t *testing.T) {
	t.Parallel()
	s := testenv.ZooKeeper(t)
	holder, waiter, behind := openURL(t, s.URL), openURL(t, s.URL), openURL(t, s.URL)
	conn := admin(t, s.Addr)
	g := raw.Acquire(t, holder, raw.Request(t, patience))
	req, other := raw.Request(t, patience), raw.Request(t, patience)
	p := raw.Busy(t, waiter, req).State.(*position)
	b := raw.Busy(t, behind, other)
	must(t, conn.Delete(nodeOf(t, waiter, req), -1))
	raw.Release(t, holder, g)
	within(t, "the waiter detects that its predecessor has left", p.ahead.fired)
	if g, err := waiter.Acquire(t.Context(), req); err == nil {
		t.Errorf("granted without a node: %v", g)
	}
	if _, err := behind.Wait(t.Context(), other, b); err != nil {
		t.Fatal(err)
	}
	next := raw.Acquire(t, behind, other)
	b = raw.Busy(t, waiter, req)
	raw.Release(t, behind, next)
	if _, err := waiter.Wait(t.Context(), req, b); err != nil {
		t.Fatal(err)
	}
	raw.Release(t, waiter, raw.Acquire(t, waiter, req))
}

// TestForeignNodes checks that nodes with other names than the driver's neither block a lock nor
// break it.
func TestForeignNodes(t *testing.T) {
	t.Parallel()
	s := testenv.ZooKeeper(t)
	d, other, conn := openURL(t, s.URL), openURL(t, s.URL), admin(t, s.Addr)
	keepQueue(t, conn, d)
	for i, name := range []string{"_c_", "x", "lock-0000000000", "y"} {
		path := []string{d.queue(t.Name()), d.path(t.Name())}[i%2] + "/" + name
		_, err := conn.Create(path, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll))
		must(t, err)
		defer func() { must(t, conn.Delete(path, -1)) }()
	}
	g := raw.Acquire(t, d, raw.Request(t, patience))
	try := raw.Request(t, patience)
	try.Queue = false
	_ = raw.Busy(t, other, try)
	info, err := other.Inspect(t.Context(), t.Name())
	if err != nil || info.Waiters != 0 || len(info.Holders) != 1 {
		t.Errorf("Inspect: %+v, %v", info, err)
	}
	raw.Release(t, d, g)
}

// TestFenceOutlivesTheQueuesNode checks that the fence grows although the queue's numbers restart
// when its node is created again.
func TestFenceOutlivesTheQueuesNode(t *testing.T) {
	t.Parallel()
	s := testenv.ZooKeeper(t)
	d, conn := openURL(t, s.URL), admin(t, s.Addr)
	var last uint64
	for range 3 {
		req := raw.Request(t, patience)
		g := raw.Acquire(t, d, req)
		node := nodeOf(t, d, req)
		if !strings.HasSuffix(node, mark+"0000000000") || g.Fence <= last {
			t.Errorf("node %s, fence %d after %d", node, g.Fence, last)
		}
		last = g.Fence
		raw.Release(t, d, g)
		// The server may have removed the node already.
		if err := conn.Delete(d.queue(req.Key), -1); !errors.Is(err, zk.ErrNoNode) {
			must(t, err)
		}
	}
}

func TestAuthentication(t *testing.T) {
	t.Parallel()
	s := testenv.ZooKeeper(t)
	conn := admin(t, s.Addr)
	chroot := "/auth-" + raw.NewOwner()
	_, err := conn.Create(chroot, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll))
	must(t, err)
	p := testenv.NewProxy(t, s.Addr)
	at := func(user string) string { return "zk://" + user + p.Addr() + chroot }
	d := openURL(t, at("alice:s%40cret@"))
	for _, user := range []string{"", "alice:wr%40ng@", "bob:s%40cret@"} {
		_, err := testenv.Open(t.Context(), at(user))
		raw.WantIs(t, "Open as "+user, err, backend.ErrUnavailable)
		raw.WantIs(t, "Open as "+user, err, zk.ErrNoAuth)
		if err != nil &&
			(strings.Contains(err.Error(), "s@cret") || strings.Contains(err.Error(), "wr@ng")) {
			t.Errorf("the error contains the password: %v", err)
		}
	}
	req := raw.Request(t, patience)
	g := raw.Acquire(t, d, req)
	raw.WantIs(t, "deletion by another user", conn.Delete(nodeOf(t, d, req), -1), zk.ErrNoAuth)
	raw.Release(t, d, g)
	p.Reset(t) // the next connection sends the credentials again
	req = raw.Request(t, patience)
	g, err = d.Acquire(t.Context(), req)
	for err != nil && !errors.Is(err, backend.ErrUnavailable) && t.Context().Err() == nil {
		g, err = d.Acquire(t.Context(), req) // the first requests use the dead connection
	}
	must(t, err)
	raw.Release(t, d, g)
	openURL(t, at("alice:s%40cret@"))
}

func TestChrootMustExist(t *testing.T) {
	t.Parallel()
	s := testenv.ZooKeeper(t)
	_, err := testenv.Open(t.Context(), s.URL+"/no/such/"+raw.NewOwner())
	raw.WantIs(t, "Open", err, backend.ErrUnavailable)
	if err == nil || !strings.Contains(err.Error(), "/no/such/") {
		t.Errorf("the error does not name the chroot: %v", err)
	}
}

// fake starts a server that accepts connections and sends says on each of them. It also returns the
// number of accepted connections.
func fake(t *testing.T, says string) (addr string, accepted *atomic.Int32) {
	t.Helper()
	accepted = new(atomic.Int32)
	return testenv.NewImpostor(t, func(conn net.Conn) {
		accepted.Add(1)
		_, _ = io.WriteString(conn, says)
		_, _ = io.Copy(io.Discard, conn)
	}).Addr(), accepted
}

// TestSilentServer checks that a server which accepts connections and is silent delays Open only
// briefly, and does not cost the session.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	silent, accepted := fake(t, "")
	s := testenv.ZooKeeper(t)
	for accepted.Load() == 0 { // the order of servers is random
		d, err := testenv.Open(t.Context(), "zk://"+silent+","+s.Addr+"?session=6s")
		must(t, err)
		must(t, d.Close())
	}
}

// TestLateWriteIsNoSilence checks that Open takes no server for silent because this process stood
// still: a request whose time is over when it is written fails at once.
func TestLateWriteIsNoSilence(t *testing.T) {
	t.Parallel()
	for op, want := range map[string]bool{"read": true, "dial": true, "write": false} {
		err := &net.OpError{Op: op, Net: "tcp", Err: os.ErrDeadlineExceeded}
		if got := isSilent(fmt.Errorf("%w: %w", zk.ErrNoServer, err)); got != want {
			t.Errorf("after the time of a %s, the server is silent: %v", op, got)
		}
	}
}

// TestOpenDialsAgain checks that a server whose first connections end at once delays Open only
// briefly. The client library alone would pause for a second.
func TestOpenDialsAgain(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	front := &abrupt{Listener: l}
	front.left.Store(3)
	addr := testenv.Forward(t, front, testenv.ZooKeeper(t).Addr).Addr()
	d, err := testenv.Open(t.Context(), "zk://"+addr)
	must(t, err)
	must(t, d.Close())
	if left := front.left.Load(); left > 0 {
		t.Errorf("%d connections that end at once were never dialed", left)
	}
}

// abrupt is a listener that resets the first connections.
type abrupt struct {
	net.Listener
	left atomic.Int32
}

func (l *abrupt) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil || l.left.Load() == 0 {
			return conn, err
		}
		l.left.Add(-1)
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	}
}

func TestServersOfAnotherKind(t *testing.T) {
	t.Parallel()
	redis, _ := fake(t, "-ERR unknown command\r\n")
	mute, _ := fake(t, "")
	for addr, says := range map[string]string{
		"127.0.0.1:1":            "refused",
		redis:                    "not a ZooKeeper server",
		mute:                     "no answer",
		"no-such-host.invalid:1": "no-such-host",
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			meter, begun := lag.Start(), time.Now()
			defer meter.Stop()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_, err := testenv.Open(ctx, "zk://user:secret@"+addr+"?session=4s")
			took, late := time.Since(begun), meter.Worst(begun)
			raw.WantIs(t, "Open", err, backend.ErrUnavailable)
			if err == nil || !strings.Contains(err.Error(), says) ||
				strings.Contains(err.Error(), "secret") {
				t.Errorf("Open: %v", err)
			}
			if took-late > 7*time.Second {
				t.Errorf("Open took %v, in a process that was late by up to %v", took, late)
			}
		})
	}
}

// TestLeaseSurvivesASilentServer checks that the driver renews the lease on another server when one
// becomes silent. This happens sooner than the client library gives up the silent server.
func TestLeaseSurvivesASilentServer(t *testing.T) {
	t.Parallel()
	const ttl = 10 * time.Second
	s := testenv.NewZooKeeper(t, ttl/20)
	proxies := map[string]*testenv.Proxy{}
	var addrs []string
	for range 2 {
		p := testenv.NewProxy(t, s.Addr)
		proxies[p.Addr()] = p
		addrs = append(addrs, p.Addr())
	}
	url := "zk://" + strings.Join(addrs, ",") + "?session=" + ttl.String()
	opened, err := testenv.Open(t.Context(), url)
	must(t, err)
	c, err := dlock.New(opened, dlock.WithTTL(ttl*3/4))
	must(t, err)
	defer c.Close()
	lease, err := c.Lock(t.Context(), t.Name())
	must(t, err)
	first := opened.(*driver).session
	silent, end := first.conn.Server(), lease.Deadline()
	meter, cut := lag.Start(), time.Now()
	defer meter.Stop()
	proxies[silent].Cut(t)
	for lease.Deadline().Equal(end) && lease.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	if err := lease.Err(); err != nil || first.ctx.Err() != nil || first.conn.Server() == silent {
		t.Errorf("Err: %v", err)
	}
	if took, late := time.Since(cut), meter.Worst(cut); took > ttl*6/10+late {
		t.Errorf("renewed after %v, by the library's reconnection; this process lagged by up to %v",
			took, late)
	}
	must(t, lease.Unlock(t.Context()))
}

// TestReleaseWaitsItsTurn checks that a release is executed after the request that it undoes, even
// if the caller has given up the request.
func TestReleaseWaitsItsTurn(t *testing.T) {
	t.Parallel()
	s := testenv.ZooKeeper(t)
	d, p := isolated(t, s, "")
	raw.Release(t, d, raw.Acquire(t, d, raw.Request(t, patience)))
	p.Latency(t, 500*time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	req := raw.Request(t, patience)
	_, err := d.Acquire(ctx, req)
	raw.WantIs(t, "Acquire", err, context.DeadlineExceeded)
	raw.Release(t, d, &backend.Grant{Request: *req})
}

// TestNoTurnAfterTheContext checks that a request is not sent if its context ends before its turn.
func TestNoTurnAfterTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &session{settings: &settings{}, silence: time.NewTimer(time.Hour)}
		a := &acquisition{session: s, turn: make(chan struct{}, 1)}
		for range 64 { // the choice of a select is random
			ctx := &endingContext{Context: t.Context()}
			_, err := inTurn(ctx, a, func() (any, error) {
				t.Error("the request is sent")
				return nil, nil
			})
			raw.WantIs(t, "inTurn", err, context.Canceled)
			synctest.Wait()
		}
	})
}

// endingContext is a context that ends after the first call of Err.
type endingContext struct {
	context.Context
	checked atomic.Bool
}

func (c *endingContext) Done() <-chan struct{} { return closedChan }

func (c *endingContext) Err() error {
	if c.checked.Swap(true) {
		return context.Canceled
	}
	return nil
}

// TestAcquireFollowsAReleaseUnderWay checks that the next waiter of a process need not wait for the
// answer to the release. A request that is sent after the release is also executed after it.
func TestAcquireFollowsAReleaseUnderWay(t *testing.T) {
	t.Parallel()
	s := testenv.ZooKeeper(t)
	d, p := isolated(t, s, "")
	g := raw.Acquire(t, d, raw.Request(t, patience))
	const latency = 200 * time.Millisecond
	p.Latency(t, latency)
	for range 3 {
		var sentAt, answeredAt time.Time
		sent, released := make(chan struct{}), make(chan error, 1)
		go func() {
			err := d.ReleaseThen(t.Context(), g, func() { sentAt = time.Now(); close(sent) })
			answeredAt = time.Now()
			released <- err
		}()
		within(t, "the release is sent", sent)
		next := raw.Acquire(t, d, raw.Request(t, patience)) // must not return *Busy
		must(t, <-released)
		if took := answeredAt.Sub(sentAt); took < latency/2 {
			t.Errorf("the release was reported as sent %v before its answer, which takes %v",
				took, latency)
		}
		if next.Fence <= g.Fence {
			t.Errorf("fence %d after %d", next.Fence, g.Fence)
		}
		g = next
	}
	raw.Release(t, d, g)
	if n := len(d.session.sends); n != 0 {
		t.Errorf("the driver still keeps %d finished deletions", n)
	}
}

// TestNextFollowsTheHoldersView checks the waiter that follows a holder of the same process. It
// waits for the last owner in the queue that the holder has seen. Then it waits for the owners that
// came later.
func TestNextFollowsTheHoldersView(t *testing.T) {
	t.Parallel()
	s := testenv.ZooKeeper(t)
	first, second := openURL(t, s.URL), openURL(t, s.URL)
	seen, unseen := openURL(t, s.URL), openURL(t, s.URL)
	d, slow := isolated(t, s, "")
	requests := map[*driver]*backend.Request{}
	queue := func(d *driver) *position {
		t.Helper()
		requests[d] = raw.Request(t, patience)
		return raw.Busy(t, d, requests[d]).State.(*position)
	}
	grant := func(d *driver, p *position) *backend.Grant {
		t.Helper()
		within(t, "the predecessor has left", p.ahead.fired)
		return raw.Acquire(t, d, requests[d])
	}
	g := raw.Acquire(t, first, raw.Request(t, patience))
	p2, p, pSeen := queue(second), queue(d), queue(seen)
	raw.Release(t, first, g)
	raw.Release(t, second, grant(second, p2))
	g = grant(d, p) // d reads the queue, because it was not the second
	pUnseen := queue(unseen)
	// The answer arrives late: the release has been reported as sent, and the next acquisition has
	// its predecessor.
	restore := slow.Latency(t, 200*time.Millisecond)
	next := raw.Request(t, patience)
	sent, released := make(chan struct{}), make(chan error, 1)
	go func() {
		released <- d.ReleaseThen(t.Context(), g, func() {
			d.admit(d.session, id{next.Key, next.Owner}, kind.Writer)
			close(sent)
		})
	}()
	within(t, "the release is sent", sent)
	restore()
	requests[d] = next
	p = raw.Busy(t, d, next).State.(*position)
	if node := nodeOf(t, seen, requests[seen]); p.ahead.path != node {
		t.Errorf("the waiter watches %s, want %s", p.ahead.path, node)
	}
	must(t, <-released)
	raw.Release(t, seen, grant(seen, pSeen))
	within(t, "the owner that the holder has seen leaves", p.ahead.fired)
	p = raw.Busy(t, d, requests[d]).State.(*position) // the later owner is still in the queue
	raw.Release(t, unseen, grant(unseen, pUnseen))
	raw.Release(t, d, grant(d, p))
	if len(d.tails) != 0 {
		t.Errorf("the driver still keeps %v", d.tails)
	}
}

// TestReconnectionReportsInAnyOrder checks the order of events after a reconnection. A waiter may
// detect the end of its predecessor first. Later it detects that its own node was deleted and that
// another owner holds the lock.
func TestReconnectionReportsInAnyOrder(t *testing.T) {
	t.Parallel()
	s := testenv.ZooKeeper(t)
	holder, behind := openURL(t, s.URL), openURL(t, s.URL)
	waiter, p := isolated(t, s, "")
	g := raw.Acquire(t, holder, raw.Request(t, patience))
	req, other := raw.Request(t, patience), raw.Request(t, patience)
	b := raw.Busy(t, waiter, req)
	bBehind := raw.Busy(t, behind, other)
	heal := p.Cut(t)
	raw.Release(t, holder, g)
	must(t, holder.Break(t.Context(), req.Key, req.Owner))
	_, err := behind.Wait(t.Context(), other, bBehind)
	must(t, err)
	next := raw.Acquire(t, behind, other)

	own := nodeOf(t, waiter, req)
	waiter.session.mu.Lock()
	delete(waiter.session.watches, own) // so that events of its own node come last
	waiter.session.mu.Unlock()
	p.Reset(t)
	heal()
	_, err = waiter.Wait(t.Context(), req, b)
	must(t, err)
	if g, err := waiter.Acquire(t.Context(), req); err == nil {
		t.Errorf("granted with fence %d, while %d is held", g.Fence, next.Fence)
	}
	raw.Release(t, behind, next)
}

// TestNothingIsKeptOfALostLock checks that the driver keeps nothing of a lock after it has reported
// the loss. The core does not release such a lock.
func TestNothingIsKeptOfALostLock(t *testing.T) {
	t.Parallel()
	d := openURL(t, testenv.ZooKeeper(t).URL)
	req := raw.Request(t, patience)
	lost := make(chan error, 1)
	req.Lost = func(err error) { lost <- err }
	g := raw.Acquire(t, d, req)
	w := d.find(g).own.Load()
	must(t, d.Break(t.Context(), g.Key, g.Owner))
	raw.WantIs(t, "Lost", <-lost, backend.ErrLost)
	d.session.mu.Lock()
	if w.onGone != nil {
		t.Error("a waiter that keeps the watch keeps the lost lock")
	}
	d.session.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.acquisitions) != 0 {
		t.Errorf("the driver keeps %d entries", len(d.acquisitions))
	}
}

// TestHeldLockKeepsNoPredecessor checks that the holder keeps no watch on the former holder, and
// nothing else of its wait.
func TestHeldLockKeepsNoPredecessor(t *testing.T) {
	t.Parallel()
	d := openURL(t, testenv.ZooKeeper(t).URL)
	g := raw.Acquire(t, d, raw.Request(t, patience))
	req := raw.Request(t, patience)
	p := raw.Busy(t, d, req).State.(*position)
	a := d.find(&backend.Grant{Request: *req})
	if a.ahead == nil {
		t.Error("the waiter does not keep the only node in front")
	}
	a.tail = g.Key // as of a queue that an earlier holder has listed
	raw.Release(t, d, g)
	within(t, "the predecessor has left", p.ahead.fired)
	next := raw.Acquire(t, d, req)
	if a.ahead != nil || a.tail != "" {
		t.Errorf("the holder keeps its predecessor: %t, %q", a.ahead != nil, a.tail)
	}
	raw.Release(t, d, next)
}

// TestReadingWaitsForWatches checks that on a later connection nothing is read before the request
// for watches is sent. Without such a request, reading begins after a short time.
func TestReadingWaitsForWatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, asked := range map[string]bool{"watches": true, "no watches": false} {
			client, server := net.Pipe()
			w := &wire{
				Conn: client, session: &session{settings: &settings{}},
				rewatch: make(chan struct{}, 1), dialled: time.Now(),
			}
			w.setState(settling)
			start, read := time.Now(), make(chan time.Duration, 1)
			go func() {
				_, _ = server.Write([]byte{0})
				_, _ = server.Read(make([]byte, 16))
			}()
			go func() {
				_, _ = w.Read(make([]byte, 1))
				read <- time.Since(start)
			}()
			synctest.Wait()
			if len(read) != 0 {
				t.Errorf("%s: read at once", name)
			}
			want := settleSteps * settleStep
			if asked {
				want /= 2
				time.Sleep(want)
				w.rewatch <- struct{}{} // as Write does
			}
			if took := <-read; took != want {
				t.Errorf("%s: read after %v, want %v", name, took, want)
			}
			_, _ = client.Close(), server.Close()
			synctest.Wait()
		}
	})
	w := &wire{
		Conn: discard{}, session: &session{settings: &settings{}},
		rewatch: make(chan struct{}, 1),
	}
	// In epoch 101 of the servers, the connect request looks like the request for watches.
	connect := []byte("\x00\x00\x00\x2c\x00\x00\x00\x00\x00\x00\x00\x65\x00\x00\x00\x01")
	if _, err := w.Write(connect); err != nil || len(w.rewatch) != 0 {
		t.Errorf("the connect request was taken for the request for watches: %v", err)
	}
	request := []byte("\x00\x00\x00\x1c\xff\xff\xff\xf8\x00\x00\x00\x65")
	for range 2 { // the client library may send several such requests
		if _, err := w.Write(request); err != nil || len(w.rewatch) != 1 {
			t.Errorf("the request for watches was not detected: %v", err)
		}
	}
}

// discard is a connection that accepts all writes.
type discard struct{ net.Conn }

func (discard) Write(p []byte) (int, error) { return len(p), nil }

func TestActionOfReadsRequests(t *testing.T) {
	t.Parallel()
	const head = "\x00\x00\x00\x12\x00\x00\x00\x07"
	remove := []byte(head + "\x00\x00\x00\x02\x00\x00\x00\x02/x\xff\xff\xff\xff")
	if got, ok := actionOf(remove); !ok || got != (action{opDelete, "/x"}) {
		t.Errorf("a deletion: %v, %t", got, ok)
	}
	container := append([]byte(head+"\x00\x00\x00\x13"), remove[12:]...)
	if got, ok := actionOf(container); !ok || got != (action{opContainer, "/x"}) {
		t.Errorf("the creation of a container: %v, %t", got, ok)
	}
	for name, request := range map[string][]byte{
		"nothing":    nil,
		"a ping":     []byte("\x00\x00\x00\x08\xff\xff\xff\xfe\x00\x00\x00\x0b"),
		"cut short":  remove[:16],
		"a creation": append([]byte(head+"\x00\x00\x00\x01"), remove[12:]...),
	} {
		if got, ok := actionOf(request); ok {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// createDelayed creates the queue of a and its node. No request arrives before both are sent.
func createDelayed(t *testing.T, d *driver, p *testenv.Proxy, a *acquisition) error {
	t.Helper()
	deliver := p.Delay(t)
	made := make(chan error, 1)
	go func() { made <- d.createWithQueue(a, "", d.session.beginRequest()) }()
	answers := &d.session.connection().answers
	eventually(t, "the node is requested", func() bool {
		answers.mu.Lock()
		defer answers.mu.Unlock()
		return slices.Contains(slices.Collect(maps.Values(answers.kinds)), opMulti)
	})
	deliver()
	return <-made
}

// TestFirstUseDoesNotWaitForTheQueue checks that the node of an acquisition is requested while the
// creation of its queue has no answer yet.
func TestFirstUseDoesNotWaitForTheQueue(t *testing.T) {
	t.Parallel()
	d, p := isolated(t, testenv.ZooKeeper(t), "")
	req := raw.Request(t, patience)
	req.Key += raw.NewOwner() // which has no queue
	a := d.admit(d.session, id{req.Key, req.Owner}, kind.Writer)
	_, err := d.makeLock(d.session, req.Key)
	must(t, err)
	must(t, createDelayed(t, d, p, a))
	if a.state != queued || !a.alone {
		t.Errorf("the acquisition has the state %d; alone: %t", a.state, a.alone)
	}
	raw.Release(t, d, raw.Acquire(t, d, req))
}

// TestQueueThatCannotBeMade checks a lock's node in which the user may create nothing.
func TestQueueThatCannotBeMade(t *testing.T) {
	t.Parallel()
	s := testenv.ZooKeeper(t)
	d, p := isolated(t, s, "")
	req := raw.Request(t, patience)
	req.Key += raw.NewOwner() // another lock than in an earlier run of the test
	_, err := admin(t, s.Addr).Create(d.path(req.Key), []byte(req.Key), zk.FlagPersistent,
		zk.WorldACL(zk.PermRead))
	must(t, err)
	a := d.admit(d.session, id{req.Key, req.Owner}, kind.Writer)
	raw.WantIs(t, "createWithQueue", createDelayed(t, d, p, a), zk.ErrNoAuth)
	d.forget(a)
	_, err = d.Acquire(t.Context(), req)
	raw.WantIs(t, "Acquire", err, backend.ErrUnavailable)
	raw.WantIs(t, "Acquire", err, zk.ErrNoAuth)
}

// TestFirstUseWritesNothingInVain counts the transactions between the first uses of two names,
// whatever the driver expects.
func TestFirstUseWritesNothingInVain(t *testing.T) {
	t.Parallel()
	s := testenv.NewZooKeeper(t, fastTick)
	d := openURL(t, s.URL)
	other := openURL(t, s.URL)
	for _, c := range []struct {
		waits, makesLocks, isHeld bool
		want                      uint64
	}{
		{false, false, false, 4},
		{true, false, false, 4},
		{true, true, false, 4},
		{false, false, true, 2},
		{true, false, true, 2},
		{true, true, true, 3}, // the expectation is wrong
	} {
		var keys []string
		for range 10 {
			req := raw.Request(t, patience)
			req.Key, req.Mode = raw.NewOwner(), backend.Shared
			if c.isHeld {
				raw.Acquire(t, other, req)
			}
			keys = append(keys, req.Key)
		}
		var last uint64
		fewest := uint64(math.MaxUint64)
		for _, key := range keys { // the servers remove empty nodes meanwhile
			d.makesLocks.Store(c.makesLocks)
			req := raw.Request(t, patience)
			req.Key, req.Queue, req.Mode = key, c.waits, backend.Shared
			g := raw.Acquire(t, d, req)
			raw.Release(t, d, g)
			fewest, last = min(fewest, g.Fence-last), g.Fence
		}
		if fewest != c.want {
			t.Errorf("%+v: a first use takes %d transactions", c, fewest)
		}
	}
}

// TestUsesAreRemembered checks how long a driver remembers the use of a queue.
func TestUsesAreRemembered(t *testing.T) {
	t.Parallel()
	var u uses
	now := time.Now()
	if u.note("a", now) || !u.note("a", now.Add(recently-1)) || u.note("a", now.Add(3*recently)) {
		t.Error("a use is not known for the right time")
	}
	n := 0
	others := func(count int) {
		for range count {
			n++
			u.note(fmt.Sprint(n), now)
		}
	}
	for _, before := range []int{0, maxUsed / 2, maxUsed - 1} {
		others(before)
		name := fmt.Sprint("after ", before)
		u.note(name, now)
		others(maxUsed - 1)
		if !u.note(name, now) {
			t.Errorf("the use before the last %d is forgotten", maxUsed-1)
		}
	}
	if n := len(u.young) + len(u.old); n > 2*maxUsed {
		t.Errorf("the driver remembers %d uses, want at most %d", n, 2*maxUsed)
	}
}

// TestReleaseIsAUse checks a lock that was held for longer than a use is remembered.
func TestReleaseIsAUse(t *testing.T) {
	t.Parallel()
	d := openURL(t, testenv.ZooKeeper(t).URL)
	req, next := raw.Request(t, patience), raw.Request(t, patience)
	g := raw.Acquire(t, d, req)
	d.mu.Lock()
	d.used.young[d.queue(req.Key)] = time.Now().Add(-2 * recently)
	d.mu.Unlock()
	raw.Release(t, d, g)
	if a := d.admit(d.session, id{next.Key, next.Owner}, kind.Writer); a.isFirstUse {
		t.Error("the use of a released lock is forgotten")
	}
}

// TestFirstUseExpectsWhatTheLastOneFound checks new names and names that another driver uses.
func TestFirstUseExpectsWhatTheLastOneFound(t *testing.T) {
	t.Parallel()
	s := testenv.ZooKeeper(t)
	d, other := openURL(t, s.URL), openURL(t, s.URL)
	for i, isNew := range []bool{true, true, false, false, true} {
		req := raw.Request(t, patience)
		req.Key, req.Queue, req.Mode = raw.NewOwner(), true, backend.Shared
		if !isNew {
			first := *req
			first.Owner = raw.NewOwner()
			raw.Acquire(t, other, &first) // otherwise the server may remove the lock
		}
		raw.Release(t, d, raw.Acquire(t, d, req))
		if got := d.makesLocks.Load(); got != isNew {
			t.Errorf("after name %d the driver expects new names: %t, want %t", i, got, isNew)
		}
	}
}

// TestQueueThatIsNotRequested checks that an attempt ends if it could not request the queue: its
// own node was not requested.
func TestQueueThatIsNotRequested(t *testing.T) {
	t.Parallel()
	d := openURL(t, testenv.ZooKeeper(t).URL)
	a := d.admit(d.session, id{t.Name(), raw.NewOwner()}, kind.Writer)
	must(t, d.Close())
	if err := d.createWithQueue(a, "", moment{}); err == nil || a.state != absent {
		t.Errorf("%v, and the node's state is %d, want %d", err, a.state, absent)
	}
}

// TestFirstUsesOfOneQueue checks attempts that create the same queue at the same time.
func TestFirstUsesOfOneQueue(t *testing.T) {
	t.Parallel()
	s := testenv.ZooKeeper(t)
	d, other := openURL(t, s.URL), openURL(t, s.URL)
	for range 20 {
		var running sync.WaitGroup
		key := t.Name() + raw.NewOwner()
		for _, d := range []*driver{d, d, d, other, other} {
			running.Go(func() {
				req := raw.Request(t, patience)
				req.Key, req.Mode = key, backend.Shared
				g, err := d.Acquire(t.Context(), req)
				if err != nil {
					t.Errorf("Acquire: %v", err)
					return
				}
				if err := d.Release(t.Context(), g); err != nil {
					t.Errorf("Release: %v", err)
				}
			})
		}
		running.Wait()
	}
}

// TestExpiredSessionsLeaveNoConnection checks that expired sessions leave no connection open.
func TestExpiredSessionsLeaveNoConnection(t *testing.T) {
	t.Parallel()
	s := testenv.NewZooKeeper(t, fastTick)
	d, p := isolated(t, s, "?session=5s")
	for range 2 {
		req := raw.Request(t, time.Second)
		raw.Acquire(t, d, req)
		old := d.session
		expire(t, s, d, p, nodeOf(t, d, req))
		raw.Release(t, d, raw.Acquire(t, d, raw.Request(t, time.Second)))
		deadline := time.Now().Add(patience)
		for {
			old.mu.Lock()
			w := old.wire
			old.mu.Unlock()
			if w == nil {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("the connection of the old session is still in use")
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}
