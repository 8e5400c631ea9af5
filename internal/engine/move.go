package engine

import (
	"context"
	"errors"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/bound"
)

// eitherMode is the mode of a grant after a Downgrade without an answer.
const eitherMode = backend.Exclusive | backend.Shared

// Downgrade makes the exclusive grant of l a shared one, so that readers are admitted. It blocks
// for one request, until ctx ends. After ErrUncertain the grant may be shared, and Downgrade may be
// called again; l stays held in any case.
func (l *Lease) Downgrade(ctx context.Context) (err error) {
	a := l.tenure.acq
	e := a.engine
	if e.downgrader == nil {
		return backend.ErrUnsupported
	}
	if err := e.Enter(ctx); err != nil {
		return err
	}
	defer e.Leave()
	bound := bound.New(ctx, a.lock.requestLimit()).EndWith(e.working)
	defer bound.Cancel()
	grant, err := l.beginMove(inDowngrade, a.checkDowngrade)
	if err != nil {
		return err
	}
	var shared *backend.Grant
	err = errAborted // unless the driver returns
	defer func() { err = l.downgraded(ctx, shared, err) }()
	shared, err = e.downgrader.Downgrade(bound, grant)
	err = sound(err)
	if err == nil && shared == nil {
		err = ErrNothing
	}
	if err == nil && isOther(shared, &grant.Request) {
		err = errOther(shared)
	}
	return err
}

// beginMove checks that l is the only lease on its grant, and that check returns no error. It
// returns the grant. From then on the grant takes no part in hand-offs. No other lease joins it
// during the request. beginMove locks e.mu, also for the call of check.
func (l *Lease) beginMove(move pin, check func() error) (*backend.Grant, error) {
	t := l.tenure
	a := t.acq
	a.engine.mu.Lock()
	defer a.engine.unlock()
	switch err := l.check(); {
	case err != nil:
		return nil, err
	case t.leases == nil || t.leases.next != nil || !t.isAlone():
		return nil, errShared
	case a.pin.isMoving():
		return nil, errMoving
	}
	if err := check(); err != nil {
		return nil, err
	}
	a.pin = move
	if a.mode == backend.Shared {
		a.closeToReaders()
	}
	a.schedule() // an Export puts the renewals off
	return a.grant, nil
}

// checkDowngrade returns an error if the grant of a is not a writer's. e.mu must be held.
func (a *acquisition) checkDowngrade() error {
	if a.mode&backend.Exclusive == 0 {
		return errNoWriter
	}
	return nil
}

// downgraded handles the answer to a Downgrade, and returns its error for the caller. A context
// that panics finds the answer handled.
func (l *Lease) downgraded(ctx context.Context, shared *backend.Grant, err error) error {
	if ended := l.applyDowngrade(shared, err); ended != nil {
		return ended
	}
	return l.tenure.acq.engine.RequestError(ctx, err)
}

// applyDowngrade applies the answer to a Downgrade. It returns the reason if l has ended.
func (l *Lease) applyDowngrade(shared *backend.Grant, err error) (ended error) {
	r := read(err, errGoneAtDowngrade)
	a := l.tenure.acq
	e := a.engine
	e.mu.Lock()
	defer e.unlock()
	a.pin = pinned
	if r.loss != nil && a.live() { // else the release may have been first
		a.markLost(r.loss)
	}
	switch ended = l.check(); {
	case ended != nil:
	case r.err == nil:
		now := e.now()
		a.grant, a.mode = shared, backend.Shared
		a.prove(shared.Term, now)
		a.open(now)
	case r.isUnknown:
		a.mode = eitherMode
	}
	return ended
}

// Exported is an exported grant.
type Exported struct {
	Ticket  string       // the driver's, for Adopt
	Mode    backend.Mode // of the grant, which a Downgrade may have changed
	Handoff int          // the number of its hand-off
}

// Export detaches the grant of l from this process and ends l. It blocks for one request, until ctx
// ends. If the outcome is unknown, l has ended and its grant is released in the background.
func (l *Lease) Export(ctx context.Context) (x Exported, err error) {
	a := l.tenure.acq
	e := a.engine
	if e.mover == nil {
		return x, backend.ErrUnsupported
	}
	if err := e.Enter(ctx); err != nil {
		return x, err
	}
	defer e.Leave()
	bound := bound.New(ctx, a.lock.requestLimit()).EndWith(e.working)
	defer bound.Cancel()
	grant, err := l.beginMove(inExport, a.checkExport)
	if err != nil {
		return x, err
	}
	err = errAborted // unless the driver returns
	defer func() { err = l.exported(ctx, &x, err) }()
	x.Ticket, err = e.mover.Export(bound, grant)
	err = sound(err)
	if err == nil && x.Ticket == "" {
		err = ErrNothing
	}
	return x, err
}

// checkExport returns an error if the mode of the grant of a is not certain, or if the server may
// still execute an earlier request of a. After the grant has passed to another owner, no release
// would remove what such a request leaves. A wall clock that was set forward executes no request,
// so the monotonic clock counts. e.mu must be held.
func (a *acquisition) checkExport() error {
	switch {
	case a.mode == eitherMode:
		return errEitherMode
	case a.repeat && a.engine.now().Sub(a.first.start) < a.engine.caps.Late:
		return errGhost
	}
	return nil
}

// exported handles the answer to an Export: it completes x, or returns the error for the caller. A
// context that panics finds the answer handled.
func (l *Lease) exported(ctx context.Context, x *Exported, err error) error {
	if ended := l.applyExport(x, err); ended != nil {
		return ended
	}
	return l.tenure.acq.engine.RequestError(ctx, err)
}

// applyExport applies the answer to an Export. It returns the reason if l had ended before.
func (l *Lease) applyExport(x *Exported, err error) (ended error) {
	r := read(err, errGoneAtExport)
	t := l.tenure
	a := t.acq
	e := a.engine
	e.mu.Lock()
	defer e.unlock()
	a.pin = pinned
	if r.loss != nil && a.live() { // else the release may have been first
		a.markLost(r.loss)
	}
	switch ended = l.check(); {
	case ended != nil:
		a.repeat = a.repeat || r.err == nil || r.isUnknown // no caller gets the ticket
	case r.err == nil:
		x.Mode, x.Handoff = a.mode, int(t.local)
		t.end(backend.ErrNotHeld)
		a.on(exportEvent)
		a.leave(turn{kind: requestTurn})
	case r.isUnknown:
		t.end(backend.ErrNotHeld)
		a.repeat = true
		a.releaseInBackground()
	default:
		a.schedule() // the renewals go on
	}
	return ended
}

// Adopt acquires the grant behind a ticket and puts its lease into ref. handoff is the number that
// Export returned with the ticket. It makes one attempt, and blocks for one request, until ctx
// ends.
func (e *Engine) Adopt(
	ctx context.Context, l *Lock, ticket string, handoff int, ref *Ref,
) error {
	if e.mover == nil {
		return backend.ErrUnsupported
	}
	if err := e.Enter(ctx); err != nil {
		return err
	}
	defer e.Leave()
	a := e.newAcquisition(l, nil, false, silence{})
	a.pin = pinned
	returned := false
	defer func() {
		if !returned { // the driver panicked, or ended the goroutine
			a.undo()
		}
	}()
	grant, err := a.adopt(ctx, ticket)
	if err == nil {
		err = a.acceptAdopted(grant, handoff, ref)
	}
	returned = true
	return err
}

// adopt is the request of an Adopt.
func (a *acquisition) adopt(ctx context.Context, ticket string) (*backend.Grant, error) {
	e := a.engine
	bound := bound.New(ctx, a.lock.requestLimit()).EndWith(e.working)
	defer bound.Cancel()
	grant, err := e.mover.Adopt(bound, ticket, &a.request)
	err = sound(err)
	if err == nil && grant == nil {
		err = ErrNothing
	}
	if err == nil {
		return grant, nil
	}
	if r := read(err, errGoneAtAdoption); r.loss != nil {
		err = r.loss
	}
	err, a.attempted = e.RequestError(ctx, err), isUnknown(err)
	e.mu.Lock()
	defer e.unlock()
	a.cleanUp()
	return nil, err
}

// acceptAdopted makes an adopted grant live and puts its lease into ref.
func (a *acquisition) acceptAdopted(grant *backend.Grant, handoff int, ref *Ref) error {
	e := a.engine
	e.mu.Lock()
	defer e.unlock()
	now := e.now()
	a.grant, a.term = grant, grant.Term
	if err := a.checkGrant(now); err != nil {
		a.cleanUp()
		switch {
		case errors.Is(err, errBroken):
			return a.reason
		case errors.Is(err, errLate):
			return errAdoptedLate // ErrUnavailable would mean that the handle is still good
		case errors.Is(err, backend.ErrClosed):
			return Uncertain(err) // the same for ErrClosed
		}
		return err
	}
	a.on(grantEvent)
	a.asking = nil
	a.begin(a.lock, now, handoff).hold(ref)
	a.planRenewal()
	a.schedule()
	return nil
}
