package etcdbackend

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestHostileServer checks that an answer of 1 GB takes little memory. The test measures the memory
// of the process, so it does not run in parallel.
func TestHostileServer(t *testing.T) {
	addr := serveAnswers(t, []byte{0, 1 << 30 >> 24, 0, 0, 0})
	config := must[clientv3.Config](t)(raw.Target(t, parseTarget, "etcd://"+addr).config())
	client := must[*clientv3.Client](t)(connect(t.Context(), config))
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := client.Get(ctx, "k")
	runtime.ReadMemStats(&after)
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("Get: %v, want an error about the size", err)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 64<<20 {
		t.Errorf("Get allocated %d MB", used>>20)
	}
}

// hollow empties the answers to unary requests while on is set.
func hollow(on *atomic.Bool) grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(
		ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
		invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		err := invoke(ctx, method, req, reply, conn, opts...)
		if r, ok := reply.(interface{ Reset() }); ok && on.Load() {
			r.Reset()
		}
		return err
	})
}

// TestHollowAnswersEndNoProcess checks that answers without a header and without parts are errors.
// A panic in a goroutine of the driver would end the process.
func TestHollowAnswersEndNoProcess(t *testing.T) {
	t.Parallel()
	var on atomic.Bool
	d := lend(t, admin(t, testenv.Etcd(t), hollow(&on)))
	held, reqs := requests(t, 2), requests(t, 3)
	for _, req := range slices.Concat(held, reqs) {
		req.Key, req.TTL = req.Key+req.Owner, 10*long // its proof stays fresh during the test
	}
	grants := []*backend.Grant{raw.Acquire(t, d, held[0]), raw.Acquire(t, d, held[1])}
	on.Store(true)
	for _, renewal := range d.RenewAll(t.Context(), grants) {
		raw.WantIs(t, "RenewAll", renewal.Err, errDeposed)
	}
	_, err := d.Acquire(t.Context(), reqs[0])
	raw.WantIs(t, "Acquire", err, errMalformed)
	_, errs := acquireTogether(t, d, reqs)
	for _, err := range slices.Concat(errs, d.ReleaseAll(t.Context(), grants)) {
		wantUnknown(t, "a request in a batch", err)
	}
	on.Store(false)
	for _, req := range reqs {
		release(t, d, &backend.Grant{Request: *req})
	}
}

// TestMissingPartsAreDetected checks answers that have a header, but do not fit their transaction.
func TestMissingPartsAreDetected(t *testing.T) {
	t.Parallel()
	get, remove := getKey([]byte("k")), deleteKey([]byte("k"))
	nested := call{txn: ifNew([]byte("k"), remove, get)}.part()
	ranged := &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{
		ResponseRange: &pb.RangeResponse{},
	}}
	inner := func(resps ...*pb.ResponseOp) *pb.ResponseOp {
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseTxn{
			ResponseTxn: &pb.TxnResponse{Responses: resps},
		}}
	}
	for _, test := range []struct {
		op    *pb.RequestOp
		resps []*pb.ResponseOp
		want  bool
	}{
		{get, nil, false},
		{get, []*pb.ResponseOp{{}}, false},
		{get, []*pb.ResponseOp{ranged}, true},
		{remove, []*pb.ResponseOp{ranged}, false},
		{nested, []*pb.ResponseOp{ranged}, false},
		{nested, []*pb.ResponseOp{inner()}, false},
		{nested, []*pb.ResponseOp{inner(ranged)}, true},
	} {
		req := &pb.TxnRequest{Success: []*pb.RequestOp{test.op}}
		resp := &pb.TxnResponse{Succeeded: true, Responses: test.resps}
		if got := fits(req, resp); got != test.want {
			t.Errorf("%v as the answer to %v: %t", test.resps, test.op, got)
		}
	}
}

// serveAnswers starts a gRPC server that answers each request with a header and endless filler
// bytes.
func serveAnswers(t *testing.T, header []byte) (addr string) {
	t.Helper()
	filler := make([]byte, 1<<16)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		_, err := w.Write(header)
		for err == nil {
			_, err = w.Write(filler)
		}
	}))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.Listener.Addr().String()
}
