package dlock

import (
	"container/heap"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// scheduler is the one goroutine that watches over all holds of a client: it ends
// leases at their deadline, renews them a third into their term, in batches, and
// releases what nobody else does. It never waits for the server itself.
//
// Lock order: a local queue's, then a hold's, then the scheduler's.
type scheduler struct {
	mu    sync.Mutex
	holds holdHeap
	armed time.Time // when run looks next; zero: when it is roused
	rouse chan struct{}

	repetitions time.Time // when the last release that is to be repeated is over
}

// timing is a hold's place in the scheduler.
type timing struct {
	index int // 1 + the index in the heap; 0: not in it
	wake  time.Time
	slack time.Duration // how much earlier it may be looked at, to make a batch
}

// never is later than any wake-up.
var never = time.Unix(1<<40, 0)

func newScheduler() *scheduler { return &scheduler{rouse: make(chan struct{}, 1)} }

// set adds h, or moves it, to be looked at when wake has come.
func (s *scheduler) set(h *hold, wake time.Time, slack time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.wake, h.slack = wake, slack
	if h.index == 0 {
		heap.Push(&s.holds, h)
	} else {
		heap.Fix(&s.holds, h.index-1)
	}
	if s.armed.IsZero() || wake.Before(s.armed) {
		s.armed = wake
		select {
		case s.rouse <- struct{}{}:
		default:
		}
	}
}

// remove takes h out. The timer stays as it is: to look once in vain is cheaper
// than to rouse the goroutine with each Unlock.
func (s *scheduler) remove(h *hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	heap.Remove(&s.holds, h.index-1)
}

// repeatUntil records that a release is repeated until then.
func (s *scheduler) repeatUntil(end time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.repetitions = later(s.repetitions, end)
}

// lastRepetition returns when the last release that is to be repeated is over. A repetition that is
// under way counts, although its hold is not in the heap.
func (s *scheduler) lastRepetition() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.repetitions
}

// snapshot returns all holds that are in it.
func (s *scheduler) snapshot() []*hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*hold(nil), s.holds...)
}

// due returns those whose time has come, and when to look again. They stay in
// the heap; whoever looks at them sets them anew. A time that was armed for a hold which
// has left meanwhile stays armed, or the next hold would rouse the goroutine, and so each Lock.
func (s *scheduler) due(now time.Time) (due []*hold, next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.holds) > 0 && !s.holds[0].wake.After(now.Add(s.slack(len(due)))) {
		h := s.holds[0]
		due = append(due, h)
		h.wake = never
		heap.Fix(&s.holds, 0)
	}
	switch {
	case len(s.holds) > 0:
		s.armed = s.holds[0].wake
	case !s.armed.After(now):
		s.armed = time.Time{}
	}
	return due, s.armed
}

// slack is how much before its time the first hold may be taken along when
// others are due.
func (s *scheduler) slack(others int) time.Duration {
	if others == 0 {
		return 0
	}
	return s.holds[0].slack
}

// run is the scheduler's goroutine.
func (s *scheduler) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.rouse:
		case <-timer.C:
		}
		due, next := s.due(time.Now())
		s.act(ctx, due)
		if !next.IsZero() {
			timer.Reset(time.Until(next))
		}
	}
}

// act looks at each hold that is due and sends the renewals together.
func (s *scheduler) act(ctx context.Context, due []*hold) {
	if len(due) == 0 {
		return
	}
	byTTL := make(map[time.Duration][]*hold)
	for _, h := range due {
		if h.tick(time.Now()) {
			ttl := h.mutex.settings.ttl
			byTTL[ttl] = append(byTTL[ttl], h)
		}
	}
	for _, holds := range byTTL {
		c := holds[0].mutex.client
		c.lifecycle.behind.Go(func() { c.renewAll(ctx, holds) })
	}
}

// holdHeap orders holds by their wake-up.
type holdHeap []*hold

func (hs holdHeap) Len() int           { return len(hs) }
func (hs holdHeap) Less(i, j int) bool { return hs[i].wake.Before(hs[j].wake) }

func (hs holdHeap) Swap(i, j int) {
	hs[i], hs[j] = hs[j], hs[i]
	hs[i].index, hs[j].index = i+1, j+1
}

func (hs *holdHeap) Push(x any) {
	h := x.(*hold)
	*hs = append(*hs, h)
	h.index = len(*hs)
}

func (hs *holdHeap) Pop() any {
	last := len(*hs) - 1
	h := (*hs)[last]
	(*hs)[last] = nil
	*hs = (*hs)[:last]
	h.index = 0
	return h
}

// schedule tells the scheduler when h is to be looked at. The mutex is held.
func (h *hold) schedule() {
	wake, slack := h.due, time.Duration(0)
	switch h.phase {
	case live, kept:
		wake = h.deadline()
		if h.renews && !h.renewing && h.due.Before(wake) {
			wake, slack = h.due, h.mutex.settings.ttl/30
		}
		if end := h.start.Add(h.mutex.settings.minHold); h.phase == kept && end.Before(wake) {
			wake, slack = end, 0
		}
	case acquiring, releasing, finished:
		return
	}
	h.scheduled = true
	h.mutex.client.scheduler.set(h, wake, slack)
}

// unschedule tells the scheduler that h needs it no more. The mutex is held.
func (h *hold) unschedule() {
	if h.scheduled {
		h.scheduled = false
		h.mutex.client.scheduler.remove(h)
	}
}

// planRenewal sets the next renewal: a third into the term, ± 10 % so that many
// locks do not keep step. The mutex is held.
func (h *hold) planRenewal() {
	third := max(h.life()/3, 0)
	h.due = h.term.Sent.Add(third - third/10 + rand.N(third/5+1))
}

// tick does what h's time has come for, and tells whether it is to be renewed.
func (h *hold) tick(now time.Time) (renew bool) {
	h.mu.Lock()
	lost := h.expire(now)
	free := false
	switch {
	case lost != nil:
	case h.phase == orphaned:
		free = !h.due.After(now)
	case h.phase == kept: // by the monotonic clock alone: not to be freed early
		free = now.Sub(h.start) >= h.mutex.settings.minHold
	}
	if lost == nil && !free && (h.phase == live || h.phase == kept) {
		early := now.Add(h.mutex.settings.ttl / 30)
		renew = h.renews && !h.renewing && !h.due.After(early)
		h.renewing = h.renewing || renew
		h.watchLeases()
	}
	if lost == nil && !free {
		h.schedule()
	}
	h.mu.Unlock()
	if lost != nil {
		h.afterLoss(lost)
	}
	if free {
		h.releaseBehind()
	}
	return renew
}

// renewers is how many renewals run at once where the driver takes them singly.
const renewers = 16

// renewBound is how long one renewal may take: short enough for another try.
func renewBound(ttl time.Duration) time.Duration { return min(ttl/3, maxRequest) }

// renewAll renews holds of one TTL.
func (c *Client) renewAll(ctx context.Context, holds []*hold) {
	bound := backend.NewBound(ctx, renewBound(holds[0].mutex.settings.ttl))
	defer bound.Cancel()
	if c.batch == nil {
		c.renewEach(bound, holds)
		return
	}
	grants := make([]*backend.Grant, len(holds))
	for i, h := range holds {
		grants[i] = h.grant
	}
	renewals := c.batch.RenewAll(bound, grants)
	for i, h := range holds {
		answer := backend.Renewal{Err: errNoAnswer}
		if i < len(renewals) {
			answer = renewals[i]
		}
		h.renewed(answer.Term, answer.Err)
	}
}

var errNoAnswer = errors.New("the driver gave no answer")

func (c *Client) renewEach(ctx context.Context, holds []*hold) {
	queue := make(chan *hold, len(holds))
	for _, h := range holds {
		queue <- h
	}
	close(queue)
	var workers sync.WaitGroup
	for range min(renewers, len(holds)) {
		workers.Go(func() {
			for h := range queue {
				h.renewed(c.driver.Renew(ctx, h.grant))
			}
		})
	}
	workers.Wait()
}

// renew is one renewal now, for the caller.
func (h *hold) renew(ctx context.Context) error {
	bound := backend.NewBound(ctx, h.mutex.requestBound())
	defer bound.Cancel()
	term, err := h.mutex.client.driver.Renew(bound, h.grant)
	h.renewed(term, err)
	return err
}

// renewed takes the answer to a renewal. After a hand-off it belongs to the
// hold that has the grant now.
func (h *hold) renewed(term backend.Term, err error) {
	h = h.lockHeir()
	h.renewing = false
	lost := h.expire(time.Now())
	told := lost == nil && (h.phase == live || h.phase == kept)
	switch {
	case h.phase == orphaned && !h.isReleased() && err == nil:
		// Once lost, always lost: what the server still keeps is given back.
		if due := time.Now().Add(h.mutex.settings.lockDelay); due.Before(h.due) {
			h.due = due
			h.schedule()
		}
	case !told:
	case err == nil:
		h.prove(term)
		lost = h.expire(time.Now())
	case errors.Is(err, ErrLost):
		h.gone = err
		h.finish(ErrLost)
		lost, told = err, false
	default:
		h.unrenewed++
		h.due = time.Now().Add(backoff(int(h.unrenewed), h.mutex.settings.ttl/10))
		h.schedule()
	}
	h.mu.Unlock()
	if lost != nil {
		h.afterLoss(lost)
	}
	if told {
		h.observeRenewed(err)
	}
}

// prove takes a newer term. The mutex is held.
func (h *hold) prove(term backend.Term) {
	h.unrenewed = 0
	if term.Sent.After(h.term.Sent) {
		h.term = term
		h.planRenewal()
	} else { // an old proof, told again: ask again, but not at once
		h.due = time.Now().Add(backoff(0, h.life()/10))
	}
	h.schedule()
}
