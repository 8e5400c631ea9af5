package engine

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	// MaxRequest limits one request if the TTL is longer.
	MaxRequest = 5 * time.Second

	// wallTick is how often the scheduler compares the clocks while a lease is live. A lease that
	// expired during a suspend then ends within 60 ms after the machine has woken.
	wallTick = 50 * time.Millisecond

	// minSuspend is the lead of the wall clock over the monotonic clock that counts as a suspend.
	minSuspend = 10 * time.Millisecond

	// minBackoff and maxBackoff limit the pauses between repeated renewals and releases.
	minBackoff = 50 * time.Millisecond
	maxBackoff = 2 * time.Second

	// firstRepetition is the pause before the first repetition of an answered release.
	firstRepetition = 2 * time.Millisecond
)

// never is later than any wake-up.
var never = time.Unix(1<<40, 0)

// margin is the part of a term that a lease does not use: 1 % for clocks of different speed, and
// 10 ms for the latency of the scheduler.
func margin(ttl time.Duration) time.Duration { return ttl/100 + 10*time.Millisecond }

// life returns how long a term proves a lease, counted from its Sent. e.mu must be held.
func (a *acquisition) life() time.Duration {
	ttl := a.term.TTL - a.lock.LockDelay
	return ttl - margin(ttl)
}

// deadline returns when the leases of a end if it is not renewed, as of the reading now of the
// clock. e.mu must be held.
func (a *acquisition) deadline(now time.Time) time.Time {
	end := awake(a.term.Sent, now).Add(a.life())
	if t := a.tenure; t != nil && t.hasMaxHold() && a.state != kept {
		end = earlier(end, awake(t.start, now).Add(t.lock.MaxHold))
	}
	return end
}

// hasMaxHold reports whether the maximum hold of t counts. It begins when the waiter takes the
// tenure. e.mu must be held.
func (t *tenure) hasMaxHold() bool { return t.lock.MaxHold > 0 && t.state != pending }

// awake returns the time from which the monotonic clock, which stands still during a suspend,
// counts as much until now as the wall clock does from since.
func awake(since, now time.Time) time.Time {
	if d := ahead(since, now); d > minSuspend {
		return since.Add(-d)
	}
	return since
}

// expiry returns an error if the leases of a are over by the clocks: the reason. e.mu must be
// held.
func (a *acquisition) expiry(now time.Time) error {
	t := a.tenure
	if t != nil && t.hasMaxHold() && a.state == granted &&
		elapsed(t.start, now) >= t.lock.MaxHold {
		return errMaxHoldOver
	}
	if elapsed(a.term.Sent, now) >= a.life() {
		return errTermOver
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
func (l *Lock) renewalLimit() time.Duration { return min(l.TTL/3, MaxRequest) }

// backoff is the pause after the n-th failure in a row, counted from 0.
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
func jittered(d time.Duration) time.Duration { return d + rand.N(d/10+1) }
