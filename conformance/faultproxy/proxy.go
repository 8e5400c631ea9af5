// Package faultproxy is a TCP proxy that breaks the network in front of a server, for tests and for
// dlock verify.
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

// Proxy listens on loopback in front of the addresses of one server or of the members of one
// server. It breaks the network to all of them at once. Its methods are safe for concurrent use.
//
// Toxiproxy moves the bytes. Proxy adds the faults that toxiproxy lacks: toxiproxy can
// neither reset an open connection nor drop a single reply, and its black hole forwards the
// end of a connection.
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
		api: &toxiproxy.ApiServer{Metrics: toxiproxy.NewMetricsContainer(nil)},
		toxics: toxiproxy.NewToxicCollection(&toxiproxy.Proxy{
			Name: "dlock", Upstream: strings.Join(upstreams, ","),
		}),
		pairs: make(map[*pair]struct{}),
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

// Addrs returns the addresses of the proxy, in the order of the server's addresses that they
// replace. They stay the same whatever happens to the server.
func (p *Proxy) Addrs() []string {
	addrs := make([]string, len(p.listeners))
	for i, l := range p.listeners {
		addrs[i] = l.Addr().String()
	}
	return addrs
}

// Close closes the proxy and its connections, and waits for its goroutines. A second Close
// does nothing.
func (p *Proxy) Close() {
	p.close()
	for _, l := range p.listeners {
		_ = l.Close()
	}
	p.heal()
	p.wg.Wait()
}

// Cut turns the network into a black hole in both directions, until heal or Close is called. Bytes
// and the ends of connections are lost. New connections are accepted, but go nowhere. The proxy
// sends no reset and refuses no connection. heal closes all connections, because they may have lost
// bytes. A second Cut before heal changes nothing.
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

// DropReply drops the nth chunk that the server sends from now on, and closes its connection; 1 is
// the next chunk. It counts over all connections. The server has then executed the request, but the
// client gets no reply. Replies that arrive together are one chunk.
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
	const toxic = `{"type":"latency","name":%q,"stream":"downstream","attributes":{"latency":%d}}`
	_, err = p.toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(toxic, name, ms)))
	return sync.OnceValue(func() error {
		return p.toxics.RemoveToxic(context.Background(), name)
	}), err
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

// connect connects a client to the server. During a cut, it does not connect, and closes the client
// when the cut ends.
func (p *Proxy) connect(client *net.TCPConn, upstream string) {
	if healed := p.faults.healed(); healed != nil {
		<-healed // Close also ends the cut
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

// link starts the goroutines that move the bytes of a connection. They end with the connection.
func (p *Proxy) link(c *pair) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed.Err() != nil {
		c.close()
		return
	}
	p.pairs[c] = struct{}{}
	p.wg.Add(2)
	client := &end{conn: c.client, pair: c, proxy: p}
	server := &end{conn: c.server, pair: c, proxy: p}
	c.ended = make(chan struct{})
	p.toxics.StartLink(p.api, p.name("up"), client, server, stream.Upstream)
	p.toxics.StartLink(p.api, p.name("down"), server, client, stream.Downstream)
}

// each calls f for each connection. p.mu must be held.
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
	ended          chan struct{} // closed when the proxy has read everything from the server
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

// end is the interface of toxiproxy to one side of a pair. One link reads from it; the other link
// writes to it and closes it. A link stops at once when a write fails, and its toxics would then
// wait forever for a reader of their data. So a write never fails: it closes the pair and drops
// the bytes.
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

// Close is called once, when the link that writes to e has ended. While requests are kept back, the
// end of the client does not end the connection to the server.
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

// faults is the present state of the faults of the network.
type faults struct {
	mu    sync.Mutex
	until chan struct{} // closed by heal; nil if there is no cut
	drops []int         // for each DropReply, the number of replies up to the dropped one
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

// healed returns a channel that is closed at the end of the present cut, or nil if there is no cut.
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

// swallow counts a reply, and reports whether it must be dropped.
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

// gate is the toxic that makes cuts and drops replies. Every link has it from the start, because
// toxiproxy loses track of a link if a toxic is removed while bytes are in transit.
type gate struct {
	faults  *faults
	replies bool // the gate is in the direction from the server to the client
}

// Pipe is called by toxiproxy for each link. It returns when the link has ended, or when the next
// toxic changes.
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

// end forwards the end of a connection to the other side. During a cut, it waits for the end of
// the cut.
func (g *gate) end(stub *toxics.ToxicStub) {
	if healed := g.faults.healed(); healed != nil {
		select {
		case <-healed:
		case <-stub.Interrupt:
			return // toxiproxy calls Pipe again
		}
	}
	stub.Close()
}

func drain(chunks <-chan *stream.StreamChunk) {
	for range chunks { //nolint:revive // the previous link must be able to finish
	}
}
