package redisbackend

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/tlsfile"
	"github.com/dlock-go/dlock/internal/abort"
)

// dial has the signature of net.Dialer.DialContext.
type dial = func(ctx context.Context, network, addr string) (net.Conn, error)

// dialer dials for go-redis and for connections to sentinels. A failure here occurs before a
// request was sent, so it is ErrUnavailable.
type dialer struct {
	ctx     context.Context // ends with the driver, and ends each dial
	dial    dial
	timeout time.Duration // of dialing and the TLS handshake together
	tls     *tls.Config   // without the host's name, which differs between nodes; nil without TLS
}

// connect returns a connection that limits the size of replies. It is a redis.Options.Dialer that
// never returns an error: see failedConn.
func (d dialer) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := d.handshake(ctx, network, addr)
	if err != nil {
		return failedConn{fmt.Errorf("%w: %w", backend.ErrUnavailable, err)}, nil
	}
	return newBoundedConn(conn), nil
}

// lifeKey is the key of a value in the context of a dial: another context, with which the
// connection ends. go-redis holds a lock while it prepares a connection for pub/sub. So its Close
// cannot close such a connection, and would wait for a silent server.
type lifeKey struct{}

// handshake dials, and with TLS makes the handshake. It returns after d.timeout at the latest, or
// when d.ctx ends: go-redis dials in a goroutine of its own, which its Close does not end. A
// connection with a life ends with it, also during the handshake.
func (d dialer) handshake(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	defer context.AfterFunc(d.ctx, cancel)()
	life, _ := ctx.Value(lifeKey{}).(context.Context)
	conn, err := d.dial(ctx, network, addr)
	if err == nil {
		abort.OnClose(conn) // no request is executed after Capabilities.Late
	}
	if err == nil && life != nil {
		context.AfterFunc(life, func() { _ = conn.Close() })
	}
	if err != nil || d.tls == nil {
		return conn, err
	}
	secure := tls.Client(conn, tlsfile.For(addr, d.tls))
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("TLS handshake with %s: %w", addr, err)
	}
	return secure, nil
}

// failedConn stands for a connection that could not be opened: its first use returns the reason.
// go-redis 9.23 writes each error of a Dialer to standard error, whatever the client's options.
// After some of them it also stops dialing for up to a second. The reason wraps ErrUnavailable, so
// that interpretError takes the request as not executed.
type failedConn struct{ err error }

func (c failedConn) Read([]byte) (int, error)       { return 0, c.err }
func (c failedConn) Write([]byte) (int, error)      { return 0, c.err }
func (failedConn) Close() error                     { return nil }
func (failedConn) LocalAddr() net.Addr              { return new(net.TCPAddr) }
func (failedConn) RemoteAddr() net.Addr             { return new(net.TCPAddr) }
func (failedConn) SetDeadline(time.Time) error      { return nil }
func (failedConn) SetReadDeadline(time.Time) error  { return nil }
func (failedConn) SetWriteDeadline(time.Time) error { return nil }

// dials announces the dials of a driver's clients to the requests that run in place: see inPlace.
// Its methods are safe for concurrent use and do not block.
type dials struct {
	channel atomic.Pointer[chan struct{}] // closed and replaced when a dial begins
}

func newDials() *dials {
	d := new(dials)
	d.channel.Store(new(make(chan struct{})))
	return d
}

// next returns a channel that is closed when the next dial begins.
func (d *dials) next() <-chan struct{} { return *d.channel.Load() }

// announced returns network with an announcement of each dial. Swap gives each channel to one dial
// only, so concurrent dials close no channel twice.
func (d *dials) announced(network dial) dial {
	return func(ctx context.Context, name, addr string) (net.Conn, error) {
		close(*d.channel.Swap(new(make(chan struct{}))))
		return network(ctx, name, addr)
	}
}
