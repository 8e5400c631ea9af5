package dlock

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/key"
	"github.com/dlock-go/dlock/internal/engine"
)

// The defaults and limits of the options.
const (
	defaultTTL          = 30 * time.Second
	minTTL              = 50 * time.Millisecond // a fifth of it is margin
	defaultHandoff      = 16
	maxHandoff          = 1<<engine.HandoffBits - 1
	defaultPollInterval = 250 * time.Millisecond
)

// Option sets one property of a lock, or of all locks of a client if it is passed to Open
// or New. The option of a lock overrides the parameter of the URL, which overrides the
// option of Open or New. A bad value is reported by the function that the option is passed
// to.
type Option func(*config)

// config is what options set.
type config struct {
	settings
	require  backend.Capabilities
	logger   *slog.Logger
	observer *Observer
	ofClient bool // require, logger or observer was given
}

// settings is the part of config that each lock can have for itself.
type settings struct {
	engine.Settings
	ttlGiven bool
}

// WithTTL sets how long the server keeps the lock without a renewal. The default is 30 s,
// or the nearest value that the server allows. The minimum is 50 ms.
//
// The lease is renewed after a third of the TTL. A server that is away for less than a third of the
// TTL costs no lease. If it is away for longer, it depends on how long before that the last renewal
// was answered, and a whole TTL always costs the lease. A holder that dies blocks the lock for at
// most one TTL. On backends with sessions it blocks the lock until the session times out: that
// timeout follows the TTL of the client, not the TTL of a single lock.
//
// The TTL is rounded up to the server's granularity. A TTL outside the server's limits is
// ErrUnsupported.
func WithTTL(d time.Duration) Option { return func(c *config) { c.TTL, c.ttlGiven = d, true } }

// WithFair makes waiters of different clients queue on the server: the client whose first
// waiter came first is served first. A client loses its place if that waiter gives up before the
// server has answered its last request, or if the next one has another TTL or meta. Inside a client
// waiters always queue. A fair lock has no local hand-off. It is ErrUnsupported where the backend
// has no queue.
func WithFair() Option { return func(c *config) { c.Fair = true } }

// WithReentrant lets a context from [Lease.Context] lock its own name again. The new lease
// shares the grant, the fence and the deadline, and the lock is freed with the last of the
// leases. Each Lock that takes part needs the option. Without it, a Lock on such a context
// fails at once with ErrNotAcquired, because it would wait for itself.
//
// The options of the first Lock are in force for all leases. A later Lock that needs more is
// ErrUnsupported: a longer minimum hold or lock-delay, or a shorter maximum hold.
func WithReentrant() Option { return func(c *config) { c.Reentrant = true } }

// WithoutRenewal disables the background renewals: the lease ends after one TTL unless
// [Lease.Extend] is called.
func WithoutRenewal() Option { return func(c *config) { c.NoRenewal = true } }

// WithLockDelay keeps the lock closed for d after a loss, so that requests that the former
// holder sent before can still arrive. An Unlock before the loss frees the lock at once. The
// server keeps the lock for TTL + d without a renewal. A holder that dies blocks it for that
// long, and the sum must not exceed the longest TTL of the server. It is ErrUnsupported on
// backends without a TTL on the server. The default is 0.
func WithLockDelay(d time.Duration) Option { return func(c *config) { c.LockDelay = d } }

// WithMinHold keeps the lock for at least d after it was acquired, even if it is unlocked
// sooner; Unlock still returns at once. It is for a job that must run once, on machines
// whose clocks differ. [Client.Close] waits for the minimum hold and [Client.Shutdown] does
// until its context ends. A lease that the program forgets to unlock is renewed until the
// minimum hold is over. If the process dies, the lock is freed at the end of its TTL; so is a
// lock that [WithoutRenewal] left to its end. The default is 0.
func WithMinHold(d time.Duration) Option { return func(c *config) { c.MinHold = d } }

// WithMaxHold ends the lease, as lost, when it has been held for d, regardless of renewals.
// The lock is free when the holder calls Unlock, or at the end of its term; with a
// lock-delay it stays closed for that time, too. The default is no limit.
func WithMaxHold(d time.Duration) Option { return func(c *config) { c.MaxHold = d } }

// WithLocalHandoff sets how many times in a row Unlock may hand the lock to the next waiter
// of the same client without a request to the server. The default is 16, the maximum 4095;
// 0 disables hand-offs.
//
// Each hand-off has its own fence. A client keeps a lock by hand-offs for at most 100 ms or
// a tenth of the TTL, whichever is less, so that other clients get their turn.
func WithLocalHandoff(n int) Option { return func(c *config) { c.Handoff = n } }

// WithMeta sets the text that [Client.Inspect] shows for the holder. The default is
// program@host:pid. It must be valid as a name: at most 512 bytes of UTF-8 without control
// characters. The server stores it as it is, so it must not be a secret. There is no local
// hand-off between locks with different texts.
func WithMeta(meta string) Option { return func(c *config) { c.Meta = meta } }

// WithPollInterval sets the maximum pause between two attempts of a waiter on backends
// whose server cannot wake waiters. The default is 250 ms. Pauses start at a fiftieth of
// it, have jitter, and grow while the lock does not change hands. Other backends ignore the
// option.
func WithPollInterval(d time.Duration) Option { return func(c *config) { c.PollInterval = d } }

// WithRequire makes Open and New fail with ErrUnsupported unless the backend has at least
// these capabilities. It is not an option of a single lock. The parameter require of the URL
// adds to them.
func WithRequire(minimum backend.Capabilities) Option {
	return func(c *config) { c.require, c.ofClient = minimum, true }
}

// WithLogger sets the logger for what happens in the background: lost or dropped leases,
// failed renewals and releases, dropped events. Records are written asynchronously, in
// order, on the goroutine that also calls the [Observer]. The default is no log. It is not
// an option of a single lock.
//
// The level of a failed renewal is Info, because another one follows. The level of a lost lease is
// Warn, and the level of a panic in an Observer or a driver's Watch is Error.
func WithLogger(logger *slog.Logger) Option {
	return func(c *config) { c.logger, c.ofClient = logger, true }
}

// WithObserver sets the functions to call when leases begin and end; see [Observer]. It is
// not an option of a single lock.
func WithObserver(observer *Observer) Option {
	return func(c *config) { c.observer, c.ofClient = observer, true }
}

// newConfig applies the options of Open or New to the defaults.
func newConfig(opts []Option) config {
	var c config
	c.Settings = engine.Settings{
		Mode: backend.Exclusive, TTL: defaultTTL, Handoff: defaultHandoff, Meta: defaultMeta(),
		PollInterval: defaultPollInterval,
	}
	c.apply(opts)
	return c
}

func (c *config) apply(opts []Option) {
	for _, opt := range opts {
		if opt != nil {
			opt(c)
		}
	}
}

// defaultMeta is program@host:pid, or the pid alone if the names are not valid in a meta.
func defaultMeta() string {
	program, host := "go", "localhost"
	if len(os.Args) > 0 {
		program = filepath.Base(os.Args[0])
	}
	if name, err := os.Hostname(); err == nil {
		host = name
	}
	meta := fmt.Sprintf("%s@%s:%d", program, host, os.Getpid())
	if key.Validate(meta) != nil {
		return fmt.Sprintf("pid %d", os.Getpid())
	}
	return meta
}

// fitTTL brings the default TTL into the limits of the server. A TTL that was given is not
// changed, and neither is the default if the lock-delay leaves no room for a TTL: check reports
// both.
func (s *settings) fitTTL(caps backend.Capabilities) {
	if s.ttlGiven {
		return
	}
	s.TTL = max(s.TTL, caps.MinTTL)
	room := caps.MaxTTL - s.LockDelay
	if caps.MaxTTL > 0 && room >= shortestTTL(caps) {
		s.TTL = min(s.TTL, room)
	}
}

// shortestTTL returns the shortest TTL that a lock may have.
func shortestTTL(caps backend.Capabilities) time.Duration { return max(caps.MinTTL, minTTL) }

// check returns an error if a backend with these capabilities cannot have a lock with these
// settings. The error of a value that no backend could have, such as a negative hold, does not wrap
// ErrUnsupported: another backend would not help. Every backend has exclusive locks, even if its
// Modes are empty. The sum of TTL and lock-delay is less than the TTL if it has overflowed.
func (s *settings) check(caps backend.Capabilities) error {
	needed, limit := s.TTL+s.LockDelay, caps.MaxTTL
	switch {
	case s.Mode&^caps.Modes != 0 && s.Mode != backend.Exclusive:
		return fmt.Errorf("%w: mode %v", ErrUnsupported, s.Mode)
	case s.TTL <= 0:
		return fmt.Errorf("TTL %v: it must be greater than 0", s.TTL)
	case s.LockDelay < 0 || s.MinHold < 0 || s.MaxHold < 0:
		return errors.New("lock-delay, minimum and maximum hold cannot be negative")
	case s.MaxHold > 0 && s.MinHold > s.MaxHold:
		return fmt.Errorf("minimum hold %v is longer than the maximum hold %v",
			s.MinHold, s.MaxHold)
	case s.Handoff < 0 || s.Handoff > maxHandoff:
		return fmt.Errorf("local hand-off %d: it must be 0 to %d", s.Handoff, maxHandoff)
	case s.PollInterval <= 0:
		return fmt.Errorf("poll interval %v: it must be greater than 0", s.PollInterval)
	case s.Meta != "" && key.Validate(s.Meta) != nil:
		return fmt.Errorf("meta: %w", key.Validate(s.Meta))
	case s.TTL < shortestTTL(caps):
		return fmt.Errorf("%w: TTL %v is below the minimum of %v",
			ErrUnsupported, s.TTL, shortestTTL(caps))
	case s.LockDelay > 0 && caps.Session:
		return fmt.Errorf("%w: lock-delay needs a TTL on the server", ErrUnsupported)
	case needed < s.TTL:
		return fmt.Errorf("%w: TTL and lock-delay are too long together", ErrUnsupported)
	case limit > 0 && needed > limit:
		return fmt.Errorf("%w: TTL and lock-delay of %v are above the maximum of %v",
			ErrUnsupported, needed, limit)
	case s.Fair && caps.Fair == backend.FairNo:
		return fmt.Errorf("%w: fair", ErrUnsupported)
	}
	return nil
}

// takeURL takes the parameters that every URL has. The rest belongs to the driver.
func (c *config) takeURL(u *backend.URL) (prefix string, err error) {
	u.TakeString("prefix", &prefix)
	if prefix != "" {
		if err := key.Validate(prefix); err != nil {
			return "", fmt.Errorf("parameter %q: %w", "prefix", err)
		}
	}
	var ttl time.Duration
	err = errors.Join(u.TakeDuration("ttl", &ttl), u.TakeBool("fair", &c.Fair))
	if ttl > 0 {
		WithTTL(ttl)(c)
	}
	if words, ok := u.Take("require"); ok {
		err = errors.Join(err, requireWords(words, &c.require))
	}
	return prefix, err
}

// requireWords adds the words of the URL parameter require to minimum.
func requireWords(words string, minimum *backend.Capabilities) error {
	for word := range strings.SplitSeq(words, ",") {
		switch word {
		case "fair":
			minimum.Fair = max(minimum.Fair, backend.FairOptional)
		case "shared":
			minimum.Modes |= backend.Shared
		case "permit":
			minimum.Modes |= backend.Permit
		case "fence":
			minimum.Fencing = max(minimum.Fencing, backend.FenceVolatile)
		case "fence-durable":
			minimum.Fencing = backend.FenceDurable
		case "list":
			minimum.List = true
		case "break":
			minimum.Break = true
		case "move":
			minimum.Move = true
		default:
			return errors.New(`parameter "require": it takes fair, shared, permit, fence, ` +
				"fence-durable, list, break and move, joined by commas")
		}
	}
	return nil
}
