package pgbackend

import (
	"context"
	"net"
	"strings"
	"sync"
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
	ctx      context.Context // ends with the dialer
	cancel   context.CancelFunc

	mu    sync.Mutex
	conns map[*trackedConn]struct{}
}

func newDialer(dial pgconn.DialFunc) *dialer {
	d := &dialer{dialFunc: dial, conns: make(map[*trackedConn]struct{})}
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

// trackedConn is a connection of a dialer until it is closed.
type trackedConn struct {
	net.Conn
	dialer *dialer
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
