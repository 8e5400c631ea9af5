package engine

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// This file alone decides whether the time of a lease is over. Neither a suspend of the machine nor
// a step of the wall clock makes a lease last longer, with one exception: a suspend goes undetected
// if the wall clock is set back by as much before the next comparison.

const (
	// MaxRequest limits one request if the TTL is longer. A request that a dead server does not
	// answer would otherwise last for a long TTL before it is repeated.
	MaxRequest = 5 * time.Second

	// wallTick is how often the scheduler compares the clocks while a lease is live. A lease that
	// expired during a suspend then ends within 60 ms after the machine has woken. A timer does not
	// suffice: it runs by the monotonic clock, and so fires late by the duration of the suspend.
	wallTick = 50 * time.Millisecond

	// minSuspend is the lead of the wall clock over the monotonic clock that counts as a suspend. A
	// smaller lead comes from a wall clock that is being adjusted.
	minSuspend = 10 * time.Millisecond

	// minBackoff and maxBackoff limit the pauses between repeated renewals and releases.
	minBackoff = 50 * time.Millisecond
	maxBackoff = 2 * time.Second

	// firstRenewal is when a grant that came through Wait is renewed: often it has the short term
	// of a queue entry. Most locks are released before that, and cost no renewal.
	firstRenewal = 100 * time.Millisecond

	// firstRepetition is the pause before the first repetition of an answered release.
	firstRepetition = 2 * time.Millisecond
)

// The durations that depend on a lock are parts of its TTL or of the life of its lease.
const (
	// renewalPart: a renewal begins after a third of the life, and may last for a third of the TTL.
	// So after a renewal without an answer there is time for another one.
	renewalPart = 3

	// batchPart: a renewal joins a batch that is sent up to a thirtieth of the TTL before its time.
	// That is a tenth of the time between two renewals: up to a tenth more renewals, but many fewer
	// requests.
	batchPart = 30

	// gracePart: a driver that has not returned within a tenth of the limit after the end of its
	// context is not waited for.
	gracePart = 10
	// maxStops is how many stops of the process one silence of the server may contain.
	maxStops = 3

	// pausePart: the pauses after failures grow to a tenth of the TTL, so that several attempts fit
	// into the rest of a term.
	pausePart = 10

	// jitterPart: waits and planned renewals are random within a tenth, so that many locks do not
	// renew in step.
	jitterPart = 10
)

// never is later than any wake-up.
var never = time.Unix(1<<40, 0)

// margin is the part of a term that a lease does not use: 1 % for clocks of different speed, and
// 10 ms for the latency of the scheduler.
func margin(ttl time.Duration) time.Duration { return ttl/100 + 10*time.Millisecond }

// life is lifeOf of the newest term of a. e.mu must be held.
func (a *acquisition) life() time.Duration { return lifeOf(a.term, a.lock) }

// lifeOf returns how long a term proves a lease on l, counted from its Sent. The server keeps the
// grant for the TTL of the term, which includes the lock-delay. If a term is shorter than the
// lock-delay, its life is negative and the lease is over at once.
func lifeOf(term backend.Term, l *Lock) time.Duration {
	ttl := term.TTL - l.LockDelay
	return ttl - margin(ttl)
}

// deadline returns when the leases of a end if it is not renewed, as of the reading now of the
// clock. It ignores a lead of the wall clock of up to minSuspend, which expiry counts. So a lease
// may end up to 10 ms before the deadline that was reported for it, but not after it, unless it is
// renewed. e.mu must be held.
func (a *acquisition) deadline(now time.Time) time.Time {
	end := awake(a.term.Sent, now).Add(a.life())
	if t := a.tenure; t != nil && t.hasMaxHold() && a.state != kept {
		end = earlier(end, awake(t.start, now).Add(t.lock.MaxHold))
	}
	return end
}

// deadline returns until when t is proven or, once t is over, was proven. e.mu must be held.
func (t *tenure) deadline(now time.Time) time.Time {
	if t.state == over {
		return t.proven
	}
	return t.acq.deadline(now)
}

// hasMaxHold reports whether the maximum hold of t counts. It begins when the waiter takes the
// tenure. e.mu must be held.
func (t *tenure) hasMaxHold() bool { return t.lock.MaxHold > 0 && t.state != pending }

// awake returns the time from which the monotonic clock, which stands still during a suspend,
// counts as much until now as the wall clock does from since. So a timer, which runs by the
// monotonic clock, fires in time for a deadline that is counted from the result.
func awake(since, now time.Time) time.Time {
	if d := ahead(since, now); d > minSuspend {
		return since.Add(-d)
	}
	return since
}

// expiry returns an error if the leases of a are over by the clocks: the reason. The maximum hold
// comes first, because no renewal can move it. A kept grant has no holder, so only its term counts.
// e.mu must be held.
func (a *acquisition) expiry(now time.Time) error {
	t := a.tenure
	if t != nil && t.hasMaxHold() && a.state == granted &&
		elapsed(t.start, now) >= t.lock.MaxHold {
		return errMaxHoldOver
	}
	if elapsed(a.term.Sent, now) >= a.life() {
		return cmp.Or(a.overdue, errTermOver)
	}
	return nil
}

// elapsed returns the larger of the monotonic and the wall-clock time since then: the monotonic
// clock stands still during a suspend, and the wall clock can be set back.
func elapsed(since, now time.Time) time.Duration {
	return max(now.Sub(since), onWall(since, now))
}

// ahead returns the lead that the wall clock gained over the monotonic clock between two
// readings.
func ahead(since, now time.Time) time.Duration {
	return onWall(since, now) - now.Sub(since)
}

// onWall returns the wall-clock time between two readings. It takes a third of the time of Sub
// without monotonic readings.
func onWall(since, now time.Time) time.Duration {
	return time.Duration(now.UnixNano() - since.UnixNano())
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// requestLimit is the maximum duration of one attempt.
func (l *Lock) requestLimit() time.Duration { return min(l.TTL, MaxRequest) }

// renewalLimit is the maximum duration of a renewal. It leaves time for another one.
func (l *Lock) renewalLimit() time.Duration { return min(l.TTL/renewalPart, MaxRequest) }

// batchSlack is how much earlier than planned a renewal may be sent, to join a batch.
func (l *Lock) batchSlack() time.Duration { return l.TTL / batchPart }

// MaxPause is the maximum pause after a failed renewal, release, attempt or election.
func (l *Lock) MaxPause() time.Duration { return l.TTL / pausePart }

// backoff is the pause after the n-th failure in a row, counted from 0. It is 50 ms, 100 ms, 200 ms
// and so on, up to longest, which counts as 1 ms at least.
func backoff(n int, longest time.Duration) time.Duration {
	return min(minBackoff<<min(n, 10), max(longest, time.Millisecond))
}

// sleep returns after d or when ctx ends. It makes no timer for a d of 0: several expired timers
// at once can crash the race detector in a bubble of testing/synctest (Go 1.26).
func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// jittered returns d plus up to a tenth of it.
func jittered(d time.Duration) time.Duration { return d + rand.N(d/jitterPart+1) }

// spread returns d ± a tenth of it.
func spread(d time.Duration) time.Duration {
	return d - d/jitterPart + rand.N(2*d/jitterPart+1)
}
