package conformance

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/backend"
)

const (
	// probeInterval is the time between two requests of a probe.
	probeInterval = 100 * time.Millisecond
	// probeHedge is how long a probe waits for an answer before it asks over its other connection.
	probeHedge = 20 * time.Millisecond
	// probeTTL is the term of the lock that a probe takes.
	probeTTL = 10 * time.Second
)

// probe measures how long the server takes to answer, from the first short term of an observation to
// its end. Its Harness, connections and names are its own. So it disturbs nothing that a case counts,
// the faults of the case's network do not concern it, and a driver that is slow to answer the case
// does not pass for a server that stood still.
type probe struct {
	*observation        // the TB of its Harness; nothing reports its failures
	pulse        *pulse // of the case's observation
}

// startProbe starts the probe of o. stop ends it and returns when it has ended.
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

// ask measures how long the server takes for one request. A connection that does not answer while the
// other one does is no evidence against the server.
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

// connect opens a connection, until one can be opened or ctx ends.
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

// probeLine is a connection of a probe, which acquires and releases a lock of its own in turn: the
// server has to write.
type probeLine struct {
	driver  backend.Driver
	request backend.Request
	turn    int
	pending <-chan struct{} // closed when the last request has been answered
}

func newProbeLine(d backend.Driver, prefix string) *probeLine {
	answered := make(chan struct{})
	close(answered)
	return &probeLine{driver: d, pending: answered, request: backend.Request{
		Key: prefix + "probe-" + newOwner()[:16], Owner: newOwner(), TTL: clamped(d.Capabilities(), probeTTL), Mode: backend.Exclusive,
	}}
}

// send sends the next request, unless the last one has not been answered yet. The channel is closed
// with the answer, whatever it is.
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

// close frees the lock and closes the connection.
func (l *probeLine) close() {
	if l == nil {
		return
	}
	<-l.pending
	ctx, cancel := context.WithTimeout(context.Background(), shutOut)
	defer cancel()
	_ = l.driver.Release(ctx, &backend.Grant{Request: l.request})
	_ = l.driver.Close()
}
