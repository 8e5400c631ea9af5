package etcdbackend

import (
	"context"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/api/v3/version"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/dlock-go/dlock/internal/bound"
)

// minTimeout is the time that a busy server may need for a request, however short the term is.
const minTimeout = time.Second

// request is the context of one request for a lock, of several that follow each other, or of any
// number of other requests. It ends with the caller's context or after the timeout. Its values are
// the driver's: different metadata of callers would each open a stream of watches.
type request struct {
	context.Context                 // ends the request
	parent, values  context.Context // the caller's context, and driver.values
	// sent is whether the present request has left this process, or a concurrent one: see failFast.
	sent atomic.Bool
}

// requestKey is the key under which a request has itself as a value.
type requestKey struct{}

// Value returns the driver's value, never the caller's.
func (r *request) Value(key any) any {
	if key == (requestKey{}) {
		return r
	}
	return r.values.Value(key)
}

// AfterFunc lets the standard library derive contexts from r without a goroutine.
func (r *request) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(r.Context, f) }

// begin marks the beginning of a request for a lock with the context ctx.
func begin(ctx context.Context) {
	if r, ok := ctx.(*request); ok {
		r.sent.Store(false)
	}
}

// bound returns the context of a request that is limited by Options.Timeout.
func (d *driver) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return d.boundTo(ctx, d.timeout)
}

// boundTo returns the context of a request that is limited by timeout.
func (d *driver) boundTo(
	ctx context.Context, timeout time.Duration,
) (context.Context, context.CancelFunc) {
	b := bound.Within(ctx, timeout)
	return &request{Context: b, parent: ctx, values: d.values}, b.Cancel
}

// timeoutFor returns the limit of a request for a lock. Unless the term is short, the limit leaves
// time for more attempts in a term: for three even to a waiter whose last answer is a third of a
// term old. A silent member gets the requests in turn with the other members until the client
// closes the connection to it.
func (d *driver) timeoutFor(ttl time.Duration) time.Duration {
	return min(d.timeout, max(ttl/4, minTimeout))
}

// failFast is an interceptor below the interceptors of the client. The client lets requests wait
// for a connection until their contexts end; failFast lets them fail at once. It marks the errors
// of requests that were not sent.
//
// The client calls it again to repeat a request. That happens even to an attempt that was sent, if
// gRPC reports the end of a context just before the context itself does. The repetition then fails
// without being sent, but the request may be executed.
func failFast(
	ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
	invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	s := &sending{Context: ctx}
	if ctx.Value(wantsLeader{}) != nil {
		ctx = s
	}
	opts = append(opts, grpc.WaitForReady(false), grpc.Peer(&s.to))
	err := invoke(ctx, method, req, reply, conn, opts...)
	sent := s.to.Addr != nil
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		if sent {
			r.sent.Store(true)
		}
		sent = r.sent.Load()
	}
	if err != nil && !sent {
		return &unsentError{err}
	}
	return err
}

// wantsLeader is the key of a context's value that makes failFast send the metadata of
// clientv3.WithRequireLeader. If a context has that metadata earlier, the client copies it three
// times to add its own. That costs an uncontended pair of Lock and Unlock seven allocations more
// than its 267, and 3 % of the time.
type wantsLeader struct{}

// sending is a request that failFast sends, and the context of the request: with ledMetadata in
// addition to the values of the client.
type sending struct {
	context.Context
	to peer.Peer // without an address until the request has a connection
}

// ledMetadata is a context with the metadata of requests that require a leader. Without a leader a
// member then refuses them at once instead of at their timeout.
var ledMetadata = metadata.NewOutgoingContext(context.Background(), metadata.Pairs(
	rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader,
	rpctypes.MetadataClientAPIVersionKey, version.APIVersion,
))

// Value returns the metadata instead of the context's own.
func (s *sending) Value(key any) any {
	if v := ledMetadata.Value(key); v != nil {
		return v
	}
	return s.Context.Value(key)
}
