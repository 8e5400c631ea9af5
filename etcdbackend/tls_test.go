package etcdbackend

import (
	"testing"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
	"github.com/dlock-go/dlock/internal/testenv/tlstest"
)

func TestTLS(t *testing.T) {
	t.Parallel()
	tlstest.Suite{
		Upstream:  testenv.Etcd(t).Addr,
		URL:       "etcds://%s?%s",
		Protocols: []string{"h2"}, // gRPC requires it
	}.Run(t)
}

// TestTLSOfTheServer uses a server that supports TLS itself.
func TestTLSOfTheServer(t *testing.T) {
	t.Parallel()
	tlstest.Suite{
		URL:   "etcds://%s?%s",
		Start: testenv.NewEtcdTLS,
		Use: func(t *testing.T, d backend.Driver) {
			t.Helper()
			req := newRequest(t)
			release(t, d.(*driver), raw.Acquire(t, d.(*driver), req))
		},
	}.Run(t)
}
