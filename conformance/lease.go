package conformance

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

var leaseCases = []Case{
	{
		Name: "LeaseContextEndsWithTheLease",
		Promise: "A lease's context has the values and the deadline of its parent, and ends with " +
			"the parent or with the lease, for the same cause.",
		run: leaseContextEndsWithTheLease,
	},
	{
		Name: "DoReleases",
		Promise: "Do returns its function's error after it has unlocked; it also unlocks after a " +
			"panic or Goexit, and stops neither.",
		run: doReleases,
	},
	{
		Name: "TryDoDoesNotWait",
		Promise: "TryDo of a held lock returns ErrNotAcquired at once and does not run its " +
			"function.",
		run: tryDoDoesNotWait,
	},
	{
		Name: "RelockingIsRefused",
		Promise: "Lock on a context that already carries the name returns ErrNotAcquired at " +
			"once, instead of waiting for itself.",
		run: relockingIsRefused,
	},
	{
		Name: "ReentrantLeasesShareAGrant",
		Promise: "With WithReentrant the inner lease shares fence and grant, and the last Unlock " +
			"frees the lock, in any order.",
		run: reentrantLeasesShareAGrant,
	},
	{
		Name: "ReentrancyIsByContext",
		Promise: "Without the lease's context, another goroutine of the same client does not get " +
			"the lock.",
		run: reentrancyIsByContext,
	},
	{
		Name:    "OwnersAreRandom",
		Promise: "Each acquisition has a new owner of 128 random bits.",
		run:     ownersAreRandom,
	},
	{
		Name: "ErrorsNameTheirLock",
		Promise: "An error of the client is one *Error with operation and name, and errors.Is " +
			"finds its cause.",
		run: errorsNameTheirLock,
	},
	{
		Name: "ObserverSeesTheLifeOfALease",
		Promise: "An Observer receives attempt, acquisition, renewal and end of a lease, with " +
			"name, owner, fence and deadline.",
		run: observerSeesTheLifeOfALease,
	},
	{
		Name:    "ObserverSeesFailures",
		Promise: "An Observer receives an acquisition that failed, with its error.",
		run:     observerSeesFailures,
	},
	{
		Name:    "NilContextIsAnError",
		Promise: "A nil context is an error, not a panic, and acquires nothing.",
		run:     nilContextIsAnError,
	},
}

func leaseContextEndsWithTheLease(f *fixture) {
	type key struct{}
	c := f.client(dlock.WithTTL(f.long()))
	lease := f.lock(c, f.name)
	parent, cancelParent := context.WithTimeout(context.WithValue(f.ctx, key{}, "value"), time.Hour)
	deadline, _ := parent.Deadline()
	ctx, cancel := lease.Context(parent)
	defer cancel()
	if got, ok := ctx.Deadline(); !ok || !got.Equal(deadline) ||
		ctx.Value(key{}) != "value" || ctx.Err() != nil {
		f.Errorf("deadline %v, value %v, error %v", got, ctx.Value(key{}), ctx.Err())
	}
	second, cancelSecond := lease.Context(f.ctx)
	cancelSecond()
	f.isErr("a cancelled context", second.Err(), context.Canceled)
	third, cancelThird := lease.Context(f.ctx)
	defer cancelThird()
	cancelParent()
	f.within(prompt, "the context ends with its parent", ctx.Done())
	f.isErr("its cause", context.Cause(ctx), context.Canceled)
	if third.Err() != nil || lease.Err() != nil {
		f.Errorf("the end of one context ended another context or the lease: %v, %v",
			third.Err(), lease.Err())
	}
	f.unlock(lease)
	f.within(prompt, "the context ends with Unlock", third.Done())
	f.isErr("its cause", context.Cause(third), dlock.ErrNotHeld)
	f.within(prompt, "Lost is closed", lease.Lost())
}

func doReleases(f *fixture) {
	c, other := f.client(dlock.WithTTL(f.long())), f.client()
	mine := errors.New("the function's own error")
	for _, want := range []error{nil, mine} {
		err := c.Do(f.ctx, f.name, func(ctx context.Context, lease *dlock.Lease) error {
			f.held(other, lease)
			return want
		})
		if !errors.Is(err, want) || want == nil && err != nil {
			f.Errorf("Do: %v, want %v", err, want)
		}
		f.free(other, f.name)
	}
	func() {
		defer func() {
			if r := recover(); r != "on purpose" {
				f.Errorf("recovered %v", r)
			}
		}()
		_ = c.Do(f.ctx, f.name, func(context.Context, *dlock.Lease) error { panic("on purpose") })
	}()
	f.free(other, f.name)
	<-async(func() {
		_ = c.Do(f.ctx, f.name, func(context.Context, *dlock.Lease) error {
			runtime.Goexit()
			return nil
		})
		f.Errorf("Do returned after Goexit")
	})
	f.free(other, f.name)
}

func tryDoDoesNotWait(f *fixture) {
	c, other := f.client(dlock.WithTTL(f.long())), f.client()
	lease := f.lock(c, f.name)
	ran := false
	fn := func(context.Context, *dlock.Lease) error { ran = true; return nil }
	for _, c := range []*dlock.Client{c, other} {
		f.isErr("TryDo of a held lock", c.TryDo(f.ctx, f.name, fn), dlock.ErrNotAcquired)
	}
	if ran {
		f.Errorf("the function ran")
	}
	f.unlock(lease)
	if err := other.TryDo(f.ctx, f.name, fn); err != nil || !ran {
		f.Errorf("TryDo of a free lock: %v, ran: %v", err, ran)
	}
}

func relockingIsRefused(f *fixture) {
	c := f.client(dlock.WithTTL(f.long()))
	lease := f.lock(c, f.name)
	ctx, cancel := lease.Context(f.ctx)
	defer cancel()
	var err error
	if f.within(prompt, "Lock returns", async(func() { _, err = c.Lock(ctx, f.name) })) {
		f.isErr("Lock", err, dlock.ErrNotAcquired)
	}
	_, err = c.TryLock(ctx, f.name)
	f.isErr("TryLock", err, dlock.ErrNotAcquired)
	another, err := c.Lock(ctx, f.name+"/another")
	if err != nil {
		f.Fatalf("Lock of another name: %v", err)
	}
	f.unlock(another)
	f.unlock(lease)
}

func reentrantLeasesShareAGrant(f *fixture) {
	c, t := f.tapped(dlock.WithTTL(f.long()), dlock.WithReentrant())
	other := f.client()
	for _, innerFirst := range []bool{true, false} {
		outer := f.lock(c, f.name)
		ctx, cancel := outer.Context(f.ctx)
		asked := t.number(acquire)
		inner, err := c.Lock(ctx, f.name)
		if err != nil {
			f.Fatalf("Lock on the lease's context: %v", err)
		}
		if inner.Fence() != outer.Fence() || inner.Owner() != outer.Owner() ||
			t.number(acquire) != asked {
			f.Errorf("fences %d and %d, owners %q and %q, %d requests",
				inner.Fence(), outer.Fence(), inner.Owner(), outer.Owner(), t.number(acquire)-asked)
		}
		first, last := inner, outer
		if !innerFirst {
			first, last = outer, inner
		}
		f.unlock(first)
		f.isErr("Unlock again", first.Unlock(f.ctx), dlock.ErrNotHeld)
		f.held(other, last)
		if err := last.Err(); err != nil {
			f.Errorf("Err of the last lease: %v", err)
		}
		f.unlock(last)
		f.free(other, f.name)
		cancel()
	}
}

func reentrancyIsByContext(f *fixture) {
	c := f.client(dlock.WithTTL(f.long()), dlock.WithReentrant())
	lease := f.lock(c, f.name)
	f.held(c, lease)
	<-async(func() { f.held(c, lease) })
	ctx, cancel := lease.Context(f.ctx)
	defer cancel()
	f.unlock(lease)
	if again, err := c.TryLock(ctx, f.name); err == nil {
		f.Errorf("TryLock on the context of a lease that has ended: %v", again.Name())
	}
	again, err := c.TryLock(context.WithoutCancel(ctx), f.name)
	if err != nil {
		f.Fatalf("TryLock on a context with a lease that has ended: %v", err)
	}
	f.fenceGrew(lease.Fence(), again.Fence())
	f.held(f.client(), again)
	f.unlock(again)
}

func ownersAreRandom(f *fixture) {
	c := f.client(dlock.WithTTL(f.long()))
	seen := map[string]bool{}
	var common string // the common prefix of all owners
	for i := range 30 {
		lease := f.lock(c, f.name)
		owner := lease.Owner()
		f.unlock(lease)
		if len(owner) != 32 || strings.Trim(owner, "0123456789abcdef") != "" || seen[owner] {
			f.Errorf("owner %q, want 32 new hex digits", owner)
		}
		if i == 0 {
			common = owner
		}
		for !strings.HasPrefix(owner, common) {
			common = common[:len(common)-1]
		}
		seen[owner] = true
	}
	if common != "" {
		f.Errorf("all owners begin with %q", common)
	}
}

func errorsNameTheirLock(f *fixture) {
	c, t := f.tapped(dlock.WithTTL(f.long()))
	lease := f.lock(c, f.name)
	_, err := c.TryLock(f.ctx, f.name)
	f.unlock(lease)
	unlocked := lease.Unlock(f.ctx)
	root := errors.New("the client library's own error")
	t.onBefore(acquire, times(1, fail(root)))
	_, unknown := c.TryLock(f.ctx, f.name)
	for _, check := range []struct{ got, want error }{
		{err, dlock.ErrNotAcquired},
		{unlocked, dlock.ErrNotHeld},
		{unknown, root},
		{unknown, dlock.ErrUncertain},
	} {
		f.isErr("the cause", check.got, check.want)
		e, ok := errors.AsType[*dlock.Error](check.got)
		if !ok || e.Name != f.name || e.Op == "" {
			f.Errorf("%#v is not an *Error of this name", check.got)
			continue
		}
		if _, twice := errors.AsType[*dlock.Error](e.Err); twice {
			f.Errorf("wrapped twice: %v", check.got)
		}
	}
	f.free(f.client(), f.name)
}

// events records the events that an Observer receives.
type events struct {
	mu   sync.Mutex
	seen []string
	last map[string]dlock.Event
}

func (e *events) add(what string, event dlock.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.last == nil {
		e.last = map[string]dlock.Event{}
	}
	if _, repeated := e.last[what]; !repeated {
		e.seen = append(e.seen, what)
	}
	e.last[what] = event
}

func (e *events) observer() *dlock.Observer {
	return &dlock.Observer{
		Attempt:  func(_ context.Context, event dlock.Event) { e.add("attempt", event) },
		Acquired: func(_ context.Context, event dlock.Event) { e.add("acquired", event) },
		Renewed:  func(event dlock.Event) { e.add("renewed", event) },
		Ended:    func(event dlock.Event) { e.add("ended", event) },
	}
}

func (e *events) get(what string) dlock.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.last[what]
}

func observerSeesTheLifeOfALease(f *fixture) {
	var e events
	c, t := f.tapped(dlock.WithTTL(f.brief()), dlock.WithObserver(e.observer()))
	lease := f.lock(c, f.name)
	first := lease.Deadline()
	t.await(renew, 2, succeeded) // the Observer receives the first renewal before the second
	owner, fence := lease.Owner(), lease.Fence()
	f.unlock(lease)
	f.eventually(prompt, func() bool { return e.get("ended").Name != "" })
	e.mu.Lock()
	order := strings.Join(e.seen, " ")
	e.mu.Unlock()
	if order != "attempt acquired renewed ended" {
		f.Errorf("the Observer received %s", order)
	}
	for _, what := range []string{"acquired", "renewed", "ended"} {
		event := e.get(what)
		if event.Name != f.name || event.Owner != owner || event.Fence != fence ||
			event.Mode != backend.Exclusive || event.Err != nil || event.Local {
			f.Errorf("%s: %+v, want owner %q, fence %d", what, event, owner, fence)
		}
	}
	if d := e.get("renewed").Deadline; !d.After(first) {
		f.Errorf("renewed: deadline %v, the first one was %v", d, first)
	}
	if held := e.get("ended").Held; held <= 0 || held > limit {
		f.Errorf("ended: held for %v", held)
	}
}

func observerSeesFailures(f *fixture) {
	f.timed()
	var e events
	holder := f.client()
	c, t := f.tapped(dlock.WithTTL(f.long()), dlock.WithObserver(e.observer()))
	lease := f.lock(holder, f.name, dlock.WithTTL(f.long()))
	f.held(c, lease)
	f.eventually(prompt, func() bool { return e.get("acquired").Err != nil })
	f.isErr("Event.Err of a try", e.get("acquired").Err, dlock.ErrNotAcquired)
	const waited = 50 * time.Millisecond
	waiter := f.lockAsync(c, f.name)
	t.await(acquire, 2, wasBusy) // then the waiting has begun
	time.Sleep(waited)
	waiter.cancel()
	if !f.doneBy(time.Now(), "the cancelled Lock returns", waiter.done) {
		return
	}
	f.isErr("Lock", waiter.err, context.Canceled)
	f.eventually(prompt, func() bool { return errors.Is(e.get("acquired").Err, context.Canceled) })
	event := e.get("acquired")
	f.isErr("Event.Err of a Lock", event.Err, context.Canceled)
	if event.Name != f.name || event.Waited < waited {
		f.Errorf("acquired: %+v", event)
	}
	f.unlock(lease)
}

func nilContextIsAnError(f *fixture) {
	c, t := f.tapped()
	var none context.Context
	m, err := c.Mutex(f.name)
	if err != nil || m.Name() != f.name {
		f.Fatalf("Mutex: %v", err)
	}
	if _, err := m.Lock(none); err == nil {
		f.Errorf("Lock: nil")
	}
	if _, err := m.TryLock(none); err == nil {
		f.Errorf("TryLock: nil")
	}
	if _, err := c.LockAll(none, []string{f.name}); err == nil {
		f.Errorf("LockAll: nil")
	}
	lead := func(context.Context, *dlock.Lease) error { return nil }
	if err := c.Elect(none, f.name, lead); err == nil {
		f.Errorf("Elect: nil")
	}
	if _, err := dlock.Open(none, "mem:"); err == nil {
		f.Errorf("Open: nil")
	}
	if n := t.number(acquire); n != 0 {
		f.Errorf("the client sent %d requests", n)
	}
}
