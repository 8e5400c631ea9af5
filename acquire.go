package dlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// maxRequest bounds one request where the TTL does not.
const maxRequest = 5 * time.Second

// requestBound is how long one attempt may take.
func (m *mutex) requestBound() time.Duration { return min(m.settings.ttl, maxRequest) }

var (
	errHeldHere  = fmt.Errorf("%w: it is held or waited for in this client", ErrNotAcquired)
	errReentrant = fmt.Errorf("%w: this context holds it already, and not both locks are WithReentrant", ErrNotAcquired)
	errBroken    = errors.New("the grant was lost on its way to the next waiter")
	errSilent    = fmt.Errorf("%w: the server has not answered for a TTL", ErrUnavailable)
	errLate      = fmt.Errorf("%w: the term was over when its grant arrived", ErrUnavailable)
)

// lock is Lock and TryLock.
func (m *mutex) lock(ctx context.Context, op string, wait bool) (*Lease, error) {
	if err := m.client.enter(ctx); err != nil {
		return nil, m.client.wrap(op, m.name, err)
	}
	defer m.client.leave()
	began := m.observeAttempt(ctx)
	lease, err := m.acquire(ctx, wait)
	for errors.Is(err, errBroken) {
		if ended(ctx) != nil {
			err = endOf(ctx)
		} else {
			lease, err = m.acquire(ctx, wait)
		}
	}
	err = m.client.wrap(op, m.name, err)
	m.observeAcquired(ctx, lease, err, began)
	return lease, err
}

func (m *mutex) acquire(ctx context.Context, wait bool) (*Lease, error) {
	if outer := m.client.find(ctx, m.key); outer != nil {
		if lease, err := m.reenter(outer); lease != nil || err != nil {
			return lease, err
		}
	}
	h := newHold(m)
	turn, joined, err := h.enterQueue(ctx, wait)
	if err != nil {
		return nil, err
	}
	switch turn {
	case grantTurn:
		return h.takeLease()
	case silentTurn:
		if time.Since(joined) >= m.settings.ttl {
			h.leavePlace(silentTurn)
			return nil, errSilent
		}
		h.draw(wait, joined)
	case ownTurn:
		h.draw(wait, time.Time{})
	case entryTurn:
		h.answered = time.Time{}
	}
	return h.acquire(ctx, wait)
}

// reenter shares what the context holds; it returns nothing if that has just
// ended.
func (m *mutex) reenter(outer *hold) (*Lease, error) {
	if !m.settings.reentrant || !outer.mutex.settings.reentrant {
		return nil, errReentrant
	}
	return outer.rejoin(), nil
}

// enterQueue waits until h is the head of its local queue; if it was not from the
// beginning, it tells when it joined.
func (h *hold) enterQueue(ctx context.Context, wait bool) (_ turn, joined time.Time, _ error) {
	c := h.mutex.client
	if !wait {
		if !c.queues.TryJoin(h.mutex.key, &h.place, h) {
			return ownTurn, joined, errHeldHere
		}
		return ownTurn, joined, nil
	}
	if c.queues.Join(h.mutex.key, &h.place, h) {
		return ownTurn, joined, nil
	}
	joined = time.Now()
	select {
	case turn := <-h.place.Turn():
		return turn, joined, nil
	case <-ctx.Done():
		h.leaveQueue()
		return ownTurn, joined, endOf(ctx)
	case <-c.lifecycle.closing.Done():
		h.leaveQueue()
		return ownTurn, joined, ErrClosed
	}
}

// leaveQueue gives up a place. What was passed to it in the same instant
// is passed on or undone, never dropped.
func (h *hold) leaveQueue() {
	turn, head := h.mutex.client.queues.Abandon(&h.place)
	if !head {
		return
	}
	switch turn {
	case grantTurn:
		h.discard()
	case entryTurn:
		h.giveUp(nil)
	default:
		h.leavePlace(turn)
	}
}

// acquire asks the server, as the head of the local queue.
func (h *hold) acquire(ctx context.Context, wait bool) (*Lease, error) {
	grant, err := h.attempt(ctx)
	waited := false
	if err != nil && wait {
		grant, waited, err = h.contend(ctx, err)
	} else if err != nil {
		err = h.refused(ctx, err)
	}
	var lease *Lease
	if err == nil {
		lease, err = h.accept(grant, waited)
	}
	if err != nil {
		h.giveUp(err)
		return nil, err
	}
	if lease == nil {
		return h.confirm(ctx)
	}
	return lease, nil
}

// attempt is one request for the lock.
func (h *hold) attempt(ctx context.Context) (*backend.Grant, error) {
	now := time.Now()
	bound := backend.NewBoundFrom(ctx, now, h.mutex.requestBound()).EndWith(h.mutex.client.lifecycle.closing)
	defer bound.Cancel()
	if h.answered.IsZero() {
		h.answered = now
	}
	grant, err := h.mutex.client.driver.Acquire(bound, &h.request)
	if err == nil && grant == nil {
		err = errors.New("the driver returned neither a grant nor an error")
	}
	if busy, ok := errors.AsType[*backend.Busy](err); ok {
		h.busy = busy // for Wait and for Release
	}
	h.uncertain = err != nil && !isDefinite(err) && !errors.Is(err, ErrUnavailable)
	h.attempted = h.attempted || h.uncertain
	return grant, err
}

// refused is the error of a TryLock.
func (h *hold) refused(ctx context.Context, err error) error {
	switch {
	case h.uncertain:
		return uncertain(h.mutex.client.unanswered(ctx, err))
	case isDefinite(err):
		return err
	}
	return unavailable(h.mutex.client.unanswered(ctx, err))
}

// contend is the loop of those who wait: look, wait for a hint, look again.
// waited tells that the grant came through Wait. err is the outcome of the first
// attempt.
func (h *hold) contend(ctx context.Context, err error) (grant *backend.Grant, waited bool, _ error) {
	ctx, stop := h.mutex.client.lifecycle.whileOpen(ctx)
	defer stop()
	var pauses pacer
	for {
		if busy, ok := errors.AsType[*backend.Busy](err); ok {
			h.answered = time.Now()
			grant, err = h.wait(ctx, busy, &pauses)
			waited = grant != nil
		} else {
			err = h.pauseAfter(ctx, err, &pauses)
		}
		if grant == nil && ended(ctx) != nil {
			return nil, false, h.interrupted(ctx)
		}
		if err == nil && grant == nil {
			grant, err = h.attempt(ctx)
		}
		if err == nil {
			return grant, waited, nil
		}
		if errors.Is(err, ErrLost) {
			// Granted, not answered, and expired: this owner is used up.
			h.serverLost(err)
			return nil, false, errBroken
		}
		if isFinal(err) {
			return nil, false, err
		}
	}
}

// isFinal tells whether waiting on is of no use.
func isFinal(err error) bool {
	_, busy := errors.AsType[*backend.Busy](err)
	return isExhausted(err) || isDefinite(err) && !busy
}

// exhaustedError: the server has not answered for a TTL.
type exhaustedError struct{ error }

func (e *exhaustedError) Unwrap() error { return e.error }

func isExhausted(err error) bool {
	_, exhausted := errors.AsType[*exhaustedError](err)
	return exhausted
}

// interrupted is the error of a Lock whose context has ended, or whose client
// was closed.
func (h *hold) interrupted(ctx context.Context) error {
	err := endOf(ctx)
	if h.mutex.client.lifecycle.closing.Err() != nil {
		err = ErrClosed
	}
	if h.uncertain {
		return uncertain(err)
	}
	return err
}

// pauseAfter backs off after an attempt that failed; it returns nil for another one,
// or the error to give up with.
func (h *hold) pauseAfter(ctx context.Context, err error, pauses *pacer) error {
	ttl := h.mutex.settings.ttl
	if isFinal(err) {
		return err
	}
	if time.Since(h.answered) >= ttl {
		return &exhaustedError{unavailable(h.mutex.client.unanswered(ctx, err))}
	}
	sleep(ctx, pauses.next(10*time.Millisecond, min(ttl/10, time.Second)))
	return nil
}

// wait blocks until another attempt is worth it, or until the server has made h the
// holder.
func (h *hold) wait(ctx context.Context, busy *backend.Busy, pauses *pacer) (*backend.Grant, error) {
	c, s := h.mutex.client, h.mutex.settings
	if c.waiter == nil {
		least := s.pollInterval / 50
		pauses.see(busy.Fence, least)
		sleep(ctx, untilFree(busy, pauses.next(least, s.pollInterval)))
		return nil, nil
	}
	bound := backend.NewBound(ctx, untilFree(busy, s.ttl/3))
	defer bound.Cancel()
	grant, err := c.waiter.Wait(bound, &h.request, busy)
	if err != nil && bound.Err() != nil {
		return nil, nil // look again; the caller sees whether ctx has ended
	}
	return grant, err
}

// untilFree shortens a pause to just after the holder's term, apart from others who
// wait for the same.
func untilFree(busy *backend.Busy, pause time.Duration) time.Duration {
	if free := busy.RetryAfter; free > 0 && free < pause {
		return free + rand.N(20*time.Millisecond)
	}
	return max(pause, time.Millisecond)
}

// pacer spaces attempts by decorrelated jitter: each pause is drawn between the
// least and three times the one before
// (https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/).
type pacer struct {
	last  time.Duration
	fence uint64 // of the holder that was seen last
	moves time.Duration
}

// see begins the pauses anew if the lock has changed hands since the last attempt: it
// will soon do so again, and who went on to pause longer would see the others take turns. They
// begin a little longer each time, for that is how many others wait, too.
func (p *pacer) see(fence uint64, least time.Duration) {
	if fence == 0 || fence == p.fence {
		return
	}
	p.fence = fence
	p.moves++
	p.last = p.moves * least / 5
}

func (p *pacer) next(least, most time.Duration) time.Duration {
	least = max(least, time.Millisecond)
	p.last = min(max(most, least), least+rand.N(max(3*p.last-least, 2*least)))
	return p.last
}

// sleep returns after d or when ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func sleepUntil(t time.Time) {
	if d := time.Until(t); d > 0 {
		sleep(context.Background(), d)
	}
}

// accept makes a grant live and hands out its lease, unless it came too late. There is no
// lease yet on a grant that is to be renewed before.
func (h *hold) accept(grant *backend.Grant, waited bool) (*Lease, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	h.grant, h.term, h.start, h.granted = grant, grant.Term, now, now
	h.repeat = h.attempted
	switch {
	case grant.Fence >= backend.MaxFence:
		return nil, fmt.Errorf("%w: the server's fence %d is not below 2^51", ErrConflict, grant.Fence)
	case grant.Fence == 0 && h.mutex.client.caps.Fencing != backend.FenceNone:
		return nil, fmt.Errorf("%w: the server gave no fence", ErrConflict)
	case h.gone != nil:
		return nil, errBroken
	case h.expired(now) != nil:
		return nil, errLate
	case h.mutex.client.lifecycle.closing.Err() != nil:
		return nil, ErrClosed
	}
	h.phase, h.acquisition = live, nil
	h.planRenewal()
	if waited { // its term began with an earlier request
		h.due = now
		h.renewing = !h.renews || h.deadline().Sub(now) < h.mutex.settings.ttl/3
	}
	h.schedule()
	if h.renewing {
		return nil, nil // the caller confirms it
	}
	return h.newLease(), nil
}

// confirm renews a grant that came through Wait before its lease is handed out, if
// little of its term is left or nothing else would renew it; otherwise that
// happens behind the caller. A loss shows in takeLease.
func (h *hold) confirm(ctx context.Context) (*Lease, error) {
	_ = h.renew(ctx)
	return h.takeLease()
}

// takeLease hands out the first lease on a live hold.
func (h *hold) takeLease() (*Lease, error) {
	if h.mutex.client.lifecycle.closing.Err() != nil {
		h.releaseBehind()
		return nil, ErrClosed
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.phase != live {
		return nil, errBroken
	}
	return h.newLease(), nil
}
