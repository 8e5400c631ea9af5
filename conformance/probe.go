package conformance

import (
	"context"
	"sync"
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
	harness      Harness
	lines        [2]*probeLine
}

// probes are the probes that wait for their next observation, with open connections. To open a
// connection costs some servers more than all requests of a probe. Cases that stop the server or
// count what the process uses have no probes in common; nil is for them.
type probes struct {
	test TB // of their Harnesses
	mu   sync.Mutex
	idle []*probe
}

// take returns a probe that no observation uses, or nil.
func (ps *probes) take() *probe {
	if ps == nil {
		return nil
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	last := len(ps.idle) - 1
	if last < 0 {
		return nil
	}
	p := ps.idle[last]
	ps.idle = ps.idle[:last]
	return p
}

// keep keeps p for the next observation.
func (ps *probes) keep(p *probe) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.idle = append(ps.idle, p)
}

// close closes the probes, which no observation uses any more.
func (ps *probes) close() {
	for p := ps.take(); p != nil; p = ps.take() {
		p.close()
	}
}

// startProbe starts the probe of o, with connections of ps if there are any. stop ends the probe
// and waits for its end.
func (o *observation) startProbe(mk HarnessMaker, ps *probes) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(o.Context()))
	stopped := make(chan struct{})
	ended := async(func() { o.probe(ctx, stopped, mk, ps) })
	return func() {
		close(stopped)
		select { // a request that is cancelled can cost its connection
		case <-ended:
		case <-time.After(silence):
		}
		cancel()
		<-ended
	}
}

// probe waits for the first short term of o. Then it runs a probe until stopped is closed.
func (o *observation) probe(
	ctx context.Context, stopped <-chan struct{}, mk HarnessMaker, ps *probes,
) {
	select {
	case <-o.short:
	case <-stopped:
		return
	}
	p := ps.take()
	if p == nil {
		p = newProbe(o, ps)
	}
	p.pulse = &o.pulse
	if p.run(ctx, stopped, mk) && ps != nil {
		ps.keep(p)
		return
	}
	p.close()
}

// newProbe returns a probe without connections, for o or for ps.
func newProbe(o *observation, ps *probes) *probe {
	test := o.test
	if ps != nil {
		test = ps.test
	}
	silent := &observation{test: struct{ TB }{test}, helpers: map[string]bool{}}
	silent.begin(o.meter)
	return &probe{observation: silent}
}

// run probes the server until stopped is closed. It reports whether the connections can be used
// again.
func (p *probe) run(
	ctx context.Context, stopped <-chan struct{}, mk HarnessMaker,
) (reusable bool) {
	defer p.recover()
	if p.harness == nil {
		p.harness = mk(p)
		for i := range p.lines {
			p.lines[i] = p.connect(ctx, stopped)
		}
	}
	if p.lines[1] == nil {
		return false
	}
	for {
		p.ask(ctx)
		if !pause(probeInterval, stopped) {
			break
		}
	}
	for _, l := range p.lines {
		<-l.pending
	}
	return ctx.Err() == nil
}

// close closes the connections and the Harness.
func (p *probe) close() {
	defer p.clean()
	defer p.recover()
	if p.harness != nil {
		defer p.harness.Close()
	}
	for _, l := range p.lines {
		l.close()
	}
}

// ask measures how long the server takes for one request. If one connection has no answer but the
// other has, the server did not stand still. The slower request goes on.
func (p *probe) ask(ctx context.Context) {
	p.pulse.asked()
	defer p.pulse.answered()
	first := p.lines[0].send(ctx)
	select {
	case <-first:
		return
	case <-time.After(probeHedge):
	}
	select {
	case <-first:
	case <-p.lines[1].send(ctx):
	}
}

// connect tries to open a connection until it succeeds or stopped is closed. Then it returns nil.
func (p *probe) connect(ctx context.Context, stopped <-chan struct{}) *probeLine {
	for {
		if d, err := p.harness.Driver(ctx); err == nil {
			return newProbeLine(d, prefixOf(p.harness))
		}
		if !pause(probeInterval, stopped) {
			return nil
		}
	}
}

// pause waits for d. It returns false if stopped is closed before.
func pause(d time.Duration, stopped <-chan struct{}) bool {
	select {
	case <-time.After(d):
		return true
	case <-stopped:
		return false
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
