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

// take returns a connection for a call with ctx, and the number of the call: the idle one that was
// used last and is still open, or a new one. It drops idle ones that have ended: a call that dials
// fails if the server refuses new connections. take never blocks: the lane limits how many
// connections are taken.
func (p *pool) take(ctx context.Context) (c *conn, call int) {
	for c = p.pop(); c != nil; c = p.pop() {
		if call, isOpen := c.begin(ctx); isOpen {
			return c, call
		}
	}
	c = newConn(p)
	call, _ = c.begin(ctx)
	return c, call
}

// pop removes the idle connection that was used last, and returns nil if none is idle.
func (p *pool) pop() *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.idle) - 1
	if last < 0 {
		return nil
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

// closeIdle closes all idle connections.
func (p *pool) closeIdle() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, c := range p.idle {
		errs = append(errs, c.client.Close())
	}
	p.idle = nil
	return errors.Join(errs...)
}

// close closes all idle connections. A call that the core has given up may still be under way; put
// closes its connection.
func (p *pool) close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	return p.closeIdle()
}

// lane limits how many connections of a pool are in use at the same time for one purpose.
// gomemcache would dial one for each caller, until the server refuses all of them.
type lane struct {
	pool  *pool
	slots slots
	extra slots // further slots, for when all of slots are in use; nil: there are none
}

// slots has an element for each connection in use.
type slots chan struct{}

func newLane(p *pool, size int) lane { return lane{pool: p, slots: make(slots, size)} }

// size returns how many calls may use the lane at the same time.
func (l lane) size() int { return cap(l.slots) + cap(l.extra) }

// do runs a few requests on one connection, and returns as soon as ctx ends. ctx alone limits the
// time for all of them; Options.Timeout also limits each of them. The error is interpreted.
func (l lane) do(ctx context.Context, requests func(*memcache.Client) error) error {
	// In place, the deadline of the connection suffices, and no AfterFunc is necessary. The context
	// without a Done channel is not used, because dialling needs the channel.
	_, inPlace := backend.DeadlineOnly(ctx)
	taken, err := l.reserve(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	defer func() { <-taken }()
	c, call := l.pool.take(ctx)
	defer l.pool.put(c)
	if !inPlace {
		stop := context.AfterFunc(ctx, func() { c.interrupt(call) })
		defer stop()
	}
	return interpretError(ctx, requests(c.client))
}

// reserve waits for a free slot, and returns where it is. After an error certainly no request was
// sent.
func (l lane) reserve(ctx context.Context) (taken slots, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select { // first without Done, which costs a timer in contexts of the core
	case l.slots <- struct{}{}:
		return l.slots, nil
	default:
	}
	select {
	case l.slots <- struct{}{}:
		return l.slots, nil
	case l.extra <- struct{}{}:
		return l.extra, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("all connections are in use: %w", ctx.Err())
	}
}
