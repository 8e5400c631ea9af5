package etcdbackend

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestWatchAfterTheTokenHasExpired checks that a queue is watched although the token of the stream
// has expired. The watch of the inbox keeps that stream open.
func TestWatchAfterTheTokenHasExpired(t *testing.T) {
	t.Parallel()
	url := "etcd://locker:s3cret@" + newGuarded(t, "--auth-token-ttl", "1").Addr
	d, other := openURL(t, url), openURL(t, url)
	time.Sleep(2500 * time.Millisecond) // a token can live up to a second longer
	g, req := raw.Acquire(t, other, newRequest(t)), newRequest(t)
	busy := raw.Busy(t, d, req)
	ctx, cancel := context.WithTimeout(t.Context(), 3*retryDelay)
	defer cancel()
	_, err := d.Wait(ctx, req, busy)
	raw.WantIs(t, "Wait for a lock that is held", err, context.DeadlineExceeded)
	if !d.hasCopy(d.prefix(req.Key)) {
		t.Error("the queue is not watched")
	}
	granted := waiting(t, d, req, busy)
	release(t, other, g)
	release(t, d, await(t, "the waiter", granted))
}

// contend makes an attempt that has three seconds and finds the lock held, and returns its request
// and the answer.
func contend(t *testing.T, d *driver) (*backend.Request, *backend.Busy) {
	t.Helper()
	req := newRequest(t)
	req.TTL = 12 * time.Second
	busy := raw.Busy(t, d, req)
	if !d.hasCopy(d.prefix(req.Key)) {
		t.Error("the queue is not watched")
	}
	return req, busy
}

// TestSilentStreamOfWatchesIsReplaced checks that a queue is watched although the stream of watches
// does not answer, because the member at its other end is stopped. The client keeps no stream that
// has no watch any more.
func TestSilentStreamOfWatchesIsReplaced(t *testing.T) {
	t.Parallel()
	var m mute
	s := testenv.Etcd(t)
	d, other := lend(t, admin(t, s, m.option("/Watch"))), openURL(t, s.URL)
	g := raw.Acquire(t, other, newRequest(t))
	d.watchStream.Add(1) // another stream than the inbox's
	m.silent.Store(2)
	req, busy := contend(t, d)
	if n := m.opened.Load(); n != 3 {
		t.Errorf("%d streams were opened", n)
	}
	m.silent.Store(0)
	eventually(t, "the former stream ends", func() bool { return m.ended.Load() == 1 })
	granted := waiting(t, d, req, busy)
	release(t, other, g)
	release(t, d, await(t, "the waiter", granted))
}

// TestSilentMemberDelaysNoCopy does not answer the first read of a queue. The next one goes to
// another member.
func TestSilentMemberDelaysNoCopy(t *testing.T) {
	t.Parallel()
	var silent atomic.Bool
	mute := grpc.WithChainUnaryInterceptor(func(
		ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
		invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		if strings.HasSuffix(method, "/Range") && silent.Swap(false) {
			<-ctx.Done()
			return status.FromContextError(ctx.Err()).Err()
		}
		return invoke(ctx, method, req, reply, conn, opts...)
	})
	s := testenv.Etcd(t)
	d, other := lend(t, admin(t, s, mute)), openURL(t, s.URL)
	g := raw.Acquire(t, other, newRequest(t))
	silent.Store(true)
	req, _ := contend(t, d)
	if silent.Load() {
		t.Error("the queue was not read")
	}
	release(t, d, &backend.Grant{Request: *req})
	release(t, other, g)
}
