package testenv

import (
	"context"
	"strings"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/conformance"
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

// Direct is a conformance.Harness for benchmarks, with nothing between driver and server.
type Direct struct{ URL string }

// Driver implements conformance.Harness.
func (d Direct) Driver(ctx context.Context) (backend.Driver, error) { return Open(ctx, d.URL) }

// Close implements conformance.Harness. It does nothing.
func (Direct) Close() {}

// Harness is a conformance.Harness that reaches a server through a network that can be broken. It
// also implements Faults, Apart, Delayer and Addressed. T is conformance.TB or [TB].
type Harness[T TB] struct {
	Direct
	server interface {
		Pause(TB) (resume func())
		Restart(TB)
	}
	proxy *Proxy
	apart func(T) *Harness[T] // returns another Harness to the same server
}

// NewHarness returns a Harness with a [Proxy] in front of s.
func NewHarness[T TB](tb T, s *Server) *Harness[T] {
	tb.Helper()
	p := NewProxy(tb, s.Addr)
	return &Harness[T]{
		Direct: Direct{strings.Replace(s.URL, s.Addr, p.Addr(), 1)}, server: s, proxy: p,
		apart: func(tb T) *Harness[T] { return NewHarness(tb, s) },
	}
}

// With returns a Harness with other parameters in the URL, such as lock=session. It shares the
// server and the proxy.
func (h *Harness[T]) With(params string) *Harness[T] {
	with, separator := *h, "?"
	if strings.Contains(h.Direct.URL, "?") {
		separator = "&"
	}
	with.Direct.URL += separator + params
	with.apart = func(tb T) *Harness[T] { return h.apart(tb).With(params) }
	return &with
}

// NewEnsembleHarness returns a Harness with a [Proxy] in front of all members of e. Pause stops all
// members, Restart only the leader.
func NewEnsembleHarness[T TB](tb T, e *Ensemble) *Harness[T] {
	tb.Helper()
	p := NewProxy(tb, addrsOf(e.Members)...)
	return &Harness[T]{
		Direct: Direct{e.URLOf(p.Addrs()...)}, server: e, proxy: p,
		apart: func(tb T) *Harness[T] { return NewEnsembleHarness(tb, e) },
	}
}

// Close closes the proxy.
func (h *Harness[T]) Close() { h.proxy.Close() }

// URL returns the server's URL with the proxy's address.
func (h *Harness[T]) URL() string { return h.Direct.URL }

// Secret returns the password in the URL.
func (h *Harness[T]) Secret() string {
	u, err := backend.ParseURL(h.Direct.URL)
	if err != nil {
		return ""
	}
	return u.Password
}

// Apart returns another Harness to the same server, with another proxy.
func (h *Harness[T]) Apart(tb T) conformance.Harness { tb.Helper(); return h.apart(tb) }

// Cut is [Proxy.Cut].
func (h *Harness[T]) Cut(tb T) (heal func()) { tb.Helper(); return h.proxy.Cut(tb) }

// DropReply is [Proxy.DropReply].
func (h *Harness[T]) DropReply(tb T, nth int) { tb.Helper(); h.proxy.DropReply(tb, nth) }

// Delay is [faultproxy.Proxy.Delay].
func (h *Harness[T]) Delay(tb T) (deliver func()) { tb.Helper(); return h.proxy.Delay(tb) }

// Pause is [Server.Pause] or [Ensemble.Pause].
func (h *Harness[T]) Pause(tb T) (resume func()) { tb.Helper(); return h.server.Pause(tb) }

// Restart is [Server.Restart] or [Ensemble.Restart].
func (h *Harness[T]) Restart(tb T) { tb.Helper(); h.server.Restart(tb) }
