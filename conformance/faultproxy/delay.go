package faultproxy

import (
	"net"
	"sync"
	"time"
)

// deliveryTimeout limits how long deliver waits for the server to read what was kept back.
const deliveryTimeout = 5 * time.Second

// Delay keeps back everything that the clients send on the connections that are open now. The server's end of such a
// connection stays open when the client closes its own. Later connections are not affected. deliver sends what was kept
// back, also for clients that have closed their connection, and returns when the server has answered each connection or
// closed it, after 5 s at the latest. The server reads the end of a connection that its client has closed, after the rest.
// A second call of deliver does nothing. Close and Reset end delayed connections and drop what was kept back.
func (p *Proxy) Delay() (deliver func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var delayed []*pair
	p.each(func(c *pair) {
		if c.delay.begin() {
			delayed = append(delayed, c)
		}
	})
	return sync.OnceFunc(func() {
		timeout := time.NewTimer(deliveryTimeout)
		defer timeout.Stop()
		for _, c := range delayed {
			c.deliver()
		}
		for _, c := range delayed {
			c.awaitRead(timeout.C)
		}
	})
}

// deliver sends what was kept back.
func (c *pair) deliver() {
	if left := c.delay.deliver(c.server); left {
		_ = c.server.CloseWrite()
	}
}

// awaitRead waits until the server has read what deliver sent.
func (c *pair) awaitRead(timeout <-chan time.Time) {
	answered, left := c.delay.pending()
	if left {
		answered = c.ended
	}
	if answered != nil {
		select {
		case <-answered:
		case <-c.ended:
		case <-timeout:
		}
	}
	if left {
		c.close()
	}
}

// delayState is what becomes of the requests of a connection.
type delayState int

const (
	passing delayState = iota // at once
	keeping                   // until deliver
)

// delay is what is kept back of one connection. Safe for concurrent use.
type delay struct {
	mu       sync.Mutex
	state    delayState
	kept     []byte
	left     bool          // the client has closed its end meanwhile
	answered chan struct{} // closed by the first answer after deliver; nil: none is awaited
}

// begin starts to keep requests back. It reports false if they are kept back already.
func (d *delay) begin() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state == keeping {
		return false
	}
	d.state = keeping
	return true
}

// on reports whether requests are kept back.
func (d *delay) on() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state == keeping || d.left
}

// keep keeps b, and reports whether it did.
func (d *delay) keep(b []byte) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state == keeping {
		d.kept = append(d.kept, b...)
	}
	return d.state == keeping
}

// leave notes that the client has closed its end. It reports whether the server's end must stay open.
func (d *delay) leave() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left = d.state == keeping
	return d.left
}

// deliver writes what was kept to server and lets later requests pass. It reports whether the client has left.
func (d *delay) deliver(server net.Conn) (left bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.kept) > 0 {
		d.answered = make(chan struct{})
		_, _ = server.Write(d.kept) // the server may have closed the connection
	}
	d.state, d.kept = passing, nil
	return d.left
}

// answer notes that the server has sent something.
func (d *delay) answer() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.answered != nil && d.state == passing {
		close(d.answered)
		d.answered = nil
	}
}

// pending returns what is closed by the answer to what was delivered, nil if none is due.
func (d *delay) pending() (answered <-chan struct{}, left bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.answered, d.left
}
