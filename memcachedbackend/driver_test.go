package memcachedbackend_test

import (
	"context"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/internal/testenv"
	_ "github.com/dlock-go/dlock/memcachedbackend"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestConformance(t *testing.T) {
	conformance.Run(t, func(t conformance.TB) conformance.Harness { return newHarness(t, testenv.Memcached(t)) })
}

func BenchmarkConformance(b *testing.B) {
	conformance.Bench(b, func(t conformance.TB) conformance.Harness {
		s := testenv.Memcached(t)
		return &harness{Server: s, url: s.URL}
	})
}

// harness reaches a server through a network that can be broken.
type harness struct {
	*testenv.Server
	*testenv.Proxy
	url string
}

func newHarness(t conformance.TB, s *testenv.Server) *harness {
	p := testenv.NewProxy(t, s.Addr)
	return &harness{Server: s, Proxy: p, url: strings.Replace(s.URL, s.Addr, p.Addr(), 1)}
}

func (h *harness) Driver(ctx context.Context) (backend.Driver, error) {
	u, err := backend.ParseURL(h.url)
	if err != nil {
		return nil, err
	}
	open, err := backend.Lookup(u.Scheme)
	if err != nil {
		return nil, err
	}
	return open(ctx, u)
}

func (h *harness) Cut(t conformance.TB) (heal func())     { return h.Proxy.Cut(t) }
func (h *harness) DropReply(t conformance.TB, nth int)    { h.Proxy.DropReply(t, nth) }
func (h *harness) Pause(t conformance.TB) (resume func()) { return h.Server.Pause(t) }
func (h *harness) Restart(t conformance.TB)               { h.Server.Restart(t) }

func (h *harness) Close() {
	if h.Proxy != nil {
		h.Proxy.Close()
	}
}
