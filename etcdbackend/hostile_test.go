package etcdbackend

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dlock-go/dlock/backend"
)

// TestHostileServer checks that an answer of 1 GB takes little memory. The test measures the memory
// of the process, so it does not run in parallel.
func TestHostileServer(t *testing.T) {
	addr := serveAnswers(t, []byte{0, 1 << 30 >> 24, 0, 0, 0})
	u := must[*backend.URL](t)(backend.ParseURL("etcd://" + addr))
	config := must[clientv3.Config](t)(must[*target](t)(parseTarget(u)).config())
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
