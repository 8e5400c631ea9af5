package zkbackend

import (
	"strings"
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
	_, err := testenv.Open(t.Context(), "zk://u:secret@"+testenv.ZooKeeper(t).Addr+"?tls=1")
	raw.WantIs(t, "Open", err, backend.ErrUnavailable)
	if err != nil && strings.Contains(err.Error(), "secret") {
		t.Errorf("the error contains the password: %v", err)
	}
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
