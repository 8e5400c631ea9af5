package etcdbackend

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// requests returns requests for n locks.
func requests(tb testing.TB, n int) []*backend.Request {
	tb.Helper()
	reqs := make([]*backend.Request, n)
	for i := range reqs {
		reqs[i] = newRequest(tb)
		reqs[i].Key += fmt.Sprint("/", i)
	}
	return reqs
}

// acquireTogether attempts to acquire all locks in one batch.
func acquireTogether(
	tb testing.TB, d *driver, reqs []*backend.Request,
) ([]*backend.Grant, []error) {
	tb.Helper()
	grants, errs := make([]*backend.Grant, len(reqs)), make([]error, len(reqs))
	raw.Together(tb, d.batcher, len(reqs), func(i int) {
		grants[i], errs[i] = d.Acquire(tb.Context(), reqs[i])
	})
	return grants, errs
}

// TestBatchOnAServer checks that each request of a batch gets the same answer as a single request.
// The batch has a taken lock, a lock that two requests want to acquire, and free locks.
func TestBatchOnAServer(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	d, ops := openURL(t, s.URL+"/batch"), admin(t, s)
	reqs := requests(t, 6)
	taken := newRequest(t)
	taken.Key = reqs[0].Key
	held := raw.Acquire(t, d, taken)
	reqs[2].Key = reqs[1].Key
	for _, req := range reqs {
		req.Queue = false
	}

	grants, errs := acquireTogether(t, d, reqs)
	if _, ok := errors.AsType[*backend.Busy](errs[0]); !ok {
		t.Errorf("a lock that is taken: %v, want *Busy", errs[0])
	}
	if (grants[1] == nil) == (grants[2] == nil) {
		t.Errorf("two requests for one lock: %v, %v and %v, %v",
			grants[1], errs[1], grants[2], errs[2])
	}
	granted := []*backend.Grant{held}
	for i, g := range grants {
		if g == nil {
			continue
		}
		kv := must[*clientv3.GetResponse](t)(ops.Get(t.Context(), d.prefix(g.Key)+g.Owner)).Kvs[0]
		if g.Owner != reqs[i].Owner || g.Fence != uint64(kv.CreateRevision) ||
			g.Fence <= held.Fence {
			t.Errorf("a free lock: %+v, and its key was created at %d", g, kv.CreateRevision)
		}
		granted = append(granted, g)
	}
	if len(granted) != 5 {
		t.Fatalf("errors: %v", errs)
	}

	raw.Release(t, d, granted[1])
	errs = make([]error, len(granted))
	raw.Together(t, d.batcher, len(granted), func(i int) {
		errs[i] = d.Release(t.Context(), granted[i])
	})
	raw.WantIs(t, "a lock that is not held", errs[1], backend.ErrNotHeld)
	if err := errors.Join(errs[0], errs[2], errs[3], errs[4]); err != nil {
		t.Errorf("Release: %v", err)
	}
	if keys := keysUnder(t, ops, "/batch/lock/"); len(keys) != 0 {
		t.Errorf("keys remain: %q", keys)
	}
}

// TestRefusalInABatch checks a batch that the server refuses because of one request. The other
// requests are still executed.
func TestRefusalInABatch(t *testing.T) {
	t.Parallel()
	s := testenv.Etcd(t)
	d := openURL(t, s.URL)
	reqs := requests(t, 4)
	reqs[0].TTL = 2 * long // needs a separate lease
	raw.Release(t, d, raw.Acquire(t, d, reqs[0]))
	d.mu.Lock() // the lease that the server does not have
	d.leases[int64(reqs[0].TTL/time.Second)].lease = &lease{id: 1, ttl: long, sent: time.Now()}
	d.mu.Unlock()
	reqs[1].Meta = strings.Repeat("x", 1700<<10) // above the size limit of a request

	grants, errs := acquireTogether(t, d, reqs)
	raw.WantIs(t, "a request without its lease", errs[0], rpctypes.ErrLeaseNotFound)
	raw.WantIs(t, "a request that is too large", errs[1], backend.ErrUnsupported)
	for i := 2; i < len(reqs); i++ {
		if errs[i] != nil {
			t.Fatalf("another request: %v", errs[i])
		}
		raw.Release(t, d, grants[i])
	}
}

// loser replaces the answers to transactions by an error, and counts the lost answers.
type loser struct {
	answer error
	losing atomic.Bool
	lost   atomic.Int64
}

// The errors of a loser.
var (
	errReset = status.Error(codes.Unavailable, "the connection has ended")
	errFull  = rpctypes.ErrGRPCNoSpace // after a transaction that has exceeded the quota
)

func (l *loser) option() grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(
		ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
		invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		err := invoke(ctx, method, req, reply, conn, opts...)
		if method == "/etcdserverpb.KV/Txn" && l.losing.Load() {
			l.lost.Add(1)
			return l.answer
		}
		return err
	})
}

// TestBatchWithoutAnAnswer checks that each request of a batch has an unknown outcome if the answer
// to the batch is lost, or if the batch has exceeded the quota. None of the requests is repeated.
func TestBatchWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for _, answer := range []error{errReset, errFull} {
		l := &loser{answer: answer}
		d := lend(t, admin(t, testenv.Etcd(t), l.option()))
		grants, errs := acquireTogether(t, d, requests(t, 3))
		if err := errors.Join(errs...); err != nil {
			t.Fatalf("Acquire: %v", err)
		}
		l.losing.Store(true)
		raw.Together(t, d.batcher, 3, func(i int) { errs[i] = d.Release(t.Context(), grants[i]) })
		l.losing.Store(false)
		if n := l.lost.Load(); n != 1 {
			t.Errorf("%v: %d requests, want one for all", answer, n)
		}
		for i, err := range errs {
			wantUnknown(t, "Release whose answer is lost", err)
			again := d.Release(t.Context(), grants[i])
			raw.WantIs(t, "the second Release", again, backend.ErrNotHeld)
		}
	}
}

// wantUnknown checks that err leaves the outcome of a request unknown.
func wantUnknown(tb testing.TB, what string, err error) {
	tb.Helper()
	if err == nil || isDefinite(err) || errors.Is(err, backend.ErrNotHeld) ||
		errors.Is(err, backend.ErrLost) || errors.Is(err, backend.ErrNotAcquired) {
		tb.Errorf("%s: %v, want an unknown outcome", what, err)
	}
}

func TestCloseWhileRequestsQueue(t *testing.T) {
	t.Parallel()
	d, err := testenv.Open(t.Context(), testenv.Etcd(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	b := d.(*driver).batcher
	raw.Release(t, d, raw.Acquire(t, d, newRequest(t))) // creates the lease
	b.Hold()
	done := make(chan error, 1)
	go func() {
		_, err := d.Acquire(t.Context(), newRequest(t))
		done <- err
	}()
	raw.AwaitQueue(t, b, 1)
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	raw.WantIs(t, "a request in the queue", <-done, backend.ErrUnavailable)
}
