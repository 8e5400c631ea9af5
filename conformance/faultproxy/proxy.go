// Package faultproxy is a TCP proxy that breaks the network in front of a server, for tests and for dlock verify.
package faultproxy

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
)

// Proxy stands on loopback in front of the addresses of one server, or of the members of one, and breaks the network to all
// of them at once. Toxiproxy moves the bytes. What it lacks is here: it can neither reset a connection that is open nor swallow
// one reply, and its own black hole passes on the end of a connection. Its methods may be called by many goroutines.
type Proxy struct {
	listeners []net.Listener
	api       *toxiproxy.ApiServer
	toxics    *toxiproxy.ToxicCollection
	faults    faults
	names     atomic.Int64 // numbers links and toxics

	mu    sync.Mutex
	pairs map[*pair]struct{}

	closed context.Context
	close  context.CancelFunc
	wg     sync.WaitGroup // the accept loops, connections, and two link ends per connection
}

// New starts a proxy in front of each of the addresses. The caller closes it.
func New(upstreams ...string) (*Proxy, error) {
	p := &Proxy{
		api:    &toxiproxy.ApiServer{Metrics: toxiproxy.NewMetricsContainer(nil)},
		toxics: toxiproxy.NewToxicCollection(&toxiproxy.Proxy{Name: "dlock", Upstream: strings.Join(upstreams, ",")}),
		pairs:  make(map[*pair]struct{}),
	}
	p.closed, p.close = context.WithCancel(context.Background())
	if err := p.start(upstreams); err != nil {
		p.Close()
		return nil, fmt.Errorf("fault proxy: %w", err)
	}
	return p, nil
}

func (p *Proxy) start(upstreams []string) error {
	for _, direction := range []stream.Direction{stream.Upstream, stream.Downstream} {
		if err := p.addGate(direction); err != nil {
			return err
		}
	}
	for _, upstream := range upstreams {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		p.listeners = append(p.listeners, l)
		p.wg.Go(func() { p.accept(l, upstream) })
	}
	return nil
}

// Addrs returns the addresses to connect to instead of the server's, in their order. They stay the same whatever happens to
// the server.
func (p *Proxy) Addrs() []string {
	addrs := make([]string, len(p.listeners))
	for i, l := range p.listeners {
		addrs[i] = l.Addr().String()
	}
	return addrs
}

// Close closes the proxy and its connections, and waits for its goroutines. A second Close does nothing.
func (p *Proxy) Close() {
	p.close()
	for _, l := range p.listeners {
		_ = l.Close()
	}
	p.heal()
	p.wg.Wait()
}

// Cut makes a black hole of the network, both ways, until heal is called, at the latest by Close: bytes vanish, the end of a
// connection too, and new connections are accepted but go nowhere. No reset, no refusal. Heal closes the connections that
// have lost bytes. A second Cut before heal changes nothing.
func (p *Proxy) Cut() (heal func()) {
	p.faults.cut()
	return sync.OnceFunc(p.heal)
}

func (p *Proxy) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.faults.healed() != nil || p.closed.Err() != nil {
		p.each((*pair).close)
	}
	p.faults.heal()
}

// DropReply swallows the nth chunk that the server sends from now on, 1 being the next, counted over all connections, and
// closes its connection: the server has executed the request, the client never learns. Replies that arrive together are one
// chunk.
func (p *Proxy) DropReply(nth int) { p.faults.drop(max(nth, 1)) }

// Reset closes all connections, both sides, with a RST.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.each((*pair).reset)
}

// Latency delays each reply by d, rounded up to milliseconds, until remove is called.
func (p *Proxy) Latency(d time.Duration) (remove func() error, err error) {
	name := p.name("latency")
	ms := (d + time.Millisecond - 1) / time.Millisecond
	_, err = p.toxics.AddToxicJson(strings.NewReader(
		fmt.Sprintf(`{"type":"latency","name":%q,"stream":"downstream","attributes":{"latency":%d}}`, name, ms)))
	return sync.OnceValue(func() error { return p.toxics.RemoveToxic(context.Background(), name) }), err
}

func (p *Proxy) name(of string) string { return fmt.Sprint(of, p.names.Add(1)) }

func (p *Proxy) addGate(d stream.Direction) error {
	w, err := p.toxics.AddToxicJson(strings.NewReader(
		fmt.Sprintf(`{"type":%q,"name":"gate-%s","stream":%q}`, gateType, d, d)))
	if err == nil {
		*w.Toxic.(*gate) = gate{faults: &p.faults, replies: d == stream.Downstream}
	}
	return err
}

func (p *Proxy) accept(l net.Listener, upstream string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return // closed
		}
		p.wg.Go(func() { p.connect(c.(*net.TCPConn), upstream) })
	}
}

// connect joins a client with the server. During a cut the client hears nothing until it is over.
func (p *Proxy) connect(client *net.TCPConn, upstream string) {
	if healed := p.faults.healed(); healed != nil {
		<-healed // by Close too
		_ = client.Close()
		return
	}
	var d net.Dialer
	server, err := d.DialContext(p.closed, "tcp", upstream)
	if err != nil {
		_ = client.Close()
		return
	}
	p.link(&pair{client: client, server: server.(*net.TCPConn)})
}

// link starts the goroutines that move a connection's bytes. They end with the connection.
func (p *Proxy) link(c *pair) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed.Err() != nil {
		c.close()
		return
	}
	p.pairs[c] = struct{}{}
	p.wg.Add(2)
	client, server := &end{conn: c.client, pair: c, proxy: p}, &end{conn: c.server, pair: c, proxy: p}
	c.ended = make(chan struct{})
	p.toxics.StartLink(p.api, p.name("up"), client, server, stream.Upstream)
	p.toxics.StartLink(p.api, p.name("down"), server, client, stream.Downstream)
}

// each calls f for each connection. It is called with mu held.
func (p *Proxy) each(f func(*pair)) {
	for c := range p.pairs {
		f(c)
	}
}

func (p *Proxy) forget(c *pair) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pairs, c)
}

// pair is one connection through the proxy.
type pair struct {
	client, server *net.TCPConn
	ended          chan struct{} // closed when the server's end has been read to its end
	delay          delay
}

func (c *pair) close() {
	_ = c.client.Close()
	_ = c.server.Close()
}

func (c *pair) reset() {
	_ = c.client.SetLinger(0)
	_ = c.server.SetLinger(0)
	c.close()
}

// end is one side of a pair as toxiproxy sees it: read by one link, written and closed by the other. A link whose write
// fails stops at once, and its toxics would wait for ever for somebody to take what they hold. So a write never fails: the
// pair is closed, and the rest is swallowed.
type end struct {
	conn  *net.TCPConn
	pair  *pair
	proxy *Proxy
}

func (e *end) Read(b []byte) (int, error) { return e.conn.Read(b) }

func (e *end) Write(b []byte) (int, error) {
	if e.conn == e.pair.server && e.pair.delay.keep(b) {
		return len(b), nil
	}
	if _, err := e.conn.Write(b); err != nil && !e.pair.delay.on() {
		e.pair.close()
	}
	if e.conn == e.pair.client {
		e.pair.delay.answer()
	}
	return len(b), nil
}

// Close is called once, when the link that writes to e has ended. While requests are kept back, the end of the client does
// not end the connection to the server.
func (e *end) Close() error {
	defer e.proxy.wg.Done()
	if e.conn == e.pair.client {
		close(e.pair.ended)
	} else if e.pair.delay.leave() {
		return nil
	}
	e.pair.close()
	e.proxy.forget(e.pair)
	return nil
}

// faults is what is wrong with the network now.
type faults struct {
	mu    sync.Mutex
	until chan struct{} // closed by heal; nil: no cut
	drops []int         // replies still to come, including the one to drop, per DropReply
}

func (f *faults) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.until == nil {
		f.until = make(chan struct{})
	}
}

func (f *faults) heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.until != nil {
		close(f.until)
		f.until = nil
	}
}

// healed returns what is closed at the end of the present cut, or nil.
func (f *faults) healed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.until
}

func (f *faults) drop(nth int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drops = append(f.drops, nth)
}

// swallow counts a reply, and reports whether it is one to drop.
func (f *faults) swallow() (drop bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	left := f.drops[:0]
	for _, n := range f.drops {
		if n == 1 {
			drop = true
		} else {
			left = append(left, n-1)
		}
	}
	f.drops = left
	return drop
}

const gateType = "dlock-gate"

func init() { toxics.Register(gateType, new(gate)) }

// gate is the toxic that knows cuts and dropped replies. It stands in every link from the beginning: toxiproxy loses track
// of a link whose toxic is removed while bytes are under way.
type gate struct {
	faults  *faults
	replies bool // this is the way from the server to the client
}

// Pipe is called by toxiproxy for each link. It returns when the link has ended, or when the next toxic changes.
func (g *gate) Pipe(stub *toxics.ToxicStub) {
	for {
		select {
		case <-stub.Interrupt:
			return
		case chunk := <-stub.Input:
			if chunk == nil {
				g.end(stub)
				return
			}
			if g.faults.healed() != nil {
				continue
			}
			if g.replies && g.faults.swallow() {
				stub.Close()
				drain(stub.Input)
				return
			}
			stub.Output <- chunk
		}
	}
}

// end passes on that one side has closed the connection, but not through a cut.
func (g *gate) end(stub *toxics.ToxicStub) {
	if healed := g.faults.healed(); healed != nil {
		select {
		case <-healed:
		case <-stub.Interrupt:
			return // and called again
		}
	}
	stub.Close()
}

func drain(chunks <-chan *stream.StreamChunk) {
	for range chunks { //nolint:revive // the link before must be able to run dry
	}
}
