package memcachedbackend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/abort"
)

// conn is a gomemcache client with at most one connection. One call uses it at a time.
//
// A CAS id is therefore used on the connection that it was read from. A restarted server counts its
// ids from one again, but it never receives an old id: the restart has closed the connection.
// Although gomemcache supports no contexts, a request ends with its call, because the deadline of
// the connection is the deadline of the call.
type conn struct {
	pool   *pool
	client *memcache.Client

	mu       sync.Mutex
	call     int // the number of the present call
	ctx      context.Context
	deadline time.Time // of the present call; zero: none
	begun    time.Time // the present request
	open     net.Conn  // nil: the next request dials
	socket   net.Conn  // under the TLS of open
}

// newConn makes a conn that dials at its first request.
func newConn(p *pool) *conn {
	c := &conn{pool: p, client: memcache.NewFromSelector(p.address)}
	c.client.MaxIdleConns = 1
	c.client.Timeout = p.opts.Timeout
	c.client.DialContext = c.dial
	return c
}

// past is a deadline that ends a request at once.
var past = time.Unix(1, 0)

// minSilence is the minimum time without an answer after which a connection is taken for dead. The
// core gives every renewal more time, because its limit is a third of minTTL or longer.
const minSilence = 250 * time.Millisecond

// begin prepares c for a call with ctx, and returns the number of the call for interrupt. It closes
// a connection that has died while it was idle: once a request is written to a dead connection, its
// outcome is unknown. isOpen means that the call need not dial.
func (c *conn) begin(ctx context.Context) (call int, isOpen bool) {
	call, isOpen = c.prepare(ctx)
	if !isOpen || c.isDead() {
		_ = c.client.Close()
		return call, false
	}
	return call, true
}

// prepare makes the deadline of ctx the deadline of c. It reports whether c has a connection that
// accepts the deadline: it was not closed.
func (c *conn) prepare(ctx context.Context) (call int, isOpen bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.call++
	c.ctx = ctx
	c.deadline, _ = ctx.Deadline()
	// With the deadline of the last call, isDead would read nothing.
	return c.call, c.open != nil && c.setDeadline() == nil
}

// end forgets the context of a call: an idle connection must not keep it in memory. A late
// interrupt only sets a deadline, which prepare replaces.
func (c *conn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ctx = nil
}

// isDead reports whether the peer has closed the idle connection, or has sent bytes without a
// request. With TLS, such bytes announce the end of the connection: session tickets precede the
// first answer.
func (c *conn) isDead() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		return false
	}
	closed, readable := peek(c.socket)
	return closed || readable
}

// interrupt ends the request of a call, unless the call has ended already.
func (c *conn) interrupt(call int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.call != call {
		return
	}
	c.deadline = past
	if c.open != nil {
		_ = c.open.SetDeadline(past) // fails if the connection is closed
	}
}

// isGivenUp reports whether err only means that the call has given up its request, before the
// silence of the server meant anything.
func (c *conn) isGivenUp(err error) bool {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Is(c.ctx.Err(), context.Canceled) ||
		time.Since(c.begun) < min(c.pool.opts.Timeout, minSilence)
}

// setDeadline sets the deadline of the next request: Options.Timeout from now, or the deadline of
// the call if that is earlier. c.mu must be held, and c.open must not be nil.
func (c *conn) setDeadline() error {
	c.begun = time.Now()
	deadline := c.begun.Add(c.pool.opts.Timeout)
	if !c.deadline.IsZero() && c.deadline.Before(deadline) {
		deadline = c.deadline
	}
	return c.open.SetDeadline(deadline)
}

// dial connects for gomemcache. It ends with the call, not with gomemcache's own context. An error
// is ErrUnavailable, because no request was sent. A call in place needs the timer here, because a
// connection attempt ends only by Done: see connect.
func (c *conn) dial(_ context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(c.ctx, c.pool.opts.Timeout)
	defer cancel()
	socket, open, err := connect(ctx, network, addr, c.pool.opts)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.socket, c.open = socket, open
	return callConn{open, c, newAnswerReader(open)}, nil
}

// callConn is the connection that gomemcache uses. It replaces the deadlines of gomemcache by the
// deadline of the call, and limits how much it reads.
type callConn struct {
	net.Conn
	conn    *conn
	answers *answerReader
}

// Write sends a request, or a part of it.
func (c callConn) Write(b []byte) (int, error) {
	c.answers.reset()
	return c.Conn.Write(b)
}

// Read reads a part of an answer. If the connection has died, the idle connections have probably
// died with it, for example because a firewall has forgotten them. A renewal has no time to try one
// after the other, so Read closes all of them.
func (c callConn) Read(b []byte) (int, error) {
	n, err := c.answers.Read(b)
	if err != nil && !c.conn.isGivenUp(err) {
		_ = c.conn.pool.closeIdle()
	}
	return n, err
}

// SetDeadline sets the deadline of the call and ignores its argument. gomemcache calls it before
// each request.
func (c callConn) SetDeadline(time.Time) error {
	c.conn.mu.Lock()
	defer c.conn.mu.Unlock()
	if c.conn.open == nil {
		return net.ErrClosed
	}
	return c.conn.setDeadline()
}

// Close closes the connection, and the next request dials. gomemcache calls it after an error that
// leaves the connection unusable. It sends no farewell of TLS, for which it could wait.
func (c callConn) Close() error {
	c.conn.mu.Lock()
	defer c.conn.mu.Unlock()
	c.conn.open, c.conn.socket = nil, nil
	return abort.Close(c.Conn)
}
