package bench

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// URL returns the Subject of a dlock URL. It does not connect. It returns an error if the URL is
// malformed, or if the driver of its scheme is not imported. The caller sets Command.
func URL(raw string) (Subject, error) {
	u, err := backend.ParseURL(raw)
	if err != nil {
		return Subject{}, err
	}
	if _, err := backend.Lookup(u.Scheme); err != nil {
		return Subject{}, err
	}
	s := Driver(u.String(), func(ctx context.Context) (backend.Driver, error) {
		return openDriver(ctx, raw)
	})
	s.Prefix, _ = u.Take("prefix")
	s.Open = func(ctx context.Context, settings Settings) (Process, error) {
		client, err := dlock.Open(ctx, raw)
		if err != nil {
			return nil, err
		}
		return newProcess(client, settings), nil
	}
	return s, nil
}

// Driver returns the Subject of a driver that has no URL. Each call of open returns a new
// connection, which the Subject closes. Locks have the default options of dlock.
func Driver(name string, open func(context.Context) (backend.Driver, error)) Subject {
	return Subject{
		Name:    name,
		Handoff: true,
		Open: func(ctx context.Context, settings Settings) (Process, error) {
			d, err := open(ctx)
			if err != nil {
				return nil, err
			}
			client, err := dlock.New(d)
			if err != nil {
				return nil, errors.Join(err, d.Close())
			}
			return newProcess(client, settings), nil
		},
		Server: func(ctx context.Context) (io.Closer, error) { return open(ctx) },
	}
}

// openDriver opens a driver without the core, to use its floor and its counters.
func openDriver(ctx context.Context, raw string) (backend.Driver, error) {
	u, err := backend.ParseURL(raw)
	if err != nil {
		return nil, err
	}
	opener, err := backend.Lookup(u.Scheme)
	if err != nil {
		return nil, err
	}
	return opener(ctx, u)
}

// lockOptions returns the options of each lock. They override the parameters of the URL.
func lockOptions(s Settings, caps backend.Capabilities) (opts []dlock.Option) {
	if s.TTL > 0 {
		opts = append(opts, dlock.WithTTL(within(s.TTL, caps)))
	}
	if !s.Handoff {
		opts = append(opts, dlock.WithLocalHandoff(0))
	}
	return opts
}

// within returns the nearest TTL that the backend supports.
func within(ttl time.Duration, caps backend.Capabilities) time.Duration {
	if caps.MaxTTL > 0 {
		ttl = min(ttl, caps.MaxTTL)
	}
	return max(ttl, caps.MinTTL)
}

// process is a client of dlock.
type process struct {
	client *dlock.Client
	opts   []dlock.Option
}

func newProcess(client *dlock.Client, s Settings) *process {
	return &process{client, lockOptions(s, client.Capabilities())}
}

func (p *process) Mutex(name string) (Mutex, error) {
	m, err := p.client.Mutex(name, p.opts...)
	if err != nil {
		return nil, err
	}
	return mutex{m}, nil
}

func (p *process) Close() error { return p.client.Close() }

type mutex struct{ dlock.Mutex }

func (m mutex) Lock(ctx context.Context) (Lease, error) {
	lease, err := m.Mutex.Lock(ctx)
	if err != nil {
		return nil, err
	}
	return lease, nil
}
