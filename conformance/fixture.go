package conformance

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"reflect"
	"runtime/pprof"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

const (
	// prompt is the time limit for an event that a signal must cause. Without the signal, the next
	// chance comes minutes later, at the end of a term or of a poll interval. So no machine is too
	// slow for this limit.
	prompt = 30 * time.Second
	// bound is the maximum delay of a promised event, not counting the time for which the machine
	// or the server stood still meanwhile.
	bound = 3 * time.Second
	// limit ends an observation that hangs.
	limit = 5 * time.Minute
	// serverBound is the maximum time for which TryLock, Unlock and Close wait for the server.
	serverBound = 5 * time.Second
	// maxLate limits the delay of a late request, so that it is executed while Close still waits.
	maxLate = 2 * time.Second
	// nap is the time between two checks of a condition that has no signal.
	nap = 10 * time.Millisecond
	// minutes is a term that is longer than every time limit of a case. A waiter with this term
	// does not poll before three times prompt has passed.
	minutes = 10 * time.Minute
	// longest is the longest term to which repeated observations lengthen a short one.
	longest = 30 * time.Second
	// roundsTime is the time after which a case with many rounds ends early on a distant server.
	roundsTime = 20 * time.Second
	// minRounds is the minimum number of rounds. The first one opens connections, and so it can be
	// slow, and can hide what the others show.
	minRounds = 5
)

// fixture is the environment of one observation of a case.
type fixture struct {
	*observation
	harness Harness
	faults  Faults
	ctx     context.Context // ends with the time limit of the case
	end     context.CancelFunc
	caps    backend.Capabilities
	prefix  string // of all names
	name    string // unique to the case, and the prefix of nearly all its other names

	mu          sync.Mutex
	closers     []func()  // close drivers and clients, all at once
	others      []Harness // closed after the drivers
	connections map[backend.Driver]int
	grants      map[string]*backend.Grant // by key: the last grant from acquire, until its release
}

// newFixture makes a fixture. It also registers the checks for locks and goroutines that the case
// leaves behind.
func newFixture(t *observation, h Harness, faults Faults) *fixture {
	t.Helper()
	short := t.Name()[strings.LastIndexByte(t.Name(), '/')+1:]
	f := &fixture{
		observation: t, harness: h, faults: faults, prefix: prefixOf(h),
		connections: map[backend.Driver]int{}, grants: map[string]*backend.Grant{},
	}
	f.name = f.prefix + short + "-" + newOwner()[:8]
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit)
	f.end = cancel
	// All goroutines that this goroutine starts, directly or indirectly, inherit the label.
	f.ctx = pprof.WithLabels(ctx, pprof.Labels(goroutineLabel, f.name))
	pprof.SetGoroutineLabels(f.ctx)
	t.Cleanup(func() {
		f.closeAll()
		if !t.Failed() {
			f.checkNothingListed()
			f.closeAll()
			f.checkNoGoroutines()
		}
		for _, other := range f.others {
			other.Close()
		}
		h.Close()
		cancel()
		pprof.SetGoroutineLabels(context.Background())
	})
	f.caps = f.driver().Capabilities()
	return f
}

// closeAll closes all drivers and clients of the case at the same time, as separate processes do.
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

// onClose registers fn to run after the end of the case, before the Harness is closed.
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

// checkNoGoroutines fails if goroutines of this case outlive its clients and drivers. The calling
// goroutine does not count.
func (f *fixture) checkNoGoroutines() {
	f.Helper()
	if !f.eventually(prompt, func() bool { return f.goroutines() <= 1 }) {
		f.Errorf("%d goroutines are left behind:\n%s", f.goroutines()-1, f.profile())
	}
}

// goroutines counts the goroutines of this case, including the caller.
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

// steadyGoroutines is goroutines after their number has not changed for 20 naps. It waits for at
// most prompt.
func (f *fixture) steadyGoroutines() int {
	n, same := f.goroutines(), 0
	f.eventually(prompt, func() bool {
		if now := f.goroutines(); now != n {
			n, same = now, 0
		}
		same++
		return same > 20
	})
	return n
}

// profile returns the stacks of this case's goroutines.
func (f *fixture) profile() string {
	var all bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&all, 1); err != nil {
		f.Errorf("goroutine profile: %v", err)
	}
	_, stacks, _ := strings.Cut(all.String(), "\n") // the first line is the total
	var own []string
	for group := range strings.SplitSeq(stacks, "\n\n") {
		if strings.Contains(group, fmt.Sprintf("%q:%q", goroutineLabel, f.name)) {
			own = append(own, strings.TrimSpace(group))
		}
	}
	return strings.Join(own, "\n\n")
}

// unlabeled runs fn, which calls the Harness. Goroutines that fn starts belong to the Harness and
// do not count as goroutines of the case.
func (f *fixture) unlabeled(fn func()) {
	pprof.SetGoroutineLabels(context.Background())
	defer pprof.SetGoroutineLabels(f.ctx)
	fn()
}

// restart restarts the server.
func (f *fixture) restart() {
	f.Helper()
	f.unlabeled(func() { f.faults.Restart(f) })
}

// driver opens a connection that is closed with the case.
func (f *fixture) driver() backend.Driver {
	f.Helper()
	d, _ := f.open()
	return d
}

// connection returns the number of a driver in its case, from 1, or 0 if the driver has
// no identity.
func (f *fixture) connection(d backend.Driver) int {
	if !reflect.TypeOf(d).Comparable() {
		return 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.connections[d] == 0 {
		f.connections[d] = len(f.connections) + 1
	}
	return f.connections[d]
}

// dial opens a connection of h.
func (f *fixture) dial(h Harness) backend.Driver {
	f.Helper()
	begun := time.Now()
	d, err := h.Driver(f.ctx)
	if err != nil {
		f.noteUnanswered(begun)
		f.Fatalf("Driver: %v", err)
	}
	return d
}

// open opens a connection. closeOnce closes it before the end of the case, which closes it in any
// case: a void observation may end anywhere.
func (f *fixture) open() (d backend.Driver, closeOnce func()) {
	f.Helper()
	d = f.dial(f.harness)
	closeOnce = sync.OnceFunc(func() {
		if err := d.Close(); err != nil {
			f.Errorf("Close of the driver: %v", err)
		}
	})
	f.onClose(closeOnce)
	return d, closeOnce
}

// client opens a client with a new connection.
func (f *fixture) client(opts ...dlock.Option) *dlock.Client {
	f.Helper()
	return f.clientOver(f.dial(f.harness), opts...)
}

// prefixed opens a client that puts prefix before each name. Only the URL of a client has a prefix.
func (f *fixture) prefixed(prefix string) *dlock.Client {
	f.Helper()
	registerScheme()
	id, d := newOwner(), f.dial(f.harness)
	dialed.Store(id, d)
	defer dialed.Delete(id)
	c, err := dlock.Open(f.ctx,
		fmt.Sprintf("%s://%s/?prefix=%s", scheme, id, url.QueryEscape(prefix)),
		dlock.WithTTL(f.long()))
	if err != nil {
		f.Fatalf("Open with a prefix: %v", err)
	}
	f.closeWithCase(c)
	return c
}

// scheme is the scheme of URLs whose host is the key of a driver in dialed.
const scheme = "dlock-conformance"

// dialed are the drivers for URLs with scheme.
var dialed sync.Map

var registerScheme = sync.OnceFunc(func() {
	backend.Register(scheme, func(_ context.Context, u *backend.URL) (backend.Driver, error) {
		d, ok := dialed.Load(u.Hosts[0])
		if !ok {
			return nil, fmt.Errorf("conformance: no driver %q", u.Hosts[0])
		}
		return d.(backend.Driver), nil
	})
})

// tapped opens a client with a tap, which records and disturbs the calls of its driver.
func (f *fixture) tapped(opts ...dlock.Option) (*dlock.Client, *tap) {
	f.Helper()
	return f.tappedLate(0, opts...)
}

// tappedLate is tapped with a driver that can execute requests up to late after the client gave
// them up.
func (f *fixture) tappedLate(late time.Duration, opts ...dlock.Option) (*dlock.Client, *tap) {
	f.Helper()
	t := newTap(f, f.dial(f.harness), late)
	return f.clientOver(t, opts...), t
}

// clientOver opens a client over d. Its locks have a long term by default, so that the end of a
// term takes the place of no event.
func (f *fixture) clientOver(d backend.Driver, opts ...dlock.Option) *dlock.Client {
	f.Helper()
	c, err := dlock.New(d, append([]dlock.Option{dlock.WithTTL(f.long())}, opts...)...)
	if err != nil {
		_ = d.Close()
		f.Fatalf("New: %v", err)
	}
	f.closeWithCase(c)
	return c
}

// closeWithCase closes c at the end of the case.
func (f *fixture) closeWithCase(c *dlock.Client) {
	f.onClose(func() {
		if err := c.Close(); err != nil {
			f.Logf("Close of the client: %v", err)
		}
	})
}

// ttl returns d within the driver's bounds, and longer after a void observation.
func (f *fixture) ttl(d time.Duration) time.Duration {
	d = f.clamped(f.lengthened(d))
	f.noteTerm(d)
	return d
}

// span is like ttl for a time that is not a term, so it ignores the driver's bounds.
func (f *fixture) span(d time.Duration) time.Duration {
	d = f.lengthened(d)
	f.noteTerm(d)
	return d
}

func (f *fixture) lengthened(d time.Duration) time.Duration {
	return min(time.Duration(float64(d)*f.scale), max(d, longest))
}

func (f *fixture) clamped(d time.Duration) time.Duration { return clamped(f.caps, d) }

// clamped returns d within the driver's bounds.
func clamped(caps backend.Capabilities, d time.Duration) time.Duration {
	d = max(d, caps.MinTTL)
	if caps.MaxTTL > 0 {
		d = min(d, caps.MaxTTL)
	}
	return d
}

// long is a term that does not end while a case runs.
func (f *fixture) long() time.Duration { return f.clamped(minutes) }

// short is a term that a case lets expire.
func (f *fixture) short() time.Duration { return f.ttl(500 * time.Millisecond) }

// brief is a short term that still leaves enough time for its renewals on a loaded machine.
func (f *fixture) brief() time.Duration { return f.ttl(1500 * time.Millisecond) }

// newOwner returns 128 random bits as 32 hex digits.
func newOwner() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// request returns a new Request for the case's name, with a queue entry.
func (f *fixture) request(ttl time.Duration) *backend.Request {
	return &backend.Request{
		Key: f.name, Owner: newOwner(), TTL: ttl, Mode: backend.Exclusive,
		Queue: true, Meta: "conformance",
	}
}

// try is request without a queue entry.
func (f *fixture) try(ttl time.Duration) *backend.Request {
	req := f.request(ttl)
	req.Queue = false
	return req
}

// acquire sends an Acquire, and records it for the output of a failed case, as renew and
// tryRelease do.
func (f *fixture) acquire(d backend.Driver, req *backend.Request) (*backend.Grant, error) {
	answered := f.send(f.connection(d), acquire, req.Owner)
	g, err := d.Acquire(f.ctx, req)
	answered(err)
	if err == nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.grants[req.Key] = g
	}
	return g, err
}

// forget removes the record of g, because g may be released.
func (f *fixture) forget(g *backend.Grant) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if last := f.grants[g.Key]; last != nil && last.Owner == g.Owner {
		delete(f.grants, g.Key)
	}
}

// heldUntil returns the end of the term of the last grant of key, or the zero time if there
// is none.
func (f *fixture) heldUntil(key string) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if g := f.grants[key]; g != nil {
		return endOf(g.Term)
	}
	return time.Time{}
}

func (f *fixture) renew(d backend.Driver, g *backend.Grant) (backend.Term, error) {
	answered := f.send(f.connection(d), renew, g.Owner)
	term, err := d.Renew(f.ctx, g)
	answered(err)
	return term, err
}

func (f *fixture) tryRelease(ctx context.Context, d backend.Driver, g *backend.Grant) error {
	f.forget(g)
	answered := f.send(f.connection(d), release, g.Owner)
	err := d.Release(ctx, g)
	answered(err)
	return err
}

// acquireAll sends an AcquireAll, and records it as a request of its first owner. So do renewAll
// and tryReleaseAll.
func (f *fixture) acquireAll(
	d backend.Driver, reqs []*backend.Request,
) (grants []*backend.Grant, failed int, err error) {
	answered := f.send(f.connection(d), acquire, reqs[0].Owner)
	grants, failed, err = d.(backend.Combiner).AcquireAll(f.ctx, reqs)
	answered(err)
	return grants, failed, err
}

func (f *fixture) renewAll(d backend.Driver, gs []*backend.Grant) []backend.Renewal {
	answered := f.send(f.connection(d), renew, gs[0].Owner)
	renewals := renewAll(f.ctx, d, gs)
	errs := make([]error, len(renewals))
	for i, r := range renewals {
		errs[i] = r.Err
	}
	answered(ofBatch(errs))
	return renewals
}

func (f *fixture) tryReleaseAll(d backend.Driver, gs []*backend.Grant) []error {
	answered := f.send(f.connection(d), release, gs[0].Owner)
	errs := d.(backend.Combiner).ReleaseAll(f.ctx, gs)
	answered(ofBatch(errs))
	return errs
}

// grant sends an Acquire for req, which must succeed.
func (f *fixture) grant(d backend.Driver, req *backend.Request) *backend.Grant {
	f.Helper()
	g, err := f.acquire(d, req)
	if err != nil {
		f.Fatalf("Acquire of a free lock: %v", err)
	}
	return g
}

// grantSoon repeats an Acquire for req, which must succeed soon. The first answers may be *Busy,
// because a replica can lag behind. The server may also reserve the lock for a moment for a waiter
// that has left.
func (f *fixture) grantSoon(d backend.Driver, req *backend.Request) *backend.Grant {
	f.Helper()
	var g *backend.Grant
	var err error
	if !f.eventually(prompt, func() bool {
		g, err = f.acquire(d, req)
		return err == nil || !errors.Is(err, backend.ErrNotAcquired)
	}) || err != nil {
		f.Fatalf("Acquire of a lock that is free or about to be: %v", err)
	}
	return g
}

// busy sends an Acquire for req, which must be refused.
func (f *fixture) busy(d backend.Driver, req *backend.Request) *backend.Busy {
	f.Helper()
	held := f.heldUntil(req.Key)
	g, err := f.acquire(d, req)
	if busy, ok := errors.AsType[*backend.Busy](err); ok {
		return busy
	}
	if err == nil && time.Now().Before(held) {
		f.violation("Acquire of a held lock: a second holder, %v before the first term ends",
			time.Until(held))
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
	if err := f.tryRelease(f.ctx, d, g); err != nil {
		f.Errorf("Release of a held lock: %v", err)
	}
}

// lock locks name, which must be possible at once.
func (f *fixture) lock(c *dlock.Client, name string, opts ...dlock.Option) *dlock.Lease {
	f.Helper()
	return f.lockWithin(c, prompt, name, opts...)
}

// lockWithin locks name, which must be possible within d.
func (f *fixture) lockWithin(
	c *dlock.Client, d time.Duration, name string, opts ...dlock.Option,
) *dlock.Lease {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.ctx, d)
	defer cancel()
	lease, err := c.Lock(ctx, name, opts...)
	if err != nil {
		look, stop := context.WithTimeout(f.ctx, serverBound)
		defer stop()
		info, inspectErr := c.Inspect(look, name)
		f.Logf("Inspect: %+v, %v", info, inspectErr)
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

// held checks that c cannot get the lock of lease.
func (f *fixture) held(c *dlock.Client, lease *dlock.Lease) {
	f.Helper()
	_, err := c.TryLock(f.ctx, lease.Name())
	switch {
	case errors.Is(err, dlock.ErrNotAcquired):
	case err == nil && lease.Err() == nil:
		f.violation("TryLock of a held lock: a second holder")
	default:
		f.Errorf("TryLock of a held lock: %v, want ErrNotAcquired", err)
	}
}

// fenceGrew checks that a later grant has a greater fence. No lag excuses a failure.
func (f *fixture) fenceGrew(before, after uint64) {
	f.Helper()
	if f.caps.Fencing != backend.FenceNone && after <= before {
		f.violation("fence %d after %d", after, before)
	}
}

// free checks that c can lock name before the present term could expire, and unlocks it.
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

// hasText checks that the text of err contains each of parts.
func (f *fixture) hasText(what string, err error, parts ...string) {
	f.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			f.Errorf("%s: the error %v does not contain %s", what, err, part)
		}
	}
}

// within waits for done, for at most d and not beyond the end of the case. It reports whether done
// was closed in time.
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

// timed lets the measurement of the server's answers begin. A case calls it before its first inTime
// unless it has a short term.
func (f *fixture) timed() { f.noteTerm(bound) }

// inTime fails if the event at the time at was later than bound after due. Time for which the
// machine or the server stood still since due does not count.
func (f *fixture) inTime(what string, due, at time.Time) {
	f.Helper()
	f.inTimeOf(bound, 1, what, due, at)
}

// inTimeOf is inTime with a bound of its own, for an event that takes a number of answers, one
// after the other. A slow server adds the time of its slowest answer to each. If that is more than
// the bound allows, it is unknown how much slower the rest became, and the observation is void.
// Answers are measured from the first short term on, see timed.
func (f *fixture) inTimeOf(bound time.Duration, answers int, what string, due, at time.Time) {
	f.Helper()
	stood := f.stoodSince(due, answers)
	if late := at.Sub(due) - stood; late > bound {
		f.noteTerm(bound)
		f.noteStood(stood)
		f.Errorf("%s: %v late", what, late)
	}
}

// notBefore fails if the event at the time at was before due. No lag excuses a failure.
func (f *fixture) notBefore(what string, due, at time.Time) {
	f.Helper()
	if early := due.Sub(at); early > 0 {
		f.violation("%s: %v early", what, early)
	}
}

// doneBy waits for done, which must be closed soon after due. It reports whether it was closed
// at all.
func (f *fixture) doneBy(due time.Time, what string, done <-chan struct{}) bool {
	f.Helper()
	if !f.within(time.Until(due)+prompt, what, done) {
		return false
	}
	f.inTime(what, due, time.Now())
	return true
}

// rounds yields 0 to n-1. It ends early on a distant server, on which even n of the fastest rounds
// take too long, but not before minRounds. A machine that stands still during some rounds does not
// reduce their number.
func (f *fixture) rounds(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		begun, fastest := time.Now(), roundsTime
		for i := range n {
			isSlow := time.Since(begun) > roundsTime && fastest*time.Duration(n) > roundsTime
			if isSlow && i >= minRounds {
				f.Logf("%d of %d rounds took %v, the fastest one %v",
					i, n, time.Since(begun), fastest)
				return
			}
			round := time.Now()
			if !yield(i) {
				return
			}
			fastest = min(fastest, time.Since(round))
		}
	}
}

// roundTrip returns the time of the fastest of several pairs of Acquire and Release, on
// open connections.
func (f *fixture) roundTrip(d backend.Driver) time.Duration {
	f.Helper()
	req := f.try(f.long())
	req.Key = f.name + "/trip"
	fastest := prompt
	for range 5 {
		begun := time.Now()
		f.release(d, f.grant(d, req))
		fastest = min(fastest, time.Since(begun))
	}
	return fastest
}

const (
	// handoffBound is the time limit for the fastest of several hand-offs, in addition to ten round
	// trips. A waiter without a wake-up polls later than that.
	handoffBound = 250 * time.Millisecond
	// asleep is the time for which a case lets a waiter wait before its turn. After this time the
	// waiter needs a wake-up.
	asleep = 100 * time.Millisecond
)

// handoffs measures the hand-offs of a case to waiters that need a wake-up.
type handoffs struct {
	f       *fixture
	fastest time.Duration // 0 if there was none
}

// note records a hand-off from begun until now, without the lag of this machine.
func (h *handoffs) note(begun time.Time) {
	took := max(1, time.Since(begun)-h.f.meter.Worst(begun))
	if h.fastest == 0 || took < h.fastest {
		h.fastest = took
	}
}

// check fails if even the fastest hand-off was slow, because then no wake-up has arrived.
func (h *handoffs) check(d backend.Driver) {
	h.f.Helper()
	if !h.f.caps.Notify || h.fastest <= handoffBound {
		return
	}
	if trip := h.f.roundTrip(d); h.fastest > handoffBound+10*trip {
		h.f.noteTerm(allowance * handoffBound)
		h.f.Errorf("the fastest hand-off took %v, a round trip %v: no waiter was woken",
			h.fastest, trip)
	}
}

// eventually calls ok until it returns true. It returns false if d passes or the case ends first.
func (f *fixture) eventually(d time.Duration, ok func() bool) bool {
	for end := time.Now().Add(d); !ok(); time.Sleep(nap) {
		if time.Now().After(end) || f.ctx.Err() != nil {
			return false
		}
	}
	return true
}

// receive returns the next value of ch. It ends the case if there is none within d.
func receive[T any](f *fixture, d time.Duration, what string, ch <-chan T) (value T) {
	f.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case value = <-ch:
	case <-timer.C:
		f.Fatalf("%s: not within %v", what, d)
	case <-f.ctx.Done():
		f.Fatalf("%s: not before the end of the case", what)
	}
	return value
}

// async runs fn in a goroutine, and closes the channel when fn has returned. Unless the case
// receives from the channel, its clients can be closed before fn has returned.
func async(fn func()) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	return done
}

// pending is a Lock in the background.
type pending struct {
	cancel context.CancelFunc
	done   <-chan struct{}
	lease  *dlock.Lease // valid when done is closed
	err    error
}

// lockAsync begins to lock name in the background.
func (f *fixture) lockAsync(c *dlock.Client, name string, opts ...dlock.Option) *pending {
	return f.begin(func(ctx context.Context) (*dlock.Lease, error) {
		return c.Lock(ctx, name, opts...)
	})
}

// begin calls lock, which may be an RLock or an Acquire, in the background.
func (f *fixture) begin(lock func(context.Context) (*dlock.Lease, error)) *pending {
	p := &pending{}
	ctx, cancel := context.WithCancel(f.ctx)
	p.cancel = cancel
	p.done = async(func() { p.lease, p.err = lock(ctx) })
	return p
}

// grantedBy waits for the lease, which must be granted soon after due.
func (f *fixture) grantedBy(p *pending, due time.Time) *dlock.Lease {
	f.Helper()
	lease := f.granted(p, time.Until(due)+prompt)
	f.inTime("the waiter is granted the lock", due, time.Now())
	return lease
}

// lockBy locks name, which must be possible soon after due.
func (f *fixture) lockBy(
	c *dlock.Client, due time.Time, name string, opts ...dlock.Option,
) *dlock.Lease {
	f.Helper()
	return f.grantedBy(f.lockAsync(c, name, opts...), due)
}

// granted waits for the lease for at most d.
func (f *fixture) granted(p *pending, d time.Duration) *dlock.Lease {
	f.Helper()
	defer p.cancel()
	if !f.within(d, "the waiter is granted the lock", p.done) {
		f.Fatalf("the waiter is still waiting")
	}
	if p.err != nil {
		f.Fatalf("Lock of a waiter: %v", p.err)
	}
	return p.lease
}

// parallel runs fn in n goroutines and waits for all of them.
func parallel(n int, fn func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { fn(i) })
	}
	wg.Wait()
}
