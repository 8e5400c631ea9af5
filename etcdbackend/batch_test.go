package etcdbackend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/batch"
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

// TestPermitsAreReleasedTogether checks that the releases of one semaphore in a batch are one
// request, and that each gets its own answer.
func TestPermitsAreReleasedTogether(t *testing.T) {
	t.Parallel()
	var n counter
	d := lend(t, admin(t, testenv.Etcd(t), n.options()...))
	key, gs := newRequest(t).Key, make([]*backend.Grant, 3)
	for i := range gs {
		req := newRequest(t)
		req.Key, req.Mode, req.Limit = key, backend.Permit, len(gs)
		gs[i] = raw.Acquire(t, d, req)
	}
	gs = append(gs, gs[0])
	errs, before := make([]error, len(gs)), n.unary.Load()
	raw.Together(t, d.batcher, len(gs), func(i int) { errs[i] = d.Release(t.Context(), gs[i]) })
	if sent := n.unary.Load() - before; sent != 1 {
		t.Errorf("the releases were %d requests, want one", sent)
	}
	if (errs[0] == nil) == (errs[3] == nil) {
		t.Errorf("two releases of one permit: %v and %v", errs[0], errs[3])
	}
	raw.WantIs(t, "the later one", cmp.Or(errs[0], errs[3]), backend.ErrNotHeld)
	if err := errors.Join(errs[1], errs[2]); err != nil {
		t.Errorf("Release: %v", err)
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

// slowKV answers each request after 100 ms. A transaction without operations is a call that is sent
// singly. The tests set what else happens to it.
type slowKV struct {
	kv
	single func(ctx context.Context) error // nil: nothing
	refuse error                           // the answer to the other transactions, unless it is nil
	calls  atomic.Int64
}

const slow = 100 * time.Millisecond

// Txn implements kv.
func (s *slowKV) Txn(ctx context.Context, req *pb.TxnRequest) (*pb.TxnResponse, error) {
	s.calls.Add(1)
	time.Sleep(slow)
	if len(req.Success) == 0 && s.single != nil {
		if err := s.single(ctx); err != nil {
			return nil, err
		}
	}
	if len(req.Success) > 0 && s.refuse != nil {
		return nil, s.refuse
	}
	resp := &pb.TxnResponse{Header: &pb.ResponseHeader{}, Succeeded: true}
	for _, op := range req.Success {
		part := &pb.ResponseOp{Response: &pb.ResponseOp_ResponseTxn{
			ResponseTxn: &pb.TxnResponse{},
		}}
		if op.GetRequestDeleteRange() != nil {
			part.Response = &pb.ResponseOp_ResponseDeleteRange{
				ResponseDeleteRange: &pb.DeleteRangeResponse{Deleted: 1},
			}
		}
		resp.Responses = append(resp.Responses, part)
	}
	return resp, nil
}

// DeleteRange implements kv.
func (s *slowKV) DeleteRange(
	context.Context, *pb.DeleteRangeRequest,
) (*pb.DeleteRangeResponse, error) {
	s.calls.Add(1)
	time.Sleep(slow)
	return &pb.DeleteRangeResponse{Deleted: 1}, nil
}

// outcome is how a call ended, and when.
type outcome struct {
	err  error
	took time.Duration
}

// callTogether makes an attempt for each of the prefixes attempts, and a removal for each of the
// prefixes removals, in one batch of a driver with the kv.
func callTogether(t *testing.T, k kv, attempts, removals []string) []outcome {
	t.Helper()
	d := &driver{kv: k, values: context.Background()}
	d.batcher = batch.New(batch.Options[call, reply]{
		Send: d.sendBatch, Timeout: time.Minute, MaxUnderWay: maxUnderWay,
	})
	defer d.batcher.Close()
	outcomes := make([]outcome, len(attempts)+len(removals))
	open := d.batcher.Hold()
	var running sync.WaitGroup
	var start time.Time
	for i := range outcomes {
		running.Go(func() {
			var err error
			if i < len(attempts) {
				_, err = d.transact(t.Context(), attempts[i], &pb.TxnRequest{})
			} else {
				_, err = d.removeKey(t.Context(), keys{prefix: removals[i-len(attempts)]})
			}
			outcomes[i] = outcome{err, time.Since(start)}
		})
		synctest.Wait() // so that the queue has them in order
	}
	start = time.Now()
	open()
	running.Wait()
	return outcomes
}

// TestCallsOfABatchDoNotAddUp checks that the calls of a batch that cannot go in one transaction
// are sent at the same time.
func TestCallsOfABatchDoNotAddUp(t *testing.T) {
	t.Parallel()
	attempts := append(slices.Repeat([]string{"a"}, 20), "b")
	removals := append(slices.Repeat([]string{"c"}, 20), "a")
	for _, test := range []struct {
		name   string
		refuse error
		calls  int64
		took   time.Duration
	}{
		// 19 attempts for "a" and the removal of "a" are not in the transaction.
		{"granted", nil, 1 + 20, slow},
		{"refused", rpctypes.ErrPermissionDenied, 1 + 42, 2 * slow},
	} {
		synctest.Test(t, func(t *testing.T) {
			k := &slowKV{refuse: test.refuse}
			for i, o := range callTogether(t, k, attempts, removals) {
				if o.err != nil || o.took > test.took {
					t.Errorf("%s: call %d ended after %v with %v", test.name, i, o.took, o.err)
				}
			}
			if n := k.calls.Load(); n != test.calls {
				t.Errorf("%s: %d requests, want %d", test.name, n, test.calls)
			}
		})
	}
}

// TestSingleCallOfABatchFails checks that a call that is sent singly and hangs, or panics, delays
// no other answer, and that its outcome is unknown.
func TestSingleCallOfABatchFails(t *testing.T) {
	t.Parallel()
	for name, single := range map[string]func(context.Context) error{
		"hangs": func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		},
		"panics": func(context.Context) error { panic("on purpose") },
	} {
		synctest.Test(t, func(t *testing.T) {
			outcomes := callTogether(t, &slowKV{single: single}, []string{"a", "a", "b"}, nil)
			for _, i := range []int{0, 2} {
				if o := outcomes[i]; o.err != nil || o.took != slow {
					t.Errorf("%s: the answer to another call came after %v: %v",
						name, o.took, o.err)
				}
			}
			wantUnknown(t, "a call that "+name, outcomes[1].err)
		})
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
