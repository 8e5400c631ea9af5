package pgbackend

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// cancelTimeout limits a cancel request. When pgx gives up a connection, a goroutine sends one on
// another connection, for up to 15 s. Meanwhile the first connection counts in its pool.
const cancelTimeout = time.Second

// dialer makes connections and can end all of them. So Close of a driver does not depend on a
// server that answers, or on the goroutines of pgx: each of them ends with its socket. It is safe
// for concurrent use.
type dialer struct {
	dialFunc pgconn.DialFunc
	limit    int64           // of a new connection, see trackedConn
	ctx      context.Context // ends with the dialer
	cancel   context.CancelFunc

	mu    sync.Mutex
	conns map[*trackedConn]struct{}
}

// newDialer returns a dialer over dial. limit is maxUnchecked, or 0 for connections that belong to
// the caller of New.
func newDialer(dial pgconn.DialFunc, limit int64) *dialer {
	d := &dialer{dialFunc: dial, limit: limit, conns: make(map[*trackedConn]struct{})}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

// dial implements pgconn.DialFunc. A connection for a cancel request, which pgx dials by the
// address of the connection to be cancelled, has cancelTimeout for all of its life.
func (d *dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	network, isForCancel := strings.CutPrefix(network, forCancel)
	if !isForCancel {
		return d.track(ctx, network, addr)
	}
	end := time.Now().Add(cancelTimeout)
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	conn, err := d.track(ctx, network, addr)
	if err == nil {
		_ = conn.SetDeadline(end)
	}
	return conn, err
}

// track makes a connection that ends with the dialer. If close is called while it dials, track
// returns an error and leaves no connection.
func (d *dialer) track(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.ctx, cancel)()
	conn, err := d.dialFunc(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	tracked := &trackedConn{Conn: conn, dialer: d}
	tracked.limit.Store(d.limit)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx.Err() != nil {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	d.conns[tracked] = struct{}{}
	return tracked, nil
}

// close ends all connections, and lets no other be made. It does not wait for the server, and may
// be called several times. Statements under way end with an error, and their outcomes are unknown.
func (d *dialer) close() {
	d.cancel()
	d.mu.Lock()
	defer d.mu.Unlock()
	for conn := range d.conns {
		_ = conn.Conn.Close()
	}
}

// What a server may send between two requests, in bytes: until the driver has checked the server,
// and from then on. maxMessage alone does not limit the memory of an answer with many messages.
const (
	maxUnchecked = 1 << 20
	maxAnswer    = maxMessage
)

// errFlood ends a connection whose server sends more than that.
var errFlood = errors.New("the server has sent more than an answer can have")

// trackedConn is a connection of a dialer until it is closed. It is safe for concurrent use.
type trackedConn struct {
	net.Conn
	dialer *dialer
	limit  atomic.Int64 // of what is read between two requests; 0: none
	read   atomic.Int64 // since the last request
}

// isFlooded reports whether the server has sent too much. No request changes that.
func (c *trackedConn) isFlooded() bool {
	limit := c.limit.Load()
	return limit > 0 && c.read.Load() > limit
}

// Read returns errFlood after the first bytes beyond the limit, and not together with them: the
// client library drops an error that comes with enough bytes.
func (c *trackedConn) Read(b []byte) (int, error) {
	if c.isFlooded() {
		return 0, errFlood
	}
	n, err := c.Conn.Read(b)
	c.read.Add(int64(n))
	return n, err
}

// Write begins to count again.
func (c *trackedConn) Write(b []byte) (int, error) {
	if c.isFlooded() {
		return 0, errFlood
	}
	c.read.Store(0)
	return c.Conn.Write(b)
}

// trust lets the server of a connection send long answers, because it was checked.
func trust(conn net.Conn) {
	if c, ok := under[*trackedConn](conn); ok && c.limit.Load() > 0 {
		c.limit.Store(maxAnswer)
	}
}

// consumed begins to count again after a notification, which nothing keeps. A connection that only
// listens sends no requests.
func consumed(conn net.Conn) {
	if c, ok := under[*trackedConn](conn); ok {
		c.read.Store(0)
	}
}

// under returns the connection of type T under conn, which may have TLS.
func under[T net.Conn](conn net.Conn) (found T, ok bool) {
	for {
		if found, ok = conn.(T); ok {
			return found, true
		}
		outer, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return found, false
		}
		conn = outer.NetConn()
	}
}

// Close closes the connection.
func (c *trackedConn) Close() error {
	c.dialer.mu.Lock()
	delete(c.dialer.conns, c)
	c.dialer.mu.Unlock()
	return c.Conn.Close()
}

// NetConn returns the socket, for package abort and for linkOf.
func (c *trackedConn) NetConn() net.Conn { return c.Conn }

// forCancel is in front of the network to which pgx connects for a cancel request.
const forCancel = "cancel:"

// RemoteAddr returns the address to which pgx connects for a cancel request.
func (c *trackedConn) RemoteAddr() net.Addr { return cancelAddr{c.Conn.RemoteAddr()} }

// cancelAddr is the address of a server for cancel requests.
type cancelAddr struct{ net.Addr }

// Network returns a network by which dial recognises cancel requests.
func (a cancelAddr) Network() string { return forCancel + a.Addr.Network() }
