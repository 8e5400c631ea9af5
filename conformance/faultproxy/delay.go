package faultproxy

import (
	"context"
	"net"
	"sync"
	"time"
)

// deliveryTimeout is the time limit for the server to read the delivered bytes.
const deliveryTimeout = 5 * time.Second

// Delay keeps back everything that the clients send on the connections that are open now. The
// server's end of such a connection stays open when the client closes its own end. Later
// connections are not affected.
//
// deliver sends the bytes that were kept back, also for clients that have closed their connection.
// If a client has closed its connection, the server then reads the end of the connection, after
// these bytes. deliver blocks for at most 5 s, until the server has answered or closed each
// connection. A second call of deliver does nothing. Close and Reset end delayed connections and
// drop the bytes that were kept back.
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
		ctx, cancel := context.WithTimeout(context.Background(), deliveryTimeout)
		defer cancel()
		for _, c := range delayed {
			c.deliver(ctx)
		}
		for _, c := range delayed {
			c.awaitRead(ctx)
		}
	})
}

// deliver sends the bytes that were kept back. If the server does not read them before ctx ends,
// deliver closes the connection.
func (c *pair) deliver(ctx context.Context) {
	end, _ := ctx.Deadline()
	_ = c.server.SetWriteDeadline(end)
	left, err := c.delay.deliver(c.server)
	_ = c.server.SetWriteDeadline(time.Time{})
	switch {
	case err != nil:
		c.close()
	case left:
		_ = c.server.CloseWrite()
	}
}

// awaitRead waits until the server has read the bytes that deliver sent, or until ctx ends.
func (c *pair) awaitRead(ctx context.Context) {
	answered, left := c.delay.pending()
	if answered == nil && !left {
		return
	}
	select {
	case <-answered:
	case <-c.done:
	case <-ctx.Done():
	}
	if left {
		c.close()
	}
}

// delay keeps back the requests of one connection. It is safe for concurrent use.
type delay struct {
	mu       sync.Mutex
	keeping  bool // requests are kept back until deliver
	kept     []byte
	left     bool          // the client closed its end while requests were kept back
	answered chan struct{} // closed by the first answer after deliver; nil if no answer is due
}

// begin starts to keep requests back. It returns false if they are already kept back.
func (d *delay) begin() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	begun := !d.keeping
	d.keeping = true
	return begun
}

// on reports whether requests are kept back, or whether the client left while they were.
func (d *delay) on() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.keeping || d.left
}

// keep appends b to the bytes that are kept back. It returns false if requests pass at present.
func (d *delay) keep(b []byte) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.keeping {
		d.kept = append(d.kept, b...)
	}
	return d.keeping
}

// leave records that the client has closed its end. It reports whether the server's end must
// stay open.
func (d *delay) leave() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left = d.keeping
	return d.left
}

// deliver writes the kept bytes to server and lets later requests pass. It reports whether the
// client has left.
func (d *delay) deliver(server net.Conn) (left bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.kept) > 0 {
		d.answered = make(chan struct{})
		_, err = server.Write(d.kept)
	}
	d.keeping, d.kept = false, nil
	return d.left, err
}

// answer records that the server has sent bytes.
func (d *delay) answer() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.answered != nil && !d.keeping {
		close(d.answered)
		d.answered = nil
	}
}

// pending returns a channel that is closed by the answer to the delivered bytes, or nil if no
// answer is due. It also reports whether the client has left. The server then closes the
// connection, and no answer is due.
func (d *delay) pending() (answered <-chan struct{}, left bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.left {
		return nil, true
	}
	return d.answered, false
}
