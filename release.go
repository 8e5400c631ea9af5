package dlock

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

const (
	// leastBackoff and mostBackoff space the repetitions of renewals and releases.
	leastBackoff = 50 * time.Millisecond
	mostBackoff  = 2 * time.Second
)

// backoff is the pause after the n-th failure in a row.
func backoff(n int, most time.Duration) time.Duration {
	return min(leastBackoff<<min(n, 10), max(most, time.Millisecond))
}

// unlock ends the handle t; with the last one the grant is kept for its minimum
// hold, passed on, or released.
func (h *hold) unlock(ctx context.Context, t *handle) error {
	now := time.Now()
	h.mu.Lock()
	lost := h.expire(now)
	err := t.detach()
	free := err == nil && len(h.handles) == 0 && !h.keep(now)
	h.mu.Unlock()
	if lost != nil {
		h.afterLoss(lost)
	}
	if err != nil {
		return err
	}
	if free && !h.handOff() {
		err = h.release(ctx, now)
	}
	if errors.Is(err, ErrLost) {
		lost = err
	}
	h.observeEnded(lost)
	return err
}

// detach takes t from its hold; it tells, once, why t has ended already. The
// hold's mutex is held.
func (t *handle) detach() error {
	if t.unlocked {
		return ErrNotHeld
	}
	t.unlocked = true
	if t.err != nil {
		return t.err
	}
	t.end(ErrNotHeld)
	t.hold.handles = slices.DeleteFunc(t.hold.handles, func(other *handle) bool { return other == t })
	return nil
}

// keep leaves an unlocked hold to the scheduler if its minimum hold is not over. The
// mutex is held.
func (h *hold) keep(now time.Time) bool {
	d := h.mutex.settings.minHold
	if d == 0 || elapsed(h.start, now) >= d {
		return false
	}
	h.phase, h.renews = kept, true
	h.schedule()
	return true
}

// discard frees a live hold that no lease will stand on, behind the caller.
func (h *hold) discard() {
	if !h.handOff() {
		h.mutex.client.lifecycle.goBehind(func() { _ = h.release(context.Background(), time.Now()) })
	}
}

// handOff passes the grant to the next local waiter, without a trip to the server, if
// design.md §6 allows it.
func (h *hold) handOff() bool {
	return h.mutex.client.queues.Pass(&h.place, grantTurn, h.passTo)
}

// mayPass tells whether the grant is young and safe enough to be passed on. The
// mutex is held.
func (h *hold) mayPass(now time.Time) bool {
	s := h.mutex.settings
	return h.phase == live && h.expired(now) == nil && int(h.passes) < s.handoff &&
		elapsed(h.term.Sent, now) < h.term.TTL/2 &&
		elapsed(h.granted, now) < min(s.ttl/10, 100*time.Millisecond)
}

// canHandOff tells whether a lock with these settings takes part in hand-offs.
func (s *settings) canHandOff() bool {
	return s.handoff > 0 && !s.fair && !s.noRenewal && s.minHold == 0
}

// passTo makes next the hold of h's grant. The queues are locked.
func (h *hold) passTo(next *hold) bool {
	a, b := h.mutex.settings, next.mutex.settings
	if !a.canHandOff() || !b.canHandOff() || a.ttl != b.ttl || a.lockDelay != b.lockDelay || a.meta != b.meta {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.mayPass(time.Now()) {
		return false
	}
	next.mu.Lock()
	defer next.mu.Unlock()
	next.request, next.grant, next.term, next.granted = h.request, h.grant, h.term, h.granted
	next.start, next.passes, next.repeat = time.Now(), h.passes+1, h.repeat
	next.attempted, next.renewing, next.due = true, h.renewing, h.due
	next.phase = live
	next.schedule()
	h.successor = next
	h.finish(ErrNotHeld)
	return true
}

// release gives the grant back. It waits for the answer until ctx ends, unless
// that has ended before: then it waits all the same, for one request.
func (h *hold) release(ctx context.Context, now time.Time) error {
	if !h.startRelease() {
		return h.endedBeside()
	}
	if ctx.Done() == nil || ctx.Err() != nil {
		return h.releaseNow(detached(ctx), now)
	}
	done := make(chan error, 1)
	h.mutex.client.lifecycle.behind.Go(func() { done <- h.releaseNow(detached(ctx), now) })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return uncertain(endOf(ctx))
	}
}

// endedBeside tells what became of a grant that something else has ended since
// its last lease was unlocked: the server, or else Close, which releases it.
func (h *hold) endedBeside() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone != nil {
		return ErrLost
	}
	return ErrClosed
}

// detached is ctx without its end.
func detached(ctx context.Context) context.Context {
	if ctx.Done() == nil {
		return ctx
	}
	return context.WithoutCancel(ctx)
}

// startRelease stops the renewal before the release is sent: a renewal in flight
// shall find nobody who takes its answer for a loss.
func (h *hold) startRelease() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.phase != live && h.phase != kept && h.phase != orphaned && h.phase != acquiring {
		return false
	}
	h.phase = releasing
	h.mutex.client.scheduler.remove(h)
	return true
}

// releaseNow asks the server until it answers or a request's time from now is over; then
// the scheduler goes on.
func (h *hold) releaseNow(ctx context.Context, now time.Time) error {
	bound := backend.NewBoundAt(ctx, now.Add(h.mutex.requestBound()))
	defer bound.Cancel()
	answered, err := h.askRelease(bound)
	for n := 0; !answered && bound.Err() == nil; n++ {
		sleep(bound, backoff(n, h.mutex.settings.ttl/10))
		if bound.Err() == nil {
			answered, err = h.askRelease(bound)
		}
	}
	if !answered {
		h.askLater()
		h.log(slog.LevelWarn, "dlock: release not answered, repeating it", err)
		err = uncertain(unanswered(ctx, err))
	}
	h.leavePlace()
	return err
}

// askRelease is one request. "Not held" after an unknown answer means that the request
// before did it.
func (h *hold) askRelease(ctx context.Context) (answered bool, err error) {
	err = h.mutex.client.driver.Release(ctx, h.released())
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err == nil:
	case !errors.Is(err, ErrNotHeld) && !errors.Is(err, ErrLost):
		h.asked++
		return false, err
	case h.asked > 0 && h.grant != nil && h.expired(time.Now()) == nil:
		err = nil
	default:
		err = ErrLost
	}
	h.phase = finished
	if h.repeat {
		h.repeat, h.phase = false, orphaned
		h.due = time.Now().Add(h.mutex.client.caps.Late)
		h.schedule()
	}
	return true, err
}

// askLater leaves a release that had no answer to the scheduler.
func (h *hold) askLater() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.phase, h.due = orphaned, time.Now().Add(backoff(int(h.asked), mostBackoff))
	h.schedule()
}

// released is what to give back: the grant, or what an acquisition may have left.
func (h *hold) released() *backend.Grant {
	if h.grant != nil {
		return h.grant
	}
	grant := &backend.Grant{Request: h.request}
	if h.busy != nil {
		grant.State = h.busy.State
	}
	return grant
}

// giveUp ends an acquisition: its queue entry goes to the next local waiter, or
// what it may have left on the server is released behind the caller.
func (h *hold) giveUp() {
	c := h.mutex.client
	queued := h.busy != nil && h.busy.Queued
	if !queued && !h.attempted {
		h.leavePlace()
		return
	}
	if h.grant == nil && c.queues.Pass(&h.place, entryTurn, h.inheritTo) {
		return
	}
	h.mu.Lock()
	h.repeat = h.repeat || h.grant == nil && h.attempted
	h.mu.Unlock()
	h.leavePlace()
	if h.startRelease() {
		c.lifecycle.goBehind(func() { _ = h.releaseNow(context.Background(), time.Now()) })
	}
}

// inheritTo lets next go on with h's request, under the same owner. The queues
// are locked.
func (h *hold) inheritTo(next *hold) bool {
	a, b := h.mutex.settings, next.mutex.settings
	if h.mutex.client.lifecycle.closing.Err() != nil || !h.request.Queue ||
		a.ttl != b.ttl || a.lockDelay != b.lockDelay || a.fair != b.fair || a.meta != b.meta {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	next.mu.Lock()
	defer next.mu.Unlock()
	if h.gone != nil {
		return false
	}
	next.request, next.busy, next.attempted = h.request, h.busy, h.attempted
	h.successor, h.phase = next, finished
	return true
}

// endLeases ends all leases for Close, and returns when the last minimum hold is
// over.
func (c *Client) endLeases() (over time.Time) {
	for _, h := range c.scheduler.snapshot() {
		if end := h.close(); end.After(over) {
			over = end
		}
	}
	return over
}

// close ends the leases on h; unless it is kept for its minimum hold it is then to
// be released at once.
func (h *hold) close() (keptUntil time.Time) {
	h.mu.Lock()
	h.endHandles(ErrClosed)
	now := time.Now()
	rest := h.mutex.settings.minHold - elapsed(h.start, now)
	switch {
	case h.phase != live && h.phase != kept:
	case rest > 0:
		h.phase, keptUntil = kept, now.Add(rest)
	default:
		h.phase, h.due = orphaned, now
	}
	h.mu.Unlock()
	h.tellEnded(ErrClosed)
	return keptUntil
}

// releaseAll releases what Close has ended, as far as ctx allows. What is lost with a
// lock-delay is left to the end of its term.
func (c *Client) releaseAll(ctx context.Context) {
	c.endLeases()
	holds := make(chan *hold)
	var workers sync.WaitGroup
	for range releasers {
		workers.Go(func() {
			for h := range holds {
				if h.startRelease() {
					_, _ = h.askRelease(ctx)
				}
			}
		})
	}
	for _, h := range c.scheduler.snapshot() {
		h.mu.Lock()
		due := h.phase == orphaned && (h.mutex.settings.lockDelay == 0 || !h.due.After(time.Now()))
		h.mu.Unlock()
		if due {
			holds <- h
		}
	}
	close(holds)
	workers.Wait()
}
