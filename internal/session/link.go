package session

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// maxUnread limits what a server may send without being asked.
const maxUnread = 1 << 20

var errUnread = errors.New("the server sends more than was requested")

// Link is a network connection that notices its end without a reader. On Linux the kernel reports
// the end of a socket. For other connections and systems a goroutine reads ahead, and wakes the
// reader, which takes longer. A Link serves one reader at a time.
//
// Close does not discard what the kernel has not sent, so a Link has no method NetConn by which
// package abort would do so. The kernel sends it, and the end of the connection after it, also if
// the network is down for a while. So the server frees the locks when the network is back, and not
// only after its TTL.
type Link struct {
	net.Conn
	ended chan struct{} // closed when the other side sends nothing more
	watch *watch        // nil: a goroutine reads ahead, for which there are the fields below
	stir  chan struct{} // has a value after each change below

	mu     sync.Mutex
	unread []byte
	err    error // of the last read
	until  time.Time
}

// NewLink returns a Link over conn, which must not be used otherwise. TCP does not end it before it
// has been silent for ttl: neither by keepalives nor, on Linux, because a request is not
// acknowledged. Close ends its goroutine.
func NewLink(conn net.Conn, ttl time.Duration) *Link {
	if tcp := tcpOf(conn); tcp != nil {
		_ = tcp.SetKeepAliveConfig(keepAlive(ttl)) // not all systems have all of it
		_ = outlast(tcp, max(defaultSilence, ttl))
	}
	l := &Link{Conn: conn, ended: make(chan struct{}), stir: make(chan struct{}, 1)}
	var err error
	if l.watch, err = newWatch(conn); err != nil {
		go l.readAhead()
		return l
	}
	go func() {
		defer close(l.ended)
		l.watch.wait()
	}()
	return l
}

// tcpOf returns the TCP connection under all layers that have a method NetConn, or nil.
func tcpOf(conn net.Conn) *net.TCPConn {
	for {
		switch layer := conn.(type) {
		case *net.TCPConn:
			return layer
		case interface{ NetConn() net.Conn }:
			conn = layer.NetConn()
		default:
			return nil
		}
	}
}

const (
	// defaultInterval and defaultCount are Go's own settings of keepalives. They end a connection
	// after defaultSilence.
	defaultInterval, defaultCount = 15 * time.Second, 9
	defaultSilence                = (1 + defaultCount) * defaultInterval
	// maxCount is less than Linux accepts, which is 127.
	maxCount = 100
)

// keepAlive returns settings with which a connection outlasts a silence of ttl, and not much more:
// a client that is cut off for longer has no locks. The first probe still comes early, because it
// keeps a firewall from forgetting the connection.
func keepAlive(ttl time.Duration) net.KeepAliveConfig {
	interval := max(defaultInterval, (ttl / maxCount).Round(time.Second))
	return net.KeepAliveConfig{
		Enable: true, Idle: defaultInterval, Interval: interval,
		Count: max(defaultCount, int(ttl/interval)+1),
	}
}

// Ended returns a channel that is closed when the other side has closed the connection, when it has
// failed, or after Close.
func (l *Link) Ended() <-chan struct{} { return l.ended }

// Close implements net.Conn. It blocks until the goroutine has ended, which takes no longer than
// closing the socket.
func (l *Link) Close() error {
	err := l.Conn.Close()
	if l.watch != nil {
		l.watch.close()
	}
	<-l.ended
	return err
}

// readAhead reads until the connection ends.
func (l *Link) readAhead() {
	defer close(l.ended)
	buffer := make([]byte, 4096)
	for {
		n, err := l.Conn.Read(buffer)
		if !l.append(buffer[:n], err) {
			return
		}
	}
}

// append adds what was read, and reports whether to read on. After maxUnread bytes that no Read has
// taken it ends the reading with errUnread, which Read returns when it has taken all of them.
func (l *Link) append(part []byte, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.poke()
	if l.unread = append(l.unread, part...); err == nil && len(l.unread) > maxUnread {
		err = errUnread
	}
	l.err = err
	return err == nil
}

// poke wakes the reader.
func (l *Link) poke() {
	select {
	case l.stir <- struct{}{}:
	default:
	}
}

// Read implements net.Conn.
func (l *Link) Read(p []byte) (int, error) {
	if l.watch != nil {
		return l.Conn.Read(p)
	}
	for {
		n, until, err := l.take(p)
		if n > 0 || err != nil {
			return n, err
		}
		l.await(until)
	}
}

// take moves what was read to p. If there is nothing, it returns the deadline of the reader.
func (l *Link) take(p []byte) (n int, until time.Time, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !l.until.IsZero() && !time.Now().Before(l.until):
		return 0, l.until, os.ErrDeadlineExceeded
	case len(l.unread) == 0:
		return 0, l.until, l.err
	}
	n = copy(p, l.unread)
	if l.unread = l.unread[n:]; len(l.unread) == 0 {
		l.unread = nil
	}
	return n, l.until, nil
}

// await waits for a change, or for the deadline. A zero deadline is none: then only a change ends
// it, and the end of the connection is one.
func (l *Link) await(until time.Time) {
	if until.IsZero() {
		<-l.stir
		return
	}
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-l.stir:
	case <-timer.C:
	}
}

// SetReadDeadline implements net.Conn.
func (l *Link) SetReadDeadline(t time.Time) error {
	if l.watch != nil {
		return l.Conn.SetReadDeadline(t)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until = t
	l.poke()
	return nil
}

// SetDeadline implements net.Conn.
func (l *Link) SetDeadline(t time.Time) error {
	return errors.Join(l.SetReadDeadline(t), l.SetWriteDeadline(t))
}
