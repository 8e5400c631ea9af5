package zkbackend

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
	"github.com/dlock-go/dlock/internal/testenv/tlstest"
)

func TestTLS(t *testing.T) {
	t.Parallel()
	tlstest.Suite{Upstream: testenv.ZooKeeper(t).Addr, URL: "zk://%s?tls=1&%s"}.Run(t)
}

// TestTLSAgainstPlaintext checks that a plaintext server receives no credentials from a client that
// expects TLS.
func TestTLSAgainstPlaintext(t *testing.T) {
	t.Parallel()
	url := "zk://" + raw.Login + testenv.ZooKeeper(t).Addr + "?tls=1"
	raw.WantIs(t, "Open", raw.Refused(t, url, ""), backend.ErrUnavailable)
}

// TestTLSOfTheServer uses a server that supports TLS itself.
func TestTLSOfTheServer(t *testing.T) {
	t.Parallel()
	tlstest.Suite{
		URL:   "zk://%s?tls=1&%s",
		Start: testenv.NewZooKeeperTLS,
		Use: func(t *testing.T, d backend.Driver) {
			t.Helper()
			req := raw.Request(t, 5*time.Second)
			raw.Release(t, d.(*driver), raw.Acquire(t, d.(*driver), req))
		},
	}.Run(t)
}
