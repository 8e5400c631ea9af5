package dlock

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/gate"
)

// phase is where a hold stands. It only moves forward.
type phase uint8

const (
	acquiring phase = iota // no grant yet
	live                   // granted: leases stand on it
	kept                   // unlocked, but its minimum hold is not over
	orphaned               // ended without the server's word: to be released
	releasing              // a release is under way
	finished               // nothing left to do
)

// turn is what the head of a local queue passes to the next.
type turn uint8

const (
	ownTurn    turn = iota // to ask the server
	grantTurn              // the grant itself
	entryTurn              // the queue entry on the server
	silentTurn             // to ask the server, which has not answered for a TTL
)

// hold is one acquisition, from its place in the local queue to the end of its
// last request. While it is live, one grant of the server's belongs to it; a local
// hand-off moves the grant to the next hold.
type hold struct {
	mutex *mutex
	place gate.Place[*hold, turn]

	*acquisition       // nil once the hold is live
	origin       *hold // who drew the request

	mu        sync.Mutex
	phase     phase
	renews    bool
	renewing  bool
	repeat    bool   // an attempt may be executed late, so the release must be repeated
	unlocking bool   // its last lease is being unlocked, which Close waits for
	scheduled bool   // it is in the scheduler's heap
	passes    uint16 // hand-offs since the server's grant
	untold    int32  // leases whose end the observer is still to be told
	unrenewed int32  // renewals that failed since the last that did not
	asked     int32  // releases without an answer
	grant     *backend.Grant
	term      backend.Term         // the latest proof
	granted   time.Time            // by the server
	start     time.Time            // of this hold: by the server or by hand-off
	due       time.Time            // while held: the renewal; of an orphan: the release
	until     time.Time            // of a released orphan: its last repetition; else zero
	heir      atomic.Pointer[hold] // of an origin: who has its acquisition now, if it is not itself
	gone      error                // the server said so
	first     handle               // most holds have no other
	one       [1]*handle
	handles   []*handle // those that have not ended

	timing // of the scheduler
}

// acquisition is what a hold needs until it is live. It is of the goroutine that
// acquires, and goes to the next hold with the queue entry on the server.
type acquisition struct {
	request   backend.Request
	busy      *backend.Busy // the latest answer of that kind
	attempted bool          // something was sent whose outcome is not known for certain
	uncertain bool          // the same, of the latest attempt
	answered  time.Time     // when the server last did, or should have
}

// newHold makes the hold of one Lock or TryLock.
func newHold(m *mutex) *hold {
	return &hold{mutex: m, renews: !m.settings.noRenewal}
}

// draw makes the request of a new acquisition, which the server should have answered since
// answered.
func (h *hold) draw(wait bool, answered time.Time) {
	var bits [16]byte
	_, _ = rand.Read(bits[:]) // never fails, says its documentation
	var owner [2 * len(bits)]byte
	hex.Encode(owner[:], bits[:])
	s := h.mutex.settings
	h.origin = h
	h.acquisition = &acquisition{answered: answered, request: backend.Request{
		Key: h.mutex.key, Owner: string(owner[:]), TTL: s.ttl + s.lockDelay, Mode: backend.Exclusive,
		Fair: s.fair, Queue: wait, Meta: s.meta, Lost: h.serverLost,
	}}
}

// margin is what a lease trusts less than the term: 1 % for clocks that run
// differently, 10 ms for the scheduler.
func margin(ttl time.Duration) time.Duration { return ttl/100 + 10*time.Millisecond }

// life is for how long after Sent a term proves the lease.
func (h *hold) life() time.Duration {
	ttl := h.term.TTL - h.mutex.settings.lockDelay
	return ttl - margin(ttl)
}

// deadline is when the lease ends unless it is renewed. The mutex is held.
func (h *hold) deadline() time.Time {
	end := h.term.Sent.Add(h.life())
	if d := h.mutex.settings.maxHold; d > 0 && h.phase != kept && h.start.Add(d).Before(end) {
		end = h.start.Add(d)
	}
	return end
}

// elapsed is the time since then by the clock that says more: the monotonic clock
// stands still while the machine sleeps, the wall clock can be set back.
func elapsed(since, now time.Time) time.Duration {
	return max(now.Sub(since), now.Round(0).Sub(since.Round(0)))
}

var (
	errTermOver    = fmt.Errorf("%w: not renewed before its deadline", ErrLost)
	errMaxHoldOver = fmt.Errorf("%w: its maximum hold is over", ErrLost)
)

// expired tells why the lease is over by the clocks, or nil. The mutex is held.
func (h *hold) expired(now time.Time) error {
	if d := h.mutex.settings.maxHold; d > 0 && h.phase == live && elapsed(h.start, now) >= d {
		return errMaxHoldOver
	}
	if elapsed(h.term.Sent, now) >= h.life() {
		return errTermOver
	}
	return nil
}

// expire ends a lease whose time is over and returns why, or nil. The mutex is
// held; after it is free the caller calls afterLoss.
func (h *hold) expire(now time.Time) error {
	if h.phase != live && h.phase != kept {
		return nil
	}
	reason := h.expired(now)
	if reason != nil {
		h.orphan(ErrLost, h.term.Sent.Add(h.term.TTL))
	}
	return reason
}

// orphan ends the leases while the grant may live on, to be released later. The
// mutex is held.
func (h *hold) orphan(err error, releaseAt time.Time) {
	h.endHandles(err)
	h.phase, h.due = orphaned, releaseAt
	h.schedule()
}

// finish ends the leases of a hold that has nothing left on the server, unless
// an attempt that went astray may still be executed. The mutex is held.
func (h *hold) finish(err error) {
	h.endHandles(err)
	h.phase = finished
	if h.repeat {
		h.planRepetition()
		return
	}
	h.unschedule()
}

// firstRepetition is the pause before an answered release is repeated.
const firstRepetition = 2 * time.Millisecond

// planRepetition schedules the next release of an orphan that has been released. The pauses double,
// so a late execution is undone in about twice the time that it was late. The last repetition comes
// Capabilities.Late after the first answer. h.mu must be held.
func (h *hold) planRepetition() {
	now, late := time.Now(), h.mutex.client.caps.Late
	if !h.isReleased() {
		h.until = now.Add(late)
		h.mutex.client.scheduler.repeatUntil(h.until)
	}
	pause := max(late-h.until.Sub(now), firstRepetition)
	h.due = now.Add(pause)
	if h.until.Sub(h.due) < pause {
		h.due, h.repeat = h.until, false
	}
	h.phase = orphaned
	h.schedule()
}

// isReleased reports whether h is an orphan whose release was answered, and only its repetitions
// are left. h.mu must be held.
func (h *hold) isReleased() bool { return !h.until.IsZero() }

func (h *hold) endHandles(err error) {
	for _, t := range h.handles {
		t.end(err)
	}
	h.untold += int32(len(h.handles))
	h.handles = nil
}

// afterLoss tells those whom the loss of a lease concerns.
func (h *hold) afterLoss(reason error) {
	h.leavePlace(ownTurn)
	h.log(slog.LevelWarn, "dlock: lease lost", reason)
	h.tellEnded(reason)
}

// tellEnded tells the observer of each lease that has been ended from outside.
func (h *hold) tellEnded(reason error) {
	h.mu.Lock()
	n := h.untold
	h.untold = 0
	h.mu.Unlock()
	for range n {
		h.observeEnded(reason)
	}
}

// lockHeir returns, locked, the hold that has h's acquisition now: h itself, unless it
// was handed over.
func (h *hold) lockHeir() *hold {
	for {
		heir := cmp.Or(h.origin.heir.Load(), h.origin)
		heir.mu.Lock()
		if heir == cmp.Or(h.origin.heir.Load(), h.origin) {
			return heir
		}
		heir.mu.Unlock()
	}
}

// bequeath makes next the heir of h's acquisition. Both mutexes are held.
func (h *hold) bequeath(next *hold) {
	next.acquisition, next.origin = h.acquisition, h.origin
	h.origin.heir.Store(next)
	h.phase = finished
	h.unschedule()
}

// serverLost is Request.Lost: the server says that the grant is gone.
func (h *hold) serverLost(cause error) {
	reason := cause
	if !errors.Is(reason, ErrLost) {
		reason = fmt.Errorf("%w: %w", ErrLost, cause)
	}
	h = h.lockHeir()
	h.gone = reason
	lost := h.phase == live || h.phase == kept
	if lost {
		h.finish(ErrLost)
	}
	h.mu.Unlock()
	if lost {
		h.afterLoss(reason)
	}
}

// alive tells whether a lease stands on h.
func (h *hold) alive() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.phase == live && len(h.handles) > 0 && h.expired(time.Now()) == nil
}

// rejoin makes another lease on a hold that is still held, or returns nil.
func (h *hold) rejoin() *Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.phase != live || len(h.handles) == 0 || h.expired(time.Now()) != nil {
		return nil
	}
	return h.newLease()
}

// leavePlace gives the next local waiter its turn.
func (h *hold) leavePlace(t turn) { h.mutex.client.queues.Leave(&h.place, t) }

// fence and owner are constant once the hold is live.
func (h *hold) fence() uint64 {
	if h.grant == nil || h.grant.Fence == 0 {
		return 0
	}
	return h.grant.Fence<<handoffBits | uint64(h.passes)
}

func (h *hold) owner() string {
	if h.grant == nil {
		return ""
	}
	return h.grant.Owner
}
