package pgbackend

import (
	"context"
	"net"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"
)

// dialer makes connections and can end all of them. When a context ends, pgx leaves the connection
// to a goroutine, which sends a cancel request and may wait for the server for 15 s: on Close these
// connections end, too. It is safe for concurrent use.
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

// dial implements pgconn.DialFunc.
func (d *dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
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

// close ends all connections, and lets no other be made.
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
