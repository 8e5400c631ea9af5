package testenv

import (
	"sync"
	"time"

	"github.com/dlock-go/dlock/conformance/faultproxy"
)

// Proxy is a [faultproxy.Proxy] for one test. It and its faults end with the test.
type Proxy struct{ proxy *faultproxy.Proxy }

// NewProxy starts a proxy in front of the addresses of a server or of an ensemble's members. It is
// closed at the end of the test.
func NewProxy(tb TB, upstreams ...string) *Proxy {
	tb.Helper()
	p, err := faultproxy.New(upstreams...)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(p.Close)
	return &Proxy{p}
}

// Addr returns the proxy's address, which clients use instead of the server's. It never changes.
func (p *Proxy) Addr() string { return p.Addrs()[0] }

// Addrs is [faultproxy.Proxy.Addrs].
func (p *Proxy) Addrs() []string { return p.proxy.Addrs() }

// Close is [faultproxy.Proxy.Close].
func (p *Proxy) Close() { p.proxy.Close() }

// Cut is [faultproxy.Proxy.Cut] until heal is called or the test ends.
func (p *Proxy) Cut(tb TB) (heal func()) {
	tb.Helper()
	heal = p.proxy.Cut()
	tb.Cleanup(heal)
	return heal
}

// DropReply is [faultproxy.Proxy.DropReply].
func (p *Proxy) DropReply(tb TB, nth int) { tb.Helper(); p.proxy.DropReply(nth) }

// Delay is [faultproxy.Proxy.Delay] until deliver is called or the test ends.
func (p *Proxy) Delay(tb TB) (deliver func()) {
	tb.Helper()
	deliver = p.proxy.Delay()
	tb.Cleanup(deliver)
	return deliver
}

// Reset is [faultproxy.Proxy.Reset].
func (p *Proxy) Reset(tb TB) { tb.Helper(); p.proxy.Reset() }

// Latency is [faultproxy.Proxy.Latency] until remove is called or the test ends.
func (p *Proxy) Latency(tb TB, d time.Duration) (remove func()) {
	tb.Helper()
	end, err := p.proxy.Latency(d)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	remove = sync.OnceFunc(func() {
		if err := end(); err != nil {
			tb.Errorf("%v", err)
		}
	})
	tb.Cleanup(remove)
	return remove
}
