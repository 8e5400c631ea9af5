package outside

import (
	"context"
	"encoding/gob"
	"fmt"
	"iter"
	"net"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// driver has a pool of connections. It has no Waiter, so the core polls.
type driver struct {
	addr string

	mu   sync.Mutex
	idle []*conn
	down bool
}

type conn struct {
	net.Conn
	in  *gob.Decoder
	out *gob.Encoder
}

func open(ctx context.Context, addr string) (backend.Driver, error) {
	d := &driver{addr: addr}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if _, err := d.call(ctx, &message{Op: "inspect", Key: "conformance"}); err != nil {
		return nil, fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	return d, nil
}

func (d *driver) take(ctx context.Context) (*conn, error) {
	d.mu.Lock()
	if n := len(d.idle); n > 0 {
		c := d.idle[n-1]
		d.idle = d.idle[:n-1]
		d.mu.Unlock()
		return c, nil
	}
	d.mu.Unlock()
	c, err := new(net.Dialer).DialContext(ctx, "tcp", d.addr)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	return &conn{c, gob.NewDecoder(c), gob.NewEncoder(c)}, nil
}

func (d *driver) put(c *conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.down {
		_ = c.Close()
		return
	}
	d.idle = append(d.idle, c)
}

// call sends a request and returns the answer.
func (d *driver) call(ctx context.Context, m *message) (*message, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c, err := d.take(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(timeout))
	m.Req.Lost = nil
	var a message
	if err = c.out.Encode(m); err == nil {
		err = c.in.Decode(&a)
	}
	if !stop() && err == nil { // ctx ended after the answer, and the connection is closed
		return &a, nil
	}
	if ctx.Err() != nil {
		_ = c.Close()
		return nil, ctx.Err()
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	d.put(c)
	return &a, nil
}

func (d *driver) Acquire(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
	if req.Mode != backend.Exclusive {
		return nil, backend.ErrUnsupported
	}
	sent := time.Now()
	a, err := d.call(ctx, &message{Op: "acquire", Req: *req})
	if err != nil {
		return nil, err
	}
	if a.Busy != nil {
		return nil, a.Busy
	}
	if err := decode(a.Err); err != nil {
		return nil, err
	}
	return &backend.Grant{
		Request: *req, Fence: a.Grant.Fence,
		Term: backend.Term{Sent: sent, TTL: a.Grant.Term.TTL},
	}, nil
}

// wire returns g without the fields that cannot be sent.
func wire(g *backend.Grant) *backend.Grant {
	plain := *g
	plain.Lost, plain.State = nil, nil
	return &plain
}

func (d *driver) Renew(ctx context.Context, g *backend.Grant) (backend.Term, error) {
	sent := time.Now()
	a, err := d.call(ctx, &message{Op: "renew", Grant: wire(g)})
	if err != nil {
		return backend.Term{}, err
	}
	return backend.Term{Sent: sent, TTL: a.Term.TTL}, decode(a.Err)
}

func (d *driver) Release(ctx context.Context, g *backend.Grant) error {
	a, err := d.call(ctx, &message{Op: "release", Grant: wire(g)})
	if err != nil {
		return err
	}
	return decode(a.Err)
}

func (d *driver) Break(ctx context.Context, key, owner string) error {
	a, err := d.call(ctx, &message{Op: "break", Key: key, Owner: owner})
	if err != nil {
		return err
	}
	return decode(a.Err)
}

func (d *driver) Inspect(ctx context.Context, key string) (*backend.Info, error) {
	a, err := d.call(ctx, &message{Op: "inspect", Key: key})
	if err != nil {
		return nil, err
	}
	if err := decode(a.Err); err != nil {
		return nil, err
	}
	a.Infos[0].Waiters = -1 // the server cannot count pollers
	return &a.Infos[0], nil
}

func (d *driver) List(ctx context.Context, prefix string) iter.Seq2[*backend.Info, error] {
	return func(yield func(*backend.Info, error) bool) {
		a, err := d.call(ctx, &message{Op: "list", Key: prefix})
		if err == nil {
			err = decode(a.Err)
		}
		if err != nil {
			yield(nil, err)
			return
		}
		for i := range a.Infos {
			if !yield(&a.Infos[i], nil) {
				return
			}
		}
	}
}

func (d *driver) Capabilities() backend.Capabilities {
	return backend.Capabilities{
		Modes: backend.Exclusive, Fencing: backend.FenceVolatile,
		Inspect: true, List: true, Break: true,
		MinTTL: 50 * time.Millisecond, Late: timeout,
	}
}

func (d *driver) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.down = true
	for _, c := range d.idle {
		_ = c.Close()
	}
	d.idle = nil
	return nil
}
