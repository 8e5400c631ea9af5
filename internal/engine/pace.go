package engine

import (
	"math/rand/v2"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// pacer spaces the attempts of a waiter by decorrelated jitter: each pause is drawn between the
// minimum and three times the previous pause
// (https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/). Each call of Acquire
// has its own.
type pacer struct {
	last  time.Duration
	fence uint64 // of the last holder
	moves time.Duration
	hints int // immediate wake-ups in a row
}

// observe resets the backoff if the lock has changed hands since the last attempt: it will soon
// do so again, and a poller that kept backing off would starve. With each change the first pause
// is a little longer, because each change is evidence of one more poller.
func (p *pacer) observe(fence uint64, shortest time.Duration) {
	if fence == 0 || fence == p.fence {
		return
	}
	p.fence = fence
	p.moves++
	p.last = p.moves * shortest / movePart
}

// next returns the pause before the next attempt. The first one is between shortest and three times
// as much.
func (p *pacer) next(shortest, longest time.Duration) time.Duration {
	shortest = max(shortest, time.Millisecond)
	p.last = min(max(longest, shortest), shortest+rand.N(max(3*p.last-shortest, 2*shortest)))
	return p.last
}

const (
	// waitPart: a waiter that the driver can wake repeats its request after a third of the TTL,
	// because a message can be lost.
	waitPart = 3
	// reliableWait limits a Wait whose wake-up cannot be lost: it is longer than anything waits.
	reliableWait = 365 * 24 * time.Hour
	// maxJitter limits the jitter of untilFree.
	maxJitter = 20 * time.Millisecond
	// pollPart: the shortest pause of a poller is a fiftieth of the poll interval, because many
	// locks are held for a moment only.
	pollPart = 50
	// movePart: each change of the holder prolongs the backoff by a fifth of the shortest pause.
	movePart = 5
	// minRetryPause and maxRetryPause limit the pause after an attempt without an answer.
	minRetryPause = 10 * time.Millisecond
	maxRetryPause = time.Second
)

const (
	// promptHint is the duration of a Wait below which its hint counts as spurious.
	promptHint = time.Millisecond
	// freeHints is how many spurious hints in a row cost no pause: several clients may contend.
	freeHints = 8
	// maxIdlePause is the maximum pause after a spurious hint.
	maxIdlePause = 50 * time.Millisecond
)

// idle returns the pause after a Wait of the given duration without a grant. It is 0 unless the
// driver keeps waking its waiters without a reason.
func (p *pacer) idle(took time.Duration) time.Duration {
	if took >= promptHint {
		p.hints = 0
		return 0
	}
	p.hints++
	if p.hints <= freeHints {
		return 0
	}
	return min(promptHint<<min(p.hints-freeHints, 10), maxIdlePause)
}

// untilFree shortens a pause to just after the end of the holder's term, plus jitter, so that
// waiters do not retry together. With a short TTL the jitter leaves time for an attempt.
func untilFree(busy *backend.Busy, pause, ttl time.Duration) time.Duration {
	if free := busy.RetryAfter; free > 0 && free < pause {
		return free + rand.N(min(maxJitter, ttl/jitterPart))
	}
	return max(pause, time.Millisecond)
}
