package etcdbackend

import (
	"testing"

	"github.com/dlock-go/dlock/internal/testenv"
)

func TestTLS(t *testing.T) {
	t.Parallel()
	testenv.TLSTest{
		Upstream:  testenv.Etcd(t).Addr,
		URL:       "etcds://%s?%s",
		Protocols: []string{"h2"}, // gRPC insists
	}.Run(t)
}
