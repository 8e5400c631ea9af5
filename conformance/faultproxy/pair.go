package faultproxy

import (
	"bytes"
	"net"
	"sync"
	"time"
)

// Each direction of a connection has at most maxChunks chunks of chunkSize bytes on their way. Then
// the proxy stops reading, until the other side reads. A slow reader thus slows down the writer, as
// without a proxy.
const (
	maxChunks = 256
	chunkSize = 32 << 10
)

// chunk is what one read returned.
type chunk struct {
	data []byte
	due  time.Time
}

// pair is one connection through the proxy. In each direction, one goroutine reads chunks into a
// queue, and another one writes them when they are due. The end of a direction closes both sides,
// after the chunks of that direction.
type pair struct {
	client, server *net.TCPConn
	faults         *faults
	delay          delay
	once           sync.Once
	done           chan struct{} // closed by close, after both sides: no delayed chunk passes
}

// run moves bytes until the connection ends.
func (c *pair) run() {
	requests, replies := make(chan chunk, maxChunks), make(chan chunk, maxChunks)
	var wg sync.WaitGroup
	wg.Go(func() { c.read(c.client, requests) })
	wg.Go(func() { c.read(c.server, replies) })
	wg.Go(func() {
		c.write(requests, c.sendRequest)
		if !c.delay.leave() {
			c.close()
		}
	})
	wg.Go(func() {
		c.write(replies, c.sendReply)
		c.close()
	})
	wg.Wait()
}

// read reads chunks from one side until it ends, or until a reply must be dropped.
func (c *pair) read(from *net.TCPConn, queue chan<- chunk) {
	defer close(queue)
	buf := make([]byte, chunkSize)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		latency, drop := c.faults.admit(from == c.server)
		if drop {
			return
		}
		select {
		case queue <- chunk{bytes.Clone(buf[:n]), time.Now().Add(latency)}:
		case <-c.done:
			return
		}
	}
}

// write sends each chunk of the queue when it is due, unless a cut swallows it. It returns when the
// direction has ended. The end does not pass a cut.
func (c *pair) write(queue <-chan chunk, send func([]byte) error) {
	for next := range queue {
		select {
		case <-time.After(time.Until(next.due)):
		case <-c.done:
		}
		if c.faults.healed() != nil {
			continue
		}
		if send(next.data) != nil {
			break
		}
	}
	if healed := c.faults.healed(); healed != nil {
		select {
		case <-healed:
		case <-c.done:
		}
	}
}

// sendRequest writes to the server, unless Delay keeps the bytes back.
func (c *pair) sendRequest(b []byte) error {
	if c.delay.keep(b) {
		return nil
	}
	_, err := c.server.Write(b)
	return err
}

// sendReply writes to the client. While requests are kept back, the client may have left.
func (c *pair) sendReply(b []byte) error {
	_, err := c.client.Write(b)
	c.delay.answer()
	if c.delay.on() {
		return nil
	}
	return err
}

func (c *pair) close() {
	c.once.Do(func() {
		_ = c.client.Close()
		_ = c.server.Close()
		close(c.done)
	})
}

func (c *pair) reset() {
	_ = c.client.SetLinger(0)
	_ = c.server.SetLinger(0)
	c.close()
}
