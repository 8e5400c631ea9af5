package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/bound"
)

// Acquire acquires the lock l and puts the lease into ref. It blocks until then, or until ctx
// ends; if wait is false it makes one attempt. A waiter that loses its grant before it has the
// lease tries again from the same place.
func (e *Engine) Acquire(ctx context.Context, l *Lock, wait bool, ref *Ref) error {
	if err := e.Enter(ctx); err != nil {
		return err
	}
	defer e.Leave()
	if holds, err := e.reenter(ctx, l, ref); holds {
		return err
	}
	a, t, err := e.reachFront(ctx, l, wait)
	for losses := 0; err == nil; losses++ {
		if t != nil {
			err = t.take(ref)
		} else {
			err = a.contend(ctx, l, wait, ref)
		}
		if !errors.Is(err, errBroken) {
			return err
		}
		a, t, err = a.tryAgain(ctx, t, l, wait, losses)
	}
	return err
}

// reachFront blocks until the caller is at the front of the line of l. It returns an acquisition
// to contend with, or a tenure to take.
func (e *Engine) reachFront(
	ctx context.Context, l *Lock, wait bool,
) (*acquisition, *tenure, error) {
	done := ctx.Done() // code of a user, which may not return
	e.mu.Lock()
	p, err := e.join(l, wait)
	e.unlock()
	ln, w := p.line, p.waiter
	switch {
	case err != nil:
		return nil, nil, err
	case p.tenure != nil:
		return p.tenure.acq, p.tenure, nil
	case w == nil:
		return e.newAcquisition(l, ln, wait, time.Time{}), nil, nil
	}
	ln = w.line
	t, err := e.await(ctx, done, w)
	if err != nil {
		return nil, nil, err
	}
	switch t.kind {
	case grantTurn:
		return t.acq, t.tenure, nil
	case entryTurn:
		t.acq.answered = time.Time{}
		return t.acq, nil, nil
	case silentTurn:
		silentSince := later(t.answered, w.joined)
		if time.Since(silentSince) >= l.TTL {
			e.mu.Lock()
			defer e.unlock()
			e.serve(ln, t)
			return nil, nil, errSilent
		}
		return e.newAcquisition(l, ln, wait, silentSince), nil, nil
	}
	return e.newAcquisition(l, ln, wait, time.Time{}), nil, nil
}

// contend sends requests from the front of the line until it has the lock or has to give up. A
// driver that panics costs the call and leaves nothing locked.
func (a *acquisition) contend(ctx context.Context, l *Lock, wait bool, ref *Ref) error {
	returned := false
	defer func() {
		if !returned { // the driver panicked, or ended the goroutine
			a.undo()
		}
	}()
	err := a.contendOnce(ctx, l, wait, ref)
	returned = true
	if err != nil && !errors.Is(err, errBroken) {
		a.engine.mu.Lock()
		defer a.engine.unlock()
		if a.state == requesting {
			a.giveUp(err)
		}
	}
	return err
}

// contendOnce acquires the lock under the owner of a. It returns errBroken if another owner is
// needed.
func (a *acquisition) contendOnce(ctx context.Context, l *Lock, wait bool, ref *Ref) error {
	grant, waited, err := a.requestGrant(ctx, wait)
	if err != nil {
		return err
	}
	t, err := a.accept(l, grant, waited, ref)
	switch {
	case t != nil: // a loss shows in take
		_ = a.renew(ctx)
		return t.take(ref)
	case errors.Is(err, errLate) && a.busy != nil: // the waiter was stopped; the server is not away
		return errBroken
	}
	return err
}

// undo cleans up an attempt of a driver that did not return.
func (a *acquisition) undo() {
	a.engine.mu.Lock()
	defer a.engine.unlock()
	if a.state == requesting {
		a.attempted = true
		a.giveUp(nil)
	} else {
		a.first.discard(time.Now())
	}
}

// pauseAfterLoss backs off if grants keep being lost before their waiter has them.
func (e *Engine) pauseAfterLoss(ctx context.Context, l *Lock, losses int) {
	if losses == 0 {
		return
	}
	ctx, stop := e.WhileOpen(ctx)
	defer stop()
	sleep(ctx, jittered(backoff(losses-1, l.TTL/10)))
}

// tryAgain follows the loss of a, or of its tenure t, before the caller had a lease. losses is the
// number of earlier losses. The caller contends with another owner in its place. A reader that
// shared the grant has no place, and reaches the front of the line again.
func (a *acquisition) tryAgain(
	ctx context.Context, t *tenure, l *Lock, wait bool, losses int,
) (*acquisition, *tenure, error) {
	ln, err := a.keepPlace(ctx, t, l, wait, losses)
	switch {
	case err != nil:
		return nil, nil, err
	case ln == nil:
		return a.engine.reachFront(ctx, l, wait)
	}
	return a.engine.newAcquisition(l, ln, wait, time.Time{}), nil, nil
}

// keepPlace backs off, and then replaces the owner of a. A context that panics costs the caller its
// place at the front of the line, but does not keep it occupied.
func (a *acquisition) keepPlace(
	ctx context.Context, t *tenure, l *Lock, wait bool, losses int,
) (ln *line, err error) {
	err = errAborted // unless the context returns
	defer func() { ln, err = a.replaceOwner(t, err) }()
	a.engine.pauseAfterLoss(ctx, l, losses)
	if ended(ctx) != nil {
		return nil, ContextError(ctx)
	}
	if !wait {
		return nil, errTakenBack
	}
	return nil, nil
}

// replaceOwner cleans up a, which is lost, and returns the line at whose front the caller stands,
// or nil if it has no such place. If the caller gives up because of err, its place is free.
func (a *acquisition) replaceOwner(t *tenure, err error) (*line, error) {
	e := a.engine
	e.mu.Lock()
	defer e.unlock()
	ln := a.takePlace(t)
	if a.state == requesting {
		a.cleanUp()
	}
	if e.closing.Err() != nil {
		err = backend.ErrClosed
	}
	if err != nil {
		e.serve(ln, turn{kind: requestTurn})
		return nil, err
	}
	return ln, nil
}

// giveUp ends an acquisition that was not granted, because of err. Its queue entry passes to the
// next waiter of the line. If there is none, what it may have left on the server is removed in
// the background. e.mu must be held.
func (a *acquisition) giveUp(err error) {
	t := turn{kind: requestTurn}
	if isExhausted(err) {
		t = turn{kind: silentTurn, answered: a.answered}
	}
	if t.kind == requestTurn && a.grant == nil && a.hasTraces() && a.transferEntry() {
		return
	}
	a.leave(t)
	a.cleanUp()
}

// hasTraces reports whether the requests of a may have left something on the server.
func (a *acquisition) hasTraces() bool {
	return a.grant != nil || a.attempted || a.busy != nil && a.busy.Queued
}

// cleanUp removes in the background what a may have left on the server. e.mu must be held.
func (a *acquisition) cleanUp() {
	if !a.hasTraces() {
		a.on(finishEvent)
		return
	}
	a.repeat = a.repeat || a.grant == nil && a.attempted
	a.releaseInBackground()
}

// requestGrant requests the lock until it is granted, or until there is an error to give up with.
// waited reports whether the grant came through Wait.
func (a *acquisition) requestGrant(
	ctx context.Context, wait bool,
) (grant *backend.Grant, waited bool, err error) {
	grant, err = a.attempt(ctx)
	switch {
	case err == nil:
		return grant, false, nil
	case wait:
		return a.requestUntilGranted(ctx, err)
	}
	return nil, false, a.engine.tryError(ctx, err)
}

// attempt is one request for the lock.
func (a *acquisition) attempt(ctx context.Context) (*backend.Grant, error) {
	e, now := a.engine, time.Now()
	bound := a.newBound().Begin(ctx, now, a.lock.requestLimit()).EndWith(e.closing)
	defer bound.Cancel()
	if a.answered.IsZero() {
		a.answered = now
	}
	grant, err := e.driver.Acquire(bound, &a.request)
	if err == nil && grant == nil {
		err = ErrNothing
	}
	if busy, ok := errors.AsType[*backend.Busy](err); ok {
		a.busy = busy
	}
	a.uncertain = isUnknown(err)
	a.attempted = a.attempted || a.uncertain
	return grant, err
}

// newBound returns room for the bound of the next attempt. Most acquisitions have one.
func (a *acquisition) newBound() *bound.Bound {
	if a.requested {
		return new(bound.Bound)
	}
	a.requested = true
	return &a.firstBound
}

// tryError returns the caller's error of a single request that failed with err, or nil if err is
// nil. It calls code of ctx, so e.mu must not be held.
func (e *Engine) tryError(ctx context.Context, err error) error {
	switch {
	case err == nil || IsDefinite(err):
		return err
	case errors.Is(err, backend.ErrUnavailable):
		return Unavailable(e.Unanswered(ctx, err))
	}
	return Uncertain(e.Unanswered(ctx, err))
}

// requestUntilGranted is the loop of a waiter: wait for a hint, then request again. err is the
// outcome of the first attempt.
func (a *acquisition) requestUntilGranted(
	ctx context.Context, err error,
) (grant *backend.Grant, waited bool, _ error) {
	ctx, stop := a.engine.WhileOpen(ctx)
	defer stop()
	var pace pacer
	var failure error // of the newest request that was not answered, unless a later one was
	for {
		if busy, ok := errors.AsType[*backend.Busy](err); ok {
			a.answered, failure = time.Now(), nil
			grant, err = a.wait(ctx, busy, &pace)
			waited = grant != nil
		} else {
			if ended(ctx) == nil {
				failure = a.engine.Unanswered(ctx, err)
			}
			err = a.pauseAfter(ctx, err, &pace)
		}
		if grant == nil && ended(ctx) != nil {
			return nil, false, a.interrupted(ctx, failure)
		}
		if err == nil && grant == nil {
			grant, err = a.attempt(ctx)
		}
		switch {
		case err == nil:
			return grant, waited, nil
		case isLost(err):
			// It was granted without an answer and has expired: another owner is needed.
			return nil, false, errBroken
		case isFinal(err):
			return nil, false, err
		}
	}
}

// interrupted returns the error of a Lock with a context that has ended or a client that was
// closed. If the server did not answer, the error wraps failure, the reason.
func (a *acquisition) interrupted(ctx context.Context, failure error) error {
	err := ContextError(ctx)
	if a.engine.closing.Err() != nil {
		err = backend.ErrClosed
	} else if errors.Is(failure, backend.ErrUnavailable) {
		err = fmt.Errorf("%w: %w", err, failure)
	}
	if a.uncertain {
		return Uncertain(err)
	}
	return err
}

// pauseAfter backs off after an attempt that failed. It returns nil if another attempt may
// succeed, and the error to give up with otherwise.
func (a *acquisition) pauseAfter(ctx context.Context, err error, pace *pacer) error {
	ttl := a.lock.TTL
	if isFinal(err) {
		return err
	}
	if time.Since(a.answered) >= ttl {
		return &exhaustedError{Unavailable(a.engine.Unanswered(ctx, err))}
	}
	sleep(ctx, pace.next(10*time.Millisecond, min(ttl/10, time.Second)))
	return nil
}

// wait blocks until another attempt may succeed, or until the server has granted the lock.
func (a *acquisition) wait(
	ctx context.Context, busy *backend.Busy, pace *pacer,
) (*backend.Grant, error) {
	waiter, l := a.engine.waiter, a.lock
	if waiter == nil {
		shortest := l.PollInterval / 50
		pace.observe(busy.Fence, shortest)
		sleep(ctx, untilFree(busy, pace.next(shortest, l.PollInterval)))
		a.answered = time.Time{} // the pause may be longer than the TTL
		return nil, nil
	}
	bound := bound.New(ctx, untilFree(busy, jittered(l.TTL/3)))
	defer bound.Cancel()
	began := time.Now()
	grant, err := waiter.Wait(bound, &a.request, busy)
	if time.Since(began) >= l.TTL { // the process was stopped; the server is not away
		a.answered = time.Time{}
	}
	if err != nil && bound.Err() != nil {
		err = nil // another attempt; the caller checks whether ctx has ended
	}
	if _, again := errors.AsType[*backend.Busy](err); grant == nil && (err == nil || again) {
		sleep(ctx, pace.idle(time.Since(began)))
	}
	return grant, err
}
