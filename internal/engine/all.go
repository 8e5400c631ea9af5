package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock/backend"
)

const (
	// maxAllPause limits the pause between two rounds of AcquireAll.
	maxAllPause = 100 * time.Millisecond
	// patience is how many rounds in a row fail at one lock before AcquireAll waits for that lock.
	patience = 3
)

// round is the state of an AcquireAll: the locks in the order in which it acquires them.
type round struct {
	locks    []*Lock // as the caller has them
	trials   []*Lock // the same for leases that may not last
	refs     []*Ref
	order    []int // indices
	together bool  // the driver may be able to acquire several locks in one step
	waits    bool  // the round waits for the first lock of order; otherwise it waits for none
	missing  int   // the lock at which the last round failed; -1: it does not matter
	failures int   // how many rounds failed there in a row
}

// AcquireAll acquires all locks, or none, and puts their leases into refs. It blocks until then, or
// until ctx ends. If it fails, it returns the index of the lock that the error is about.
//
// It waits for a lock only while it holds no other one, so that no two calls wait for each other.
// It then makes one attempt for the rest, and frees what it has if one of them is taken. What it
// has meanwhile is never handed off or kept for a minimum hold, and causes no events. If the driver
// is a backend.Combiner, the attempt is one request, and so is freeing.
//
// Calls must not keep failing because of each other. If each of them waited for the lock that it
// missed last, the queues of two locks could stay non-empty for ever: the first waiter of each lock
// would then always find the other lock taken. So a call waits for its lowest lock. A lock that is
// not the lowest lock of any call then has no queue of calls. Of all calls that hold locks, the one
// with the highest of these gets the rest.
//
// A call waits for another lock in three cases: its first request has found that lock taken, an
// attempt for it had no answer, or patience rounds in a row have failed there, because the lock is
// held for long. If the next round fails, the call returns to its lowest lock. So a queue of such
// calls loses calls faster than it gains them.
func (e *Engine) AcquireAll(ctx context.Context, locks []*Lock, refs []*Ref) (failed int, _ error) {
	returned := false
	defer func() {
		if !returned { // the driver or a context panicked, or ended the goroutine
			e.startUnlocks(context.WithoutCancel(ctx), takeLeases(refs), false)
		}
	}()
	failed, err := e.acquireAll(ctx, locks, refs)
	returned = true
	return failed, err
}

// acquireAll makes rounds until one of them acquires all locks, or until an error that another
// round would not help against.
func (e *Engine) acquireAll(ctx context.Context, locks []*Lock, refs []*Ref) (failed int, _ error) {
	r := &round{locks: locks, refs: refs, missing: -1}
	for i, l := range locks {
		r.order, r.trials = append(r.order, i), append(r.trials, l.trial())
	}
	r.sort(-1)
	if failed, err := e.checkHeld(ctx, r); err != nil {
		return failed, err
	}
	r.together = e.combiner != nil && len(locks) > 1
	r.waits = !r.together // a request for all of them shows which one is taken
	for rounds := 0; ; rounds++ {
		missing, err := e.acquireRound(ctx, r)
		if err == nil {
			return -1, nil
		}
		e.freeAll(ctx, refs)
		if !r.continues(ctx, missing, err) {
			return missing, err
		}
		if r.plan(missing, isTaken(err)) { // its locks are available to other calls meanwhile
			e.pauseFor(ctx, rand.N(min(time.Millisecond<<min(rounds, 10), maxAllPause)))
		}
	}
}

// checkHeld returns the error of a lock that ctx holds already, if no other lease can share it. To
// wait for another lock first would be in vain, and could be for ever.
func (e *Engine) checkHeld(ctx context.Context, r *round) (failed int, _ error) {
	if err := e.Enter(ctx); err != nil {
		return r.order[0], err
	}
	defer e.Leave()
	held, _ := ctx.Value(heldKey{e}).(*chain)
	e.mu.Lock()
	defer e.unlock()
	for ; held != nil; held = held.parent {
		t := held.lease.tenure
		for _, i := range r.order {
			if t.lock.Key != r.locks[i].Key {
				continue
			}
			if _, err := t.admits(r.locks[i]); err != nil && !isTaken(err) {
				return i, err
			}
		}
	}
	return -1, nil
}

// plan chooses the lock that the next round waits for, after a round that failed at the lock
// missing. It reports whether the next round may fail for the same reason, so that a pause helps.
// taken is false if the request for missing had no answer.
func (r *round) plan(missing int, taken bool) (pause bool) {
	waited, first := r.waits, r.order[0]
	r.waits = true
	switch {
	case !taken || !waited || missing == first:
		r.waitFor(missing)
		return waited && taken
	case missing != r.missing:
		r.missing, r.failures = missing, 0
	}
	if r.failures++; r.failures < patience {
		r.sort(-1)
		return true
	}
	r.waitFor(missing)
	return false
}

// waitFor lets the next round wait for the lock with this index.
func (r *round) waitFor(i int) {
	r.missing, r.failures = -1, 0
	r.sort(i)
}

// trial returns l for a lease that may not last.
func (l *Lock) trial() *Lock {
	s := *l.Settings
	s.MinHold, s.MaxHold, s.Handoff, s.isTrial = 0, 0, 0, true
	return &Lock{Name: l.Name, Key: l.Key, Settings: &s}
}

// sort orders the locks by their keys, but puts the lock with the index first in front. -1 is none.
func (r *round) sort(first int) {
	slices.SortFunc(r.order, func(i, j int) int {
		switch first {
		case i:
			return -1
		case j:
			return 1
		}
		return strings.Compare(r.locks[i].Key, r.locks[j].Key)
	})
}

// isTaken reports whether err of an attempt means that another round may succeed: the lock is
// taken, or it was granted and lost again.
func isTaken(err error) bool {
	return (errors.Is(err, backend.ErrNotAcquired) || isLost(err)) &&
		!errors.Is(err, errReentrant) && !errors.Is(err, errUpgrade)
}

// continues reports whether another round may succeed after an error about the lock with the index
// missing. An attempt without an answer does not end an AcquireAll, because it does not end an
// Acquire: the next round waits for that lock, by the rules of Acquire.
func (r *round) continues(ctx context.Context, missing int, err error) bool {
	unanswered := errors.Is(err, backend.ErrUncertain) || errors.Is(err, backend.ErrUnavailable)
	hasWaited := r.waits && missing == r.order[0]
	return isTaken(err) || unanswered && !hasWaited && ended(ctx) == nil
}

// acquireRound waits for the first lock of r if r.waits, and makes one attempt for the rest. It
// returns the index of the lock that it did not acquire.
func (e *Engine) acquireRound(ctx context.Context, r *round) (missing int, err error) {
	others := r.order
	if r.waits {
		first := others[0]
		if err := e.Acquire(ctx, r.trials[first], true, r.refs[first]); err != nil {
			return first, err
		}
		others = others[1:]
	}
	if missing, err = e.tryAll(ctx, r, others); err != nil {
		return missing, err
	}
	return e.confirm(r)
}

// tryAll makes one attempt for the locks with the given indices: in one step if the driver can do
// that, and otherwise for each of them in their order. It returns the index of the lock that it did
// not acquire.
func (e *Engine) tryAll(ctx context.Context, r *round, indices []int) (missing int, err error) {
	if r.together && len(indices) > 1 {
		missing, err = e.acquireTogether(ctx, r, indices)
		// An error without an answer is about no single lock. The next round sends a request for
		// each lock, and so finds the lock that is refused.
		r.together = err == nil || isTaken(err)
		if !errors.Is(err, backend.ErrUnsupported) {
			return missing, err
		}
	}
	for _, i := range indices {
		if r.refs[i].lease != nil { // of ctx: acquireTogether has found it
			continue
		}
		if err := e.Acquire(ctx, r.trials[i], false, r.refs[i]); err != nil {
			return i, err
		}
	}
	return -1, nil
}

// confirm makes the leases of r last, unless one of them has ended meanwhile. It does so in one
// step under e.mu: either all leases last, or freeAll frees them.
func (e *Engine) confirm(r *round) (missing int, _ error) {
	e.mu.Lock()
	defer e.unlock()
	for i, ref := range r.refs {
		if ref.lease.check() != nil {
			return i, errTakenBack
		}
		if t := ref.lease.tenure; !t.lock.isTrial { // it belongs to another lease of ctx
			if err := t.covers(r.locks[i]); err != nil {
				return i, err
			}
		}
	}
	now := e.now()
	for i, ref := range r.refs {
		ref.lease.trial = false
		if t := ref.lease.tenure; t.lock.isTrial { // else it belongs to another lease of ctx
			t.lock, t.start = r.locks[i], now
			t.acq.schedule()
		}
	}
	return -1, nil
}

// freeAll frees what a round has acquired. If ctx has ended, it does so in the background. The
// unlocks begin before any code of ctx runs, which may panic.
func (e *Engine) freeAll(ctx context.Context, refs []*Ref) {
	leases := takeLeases(refs)
	if len(leases) == 0 {
		return
	}
	all := e.startUnlocks(ctx, leases, false)
	if ended(ctx) != nil {
		return
	}
	done := ctx.Done()
	for _, u := range all {
		_ = u.await(ctx, done, leases)
	}
}

// takeLeases removes the leases from refs and returns them.
func takeLeases(refs []*Ref) (leases []*Lease) {
	for _, ref := range refs {
		if l := ref.lease; l != nil {
			leases = append(leases, l)
		}
		ref.lease = nil
	}
	return leases
}

// UnlockAll unlocks leases at the same time, and returns the errors in their order. Like Unlock it
// makes one attempt for each, and waits for the answers until ctx ends.
func (e *Engine) UnlockAll(ctx context.Context, leases []*Lease) []error {
	done := ctx.Done() // code of a user, which may not return
	once := isClosed(done)
	all := e.startUnlocks(ctx, leases, once)
	if once {
		done = nil
	}
	var errs []error
	for _, u := range all {
		errs = append(errs, u.await(ctx, done, leases))
	}
	return errs
}

// unlocking is the Unlock of a lease that was begun together with other leases.
type unlocking struct {
	*Lease
	once     bool       // it makes one request
	releases bool       // a release is under way
	result   chan error // of one element
}

// await returns the result of u, one of leases. It waits for the result until done, the channel of
// ctx, is closed; see awaitRelease.
func (u *unlocking) await(ctx context.Context, done <-chan struct{}, leases []*Lease) error {
	err := u.tenure.acq.engine.awaitRelease(ctx, done, u.result, leases)
	if u.releases {
		u.endUnlock(err)
	}
	return err
}

// startUnlocks begins to unlock each lease. It sends one request if the driver is a Combiner, and
// otherwise one on a goroutine for each. A driver that panics there costs its own request. With
// once, a release without an answer is repeated only in the background.
func (e *Engine) startUnlocks(
	ctx context.Context, leases []*Lease, once bool,
) (all []*unlocking) {
	ctx, now := context.WithoutCancel(ctx), e.now()
	e.mu.Lock()
	defer e.unlock()
	var releases []*unlocking
	for _, l := range leases {
		next, err := l.beginUnlock(now)
		u := &unlocking{l, once, next == releaseNow, make(chan error, 1)}
		all = append(all, u)
		if u.releases {
			releases = append(releases, u)
		} else {
			u.result <- err
		}
	}
	if e.combiner != nil && len(releases) > 1 {
		e.start(func() { e.releaseTogether(ctx, now, releases) })
		return all
	}
	for _, u := range releases {
		e.start(func() { u.release(ctx, now, nil) })
	}
	return all
}

// release releases the acquisition of u as releaseUntil does, and sends the result.
func (u *unlocking) release(ctx context.Context, now time.Time, failure error) {
	a := u.tenure.acq
	err := errReleaseAborted
	defer func() {
		if value := recover(); value != nil {
			err = Uncertain(a.engine.recovered(value))
		}
		u.result <- err
	}()
	err = a.releaseUntil(ctx, now, u.once, failure)
}
