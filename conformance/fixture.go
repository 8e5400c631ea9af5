package conformance

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime/pprof"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

const (
	// prompt is the bound of what must happen at once: far below long and far
	// above what a loaded machine needs.
	prompt = 5 * time.Second
	// bound is how much later than a term's end the lock must be free: 500 ms
	// by the published figures, more on a loaded machine.
	bound = 3 * time.Second
	// limit ends a case that hangs.
	limit = time.Minute
	// nap is the pause between two looks at something that nobody signals.
	nap = 10 * time.Millisecond
)

// fixture is what a case works with.
type fixture struct {
	TB
	harness Harness
	faults  Faults
	ctx     context.Context // ends with the case's time limit
	end     context.CancelFunc
	caps    backend.Capabilities
	prefix  string // of all names
	name    string // a name that no other case uses, and the prefix of nearly all others

	mu      sync.Mutex
	closers []func() // of drivers and clients, run last first
}

// newFixture also arranges the checks for what is left behind.
func newFixture(t TB, h Harness, faults Faults) *fixture {
	t.Helper()
	short := t.Name()[strings.LastIndexByte(t.Name(), '/')+1:]
	f := &fixture{TB: t, harness: h, faults: faults, prefix: prefixOf(h)}
	f.name = f.prefix + short + "-" + newOwner()[:8]
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit)
	f.end = cancel
	// The goroutines that this one starts, and theirs, inherit the label.
	f.ctx = pprof.WithLabels(ctx, pprof.Labels(goroutineLabel, f.name))
	pprof.SetGoroutineLabels(f.ctx)
	t.Cleanup(func() {
		f.closeAll()
		if !t.Failed() {
			f.checkNothingListed()
			f.closeAll()
			f.checkNoGoroutines()
		}
		h.Close()
		cancel()
		pprof.SetGoroutineLabels(context.Background())
	})
	f.caps = f.driver().Capabilities()
	return f
}

// closeAll closes what the case opened, all at once, as processes end.
func (f *fixture) closeAll() {
	f.mu.Lock()
	closers := f.closers
	f.closers = nil
	f.mu.Unlock()
	var wg sync.WaitGroup
	for _, c := range closers {
		wg.Go(c)
	}
	wg.Wait()
}

// onClose has fn run when the case has ended, before the Harness is closed.
func (f *fixture) onClose(fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closers = append(f.closers, fn)
}

// checkNothingListed fails if a lock or a queue entry is left on the server.
func (f *fixture) checkNothingListed() {
	if !f.caps.List {
		return
	}
	f.Helper()
	d := f.driver()
	var left []string
	if !f.eventually(prompt, func() bool {
		left = f.listed(d, f.name)
		return len(left) == 0
	}) {
		f.Errorf("left behind on the server: %q", left)
	}
}

// listed returns the keys that d lists under prefix.
func (f *fixture) listed(d backend.Driver, prefix string) []string {
	f.Helper()
	var keys []string
	for info, err := range d.(backend.Inspector).List(f.ctx, prefix) {
		if err != nil {
			f.Errorf("List(%q): %v", prefix, err)
			break
		}
		keys = append(keys, info.Key)
	}
	return keys
}

const goroutineLabel = "dlock-case"

// checkNoGoroutines fails if goroutines of this case outlive its clients and
// drivers. The case's own, the one that looks, does not count.
func (f *fixture) checkNoGoroutines() {
	f.Helper()
	if !f.eventually(2*prompt, func() bool { return f.goroutines() <= 1 }) {
		f.Errorf("%d goroutines are left behind:\n%s", f.goroutines()-1, f.profile())
	}
}

// goroutines counts the goroutines of this case, the caller's included.
func (f *fixture) goroutines() int {
	n := 0
	for group := range strings.SplitSeq(f.profile(), "\n\n") {
		var count int
		if _, err := fmt.Sscanf(group, "%d @", &count); err == nil {
			n += count
		}
	}
	return n
}

// profile returns the stacks of this case's goroutines.
func (f *fixture) profile() string {
	var all bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&all, 1); err != nil {
		f.Errorf("goroutine profile: %v", err)
	}
	_, stacks, _ := strings.Cut(all.String(), "\n") // the total
	var own []string
	for group := range strings.SplitSeq(stacks, "\n\n") {
		if strings.Contains(group, fmt.Sprintf("%q:%q", goroutineLabel, f.name)) {
			own = append(own, strings.TrimSpace(group))
		}
	}
	return strings.Join(own, "\n\n")
}

// driver opens a connection, which is closed with the case.
func (f *fixture) driver() backend.Driver {
	f.Helper()
	d, closeOnce := f.open()
	f.onClose(closeOnce)
	return d
}

// open opens a connection and returns what closes it, once.
func (f *fixture) open() (d backend.Driver, closeOnce func()) {
	f.Helper()
	d, err := f.harness.Driver(f.ctx)
	if err != nil {
		f.Fatalf("Driver: %v", err)
	}
	return d, sync.OnceFunc(func() {
		if err := d.Close(); err != nil {
			f.Errorf("Close of the driver: %v", err)
		}
	})
}

// client opens a client over a connection of its own.
func (f *fixture) client(opts ...dlock.Option) *dlock.Client {
	f.Helper()
	d, err := f.harness.Driver(f.ctx)
	if err != nil {
		f.Fatalf("Driver: %v", err)
	}
	return f.clientOver(d, opts...)
}

// tapped opens a client whose driver can be listened to and disturbed.
func (f *fixture) tapped(opts ...dlock.Option) (*dlock.Client, *tap) {
	f.Helper()
	return f.tappedLate(0, opts...)
}

// tappedLate is tapped with a driver that executes requests as late as late after
// they were given up.
func (f *fixture) tappedLate(late time.Duration, opts ...dlock.Option) (*dlock.Client, *tap) {
	f.Helper()
	d, err := f.harness.Driver(f.ctx)
	if err != nil {
		f.Fatalf("Driver: %v", err)
	}
	t := newTap(f, d, late)
	return f.clientOver(t, opts...), t
}

func (f *fixture) clientOver(d backend.Driver, opts ...dlock.Option) *dlock.Client {
	f.Helper()
	c, err := dlock.New(d, opts...)
	if err != nil {
		_ = d.Close()
		f.Fatalf("New: %v", err)
	}
	f.onClose(func() {
		if err := c.Close(); err != nil {
			f.Logf("Close of the client: %v", err)
		}
	})
	return c
}

// ttl returns d as far as the driver's bounds allow.
func (f *fixture) ttl(d time.Duration) time.Duration {
	d = max(d, f.caps.MinTTL)
	if f.caps.MaxTTL > 0 {
		d = min(d, f.caps.MaxTTL)
	}
	return d
}

// long is a term that does not end while a case runs.
func (f *fixture) long() time.Duration { return f.ttl(30 * time.Second) }

// short is a term whose end a case waits for.
func (f *fixture) short() time.Duration { return f.ttl(500 * time.Millisecond) }

// brief is a term that is short, and long enough for its renewals to arrive in time
// on a loaded machine.
func (f *fixture) brief() time.Duration { return f.ttl(1500 * time.Millisecond) }

// newOwner returns 128 random bits as 32 hex digits.
func newOwner() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// request returns a new acquisition of the case's name that would wait.
func (f *fixture) request(ttl time.Duration) *backend.Request {
	return &backend.Request{
		Key: f.name, Owner: newOwner(), TTL: ttl, Mode: backend.Exclusive, Queue: true, Meta: "conformance",
	}
}

// try is request without a queue entry.
func (f *fixture) try(ttl time.Duration) *backend.Request {
	req := f.request(ttl)
	req.Queue = false
	return req
}

// grant acquires for req, which must succeed.
func (f *fixture) grant(d backend.Driver, req *backend.Request) *backend.Grant {
	f.Helper()
	g, err := d.Acquire(f.ctx, req)
	if err != nil {
		f.Fatalf("Acquire of a free lock: %v", err)
	}
	return g
}

// busy acquires for req, which must be refused.
func (f *fixture) busy(d backend.Driver, req *backend.Request) *backend.Busy {
	f.Helper()
	g, err := d.Acquire(f.ctx, req)
	if busy, ok := errors.AsType[*backend.Busy](err); ok {
		return busy
	}
	f.Fatalf("Acquire of a held lock: grant %v, error %v, want *Busy", g, err)
	return nil
}

// refused checks that Acquire for req is refused.
func (f *fixture) refused(d backend.Driver, req *backend.Request) {
	f.Helper()
	_ = f.busy(d, req)
}

// release releases g, which must still be held.
func (f *fixture) release(d backend.Driver, g *backend.Grant) {
	f.Helper()
	if err := d.Release(f.ctx, g); err != nil {
		f.Errorf("Release of a held lock: %v", err)
	}
}

// lock locks name, which must be possible at once.
func (f *fixture) lock(c *dlock.Client, name string, opts ...dlock.Option) *dlock.Lease {
	f.Helper()
	return f.lockWithin(c, prompt, name, opts...)
}

// lockWithin locks name, which must be possible within d.
func (f *fixture) lockWithin(c *dlock.Client, d time.Duration, name string, opts ...dlock.Option) *dlock.Lease {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.ctx, d)
	defer cancel()
	lease, err := c.Lock(ctx, name, opts...)
	if err != nil {
		f.Fatalf("Lock, which must succeed within %v: %v", d, err)
	}
	return lease
}

// unlock unlocks lease, which must still be held.
func (f *fixture) unlock(lease *dlock.Lease) {
	f.Helper()
	if err := lease.Unlock(f.ctx); err != nil {
		f.Errorf("Unlock of a held lease: %v", err)
	}
}

// held checks that nobody else can lock name at present.
func (f *fixture) held(c *dlock.Client, name string) {
	f.Helper()
	if _, err := c.TryLock(f.ctx, name); !errors.Is(err, dlock.ErrNotAcquired) {
		f.Errorf("TryLock of a held lock: %v, want ErrNotAcquired", err)
	}
}

// free checks that c can lock name now, not by an expiry later, and frees it again.
func (f *fixture) free(c *dlock.Client, name string) {
	f.Helper()
	f.unlock(f.lock(c, name, dlock.WithTTL(f.long())))
}

// isErr checks that err is target.
func (f *fixture) isErr(what string, err, target error) {
	f.Helper()
	if !errors.Is(err, target) {
		f.Errorf("%s: error %v, want %v", what, err, target)
	}
}

// within waits for done, at most d and not beyond the end of the case.
func (f *fixture) within(d time.Duration, what string, done <-chan struct{}) bool {
	f.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		f.Errorf("%s: not within %v", what, d)
	case <-f.ctx.Done():
		f.Errorf("%s: not before the end of the case", what)
	}
	return false
}

// eventually looks until ok, or until d or the case is over.
func (f *fixture) eventually(d time.Duration, ok func() bool) bool {
	for end := time.Now().Add(d); !ok(); time.Sleep(nap) {
		if time.Now().After(end) || f.ctx.Err() != nil {
			return false
		}
	}
	return true
}

// async runs fn and closes the channel when it has returned. The case waits for
// it before its clients are closed only if it reads the channel.
func async(fn func()) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	return done
}

// pending is a Lock that goes on.
type pending struct {
	cancel context.CancelFunc
	done   <-chan struct{}
	lease  *dlock.Lease // when done
	err    error
}

// lockAsync begins to lock name.
func (f *fixture) lockAsync(c *dlock.Client, name string, opts ...dlock.Option) *pending {
	p := &pending{}
	ctx, cancel := context.WithCancel(f.ctx)
	p.cancel = cancel
	p.done = async(func() { p.lease, p.err = c.Lock(ctx, name, opts...) })
	return p
}

// granted waits for the lease, at most d.
func (f *fixture) granted(p *pending, d time.Duration) *dlock.Lease {
	f.Helper()
	defer p.cancel()
	if !f.within(d, "the waiter is granted the lock", p.done) {
		f.Fatalf("the waiter still waits")
	}
	if p.err != nil {
		f.Fatalf("Lock of a waiter: %v", p.err)
	}
	return p.lease
}

// parallel runs fn n times at once and waits for all.
func parallel(n int, fn func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { fn(i) })
	}
	wg.Wait()
}
