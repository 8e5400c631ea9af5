package engine

import (
	"container/heap"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/bound"
)

// schedule contains the acquisitions with a next event, ordered by its time. One goroutine, the
// scheduler, serves it: it ends leases at their deadline, renews them after a third of their
// term, in batches, and starts the releases that are due. It never waits for the server. e.mu
// guards all fields except wakeUp.
type schedule struct {
	due       dueHeap
	armed     time.Time // when the timer fires; zero: there is none
	processed time.Time // when the scheduler ran last
	stirs     bool      // a lease was live since then
	wakeUp    chan struct{}
}

// timing is the place of an acquisition in the schedule.
type timing struct {
	index int // 1 + the index in the heap; 0: not in it
	wake  time.Time
	slack time.Duration // how much earlier it may join a batch
}

// schedule sets the time of the next event of a, by its state. e.mu must be held.
func (a *acquisition) schedule() {
	wake := a.release
	var slack time.Duration
	switch a.state {
	case granted, kept:
		wake = a.deadline(a.engine.processed)
		if a.renews() && !a.renewing && a.renewal.Before(wake) {
			wake, slack = a.renewal, a.lock.TTL/30
		}
		if end := a.tenure.start.Add(a.tenure.lock.MinHold); a.state == kept && end.Before(wake) {
			wake, slack = end, 0
		}
	case requesting, releasing, repeating, gone:
		return
	case orphaned, settled:
	}
	a.engine.set(a, wake, slack)
}

// set puts a into the heap or moves it. e.mu must be held.
func (e *Engine) set(a *acquisition, wake time.Time, slack time.Duration) {
	a.wake, a.slack = wake, slack
	if a.index == 0 {
		heap.Push(&e.due, a)
	} else {
		heap.Fix(&e.due, a.index-1)
	}
	if a.live() { // the clocks are to be compared
		e.stirs = true
		wake = earlier(wake, e.processed.Add(wallTick))
	}
	if e.armed.IsZero() || wake.Before(e.armed) {
		e.armed = wake
		select {
		case e.wakeUp <- struct{}{}:
		default:
		}
	}
}

// unschedule removes a from the heap. The timer stays armed: a spurious wake-up is cheaper than
// waking the goroutine at each Unlock. e.mu must be held.
func (a *acquisition) unschedule() {
	if a.index > 0 {
		heap.Remove(&a.engine.due, a.index-1)
	}
}

// run is the scheduler's goroutine. It ends with ctx.
func (e *Engine) run(ctx context.Context) {
	timer := time.NewTimer(math.MaxInt64)
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.wakeUp:
		case <-timer.C:
		}
		if next := e.process(ctx, e.now()); !next.IsZero() {
			timer.Reset(time.Until(next))
		}
	}
}

// process serves all events that are due, and returns the time of the next one.
func (e *Engine) process(ctx context.Context, now time.Time) time.Time {
	e.mu.Lock()
	defer e.unlock()
	asleep := ahead(e.processed, now) > minSuspend
	e.processed = now
	if asleep {
		e.wakeAll(now)
	}
	batches := make(map[time.Duration][]*acquisition)
	for len(e.due) > 0 && !e.due[0].wake.After(now.Add(e.slack(len(batches)))) {
		a := e.due[0]
		a.wake = never // until tick sets it again, so that the loop ends
		heap.Fix(&e.due, 0)
		if a.tick(now) {
			batches[a.lock.TTL] = append(batches[a.lock.TTL], a)
		}
	}
	for _, batch := range batches {
		e.jobs.Go(func() { e.renewAll(ctx, batch) })
	}
	e.arm(now)
	return e.armed
}

// arm sets the time of the next wake-up. A wake-up for an acquisition that has been released
// meanwhile stays armed, or each Lock would wake the goroutine. e.mu must be held.
func (e *Engine) arm(now time.Time) {
	switch {
	case len(e.due) > 0:
		e.armed = e.due[0].wake
	case !e.armed.After(now):
		e.armed = time.Time{}
	}
	tick := now.Add(wallTick)
	if (e.live > 0 || e.stirs) && (e.armed.IsZero() || tick.Before(e.armed)) {
		e.armed = tick // even after an Unlock, or each Lock would wake the goroutine
	}
	e.stirs = false
}

// slack is how long before its time the first acquisition may join a batch. e.mu must be held.
func (e *Engine) slack(batches int) time.Duration {
	if batches == 0 {
		return 0
	}
	return e.due[0].slack
}

// wakeAll ends every lease that expired during a suspend, and renews the other leases at once,
// because their deadlines have come closer. e.mu must be held.
func (e *Engine) wakeAll(now time.Time) {
	for _, a := range append([]*acquisition(nil), e.due...) {
		if a.expire(now) == nil && a.live() {
			a.renewal = now
			a.schedule()
		}
	}
}

// tick serves the event of a that is due, and reports whether a needs a renewal now. e.mu must be
// held.
func (a *acquisition) tick(now time.Time) (renew bool) {
	if a.expire(now) != nil {
		return false
	}
	switch {
	case a.state == kept &&
		now.Sub(a.tenure.start) >= a.tenure.lock.MinHold, // not early by a wall clock
		!a.live() && !a.release.After(now):
		a.releaseInBackground()
		return false
	case a.live():
		early := now.Add(a.lock.TTL / 30)
		renew = a.renews() && !a.renewing && !a.renewal.After(early)
		a.renewing = a.renewing || renew
		for t := a.tenure; t != nil; t = t.next {
			t.watch()
		}
	}
	a.schedule()
	return renew
}

// planRenewal sets the next renewal: after a third of the term, ± 10 %, so that many locks do not
// renew in step. e.mu must be held.
func (a *acquisition) planRenewal() {
	third := max(a.life()/3, 0)
	a.renewal = a.term.Sent.Add(third - third/10 + rand.N(third/5+1))
}

// renewers is the number of concurrent renewals for a driver without batches.
const renewers = 16

// renewAll renews acquisitions of one TTL. It blocks until they are answered, for renewalLimit at
// most.
func (e *Engine) renewAll(ctx context.Context, batch []*acquisition) {
	ctx = bound.New(ctx, batch[0].lock.renewalLimit())
	if e.batch == nil {
		e.renewEach(ctx, batch)
		return
	}
	grants := make([]*backend.Grant, len(batch))
	for i, a := range batch {
		grants[i] = a.currentGrant()
	}
	var answers []backend.Renewal
	defer func() {
		failure := e.recovered(recover())
		for i, a := range batch {
			answer := backend.Renewal{Err: failure}
			if i < len(answers) {
				answer = answers[i]
			}
			a.renewed(answer.Term, answer.Err)
		}
	}()
	answers = e.batch.RenewAll(ctx, grants)
}

// renewEach renews acquisitions one by one, on up to renewers goroutines.
func (e *Engine) renewEach(ctx context.Context, batch []*acquisition) {
	queue := make(chan *acquisition, len(batch))
	for _, a := range batch {
		queue <- a
	}
	close(queue)
	for range min(renewers, len(batch)) {
		e.jobs.Go(func() { e.renewFrom(ctx, queue) })
	}
}

// renewFrom renews what is in the queue. If the driver ends the goroutine, another one goes on.
func (e *Engine) renewFrom(ctx context.Context, queue <-chan *acquisition) {
	ended := true
	defer func() {
		if ended {
			e.jobs.Go(func() { e.renewFrom(ctx, queue) })
		}
	}()
	for a := range queue {
		e.renewAlone(ctx, a)
	}
	ended = false
}

// renewAlone is one renewal on a goroutine of the engine.
func (e *Engine) renewAlone(ctx context.Context, a *acquisition) {
	var term backend.Term
	err := ErrNothing
	returned := false
	defer func() {
		if !returned {
			err = e.recovered(recover())
		}
		a.renewed(term, err)
	}()
	term, err = e.driver.Renew(ctx, a.currentGrant())
	returned = true
}

// renew is one renewal on the caller's goroutine.
func (a *acquisition) renew(ctx context.Context) error {
	bound := bound.New(ctx, a.lock.requestLimit())
	defer bound.Cancel()
	var term backend.Term
	err := errAborted
	defer func() { a.renewed(term, err) }()
	term, err = a.engine.driver.Renew(bound, a.currentGrant())
	if err == nil && term.Sent.IsZero() {
		err = ErrNothing
	}
	return err
}

// renewed handles the answer to a renewal.
func (a *acquisition) renewed(term backend.Term, err error) {
	e := a.engine
	e.mu.Lock()
	defer e.unlock()
	now := e.now()
	if err == nil && term.Sent.IsZero() {
		err = ErrNothing
	}
	a.renewing = false
	relevant := a.expire(now) == nil && a.live()
	switch {
	case a.state == orphaned && err == nil:
		a.releaseProlonged(now)
	case !relevant:
	case err == nil:
		a.prove(term, now)
	case isLost(err):
		a.markLost(err)
		return
	default:
		a.failures++
		a.renewal = now.Add(backoff(int(a.failures), a.lock.TTL/10))
		a.schedule()
	}
	for t := a.tenure; relevant && t != nil; t = t.next {
		e.noteRenewed(t, err)
	}
}

// releaseProlonged plans the release of a grant that the server has prolonged after the leases
// ended by the clock: once lost, always lost. A lock-delay counts from now. e.mu must be held.
func (a *acquisition) releaseProlonged(now time.Time) {
	if due := now.Add(a.lock.LockDelay); a.state == orphaned && due.Before(a.release) {
		a.release = due
		a.schedule()
	}
}

// prove sets the newer term of an answered renewal. e.mu must be held.
func (a *acquisition) prove(term backend.Term, now time.Time) {
	a.failures = 0
	if term.Sent.After(a.term.Sent) {
		a.term = term
		a.planRenewal()
	} else { // an old proof of a session: renew again, after a pause
		a.renewal = now.Add(backoff(0, a.life()/10))
	}
	if a.expire(now) == nil {
		a.schedule()
	}
}

// recovered returns an error for a value that a driver panicked with on a goroutine of the
// engine.
func (e *Engine) recovered(value any) error {
	if value == nil {
		return ErrNothing
	}
	return errors.Join(errAborted, panicError(value))
}

// dueHeap orders acquisitions by the time of their next event.
type dueHeap []*acquisition

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].wake.Before(h[j].wake) }

func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i+1, j+1
}

func (h *dueHeap) Push(x any) {
	a := x.(*acquisition)
	*h = append(*h, a)
	a.index = len(*h)
}

func (h *dueHeap) Pop() any {
	last := len(*h) - 1
	a := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	a.index = 0
	return a
}
