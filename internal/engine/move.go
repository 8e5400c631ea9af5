package engine

import (
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/bound"
)

// Downgrade makes the exclusive grant of l a shared one, so that readers are admitted. It blocks
// for one request, until ctx ends. After ErrUncertain the grant may be shared, and Downgrade may be
// called again; l stays held in any case.
func (l *Lease) Downgrade(ctx context.Context) error {
	a := l.tenure.acq
	e := a.engine
	if e.downgrader == nil {
		return backend.ErrUnsupported
	}
	if err := e.Enter(ctx); err != nil {
		return err
	}
	defer e.Leave()
	grant, err := l.pin(backend.Exclusive)
	if err != nil {
		return err
	}
	bound := bound.New(ctx, a.lock.requestLimit())
	defer bound.Cancel()
	shared, err := e.downgrader.Downgrade(bound, grant)
	if err == nil && shared == nil {
		err = ErrNothing
	}
	return l.downgraded(ctx, shared, err)
}

// pin checks that l is the only lease on its grant, which must be in the given mode, and returns
// the grant. From then on the grant takes no part in hand-offs, and no other lease joins it. A mode
// of 0 is any mode.
func (l *Lease) pin(mode backend.Mode) (*backend.Grant, error) {
	t := l.tenure
	a := t.acq
	a.engine.mu.Lock()
	defer a.engine.unlock()
	switch err := l.check(); {
	case err != nil:
		return nil, err
	case mode != 0 && a.mode != mode:
		return nil, errNoWriter
	case len(t.leases) != 1 || !t.isAlone():
		return nil, errShared
	}
	a.pinned = true
	if a.mode == backend.Shared {
		a.closeToReaders()
	}
	return a.grant, nil
}

// downgraded handles the answer to a Downgrade.
func (l *Lease) downgraded(ctx context.Context, shared *backend.Grant, err error) error {
	a := l.tenure.acq
	e := a.engine
	e.mu.Lock()
	defer e.unlock()
	if isLost(err) {
		a.markLost(err)
	}
	switch ended := l.check(); {
	case ended != nil:
		return ended
	case errors.Is(err, backend.ErrUnavailable):
		return Unavailable(e.Unanswered(ctx, err))
	case IsDefinite(err):
		return err
	case err != nil:
		return Uncertain(e.Unanswered(ctx, err))
	}
	a.grant, a.mode = shared, backend.Shared
	a.prove(shared.Term, e.now())
	a.open(e.now())
	return nil
}

// Export detaches the grant of l from this process and ends l. It returns the driver's ticket for
// Adopt, and the number of the hand-off. It blocks for one request, until ctx ends. If the outcome
// is unknown, l has ended and its grant is released in the background.
func (l *Lease) Export(ctx context.Context) (ticket string, handoff int, _ error) {
	a := l.tenure.acq
	e := a.engine
	if e.mover == nil {
		return "", 0, backend.ErrUnsupported
	}
	if err := e.Enter(ctx); err != nil {
		return "", 0, err
	}
	defer e.Leave()
	grant, err := l.pin(0)
	if err != nil {
		return "", 0, err
	}
	bound := bound.New(ctx, a.lock.requestLimit())
	defer bound.Cancel()
	ticket, err = e.mover.Export(bound, grant)
	if err == nil && ticket == "" {
		err = ErrNothing
	}
	return ticket, int(l.tenure.local), l.exported(ctx, err)
}

// exported handles the answer to an Export.
func (l *Lease) exported(ctx context.Context, err error) error {
	t := l.tenure
	a := t.acq
	e := a.engine
	e.mu.Lock()
	defer e.unlock()
	if isLost(err) {
		a.markLost(err)
	}
	switch ended := l.check(); {
	case ended != nil:
		if err == nil { // no caller gets the ticket
			a.repeat = true
			a.releaseInBackground()
		}
		return ended
	case errors.Is(err, backend.ErrUnavailable):
		return Unavailable(e.Unanswered(ctx, err))
	case IsDefinite(err):
		return err
	}
	t.end(backend.ErrNotHeld)
	if err != nil {
		a.repeat = true
		a.releaseInBackground()
		return Uncertain(e.Unanswered(ctx, err))
	}
	a.on(exportEvent)
	a.leave(requestTurn)
	return nil
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
	a := e.newAcquisition(l, nil, false, time.Time{})
	a.pinned = true
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
	bound := bound.New(ctx, a.lock.requestLimit())
	defer bound.Cancel()
	grant, err := e.mover.Adopt(bound, ticket, &a.request)
	if err == nil && grant == nil {
		err = ErrNothing
	}
	if err == nil {
		return grant, nil
	}
	a.uncertain = !IsDefinite(err) && !errors.Is(err, backend.ErrUnavailable)
	a.attempted = a.uncertain
	e.mu.Lock()
	defer e.unlock()
	a.cleanUp()
	return nil, a.tryError(ctx, err)
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
		if errors.Is(err, errBroken) {
			err = a.reason
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
