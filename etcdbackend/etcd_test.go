package etcdbackend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
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
	// patience limits the wait for events that happen at once, even on a busy machine.
	patience = 30 * time.Second
	// long is a term that does not end during a test.
	long = time.Minute
)

// openURL opens a driver and closes it at the end of the test. Its timeout is long enough for a
// slow machine.
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

// admin returns a client with which a test changes the server.
func admin(tb testing.TB, s *testenv.Server, opts ...grpc.DialOption) *clientv3.Client {
	tb.Helper()
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{s.Addr}, Logger: zap.NewNop(), DialOptions: opts,
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// must returns a function that ends the test if an administrator's request has failed.
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
		Key: tb.Name(), Owner: raw.NewOwner(), TTL: long,
		Mode: backend.Exclusive, Queue: true, Meta: "test@host:1",
	}
}

func release(tb testing.TB, d *driver, g *backend.Grant) {
	tb.Helper()
	if err := d.Release(tb.Context(), g); err != nil {
		tb.Errorf("Release: %v", err)
	}
}

// wait repeats Wait and Acquire as the core does. answer is the answer to an earlier attempt.
func wait(d *driver, req *backend.Request, answer *backend.Busy) (*backend.Grant, error) {
	return raw.Lock(context.Background(), d, req, answer, raw.ByServer)
}

// waiting continues in another goroutine after a *Busy, as the core does.
func waiting(
	tb testing.TB, d *driver, req *backend.Request, answer *backend.Busy,
) <-chan *backend.Grant {
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

// eventually polls until ok returns true, and ends the test after patience.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// lossOf returns a channel that receives the losses of req.
func lossOf(req *backend.Request) <-chan error {
	lost := make(chan error, 10)
	req.Lost = func(err error) { lost <- err }
	return lost
}

// keysUnder returns the keys on the server with a prefix.
func keysUnder(tb testing.TB, c *clientv3.Client, prefix string) []string {
	tb.Helper()
	var keys []string
	resp := must[*clientv3.GetResponse](tb)(c.Get(tb.Context(), prefix, clientv3.WithPrefix()))
	for _, kv := range resp.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys
}

func TestInterpretError(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	ours := &request{Context: ended, parent: t.Context(), values: t.Context()}
	unsent := &unsentError{status.Error(codes.Unavailable, "refused")}
	for _, tt := range []struct {
		ctx  context.Context
		err  error
		want error // nil means none of the sentinels
	}{
		{t.Context(), rpctypes.ErrNoLeader, backend.ErrUnavailable},
		{t.Context(), rpctypes.ErrNoSpace, nil},
		{t.Context(), rpctypes.ErrPermissionDenied, backend.ErrUnavailable},
		{t.Context(), rpctypes.ErrInvalidAuthToken, backend.ErrUnavailable},
		{t.Context(), rpctypes.ErrLeaseNotFound, backend.ErrUnavailable},
		{t.Context(), unsent, backend.ErrUnavailable},
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
		unknown := !errors.Is(got, backend.ErrUnavailable) &&
			!errors.Is(got, backend.ErrUnsupported)
		if tt.want == nil && !unknown {
			t.Errorf("%v became %v, although the request may have been executed", tt.err, got)
		}
		if errors.Is(tt.want, errTimeout) && errors.Is(got, context.DeadlineExceeded) {
			t.Errorf("%v is reported as the end of the caller's context", got)
		}
	}
}

// TestOpenExplainsWithoutSecrets checks the errors of servers that cannot be used.
func TestOpenExplainsWithoutSecrets(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	for url, want := range map[string]string{
		"etcd://" + raw.Login + "127.0.0.1:1": "refused",
		"etcd://127.0.0.1:1,127.0.0.1:2":      "refused",
		"etcds://" + raw.Login + s.Addr:       "handshake",
	} {
		raw.WantIs(t, url, raw.Refused(t, url, want), backend.ErrUnavailable)
	}
}

// TestBadFilesAreNotRepeated checks that Open does not try a missing file again until its timeout.
func TestBadFilesAreNotRepeated(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"ca", "cert"} {
		begun := time.Now()
		_, err := testenv.Open(t.Context(), "etcds://127.0.0.1:1?"+file+"=/nowhere")
		if took := time.Since(begun); err == nil || took >= backend.OpenTimeout {
			t.Errorf("%s: error %v after %v, the timeout of Open is %v",
				file, err, took, backend.OpenTimeout)
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
		// The timeout of Open itself would return another error.
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errTimeout) {
			t.Errorf("Open without an answer: %v after %v", err, time.Since(begun))
		}
	}
}

// TestSeveralEndpoints uses a member that is down and a running member. Every request reaches the
// running member.
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
	roots := []string{
		"/lock", "/roots", "/roots/locks", "/roots/client", "/roots/floor", "/roots/x",
	}
	for _, name := range []string{"lock", "locks", "client", "floor", "x"} {
		for _, root := range roots { // a lock of each root is held at the same time
			d, req := openURL(t, s.URL+root), newRequest(t)
			req.Key = name
			g := raw.Acquire(t, d, req)
			t.Cleanup(func() { raw.Release(t, d, g) })
		}
	}
	for _, root := range []string{
		"/roots/lock", "/roots/lock/", "/roots/lock/x", "/roots/x/lock/y",
	} {
		_, err := testenv.Open(t.Context(), s.URL+root)
		if err == nil || !strings.Contains(err.Error(), "may only be its first part") {
			t.Errorf("Open with the root %s: %v", root, err)
		}
		if _, err = New(admin(t, s), &Options{Root: root}); err == nil {
			t.Errorf("New with the root %s: nil", root)
		}
	}
}

// countLeases returns the number of leases on the server.
func countLeases(tb testing.TB, c *clientv3.Client) int {
	tb.Helper()
	return len(must[*clientv3.LeaseLeasesResponse](tb)(c.Leases(tb.Context())).Leases)
}

// TestCloseLeavesNoLease checks that Close revokes the driver's leases. Otherwise a lease of an
// hour would stay for an hour.
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
		lapse(d.(*driver), d.(*driver).leases[seconds(time.Hour)].lease)
		if err := d.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		// A silent server executes the requests of Close after Close has returned.
		eventually(t, "no lease remains", func() bool { return countLeases(t, ops) == 0 })
	}
}

// TestCloseFreesNothing checks that Close does not remove the key of a grant that was not released.
// Such a grant may have to block the lock until the end of its term, for example as a lock-delay.
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
		t.Errorf("after Close the server has the keys %q", keys)
	}
}

// TestCloseOfASilentServer checks that Close does not wait for the timeout of a request, which is
// long here.
func TestCloseOfASilentServer(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	p := testenv.NewProxy(t, s.Addr)
	url := "etcd://" + p.Addr() + "/silent?timeout=10m"
	d := must[backend.Driver](t)(testenv.Open(t.Context(), url))
	raw.Release(t, d, raw.Acquire(t, d, newRequest(t)))
	p.Cut(t)
	closed := make(chan error, 1)
	go func() { closed <- d.Close() }()
	if err := await(t, "Close", closed); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// counter counts the requests and the streams of a client.
type counter struct{ unary, streams atomic.Int64 }

func (c *counter) options() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(
			ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
			invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
		) error {
			c.unary.Add(1)
			return invoke(ctx, method, req, reply, conn, opts...)
		}),
		grpc.WithChainStreamInterceptor(func(
			ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string,
			open grpc.Streamer, opts ...grpc.CallOption,
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
	release(t, d, raw.Acquire(t, d, newRequest(t))) // creates the lease
	unary, streams := n.unary.Load(), n.streams.Load()
	for range 10 {
		release(t, d, raw.Acquire(t, d, newRequest(t)))
	}
	if u, s := n.unary.Load()-unary, n.streams.Load()-streams; u != 20 || s != 0 {
		t.Errorf("ten pairs needed %d requests and %d streams", u, s)
	}
}

// TestRenewalsGoTogether checks that one keep-alive, one read that confirms it and one read of the
// lease renew many locks, even a thousand.
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
	if u, s := n.unary.Load()-unary, n.streams.Load()-streams; u != 2 || s != 1 {
		t.Errorf("the renewal of 50 locks needed %d requests and %d streams", u, s)
	}
	for _, g := range gs {
		release(t, d, g)
	}
}

// TestCallersMetadataStaysOutside checks that the caller's metadata is not sent. Each different set
// of metadata would open a separate stream of watches.
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

// TestRequestsRequireALeader checks that requests and watches require a leader. A member without a
// leader then refuses them at once.
func TestRequestsRequireALeader(t *testing.T) {
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
		leader := []string{rpctypes.MetadataHasLeader}
		if got := sent.Get(rpctypes.MetadataRequireLeaderKey); !slices.Equal(got, leader) {
			t.Errorf("%s is sent with %v", name, sent)
		}
		if sent.Get("trace") != nil {
			t.Errorf("%s is sent with its caller's metadata: %v", name, sent)
		}
	}
}

// TestRepeatedRequestIsNotUnsent checks a request that was sent and that the client repeats. If the
// repetition is not sent, the request may be executed nevertheless. The next request with the same
// context was not sent.
func TestRepeatedRequestIsNotUnsent(t *testing.T) {
	t.Parallel()
	d := &driver{values: context.Background(), timeout: time.Minute}
	ctx, cancel := d.bound(t.Context())
	defer cancel()
	attempt := func(sent bool) error {
		return failFast(ctx, "", nil, nil, nil, func(
			_ context.Context, _ string, _, _ any, _ *grpc.ClientConn, opts ...grpc.CallOption,
		) error {
			for _, opt := range opts {
				if p, ok := opt.(grpc.PeerCallOption); ok && sent {
					p.PeerAddr.Addr = &net.TCPAddr{}
				}
			}
			return status.Error(codes.DeadlineExceeded, "late")
		})
	}
	for _, sent := range []bool{true, false} {
		if err := attempt(sent); isUnsent(err) {
			t.Errorf("sent %v after it was sent: %v", sent, err)
		}
	}
	begin(ctx)
	if err := attempt(false); !isUnsent(err) {
		t.Errorf("another request that was not sent: %v", err)
	}
}

// TestLentClientWithANamespace uses a lent client that writes all its keys in a namespace.
func TestLentClientWithANamespace(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	c, ops := admin(t, s), admin(t, s)
	c.KV = namespace.NewKV(c.KV, "in/")
	c.Watcher = namespace.NewWatcher(c.Watcher, "in/")
	c.Lease = namespace.NewLease(c.Lease, "in/")
	d := lend(t, c)
	first, second := newRequest(t), newRequest(t)
	g := raw.Acquire(t, d, first)
	if _, err := d.Acquire(t.Context(), second); !errors.Is(err, backend.ErrNotAcquired) {
		t.Errorf("a lock that is held: %v", err)
	}
	if keys := keysUnder(t, ops, "in/"+d.prefix(first.Key)); len(keys) != 2 {
		t.Errorf("the keys in the namespace are %q", keys)
	}
	if _, err := d.Renew(t.Context(), g); err != nil {
		t.Errorf("Renew: %v", err)
	}
	release(t, d, g)
	release(t, d, raw.Acquire(t, d, second))
	if keys := keysUnder(t, ops, "in/"+d.prefix(first.Key)); len(keys) != 0 {
		t.Errorf("keys remain: %q", keys)
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

// TestLeaseLoss checks a lease that an operator revokes. All locks on the lease are lost, waiters
// queue again, and no lost lock comes back.
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
	raw.WantIs(t, "Lost of the first lock", await(t, "Lost", firstLost), backend.ErrLost)
	raw.WantIs(t, "Lost of the second lock", await(t, "Lost", secondLost), backend.ErrLost)
	raw.WantIs(t, "Release", d.Release(t.Context(), g), backend.ErrNotHeld)
	release(t, other, held)
	release(t, d, await(t, "the waiter", granted))
	if keys := keysUnder(t, ops, "/leases/lock/"); len(keys) != 0 {
		t.Errorf("keys remain: %q", keys)
	}
	again := raw.Acquire(t, d, newRequest(t))
	if again.Fence <= g.Fence {
		t.Errorf("fence %d after %d", again.Fence, g.Fence)
	}
	release(t, d, again)
}

// TestDeletedKeyIsLost checks a key that an operator deletes. The next renewal reports the loss. If
// the name is contended, the watch reports it at once.
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
	prefix := d.prefix(req.Key)
	must[*clientv3.DeleteResponse](t)(ops.Delete(t.Context(), prefix+req.Owner))
	raw.WantIs(t, "Lost", await(t, "Lost", lost), backend.ErrLost)
	next := await(t, "the waiter", granted)
	must[*clientv3.DeleteResponse](t)(ops.Delete(t.Context(), prefix, clientv3.WithPrefix()))
	raw.WantIs(t, "Release", d.Release(t.Context(), next), backend.ErrNotHeld)
}

// TestDeletedPlaceIsTakenAgain checks that a waiter whose key is deleted enters the queue again.
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
		kvs := must[*clientv3.GetResponse](t)(ops.Get(t.Context(), key)).Kvs
		if len(kvs) == 1 && kvs[0].CreateRevision > before {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the waiter did not enter the queue again")
		}
	}
	release(t, other, g)
	release(t, d, await(t, "the waiter", granted))
}

// TestBreakIsPushed checks that the driver reports a break to the holder at once, even without a
// waiter.
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

// markedLease returns the lease of an acquisition of d whose marker exists.
func markedLease(tb testing.TB, d *driver, ops *clientv3.Client, owner string) *lease {
	tb.Helper()
	d.mu.Lock()
	l := d.acquisitions[owner].lease
	d.mu.Unlock()
	eventually(tb, "the lease has a marker", func() bool {
		return len(keysUnder(tb, ops, d.markerOf(l.id))) == 1
	})
	return l
}

// TestEndOfALeaseIsPushed checks that the driver reports the end of a lease to all holders at once,
// without a waiter or a renewal. A former leader that was stopped ends leases that were renewed.
func TestEndOfALeaseIsPushed(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	d, ops := openURL(t, s.URL), admin(t, s)
	first, second := newRequest(t), newRequest(t)
	second.Key += "/second"
	firstLost, secondLost := lossOf(first), lossOf(second)
	raw.Acquire(t, d, first)
	raw.Acquire(t, d, second)
	l := markedLease(t, d, ops, first.Owner)
	must[*clientv3.LeaseRevokeResponse](t)(ops.Revoke(t.Context(), l.id))
	raw.WantIs(t, "Lost of the first lock", await(t, "Lost", firstLost), errLeaseEnded)
	raw.WantIs(t, "Lost of the second lock", await(t, "Lost", secondLost), errLeaseEnded)
	release(t, d, raw.Acquire(t, d, newRequest(t)))
}

// TestDeletedMarkerIsNoLoss checks that an operator can delete the keys of clients, and no lock is
// lost. The driver creates its marker again, so the end of the lease is still reported at once.
func TestDeletedMarkerIsNoLoss(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	d, ops := openURL(t, s.URL), admin(t, s)
	req := newRequest(t)
	lost := lossOf(req)
	g := raw.Acquire(t, d, req)
	l := markedLease(t, d, ops, req.Owner)
	for range 3 {
		must[*clientv3.DeleteResponse](t)(
			ops.Delete(t.Context(), d.inbox, clientv3.WithPrefix()))
		markedLease(t, d, ops, req.Owner)
	}
	renews(t, d, g)
	select {
	case err := <-lost:
		t.Fatalf("Lost without a loss: %v", err)
	default:
	}
	must[*clientv3.LeaseRevokeResponse](t)(ops.Revoke(t.Context(), l.id))
	raw.WantIs(t, "Lost", await(t, "Lost", lost), errLeaseEnded)
}

// markerFault intercepts the requests of a client that create markers. Each calls the next function
// of faults, which returns an error instead of the answer, or nil. No function is nil, too.
func markerFault(faults ...func() error) grpc.DialOption {
	var n atomic.Int64
	return grpc.WithChainUnaryInterceptor(func(
		ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
		invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		if _, ok := req.(*pb.PutRequest); ok {
			if i := int(n.Add(1)) - 1; i < len(faults) {
				if err := faults[i](); err != nil {
					return err
				}
			}
		}
		return invoke(ctx, method, req, reply, conn, opts...)
	})
}

// TestFailedMarkerIsCreatedLater checks that a marker exists although the first requests for it
// failed. The driver repeats a request without an answer. After a refusal it waits for a renewal.
func TestFailedMarkerIsCreatedLater(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	for _, isRefused := range []bool{false, true} {
		refuse := make(chan struct{})
		d, ops := lend(t, admin(t, s, markerFault(func() error {
			defer close(refuse)
			if isRefused {
				return rpctypes.ErrGRPCPermissionDenied
			}
			return status.Error(codes.Internal, "the connection is gone")
		}))), admin(t, s)
		req := newRequest(t)
		g := raw.Acquire(t, d, req)
		await(t, "the first request", refuse)
		if isRefused {
			eventually(t, "the marker is created with a renewal", func() bool {
				renews(t, d, g)
				return len(keysUnder(t, ops, d.inbox)) == 1
			})
		}
		markedLease(t, d, ops, req.Owner)
		release(t, d, g)
	}
}

// TestEndBeforeTheMarkerIsPushed checks a lease that ends before its marker exists: the server
// refuses the marker, and the driver reports the loss at once.
func TestEndBeforeTheMarkerIsPushed(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	ended := make(chan struct{})
	d := lend(t, admin(t, s, markerFault(func() error { <-ended; return nil })))
	ops := admin(t, s)
	req := newRequest(t)
	lost := lossOf(req)
	raw.Acquire(t, d, req)
	d.mu.Lock()
	l := d.acquisitions[req.Owner].lease
	d.mu.Unlock()
	must[*clientv3.LeaseRevokeResponse](t)(ops.Revoke(t.Context(), l.id))
	close(ended)
	raw.WantIs(t, "Lost", await(t, "Lost", lost), errLeaseEnded)
}

// TestSweepLeavesMarkers checks that a sweep removes a ghost of a lease, and not its other keys.
func TestSweepLeavesMarkers(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	d, ops := openURL(t, s.URL), admin(t, s)
	g := raw.Acquire(t, d, newRequest(t))
	l := markedLease(t, d, ops, g.Owner)
	ghost := d.prefix(g.Key) + raw.NewOwner()
	put := must[*clientv3.PutResponse](t)(ops.Put(t.Context(), ghost, "", clientv3.WithLease(l.id)))
	created := put.Header.Revision
	d.sweepGhosts(l, [][]byte{[]byte(d.markerOf(l.id)), []byte(d.floorKey(g.Key)), []byte(ghost)})
	eventually(t, "the ghost is gone", func() bool { return len(keysUnder(t, ops, ghost)) == 0 })
	marker := must[*clientv3.GetResponse](t)(ops.Get(t.Context(), d.markerOf(l.id)))
	if len(marker.Kvs) != 1 || marker.Kvs[0].Version != 1 ||
		marker.Kvs[0].CreateRevision > created {
		t.Error("the sweep has removed the marker, too")
	}
	renews(t, d, g)
	release(t, d, g)
}

// TestLapsedLeaseIsReplaced checks that no acquisition gets a lease whose former proof has ended
// before its keep-alive is answered: the server may be about to end such a lease.
func TestLapsedLeaseIsReplaced(t *testing.T) {
	t.Parallel()
	d := openURL(t, testenv.Etcd(t).URL)
	req := newRequest(t)
	lapsed := must[*lease](t)(d.freshLease(t.Context(), req.TTL))
	lapse(d, lapsed)
	_, err := d.keepAlive(t.Context(), lapsed)
	raw.WantIs(t, "the keep-alive", err, errLapsed)
	if l := must[*lease](t)(d.freshLease(t.Context(), req.TTL)); l.id == lapsed.id {
		t.Error("the lease is used again")
	}
}

// TestLeaseLapsesBeforeItsEnd checks the margin for clocks of different rates: a keep-alive proves
// nothing if it is answered in the last hundredth of the term.
func TestLeaseLapsesBeforeItsEnd(t *testing.T) {
	t.Parallel()
	d := openURL(t, testenv.Etcd(t).URL)
	req := newRequest(t)
	req.TTL = 100 * long // half of the margin is long enough for the keep-alive
	l := must[*lease](t)(d.freshLease(t.Context(), req.TTL))
	d.mu.Lock()
	l.sent = l.sent.Add(margin(l.ttl)/2 - l.ttl)
	d.mu.Unlock()
	_, err := d.keepAlive(t.Context(), l)
	raw.WantIs(t, "the keep-alive", err, errLapsed)
}

// TestManyKeysOfALease checks a renewal of a client with so many locks that the keys of their lease
// exceed the usual limit of an answer. Long keys of an operator take the place of the locks' keys.
func TestManyKeysOfALease(t *testing.T) {
	t.Parallel()
	s := testenv.NewEtcd(t)
	d, ops := openURL(t, s.URL), admin(t, s)
	g := raw.Acquire(t, d, newRequest(t))
	l := d.find(g.Owner).lease
	const size = 1 << 20
	for i := range maxMessage/size + 1 {
		key := fmt.Sprint(i, strings.Repeat("x", size))
		must[*clientv3.PutResponse](t)(ops.Put(t.Context(), key, "", clientv3.WithLease(l.id)))
	}
	for range 2 * size / maxEntry {
		req := newRequest(t)
		d.admit(req, l, req.Owner)
	}
	renews(t, d, g)
}

// lapse lets the newest proof of a lease be older than its term. The server keeps the lease, as a
// new leader does.
func lapse(d *driver, l *lease) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l.sent = l.sent.Add(-l.ttl)
}

// TestSuspendedLeaseHasLapsed checks that a lease also lapses while the machine is suspended. The
// monotonic clock stands still then. The first word of a time.Time has the seconds of the wall
// clock above 30 bits of nanoseconds.
func TestSuspendedLeaseHasLapsed(t *testing.T) {
	t.Parallel()
	d := openURL(t, testenv.Etcd(t).URL)
	req := newRequest(t)
	l := must[*lease](t)(d.freshLease(t.Context(), req.TTL))
	d.mu.Lock()
	*(*uint64)(unsafe.Pointer(&l.sent)) -= uint64(l.ttl/time.Second) << 30
	d.mu.Unlock()
	_, err := d.keepAlive(t.Context(), l)
	raw.WantIs(t, "the keep-alive", err, errLapsed)
}

// TestLapsedLeaseIsRevoked checks that no lapsed lease stays on the server for another term: not
// where the key of a waiter would block the lock. A lapsed lease with a grant stays, because only
// the core may release the grant.
func TestLapsedLeaseIsRevoked(t *testing.T) {
	t.Parallel()
	s := testenv.NewEtcd(t)
	d, other, ops := openURL(t, s.URL), openURL(t, s.URL), admin(t, s)
	held := raw.Acquire(t, other, newRequest(t))
	waiter, next := newRequest(t), newRequest(t)
	next.Key += "/next"
	granted := waiting(t, d, waiter, raw.Busy(t, d, waiter))
	d.mu.Lock()
	first := d.acquisitions[waiter.Owner].lease
	d.mu.Unlock()
	lapse(d, first)
	g := raw.Acquire(t, d, next)
	// Until then the waiter could get a grant of the lapsed lease, which the core would give up.
	eventually(t, "the waiter has another lease", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.acquisitions[waiter.Owner].lease != first
	})
	release(t, other, held)
	release(t, d, await(t, "the waiter", granted))
	eventually(t, "the lapsed lease is gone", func() bool { return countLeases(t, ops) == 2 })

	second := must[*lease](t)(d.freshLease(t.Context(), next.TTL))
	lapse(d, second)
	must[*lease](t)(d.freshLease(t.Context(), next.TTL))
	_, err := d.Renew(t.Context(), g)
	raw.WantIs(t, "the renewal of a lapsed grant", err, errLapsed)
	if keys := keysUnder(t, ops, d.prefix(g.Key)); len(keys) != 1 {
		t.Errorf("an unreleased grant has the keys %q", keys)
	}
	release(t, d, g)
}

// TestBreakArrivesAfterAReconnection checks that a break which happens while the connection is cut
// is reported after the reconnection.
func TestBreakArrivesAfterAReconnection(t *testing.T) {
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

// TestGhostIsRemovedWithTheNextRenewal checks a key that no acquisition owns. It belongs to the
// shared lease, which other acquisitions keep alive, so the next renewal must remove it.
func TestGhostIsRemovedWithTheNextRenewal(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	d, ops := openURL(t, s.URL), admin(t, s)
	req, ghost := newRequest(t), newRequest(t)
	ghost.Key += "/ghost"
	g := raw.Acquire(t, d, req)
	a := &acquisition{
		name: ghost.Key, keys: newKeys(d.root, ghost.Key, ghost.Owner),
		lease: d.acquisitions[req.Owner].lease,
	}
	late := putOp(a.put([]byte(a.key), d.id).GetRequestPut())
	// The server executes this request long after its caller has given it up.
	must[*clientv3.TxnResponse](t)(ops.Txn(t.Context()).Then(late).Commit())
	if _, err := d.Renew(t.Context(), g); err != nil {
		t.Errorf("Renew: %v", err)
	}
	eventually(t, "the ghost is removed", func() bool {
		return len(keysUnder(t, ops, a.prefix)) == 0
	})
	release(t, d, g)
}

// TestReleaseAgainstRenewals checks a release during renewals of other locks. The renewals do not
// take the released lock for a ghost, so the release still finds it.
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
	defer func() {
		must[*clientv3.DeleteResponse](t)(ops.Delete(context.Background(), prefix+"stranger"))
	}()
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
		t.Errorf("keys remain: %q, and acquisitions: %v", keys, d.acquisitions)
	}
}

// TestConflictInTheQueueLeavesNothing opens the copy of the queue first, so that the driver creates
// the waiter's key before it detects the conflict.
func TestConflictInTheQueueLeavesNothing(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	d, ops := openURL(t, s.URL), admin(t, s)
	prefix := d.prefix(t.Name())
	g := raw.Acquire(t, d, newRequest(t))
	waiter := newRequest(t)
	_ = raw.Busy(t, d, waiter) // opens the copy
	release(t, d, &backend.Grant{Request: *waiter})
	release(t, d, g)
	must[*clientv3.PutResponse](t)(ops.Put(t.Context(), prefix+"stranger", "hello"))
	_, err := d.Acquire(t.Context(), newRequest(t))
	raw.WantIs(t, "Acquire", err, backend.ErrConflict)
	if keys := keysUnder(t, ops, prefix); len(keys) != 1 {
		t.Errorf("keys remain: %q", keys)
	}
	must[*clientv3.DeleteResponse](t)(ops.Delete(t.Context(), prefix+"stranger"))
}

// TestCompactionMakesWaitersRetry compacts the history while the waiter is cut off. Its watch
// cannot continue at its old position.
func TestCompactionMakesWaitersRetry(t *testing.T) {
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
	must[*clientv3.CompactResponse](t)(
		ops.Compact(t.Context(), resp.Header.Revision, clientv3.WithCompactPhysical()))
	heal()
	release(t, d, await(t, "the waiter", granted))
	// The watch of the inbox has lost its position, too, and is opened again.
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
			t.Fatal("the holder no longer receives breaks")
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

// TestIdleQueueIsClosed checks that the watch of a queue is closed after some time without waiters.
// The next waiter opens it again.
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
		end := time.Now().Add(linger + patience)
		for ; d.hasCopy(d.prefix(req.Key)); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the queue is still watched")
			}
		}
	}
	if len(d.acquisitions) != 0 {
		t.Errorf("the driver keeps %v", d.acquisitions)
	}
}

func TestUnreachableIsReportedAtOnce(t *testing.T) {
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

// TestMinTTLIsTheServers checks that MinTTL is the minimum that the server reports, not an assumed
// value.
func TestMinTTLIsTheServers(t *testing.T) {
	t.Parallel()
	s := testenv.NewEtcd(t, "--heartbeat-interval", "200", "--election-timeout", "3000")
	d := openURL(t, s.URL)
	if got := d.Capabilities().MinTTL; got < 4*time.Second || got > 6*time.Second {
		t.Errorf("MinTTL %v", got)
	}
}

// TestClientWithoutConnection makes a driver of a client that another package built.
func TestClientWithoutConnection(t *testing.T) {
	t.Parallel()
	_, err := New(clientv3.NewCtxClient(t.Context()), nil)
	raw.WantIs(t, "New", err, backend.ErrUnsupported)
}

// TestGrantWakesAConcurrentWait checks an Acquire that is granted during a Wait of the same owner,
// before the watch of the queue receives the event. The grant removes the owner from the queue, so
// the event does not wake the Wait. The grant itself must wake it.
func TestGrantWakesAConcurrentWait(t *testing.T) {
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
	next, err := d.applyAnswer(a, req, answer{created: created, lease: lease, first: true})
	if err != nil {
		t.Fatalf("applyAnswer with the answer that grants the lock: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if again, err := d.Wait(ctx, req, busy); again != nil || err != nil {
		t.Errorf("Wait: %v, %v", again, err)
	}
	release(t, d, next)
	release(t, holder, g)
}
