// Package dlock is a distributed lock over Redis, Memcached, ZooKeeper, etcd and
// MySQL, chosen by a URL. Think database/sql, for locks.
//
//	client, err := dlock.Open(ctx, "redis://localhost:6379")
//	…
//	err = client.Do(ctx, "nightly-report", func(ctx context.Context, lease *dlock.Lease) error {
//		return report(ctx, lease.Fence())
//	})
//
// An application imports dlock and, blank, the drivers that it wants, for example
// _ "github.com/dlock-go/dlock/redisbackend".
//
// # What a lease is
//
// A lock in a network can be lost: the server forgets, the holder is stopped for
// longer than the TTL, the network is cut. dlock sees to it that the holder's lease
// ends before the server can give the lock to anybody else, and tells so by
// [Lease.Context], [Lease.Lost] and [Lease.Err]. What no client can prevent is that
// a process is stopped between its check and its write. For that each lease has a
// [Lease.Fence], greater than that of every earlier holder: a resource that keeps
// the highest fence it has seen and refuses lower ones is safe in any case.
//
// # Waiting, renewing, releasing
//
// Lock waits until the lock is had or its context ends; that context does not
// bound the lease. The lease is renewed behind the caller until Unlock.
// Unlock works on a context that has ended, since a lock that stays behind
// because its request was cancelled is the commonest accident with locks.
//
// All methods of all types are safe for concurrent use.
package dlock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"reflect"
	"strings"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/gate"
)

// Mutex is a named lock that one holder has at a time, over all processes. It is
// an interface of three methods so that users can fake it: the zero [Lease] is
// a lease that is held and never lost.
type Mutex interface {
	// Name returns the name that the Mutex was made with.
	Name() string
	// Lock waits for the lock. ctx bounds the wait, not the lease: when it
	// ends, Lock returns at once with its error and undoes behind the caller what it
	// had begun. Against a server that does not answer it tries for one TTL after
	// the last answer, then it returns ErrUnavailable.
	Lock(ctx context.Context) (*Lease, error)
	// TryLock makes one attempt, of the lesser of the TTL and 5 s: ErrNotAcquired if
	// the lock is taken, ErrUnavailable if the server was not reached,
	// ErrUncertain if it did not answer; what it may have done is then undone.
	TryLock(ctx context.Context) (*Lease, error)
}

// Client is a connection to a lock server. Its zero value is not usable; Open and New
// make one.
type Client struct {
	driver    backend.Driver
	waiter    backend.Waiter       // nil: the core polls
	batch     backend.BatchRenewer // nil: one by one
	pipeliner backend.Pipeliner    // nil: the next waiter asks when the release is answered
	inspector backend.Inspector
	breaker   backend.Breaker

	backend string // for errors and events
	prefix  string
	caps    backend.Capabilities
	config  config

	queues    gate.Gate[*hold, turn]
	scheduler *scheduler
	lifecycle lifecycle
}

// openTimeout bounds Open where ctx does not.
const openTimeout = 10 * time.Second

// Open connects to the server that rawURL names and probes it; an address, a
// password or a parameter that is wrong is told here. ctx bounds the opening
// only, as do 10 s. The schemes are those of the imported drivers. Besides the
// driver's own parameters every URL takes prefix (put before each name), ttl, fair
// and require (see [WithRequire]: fair, shared, permit, fence, fence-durable,
// list, break and move, joined by commas). No error text has a credential in it.
func Open(ctx context.Context, rawURL string, opts ...Option) (*Client, error) {
	c, err := open(ctx, rawURL, opts)
	if err != nil {
		return nil, &Error{Op: "open", Err: err}
	}
	return c, nil
}

func open(ctx context.Context, rawURL string, opts []Option) (*Client, error) {
	if ctx == nil {
		return nil, errNilContext
	}
	u, err := backend.ParseURL(rawURL)
	if err != nil {
		return nil, err
	}
	opener, err := backend.Lookup(u.Scheme)
	if err != nil {
		return nil, err
	}
	cfg := newConfig(opts)
	prefix, err := cfg.takeURL(u)
	if err != nil {
		return nil, err
	}
	u.TTL = cfg.ttl
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	driver, err := opener(ctx, u)
	// A misspelt parameter explains a failure better than the failure itself.
	if unknown := u.Untaken(); len(unknown) > 0 {
		if err == nil {
			_ = driver.Close()
		}
		return nil, fmt.Errorf("unknown URL parameter %q for scheme %q", unknown, u.Scheme)
	}
	if err != nil {
		return nil, err
	}
	c, err := newClient(driver, u.Scheme, prefix, cfg)
	if err != nil {
		_ = driver.Close()
	}
	return c, err
}

// New returns a client over a driver that exists already, for example one that
// shares the application's own connection. Close closes d; a connection that
// was lent to d stays open. If New fails, d is not closed.
func New(d backend.Driver, opts ...Option) (*Client, error) {
	if d == nil {
		return nil, &Error{Op: "new", Err: errors.New("the driver is nil")}
	}
	c, err := newClient(d, driverName(d), "", newConfig(opts))
	if err != nil {
		return nil, &Error{Op: "new", Backend: driverName(d), Err: err}
	}
	return c, nil
}

// driverName turns *redisbackend.driver into redis.
func driverName(d backend.Driver) string {
	pkg, _, _ := strings.Cut(strings.TrimLeft(reflect.TypeOf(d).String(), "*"), ".")
	return strings.TrimSuffix(pkg, "backend")
}

func newClient(d backend.Driver, name, prefix string, cfg config) (*Client, error) {
	caps := d.Capabilities()
	if unmet := caps.Unmet(cfg.require); len(unmet) > 0 {
		return nil, fmt.Errorf("%w: %s", ErrUnsupported, strings.Join(unmet, ", "))
	}
	cfg.fitTTL(caps)
	if err := cfg.check(caps); err != nil {
		return nil, err
	}
	c := &Client{
		driver: d, backend: name, prefix: prefix, caps: caps, config: cfg, scheduler: newScheduler(),
	}
	c.waiter, _ = d.(backend.Waiter)
	if !caps.Notify {
		c.waiter = nil
	}
	c.batch, _ = d.(backend.BatchRenewer)
	c.pipeliner, _ = d.(backend.Pipeliner)
	c.inspector, _ = d.(backend.Inspector)
	c.breaker, _ = d.(backend.Breaker)
	if caps.Session && caps.MaxTTL > cfg.ttl {
		cfg.logger.Info("the locks of a process that dies are freed with its session, which serves longer TTLs",
			"backend", name, "longest", caps.MaxTTL, "ttl", cfg.ttl)
	}
	c.lifecycle.start(c)
	return c, nil
}

// mutex is the Mutex of a Client.
type mutex struct {
	client   *Client
	name     string // the user's
	key      string // with the client's prefix
	settings *settings
}

// Mutex returns the lock of that name; it asks nothing of the server. Its errors
// are ErrInvalidName, ErrUnsupported where the backend cannot do what the
// options ask, and an option's own.
func (c *Client) Mutex(name string, opts ...Option) (Mutex, error) {
	m, err := c.mutex(name, opts)
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (c *Client) mutex(name string, opts []Option) (*mutex, error) {
	if err := validate(name); err != nil {
		return nil, c.wrap("mutex", "", err)
	}
	m := &mutex{client: c, name: name, key: c.prefix + name, settings: &c.config.settings}
	if len(opts) == 0 {
		return m, nil
	}
	cfg := config{settings: c.config.settings}
	cfg.apply(opts)
	if cfg.ofClient {
		return nil, c.wrap("mutex", name, errors.New("WithRequire, WithLogger and WithObserver are options of Open and New"))
	}
	m.settings = &cfg.settings
	return m, c.wrap("mutex", name, cfg.check(c.caps))
}

// Name implements Mutex.
func (m *mutex) Name() string { return m.name }

// Lock implements Mutex.
func (m *mutex) Lock(ctx context.Context) (*Lease, error) { return m.lock(ctx, "lock", true) }

// TryLock implements Mutex.
func (m *mutex) TryLock(ctx context.Context) (*Lease, error) { return m.lock(ctx, "try-lock", false) }

// Lock is Mutex(name, opts…).Lock(ctx).
func (c *Client) Lock(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	m, err := c.mutex(name, opts)
	if err != nil {
		return nil, err
	}
	return m.Lock(ctx)
}

// TryLock is Mutex(name, opts…).TryLock(ctx).
func (c *Client) TryLock(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	m, err := c.mutex(name, opts)
	if err != nil {
		return nil, err
	}
	return m.TryLock(ctx)
}

// Do waits for the lock, runs fn on the caller's goroutine with the lease's context,
// and unlocks, also if fn panics. It returns fn's error, joined with ErrLost
// (ErrClosed) if the lease ended before fn returned, also when fn returned nil. A
// failed Unlock is logged, not returned.
func (c *Client) Do(ctx context.Context, name string, fn func(context.Context, *Lease) error, opts ...Option) error {
	lease, err := c.Lock(ctx, name, opts...)
	if err != nil {
		return err
	}
	return lease.run(ctx, fn)
}

// TryDo is Do, but returns ErrNotAcquired at once if the lock is taken.
func (c *Client) TryDo(ctx context.Context, name string, fn func(context.Context, *Lease) error, opts ...Option) error {
	lease, err := c.TryLock(ctx, name, opts...)
	if err != nil {
		return err
	}
	return lease.run(ctx, fn)
}

func (l *Lease) run(ctx context.Context, fn func(context.Context, *Lease) error) (err error) {
	leaseCtx, cancel := l.Context(ctx)
	defer cancel()
	defer func() {
		ended := l.Err()
		unlockErr := l.Unlock(ctx)
		if ended == nil && errors.Is(unlockErr, ErrLost) {
			ended = ErrLost
		}
		if ended != nil && !errors.Is(ended, ErrNotHeld) {
			err = errors.Join(err, ended)
		} else if unlockErr != nil && !errors.Is(unlockErr, ErrNotHeld) { // fn may unlock
			l.handle.hold.log(slog.LevelWarn, "dlock: unlock failed", unlockErr)
		}
	}()
	return fn(leaseCtx, l)
}

// Inspect shows who holds a lock. A free lock is an Info without holders.
// ErrUnsupported where the backend cannot tell.
func (c *Client) Inspect(ctx context.Context, name string) (*backend.Info, error) {
	info, err := c.inspect(ctx, name)
	return info, c.wrap("inspect", name, err)
}

func (c *Client) inspect(ctx context.Context, name string) (*backend.Info, error) {
	if c.inspector == nil || !c.caps.Inspect {
		return nil, ErrUnsupported
	}
	if err := validate(name); err != nil {
		return nil, err
	}
	if err := c.enter(ctx); err != nil {
		return nil, err
	}
	defer c.leave()
	bound := backend.NewBound(ctx, maxRequest)
	defer bound.Cancel()
	info, err := c.inspector.Inspect(bound, c.prefix+name)
	if err != nil {
		return nil, c.unanswered(ctx, err)
	}
	info.Key = name
	return info, nil
}

// List shows every lock that is held or waited for and whose name starts with
// prefix, in no particular order. An error, ErrUnsupported among others, ends
// the sequence.
func (c *Client) List(ctx context.Context, prefix string) iter.Seq2[*backend.Info, error] {
	return func(yield func(*backend.Info, error) bool) {
		if c.inspector == nil || !c.caps.List {
			yield(nil, c.wrap("list", prefix, ErrUnsupported))
			return
		}
		if err := c.enterList(ctx, prefix); err != nil {
			yield(nil, c.wrap("list", prefix, err))
			return
		}
		defer c.leave()
		for info, err := range c.inspector.List(ctx, c.prefix+prefix) {
			if err != nil {
				yield(nil, c.wrap("list", prefix, c.unanswered(ctx, err)))
				return
			}
			info.Key = strings.TrimPrefix(info.Key, c.prefix)
			if !yield(info, nil) {
				return
			}
		}
	}
}

func (c *Client) enterList(ctx context.Context, prefix string) error {
	if prefix != "" {
		if err := validate(prefix); err != nil {
			return err
		}
	}
	return c.enter(ctx)
}

// Break takes a lock from its holder: from owner, or from whoever holds it if
// owner is empty. The holder is told at once where the server can push, else
// by its next renewal. It does not wait for a lock-delay. ErrNotHeld: the lock is free,
// or owner does not hold it. ErrUncertain: no answer. ErrUnsupported where the
// backend cannot.
func (c *Client) Break(ctx context.Context, name, owner string) error {
	return c.wrap("break", name, c.breakLock(ctx, name, owner))
}

func (c *Client) breakLock(ctx context.Context, name, owner string) error {
	if c.breaker == nil || !c.caps.Break {
		return ErrUnsupported
	}
	if err := validate(name); err != nil {
		return err
	}
	if err := c.enter(ctx); err != nil {
		return err
	}
	defer c.leave()
	bound := backend.NewBound(ctx, maxRequest)
	defer bound.Cancel()
	err := c.breaker.Break(bound, c.prefix+name, owner)
	switch {
	case err == nil, errors.Is(err, ErrNotHeld), isDefinite(err):
		return err
	case errors.Is(err, ErrUnavailable):
		return unavailable(c.unanswered(ctx, err))
	}
	return uncertain(c.unanswered(ctx, err))
}

// Capabilities tells what the backend can do.
func (c *Client) Capabilities() backend.Capabilities { return c.caps }
