package etcdbackend

import (
	"context"
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

// request is the context of one request. It ends with the caller's context or after the timeout.
// Its values are the driver's: different metadata of callers would each open a stream of watches.
type request struct {
	context.Context                 // ends the request
	parent, values  context.Context // the caller's context, and driver.values
}

// Value returns the driver's value, never the caller's.
func (r request) Value(key any) any { return r.values.Value(key) }

// AfterFunc lets the standard library derive contexts from r without a goroutine.
func (r request) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(r.Context, f) }

// bound returns the context of a request that is limited by Options.Timeout.
func (d *driver) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return d.boundTo(ctx, d.timeout)
}

// boundTo returns the context of a request that is limited by timeout.
func (d *driver) boundTo(
	ctx context.Context, timeout time.Duration,
) (context.Context, context.CancelFunc) {
	b := bound.Within(ctx, timeout)
	return request{b, ctx, d.values}, b.Cancel
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
	if err != nil && s.to.Addr == nil {
		return &unsentError{err}
	}
	return err
}

// wantsLeader is the key of a context's value that makes failFast send the metadata of
// clientv3.WithRequireLeader. If a context has that metadata earlier, the client copies it three
// times to add its own. That costs seven more allocations for a pair of Lock and Unlock.
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
