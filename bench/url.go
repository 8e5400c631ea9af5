package bench

import (
	"context"
	"io"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

// URL returns the Subject of one of dlock's URLs. Nothing is dialled yet; the error is that of a
// malformed URL, or of a scheme whose driver is not imported. Its Command is left to the caller.
func URL(raw string) (Subject, error) {
	u, err := backend.ParseURL(raw)
	if err != nil {
		return Subject{}, err
	}
	if _, err := backend.Lookup(u.Scheme); err != nil {
		return Subject{}, err
	}
	name := u.String()
	prefix, _ := u.Take("prefix")
	return Subject{
		Name:    name,
		Prefix:  prefix,
		Handoff: true,
		Open: func(ctx context.Context, s Settings) (Process, error) {
			client, err := dlock.Open(ctx, raw)
			if err != nil {
				return nil, err
			}
			return &process{client, lockOptions(s, client.Capabilities())}, nil
		},
		Server: func(ctx context.Context) (io.Closer, error) { return openDriver(ctx, raw) },
	}, nil
}

// openDriver opens a driver without the core, for its floor and its counters.
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

// lockOptions are those of each lock: they win over what the URL says.
func lockOptions(s Settings, caps backend.Capabilities) (opts []dlock.Option) {
	if s.TTL > 0 {
		opts = append(opts, dlock.WithTTL(within(s.TTL, caps)))
	}
	if !s.Handoff {
		opts = append(opts, dlock.WithLocalHandoff(0))
	}
	return opts
}

// within is the nearest TTL that the backend can keep.
func within(ttl time.Duration, caps backend.Capabilities) time.Duration {
	if caps.MaxTTL > 0 {
		ttl = min(ttl, caps.MaxTTL)
	}
	return max(ttl, caps.MinTTL)
}

// process is a client of dlock's.
type process struct {
	client *dlock.Client
	opts   []dlock.Option
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
