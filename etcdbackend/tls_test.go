package etcdbackend

import (
	"testing"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

func TestTLS(t *testing.T) {
	t.Parallel()
	testenv.TLSTest{
		Upstream:  testenv.Etcd(t).Addr,
		URL:       "etcds://%s?%s",
		Protocols: []string{"h2"}, // gRPC insists
	}.Run(t)
}

// The server ends TLS itself.
func TestTLSOfTheServer(t *testing.T) {
	t.Parallel()
	testenv.TLSTest{
		URL:   "etcds://%s?%s",
		Start: testenv.NewEtcdTLS,
		Use: func(t *testing.T, d backend.Driver) {
			t.Helper()
			req := newRequest(t)
			release(t, d.(*driver), raw.Acquire(t, d.(*driver), req))
		},
	}.Run(t)
}
