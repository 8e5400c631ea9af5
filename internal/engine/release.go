package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/bound"
)

const (
	// senders is the maximum number of background releases that wait for their answers at once.
	senders = 64
	// senderTimeout is how long a release counts as one of them. The answers of a silent server
	// take longer, and must not delay the releases on other servers. A release lasts for 5 s at
	// most, the limit of its request, so up to 50 times as many can be under way: 3,200, and more
	// during Close.
	senderTimeout = 100 * time.Millisecond
	// closingSenders is senders for Close, which has 5 s for the releases of all locks.
	closingSenders = 1024
	// slotAfter is how many answers are missing when a release waits for a slot. slotTime is the
	// time of a slot: a server that is down gets 1,000 repetitions a second at most, however many
	// locks are left on it. When it is back, 10,000 locks are freed within 10 s.
	slotAfter = 3
	slotTime  = time.Millisecond
)

// outbox is the list of releases without a caller: of attempts that were given up, of minimum
// holds, of lost leases, of leases that Close ended, and of releases without an answer. e.mu
// guards it. While there are fresh releases, every fourth one is a repetition: its server may be
// silent, or may have lost one answer.
type outbox struct {
	fresh, repeated []*acquisition
	turns           int // how many releases were sent
	sending         int
	lastSlot        time.Time // for a repetition
}

// slot returns the time for a repetition, t at the earliest. e.mu must be held.
func (o *outbox) slot(t time.Time) time.Time {
	o.lastSlot = later(t, o.lastSlot.Add(slotTime))
	return o.lastSlot
}

// put adds the release of a. e.mu must be held.
func (o *outbox) put(a *acquisition) {
	if a.silences == 0 {
		o.fresh = append(o.fresh, a)
	} else {
		o.repeated = append(o.repeated, a)
	}
}

// pop removes the next release, or returns nil. e.mu must be held.
func (o *outbox) pop() *acquisition {
	o.turns++
	list, other := &o.fresh, &o.repeated
	if o.turns%4 == 0 {
		list, other = other, list
	}
	if len(*list) == 0 {
		list = other
	}
	if len(*list) == 0 {
		return nil
	}
	a := (*list)[0]
	(*list)[0] = nil
	*list = (*list)[1:]
	return a
}

// next is the remaining work of an Unlock.
type next uint8

const (
	nothing    next = iota // it was kept or handed off
	releaseNow             // the caller releases it
)

// unlocked ends t after the Unlock of its last lease. The grant stays if other readers share it, or
// until the end of the minimum hold, or for the next waiter. Otherwise the caller has to release
// it. e.mu must be held.
func (t *tenure) unlocked(now time.Time) next {
	a := t.acq
	switch {
	case !t.isAlone():
		t.on(endEvent, now)
		t.unlink()
		a.schedule()
		return nothing
	case t.mustStay(now):
		t.on(endEvent, now)
		a.on(keepEvent)
		a.schedule()
		return nothing
	case a.handOff(now):
		return nothing
	}
	t.on(endEvent, now)
	a.on(releaseEvent) // a renewal in flight is ignored: its ErrLost is no loss
	return releaseNow
}

// discard ends a tenure that no lease will stand on, and frees its acquisition if no other tenure
// stands on it. e.mu must be held.
func (t *tenure) discard(now time.Time) {
	a := t.acq
	switch {
	case !a.live(): // the tenure was lost before its waiter took it
		a.engine.serve(a.takePlace(t), turn{kind: requestTurn})
	case !t.isAlone():
		t.end(backend.ErrNotHeld)
		t.unlink()
		a.schedule()
	case !a.handOff(now):
		t.end(backend.ErrNotHeld)
		a.releaseInBackground()
	}
}

// releaseFor releases the acquisition of l, and waits for the answer until done, the channel of
// ctx, is closed. With once, because ctx had ended before Unlock, it waits for one request instead.
// Only a context that can end costs a goroutine.
func (l *Lease) releaseFor(
	ctx context.Context, done <-chan struct{}, once bool, now time.Time,
) error {
	a := l.tenure.acq
	e := a.engine
	switch {
	case once:
		return a.releaseUntil(context.WithoutCancel(ctx), now, true, nil)
	case done == nil:
		return a.releaseUntil(ctx, now, false, nil)
	}
	result := make(chan error, 1)
	e.mu.Lock()
	e.startRelease(func() {
		err := errReleaseAborted
		defer func() {
			if value := recover(); value != nil {
				err = Uncertain(e.recovered(value))
			}
			result <- err
		}()
		err = a.releaseUntil(context.WithoutCancel(ctx), now, false, nil)
	})
	e.unlock()
	return e.awaitRelease(ctx, done, result, []*Lease{l})
}

// awaitRelease returns the result of the release of one of leases, which one call unlocks. It waits
// for the result until done, the channel of ctx, is closed. If ctx has ended with one of leases, it
// goes on waiting until the deadline of ctx: the caller has cancelled nothing.
func (e *Engine) awaitRelease(
	ctx context.Context, done <-chan struct{}, result <-chan error, leases []*Lease,
) error {
	select {
	case err := <-result:
		return err
	case <-done:
	}
	if len(result) > 0 {
		return <-result
	}
	if !e.endedWith(ctx, leases) {
		return Uncertain(ContextError(ctx))
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		return <-result
	}
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	return e.awaitRelease(ctx, ctx.Done(), result, nil)
}

// endedWith reports whether ctx has ended because one of leases was unlocked, or was lost as the
// Unlock of all of them began: it is a context of that lease, or derived from it. Another lease on
// the same tenure has other contexts.
func (e *Engine) endedWith(ctx context.Context, leases []*Lease) bool {
	if cause := context.Cause(ctx); !errors.Is(cause, backend.ErrNotHeld) && !isLost(cause) {
		return false
	}
	held, _ := ctx.Value(heldKey{e}).(*chain)
	for ; held != nil; held = held.parent {
		if slices.Contains(leases, held.lease) {
			return true
		}
	}
	return false
}

// releaseUntil repeats the release until the server answers or the time of one request, counted
// from now, is over. With once it makes one request. Then the scheduler takes over. Close ends it,
// before it closes the driver. If failure is not nil, it is the error of a first request that was
// sent for several acquisitions.
func (a *acquisition) releaseUntil(
	ctx context.Context, now time.Time, once bool, failure error,
) (err error) {
	bound := bound.From(ctx, now, a.lock.requestLimit()).EndWith(a.engine.working)
	defer bound.Cancel()
	answered := false
	defer func() {
		if !answered {
			a.releaseLater(err)
		}
	}()
	if err = failure; failure == nil {
		answered, err = a.requestRelease(bound)
	}
	for n := 0; !once && !answered && bound.Err() == nil; n++ {
		sleep(bound, backoff(n, a.lock.MaxPause()))
		if bound.Err() == nil {
			answered, err = a.requestRelease(bound)
		}
	}
	if !answered {
		err = Uncertain(a.engine.Unanswered(ctx, err))
	}
	return err
}

// releaseLater plans the next release, because this one was not answered, and gives the next waiter
// of the line its turn. That waiter's requests show whether the server has executed the release.
func (a *acquisition) releaseLater(err error) {
	err = cmp.Or(err, errReleaseAborted)
	e := a.engine
	e.mu.Lock()
	defer e.unlock()
	a.noteReleased(err)
	a.leave(turn{kind: requestTurn})
	a.on(silenceEvent)
	a.planned = e.now().Add(backoff(int(a.silences), maxBackoff))
	if a.silences > slotAfter && e.phase == phaseOpen {
		a.planned = e.slot(a.planned)
	}
	a.schedule()
	e.warn(a.lock, "dlock: release not answered, repeating it", err)
}

// requestRelease is one request. If the server executes requests in order, the next waiter of the
// line gets its turn as soon as the request is sent.
func (a *acquisition) requestRelease(ctx context.Context) (answered bool, err error) {
	e := a.engine
	err = errAborted // unless the driver returns
	defer func() { answered, err = a.released(err) }()
	if e.pipeliner == nil {
		err = e.driver.Release(ctx, a.toRelease())
	} else {
		err = e.pipeliner.ReleaseThen(ctx, a.toRelease(), a.onSent)
	}
	return false, err
}

// onSent gives the next waiter its turn as soon as the release is sent. It is the function that a
// backend.Pipeliner calls. released does the same if the driver did not call it.
func (a *acquisition) onSent() {
	a.engine.mu.Lock()
	defer a.engine.unlock()
	a.leave(a.turnAfterRelease())
}

// released handles the answer to a release, and gives the next waiter of the line its turn.
// ErrNotHeld is success if an earlier release may have been executed, and a loss otherwise.
func (a *acquisition) released(err error) (answered bool, _ error) {
	r := read(err, errGoneAtRelease)
	e := a.engine
	e.mu.Lock()
	defer e.unlock()
	switch {
	case r.err == nil:
	case !r.isNotHeld && r.loss == nil:
		a.silences++
		if !r.isUnavailable { // else it was not executed
			a.unanswered++
		}
		return false, r.err
	case a.unanswered > 0 && a.reason == nil && a.grant != nil && a.expiry(e.now()) == nil:
		err = nil
	default: // the release may be the first to detect the loss
		err = cmp.Or(a.reason, r.loss, errGoneAtRelease)
	}
	if a.repeat {
		a.settle()
	} else {
		a.on(finishEvent)
	}
	a.noteReleased(err)
	a.leave(a.turnAfterRelease())
	return true, err
}

// toRelease returns the grant for the server to remove, or a grant that describes what the requests
// may have left. No lease stands on a any more. The State of the newest Busy lets the driver find
// the queue entry.
func (a *acquisition) toRelease() *backend.Grant {
	if a.grant != nil {
		return a.grant
	}
	grant := &backend.Grant{Request: a.request}
	if a.busy != nil {
		grant.State = a.busy.State
	}
	return grant
}

// settle plans the next repetition of an answered release, because one of the requests may be
// executed late. The pauses double, so a late execution is undone after about twice its delay.
// The last repetition comes Capabilities.Late after the first answer. e.mu must be held.
func (a *acquisition) settle() {
	now, late := a.engine.now(), a.engine.caps.Late
	if a.until.IsZero() {
		a.until = now.Add(late)
	}
	pause := max(late-a.until.Sub(now), firstRepetition)
	a.planned = now.Add(pause)
	if a.until.Sub(a.planned) < pause {
		a.planned, a.repeat = a.until, false
	}
	a.on(settleEvent)
	a.schedule()
}

// releaseInBackground adds a to the outbox. After stop no request is sent any more, so it only logs
// the name, for example of a lock whose grant came after Close had given its request up. e.mu must
// be held.
func (a *acquisition) releaseInBackground() {
	e := a.engine
	switch {
	case !a.on(releaseEvent):
	case e.phase == phaseStopped:
		e.warn(a.lock, "dlock: not released after Close, the lock may stay taken for its TTL", nil)
	default:
		e.put(a)
		e.send()
	}
}

// releaseEarly releases an expired acquisition before the server's term is over, because its last
// holder has finished. With a lock-delay it does nothing. e.mu must be held.
func (a *acquisition) releaseEarly() {
	if a.state == orphaned && !a.isDelayed() {
		a.releaseInBackground()
	}
}

// leaveToTerm forgets an acquisition with a lock-delay, because Close does not wait for the
// delay: the server frees the lock at the end of its term. e.mu must be held.
func (a *acquisition) leaveToTerm() {
	if a.state == orphaned && a.isDelayed() && a.engine.phase != phaseOpen {
		a.on(finishEvent)
	}
}

// isDelayed reports whether the lock-delay of a, which is orphaned, forbids a release before the
// end of its term. A release without an answer was allowed, and so is its repetition. e.mu must
// be held.
func (a *acquisition) isDelayed() bool { return a.lock.LockDelay > 0 && a.silences == 0 }

// send starts releases of the outbox while there are free senders. After stop, the releases that
// still wait are never sent: the server frees those locks at the end of their terms. e.mu must be
// held.
func (e *Engine) send() {
	limit := senders
	if e.phase != phaseOpen {
		limit = closingSenders
	}
	for e.sending < limit && e.phase != phaseStopped {
		a := e.pop()
		if a == nil {
			return
		}
		e.sending++
		once := a.silences > 0
		e.jobs.Go(func() { e.sendOne(a, once) })
	}
}

// sendOne releases a. It frees its sender when the release is answered or slow. With once it sends
// one request.
func (e *Engine) sendOne(a *acquisition, once bool) {
	freed := false
	free := func() {
		e.mu.Lock()
		defer e.unlock()
		if !freed {
			freed = true
			e.sending--
			e.send()
		}
	}
	timer := time.AfterFunc(senderTimeout, free)
	defer free()
	defer timer.Stop()
	// A panic of the driver is logged as a release without an answer.
	defer func() { _ = recover() }()
	_ = a.releaseUntil(e.working, time.Now(), once, nil)
}
