package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/bound"
)

// Acquire acquires the lock l and puts the lease into ref. It blocks until then, or until ctx ends;
// if wait is false it makes one attempt. A waiter that loses its grant before it has the lease
// tries again from the same place. After an error nothing is left on the server that the engine
// does not release in the background.
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

// reachFront blocks until the caller is at the front of the line of l. It returns an acquisition to
// contend with, or a tenure to take. A silent server must not cost each waiter of a line a TTL. So
// after a silentTurn the silence counts from the last answer to the former front, or from the
// arrival of the caller if that was later.
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
		return e.newAcquisition(l, ln, wait, silence{}), nil, nil
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
		t.acq.inheritSilence(w.joined)
		return t.acq, nil, nil
	case silentTurn:
		s := *t.silence
		s.answered = later(s.answered, w.joined)
		if time.Since(s.answered) >= l.TTL {
			err := silentError(s.failure) // it formats a driver's error, so e.mu is not locked
			e.mu.Lock()
			defer e.unlock()
			e.serve(ln, t)
			return nil, nil, err
		}
		return e.newAcquisition(l, ln, wait, s), nil, nil
	}
	return e.newAcquisition(l, ln, wait, silence{}), nil, nil
}

// inheritSilence follows the transfer of a to a waiter that joined the line at that time. The
// silence of the server goes on: the next attempt repeats those of the former waiter, and the
// server may grant each of them. A zero answered is a poller's, which counts no silence.
func (a *acquisition) inheritSilence(joined time.Time) {
	if !a.answered.IsZero() {
		a.answered = later(a.answered, joined)
	}
}

// await blocks until w has its turn and the gap before it is over, ctx ends or Close begins. done
// is the channel of ctx, which the caller has read before w joined the line, because a user's
// context may block. If a turn and the end come together, select takes either; abandon passes on a
// turn that was not taken.
func (e *Engine) await(ctx context.Context, done <-chan struct{}, w *waiter) (turn, error) {
	served, gap := w.served, (<-chan time.Time)(nil)
	for {
		select {
		case <-served:
			if w.turn.gap == 0 {
				return w.turn, nil
			}
			served, gap = nil, time.After(w.turn.gap)
		case <-gap:
			return w.turn, nil
		case <-done:
			e.abandon(w)
			return turn{}, e.endOf(ctx)
		case <-e.closing.Done():
			e.abandon(w)
			return turn{}, backend.ErrClosed
		}
	}
}

// abandon takes w out of its line. If w has received its turn in the same instant, the turn
// passes to the next waiter.
func (e *Engine) abandon(w *waiter) {
	e.mu.Lock()
	defer e.unlock()
	select {
	case <-w.served:
		switch t := w.turn; t.kind {
		case grantTurn:
			t.tenure.discard(e.now())
		case entryTurn:
			t.acq.giveUp(false)
		default:
			e.serve(w.line, t)
		}
	default:
		w.remove()
	}
}

// take gives the lease on a pending tenure to its waiter. It returns errBroken if the tenure has
// ended meanwhile. The minimum and the maximum hold count from here, not from the hand-off. After
// errBroken the caller tries again from its place in the line.
func (t *tenure) take(ref *Ref) error {
	a := t.acq
	e := a.engine
	e.mu.Lock()
	defer e.unlock()
	if err := a.expire(e.now()); err != nil || t.state == over {
		return errBroken
	}
	if e.closing.Err() != nil {
		t.discard(e.now())
		return backend.ErrClosed
	}
	t.start = e.now()
	t.hold(ref)
	a.open(t.start)
	a.schedule()
	return nil
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
		isSilent := isExhausted(err)
		a.engine.mu.Lock()
		defer a.engine.unlock()
		if a.state == requesting {
			a.giveUp(isSilent)
		}
	}
	return err
}

// contendOnce acquires the lock under the owner of a. It returns errBroken if another owner is
// needed.
func (a *acquisition) contendOnce(ctx context.Context, l *Lock, wait bool, ref *Ref) error {
	grant, waited, err := a.requestGrant(ctx, wait)
	if err == nil {
		err = a.checkOwner(grant)
	}
	if err != nil {
		return err
	}
	if waited && a.isShort(grant) {
		waited = !a.prolong(ctx, grant)
		grant = a.grant
		if waited && l.NoRenewal && !a.isGone() { // nothing else would renew it
			return errBroken
		}
	}
	err = a.accept(l, grant, waited, ref)
	if errors.Is(err, errLate) && a.busy != nil { // the waiter was stopped; the server is not away
		return errBroken
	}
	return err
}

// isShort reports whether a grant that came through Wait has to be renewed before it is accepted:
// less than a renewal may take is left of it, or nothing else would renew it. Its term began with
// an earlier request, and is often the short one of a queue entry: it may be shorter than the
// lock-delay. If the term is over, no renewal would help.
func (a *acquisition) isShort(grant *backend.Grant) bool {
	l, term := a.lock, grant.Term
	age := elapsed(term.Sent, a.engine.now())
	return age < term.TTL-margin(term.TTL) &&
		(l.NoRenewal || lifeOf(term, l)-age < l.renewalLimit())
}

// prolong renews a grant before it is accepted, and stores it in a. It reports whether the server
// has prolonged it; a.failure is the reason if not. That costs the hand-off one more request. A
// failed request is repeated until the server is silent, if the lease will have no renewals. Only
// one late return of the driver counts as a stop of the process: a driver may return too late each
// time.
func (a *acquisition) prolong(ctx context.Context, grant *backend.Grant) (prolonged bool) {
	a.store(grant) // a driver that panics leaves nothing locked
	answered := a.answered
	for failures := 0; ; failures++ {
		err := a.prolongOnce(ctx, grant, answered)
		if err == nil {
			a.failure = nil
			return true
		}
		if a.failure == nil || !a.engine.isOver(ctx) {
			a.noteFailure(ctx, err)
		}
		if !a.mayProlong(ctx, grant) ||
			a.pauseWhileOpen(ctx, a.prolongPause(grant, failures)) ||
			!a.mayProlong(ctx, grant) {
			return false
		}
	}
}

// prolongPause is the pause of prolong after a number of earlier failures. If no request could
// follow it, because the term would be almost over, it ends with the term: until then the server
// keeps the lock for this grant.
func (a *acquisition) prolongPause(grant *backend.Grant, failures int) time.Duration {
	d := jittered(backoff(failures, min(a.lock.MaxPause(), maxRetryPause)))
	term := grant.Term
	rest := term.TTL - elapsed(term.Sent, a.engine.now())
	if d >= rest-margin(term.TTL) {
		return min(rest, maxRetryPause)
	}
	return d
}

// mayProlong reports whether another request of prolong may begin.
func (a *acquisition) mayProlong(ctx context.Context, grant *backend.Grant) bool {
	return a.lock.NoRenewal && !a.engine.isOver(ctx) && !a.isGone() && a.isShort(grant)
}

// isOver reports whether ctx has ended or Close has begun.
func (e *Engine) isOver(ctx context.Context) bool {
	return ended(ctx) != nil || e.closing.Err() != nil
}

// isGone reports whether the server has reported the loss of a.
func (a *acquisition) isGone() bool {
	a.engine.mu.Lock()
	defer a.engine.unlock()
	return a.reason != nil
}

// prolongOnce is one request of prolong, which began when the server had last answered at the time
// answered.
func (a *acquisition) prolongOnce(
	ctx context.Context, grant *backend.Grant, answered time.Time,
) error {
	e, now := a.engine, time.Now()
	limit := a.prolongLimit(grant, now)
	bound := bound.From(ctx, now, limit).EndWith(e.closing)
	defer bound.Cancel()
	term, err := e.driver.Renew(bound, grant)
	r := newAnswer(term, err, alone)
	a.notProlonged = r.err != nil && r.loss == nil
	a.uncertain = a.notProlonged && (r.isUnknown || a.uncertain && !IsDefinite(r.err))
	if a.answered.Equal(answered) { // no stop is discounted yet
		a.discountStop(now, limit)
	}
	switch {
	case r.loss != nil:
		a.onLost(r.loss)
		return r.loss
	case r.err != nil:
		a.noteOverdue(r.late)
		return r.err
	case term.Sent.Before(grant.Term.Sent):
		return errOldTerm
	}
	renewed := *grant
	renewed.Term = term
	a.store(&renewed)
	return nil
}

// prolongLimit is how long a request of prolong that begins now may last. If its answer is late,
// the server keeps a lock without a holder. So a grant whose message was late is given up a
// renewalLimit after its term, or with the silence of the server.
func (a *acquisition) prolongLimit(grant *backend.Grant, now time.Time) time.Duration {
	left := grant.Term.TTL - elapsed(grant.Term.Sent, now)
	return min(a.attemptLimit(now), left+a.lock.renewalLimit())
}

// store stores a grant that is not accepted yet.
func (a *acquisition) store(grant *backend.Grant) {
	a.engine.mu.Lock()
	defer a.engine.unlock()
	a.grant, a.term, a.repeat, a.overdue = grant, grant.Term, a.attempted, nil
}

// noteOverdue stores the reason of a loss if no later renewal succeeds.
func (a *acquisition) noteOverdue(reason error) {
	a.engine.mu.Lock()
	defer a.engine.unlock()
	a.overdue = reason
}

// undo cleans up an attempt of a driver that did not return. No waiter repeats it.
func (a *acquisition) undo() {
	a.engine.mu.Lock()
	defer a.engine.unlock()
	a.attempted, a.uncertain = true, true
	a.giveUp(false)
}

// pauseAfterLoss backs off if grants keep being lost before their waiter has them. It reports
// whether the server is silent now, which ends the pause.
func (a *acquisition) pauseAfterLoss(ctx context.Context, l *Lock, losses int) (silent bool) {
	var d time.Duration
	if losses > 0 {
		d = jittered(backoff(losses-1, l.MaxPause()))
	}
	switch {
	case !a.silenceOfLoss().answered.IsZero():
		return a.pauseWhileOpen(ctx, d)
	case d > 0:
		a.engine.pauseFor(ctx, d)
	}
	return false
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
	return a.engine.newAcquisition(l, ln, wait, a.silenceOfLoss()), nil, nil
}

// silenceOfLoss returns the silence in which a was lost, if a renewal of its grant had no answer or
// was refused, and otherwise the zero silence: the server has answered.
func (a *acquisition) silenceOfLoss() silence {
	if a.asking == nil || !a.notProlonged {
		return silence{}
	}
	return a.silence
}

// keepPlace backs off, and then replaces the owner of a unless the server is silent. A context that
// panics costs the caller its place at the front of the line, but does not keep it occupied.
func (a *acquisition) keepPlace(
	ctx context.Context, t *tenure, l *Lock, wait bool, losses int,
) (ln *line, err error) {
	err = errAborted // unless the context returns
	defer func() { ln, err = a.replaceOwner(t, err) }()
	silent := a.pauseAfterLoss(ctx, l, losses)
	switch {
	case ended(ctx) != nil && t == nil:
		return nil, a.interrupted(ctx)
	case ended(ctx) != nil:
		return nil, ContextError(ctx)
	case silent:
		return nil, &exhaustedError{Unavailable(a.failure)}
	case !wait:
		return nil, errTakenBack
	}
	return nil, nil
}

// replaceOwner cleans up a, which is lost, and returns the line at whose front the caller stands,
// or nil if it has no such place. If the caller gives up because of err, its place is free.
func (a *acquisition) replaceOwner(t *tenure, err error) (*line, error) {
	e := a.engine
	_, isSilent := err.(*exhaustedError) //nolint:errorlint // keepPlace does not wrap it
	e.mu.Lock()
	defer e.unlock()
	ln := a.takePlace(t)
	if a.state == requesting {
		a.cleanUp()
	}
	if e.closing.Err() != nil {
		err, isSilent = backend.ErrClosed, false
		if t == nil && a.uncertain {
			err = Uncertain(err)
		}
	}
	if err != nil {
		e.serve(ln, a.nextTurn(isSilent))
		return nil, err
	}
	return ln, nil
}

// giveUp ends an acquisition that was not granted. Its queue entry passes to the next waiter of the
// line, with exceptions: see transferEntry. If the entry passes to none, what may be left on the
// server is removed in the background. With isSilent, because the server did not answer for a TTL,
// an acquisition does not pass to the next waiter, and neither does a grant that was found
// unusable. e.mu must be held.
func (a *acquisition) giveUp(isSilent bool) {
	if !isSilent && a.grant == nil && a.hasTraces() && a.transferEntry() {
		return
	}
	a.leave(a.nextTurn(isSilent))
	a.cleanUp()
}

// nextTurn returns what the next waiter of the line receives if a gives up.
func (a *acquisition) nextTurn(isSilent bool) turn {
	if isSilent {
		s := a.silence
		return turn{kind: silentTurn, silence: &s}
	}
	return turn{kind: requestTurn}
}

// hasTraces reports whether the requests of a may have left something on the server. e.mu must be
// held.
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
	return nil, false, a.engine.RequestError(ctx, err)
}

// attempt is one request for the lock. a.busy outlives later errors, because the queue entry does,
// too.
func (a *acquisition) attempt(ctx context.Context) (*backend.Grant, error) {
	e, now := a.engine, time.Now()
	if a.answered.IsZero() {
		a.answered = now
	}
	limit := a.attemptLimit(now)
	bound := a.newBound().Begin(ctx, now, limit).EndWith(e.closing)
	defer bound.Cancel()
	grant, err := e.driver.Acquire(bound, &a.request)
	switch {
	case err == nil && grant != nil:
		a.uncertain, a.failure = false, nil
		return grant, nil
	case err == nil:
		err = ErrNothing
	}
	err = sound(err)
	if busy, ok := errors.AsType[*backend.Busy](err); ok {
		a.busy = busy
	}
	a.uncertain = isUnknown(err) || a.uncertain && !IsDefinite(err)
	a.attempted = a.attempted || a.uncertain
	a.discountStop(now, limit)
	return nil, err
}

// attemptLimit is how long an attempt that begins now may last. It ends with the silence of the
// server, because an attempt may be granted although its answer is late: the server then frees the
// lock a TTL after it has received the last attempt, or when the waiter gives up. So a waiter whose
// answers are late keeps the lock for a TTL after the last answer, and not for another one.
func (a *acquisition) attemptLimit(now time.Time) time.Duration {
	return min(a.lock.requestLimit(), a.lock.TTL-now.Sub(a.answered))
}

// isSilent reports whether the server has not answered for a TTL. No attempt follows.
func (a *acquisition) isSilent() bool { return time.Since(a.answered) >= a.lock.TTL }

// discountStop lets the silence of the server begin now if the process was stopped meanwhile: what
// began then, and should have taken d at most, has taken much longer. A driver that returns late
// each time looks the same, so only maxStops of them count.
func (a *acquisition) discountStop(began time.Time, d time.Duration) {
	if time.Since(began) > d+a.lock.requestLimit()/gracePart && a.stops < maxStops {
		a.answered = time.Now()
		a.stops++
	}
}

// newBound returns room for the bound of the next attempt. Most acquisitions have one.
func (a *acquisition) newBound() *bound.Bound {
	if a.requested {
		return new(bound.Bound)
	}
	a.requested = true
	return &a.firstBound
}

// requestUntilGranted is the loop of a waiter: wait for a hint, then request again. err is the
// outcome of the first attempt. Each round waits or backs off once, and then sends one request
// unless Wait has brought the grant. No further request is sent after ctx has ended. A grant that
// arrives together with the end of ctx is accepted.
func (a *acquisition) requestUntilGranted(
	ctx context.Context, err error,
) (grant *backend.Grant, waited bool, _ error) {
	ctx, stop := a.engine.WhileOpen(ctx)
	defer stop()
	var pace pacer
	for {
		if busy, ok := errors.AsType[*backend.Busy](err); ok {
			a.silence = silence{answered: time.Now()}
			grant, err = a.wait(ctx, busy, &pace)
			waited = grant != nil
		} else {
			if ended(ctx) == nil {
				a.noteFailure(ctx, err)
			}
			err = a.pauseAfter(ctx, err, &pace)
		}
		if grant == nil && ended(ctx) != nil {
			return nil, false, a.interrupted(ctx)
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
// closed. If the server did not answer, the error wraps the reason.
func (a *acquisition) interrupted(ctx context.Context) error {
	err := ContextError(ctx)
	if a.engine.closing.Err() != nil {
		err = backend.ErrClosed
	} else if errors.Is(a.failure, backend.ErrUnavailable) {
		err = fmt.Errorf("%w: %w", err, a.failure)
	}
	if a.uncertain {
		return Uncertain(err)
	}
	return err
}

// noteFailure sets the reason for the silence of the server after a request that failed with err.
// The last attempt may be too short for an answer, so a missing answer does not hide an earlier
// refusal.
func (a *acquisition) noteFailure(ctx context.Context, err error) {
	switch {
	case a.failure == nil || !errors.Is(err, context.DeadlineExceeded):
		a.failure = a.engine.Unanswered(ctx, err)
	case !errors.Is(a.failure, errNoAnswer):
		a.failure = fmt.Errorf("%w: %w, after: %w",
			backend.ErrUnavailable, errNoAnswer, a.failure)
	}
}

// pauseAfter backs off after an attempt that failed with err. It returns nil if another attempt may
// succeed, and the error to give up with otherwise.
func (a *acquisition) pauseAfter(ctx context.Context, err error, pace *pacer) error {
	if isFinal(err) {
		return err
	}
	if a.pause(ctx, pace.next(minRetryPause, min(a.lock.MaxPause(), maxRetryPause))) {
		return &exhaustedError{Unavailable(a.failure)}
	}
	return nil
}

// pauseWhileOpen is pause, but returns earlier if Close begins, too.
func (a *acquisition) pauseWhileOpen(ctx context.Context, d time.Duration) (silent bool) {
	ctx, stop := a.engine.WhileOpen(ctx)
	defer stop()
	return a.pause(ctx, d)
}

// pause blocks for d, but not for longer than the silence of the server may last. It returns
// earlier if ctx ends. It reports whether the server is silent now.
func (a *acquisition) pause(ctx context.Context, d time.Duration) (silent bool) {
	if began := time.Now(); !a.isSilent() {
		sleep(ctx, min(d, a.lock.TTL-began.Sub(a.answered)))
		a.discountStop(began, d)
	}
	return a.isSilent()
}

// wait blocks until another attempt may succeed, or until the server has granted the lock.
func (a *acquisition) wait(
	ctx context.Context, busy *backend.Busy, pace *pacer,
) (*backend.Grant, error) {
	waiter, l := a.engine.waiter, a.lock
	if waiter == nil {
		shortest := l.PollInterval / pollPart
		pace.observe(busy.Fence, shortest)
		sleep(ctx, untilFree(busy, pace.next(shortest, l.PollInterval), l.TTL))
		a.answered = time.Time{} // the pause may be longer than the TTL
		return nil, nil
	}
	began, limit := time.Now(), untilFree(busy, waitLimit(l, busy), l.TTL)
	bound := bound.From(ctx, began, limit)
	defer bound.Cancel()
	grant, err := waiter.Wait(bound, &a.request, busy)
	err = sound(err)
	if busy.Reliable { // it waited; no silence
		a.answered = time.Now()
	}
	if err != nil && bound.Err() != nil {
		err = nil // another attempt; the caller checks whether ctx has ended
	}
	newer, again := errors.AsType[*backend.Busy](err)
	switch {
	case again:
		a.busy = newer
	case grant == nil && isUnknown(err):
		a.attempted, a.uncertain = true, true
	}
	if grant == nil && (err == nil || again) {
		idle := min(pace.idle(time.Since(began)), l.TTL/waitPart)
		sleep(ctx, idle)
		limit += idle
	}
	a.discountStop(began, limit) // the next attempt needs time
	return grant, err
}

// waitLimit is how long the driver's Wait may last. Usually a message of the server can be lost.
// A process that waits on reliable news uses no processor time meanwhile.
func waitLimit(l *Lock, busy *backend.Busy) time.Duration {
	if busy.Reliable {
		return reliableWait
	}
	return jittered(l.TTL / waitPart)
}
