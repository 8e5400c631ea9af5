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

// gate holds up the first request until n requests are there, or until its context ends. It has no
// effect until n is set.
type gate struct {
	n, entered atomic.Int64
	open       chan struct{}
}

func newGate() *gate { return &gate{open: make(chan struct{})} }

func (g *gate) option() grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(
		ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
		invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		n := g.n.Load()
		if n == 0 || !strings.HasPrefix(method, "/etcdserverpb.KV/") {
			return invoke(ctx, method, req, reply, conn, opts...)
		}
		switch g.entered.Add(1) {
		case n:
			close(g.open)
		case 1:
			select {
			case <-g.open:
			case <-ctx.Done():
				return status.FromContextError(ctx.Err()).Err()
			}
		}
		return invoke(ctx, method, req, reply, conn, opts...)
	})
}

// TestLocksAreReleasedAtOnce checks that a ReleaseAll in which one grant is unknown to the driver
// does not release one lock after the other.
func TestLocksAreReleasedAtOnce(t *testing.T) {
	t.Parallel()
	s, g := testenv.Etcd(t), newGate()
	d, other := lend(t, admin(t, s, g.option())), openURL(t, s.URL)
	reqs := requests(t, 3)
	grants := []*backend.Grant{
		raw.Acquire(t, d, reqs[0]), raw.Acquire(t, other, reqs[1]), raw.Acquire(t, d, reqs[2]),
	}
	g.n.Store(3)
	for i, err := range d.ReleaseAll(t.Context(), grants) {
		if err != nil {
			t.Errorf("release %d: %v", i, err)
		}
	}
}

// TestReleaseAllAfterItsTimeout checks that the end of the driver's own timeout is not reported as
// the end of the caller's context.
func TestReleaseAllAfterItsTimeout(t *testing.T) {
	t.Parallel()
	l := newTardy()
	d := lend(t, admin(t, testenv.Etcd(t), l.option()))
	reqs := requests(t, 2)
	var grants []*backend.Grant
	for _, req := range reqs {
		grants = append(grants, raw.Acquire(t, d, req))
	}
	grants[0].TTL = time.Second // has the shortest timeout
	l.next.Store(true)
	for _, err := range d.ReleaseAll(t.Context(), grants) {
		raw.WantIs(t, "ReleaseAll without an answer", err, errTimeout)
	}
	for _, g := range grants {
		release(t, d, g)
	}
}
