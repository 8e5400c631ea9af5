package etcdbackend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

const (
	// patience is for what should happen at once, on a machine that has other things to do.
	patience = 30 * time.Second
	// long is a term that does not end while a test runs.
	long = time.Minute
)

// openURL opens a driver and closes it when the test ends. A slow machine exceeds no timeout of it.
func openURL(tb testing.TB, raw string) *driver {
	tb.Helper()
	d, err := testenv.Open(tb.Context(), raw+"?timeout="+patience.String())
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

// admin is a client that does to the server what a test wants done.
func admin(tb testing.TB, s *testenv.Server, opts ...grpc.DialOption) *clientv3.Client {
	tb.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Addr}, Logger: zap.NewNop(), DialOptions: opts})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// must ends the test if what an admin has asked for has failed.
func must[T any](tb testing.TB) func(T, error) T {
	tb.Helper()
	return func(value T, err error) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return value
	}
}

func newRequest(tb testing.TB) *backend.Request {
	tb.Helper()
	return &backend.Request{
		Key: tb.Name(), Owner: raw.NewOwner(), TTL: long, Mode: backend.Exclusive, Queue: true, Meta: "test@host:1",
	}
}

func release(tb testing.TB, d *driver, g *backend.Grant) {
	tb.Helper()
	if err := d.Release(tb.Context(), g); err != nil {
		tb.Errorf("Release: %v", err)
	}
}

// waiting goes on as the core does after a *Busy.
func waiting(tb testing.TB, d *driver, req *backend.Request, answer *backend.Busy) <-chan *backend.Grant {
	tb.Helper()
	granted := make(chan *backend.Grant, 1)
	go func() {
		g, err := wait(d, req, answer)
		if err != nil {
			tb.Errorf("waiting: %v", err)
		}
		granted <- g
	}()
	return granted
}

func await[T any](tb testing.TB, what string, c <-chan T) T {
	tb.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		tb.Fatalf("%s: not within %v", what, patience)
		panic("unreachable")
	}
}

// eventually returns when ok does, and ends the test if that takes too long.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// lossOf makes req tell of its loss.
func lossOf(req *backend.Request) <-chan error {
	lost := make(chan error, 10)
	req.Lost = func(err error) { lost <- err }
	return lost
}

// keysUnder returns what is on the server.
func keysUnder(tb testing.TB, c *clientv3.Client, prefix string) []string {
	tb.Helper()
	var keys []string
	for _, kv := range must[*clientv3.GetResponse](tb)(c.Get(tb.Context(), prefix, clientv3.WithPrefix())).Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys
}

func TestInterpretError(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	ours := request{ended, t.Context(), t.Context()}
	for _, tt := range []struct {
		ctx  context.Context
		err  error
		want error // nil: none of the sentinels
	}{
		{t.Context(), rpctypes.ErrNoLeader, backend.ErrUnavailable},
		{t.Context(), rpctypes.ErrNoSpace, backend.ErrUnavailable},
		{t.Context(), rpctypes.ErrPermissionDenied, backend.ErrUnavailable},
		{t.Context(), rpctypes.ErrInvalidAuthToken, backend.ErrUnavailable},
		{t.Context(), rpctypes.ErrLeaseNotFound, backend.ErrUnavailable},
		{t.Context(), &unsentError{status.Error(codes.Unavailable, "refused")}, backend.ErrUnavailable},
		{t.Context(), rpctypes.ErrRequestTooLarge, backend.ErrUnsupported},
		{t.Context(), status.Error(codes.Unavailable, "error reading from server: EOF"), nil},
		{t.Context(), rpctypes.ErrTimeout, nil},
		{t.Context(), rpctypes.ErrLeaderChanged, nil},
		{t.Context(), rpctypes.ErrTimeoutDueToLeaderFail, nil},
		{ended, context.Canceled, context.Canceled},
		{ended, status.Error(codes.Unavailable, "closing"), context.Canceled},
		{ours, context.DeadlineExceeded, errTimeout},
	} {
		got := interpretError(tt.ctx, tt.err)
		if tt.want != nil {
			raw.WantIs(t, fmt.Sprint(tt.err), got, tt.want)
		}
		unknown := !errors.Is(got, backend.ErrUnavailable) && !errors.Is(got, backend.ErrUnsupported)
		if tt.want == nil && !unknown {
			t.Errorf("%v became %v, although the request may have been executed", tt.err, got)
		}
		if errors.Is(tt.want, errTimeout) && errors.Is(got, context.DeadlineExceeded) {
			t.Errorf("%v is told as the end of the caller's context", got)
		}
	}
}

func TestBadURLs(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	for raw, want := range map[string]string{
		"etcd:":                                   "no host",
		"etcd://user@" + s.Addr:                   "go together",
		"etcd://" + s.Addr + "?ca=x":              "etcds",
		"etcds://" + s.Addr + "?ca=/nowhere":      "/nowhere",
		"etcds://" + s.Addr + "?cert=/nowhere":    "/nowhere",
		"etcd://" + s.Addr + "?timeout=0s":        "timeout",
		"etcd://u:s3cret@127.0.0.1:1":             "refused",
		"etcd://127.0.0.1:1,127.0.0.1:2":          "refused",
		"etcds://u:s3cret@" + s.Addr:              "handshake",
		"etcds://u:s3cret@" + s.Addr + "?ca=none": "none",
	} {
		begun := time.Now()
		d, err := testenv.Open(t.Context(), raw)
		if err == nil {
			_ = d.Close()
			t.Errorf("%s: opened", raw)
			continue
		}
		if text := err.Error(); !strings.Contains(text, want) || strings.Contains(text, "s3cret") {
			t.Errorf("%s: %v, want %q in it and no password", raw, err, want)
		}
		if took := time.Since(begun); took > patience {
			t.Errorf("%s: took %v", raw, took)
		}
	}
}

func TestOpenEndsWithItsContext(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	p := testenv.NewProxy(t, s.Addr)
	p.Cut(t)
	for _, user := range []string{"", "u:s3cret@"} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		begun := time.Now()
		_, err := testenv.Open(ctx, "etcd://"+user+p.Addr())
		cancel()
		// The bound of an opening ends with another error.
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errTimeout) {
			t.Errorf("opening into a black hole: %v after %v", err, time.Since(begun))
		}
	}
}

// One member that is down and one that is not: every request finds the other.
func TestSeveralEndpoints(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	d := openURL(t, "etcd://127.0.0.1:1,"+s.Addr+"/several")
	for range 5 {
		release(t, d, raw.Acquire(t, d, newRequest(t)))
	}
}

func TestRootsAreKeptApart(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	roots := []string{"/lock", "/roots", "/roots/locks", "/roots/client", "/roots/floor", "/roots/x"}
	for _, name := range []string{"lock", "locks", "client", "floor", "x"} {
		for _, root := range roots { // all hold it at once
			d, req := openURL(t, s.URL+root), newRequest(t)
			req.Key = name
			g := raw.Acquire(t, d, req)
			t.Cleanup(func() { raw.Release(t, d, g) })
		}
	}
	for _, root := range []string{"/roots/lock", "/roots/lock/", "/roots/lock/x", "/roots/x/lock/y"} {
		_, err := testenv.Open(t.Context(), s.URL+root)
		if err == nil || !strings.Contains(err.Error(), "may only be its first part") {
			t.Errorf("Open with the root %s: %v", root, err)
		}
		if _, err = New(admin(t, s), &Options{Root: root}); err == nil {
			t.Errorf("New with the root %s: nil", root)
		}
	}
}

// countLeases counts the leases of the server.
func countLeases(tb testing.TB, c *clientv3.Client) int {
	tb.Helper()
	return len(must[*clientv3.LeaseLeasesResponse](tb)(c.Leases(tb.Context())).Leases)
}

// A lease of an hour would stay for an hour.
func TestCloseLeavesNoLease(t *testing.T) {
	t.Parallel()
	s := testenv.NewEtcd(t)
	ops := admin(t, s)
	for _, lent := range []bool{false, true} {
		var d backend.Driver
		if lent {
			d = must[backend.Driver](t)(New(ops, nil))
		} else {
			d = must[backend.Driver](t)(testenv.Open(t.Context(), s.URL))
		}
		for _, ttl := range []time.Duration{time.Hour, 2 * time.Hour} {
			req := newRequest(t)
			req.TTL = ttl
			raw.Release(t, d, raw.Acquire(t, d, req))
		}
		if n := countLeases(t, ops); n != 2 {
			t.Fatalf("%d leases, want 2", n)
		}
		if err := d.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if n := countLeases(t, ops); n != 0 {
			t.Errorf("%d leases are left", n)
		}
	}
}

// A grant that was not released may have to keep the lock closed for its term, as for a lock-delay.
func TestCloseFreesNothing(t *testing.T) {
	t.Parallel()
	s := testenv.NewEtcd(t)
	d, other := must[backend.Driver](t)(testenv.Open(t.Context(), s.URL)), openURL(t, s.URL)
	held, queued := newRequest(t), newRequest(t)
	queued.TTL *= 2
	raw.Acquire(t, d, held)
	_ = raw.Busy(t, d, queued)
	if err := d.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if keys := keysUnder(t, admin(t, s), other.prefix(held.Key)); len(keys) != 2 {
		t.Errorf("after Close there are the keys %q", keys)
	}
}

// Close does not wait for the timeout of a request, which is long here.
func TestCloseOfASilentServer(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	p := testenv.NewProxy(t, s.Addr)
	d := must[backend.Driver](t)(testenv.Open(t.Context(), "etcd://"+p.Addr()+"/silent?timeout=10m"))
	raw.Release(t, d, raw.Acquire(t, d, newRequest(t)))
	p.Cut(t)
	closed := make(chan error, 1)
	go func() { closed <- d.Close() }()
	if err := await(t, "Close", closed); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// counter counts the requests of a client.
type counter struct{ unary, streams atomic.Int64 }

func (c *counter) options() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(
			ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
		) error {
			c.unary.Add(1)
			return invoke(ctx, method, req, reply, conn, opts...)
		}),
		grpc.WithChainStreamInterceptor(func(
			ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption,
		) (grpc.ClientStream, error) {
			c.streams.Add(1)
			return open(ctx, desc, conn, method, opts...)
		}),
	}
}

func lend(tb testing.TB, c *clientv3.Client) *driver {
	tb.Helper()
	d := must[backend.Driver](tb)(New(c, &Options{Timeout: patience})).(*driver)
	tb.Cleanup(func() {
		if err := d.Close(); err != nil {
			tb.Errorf("Close: %v", err)
		}
	})
	return d
}

func TestUncontendedPairIsTwoRequests(t *testing.T) {
	t.Parallel()
	var n counter
	d := lend(t, admin(t, testenv.Etcd(t), n.options()...))
	release(t, d, raw.Acquire(t, d, newRequest(t))) // makes the lease
	unary, streams := n.unary.Load(), n.streams.Load()
	for range 10 {
		release(t, d, raw.Acquire(t, d, newRequest(t)))
	}
	if u, s := n.unary.Load()-unary, n.streams.Load()-streams; u != 20 || s != 0 {
		t.Errorf("ten pairs were %d requests and %d streams", u, s)
	}
}

// A thousand locks are renewed by one keep-alive and one look at the lease.
func TestRenewalsGoTogether(t *testing.T) {
	t.Parallel()
	var n counter
	d := lend(t, admin(t, testenv.Etcd(t), n.options()...))
	gs := make([]*backend.Grant, 50)
	for i := range gs {
		req := newRequest(t)
		req.Key = fmt.Sprintf("%s/%d", t.Name(), i)
		gs[i] = raw.Acquire(t, d, req)
	}
	unary, streams := n.unary.Load(), n.streams.Load()
	for _, r := range d.RenewAll(t.Context(), gs) {
		if r.Err != nil {
			t.Errorf("RenewAll: %v", r.Err)
		}
	}
	if u, s := n.unary.Load()-unary, n.streams.Load()-streams; u != 1 || s != 1 {
		t.Errorf("renewing 50 locks was %d requests and %d streams", u, s)
	}
	for _, g := range gs {
		release(t, d, g)
	}
}

// The caller's metadata would open a stream of watches of its own for each set of it.
func TestCallersMetadataStaysOutside(t *testing.T) {
	t.Parallel()
	var n counter
	d := lend(t, admin(t, testenv.Etcd(t), n.options()...))
	g := raw.Acquire(t, d, newRequest(t))
	streams := n.streams.Load()
	var reqs []*backend.Request
	for i := range 3 {
		req := newRequest(t)
		ctx := metadata.AppendToOutgoingContext(t.Context(), "trace", fmt.Sprint(i))
		if _, err := d.Acquire(ctx, req); !errors.Is(err, backend.ErrNotAcquired) {
			t.Fatalf("Acquire: %v", err)
		}
		reqs = append(reqs, req)
	}
	if s := n.streams.Load() - streams; s != 0 {
		t.Errorf("three waiters opened %d more streams", s)
	}
	for _, req := range reqs {
		release(t, d, &backend.Grant{Request: *req})
	}
	release(t, d, g)
}

// What the driver asks for says so that a member without a leader refuses it at once.
func TestRequestsAskForALeader(t *testing.T) {
	t.Parallel()
	d := openURL(t, testenv.Etcd(t).URL)
	ctx, cancel := d.bound(metadata.AppendToOutgoingContext(t.Context(), "trace", "1"))
	defer cancel()
	for name, ctx := range map[string]context.Context{"a request": ctx, "a watch": d.life} {
		var sent metadata.MD
		if err := failFast(ctx, "", nil, nil, nil, func(
			ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption,
		) error {
			sent, _ = metadata.FromOutgoingContext(ctx)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if got := sent.Get(rpctypes.MetadataRequireLeaderKey); !slices.Equal(got, []string{rpctypes.MetadataHasLeader}) {
			t.Errorf("%s is sent with %v", name, sent)
		}
		if sent.Get("trace") != nil {
			t.Errorf("%s is sent with its caller's metadata: %v", name, sent)
		}
	}
}

// A lent client may keep what it writes in a namespace.
func TestLentClientWithANamespace(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	c, ops := admin(t, s), admin(t, s)
	c.KV, c.Watcher, c.Lease = namespace.NewKV(c.KV, "in/"), namespace.NewWatcher(c.Watcher, "in/"), namespace.NewLease(c.Lease, "in/")
	d := lend(t, c)
	first, second := newRequest(t), newRequest(t)
	g := raw.Acquire(t, d, first)
	if _, err := d.Acquire(t.Context(), second); !errors.Is(err, backend.ErrNotAcquired) {
		t.Errorf("a lock that is held: %v", err)
	}
	if keys := keysUnder(t, ops, "in/"+d.prefix(first.Key)); len(keys) != 2 {
		t.Errorf("in the namespace: %q", keys)
	}
	if _, err := d.Renew(t.Context(), g); err != nil {
		t.Errorf("Renew: %v", err)
	}
	release(t, d, g)
	release(t, d, raw.Acquire(t, d, second))
	if keys := keysUnder(t, ops, "in/"+d.prefix(first.Key)); len(keys) != 0 {
		t.Errorf("left: %q", keys)
	}
}

func TestLentClientStaysOpen(t *testing.T) {
	t.Parallel()
	c := admin(t, testenv.Etcd(t))
	d := must[backend.Driver](t)(New(c, nil))
	if err := d.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if _, err := c.Get(t.Context(), "x"); err != nil {
		t.Errorf("the client after Close of the driver: %v", err)
	}
	if _, err := New(nil, nil); err == nil {
		t.Error("New without a client: nil")
	}
}

// The lease is revoked by an operator: all that hangs on it is lost, waiters queue again, and nothing is resurrected.
func TestLeaseLoss(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	d, other, ops := openURL(t, s.URL+"/leases"), openURL(t, s.URL+"/leases"), admin(t, s)
	first, second, obstacle, queued := newRequest(t), newRequest(t), newRequest(t), newRequest(t)
	second.Key += "/second"
	obstacle.Key += "/third"
	queued.Key = obstacle.Key
	firstLost, secondLost := lossOf(first), lossOf(second)
	g := raw.Acquire(t, d, first)
	raw.Acquire(t, d, second)
	held := raw.Acquire(t, other, obstacle)
	granted := waiting(t, d, queued, raw.Busy(t, d, queued))
	lease := d.acquisitions[first.Owner].lease
	must[*clientv3.LeaseRevokeResponse](t)(ops.Revoke(t.Context(), lease.id))
	_, err := d.Renew(t.Context(), g)
	raw.WantIs(t, "Renew", err, backend.ErrLost)
	raw.WantIs(t, "Lost of the one", await(t, "Lost", firstLost), backend.ErrLost)
	raw.WantIs(t, "Lost of the other", await(t, "Lost", secondLost), backend.ErrLost)
	raw.WantIs(t, "Release", d.Release(t.Context(), g), backend.ErrNotHeld)
	release(t, other, held)
	release(t, d, await(t, "the waiter", granted))
	if keys := keysUnder(t, ops, "/leases/lock/"); len(keys) != 0 {
		t.Errorf("left: %q", keys)
	}
	again := raw.Acquire(t, d, newRequest(t))
	if again.Fence <= g.Fence {
		t.Errorf("fence %d after %d", again.Fence, g.Fence)
	}
	release(t, d, again)
}

// An operator deletes the key: the next renewal tells, and where the name is contended the watch does so at once.
func TestDeletedKeyIsLost(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	d, ops := openURL(t, s.URL), admin(t, s)
	req := newRequest(t)
	g := raw.Acquire(t, d, req)
	must[*clientv3.DeleteResponse](t)(ops.Delete(t.Context(), d.prefix(req.Key)+req.Owner))
	_, err := d.Renew(t.Context(), g)
	raw.WantIs(t, "Renew", err, backend.ErrLost)

	req = newRequest(t)
	lost := lossOf(req)
	raw.Acquire(t, d, req)
	behind := newRequest(t)
	granted := waiting(t, d, behind, raw.Busy(t, d, behind))
	must[*clientv3.DeleteResponse](t)(ops.Delete(t.Context(), d.prefix(req.Key)+req.Owner))
	raw.WantIs(t, "Lost", await(t, "Lost", lost), backend.ErrLost)
	next := await(t, "the waiter", granted)
	must[*clientv3.DeleteResponse](t)(ops.Delete(t.Context(), d.prefix(req.Key), clientv3.WithPrefix()))
	raw.WantIs(t, "Release", d.Release(t.Context(), next), backend.ErrNotHeld)
}

// A waiter's own key is deleted: it queues again.
func TestDeletedPlaceIsTakenAgain(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	d, other, ops := openURL(t, s.URL), openURL(t, s.URL), admin(t, s)
	g := raw.Acquire(t, other, newRequest(t))
	req := newRequest(t)
	granted := waiting(t, d, req, raw.Busy(t, d, req))
	key := d.prefix(req.Key) + req.Owner
	before := must[*clientv3.GetResponse](t)(ops.Get(t.Context(), key)).Kvs[0].CreateRevision
	must[*clientv3.DeleteResponse](t)(ops.Delete(t.Context(), key))
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if kvs := must[*clientv3.GetResponse](t)(ops.Get(t.Context(), key)).Kvs; len(kvs) == 1 && kvs[0].CreateRevision > before {
			break
		}
		if time.Now().After(end) {
			t.Fatal("it does not stand in the queue again")
		}
	}
	release(t, other, g)
	release(t, d, await(t, "the waiter", granted))
}

// The holder of a lock for which nobody waits is told of a break at once.
func TestBreakIsPushed(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	d, other := openURL(t, s.URL), openURL(t, s.URL)
	for range 3 {
		req := newRequest(t)
		lost := lossOf(req)
		raw.Acquire(t, d, req)
		if err := other.Break(t.Context(), req.Key, req.Owner); err != nil {
			t.Fatalf("Break: %v", err)
		}
		raw.WantIs(t, "Lost", await(t, "Lost", lost), backend.ErrLost)
	}
}

// The push survives the connection: what was said meanwhile is heard afterwards.
func TestBreakIsHeardAfterAReconnection(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	p := testenv.NewProxy(t, s.Addr)
	d, other := openURL(t, "etcd://"+p.Addr()), openURL(t, s.URL)
	req := newRequest(t)
	lost := lossOf(req)
	raw.Acquire(t, d, req)
	heal := p.Cut(t)
	if err := other.Break(t.Context(), req.Key, ""); err != nil {
		t.Fatalf("Break: %v", err)
	}
	heal()
	raw.WantIs(t, "Lost", await(t, "Lost", lost), backend.ErrLost)
}

// A key that nobody knows of hangs on the shared lease, which others keep alive.
func TestGhostIsRemovedWithTheNextRenewal(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	d, ops := openURL(t, s.URL), admin(t, s)
	req, ghost := newRequest(t), newRequest(t)
	ghost.Key += "/ghost"
	g := raw.Acquire(t, d, req)
	a := &acquisition{
		name: ghost.Key, prefix: d.prefix(ghost.Key), key: d.prefix(ghost.Key) + ghost.Owner, lease: d.acquisitions[req.Owner].lease,
	}
	late := putOp(a.put([]byte(a.key), d.id).GetRequestPut())
	must[*clientv3.TxnResponse](t)(ops.Txn(t.Context()).Then(late).Commit()) // executed long after it was given up
	if _, err := d.Renew(t.Context(), g); err != nil {
		t.Errorf("Renew: %v", err)
	}
	for end := time.Now().Add(patience); len(keysUnder(t, ops, a.prefix)) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the ghost is still there")
		}
	}
	release(t, d, g)
}

// A lock that is being released while others are renewed is no ghost: the release finds it.
func TestReleaseAgainstRenewals(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	d := openURL(t, s.URL)
	kept := newRequest(t)
	kept.Key += "/kept"
	g := raw.Acquire(t, d, kept)
	done := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-done:
				return
			default:
				if _, err := d.Renew(t.Context(), g); err != nil {
					t.Errorf("Renew: %v", err)
				}
			}
		}
	}()
	for range 100 {
		release(t, d, raw.Acquire(t, d, newRequest(t)))
	}
	close(done)
	<-stopped
	release(t, d, g)
}

func TestForeignValueIsAConflict(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	d, ops := openURL(t, s.URL), admin(t, s)
	prefix := d.prefix(t.Name())
	must[*clientv3.PutResponse](t)(ops.Put(t.Context(), prefix+"stranger", "hello"))
	defer func() { must[*clientv3.DeleteResponse](t)(ops.Delete(context.Background(), prefix+"stranger")) }()
	for _, queue := range []bool{false, true} {
		req := newRequest(t)
		req.Queue = queue
		_, err := d.Acquire(t.Context(), req)
		raw.WantIs(t, "Acquire", err, backend.ErrConflict)
	}
	_, err := d.Inspect(t.Context(), t.Name())
	raw.WantIs(t, "Inspect", err, backend.ErrConflict)
	raw.WantIs(t, "Break", d.Break(t.Context(), t.Name(), ""), backend.ErrConflict)
	for info, err := range d.List(t.Context(), t.Name()) {
		t.Errorf("List: %+v, %v", info, err)
	}
	if keys := keysUnder(t, ops, prefix); len(keys) != 1 || len(d.acquisitions) != 0 {
		t.Errorf("left: %q, %v", keys, d.acquisitions)
	}
}

// The copy of the queue is open, so that the waiter's key is made before the conflict is seen.
func TestConflictInTheQueueLeavesNothing(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	d, ops := openURL(t, s.URL), admin(t, s)
	prefix := d.prefix(t.Name())
	g := raw.Acquire(t, d, newRequest(t))
	waiter := newRequest(t)
	_ = raw.Busy(t, d, waiter) // opens it
	release(t, d, &backend.Grant{Request: *waiter})
	release(t, d, g)
	must[*clientv3.PutResponse](t)(ops.Put(t.Context(), prefix+"stranger", "hello"))
	_, err := d.Acquire(t.Context(), newRequest(t))
	raw.WantIs(t, "Acquire", err, backend.ErrConflict)
	if keys := keysUnder(t, ops, prefix); len(keys) != 1 {
		t.Errorf("left: %q", keys)
	}
	must[*clientv3.DeleteResponse](t)(ops.Delete(t.Context(), prefix+"stranger"))
}

// The history is compacted while the waiter is cut off: its watch cannot go on where it stood.
func TestCompactionSendsWaitersToLookAgain(t *testing.T) {
	t.Parallel()
	s := testenv.NewEtcd(t)
	p := testenv.NewProxy(t, s.Addr)
	d, other, ops := openURL(t, "etcd://"+p.Addr()), openURL(t, s.URL), admin(t, s)
	g := raw.Acquire(t, other, newRequest(t))
	req := newRequest(t)
	granted := waiting(t, d, req, raw.Busy(t, d, req))
	heal := p.Cut(t)
	release(t, other, g)
	resp := must[*clientv3.PutResponse](t)(ops.Put(t.Context(), "x", ""))
	must[*clientv3.CompactResponse](t)(ops.Compact(t.Context(), resp.Header.Revision, clientv3.WithCompactPhysical()))
	heal()
	release(t, d, await(t, "the waiter", granted))
	// The inbox has lost its place, too, and listens again.
	mine := newRequest(t)
	lost := lossOf(mine)
	raw.Acquire(t, d, mine)
	for end := time.Now().Add(patience); ; {
		if err := other.Break(t.Context(), mine.Key, ""); err != nil {
			t.Fatalf("Break: %v", err)
		}
		select {
		case err := <-lost:
			raw.WantIs(t, "Lost", err, backend.ErrLost)
			return
		case <-time.After(time.Second):
		}
		if time.Now().After(end) {
			t.Fatal("the holder is not told any more")
		}
		raw.Acquire(t, d, mine)
	}
}

func TestConnectionResetsDelayOnly(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	p := testenv.NewProxy(t, s.Addr)
	d, other := openURL(t, "etcd://"+p.Addr()), openURL(t, s.URL)
	for range 5 {
		g := raw.Acquire(t, other, newRequest(t))
		req := newRequest(t)
		granted := waiting(t, d, req, raw.Busy(t, d, req))
		p.Reset(t)
		release(t, other, g)
		next := await(t, "the waiter", granted)
		for d.Release(t.Context(), next) != nil {
			if t.Context().Err() != nil {
				return
			}
		}
	}
}

// Nobody has waited for a while: the watch is closed, and the next waiter opens it again.
func TestIdleQueueIsClosed(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	d, other := openURL(t, s.URL), openURL(t, s.URL)
	for range 2 {
		g := raw.Acquire(t, other, newRequest(t))
		req := newRequest(t)
		granted := waiting(t, d, req, raw.Busy(t, d, req))
		release(t, other, g)
		release(t, d, await(t, "the waiter", granted))
		for end := time.Now().Add(linger + patience); d.watched(d.prefix(req.Key)); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the queue is still watched")
			}
		}
	}
	if len(d.acquisitions) != 0 {
		t.Errorf("remembered: %v", d.acquisitions)
	}
}

func TestUnreachableIsToldAtOnce(t *testing.T) {
	t.Parallel()
	s := testenv.NewEtcd(t)
	d := openURL(t, s.URL)
	g := raw.Acquire(t, d, newRequest(t))
	s.Kill(t)
	for end := time.Now().Add(patience); ; {
		req := newRequest(t)
		begun := time.Now()
		_, err := d.Acquire(t.Context(), req)
		if errors.Is(err, backend.ErrUnavailable) && time.Since(begun) < d.timeout {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("Acquire with the server down: %v after %v", err, time.Since(begun))
		}
	}
	s.Start(t)
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		err := d.Release(t.Context(), g)
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("Release after the restart: %v", err)
		}
	}
}

// The server's own minimum is told, not assumed.
func TestMinTTLIsTheServers(t *testing.T) {
	t.Parallel()
	s := testenv.NewEtcd(t, "--heartbeat-interval", "200", "--election-timeout", "3000")
	d := openURL(t, s.URL)
	if got := d.Capabilities().MinTTL; got < 4*time.Second || got > 6*time.Second {
		t.Errorf("MinTTL %v", got)
	}
}

func TestQuotaExceeded(t *testing.T) {
	t.Parallel()
	s := testenv.NewEtcd(t, "--quota-backend-bytes", "1048576")
	d, ops := openURL(t, s.URL), admin(t, s)
	g := raw.Acquire(t, d, newRequest(t))
	for i := 0; ; i++ {
		if _, err := ops.Put(t.Context(), fmt.Sprint("fill", i), strings.Repeat("x", 100_000)); err != nil {
			raw.WantIs(t, "Put", err, rpctypes.ErrNoSpace)
			break
		}
	}
	req := newRequest(t)
	req.Key += "/other"
	_, err := d.Acquire(t.Context(), req)
	raw.WantIs(t, "Acquire", err, backend.ErrUnavailable)
	if _, err := d.Renew(t.Context(), g); err != nil {
		t.Errorf("Renew: %v", err)
	}
	release(t, d, g)
}

// TestGrantWakesAWaitBesideIt: an Acquire may be granted before the watch of the queue has its event, while the same owner
// waits. The grant takes the owner out of the queue, so the event does not wake that Wait.
func TestGrantWakesAWaitBesideIt(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	holder, d := openURL(t, s.URL), openURL(t, s.URL)
	g := raw.Acquire(t, holder, newRequest(t))
	req := newRequest(t)
	_, err := d.Acquire(t.Context(), req)
	busy, ok := errors.AsType[*backend.Busy](err)
	if !ok {
		t.Fatalf("Acquire: %v, want *backend.Busy", err)
	}
	d.mu.Lock()
	a := d.acquisitions[req.Owner]
	created, lease := a.created, a.lease.id
	d.mu.Unlock()
	next, err := d.settle(a, req, answer{created: created, lease: lease, first: true})
	if err != nil {
		t.Fatalf("the answer that makes it the holder: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if again, err := d.Wait(ctx, req, busy); again != nil || err != nil {
		t.Errorf("Wait: %v, %v", again, err)
	}
	release(t, d, next)
	release(t, holder, g)
}
