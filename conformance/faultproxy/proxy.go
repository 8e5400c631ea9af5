// Package faultproxy is a TCP proxy that breaks the network in front of a server, for tests and for
// dlock verify. It does not use toxiproxy, whose package would bring an HTTP server and its metrics
// into each dlock binary.
package faultproxy

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"
)

// Proxy listens on loopback in front of the addresses of one server or of the members of one
// server. It breaks the network to all of them at once. Its methods are safe for concurrent use.
type Proxy struct {
	listeners []net.Listener
	faults    faults

	mu    sync.Mutex
	pairs map[*pair]struct{}

	closed context.Context
	close  context.CancelFunc
	wg     sync.WaitGroup // the accept loops and the connections
}

// New starts a proxy in front of each of the addresses. The caller closes it.
func New(upstreams ...string) (*Proxy, error) {
	p := &Proxy{pairs: make(map[*pair]struct{})}
	p.closed, p.close = context.WithCancel(context.Background())
	if err := p.start(upstreams); err != nil {
		p.Close()
		return nil, fmt.Errorf("fault proxy: %w", err)
	}
	return p, nil
}

func (p *Proxy) start(upstreams []string) error {
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

// Latency delays each reply by d until remove is called. Several latencies add up. Replies that are
// on their way when remove is called stay delayed, and later replies stay behind them.
func (p *Proxy) Latency(d time.Duration) (remove func() error, err error) {
	p.faults.addLatency(d)
	return sync.OnceValue(func() error {
		p.faults.addLatency(-d)
		return nil
	}), nil
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
	c := &pair{
		client: client, server: server.(*net.TCPConn), faults: &p.faults, done: make(chan struct{}),
	}
	if p.add(c) {
		c.run()
		p.remove(c)
	}
}

// add registers a connection. After Close, it closes the connection and returns false.
func (p *Proxy) add(c *pair) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed.Err() != nil {
		c.close()
		return false
	}
	p.pairs[c] = struct{}{}
	return true
}

func (p *Proxy) remove(c *pair) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pairs, c)
}

// each calls f for each connection. p.mu must be held.
func (p *Proxy) each(f func(*pair)) {
	for c := range p.pairs {
		f(c)
	}
}
