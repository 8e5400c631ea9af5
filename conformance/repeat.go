package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

var repeatCases = []Case{
	{
		Name: "RepeatedAcquireProlongsTheTerm",
		Promise: "A repeated Acquire by the holder returns the same grant with a new term, and " +
			"the server keeps the lock for that term.",
		run: repeatedAcquireProlongsTheTerm,
	},
	{
		Name: "TermsAreNotFloored",
		Promise: "A term with a fraction of the server's time unit is kept to its end, after " +
			"Acquire and after a renewal.",
		run: termsAreNotFloored,
	},
	{
		Name:    "LongTermsDoNotWrap",
		Promise: "A term of minutes, days or months, up to MaxTTL, does not become a short one.",
		run:     longTermsDoNotWrap,
	},
	{
		Name:    "LongestTermExcludes",
		Promise: "A lock with the longest TTL is held, also if MaxTTL is no limit.",
		run:     longestTermExcludes,
	},
	{
		Name: "UnavailableIsNotExecuted",
		Promise: "If the driver returns a definite error for a request with a lost reply, the " +
			"request was not executed.",
		Faults: true,
		run:    unavailableIsNotExecuted,
	},
	{
		Name: "BreakWakesWaiters",
		Promise: "Break wakes a waiter at once, however long the broken term was, and the old " +
			"holder's next request returns ErrLost.",
		run: breakWakesWaiters,
	},
	{
		Name: "ListTakesPrefixesLiterally",
		Promise: "List treats characters that are wildcards elsewhere as literal characters, in " +
			"its prefix and in the names.",
		run: listTakesPrefixesLiterally,
	},
	{
		Name: "ManyLocksAreListedAndRenewed",
		Promise: "List shows each of a thousand locks once, and RenewAll answers for each of a " +
			"thousand grants.",
		run: manyLocksAreListedAndRenewed,
	},
	{
		Name:    "ExpiredHolderIsNotShown",
		Promise: "Inspect and List do not show a holder whose term is over.",
		run:     expiredHolderIsNotShown,
	},
	{
		Name:    "CancelledWaitsLeaveNoMemory",
		Promise: "A cancelled Wait leaves nothing in the driver's memory.",
		Alone:   true,
		run:     cancelledWaitsLeaveNoMemory,
	},
	{
		Name: "HeldLockKeepsNoAttempt",
		Promise: "While a lock is held, the driver keeps neither the Request nor the context of " +
			"its Acquire in memory.",
		run: heldLockKeepsNoAttempt,
	},
	{
		Name: "CloseLeavesNothing",
		Promise: "Close of a driver leaves no goroutine and no connection, whatever the driver " +
			"was used for.",
		Alone: true,
		run:   closeLeavesNothing,
	},
}

// sameGrant checks that again is the same grant as g, with a term that begins no earlier: two
// answers in quick succession may prove their terms by the same keep-alive of a shared lease. The
// function Lost and the driver's State may differ. No lag excuses a different answer.
func (f *fixture) sameGrant(g, again *backend.Grant) {
	f.Helper()
	got, want := again.Request, g.Request
	got.Lost, want.Lost = nil, nil
	if !reflect.DeepEqual(got, want) {
		f.violation("the repeated answer is for %+v, want %+v", got, want)
	}
	if again.Fence < g.Fence {
		f.violation("the repeated answer has the fence %d, the first one %d", again.Fence, g.Fence)
	}
	if again.Term.TTL < g.TTL {
		f.violation("the repeated answer has a term of %v, want at least %v", again.Term.TTL, g.TTL)
	}
	if again.Term.Sent.Before(g.Term.Sent) {
		f.violation("the repeated answer's Term.Sent is %v before the first answer's",
			g.Term.Sent.Sub(again.Term.Sent))
	}
}

// prolonged checks that again is the same grant as g, with a new term. A driver without sessions
// must have proven its term since g, which is half a term old.
func (f *fixture) prolonged(g, again *backend.Grant) {
	f.Helper()
	f.sameGrant(g, again)
	if !f.caps.Session && !again.Term.Sent.After(g.Term.Sent) {
		f.violation("the repeated answer has the Term.Sent of the first answer")
	}
}

func repeatedAcquireProlongsTheTerm(f *fixture) {
	for _, queue := range []bool{false, true} {
		d := f.driver()
		req := f.try(f.ttl(2 * time.Second))
		req.Queue = queue
		g := f.grant(d, req)
		time.Sleep(req.TTL / 2)
		again := f.grant(d, req)
		f.prolonged(g, again)
		if f.caps.Session {
			f.release(d, again)
			continue
		}
		f.keptUntil(again.Term.Sent.Add(again.Term.TTL))
	}
}

func termsAreNotFloored(f *fixture) {
	f.withoutSession()
	ttl := f.ttl(1900 * time.Millisecond)
	d := f.driver()
	g := f.grant(d, f.try(ttl))
	f.keptUntil(g.Term.Sent.Add(g.Term.TTL))
	for _, r := range renewers {
		g := f.grant(d, f.try(ttl))
		term, err := f.renewBy(r, d, g)
		if err != nil || term.TTL < ttl {
			f.Fatalf("%s: term %v, want at least %v, error %v", r.name, term.TTL, ttl, err)
		}
		f.keptUntil(term.Sent.Add(term.TTL))
	}
}

func longTermsDoNotWrap(f *fixture) {
	const rest = 100 * time.Millisecond // the remainder of a term that wraps
	const day = 24 * time.Hour
	terms := []time.Duration{
		1<<31*time.Microsecond + rest, 72 * time.Minute, 1<<32*time.Microsecond + rest,
		1<<31*time.Millisecond + rest, 30*day + time.Second, 1<<32*time.Millisecond + rest,
	}
	terms = slices.DeleteFunc(terms, func(ttl time.Duration) bool {
		return f.caps.MaxTTL > 0 && ttl > f.caps.MaxTTL
	})
	if f.caps.MaxTTL > 0 {
		terms = append(terms, f.caps.MaxTTL)
	}
	d, other := f.driver(), f.driver()
	var gs []*backend.Grant
	for i, ttl := range terms {
		req := f.try(ttl)
		req.Key = fmt.Sprint(f.name, i)
		g := f.grant(d, req)
		if g.Term.TTL < ttl {
			f.Errorf("Acquire: a term of %v for a requested TTL of %v", g.Term.TTL, ttl)
		}
		for _, r := range renewers {
			if term, err := f.renewBy(r, d, g); err != nil || term.TTL < ttl {
				f.Errorf("%s: a term of %v for a requested TTL of %v, error %v",
					r.name, term.TTL, ttl, err)
			}
		}
		gs = append(gs, g)
	}
	time.Sleep(10 * rest)
	for _, g := range gs {
		f.longHeld(other, g)
		f.release(d, g)
	}
}

// longestTermExcludes uses the longest duration that there is, to which a driver that rounds up can
// add nothing.
func longestTermExcludes(f *fixture) {
	d, other := f.driver(), f.driver()
	g := f.grant(d, f.try(cmp.Or(f.caps.MaxTTL, math.MaxInt64)))
	_ = f.busy(other, f.try(f.long()))
	for _, r := range renewers {
		if _, err := f.renewBy(r, d, g); err != nil {
			f.Errorf("%s: %v", r.name, err)
		}
		_ = f.busy(other, f.try(f.long()))
	}
	f.release(d, g)
}

// longHeld checks that g is held. If the server shows the remaining time, most of the term
// must remain.
func (f *fixture) longHeld(other backend.Driver, g *backend.Grant) {
	f.Helper()
	req := f.try(f.long())
	req.Key = g.Key
	busy := f.busy(other, req)
	left := []time.Duration{busy.RetryAfter}
	if i, ok := other.(backend.Inspector); ok && f.caps.Inspect {
		info, err := i.Inspect(f.ctx, g.Key)
		if err != nil || len(info.Holders) != 1 {
			f.Fatalf("Inspect of a lock that is held for %v: %+v, %v", g.TTL, info, err)
		}
		left = append(left, info.Holders[0].TTL)
	}
	for _, ttl := range left {
		if ttl > 0 && ttl < g.TTL-2*limit {
			f.Errorf("a term of %v has only %v left on the server", g.TTL, ttl)
		}
	}
}

// unavailableIsNotExecuted drops the answer to each kind of request. If the driver then returns a
// definite error, it checks that the error is true.
func unavailableIsNotExecuted(f *fixture) {
	other := f.driverOf(f.apart())
	for nth := range 3 {
		d := f.warm(f.driver())
		req := f.try(f.long())
		f.faults.DropReply(f, nth+1)
		_, err := f.once(func(ctx context.Context) (*backend.Grant, error) {
			return d.Acquire(ctx, req)
		})
		f.definite("Acquire", err, func() bool { return f.isFree(other) })
		f.undo(d, req)
		f.settleDriver(d)

		g := f.grantAfter(d, req)
		for _, r := range renewers {
			f.faults.DropReply(f, nth+1)
			_, err = f.once(func(ctx context.Context) (*backend.Grant, error) {
				_, err := r.renew(ctx, d, g)
				return g, err
			})
			if errors.Is(err, backend.ErrLost) && !f.isTied() {
				f.Errorf("%s of a held lock, with a lost answer: %v", r.name, err)
			}
		}
		f.faults.DropReply(f, nth+1)
		_, err = f.once(func(ctx context.Context) (*backend.Grant, error) {
			return nil, d.Release(ctx, g)
		})
		f.definite("Release", err, func() bool { return !f.isFree(other) })
		f.undo(d, &g.Request)
		f.settleDriver(d)
	}
}

// grantAfter acquires the lock after the request late, which has an unknown outcome. If the server
// executes late after all, grantAfter undoes it.
func (f *fixture) grantAfter(d backend.Driver, late *backend.Request) *backend.Grant {
	f.Helper()
	var g *backend.Grant
	var err error
	if !f.eventually(prompt, func() bool {
		if g, err = f.acquire(d, f.try(f.long())); errors.Is(err, backend.ErrNotAcquired) {
			f.undo(d, late)
		}
		return err == nil
	}) {
		f.Fatalf("Acquire of a free lock: %v", err)
	}
	return g
}

// once sends a request that may get no answer, with a time limit.
func (f *fixture) once(
	request func(ctx context.Context) (*backend.Grant, error),
) (*backend.Grant, error) {
	ctx, cancel := context.WithTimeout(f.ctx, prompt)
	defer cancel()
	return request(ctx)
}

// definite checks that a request was not executed if its error is ErrUnavailable, and that the
// error is no other definite one.
func (f *fixture) definite(what string, err error, notExecuted func() bool) {
	f.Helper()
	if errors.Is(err, backend.ErrUnavailable) && !notExecuted() {
		f.Errorf("%s was executed, but its error is ErrUnavailable: %v", what, err)
	}
	for _, wrong := range []error{backend.ErrConflict, backend.ErrUnsupported, backend.ErrLost} {
		if errors.Is(err, wrong) {
			f.Errorf("%s with a lost answer: %v", what, err)
		}
	}
}

// isFree reports whether d can acquire the lock now. It releases the lock again.
func (f *fixture) isFree(d backend.Driver) bool {
	f.Helper()
	g, err := d.Acquire(f.ctx, f.try(f.long()))
	if err == nil {
		f.release(d, g)
	} else if !errors.Is(err, backend.ErrNotAcquired) {
		f.Errorf("Acquire: %v", err)
	}
	return err == nil
}

// settleDriver sends requests until DropReply has no answer left to drop.
func (f *fixture) settleDriver(d backend.Driver) {
	f.Helper()
	for i := range 5 {
		req := f.try(f.long())
		req.Key = fmt.Sprint(f.name, "/settle", i)
		_, _ = f.once(func(ctx context.Context) (*backend.Grant, error) {
			return d.Acquire(ctx, req)
		})
		f.undo(d, req)
	}
}

func breakWakesWaiters(f *fixture) {
	f.timed()
	if f.breakUnsupported() {
		return
	}
	for _, opts := range f.queueing() {
		opts = append(opts, dlock.WithTTL(f.long()))
		c, breaker := f.client(opts...), f.client()
		other, t := f.tapped(opts...)
		h := handoffs{f: f}
		for n := range 6 {
			lease := f.lock(c, f.name)
			busy, _ := t.snapshot()
			waiter := f.lockAsync(other, f.name)
			t.await(acquire, count(busy, acquire, wasBusy)+1, wasBusy)
			time.Sleep(asleep) // harmless if it does not wait yet
			broken := time.Now()
			if err := breaker.Break(f.ctx, f.name, []string{"", lease.Owner()}[n%2]); err != nil {
				f.Fatalf("Break: %v", err)
			}
			next := f.grantedBy(waiter, broken)
			h.note(broken)
			f.isErr("Extend of a broken lease", lease.Extend(f.ctx), dlock.ErrLost)
			f.isErr("Err", lease.Err(), dlock.ErrLost)
			f.unlock(next)
		}
		h.check(t.inner)
	}
}

func listTakesPrefixesLiterally(f *fixture) {
	if !f.caps.List {
		f.inapplicable("the driver does not list")
	}
	c, d := f.client(dlock.WithTTL(f.long())), f.driver()
	wild := []string{
		"%", "_", "*", "?", "[a]", `\`, `\%`, "^", ".", "{a,b}", "'", "a", "b", "%25", "/",
	}
	for _, w := range wild {
		f.lock(c, f.name+w)
		f.lock(c, f.name+w+"x")
	}
	for _, w := range wild {
		want := 0
		for _, other := range wild {
			for _, name := range []string{other, other + "x"} {
				if len(name) >= len(w) && name[:len(w)] == w {
					want++
				}
			}
		}
		if got := f.listed(d, f.name+w); len(got) != want {
			f.Errorf("List of the prefix %q shows %d names, want %d: %q",
				f.name+w, len(got), want, got)
		}
	}
	if err := c.Close(); err != nil {
		f.Errorf("Close: %v", err)
	}
}

func manyLocksAreListedAndRenewed(f *fixture) {
	const atATime = 32
	d := f.warm(f.driver())
	locks := 1200
	if f.roundTrip(d) > 20*time.Millisecond { // the server is distant
		locks = 600
	}
	gs := make([]*backend.Grant, locks)
	parallel(atATime, func(w int) {
		for i := w; i < locks; i += atATime {
			req := f.try(f.long())
			req.Key = fmt.Sprintf("%s/%d", f.name, i)
			var err error
			if gs[i], err = d.Acquire(f.ctx, req); err != nil {
				f.Errorf("Acquire: %v", err)
				return
			}
		}
	})
	if f.Failed() {
		return
	}
	before := time.Now()
	for i, r := range f.renewAll(d, gs) {
		if r.Err != nil || r.Term.TTL < gs[i].TTL || !f.caps.Session && r.Term.Sent.Before(before) {
			f.Fatalf("renewal %d of %d: term %v, Term.Sent is %v before the request, error %v",
				i, locks, r.Term.TTL, before.Sub(r.Term.Sent), r.Err)
		}
	}
	if f.caps.List {
		f.listsEach(f.driver(), gs)
	}
	parallel(atATime, func(w int) {
		for i := w; i < locks; i += atATime {
			f.release(d, gs[i])
		}
	})
}

// listsEach checks that List shows each of gs once.
func (f *fixture) listsEach(d backend.Driver, gs []*backend.Grant) {
	f.Helper()
	shown := map[string]int{}
	for _, key := range f.listed(d, f.name+"/") {
		shown[key]++
	}
	missing, twice := 0, 0
	for _, g := range gs {
		switch n := shown[g.Key]; {
		case n == 0:
			missing++
		case n > 1:
			twice++
		}
	}
	if missing+twice > 0 || len(shown) != len(gs) {
		f.Errorf("List shows %d of %d names; %d are missing, %d are shown twice",
			len(shown), len(gs), missing, twice)
	}
	for _, err := range d.(backend.Inspector).List(f.ctx, f.name+"/") {
		if err != nil {
			f.Errorf("List: %v", err)
		}
		break // the loop panics if List continues it
	}
}

func expiredHolderIsNotShown(f *fixture) {
	if !f.caps.Inspect {
		f.inapplicable("the driver does not inspect")
	}
	d, closeDriver := f.open()
	other := f.driver()
	g := f.grant(d, f.try(f.short()))
	closeDriver()
	var info *backend.Info
	if !f.eventually(g.Term.TTL+prompt, func() bool {
		var err error
		if info, err = other.(backend.Inspector).Inspect(f.ctx, f.name); err != nil {
			f.Fatalf("Inspect: %v", err)
		}
		return len(info.Holders) == 0
	}) {
		f.Errorf("Inspect shows a holder whose term is over: %+v", info)
	}
	if end := g.Term.Sent.Add(g.Term.TTL); !f.caps.Session && time.Now().Before(end) {
		f.Errorf("Inspect shows no holder, %v before the end of the term", time.Until(end))
	}
	if keys := f.heldKeys(other); len(keys) > 0 {
		f.Errorf("List shows a holder whose term is over: %q", keys)
	}
}

// heldKeys lists the keys of the case that have a holder. It returns nil if the driver cannot list.
func (f *fixture) heldKeys(d backend.Driver) (keys []string) {
	f.Helper()
	if !f.caps.List {
		return nil
	}
	for info, err := range d.(backend.Inspector).List(f.ctx, f.name) {
		if err != nil {
			f.Fatalf("List: %v", err)
		}
		if len(info.Holders) > 0 {
			keys = append(keys, info.Key)
		}
	}
	return keys
}

func cancelledWaitsLeaveNoMemory(f *fixture) {
	const waits, batches = 1000, 3
	// A leak leaves an object for each Wait. A pool that grows by a few connections has large
	// buffers, but only a few objects.
	allowed := memory{objects: waits / 2, bytes: 100 * waits}
	d, other := f.driver(), f.driver()
	w := f.waitable(other)
	g := f.grant(d, f.try(f.long()))
	f.cancelWaits(other, w, waits/4) // lets pools and buffers reach their size
	var left []memory
	for before := heap(); len(left) < batches; { // a leak leaves memory in each batch
		f.cancelWaits(other, w, waits)
		grown := f.grown(before, allowed)
		if left = append(left, grown); grown.within(allowed) {
			f.release(d, g)
			return
		}
		before = before.plus(grown)
	}
	f.Errorf("batches of %d cancelled Waits left %v", waits, left)
	f.release(d, g)
}

// grown returns the growth of the heap since before. It returns as soon as the growth is allowed,
// or after enough time for background work to end.
func (f *fixture) grown(before, allowed memory) (grown memory) {
	f.Helper()
	f.eventually(bound, func() bool {
		grown = heap().minus(before)
		return grown.within(allowed)
	})
	return grown
}

// cancelWaits begins n Waits, 40 at a time, and cancels them.
func (f *fixture) cancelWaits(d backend.Driver, w backend.Waiter, n int) {
	f.Helper()
	const atATime = 40
	for range n / atATime {
		ctx, cancel := context.WithCancel(f.ctx)
		var all, waiting sync.WaitGroup
		for range atATime {
			waiting.Add(1)
			all.Go(func() {
				req := f.request(f.long())
				_, err := d.Acquire(f.ctx, req)
				waiting.Done()
				busy, refused := errors.AsType[*backend.Busy](err)
				if refused {
					_, _ = w.Wait(ctx, req, busy)
				}
				if !refused || busy.Queued {
					f.undo(d, req)
				}
			})
		}
		waiting.Wait()
		time.Sleep(time.Millisecond) // time to begin waiting
		cancel()
		all.Wait()
	}
}

// attempt is the context of an Acquire together with its Request. A pointer to either keeps both.
type attempt struct {
	context.Context
	request backend.Request
}

func heldLockKeepsNoAttempt(f *fixture) {
	const locks = 8
	d := f.driver()
	var grants [locks]*backend.Grant
	var freed atomic.Int32
	for i := range grants {
		a := &attempt{f.ctx, *f.try(f.long())}
		a.request.Key = fmt.Sprint(f.name, i)
		a.request.Lost = func(error) {}
		runtime.AddCleanup(a, func(*atomic.Int32) { freed.Add(1) }, &freed)
		g, err := d.Acquire(a, &a.request)
		if err != nil {
			f.Fatalf("Acquire of a free lock: %v", err)
		}
		grants[i] = g
	}
	const inBuffers = 2 // the last attempts may still be in the buffers of a client library
	if !f.eventually(prompt, func() bool {
		runtime.GC()
		return freed.Load() >= locks-inBuffers
	}) {
		f.Errorf("%d of %d locks keep their attempts", locks-freed.Load(), locks)
	}
	for _, g := range grants {
		f.release(d, g)
	}
}

func closeLeavesNothing(f *fixture) {
	goroutines, before := f.goroutines(), sockets()
	for range 10 {
		d, closeDriver := f.open()
		other, closeOther := f.open()
		g := f.grant(d, f.try(f.long()))
		req := f.request(f.long())
		busy := f.busy(other, req)
		ctx, cancel := context.WithTimeout(f.ctx, 5*time.Millisecond)
		if w, ok := other.(backend.Waiter); ok {
			_, _ = w.Wait(ctx, req, busy)
		}
		cancel()
		_, _ = d.Renew(f.ctx, g)
		f.undo(other, req)
		f.release(d, g)
		closeDriver()
		closeOther()
	}
	if !f.eventually(prompt, func() bool { return f.goroutines() <= goroutines }) {
		f.Errorf("%d goroutines, %d before:\n%s", f.goroutines(), goroutines, f.profile())
	}
	if !f.eventually(prompt, func() bool { return sockets() <= before }) {
		f.Errorf("%d open sockets, %d before", sockets(), before)
	}
}
