package engine

import (
	"container/heap"
	"context"
	"math"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/bound"
)

// schedule contains the acquisitions with a next event, ordered by its time. One goroutine, the
// scheduler, serves it: it ends leases at their deadline, renews them after a third of their
// life, in batches, and starts the releases that are due. It never waits for the server. e.mu
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
}

// schedule sets the time of the next event of a, by its state. In a state without a next event a
// request is under way, whose answer sets it; gone has none. e.mu must be held.
func (a *acquisition) schedule() {
	wake := a.planned
	switch a.state {
	case granted, kept:
		wake = a.deadline(a.engine.processed)
		if a.awaitsRenewal() {
			wake = earlier(wake, a.planned)
		}
		if a.state == kept {
			wake = earlier(wake, a.tenure.start.Add(a.tenure.lock.MinHold))
		}
	case requesting, releasing, repeating, gone:
		return
	case orphaned, settled:
	}
	a.engine.set(a, wake)
}

// awaitsRenewal reports whether the next renewal of a is planned. e.mu must be held.
func (a *acquisition) awaitsRenewal() bool { return a.live() && a.renews() && !a.renewing }

// set puts a into the heap or moves it. e.mu must be held.
func (e *Engine) set(a *acquisition, wake time.Time) {
	a.wake = wake
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

// batchKind is what the renewals of a batch have in common. The limit of their request depends on
// ttl. With single, each renewal is one request; see renewsAlone.
type batchKind struct {
	ttl    time.Duration
	single bool
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
	batches := make(map[batchKind][]*acquisition)
	for len(e.due) > 0 && !e.due[0].wake.After(now.Add(e.slack(len(batches)))) {
		a := e.due[0]
		a.wake = never // until tick sets it again, so that the loop ends
		heap.Fix(&e.due, 0)
		if a.tick(now) {
			b := batchKind{a.lock.TTL, a.renewsAlone()}
			batches[b] = append(batches[b], a)
		}
	}
	for b, members := range batches {
		renew := e.renewAll
		if e.batch == nil || b.single {
			renew = e.renewEach
		}
		e.jobs.Go(func() { renew(ctx, members) })
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

// slack is how long before its time the first acquisition may join a batch: only a renewal does so
// early. e.mu must be held.
func (e *Engine) slack(batches int) time.Duration {
	if batches == 0 {
		return 0
	}
	a := e.due[0]
	if !a.wake.Equal(a.planned) || !a.awaitsRenewal() {
		return 0
	}
	return a.lock.batchSlack()
}

// wakeAll ends every lease that expired during a suspend, and renews the other leases at once,
// because their deadlines have come closer. e.mu must be held.
func (e *Engine) wakeAll(now time.Time) {
	for _, a := range append([]*acquisition(nil), e.due...) {
		if a.expire(now) == nil && a.live() {
			a.planned = now
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
		!a.live() && !a.planned.After(now):
		a.releaseInBackground()
		return false
	case a.live():
		early := now.Add(a.lock.batchSlack())
		renew = a.awaitsRenewal() && !a.planned.After(early)
		a.renewing = a.renewing || renew
		for t := a.tenure; t != nil; t = t.next {
			t.watch()
		}
	}
	a.schedule()
	return renew
}

// planRenewal sets the next renewal: after a third of the lease's life, ± 10 %. e.mu must be held.
func (a *acquisition) planRenewal() {
	a.planned = a.term.Sent.Add(spread(max(a.life()/renewalPart, 0)))
}

// renewsAlone reports whether a is not renewed in a batch, because one member of a batch may have
// cost the rest their answers. After a batch without an answer a is renewed alone until a renewal
// succeeds. After two such batches in a row it is always renewed alone, so that a driver which does
// not return gets few of them. e.mu must be held.
func (a *acquisition) renewsAlone() bool { return a.silent > 1 || a.silent > 0 && a.failures > 0 }

// renewAll renews acquisitions of one TTL by one call of a BatchRenewer. It blocks for renewalLimit
// and a tenth more at most. Each acquisition gets an answer even if the driver panics or does not
// return: without an answer it would never be renewed again. A later answer is dropped.
func (e *Engine) renewAll(ctx context.Context, members []*acquisition) {
	limit := members[0].lock.renewalLimit()
	bound := bound.New(ctx, limit)
	defer bound.Cancel()
	result := make(chan answers, 1)
	e.jobs.Go(func() { e.requestAnswers(bound, members, result) })
	e.renewedAll(members, awaitDriver(bound, limit, result, answers{failure: errAborted}))
}

// awaitDriver returns the result of a call of the driver with ctx, which ends after limit at most.
// It returns missing if the driver ignores the end of ctx.
func awaitDriver[T any](
	ctx context.Context, limit time.Duration, result <-chan T, missing T,
) T {
	select {
	case got := <-result:
		return got
	case <-ctx.Done():
	}
	select {
	case got := <-result:
		return got
	case <-time.After(limit / gracePart):
		return missing
	}
}

// renewedAll handles the answers to a batch under one lock: members that are lost would otherwise
// delay the answers to the rest, because unlock waits for the contexts of each.
func (e *Engine) renewedAll(members []*acquisition, got answers) {
	each := make([]*answer, len(members))
	for i := range members {
		if i < len(got.renewals) {
			each[i] = newAnswer(got.renewals[i].Term, got.renewals[i].Err, batched)
		} else {
			each[i] = newAnswer(backend.Term{}, got.failure, unanswered)
		}
	}
	e.mu.Lock()
	defer e.unlock()
	for i, a := range members {
		a.apply(each[i])
	}
}

// answers are what a driver returned for a batch.
type answers struct {
	renewals []backend.Renewal
	failure  error // of the members without a renewal
}

// requestAnswers calls the driver for renewAll, which may have given up when the driver returns.
func (e *Engine) requestAnswers(
	ctx context.Context, members []*acquisition, result chan<- answers,
) {
	grants := make([]*backend.Grant, len(members))
	for i, a := range members {
		grants[i] = a.currentGrant()
	}
	var renewals []backend.Renewal
	defer func() { result <- answers{renewals, e.recovered(recover())} }()
	renewals = e.batch.RenewAll(ctx, grants)
}

const (
	// renewers is the number of concurrent renewals that are sent one by one.
	renewers = 16
	// slowRenewers is how many more of a queue can be under way, if they are slow.
	slowRenewers = 1024
)

// renewals are the acquisitions of one TTL that are renewed one by one.
type renewals struct {
	queue chan *acquisition // closed, so that it ends when it is empty
	slow  int               // how many goroutines were replaced; e.mu guards it
}

// renewEach starts up to renewers goroutines, which renew acquisitions of one TTL one by one.
func (e *Engine) renewEach(ctx context.Context, members []*acquisition) {
	r := &renewals{queue: make(chan *acquisition, len(members))}
	for _, a := range members {
		r.queue <- a
	}
	close(r.queue)
	for range min(renewers, len(members)) {
		e.jobs.Go(func() { e.renewFrom(ctx, r) })
	}
}

// renewFrom renews what is in the queue. If a renewal is slow, or the driver ends the goroutine,
// another one goes on.
func (e *Engine) renewFrom(ctx context.Context, r *renewals) {
	ended := true
	defer func() {
		if ended {
			e.jobs.Go(func() { e.renewFrom(ctx, r) })
		}
	}()
	for a := range r.queue {
		if e.renewNext(ctx, r, a) {
			break
		}
	}
	ended = false
}

// renewNext renews a, and reports whether another goroutine has taken the place of the present one
// meanwhile. Otherwise the locks of a silent server would cost the rest their leases.
func (e *Engine) renewNext(ctx context.Context, r *renewals, a *acquisition) (replaced bool) {
	timer := time.AfterFunc(senderTimeout, func() {
		e.mu.Lock()
		defer e.unlock()
		if len(r.queue) > 0 && r.slow < slowRenewers {
			r.slow++
			replaced = true
			e.start(func() { e.renewFrom(ctx, r) })
		}
	})
	e.renewAlone(ctx, a)
	timer.Stop()
	e.mu.Lock()
	defer e.unlock()
	return replaced
}

// renewAlone is one renewal on a goroutine of the engine. It has a renewalLimit of its own, so that
// it does not fail because of the silence of servers that up to renewers other ones waited for.
func (e *Engine) renewAlone(ctx context.Context, a *acquisition) {
	bound := bound.New(ctx, a.lock.renewalLimit())
	defer bound.Cancel()
	var term backend.Term
	err := ErrNothing
	returned := false
	defer func() {
		if !returned {
			err = e.recovered(recover())
		}
		a.renewed(term, err, alone)
	}()
	term, err = e.driver.Renew(bound, a.currentGrant())
	returned = true
}

// renew is one renewal on the caller's goroutine.
func (a *acquisition) renew(ctx context.Context, how renewalKind) error {
	bound := bound.New(ctx, a.lock.requestLimit()).EndWith(a.engine.working)
	defer bound.Cancel()
	var term backend.Term
	err := errAborted
	defer func() { a.renewed(term, err, how) }()
	term, err = a.engine.driver.Renew(bound, a.currentGrant())
	err = sound(err)
	if err == nil && term.Sent.IsZero() {
		err = ErrNothing
	}
	return err
}

// renewalKind is how a renewal was sent. During an extension, another renewal may be under way.
type renewalKind uint8

const (
	extension  renewalKind = iota // by Extend
	alone                         // by the scheduler
	batched                       // by the scheduler in a batch
	unanswered                    // the same, but the batch had no answer for it
)

// answer is the answer to a renewal.
type answer struct {
	reading
	term backend.Term
	late error // if the lease ends without a later answer; see overdue
	how  renewalKind
}

// newAnswer reads and formats the error of an answer, so that no mutex is held meanwhile. A driver
// that returned neither a term nor an error gets ErrNothing.
func newAnswer(term backend.Term, err error, how renewalKind) *answer {
	if err == nil && term.Sent.IsZero() {
		err = ErrNothing
	}
	r := &answer{reading: read(err, errGoneAtRenewal), term: term, how: how}
	if r.err != nil {
		r.late = overdue(r.err)
	}
	return r
}

// renewed handles the answer to a renewal.
func (a *acquisition) renewed(term backend.Term, err error, how renewalKind) {
	r := newAnswer(term, err, how)
	a.engine.mu.Lock()
	defer a.engine.unlock()
	a.apply(r)
}

// apply handles the answer to a renewal. It may come after any other event. So apply first compares
// the clocks: an answer after the deadline proves nothing for leases that have ended. e.mu must be
// held.
func (a *acquisition) apply(r *answer) {
	e := a.engine
	now := e.now()
	a.noteAnswer(r.how)
	relevant := a.expire(now) == nil && a.live()
	switch {
	case !relevant: // the planned release of an orphan also frees a grant that was prolonged
	case r.err == nil:
		a.prove(r.term, now)
	case r.loss != nil && a.pin != inExport: // else the answer to the Export decides
		a.markLost(r.loss)
		return
	case r.how == extension: // the caller's context decided how long it waited; the plan stands
		a.overdue = r.late
	default:
		a.failures++
		a.overdue = r.late
		a.planned = now.Add(backoff(int(a.failures), a.lock.MaxPause()))
		a.schedule()
	}
	for t := a.tenure; relevant && t != nil; t = t.next {
		e.noteRenewed(t, r.err)
	}
}

// noteAnswer ends the state of a renewal that is under way. e.mu must be held.
func (a *acquisition) noteAnswer(how renewalKind) {
	switch how {
	case batched:
		a.silent = 0
	case unanswered:
		a.silent++
	}
	a.renewing = a.renewing && how == extension
}

// prove sets the newer term of an answered renewal. e.mu must be held.
func (a *acquisition) prove(term backend.Term, now time.Time) {
	a.failures, a.overdue = 0, nil
	if term.Sent.After(a.term.Sent) {
		a.term = term
		a.planRenewal()
	} else { // an old proof of a session: renew again, after a pause
		a.planned = now.Add(backoff(0, a.life()/pausePart))
	}
	if a.expire(now) == nil {
		a.schedule()
	}
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
