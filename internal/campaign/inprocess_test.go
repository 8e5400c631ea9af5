//go:build unix

package campaign

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/membackend"
)

// thread is a Process that is a goroutine of this process. It can be killed, but not stopped.
type thread struct {
	net.Conn
	theirs net.Conn
	dead   *atomic.Bool // its later requests do not reach the server
	done   chan struct{}
	killed chan struct{}
	err    error
}

func startThread(open func(dead *atomic.Bool) (*dlock.Client, error)) *thread {
	ours, theirs := net.Pipe()
	t := &thread{
		Conn: ours, theirs: theirs, dead: new(atomic.Bool),
		done: make(chan struct{}), killed: make(chan struct{}),
	}
	go func() {
		defer close(t.done)
		defer theirs.Close()
		connect := func(context.Context) (c *dlock.Client, lent io.Closer, err error) {
			c, err = open(t.dead)
			return c, nil, err
		}
		t.err = Serve(context.Background(), theirs, connect)
	}()
	return t
}

func (t *thread) Kill() error {
	if t.dead.Swap(true) {
		return nil
	}
	close(t.killed)
	return t.theirs.Close()
}

func (t *thread) Stop() error     { return errors.New("a goroutine cannot be stopped") }
func (t *thread) Continue() error { return nil }
func (t *thread) Quit() error     { return t.Kill() }

// Wait does not wait for the goroutine's work after its death, because a killed process does not
// work.
func (t *thread) Wait() error {
	select {
	case <-t.killed:
		return errors.New("killed")
	case <-t.done:
		return t.err
	}
}

// lab returns a Site without processes and without a server.
func lab(s Settings, wrap func(backend.Driver) backend.Driver) Site {
	operator := membackend.New(&membackend.Options{Space: s.Server})
	networks := make([]*wire, s.withDefaults().Workers)
	for i := range networks {
		networks[i] = &wire{}
	}
	return Site{
		Settings: s, Version: "in this process",
		Start: func(worker, _ int) (Process, error) {
			return startThread(func(dead *atomic.Bool) (*dlock.Client, error) {
				d := membackend.New(&membackend.Options{Space: s.Server})
				return dlock.New(wrap(&distant{d, networks[worker], dead}))
			}), nil
		},
		Network: func(worker int) Network { return networks[worker] },
		Inject: func(ctx context.Context, _ Kind, name string) (func() error, error) {
			return nil, breakAll(ctx, operator, name)
		},
		Left: func(ctx context.Context, prefix string) (left []string, err error) {
			for info, err := range operator.(backend.Inspector).List(ctx, prefix) {
				if err != nil {
					return nil, err
				}
				left = append(left, info.Key)
			}
			return left, nil
		},
	}
}

// breakAll takes the lock from all its holders.
func breakAll(ctx context.Context, operator backend.Driver, name string) error {
	info, err := operator.(backend.Inspector).Inspect(ctx, name)
	if err != nil {
		return err
	}
	missed := ErrMissed
	for _, h := range info.Holders {
		err := operator.(backend.Breaker).Break(ctx, name, h.Owner)
		if err == nil {
			missed = nil
		} else if !errors.Is(err, backend.ErrNotHeld) {
			return err
		}
	}
	return missed
}

// wire is the network of one worker.
type wire struct {
	mu      sync.Mutex
	healed  chan struct{} // nil: no cut
	latency time.Duration
	drops   []int
}

func (w *wire) Cut() (heal func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	healed := make(chan struct{})
	w.healed = healed
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.healed = nil
		close(healed)
	}
}

func (w *wire) Reset() { w.DropReply(1) }

// Delay does nothing: the wire cannot delay the execution of a request.
func (w *wire) Delay() (deliver func()) { return func() {} }

func (w *wire) Latency(d time.Duration) (remove func() error, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.latency = d
	return func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.latency = 0
		return nil
	}, nil
}

func (w *wire) DropReply(nth int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drops = append(w.drops, nth)
}

var errReset = errors.New("connection reset")

// pass sends a request over the wire and returns its reply.
func (w *wire) pass(ctx context.Context, request func() error) error {
	w.mu.Lock()
	healed, latency := w.healed, w.latency
	drop := false
	for i := range w.drops {
		w.drops[i]--
		drop = drop || w.drops[i] == 0
	}
	w.mu.Unlock()
	if healed != nil {
		select {
		case <-healed:
			return errReset
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	err := request()
	if drop {
		return errReset
	}
	if latency > 0 && !sleep(ctx, latency) {
		return ctx.Err()
	}
	return err
}

// distant is a driver with a wire between it and the server.
type distant struct {
	backend.Driver
	wire *wire
	dead *atomic.Bool
}

func (d *distant) pass(ctx context.Context, request func() error) error {
	if d.dead.Load() {
		return errReset
	}
	return d.wire.pass(ctx, request)
}

func (d *distant) Acquire(ctx context.Context, req *backend.Request) (g *backend.Grant, err error) {
	sent := backend.Began(ctx)
	err = d.pass(ctx, func() error {
		g, err = d.Driver.Acquire(ctx, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	late := *g
	late.Term.Sent = sent
	return &late, nil
}

func (d *distant) Renew(ctx context.Context, g *backend.Grant) (term backend.Term, err error) {
	sent := time.Now()
	err = d.pass(ctx, func() error {
		term, err = d.Driver.Renew(ctx, g)
		return err
	})
	if err != nil {
		return backend.Term{}, err
	}
	return backend.Term{Sent: sent, TTL: term.TTL}, nil
}

func (d *distant) Release(ctx context.Context, g *backend.Grant) error {
	return d.pass(ctx, func() error { return d.Driver.Release(ctx, g) })
}

func (d *distant) Downgrade(
	ctx context.Context, g *backend.Grant,
) (shared *backend.Grant, err error) {
	sent := time.Now()
	err = d.pass(ctx, func() error {
		shared, err = d.Driver.(backend.Downgrader).Downgrade(ctx, g)
		return err
	})
	if err != nil {
		return nil, err
	}
	late := *shared
	late.Term.Sent = sent
	return &late, nil
}

func (d *distant) Export(ctx context.Context, g *backend.Grant) (ticket string, err error) {
	err = d.pass(ctx, func() error {
		ticket, err = d.Driver.(backend.Mover).Export(ctx, g)
		return err
	})
	return ticket, err
}

func (d *distant) Adopt(
	ctx context.Context, ticket string, req *backend.Request,
) (g *backend.Grant, err error) {
	sent := backend.Began(ctx)
	err = d.pass(ctx, func() error {
		g, err = d.Driver.(backend.Mover).Adopt(ctx, ticket, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	late := *g
	late.Term.Sent = sent
	return &late, nil
}

func (d *distant) Wait(
	ctx context.Context, req *backend.Request, b *backend.Busy,
) (*backend.Grant, error) {
	g, err := d.Driver.(backend.Waiter).Wait(ctx, req, b)
	if d.dead.Load() {
		return nil, errReset
	}
	return g, err
}
