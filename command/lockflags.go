package command

import (
	"context"
	"time"

	"github.com/spf13/pflag"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

const (
	defaultTTL = 30 * time.Second // as in the library
	maxGrace   = 5 * time.Second
)

// The values of --on-lost: when the lock is lost, dlock ends the command, or lets it go on.
const (
	onLostKill     = "kill"
	onLostContinue = "continue"
)

// lockFlags are the flags of the commands that hold a lock.
type lockFlags struct {
	connection
	ttl, wait        time.Duration
	minHold, maxHold time.Duration
	grace            time.Duration
	headroom         time.Duration // computed from the other values
	fair             bool
	meta             string
	onLost           string
	conflictCode     int
	try              bool // dlock does not wait
	leave            bool // processes that the command leaves behind go on without the lock
	shared           bool
	limit            int  // of a semaphore, else 0
	elect            bool // the command runs again and again, whenever this process leads
}

func (f *lockFlags) register(flags *pflag.FlagSet) {
	f.connection.register(flags)
	addDuration(flags, &f.ttl, "ttl", "", 0,
		"the server frees the lock of a silent holder after `DURATION` "+
			"(default: the URL's ttl, else 30s)")
	flags.BoolVar(&f.fair, "fair", false, "queue in the order of arrival")
	addDuration(flags, &f.minHold, "min-hold", "", 0,
		"keep the lock for `DURATION` at least, also when COMMAND has ended")
	addDuration(flags, &f.maxHold, "max-hold", "", 0, "the lock counts as lost after `DURATION`")
	flags.BoolVarP(&f.leave, "close", "o", false,
		"processes that COMMAND leaves behind go on without the lock")
	flags.Var((*textValue)(&f.meta), "meta",
		"`TEXT` that status shows of the holder (default: dlock@host:pid)")
	addDuration(flags, &f.grace, "grace", "", 0, "`DURATION` between SIGTERM and SIGKILL "+
		"(default: 5s, at most a third of the TTL and of --max-hold)")
	flags.StringVar(&f.onLost, "on-lost", onLostKill,
		"what becomes of COMMAND when the lock is lost: `kill|continue`")
	f.conflictCode = exitNotAcquired
	if !f.elect {
		flags.IntVarP(&f.conflictCode, "conflict-exit-code", "E", exitNotAcquired,
			"exit `CODE` where the lock was not acquired in time")
	}
}

// registerKinds adds the flags of locks with several holders.
func (f *lockFlags) registerKinds(flags *pflag.FlagSet) {
	flags.BoolVar(&f.shared, "shared", false,
		"hold NAME together with other readers; holders without --shared exclude them")
	flags.IntVar(&f.limit, "limit", 0,
		"hold one of `N` permits of NAME; all users of NAME set the same N")
}

// settle checks the flags and computes the values that follow from them.
func (f *lockFlags) settle(rawURL string) (err error) {
	for _, name := range []string{"ttl", "min-hold", "max-hold"} {
		if d, err := f.flags.GetDuration(name); f.flags.Changed(name) && (err != nil || d <= 0) {
			return usagef("--%s must be greater than 0", name)
		}
	}
	switch {
	case f.wait < 0:
		return usagef("--wait cannot be negative")
	case f.maxHold > 0 && f.minHold > f.maxHold:
		return usagef("--min-hold is longer than --max-hold")
	case f.shared && f.limit != 0:
		return usagef("--shared and --limit exclude each other")
	case f.limit < 0 || f.limit == 0 && f.flags.Changed("limit"):
		return usagef("--limit must be 1 or more")
	case f.onLost != onLostKill && f.onLost != onLostContinue:
		return usagef("--on-lost must be %s or %s", onLostKill, onLostContinue)
	case f.conflictCode < 0 || f.conflictCode > 255:
		return usagef("--conflict-exit-code must be from 0 to 255")
	}
	if f.ttl == 0 {
		if f.ttl, err = ttlOf(rawURL, defaultTTL); err != nil {
			return err
		}
	}
	return f.settleGrace()
}

// fit lowers the TTL to the server's maximum, as the library does if the
// default is longer than that.
func (f *lockFlags) fit(caps backend.Capabilities) error {
	if caps.MaxTTL == 0 || f.ttl <= caps.MaxTTL {
		return nil
	}
	f.ttl = caps.MaxTTL
	return f.settleGrace()
}

// settleGrace sets or checks the grace. It leaves the command most of its time, which is the term
// or the maximum hold. It also leaves time for a renewal, which is due after a third of the term.
func (f *lockFlags) settleGrace() error {
	shortest := f.ttl
	if f.maxHold > 0 {
		shortest = min(f.ttl, f.maxHold)
	}
	f.headroom = min(headroom, shortest/8)
	switch {
	case !f.flags.Changed("grace"):
		f.grace = min(maxGrace, shortest/3)
	case f.grace < 0 || f.grace > f.ttl/3:
		return usagef("--grace must be from 0 to a third of the TTL, which is %v", f.ttl/3)
	case f.grace+f.headroom >= shortest:
		return usagef("--grace leaves COMMAND nothing of --max-hold")
	}
	return nil
}

// options returns the options of the lock. A value without a flag is left to the URL.
func (f *lockFlags) options() []dlock.Option {
	var opts []dlock.Option
	set := func(flag string, opt dlock.Option) {
		if f.flags.Changed(flag) {
			opts = append(opts, opt)
		}
	}
	set("ttl", dlock.WithTTL(f.ttl))
	set("min-hold", dlock.WithMinHold(f.minHold))
	set("max-hold", dlock.WithMaxHold(f.maxHold))
	set("meta", dlock.WithMeta(f.meta))
	if f.fair {
		opts = append(opts, dlock.WithFair())
	}
	return opts
}

// locker returns the call that acquires the lock, as the flags require. If now is true, the call
// does not wait.
func (f *lockFlags) locker(
	c *dlock.Client, name string, now bool,
) (lock func(context.Context) (*dlock.Lease, error), err error) {
	now = now || f.try || f.wait == 0 && f.flags.Changed("wait")
	wait, try := lock, lock
	switch {
	case f.shared:
		var m dlock.RWMutex
		if m, err = c.RWMutex(name, f.options()...); err == nil {
			wait, try = m.RLock, m.TryRLock
		}
	case f.limit > 0:
		var s dlock.Semaphore
		if s, err = c.Semaphore(name, f.limit, f.options()...); err == nil {
			wait, try = s.Acquire, s.TryAcquire
		}
	default:
		var m dlock.Mutex
		if m, err = c.Mutex(name, f.options()...); err == nil {
			wait, try = m.Lock, m.TryLock
		}
	}
	if now {
		return try, err
	}
	return wait, err
}
