package memcachedbackend

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/dlock-go/dlock/backend"
)

// pool keeps the idle connections to one server, for all its lanes. The connection that was used
// last is used next. So under low load few connections are open, and these are in use often.
type pool struct {
	address address
	opts    *Options

	mu     sync.Mutex
	idle   []*conn // the one used last is last
	closed bool    // put closes the connections of calls that outlast the driver
}

// take returns a connection for one call. It never blocks: the lane limits how many are taken.
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

// put returns a connection after the call, also if the call has failed.
func (p *pool) put(c *conn) {
	c.end()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = c.client.Close()
		return
	}
	p.idle = append(p.idle, c)
}

// close closes all idle connections. A call that the core has given up may still be under way; put
// closes its connection.
func (p *pool) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	var errs []error
	for _, c := range p.idle {
		errs = append(errs, c.client.Close())
	}
	return errors.Join(errs...)
}

// lane limits how many connections of a pool are in use at the same time for one purpose.
// gomemcache would dial one for each caller, until the server refuses all of them.
type lane struct {
	pool  *pool
	slots chan struct{} // has one element for each connection in use
}

func newLane(p *pool, size int) lane { return lane{pool: p, slots: make(chan struct{}, size)} }

// do runs a few requests on one connection, and returns as soon as ctx ends. ctx alone limits the
// time for all of them; Options.Timeout also limits each of them. The error is interpreted.
func (l lane) do(ctx context.Context, requests func(*memcache.Client) error) error {
	// In place, the deadline of the connection suffices, and no AfterFunc is necessary. The context
	// without a Done channel is not used, because dialling needs the channel.
	_, inPlace := backend.DeadlineOnly(ctx)
	if err := l.reserve(ctx); err != nil {
		return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	defer func() { <-l.slots }()
	c := l.pool.take()
	defer l.pool.put(c)
	call := c.begin(ctx)
	if !inPlace {
		stop := context.AfterFunc(ctx, func() { c.interrupt(call) })
		defer stop()
	}
	return interpretError(ctx, requests(c.client))
}

// reserve waits for a free slot. After an error certainly no request was sent.
func (l lane) reserve(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select { // first without Done, which costs a timer in contexts of the core
	case l.slots <- struct{}{}:
		return nil
	default:
	}
	select {
	case l.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("all connections are in use: %w", ctx.Err())
	}
}
