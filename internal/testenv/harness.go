package testenv

import (
	"context"
	"strings"

	"github.com/dlock-go/dlock/backend"
)

// Open opens the driver of a URL, as dlock.Open does. The test imports the driver's package.
func Open(ctx context.Context, rawURL string) (backend.Driver, error) {
	u, err := backend.ParseURL(rawURL)
	if err != nil {
		return nil, err
	}
	open, err := backend.Lookup(u.Scheme)
	if err != nil {
		return nil, err
	}
	return open(ctx, u)
}

// Direct is a conformance.Harness with nothing between driver and server: for benchmarks.
type Direct struct{ URL string }

// Driver implements conformance.Harness.
func (d Direct) Driver(ctx context.Context) (backend.Driver, error) { return Open(ctx, d.URL) }

// Close implements conformance.Harness. It does nothing.
func (Direct) Close() {}

// Harness is a conformance.Harness, and its Faults, that reaches a server through a network that can be broken. Since this
// package does not import conformance, T is conformance.TB.
type Harness[T TB] struct {
	Direct
	server interface {
		Pause(TB) (resume func())
		Restart(TB)
	}
	proxy *Proxy
}

// NewHarness puts a [Proxy] in front of s.
func NewHarness[T TB](tb T, s *Server) *Harness[T] {
	tb.Helper()
	p := NewProxy(tb, s.Addr)
	return &Harness[T]{Direct: Direct{strings.Replace(s.URL, s.Addr, p.Addr(), 1)}, server: s, proxy: p}
}

// NewEnsembleHarness puts a [Proxy] in front of all members of e. Pause stops them all, Restart the leader alone.
func NewEnsembleHarness[T TB](tb T, e *Ensemble) *Harness[T] {
	tb.Helper()
	p := NewProxy(tb, e.addrs()...)
	return &Harness[T]{Direct: Direct{e.URLOf(p.Addrs()...)}, server: e, proxy: p}
}

// Close closes the proxy.
func (h *Harness[T]) Close() { h.proxy.Close() }

// Cut is [Proxy.Cut].
func (h *Harness[T]) Cut(tb T) (heal func()) { tb.Helper(); return h.proxy.Cut(tb) }

// DropReply is [Proxy.DropReply].
func (h *Harness[T]) DropReply(tb T, nth int) { tb.Helper(); h.proxy.DropReply(tb, nth) }

// Pause is [Server.Pause] or [Ensemble.Pause].
func (h *Harness[T]) Pause(tb T) (resume func()) { tb.Helper(); return h.server.Pause(tb) }

// Restart is [Server.Restart] or [Ensemble.Restart].
func (h *Harness[T]) Restart(tb T) { tb.Helper(); h.server.Restart(tb) }
