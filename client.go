// Package dlock is a distributed lock over Redis, Memcached, ZooKeeper, etcd, MySQL and PostgreSQL,
// chosen by a URL. It is to locks what database/sql is to databases.
//
//	client, err := dlock.Open(ctx, "redis://localhost:6379")
//	…
//	err = client.Do(ctx, "nightly-report", func(ctx context.Context, lease *dlock.Lease) error {
//		return report(ctx, lease.Fence())
//	})
//
// An application imports dlock and, for their side effects, the drivers that it needs, for
// example _ "github.com/dlock-go/dlock/redisbackend".
//
// # What a client does
//
//   - [Client.Lock], [Client.TryLock] and [Client.Do] lock a name; a [Client.Mutex] keeps
//     its options.
//   - [Client.RWMutex], [Client.Semaphore] and [Client.LockAll] are for readers and writers, for
//     permits, and for several names at once.
//   - [Client.Elect] makes one client at a time the leader. [Client.Observe] reports each change.
//   - [Client.Inspect], [Client.List] and [Client.Break] are for operators.
//   - [Lease.Unlock] releases a lock, and [Lease.Export] passes it to another process, which calls
//     [Client.Adopt]. [Client.Shutdown] and [Client.Close] release all that is held.
//
// # What a lease is
//
// A lock in a network can be lost: the server can lose its data, the holder can be stopped
// for longer than the TTL, the network can be cut. dlock ends the holder's lease before the
// server can grant the lock again, and reports the end by [Lease.Context], [Lease.Lost] and
// [Lease.Err]. No client can prevent that a process is stopped between its check of the
// lease and its write. Each lease therefore has a [Lease.Fence], greater than the fences of
// all earlier holders. A resource that a [Mutex] protects, keeps the highest fence it has
// received and refuses lower ones is safe in any case.
//
// # Waiting, renewing, releasing
//
// Lock waits until it acquires the lock or its context ends. The context does not limit the
// lease, which is renewed in the background until Unlock. Unlock works on a context that
// has ended, so that "defer lease.Unlock(ctx)" releases the lock in any case. Without it the
// program has to keep the [Lease]: without a reference to it, it is not renewed.
//
// # Time
//
// The server keeps a lock for its TTL after the last answered request. The holder counts the
// same time on its own clocks, from before it sent that request, and ends the lease earlier by
// 1 % and 10 ms. So the clocks of two machines may differ, as long as their speeds differ by
// less than 1 %. Of the monotonic and the wall clock, the greater advance counts.
//
// # Errors
//
// Methods return an [*Error], which wraps one of the sentinels of this package, such as
// [ErrNotAcquired] or [ErrLost]. Test for them with errors.Is.
//
// # Concurrency
//
// All methods of all types are safe for concurrent use.
package dlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/engine"
)

// Client is a connection to a lock server. [Open] and [New] make one; the zero Client is
// not usable. A process usually needs one Client per server. The goroutines that wait for a
// name in one Client are one contender on the server, and hand the lock to each other.
//
// A Client has goroutines and connections until [Client.Close]; the garbage collector does not
// end it. A held lock needs no goroutine. After Close every attempt to acquire a lock
// returns ErrClosed.
type Client struct {
	driver    backend.Driver
	inspector backend.Inspector
	breaker   backend.Breaker
	engine    *engine.Engine
	closing   sync.Once     // done by the first Close or Shutdown
	closed    chan struct{} // closed when that has returned

	backend string // for errors and events
	prefix  string
	caps    backend.Capabilities
	config  config
}

// openTimeout limits Open where ctx does not.
const openTimeout = 10 * time.Second

// Open connects to the server of rawURL and probes it, so that a bad address, password or
// parameter is reported here and not at the first Lock. It blocks until ctx ends, and for
// 10 s at most; ctx does not limit the life of the client.
//
// The schemes are the schemes of the imported drivers. In addition to the driver's own
// parameters every URL takes
//
//	prefix   is put before each name
//	ttl      is the default TTL, as in WithTTL
//	fair     is 1 for WithFair
//	require  is a list, joined by commas, of fair, shared, permit, fence,
//	         fence-durable, list, break and move; see WithRequire
//
// An unknown scheme or parameter is an error. Open returns ErrUnavailable if the server
// cannot be reached, and ErrUnsupported if the backend does not have what the options
// require. No error text contains a credential.
func Open(ctx context.Context, rawURL string, opts ...Option) (*Client, error) {
	c, err := open(ctx, rawURL, opts)
	if err != nil {
		return nil, &Error{Op: "open", Err: err}
	}
	return c, nil
}

func open(ctx context.Context, rawURL string, opts []Option) (*Client, error) {
	if ctx == nil {
		return nil, errors.New("the context is nil")
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
	u.TTL = cfg.TTL
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

// New returns a client over an existing driver, for example a driver that shares the
// application's own connection. It does not block. Close closes d, but not a connection
// that was lent to d. So d can have one Client only: the first Close would leave the second
// Client without a driver. If New fails, d is not closed. It returns ErrUnsupported if the
// backend does not have what the options require.
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

// driverName returns redis for a *redisbackend.driver. New has no URL with a scheme, so errors and
// events have this name instead. A handle of Export has it, too: it must not depend on the scheme,
// because the schemes redis and rediss can lead to one server.
func driverName(d backend.Driver) string {
	pkg, _, _ := strings.Cut(strings.TrimLeft(reflect.TypeOf(d).String(), "*"), ".")
	return strings.TrimSuffix(pkg, "backend")
}

// newClient checks the options against the driver and then starts the engine. The engine has a
// goroutine until Close, so it starts only when nothing can fail any more. If newClient fails, d is
// still open: Open closes it, and New leaves it to its caller.
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
		driver: d, closed: make(chan struct{}),
		backend: name, prefix: prefix, caps: caps, config: cfg,
	}
	c.inspector, _ = d.(backend.Inspector)
	c.breaker, _ = d.(backend.Breaker)
	c.engine = engine.New(engine.Config{Driver: d, Notify: c.notify, Kinds: cfg.kinds()})
	if caps.Session && caps.MaxTTL > cfg.TTL {
		c.engine.Log(slog.LevelInfo, "the locks of a process that dies are freed with its "+
			"session, which serves longer TTLs",
			slog.Duration("longest", caps.MaxTTL), slog.Duration("ttl", cfg.TTL))
	}
	return c, nil
}

// Capabilities returns what the backend can do. It is constant and does not block. It is about
// the server and the settings that the client was opened with, so two clients of one scheme can
// have different capabilities.
func (c *Client) Capabilities() backend.Capabilities { return c.caps }

// Close ends every lease, whose Err is then ErrClosed, and wakes the waiters, which return
// ErrClosed. Then it releases the locks and closes the driver.
//
// It blocks until the minimum holds are over (see [WithMinHold]) and for at most 5 s more.
// What is not released by then, the server frees at the end of the TTL. Use
// [Client.Shutdown] for another limit. A driver whose calls do not return delays both by
// 1 s, and by 5 s if its own Close is one of them. It returns the driver's error. A second
// call waits for the first one and returns nil.
//
// Close waits for calls of the client's methods, but not for work under a lease, such as a
// function of [Client.Do]. The contexts of the leases end, and other clients can acquire the
// locks. Work that must finish under its lock has to finish before Close.
//
// Close may be called in the body of a loop over [Client.List], which then ends with
// ErrClosed, and in a function of an [Observer].
func (c *Client) Close() error {
	return c.shutDown(context.Background(), "close", c.engine.Close)
}

// Shutdown is Close, but ctx alone limits how long it waits. When ctx ends, the locks that
// are kept for their minimum hold and the locks whose release was not answered are left to
// the end of their TTL. The error then has their number, and wraps ctx's error. It also has
// the number of calls that are still under way. Shutdown closes the driver in any case, so no
// later call is necessary. A nil ctx sets no limit.
//
// If ctx is a context of one of the client's leases, Shutdown ends it. That does not count:
// Shutdown then waits until the deadline of ctx, or for as long as Close if ctx has none.
func (c *Client) Shutdown(ctx context.Context) error {
	if ctx == nil {
		ctx = context.Background()
	}
	return c.shutDown(ctx, "shutdown", func() error { return c.engine.Shutdown(ctx) })
}

// shutDown ends the client once. A later call waits for the first one, until ctx ends.
func (c *Client) shutDown(ctx context.Context, op string, end func() error) error {
	done := ctx.Done() // code of a user, which may not return
	first := false
	c.closing.Do(func() { first = true })
	if !first {
		return c.wrap(op, "", c.awaitClose(ctx, done))
	}
	defer close(c.closed)
	return c.wrap(op, "", end())
}

// awaitClose waits for the first Close or Shutdown, until done, the channel of ctx, is closed. If
// the first call has ended ctx, awaitClose waits until the deadline of ctx.
func (c *Client) awaitClose(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-c.closed:
		return nil
	case <-done:
	}
	select {
	case <-c.closed: // both have ended
		return nil
	default:
	}
	if !c.engine.EndedByClose(ctx) {
		return engine.ContextError(ctx)
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		<-c.closed
		return nil
	}
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	return c.awaitClose(ctx, ctx.Done())
}
