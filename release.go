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

// unlock ends the lease l; with the last one the grant is kept for its minimum
// hold, passed on, or released.
func (h *hold) unlock(ctx context.Context, l *Lease) error {
	now := time.Now()
	h.mu.Lock()
	lost := h.expire(now)
	err := l.detach()
	free := err == nil && len(h.handles) == 0 && !h.keep(now)
	h.unlocking = free
	h.mindDropped()
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
	h.observeEnded(err)
	return err
}

// detach takes l from its hold; it tells, once, why l has ended already. The
// hold's mutex is held.
func (l *Lease) detach() error {
	t := l.handle
	if t.unlocked {
		return ErrNotHeld
	}
	t.unlocked = true
	l.cleanup.Stop()
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
	if now.Sub(h.start) >= h.mutex.settings.minHold {
		return false
	}
	h.phase, h.renews = kept, true
	h.schedule()
	return true
}

// discard frees a live hold that no lease will stand on, behind the caller.
func (h *hold) discard() {
	if !h.handOff() {
		h.releaseBehind()
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
	next.grant, next.term, next.granted, next.repeat = h.grant, h.term, h.granted, h.repeat
	next.start, next.passes, next.renewing, next.due = time.Now(), h.passes+1, h.renewing, h.due
	next.phase = live
	h.bequeath(next)
	next.schedule()
	return true
}

// release gives the grant back. It waits for the answer until ctx ends, unless
// that has ended before: then it waits all the same, for one request.
func (h *hold) release(ctx context.Context, now time.Time) error {
	if !h.startRelease() {
		return ErrLost // since its last lease was unlocked
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
	h.unschedule()
	return true
}

// releaseNow asks the server until it answers or a request's time from now is over; then
// the scheduler goes on.
func (h *hold) releaseNow(ctx context.Context, now time.Time) error {
	bound := backend.NewBoundFrom(ctx, now, h.mutex.requestBound())
	defer bound.Cancel()
	answered, err := h.askUntil(bound)
	if !answered {
		h.askLater()
		h.log(slog.LevelWarn, "dlock: release not answered, repeating it", err)
		err = uncertain(h.mutex.client.unanswered(ctx, err))
	}
	h.leavePlace(ownTurn)
	return err
}

// askUntil asks until there is an answer or ctx ends.
func (h *hold) askUntil(ctx context.Context) (answered bool, err error) {
	answered, err = h.askRelease(ctx)
	for n := 0; !answered && ctx.Err() == nil; n++ {
		sleep(ctx, backoff(n, h.mutex.settings.ttl/10))
		if ctx.Err() == nil {
			answered, err = h.askRelease(ctx)
		}
	}
	return answered, err
}

// askRelease is one request. "Not held" after an unknown answer means that the request
// before did it.
func (h *hold) askRelease(ctx context.Context) (answered bool, err error) {
	err = h.sendRelease(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err == nil:
	case !errors.Is(err, ErrNotHeld) && !errors.Is(err, ErrLost):
		h.asked++
		return false, err
	case h.asked > 0 && h.gone == nil && h.grant != nil && h.expired(time.Now()) == nil:
		err = nil
	default:
		err = ErrLost
	}
	h.finish(ErrLost)
	return true, err
}

// sendRelease is one request. The next local waiter has its turn at once where the server serves it after that.
func (h *hold) sendRelease(ctx context.Context) error {
	c := h.mutex.client
	if c.pipeliner == nil {
		return c.driver.Release(ctx, h.remains())
	}
	return c.pipeliner.ReleaseThen(ctx, h.remains(), func() { h.leavePlace(ownTurn) })
}

// askLater leaves a release that had no answer to the scheduler.
func (h *hold) askLater() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.phase, h.due = orphaned, time.Now().Add(backoff(int(h.asked), mostBackoff))
	h.schedule()
}

// remains is what to give back: the grant, or what an acquisition may have left.
func (h *hold) remains() *backend.Grant {
	if h.grant != nil {
		return h.grant
	}
	grant := &backend.Grant{Request: h.request}
	if h.busy != nil {
		grant.State = h.busy.State
	}
	return grant
}

// giveUp ends an acquisition, because of err: its queue entry goes to the next
// local waiter, or what it may have left on the server is released behind the caller.
func (h *hold) giveUp(err error) {
	queued := h.busy != nil && h.busy.Queued
	next := ownTurn
	if isExhausted(err) {
		next = silentTurn
	}
	if h.grant == nil && !queued && !h.attempted {
		h.leavePlace(next)
		return
	}
	if h.grant == nil && next == ownTurn && h.mutex.client.queues.Pass(&h.place, entryTurn, h.inheritTo) {
		return
	}
	h.mu.Lock()
	h.repeat = h.repeat || h.grant == nil && h.attempted
	h.mu.Unlock()
	h.leavePlace(next)
	h.releaseBehind()
}

// releaseBehind releases h behind the caller.
func (h *hold) releaseBehind() {
	if h.startRelease() {
		h.mutex.client.lifecycle.goBehind(func(ctx context.Context) { _ = h.releaseNow(ctx, time.Now()) })
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
	h.bequeath(next)
	return true
}

// endLeases ends all leases for Close, and returns when the last minimum hold is over.
func (c *Client) endLeases() (holds time.Time) {
	for _, h := range c.scheduler.snapshot() {
		holds = later(holds, h.close())
	}
	return holds
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// close ends the leases on h. Unless h is kept for its minimum hold, until held, or waits for the
// repetition of its release, it is then to be released at once.
func (h *hold) close() (held time.Time) {
	h.mu.Lock()
	now := time.Now()
	h.endHandles(ErrClosed)
	switch {
	case h.phase != live && h.phase != kept || h.unlocking:
	case h.keep(now):
		held = h.start.Add(h.mutex.settings.minHold)
	default:
		h.phase, h.due = orphaned, now
	}
	h.mu.Unlock()
	h.tellEnded(ErrClosed)
	return held
}

// releaseAll releases what Close has ended, until the deadline. What is lost with a
// lock-delay is left to the end of its term.
func (c *Client) releaseAll(deadline time.Time) {
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	c.endLeases()
	holds := make(chan *hold)
	var workers sync.WaitGroup
	for range releasers {
		workers.Go(func() {
			for h := range holds {
				if !h.startRelease() {
					continue
				}
				if answered, _ := h.askUntil(ctx); !answered {
					h.askLater()
				}
			}
		})
	}
	for _, h := range c.scheduler.snapshot() {
		if h.releasable(time.Now()) {
			holds <- h
		}
	}
	close(holds)
	workers.Wait()
}

// releasable tells whether Close may release h now.
func (h *hold) releasable(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	mayBeEarly := h.mutex.settings.lockDelay == 0 && !h.isReleased()
	return h.phase == orphaned && (mayBeEarly || !h.due.After(now))
}
