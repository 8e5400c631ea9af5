package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
)

var orderCases = []Case{
	{
		Name: "LateRenewalShortensNoTerm",
		Promise: "A renewal that was given up and is executed after its successor does not " +
			"shorten the successor's term.",
		run: lateRenewalShortensNoTerm,
	},
	{
		Name: "LateRepeatedAcquireShortensNoTerm",
		Promise: "A repeated Acquire that was given up and is executed after a renewal does not " +
			"shorten the renewal's term.",
		run: lateRepeatedAcquireShortensNoTerm,
	},
	{
		Name: "LateRenewalRevivesNoGrant",
		Promise: "A renewal that is executed after the release does not restore the grant, and " +
			"does not affect the next holder's grant.",
		run: lateRenewalRevivesNoGrant,
	},
	{
		Name: "LateReleaseFreesNoOtherGrant",
		Promise: "A release that is executed a second time, after the lock was granted to " +
			"another owner, does not affect that owner's grant.",
		run: lateReleaseFreesNoOtherGrant,
	},
	{
		Name: "LateAcquireIsFoundByItsOwner",
		Promise: "A grant that the server gives late, after a refusal of the same owner, is " +
			"removed by that owner's release.",
		run: lateAcquireIsFoundByItsOwner,
	},
	{
		Name: "LateAcquireIsNoGhost",
		Promise: "A Lock that was given up, and that the server executes afterwards, blocks " +
			"other clients no longer than Capabilities.Late.",
		run: lateAcquireIsNoGhost,
	},
	{
		Name: "LateGrantReachesItsWaiter",
		Promise: "A grant that is executed late, after a refusal of the same owner, becomes the " +
			"lease of its waiter and of no other.",
		run: lateGrantReachesItsWaiter,
	},
	{
		Name: "LateGrantAfterARefusalIsUndone",
		Promise: "A grant that is executed late, after its waiter was refused and gave up, is " +
			"undone.",
		run: lateGrantAfterARefusalIsUndone,
	},
}

// patience is the time for which the cases of this file wait for a request before they give it up.
const patience = 300 * time.Millisecond

// delayed is a process with requests that are kept back until deliver is called.
type delayed struct {
	f        *fixture
	d        backend.Driver
	req      *backend.Request // the acquisition of the case
	delivers []func()
}

// delay keeps back the requests on all connections that are open now, including the connections
// of d.
func (f *fixture) delay(d backend.Driver, req *backend.Request) *delayed {
	f.Helper()
	p := &delayed{f: f, d: d, req: req}
	p.delay()
	return p
}

func (p *delayed) delay() {
	p.f.Helper()
	p.delivers = append(p.delivers, p.f.delayAll())
}

// delayAll calls Delay of the Harness. It records a fault, so that the missing answers do not count
// as a standstill of the server.
func (f *fixture) delayAll() (deliver func()) {
	f.Helper()
	return watched{pulse: &f.pulse}.until(ability[Delayer](f).Delay(f))
}

func (p *delayed) deliver() {
	for _, deliver := range p.delivers {
		deliver()
	}
}

// giveUp sends a request and ends its context before the answer. If the driver opened a new
// connection for the request, giveUp delays this connection as well and repeats the request. It
// also repeats a renewal that the driver answers with an earlier answer.
func (p *delayed) giveUp(what string, request func(ctx context.Context) error) {
	p.f.Helper()
	var err error
	for begun := time.Now(); time.Since(begun) < prompt; time.Sleep(nap) {
		ctx, cancel := context.WithTimeout(p.f.ctx, patience)
		err = request(ctx)
		end, _ := ctx.Deadline()
		// The driver may detect the deadline before ctx.Err reports it.
		givenUp := err != nil && !time.Now().Before(end)
		cancel()
		if givenUp {
			return
		}
		if err != nil && isAnswer(err) && !errors.Is(err, backend.ErrNotAcquired) {
			p.deliver()
			p.f.Fatalf("%s: %v", what, err)
		}
		p.delay()
		if err == nil {
			time.Sleep(patience)
		}
	}
	p.inapplicable(fmt.Sprintf("%s is answered without the server: %v", what, err))
}

// inapplicable undoes the requests of the case and ends it as a case that does not apply.
func (p *delayed) inapplicable(reason string) {
	p.f.Helper()
	p.deliver()
	p.f.undo(p.f.driver(), p.req)
	p.f.undo(p.d, p.req)
	p.f.inapplicable("%s", reason)
}

// succeed sends the successor of a request that was given up. It uses the same driver if this has
// another connection by now, and otherwise a new driver.
func (p *delayed) succeed(what string, request func(ctx context.Context, d backend.Driver) error) {
	p.f.Helper()
	var err error
	for _, d := range []backend.Driver{p.d, p.f.driver()} {
		ctx, cancel := context.WithTimeout(p.f.ctx, p.f.span(4*patience))
		err = request(ctx, d)
		cancel()
		if err == nil {
			return
		}
		if isAnswer(err) {
			p.deliver()
			p.f.Fatalf("%s: %v", what, err)
		}
	}
	p.inapplicable(fmt.Sprintf("%s cannot overtake on the same connection: %v", what, err))
}

// warm sends requests, so that d opens the connections that it needs, and returns d.
func (f *fixture) warm(d backend.Driver) backend.Driver {
	f.Helper()
	for range 2 {
		g := f.grant(d, f.try(f.long()))
		for _, r := range renewers {
			if _, err := f.renewBy(r, d, g); err != nil {
				f.Errorf("%s: %v", r.name, err)
			}
		}
		f.release(d, g)
	}
	return d
}

// withoutSession ends a case about terms if grants live with a session and have no separate terms.
func (f *fixture) withoutSession() {
	f.Helper()
	if f.caps.Session {
		f.inapplicable("grants live with their session, and no request carries a term")
	}
}

// untied ends a case in which a lock survives its connection, if it does not on this backend.
func (f *fixture) untied() {
	f.Helper()
	if f.isTied() {
		f.inapplicable("a lock ends with its connection, and no other connection can free it")
	}
}

// keptUntil checks that the lock is not granted before end, and is granted soon after it.
func (f *fixture) keptUntil(end time.Time) {
	f.Helper()
	f.keyKeptUntil(f.name, end)
}

// keyKeptUntil is keptUntil for another lock of the case.
func (f *fixture) keyKeptUntil(key string, end time.Time) {
	f.Helper()
	at, _ := f.takeOverKey(f.driver(), key, end)
	f.notBefore("the lock was granted to another owner before the end of the answered term",
		end, at)
}

// renewer is a way to renew one grant.
type renewer struct {
	name  string
	renew func(ctx context.Context, d backend.Driver, g *backend.Grant) (backend.Term, error)
}

// renewBy renews g with r.
func (f *fixture) renewBy(r renewer, d backend.Driver, g *backend.Grant) (backend.Term, error) {
	answered := f.send(f.connection(d), renew, g.Owner)
	term, err := r.renew(f.ctx, d, g)
	answered(err)
	return term, err
}

// renewers are the two ways to renew.
var renewers = []renewer{
	{
		"Renew",
		func(ctx context.Context, d backend.Driver, g *backend.Grant) (backend.Term, error) {
			return d.Renew(ctx, g)
		},
	},
	{
		"RenewAll",
		func(ctx context.Context, d backend.Driver, g *backend.Grant) (backend.Term, error) {
			r := renewAll(ctx, d, []*backend.Grant{g})[0]
			return r.Term, r.Err
		},
	},
}

func lateRenewalShortensNoTerm(f *fixture) {
	_ = ability[Delayer](f)
	f.withoutSession()
	for _, r := range renewers {
		d := f.warm(f.driver())
		g := f.grant(d, f.try(f.ttl(4*time.Second)))
		p := f.delay(d, &g.Request)
		p.giveUp(r.name, func(ctx context.Context) error {
			_, err := r.renew(ctx, d, g)
			return err
		})
		var term backend.Term
		p.succeed("a second "+r.name, func(ctx context.Context, d backend.Driver) (err error) {
			term, err = r.renew(ctx, d, g)
			return err
		})
		p.deliver()
		f.keptUntil(term.Sent.Add(term.TTL))
	}
}

func lateRepeatedAcquireShortensNoTerm(f *fixture) {
	_ = ability[Delayer](f)
	f.withoutSession()
	d := f.warm(f.driver())
	req := f.try(f.ttl(4 * time.Second))
	g := f.grant(d, req)
	p := f.delay(d, req)
	p.giveUp("Acquire", func(ctx context.Context) error {
		_, err := d.Acquire(ctx, req)
		return err
	})
	var term backend.Term
	p.succeed("a renewal", func(ctx context.Context, d backend.Driver) (err error) {
		term, err = d.Renew(ctx, g)
		return err
	})
	p.deliver()
	f.keptUntil(term.Sent.Add(term.TTL))
}

func lateRenewalRevivesNoGrant(f *fixture) {
	f.untied()
	_ = ability[Delayer](f)
	for _, r := range renewers {
		for _, held := range []bool{true, false} { // by another owner when the renewal is executed
			d := f.warm(f.driver())
			g := f.grant(d, f.try(f.long()))
			p := f.delay(d, &g.Request)
			p.giveUp(r.name, func(ctx context.Context) error {
				_, err := r.renew(ctx, d, g)
				return err
			})
			p.succeed("a release", func(ctx context.Context, d backend.Driver) error {
				return d.Release(ctx, g)
			})
			next, third := f.driver(), f.driver()
			if !held {
				p.deliver()
				f.release(next, f.grant(next, f.try(f.long())))
				continue
			}
			other := f.grant(next, f.try(f.long()))
			p.deliver()
			f.stillHeld(next, other, third)
			f.release(next, other)
			f.release(third, f.grant(third, f.try(f.long())))
		}
	}
}

// stillHeld checks that g is held and that no other owner gets the lock.
func (f *fixture) stillHeld(d backend.Driver, g *backend.Grant, other backend.Driver) {
	f.Helper()
	f.refused(other, f.try(f.long()))
	for _, r := range renewers {
		if _, err := f.renewBy(r, d, g); err != nil {
			f.Errorf("%s by the present holder: %v", r.name, err)
		}
	}
}

func lateReleaseFreesNoOtherGrant(f *fixture) {
	f.untied()
	_ = ability[Delayer](f)
	d := f.warm(f.driver())
	g := f.grant(d, f.try(f.long()))
	p := f.delay(d, &g.Request)
	p.giveUp("Release", func(ctx context.Context) error {
		err := d.Release(ctx, g)
		if err == nil { // a new connection, not delayed yet, has sent it
			g = f.grant(f.driver(), p.req)
		}
		return err
	})
	p.succeed("a second release", func(ctx context.Context, d backend.Driver) error {
		return d.Release(ctx, g)
	})
	next := f.driver()
	other := f.grant(next, f.try(f.long()))
	p.deliver()
	f.stillHeld(next, other, f.driver())
	f.release(next, other)
}

func lateAcquireIsFoundByItsOwner(f *fixture) {
	_ = ability[Delayer](f)
	d, holder := f.warm(f.driver()), f.driverOf(f.apart())
	req := f.try(f.long())
	p := f.delay(d, req)
	g := f.grant(holder, f.try(f.long()))
	p.giveUp("Acquire", func(ctx context.Context) error {
		_, err := d.Acquire(ctx, req)
		return err
	})
	p.succeed("a second Acquire", func(ctx context.Context, d backend.Driver) error {
		_, err := d.Acquire(ctx, req)
		if err == nil {
			f.violation("Acquire of a held lock: a second holder")
		} else if errors.Is(err, backend.ErrNotAcquired) {
			err = nil
		}
		return err
	})
	f.release(holder, g)
	p.deliver()
	if f.isTied() {
		f.undoLate(d, req)
	} else {
		f.undoLate(f.driver(), req)
	}
	f.release(holder, f.grant(holder, f.try(f.long())))
}

func lateAcquireIsNoGhost(f *fixture) {
	c := f.client(dlock.WithTTL(f.long()))
	f.unlock(f.lockWithin(c, prompt, f.name)) // opens the connection
	for range 3 {
		deliver := f.delayAll()
		waiter := f.lockAsync(c, f.name)
		select {
		case <-waiter.done: // the client used a new connection
		case <-time.After(patience):
		}
		waiter.cancel()
		if !f.within(prompt, "the cancelled Lock returns", waiter.done) {
			return
		}
		if waiter.err == nil {
			_ = waiter.lease.Unlock(f.ctx)
		}
		time.Sleep(min(f.caps.Late/4, patience))
		deliver()
		f.unlock(f.lockBy(f.client(), time.Now().Add(f.caps.Late), f.name, dlock.WithTTL(f.long())))
	}
}

// queueing returns the sets of options for the waiters of a case: without a queue and, if the
// backend has an optional queue, with it.
func (f *fixture) queueing() [][]dlock.Option {
	variants := [][]dlock.Option{nil}
	if f.caps.Fair == backend.FairOptional {
		variants = append(variants, []dlock.Option{dlock.WithFair()})
	}
	return variants
}

// lateRequest returns a copy of the request of the waiter of t, which the case sends later as a
// delayed request.
func (f *fixture) lateRequest(t *tap, fair bool) *backend.Request {
	f.Helper()
	req := f.request(f.long())
	req.Fair = fair
	t.await(acquire, 1, wasBusy)
	calls, _ := t.snapshot()
	for _, c := range calls {
		req.Owner = c.owner
	}
	return req
}

func lateGrantReachesItsWaiter(f *fixture) {
	f.timed()
	for i, opts := range f.queueing() {
		holder := f.client(dlock.WithTTL(f.long()))
		c, t := f.tapped(append(opts, dlock.WithTTL(f.long()))...)
		lease := f.lock(holder, f.name)
		waiter := f.lockAsync(c, f.name)
		req := f.lateRequest(t, i > 0)
		f.unlock(lease)
		_, err := t.inner.Acquire(f.ctx, req) // late; it fails if the waiter was faster
		next := f.grantedBy(waiter, time.Now())
		if err == nil && next.Owner() != req.Owner {
			f.Errorf("granted to %q, but the waiter is %q", req.Owner, next.Owner())
		}
		f.held(f.client(), next)
		if err := next.Extend(f.ctx); err != nil {
			f.Errorf("Extend: %v", err)
		}
		f.unlock(next)
		f.free(f.client(), f.name)
	}
}

func lateGrantAfterARefusalIsUndone(f *fixture) {
	f.timed()
	if f.caps.Session {
		f.inapplicable("the grant lives with the connection of the waiter, not of this request")
	}
	const late = 500 * time.Millisecond
	for i, opts := range f.queueing() {
		f.untilExecuted(func() (executed bool) {
			lease := f.lock(f.client(dlock.WithTTL(f.long())), f.name)
			c, t := f.tappedLate(late, append(opts, dlock.WithTTL(f.long()))...)
			t.onBefore(acquire, times(1, fail(errReply))) // executed late
			waiter := f.lockAsync(c, f.name)
			req := f.lateRequest(t, i > 0)
			waiter.cancel()
			f.within(prompt, "the cancelled Lock returns", waiter.done)
			t.await(release, 1, func(call) bool { return true }) // the core has undone the attempt
			f.unlock(lease)
			executed = f.executeLate(t.inner, req)
			f.unlock(f.lockBy(f.client(), time.Now().Add(t.Capabilities().Late), f.name,
				dlock.WithTTL(f.long())))
			return executed
		})
	}
}
