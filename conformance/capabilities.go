package conformance

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

var capabilityCases = []Case{
	{Name: "CapabilitiesMatchTheDriver", Promise: "What a driver claims it implements, it claims the same at all times, and every driver can lock exclusively.", run: capabilitiesMatchTheDriver},
	{Name: "UnclaimedModesAreRefused", Promise: "A mode that is not claimed is ErrUnsupported, and nothing of the request remains.", run: unclaimedModesAreRefused},
	{Name: "RequireIsAMinimum", Promise: "WithRequire of what the backend can is met, of anything more it is ErrUnsupported at New.", run: requireIsAMinimum},
	{Name: "TTLsOutOfBoundsAreRefused", Promise: "A TTL of zero, below zero, or beyond the backend's bounds is an error at construction.", run: ttlsOutOfBoundsAreRefused},
	{Name: "BadOptionsAreRefused", Promise: "Options that make no sense, alone or for a single lock, are errors at construction.", run: badOptionsAreRefused},
	{Name: "SessionsEndWithTheirConnection", Promise: "Where grants live with a connection, its Close frees them at once; elsewhere it leaves them to their term.", run: sessionsEndWithTheirConnection},
}

func capabilitiesMatchTheDriver(f *fixture) {
	d := f.driver()
	_, waits := d.(backend.Waiter)
	_, inspects := d.(backend.Inspector)
	_, breaks := d.(backend.Breaker)
	_, moves := d.(backend.Mover)
	for what, wrong := range map[string]bool{
		"Modes without Exclusive":                 f.caps.Modes&backend.Exclusive == 0,
		"Notify without a Waiter":                 f.caps.Notify && !waits,
		"Inspect without an Inspector":            f.caps.Inspect && !inspects,
		"List without Inspect":                    f.caps.List && !f.caps.Inspect,
		"Break without a Breaker":                 f.caps.Break && !breaks,
		"Move without a Mover":                    f.caps.Move && !moves,
		"MinTTL above MaxTTL":                     f.caps.MaxTTL > 0 && f.caps.MinTTL > f.caps.MaxTTL,
		"negative bounds":                         f.caps.MinTTL < 0 || f.caps.MaxTTL < 0 || f.caps.Late < 0,
		"no TTL of a second or less than 2 min":   f.caps.MaxTTL > 0 && f.caps.MaxTTL < time.Second || f.caps.MinTTL > 2*time.Minute,
		"other capabilities at the second glance": d.Capabilities() != f.caps,
		"other capabilities above the core":       f.client().Capabilities() != f.caps,
	} {
		if wrong {
			f.Errorf("%s: %+v", what, f.caps)
		}
	}
}

func unclaimedModesAreRefused(f *fixture) {
	d := f.driver()
	for _, mode := range []backend.Mode{backend.Shared, backend.Permit} {
		if f.caps.Modes&mode != 0 {
			continue
		}
		req := f.request(f.long())
		req.Mode = mode
		if mode == backend.Permit {
			req.Limit = 2
		}
		_, err := f.acquire(d, req)
		f.isErr("Acquire in mode "+mode.String(), err, backend.ErrUnsupported)
		f.isErr("Release of it", f.tryRelease(f.ctx, d, &backend.Grant{Request: *req}), backend.ErrNotHeld)
	}
	f.release(d, f.grant(d, f.try(f.long())))
}

func requireIsAMinimum(f *fixture) {
	minimum := f.caps
	minimum.Late = 0 // a fact, not a merit
	d := f.driver()
	if c, err := dlock.New(d, dlock.WithRequire(minimum)); err != nil {
		f.Errorf("New with what the backend can: %v", err)
	} else if f.closers = f.closers[:len(f.closers)-1]; c.Close() != nil {
		f.Errorf("Close")
	}
	more := map[string]func(*backend.Capabilities) bool{
		"modes":   func(c *backend.Capabilities) bool { c.Modes = ^c.Modes & 7; return c.Modes != 0 },
		"fair":    func(c *backend.Capabilities) bool { c.Fair++; return f.caps.Fair < backend.FairAlways },
		"fencing": func(c *backend.Capabilities) bool { c.Fencing++; return f.caps.Fencing < backend.FenceDurable },
		"inspect": func(c *backend.Capabilities) bool { c.Inspect = true; return !f.caps.Inspect },
		"list":    func(c *backend.Capabilities) bool { c.List = true; return !f.caps.List },
		"break":   func(c *backend.Capabilities) bool { c.Break = true; return !f.caps.Break },
		"move":    func(c *backend.Capabilities) bool { c.Move = true; return !f.caps.Move },
		"notify":  func(c *backend.Capabilities) bool { c.Notify = true; return !f.caps.Notify },
		"MinTTL":  func(c *backend.Capabilities) bool { c.MinTTL--; return f.caps.MinTTL > 1 },
		"MaxTTL":  func(c *backend.Capabilities) bool { c.MaxTTL++; return f.caps.MaxTTL > 0 },
	}
	d = f.driver()
	for what, raise := range more {
		too := minimum
		if !raise(&too) {
			continue
		}
		_, err := dlock.New(d, dlock.WithRequire(too))
		f.isErr("New with more "+what+" than the backend can", err, dlock.ErrUnsupported)
	}
	f.release(d, f.grant(d, f.try(f.long()))) // New has not closed it
}

func ttlsOutOfBoundsAreRefused(f *fixture) {
	c, t := f.tapped()
	beyond := map[time.Duration]bool{0: false, -time.Second: false, math.MinInt64: false} // true: ErrUnsupported
	if f.caps.MinTTL > 1 {
		beyond[f.caps.MinTTL-1] = true
		beyond[1] = true
	}
	if f.caps.MaxTTL > 0 {
		beyond[f.caps.MaxTTL+1] = true
		beyond[math.MaxInt64] = true
	}
	for ttl, unsupported := range beyond {
		_, err := c.Mutex(f.name, dlock.WithTTL(ttl))
		if err == nil || unsupported && !errors.Is(err, dlock.ErrUnsupported) {
			f.Errorf("Mutex with a TTL of %v: %v", ttl, err)
		}
		if _, err = c.TryLock(f.ctx, f.name, dlock.WithTTL(ttl)); err == nil {
			f.Errorf("TryLock with a TTL of %v: nil", ttl)
		}
		if _, err = dlock.New(t, dlock.WithTTL(ttl)); err == nil {
			f.Errorf("New with a TTL of %v: nil", ttl)
		}
	}
	for _, ttl := range []time.Duration{f.caps.MinTTL, f.caps.MaxTTL} {
		if ttl <= 0 {
			continue
		}
		if _, err := c.Mutex(f.name, dlock.WithTTL(ttl)); err != nil {
			f.Errorf("Mutex with a TTL of %v, a bound: %v", ttl, err)
		}
	}
	if n := t.number(acquire); n != 0 {
		f.Errorf("the server was asked %d times", n)
	}
}

func badOptionsAreRefused(f *fixture) {
	c := f.client()
	for i, opts := range [][]dlock.Option{
		{dlock.WithLocalHandoff(-1)},
		{dlock.WithLocalHandoff(4096)},
		{dlock.WithMinHold(-1)},
		{dlock.WithMaxHold(-1)},
		{dlock.WithLockDelay(-1)},
		{dlock.WithMinHold(2 * time.Second), dlock.WithMaxHold(time.Second)},
		{dlock.WithPollInterval(0)},
		{dlock.WithRequire(backend.Capabilities{})},
		{dlock.WithObserver(&dlock.Observer{})},
		{dlock.WithLogger(nil)},
	} {
		if _, err := c.Mutex(f.name, opts...); err == nil {
			f.Errorf("Mutex with the options of row %d: nil", i)
		}
	}
	if _, err := dlock.New(nil); err == nil {
		f.Errorf("New without a driver: nil")
	}
}

func sessionsEndWithTheirConnection(f *fixture) {
	d, closeDriver := f.open()
	other := f.driver()
	ttl := f.brief()
	if f.caps.Session {
		ttl = f.long() // whose end is no way to be free at once
	}
	g := f.grant(d, f.try(ttl))
	closeDriver()
	begun := time.Now()
	due := endOf(g.Term)
	if f.caps.Session {
		due = begun
	}
	at, _ := f.takeOver(other, due)
	if f.caps.Session {
		f.inTime("freed after the connection was closed", begun, at)
	} else {
		f.notBefore("freed before its term was over, as a Session is", endOf(g.Term), at)
	}
	if f.caps.Session && f.caps.MinTTL > 0 {
		f.Logf("%s", fmt.Sprint("terms from ", f.caps.MinTTL))
	}
}
