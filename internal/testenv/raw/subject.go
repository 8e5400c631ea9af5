package raw

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/bench"
	"github.com/dlock-go/dlock/internal/bound"
	"github.com/dlock-go/dlock/internal/testenv"
)

// Waiting waits after the answer b of an attempt until the next one may succeed, as the method of
// [backend.Waiter] does. n is the number of earlier waits for the same lock.
type Waiting func(
	ctx context.Context, d backend.Driver, req *backend.Request, b *backend.Busy, n int,
) (*backend.Grant, error)

// ByServer lets the server wake the waiter.
func ByServer(
	ctx context.Context, d backend.Driver, req *backend.Request, b *backend.Busy, _ int,
) (*backend.Grant, error) {
	return d.(backend.Waiter).Wait(ctx, req, b)
}

const (
	// requestLimit is the core's timeout for a request whose caller has a context without an end.
	requestLimit = 5 * time.Second
	// retryInterval is the time until a request that failed is repeated.
	retryInterval = 10 * time.Millisecond
)

// Lock repeats attempts and waits as the core does, even if requests fail. answer is the answer to
// an earlier attempt, or nil.
func Lock(
	ctx context.Context, d backend.Driver, req *backend.Request, answer *backend.Busy, wait Waiting,
) (g *backend.Grant, err error) {
	for n := 0; ; {
		g, err = nil, nil
		if answer != nil {
			g, err = wait(ctx, d, req, answer, n)
			n++
		}
		if g == nil && err == nil {
			g, err = attempt(ctx, d, req)
		}
		if g != nil {
			return g, nil
		}
		var isBusy bool
		answer, isBusy = errors.AsType[*backend.Busy](err)
		switch {
		case isBusy:
		case ctx.Err() != nil, errors.Is(err, backend.ErrConflict), errors.Is(err, backend.ErrLost),
			errors.Is(err, backend.ErrUnsupported):
			return nil, err
		default:
			time.Sleep(retryInterval)
		}
	}
}

// attempt calls Acquire with the timeout of the core.
func attempt(
	ctx context.Context, d backend.Driver, req *backend.Request,
) (*backend.Grant, error) {
	limited := bound.New(ctx, requestLimit)
	defer limited.Cancel()
	return d.Acquire(limited, req)
}

// Subject returns the driver of a URL as a subject of package bench, without the core. Each
// contender has its own connection, as if it were alone in its process. The subject is for
// workloads with one name.
//
// The allocations of a pair include those that the core makes, too: an owner, a request, a lease
// and two contexts.
func Subject(name, url string, wait Waiting) bench.Subject {
	return bench.Subject{
		Name: name,
		Open: func(context.Context, bench.Settings) (bench.Process, error) {
			return &processes{url: url, wait: wait}, nil
		},
		Server: func(ctx context.Context) (io.Closer, error) { return testenv.Open(ctx, url) },
	}
}

// processes are the connections of a Subject's contenders.
type processes struct {
	url  string
	wait Waiting

	mu      sync.Mutex
	drivers []backend.Driver
}

// Mutex opens a connection.
func (p *processes) Mutex(name string) (bench.Mutex, error) {
	d, err := testenv.Open(context.Background(), p.url)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drivers = append(p.drivers, d)
	return &mutex{d, name, p.wait}, nil
}

func (p *processes) Close() (err error) {
	for _, d := range p.drivers {
		err = errors.Join(err, d.Close())
	}
	return err
}

// mutex is a lock that is acquired with a new owner each time, as the core does.
type mutex struct {
	driver backend.Driver
	key    string
	wait   Waiting
}

func (m *mutex) Lock(ctx context.Context) (bench.Lease, error) {
	req := &backend.Request{
		Key: m.key, Owner: NewOwner(), TTL: 30 * time.Second, Mode: backend.Exclusive,
		Queue: true, Meta: "bench@host:1",
	}
	g, err := Lock(ctx, m.driver, req, nil, m.wait)
	if err != nil {
		return nil, err
	}
	return &lease{m.driver, g}, nil
}

type lease struct {
	driver backend.Driver
	grant  *backend.Grant
}

func (l *lease) Unlock(ctx context.Context) error {
	limited := bound.New(ctx, requestLimit)
	defer limited.Cancel()
	return l.driver.Release(limited, l.grant)
}
