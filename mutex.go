package dlock

import (
	"context"
	"errors"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/engine"
)

// Mutex is a named lock that has at most one holder at a time, over all processes. The name
// is the lock: two Mutexes of one name, in one process or in several, exclude each other.
//
// Mutex is an interface of three methods so that users can fake it. The zero [Lease] serves
// as a fake lease: it is held and never lost.
type Mutex interface {
	// Name returns the name that the Mutex was made with.
	Name() string
	// Lock blocks until it acquires the lock. ctx limits the wait, not the lease: when ctx
	// ends, Lock returns at once with ctx's error, and cleans up the attempt in the
	// background. If ctx has ended before the call, Lock sends no request.
	//
	// Callers in one Client acquire the lock in the order of their calls. Between clients
	// the order depends on the backend; see WithFair. On a context with a lease of the same
	// name, Lock returns ErrNotAcquired at once, or shares the grant; see WithReentrant.
	//
	// While the server does not answer, Lock retries with backoff. It returns
	// ErrUnavailable when the server has not answered for one TTL, and ErrClosed if the
	// client is closed.
	Lock(ctx context.Context) (*Lease, error)
	// TryLock makes one attempt, which takes at most the TTL or 5 s, whichever is less. It
	// returns ErrNotAcquired if the lock is taken, usually without a request if a caller in
	// this Client holds it or waits for it. It returns ErrUnavailable if the server was not
	// reached, and ErrUncertain if it did not answer. In the last case the attempt is
	// cleaned up in the background.
	TryLock(ctx context.Context) (*Lease, error)
}

// mutex is the Mutex of a Client.
type mutex struct {
	client *Client
	lock   engine.Lock
}

// Mutex returns the lock of the given name.
//
// It sends no request to the server, and has nothing to close. The options apply in addition to the
// client's. It returns ErrInvalidName for a bad name, ErrUnsupported if the backend cannot do what
// the options require, or an error that names the bad option.
func (c *Client) Mutex(name string, opts ...Option) (Mutex, error) {
	m, err := c.mutex(name, opts)
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (c *Client) mutex(name string, opts []Option) (*mutex, error) {
	return c.kind("mutex", backend.Exclusive, 0, name, opts)
}

// kind returns the lock of a name in a mode, with the limit of a semaphore. op is for errors. If
// there is an error, the *mutex may still not be nil: it must not become a Mutex before err is
// checked. Without options the lock shares the settings of the client, which do not change any
// more.
func (c *Client) kind(
	op string, mode backend.Mode, limit int, name string, opts []Option,
) (*mutex, error) {
	if err := validate(name); err != nil {
		return nil, c.wrap(op, "", err)
	}
	m := &mutex{c, engine.Lock{Name: name, Key: c.prefix + name, Settings: &c.config.Settings}}
	if len(opts) == 0 && mode == backend.Exclusive {
		return m, nil
	}
	cfg := config{settings: c.config.settings}
	cfg.apply(opts)
	if cfg.ofClient {
		return nil, c.wrap(op, name,
			errors.New("WithRequire, WithLogger and WithObserver are options of Open and New"))
	}
	cfg.Mode, cfg.Limit = mode, limit
	m.lock.Settings = &cfg.Settings
	return m, c.wrap(op, name, cfg.check(c.caps))
}

// Name implements Mutex.
func (m *mutex) Name() string { return m.lock.Name }

// Lock implements Mutex.
func (m *mutex) Lock(ctx context.Context) (*Lease, error) { return m.acquire(ctx, "lock", true) }

// TryLock implements Mutex.
func (m *mutex) TryLock(ctx context.Context) (*Lease, error) {
	return m.acquire(ctx, "try-lock", false)
}

// acquire is one call of Lock, TryLock and their variants. op names it in errors; wait is false for
// a single attempt. The observer gets the events Attempt and Acquired also if the call fails.
func (m *mutex) acquire(ctx context.Context, op string, wait bool) (*Lease, error) {
	e, lease := m.client.engine, &Lease{client: m.client}
	began := e.NoteAttempt(ctx, &m.lock)
	err := m.client.wrap(op, m.lock.Name, e.Acquire(ctx, &m.lock, wait, &lease.ref))
	e.NoteAcquired(ctx, &m.lock, &lease.ref, err, began)
	if err != nil {
		return nil, err
	}
	return lease, nil
}

// Lock acquires the lock of the given name. It is short for Client.Mutex followed by
// Mutex.Lock, and returns the errors of both.
func (c *Client) Lock(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	m, err := c.mutex(name, opts)
	if err != nil {
		return nil, err
	}
	return m.Lock(ctx)
}

// TryLock tries once to acquire the lock of the given name. It is short for Client.Mutex
// followed by Mutex.TryLock, and returns the errors of both.
func (c *Client) TryLock(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	m, err := c.mutex(name, opts)
	if err != nil {
		return nil, err
	}
	return m.TryLock(ctx)
}
