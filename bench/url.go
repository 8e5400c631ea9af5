package bench

import (
	"context"
	"errors"
	"io"
	"strings"
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
		client, err := dlock.Open(ctx, withTTL(raw, settings.TTL))
		if err != nil {
			return nil, err
		}
		return newProcess(client, settings), nil
	}
	return s, nil
}

// withTTL returns raw with the TTL of a workload, unless raw has a TTL. A session on the server
// follows the TTL of the URL.
func withTTL(raw string, ttl time.Duration) string {
	u, err := backend.ParseURL(raw)
	if err != nil || ttl == 0 {
		return raw
	}
	if _, isSet := u.Take("ttl"); isSet {
		return raw
	}
	separator := "?"
	if strings.Contains(raw, "?") {
		separator = "&"
	}
	return raw + separator + "ttl=" + ttl.String()
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
	if s.WithoutRenewal {
		opts = append(opts, dlock.WithoutRenewal())
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
	return locker[*dlock.Lease](m.Lock), nil
}

func (p *process) Reader(name string) (Mutex, error) {
	m, err := p.client.RWMutex(name, p.opts...)
	if err != nil {
		return nil, err
	}
	return locker[*dlock.Lease](m.RLock), nil
}

func (p *process) Permit(name string, permits int) (Mutex, error) {
	s, err := p.client.Semaphore(name, permits, p.opts...)
	if err != nil {
		return nil, err
	}
	return locker[*dlock.Lease](s.Acquire), nil
}

func (p *process) All(names []string) (Mutex, error) {
	return locker[*dlock.MultiLease](func(ctx context.Context) (*dlock.MultiLease, error) {
		return p.client.LockAll(ctx, names, p.opts...)
	}), nil
}

func (p *process) Leader(name string) (Mutex, error) {
	return locker[*leadership](func(ctx context.Context) (*leadership, error) {
		return p.lead(ctx, name)
	}), nil
}

func (p *process) Close() error { return p.client.Close() }

// locker is a Mutex that is a function.
type locker[L Lease] func(context.Context) (L, error)

func (lock locker[L]) Lock(ctx context.Context) (Lease, error) {
	lease, err := lock(ctx)
	if err != nil {
		return nil, err
	}
	return lease, nil
}

// leadership is the lease of a leader.
type leadership struct {
	*dlock.Lease
	resign context.CancelFunc
	ended  chan error // of Elect
}

// lead stands for election until it leads. The leader leads until Unlock, even if its lease is
// lost: a leader that has died does not resign either.
func (p *process) lead(ctx context.Context, name string) (*leadership, error) {
	ctx, resign := context.WithCancel(ctx)
	l := &leadership{resign: resign, ended: make(chan error, 1)}
	elected := make(chan *dlock.Lease)
	go func() {
		l.ended <- p.client.Elect(ctx, name, func(_ context.Context, lease *dlock.Lease) error {
			elected <- lease
			<-ctx.Done()
			return nil
		}, p.opts...)
	}()
	select {
	case l.Lease = <-elected:
		return l, nil
	case err := <-l.ended:
		resign()
		return nil, err
	}
}

// Unlock resigns.
func (l *leadership) Unlock(context.Context) error {
	l.resign()
	if err := <-l.ended; !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
