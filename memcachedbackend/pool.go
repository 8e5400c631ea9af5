package memcachedbackend

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/tlsfile"
)

// address is a server as it was written. It is resolved with every connection, not
// once, and no two processes see it differently.
type address string

func (a address) Network() string {
	if isSocket(string(a)) {
		return "unix"
	}
	return "tcp"
}

func (a address) String() string { return string(a) }

func isSocket(server string) bool { return strings.HasPrefix(server, "/") }

// PickServer makes an address a memcache.ServerSelector: of the one server.
func (a address) PickServer(string) (net.Addr, error) { return a, nil }

// Each implements memcache.ServerSelector.
func (a address) Each(f func(net.Addr) error) error { return f(a) }

// pool keeps the connections to one server. Who was last to use one leaves it to the
// next, so that few are open where few are needed, and warm.
type pool struct {
	address address
	opts    *Options

	mu   sync.Mutex
	idle []*conn // the one used last is last
}

// lane bounds how many connections of a pool are used at once, and for what: gomemcache would
// dial as many as there are callers, until the server refuses all of them.
type lane struct {
	pool   *pool
	places chan struct{}
}

func newLane(p *pool, size int) lane { return lane{pool: p, places: make(chan struct{}, size)} }

// do runs a few requests on one connection, and ends by ctx. The time for all of
// them is bounded by ctx alone, that for each also by Options.Timeout.
func (l lane) do(ctx context.Context, requests func(*memcache.Client) error) error {
	_, inPlace := backend.DeadlineOnly(ctx)
	if err := l.enter(ctx); err != nil {
		return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	defer func() { <-l.places }()
	c := l.pool.take()
	defer l.pool.put(c)
	stop := c.begin(ctx, inPlace)
	defer stop()
	return interpretError(ctx, requests(c.client))
}

// enter waits for a place. What fails here was certainly not executed.
func (l lane) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case l.places <- struct{}{}:
		return nil
	default:
	}
	select {
	case l.places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("all connections are in use: %w", ctx.Err())
	}
}

func (p *pool) take() *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.idle) - 1
	if last < 0 {
		return newConn(p)
	}
	c := p.idle[last]
	p.idle = p.idle[:last]
	return c
}

func (p *pool) put(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, c)
}

// close closes all connections. Nobody uses them any more.
func (p *pool) close() error {
	var errs []error
	for _, c := range p.idle {
		errs = append(errs, c.client.Close())
	}
	return errors.Join(errs...)
}

// conn is a client of gomemcache's with one connection, used by one call at a time.
// So a CAS id is used on the connection that it was read from: a server that was
// restarted, and counts them from one again, is never shown an old one. And
// the connection's deadline is the call's, although the client knows no contexts.
type conn struct {
	pool   *pool
	client *memcache.Client

	mu       sync.Mutex
	call     int // numbers the calls
	ctx      context.Context
	deadline time.Time // of the call
	open     net.Conn  // nil: to be dialled
	socket   net.Conn  // beneath its TLS
}

func newConn(p *pool) *conn {
	c := &conn{pool: p, client: memcache.NewFromSelector(p.address)}
	c.client.MaxIdleConns = 1
	c.client.Timeout = p.opts.Timeout
	c.client.DialContext = c.dial
	return c
}

// past is a deadline that ends at once what is under way.
var past = time.Unix(1, 0)

// begin prepares for a call that ends with ctx, and returns what ends its preparations.
func (c *conn) begin(ctx context.Context, inPlace bool) (stop func() bool) {
	call := c.prepare(ctx)
	if c.isDead() {
		_ = c.client.Close()
	}
	if inPlace {
		return func() bool { return true }
	}
	return context.AfterFunc(ctx, func() { c.interrupt(call) })
}

func (c *conn) prepare(ctx context.Context) (call int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.call++
	c.ctx = ctx
	c.deadline, _ = ctx.Deadline()
	return c.call
}

// isDead tells whether the connection has ended while it was idle. It is replaced then:
// once a request is written, nobody can tell whether it was executed.
func (c *conn) isDead() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open != nil && (c.setDeadline() != nil || dead(c.socket, c.pool.opts.TLS != nil))
}

// interrupt ends a call, unless it has ended already.
func (c *conn) interrupt(call int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.call != call {
		return
	}
	c.deadline = past
	if c.open != nil {
		_ = c.open.SetDeadline(past) // fails where the connection is closed
	}
}

// setDeadline is called before each request. The mutex is held.
func (c *conn) setDeadline() error {
	deadline := time.Now().Add(c.pool.opts.Timeout)
	if !c.deadline.IsZero() && c.deadline.Before(deadline) {
		deadline = c.deadline
	}
	return c.open.SetDeadline(deadline)
}

// dial connects for gomemcache, whose context knows nothing of the call's. Whatever
// fails here fails before a request was sent. A call in place has a timer here: name resolution,
// TLS and authentication end with Done alone.
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
	return callConn{open, c, newAnswers(open)}, nil
}

// connect returns a connection, and the socket beneath it.
func connect(ctx context.Context, network, addr string, opts *Options) (socket, open net.Conn, err error) {
	socket, err = new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, nil, err
	}
	open = socket
	if opts.TLS != nil {
		secure := tls.Client(socket, tlsfile.For(addr, opts.TLS))
		if err = secure.HandshakeContext(ctx); err != nil {
			err = fmt.Errorf("TLS handshake with %s: %w", addr, err)
		}
		open = secure
	}
	if err == nil && opts.User+opts.Password != "" {
		err = authenticate(ctx, open, opts.User, opts.Password)
	}
	if err != nil {
		_ = socket.Close()
		return nil, nil, err
	}
	return socket, open, nil
}

// authenticate is the first request on a connection to a server with an auth file: a
// set of any key to user and password.
func authenticate(ctx context.Context, c net.Conn, user, password string) error {
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(past) })
	defer stop()
	if _, err := fmt.Fprintf(c, "set dlock 0 0 %d\r\n%s %s\r\n", len(user)+1+len(password), user, password); err != nil {
		return err
	}
	var line []byte
	for b := make([]byte, 1); len(line) < 100 && b[0] != '\n'; line = append(line, b[0]) {
		if _, err := c.Read(b); err != nil {
			return fmt.Errorf("authentication: %w", err)
		}
	}
	if string(line) != "STORED\r\n" {
		return fmt.Errorf("authentication: the server answered %q", line)
	}
	return nil
}

// callConn is a connection that ends with the call that uses it: the deadlines that
// gomemcache sets are replaced. What it reads is bounded.
type callConn struct {
	net.Conn
	conn    *conn
	answers *answers
}

// Write sends a request, or a part of it.
func (c callConn) Write(b []byte) (int, error) {
	c.answers.next()
	return c.Conn.Write(b)
}

// Read reads a part of an answer.
func (c callConn) Read(b []byte) (int, error) { return c.answers.Read(b) }

// SetDeadline sets the call's deadline, not t.
func (c callConn) SetDeadline(time.Time) error {
	c.conn.mu.Lock()
	defer c.conn.mu.Unlock()
	if c.conn.open == nil {
		return net.ErrClosed
	}
	return c.conn.setDeadline()
}

// Close forgets the connection as well: the next request dials.
func (c callConn) Close() error {
	c.conn.mu.Lock()
	defer c.conn.mu.Unlock()
	c.conn.open, c.conn.socket = nil, nil
	return c.Conn.Close()
}
