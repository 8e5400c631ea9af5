package conformance

import (
	"context"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/lag"
)

const (
	// probeInterval is the time between two requests of a probe.
	probeInterval = 100 * time.Millisecond
	// probeHedge is the time after which a probe without an answer uses its other connection.
	probeHedge = 20 * time.Millisecond
	// probeTTL is the term of the lock of a probe.
	probeTTL = 10 * time.Second
)

// probe measures how long the server takes to answer, for the observations that have joined it. It
// opens its connections when the first one joins. It has a separate Harness, separate connections
// and separate names. So it changes nothing that a case counts, and the faults in the network of a
// case do not affect it. A driver that answers a case slowly is not mistaken for a server that
// stood still.
type probe struct {
	*observation // the TB of its Harness; its failures are not reported
	mk           HarnessMaker
	lines        [2]*probeLine

	joined  chan struct{} // has a value after an observation has joined
	stopped chan struct{} // closed by stop
	cancel  context.CancelFunc
	ended   <-chan struct{}

	pulsesMu sync.Mutex
	pulses   map[*pulse]bool // of the observations that have joined
	asking   bool            // a request is under way
}

// startProbe starts a probe. The caller must call stop.
func startProbe(test TB, mk HarnessMaker, meter *lag.Meter) *probe {
	silent := &observation{test: struct{ TB }{test}, helpers: map[string]bool{}}
	silent.begin(gauges{meter: meter})
	p := &probe{
		observation: silent, mk: mk,
		joined: make(chan struct{}, 1), stopped: make(chan struct{}), pulses: map[*pulse]bool{},
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(test.Context()))
	p.cancel = cancel
	p.ended = async(func() { p.run(ctx) })
	return p
}

// stop ends the probe and waits for its end.
func (p *probe) stop() {
	close(p.stopped)
	select { // a request that is cancelled may leave its lock
	case <-p.ended:
	case <-time.After(silence):
	}
	p.cancel()
	<-p.ended
}

// join makes the probe measure for an observation, until leave is called. A request that is under
// way counts from now on. A nil probe measures nothing.
func (p *probe) join(o *pulse) {
	if p == nil {
		return
	}
	p.pulsesMu.Lock()
	p.pulses[o] = true
	if p.asking {
		o.asked()
	}
	p.pulsesMu.Unlock()
	select {
	case p.joined <- struct{}{}:
	default:
	}
}

// leave ends the measurements for an observation. A request without an answer counts until now.
func (p *probe) leave(o *pulse) {
	p.pulsesMu.Lock()
	delete(p.pulses, o)
	p.pulsesMu.Unlock()
	o.answered()
}

// note begins or ends a request for each observation that has joined.
func (p *probe) note(asking bool) {
	p.pulsesMu.Lock()
	defer p.pulsesMu.Unlock()
	p.asking = asking
	for o := range p.pulses {
		if asking {
			o.asked()
		} else {
			o.answered()
		}
	}
}

func (p *probe) isIdle() bool {
	p.pulsesMu.Lock()
	defer p.pulsesMu.Unlock()
	return len(p.pulses) == 0
}

// isWanted waits until an observation has joined. It returns false if the probe is stopped before.
func (p *probe) isWanted() bool {
	for p.isIdle() {
		select {
		case <-p.joined:
		case <-p.stopped:
			return false
		}
	}
	return true
}

// run sends requests while there is an observation to measure for, until stop.
func (p *probe) run(ctx context.Context) {
	defer p.clean()
	defer p.recover()
	if !p.isWanted() {
		return
	}
	h := p.mk(p)
	defer h.Close()
	for i := range p.lines {
		line := p.connect(ctx, h)
		defer line.close()
		p.lines[i] = line
	}
	for p.lines[1] != nil && p.isWanted() {
		p.ask(ctx)
		if !pause(probeInterval, p.stopped) {
			return
		}
	}
}

// ask measures how long the server takes for one request. If one connection has no answer but the
// other has, the server did not stand still. The slower request goes on.
func (p *probe) ask(ctx context.Context) {
	p.note(true)
	defer p.note(false)
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

// connect tries to open a connection until it succeeds or the probe is stopped. Then it returns
// nil.
func (p *probe) connect(ctx context.Context, h Harness) *probeLine {
	for {
		if d, err := h.Driver(ctx); err == nil {
			return newProbeLine(d, prefixOf(h))
		}
		if !pause(probeInterval, p.stopped) {
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
