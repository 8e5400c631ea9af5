package conformance

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

var capabilityCases = []Case{
	{
		Name: "CapabilitiesMatchTheDriver",
		Promise: "A driver implements every capability that it claims, always claims the same " +
			"ones, and can lock exclusively.",
		run: capabilitiesMatchTheDriver,
	},
	{
		Name: "UnclaimedModesAreRefused",
		Promise: "A request in a mode that the driver does not claim returns ErrUnsupported and " +
			"leaves nothing on the server. So do RWMutex and Semaphore of a client.",
		run: unclaimedModesAreRefused,
	},
	{
		Name: "UnclaimedMovesAreRefused",
		Promise: "Where the driver does not claim it, Export, Adopt and Downgrade return " +
			"ErrUnsupported, and the lease stays held.",
		run: unclaimedMovesAreRefused,
	},
	{
		Name: "UnclaimedFairnessIsRefused",
		Promise: "Where the driver does not claim a queue, WithFair returns ErrUnsupported at " +
			"construction; otherwise a fair lock is granted.",
		run: unclaimedFairnessIsRefused,
	},
	{
		Name: "RequireIsAMinimum",
		Promise: "New accepts a WithRequire that the backend meets, and returns ErrUnsupported " +
			"if WithRequire demands more.",
		run: requireIsAMinimum,
	},
	{
		Name: "TTLsOutOfBoundsAreRefused",
		Promise: "A TTL of zero, a negative TTL and a TTL beyond the backend's bounds are errors " +
			"at construction.",
		run: ttlsOutOfBoundsAreRefused,
	},
	{
		Name: "BadOptionsAreRefused",
		Promise: "Invalid values, invalid combinations of options, and options of a client on a " +
			"single lock are errors at construction.",
		run: badOptionsAreRefused,
	},
	{
		Name: "SessionsEndWithTheirConnection",
		Promise: "If grants live with a connection, closing it frees them at once; otherwise " +
			"they last until the end of their term.",
		run: sessionsEndWithTheirConnection,
	},
}

func capabilitiesMatchTheDriver(f *fixture) {
	d := f.driver()
	_, waits := d.(backend.Waiter)
	_, inspects := d.(backend.Inspector)
	_, breaks := d.(backend.Breaker)
	_, moves := d.(backend.Mover)
	for what, wrong := range map[string]bool{
		"Modes without Exclusive":      f.caps.Modes&backend.Exclusive == 0,
		"Notify without a Waiter":      f.caps.Notify && !waits,
		"Inspect without an Inspector": f.caps.Inspect && !inspects,
		"List without Inspect":         f.caps.List && !f.caps.Inspect,
		"Break without a Breaker":      f.caps.Break && !breaks,
		"Move without a Mover":         f.caps.Move && !moves,
		"MinTTL above MaxTTL":          f.caps.MaxTTL > 0 && f.caps.MinTTL > f.caps.MaxTTL,
		"negative bounds":              f.caps.MinTTL < 0 || f.caps.MaxTTL < 0 || f.caps.Late < 0,
		"no TTL between 1 s and 2 min": f.caps.MaxTTL > 0 && f.caps.MaxTTL < time.Second ||
			f.caps.MinTTL > 2*time.Minute,
		"other capabilities from the second call": d.Capabilities() != f.caps,
		"other capabilities from the client":      f.client().Capabilities() != f.caps,
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
		f.isErr("Release after the refusal",
			f.tryRelease(f.ctx, d, &backend.Grant{Request: *req}), backend.ErrNotHeld)
	}
	c := f.client()
	if f.caps.Modes&backend.Shared == 0 {
		_, err := c.RWMutex(f.name)
		f.isErr("RWMutex", err, dlock.ErrUnsupported)
	}
	if f.caps.Modes&backend.Permit == 0 {
		_, err := c.Semaphore(f.name, 2)
		f.isErr("Semaphore", err, dlock.ErrUnsupported)
	}
	f.release(d, f.grant(d, f.try(f.long())))
}

func unclaimedMovesAreRefused(f *fixture) {
	c := f.client()
	lease := f.lock(c, f.name)
	if !f.caps.Move {
		_, err := lease.Export(f.ctx)
		f.isErr("Export", err, dlock.ErrUnsupported)
		_, err = c.Adopt(f.ctx, f.handle(lease))
		f.isErr("Adopt", err, dlock.ErrUnsupported)
	}
	if f.caps.Modes&backend.Shared == 0 {
		f.isErr("Downgrade", lease.Downgrade(f.ctx), dlock.ErrUnsupported)
	}
	f.held(c, lease)
	f.unlock(lease)
}

func unclaimedFairnessIsRefused(f *fixture) {
	c := f.client()
	m, err := c.Mutex(f.name, dlock.WithFair(), dlock.WithTTL(f.long()))
	if f.caps.Fair == backend.FairNo {
		f.isErr("WithFair", err, dlock.ErrUnsupported)
		return
	}
	if err != nil {
		f.Fatalf("WithFair: %v", err)
	}
	lease, err := m.TryLock(f.ctx)
	if err != nil {
		f.Fatalf("TryLock of a fair lock: %v", err)
	}
	f.held(c, lease)
	f.unlock(lease)
}

// handle returns a handle for the lock of lease, as a process of another version of the backend may
// have exported it.
func (f *fixture) handle(lease *dlock.Lease) string {
	driver := strings.TrimLeft(reflect.TypeOf(f.driver()).String(), "*")
	pkg, _, _ := strings.Cut(driver, ".")
	text, err := json.Marshal(map[string]any{
		"b": strings.TrimSuffix(pkg, "backend"), "n": lease.Name(), "m": backend.Exclusive,
		"t": f.long(), "k": lease.Owner() + ".x",
	})
	if err != nil {
		f.Fatalf("a handle: %v", err)
	}
	return "dlock1." + base64.RawURLEncoding.EncodeToString(text)
}

func requireIsAMinimum(f *fixture) {
	minimum := f.caps
	minimum.Late = 0 // a property of the server, not a feature to require
	d := f.driver()
	if c, err := dlock.New(d, dlock.WithRequire(minimum)); err != nil {
		f.Errorf("New with the backend's own capabilities: %v", err)
	} else if f.closers = f.closers[:len(f.closers)-1]; c.Close() != nil {
		f.Errorf("Close")
	}
	type caps = backend.Capabilities
	more := map[string]func(*caps) bool{
		"modes":   func(c *caps) bool { c.Modes = ^c.Modes & 7; return c.Modes != 0 },
		"fair":    func(c *caps) bool { c.Fair++; return f.caps.Fair < backend.FairAlways },
		"fencing": func(c *caps) bool { c.Fencing++; return f.caps.Fencing < backend.FenceDurable },
		"inspect": func(c *caps) bool { c.Inspect = true; return !f.caps.Inspect },
		"list":    func(c *caps) bool { c.List = true; return !f.caps.List },
		"break":   func(c *caps) bool { c.Break = true; return !f.caps.Break },
		"move":    func(c *caps) bool { c.Move = true; return !f.caps.Move },
		"notify":  func(c *caps) bool { c.Notify = true; return !f.caps.Notify },
		"MinTTL":  func(c *caps) bool { c.MinTTL--; return f.caps.MinTTL > 1 },
		"MaxTTL":  func(c *caps) bool { c.MaxTTL++; return f.caps.MaxTTL > 0 },
	}
	d = f.driver()
	for what, raise := range more {
		too := minimum
		if !raise(&too) {
			continue
		}
		_, err := dlock.New(d, dlock.WithRequire(too))
		f.isErr("New with more "+what+" than the backend has", err, dlock.ErrUnsupported)
	}
	f.release(d, f.grant(d, f.try(f.long()))) // New did not close the driver
}

func ttlsOutOfBoundsAreRefused(f *fixture) {
	c, t := f.tapped()
	// The value true means that the error is ErrUnsupported.
	beyond := map[time.Duration]bool{0: false, -time.Second: false, math.MinInt64: false}
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
			f.Errorf("Mutex with a TTL of %v, which is a bound: %v", ttl, err)
		}
	}
	if n := t.number(acquire); n != 0 {
		f.Errorf("the client sent %d requests", n)
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
		ttl = f.long() // so long that only the closed connection frees the lock at once
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
		f.inTime("the lock is freed after its connection was closed", begun, at)
	} else {
		f.notBefore("the lock is freed before its term ends, as with a Session", endOf(g.Term), at)
	}
	if f.caps.Session && f.caps.MinTTL > 0 {
		f.Logf("%s", fmt.Sprint("terms from ", f.caps.MinTTL))
	}
}
