package conformance

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/backend"
)

const (
	// probeInterval is the time between two requests of a probe.
	probeInterval = 100 * time.Millisecond
	// probeHedge is the time after which a probe without an answer uses its other connection.
	probeHedge = 20 * time.Millisecond
	// probeTTL is the term of the lock of a probe.
	probeTTL = 10 * time.Second
)

// probe measures how long the server takes to answer, from the first short term of an observation
// to the end of the observation. It has a separate Harness, separate connections and separate
// names. So it changes nothing that a case counts, and the faults in the case's network do not
// affect it. A driver that answers the case slowly is not mistaken for a server that stood still.
type probe struct {
	*observation        // the TB of its Harness; its failures are not reported
	pulse        *pulse // the pulse of the case's observation
}

// startProbe starts the probe of o. stop ends the probe and waits for its end.
func (o *observation) startProbe(mk HarnessMaker) (stop func()) {
	silent := &observation{test: struct{ TB }{o.test}, helpers: map[string]bool{}}
	silent.begin(o.meter)
	p := &probe{silent, &o.pulse}
	ctx, cancel := context.WithCancel(context.WithoutCancel(o.Context()))
	ended := async(func() { p.run(ctx, mk) })
	return func() {
		cancel()
		<-ended
	}
}

func (p *probe) run(ctx context.Context, mk HarnessMaker) {
	select {
	case <-p.pulse.short:
	case <-ctx.Done():
		return
	}
	defer p.clean()
	defer p.recover()
	h := mk(p)
	defer h.Close()
	a := p.connect(ctx, h)
	defer a.close()
	b := p.connect(ctx, h)
	defer b.close()
	for ctx.Err() == nil {
		p.ask(ctx, a, b)
		pause(ctx, probeInterval)
	}
}

// ask measures how long the server takes for one request. If one connection has no answer but the
// other has, the server did not stand still.
func (p *probe) ask(ctx context.Context, a, b *probeLine) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p.pulse.asked()
	defer p.pulse.answered()
	first := a.send(ctx)
	select {
	case <-first:
		return
	case <-time.After(probeHedge):
	}
	select {
	case <-first:
	case <-b.send(ctx):
	}
}

// connect tries to open a connection until it succeeds or ctx ends. It returns nil if ctx ends.
func (p *probe) connect(ctx context.Context, h Harness) *probeLine {
	for ctx.Err() == nil {
		if d, err := h.Driver(ctx); err == nil {
			return newProbeLine(d, prefixOf(h))
		}
		pause(ctx, probeInterval)
	}
	return nil
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// probeLine is a connection of a probe. It acquires and releases a separate lock alternately, so
// that the server must write.
type probeLine struct {
	driver  backend.Driver
	request backend.Request
	turn    int
	pending <-chan struct{} // closed when the last request is answered
}

func newProbeLine(d backend.Driver, prefix string) *probeLine {
	answered := make(chan struct{})
	close(answered)
	return &probeLine{driver: d, pending: answered, request: backend.Request{
		Key: prefix + "probe-" + newOwner()[:16], Owner: newOwner(),
		TTL: clamped(d.Capabilities(), probeTTL), Mode: backend.Exclusive,
	}}
}

// send sends the next request, unless the last request is still unanswered. The channel is closed
// with any answer to the request.
func (l *probeLine) send(ctx context.Context) (answered <-chan struct{}) {
	select {
	case <-l.pending:
		l.turn++
		odd := l.turn%2 == 1
		l.pending = async(func() {
			if odd {
				_, _ = l.driver.Acquire(ctx, new(l.request))
				return
			}
			_ = l.driver.Release(ctx, &backend.Grant{Request: l.request})
		})
	default:
	}
	return l.pending
}

// close frees the lock and closes the connection. It does nothing if l is nil.
func (l *probeLine) close() {
	if l == nil {
		return
	}
	<-l.pending
	ctx, cancel := context.WithTimeout(context.Background(), silence)
	defer cancel()
	_ = l.driver.Release(ctx, &backend.Grant{Request: l.request})
	_ = l.driver.Close()
}
