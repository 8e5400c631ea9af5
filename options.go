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
)

const (
	defaultTTL          = 30 * time.Second
	leastTTL            = 50 * time.Millisecond // a fifth of it is margin
	defaultHandoff      = 16
	maxHandoff          = 1<<handoffBits - 1
	handoffBits         = 12
	defaultPollInterval = 250 * time.Millisecond
)

// Option sets one property of a lock, or of all locks of a client if given to
// Open or New. The option of a lock wins over the parameter in the URL, which
// wins over the option of Open or New.
type Option func(*config)

// config is what options set.
type config struct {
	settings
	require  backend.Capabilities
	logger   *slog.Logger
	observer *Observer
	ofClient bool // require, logger or observer was given
}

// settings is the part that a lock may have of its own.
type settings struct {
	ttl          time.Duration
	ttlGiven     bool
	fair         bool
	reentrant    bool
	noRenewal    bool
	lockDelay    time.Duration
	minHold      time.Duration
	maxHold      time.Duration
	handoff      int
	meta         string
	pollInterval time.Duration
}

// WithTTL sets for how long the server keeps the lock when it hears nothing from
// its holder: by default 30 s, or as near to that as the server's bounds let. The lease is renewed after a third of it. A
// holder that dies blocks the lock for one TTL; on backends with sessions, for the
// session's timeout, which follows the TTL of the client and not that of a lock. A server that is away for longer costs the lease. It is
// rounded up to the server's granularity; beyond the server's bounds it is
// ErrUnsupported.
func WithTTL(d time.Duration) Option { return func(c *config) { c.ttl, c.ttlGiven = d, true } }

// WithFair makes the waiters of different clients queue: who waits first is
// served first, by the arrival of the first waiter of each client; inside a
// client waiters always queue. ErrUnsupported where the backend cannot.
func WithFair() Option { return func(c *config) { c.fair = true } }

// WithReentrant lets a context from [Lease.Context] lock its own name again: the
// new lease shares the grant, the fence and the deadline, and the lock is freed with
// the last of them. It is needed at each Lock that takes part. Without it,
// Lock on such a context fails at once with ErrNotAcquired.
func WithReentrant() Option { return func(c *config) { c.reentrant = true } }

// WithoutRenewal lets the lease end after one TTL, unless Extend is called.
func WithoutRenewal() Option { return func(c *config) { c.noRenewal = true } }

// WithLockDelay keeps the lock closed for d after its holder has lost it, so that
// what the holder sent before can still arrive; an Unlock frees at once.
// ErrUnsupported on backends without a TTL on the server.
func WithLockDelay(d time.Duration) Option { return func(c *config) { c.lockDelay = d } }

// WithMinHold keeps the lock for d from its start even if Unlock, which still
// returns at once, is called sooner: for a job that must run once, on machines whose
// clocks differ. [Client.Close] waits for it. If the process dies, the lock
// is freed with its TTL.
func WithMinHold(d time.Duration) Option { return func(c *config) { c.minHold = d } }

// WithMaxHold ends the lease at d from its start, as lost, however often it is
// renewed.
func WithMaxHold(d time.Duration) Option { return func(c *config) { c.maxHold = d } }

// WithLocalHandoff sets how often in a row Unlock may pass the lock to the next
// waiter of the same client without a trip to the server: 16 by default, 4095 at
// most, 0 never. Each hand-off has its own fence, and a lock is never passed on for
// longer than the lesser of 100 ms and a tenth of the TTL, so that other clients
// have their turn.
func WithLocalHandoff(n int) Option { return func(c *config) { c.handoff = n } }

// WithMeta sets what Inspect shows of the holder; by default program@host:pid.
func WithMeta(meta string) Option { return func(c *config) { c.meta = meta } }

// WithPollInterval bounds the pause between two attempts on backends whose
// server cannot wake a waiter; 250 ms by default. Pauses begin at a fiftieth of
// it, are jittered, and grow as long as the lock does not change hands. Other
// backends ignore it.
func WithPollInterval(d time.Duration) Option { return func(c *config) { c.pollInterval = d } }

// WithRequire makes Open and New fail with ErrUnsupported unless the backend has
// at least these capabilities. Not an option of a single lock.
func WithRequire(minimum backend.Capabilities) Option {
	return func(c *config) { c.require, c.ofClient = minimum, true }
}

// WithLogger sets where the client tells what it does behind its callers: leases
// lost or dropped, renewals and releases that fail. Silent by default. Not an
// option of a single lock.
func WithLogger(logger *slog.Logger) Option {
	return func(c *config) { c.logger, c.ofClient = logger, true }
}

// WithObserver sets the functions to call as leases come and go. Not an option
// of a single lock.
func WithObserver(observer *Observer) Option {
	return func(c *config) { c.observer, c.ofClient = observer, true }
}

// newConfig applies the options of Open or New to the defaults.
func newConfig(opts []Option) config {
	c := config{settings: settings{
		ttl: defaultTTL, handoff: defaultHandoff, meta: defaultMeta(), pollInterval: defaultPollInterval,
	}}
	c.apply(opts)
	if c.logger == nil {
		c.logger = slog.New(slog.DiscardHandler)
	}
	if c.observer == nil {
		c.observer = &Observer{}
	}
	return c
}

func (c *config) apply(opts []Option) {
	for _, opt := range opts {
		if opt != nil {
			opt(c)
		}
	}
}

// defaultMeta is program@host:pid, or less where their names could not be a meta.
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

// fitTTL brings the default into the bounds of the server.
func (s *settings) fitTTL(caps backend.Capabilities) {
	if s.ttlGiven {
		return
	}
	s.ttl = max(s.ttl, caps.MinTTL)
	if caps.MaxTTL > 0 {
		s.ttl = min(s.ttl, caps.MaxTTL-s.lockDelay)
	}
}

// check tells whether a lock with these settings can exist on a backend.
func (s *settings) check(caps backend.Capabilities) error {
	least, most := s.ttl+s.lockDelay, caps.MaxTTL
	switch {
	case s.ttl <= 0:
		return fmt.Errorf("TTL %v: it must be greater than 0", s.ttl)
	case s.lockDelay < 0 || s.minHold < 0 || s.maxHold < 0:
		return errors.New("lock-delay, minimum and maximum hold cannot be negative")
	case s.maxHold > 0 && s.minHold > s.maxHold:
		return fmt.Errorf("minimum hold %v is longer than the maximum hold %v", s.minHold, s.maxHold)
	case s.handoff < 0 || s.handoff > maxHandoff:
		return fmt.Errorf("local hand-off %d: it must be 0 to %d", s.handoff, maxHandoff)
	case s.pollInterval <= 0:
		return fmt.Errorf("poll interval %v: it must be greater than 0", s.pollInterval)
	case s.meta != "" && key.Validate(s.meta) != nil:
		return fmt.Errorf("meta: %w", key.Validate(s.meta))
	case s.ttl < max(caps.MinTTL, leastTTL):
		return fmt.Errorf("%w: TTL %v is below the least of %v", ErrUnsupported, s.ttl, max(caps.MinTTL, leastTTL))
	case least < s.ttl:
		return fmt.Errorf("%w: TTL and lock-delay are too long together", ErrUnsupported)
	case most > 0 && least > most:
		return fmt.Errorf("%w: TTL and lock-delay of %v are above the most of %v", ErrUnsupported, least, most)
	case s.lockDelay > 0 && caps.Session:
		return fmt.Errorf("%w: lock-delay needs a TTL on the server", ErrUnsupported)
	case s.fair && caps.Fair == backend.FairNo:
		return fmt.Errorf("%w: fair", ErrUnsupported)
	}
	return nil
}

// takeURL takes the parameters that are the core's own.
func (c *config) takeURL(u *backend.URL) (prefix string, err error) {
	u.TakeString("prefix", &prefix)
	if prefix != "" {
		if err := key.Validate(prefix); err != nil {
			return "", fmt.Errorf("parameter %q: %w", "prefix", err)
		}
	}
	var ttl time.Duration
	err = errors.Join(u.TakeDuration("ttl", &ttl), u.TakeBool("fair", &c.fair))
	if ttl > 0 {
		WithTTL(ttl)(c)
	}
	if words, ok := u.Take("require"); ok && err == nil {
		err = requireWords(words, &c.require)
	}
	return prefix, err
}

// requireWords adds to minimum what the URL parameter require names.
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
			return errors.New(`parameter "require": it takes fair, shared, permit, fence, fence-durable, list, break and move, joined by commas`)
		}
	}
	return nil
}
