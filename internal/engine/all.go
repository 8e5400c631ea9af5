package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// maxAllPause limits the pause between two rounds of AcquireAll.
const maxAllPause = 100 * time.Millisecond

// round is the state of an AcquireAll: the locks in the order in which it acquires them.
type round struct {
	locks  []*Lock // as the caller has them
	trials []*Lock // the same for leases that may not last
	refs   []*Ref
	order  []int // indices
}

// AcquireAll acquires all locks, or none, and puts their leases into refs. It blocks until then, or
// until ctx ends. If it fails, it returns the index of the lock that the error is about.
//
// It waits for a lock only while it holds no other one, so that no two calls wait for each other:
// it waits for one lock and then makes one attempt for each of the others, in the order of their
// keys. If one of them is taken, it frees what it has, and waits for that one next. What it has
// meanwhile is never handed off or kept for a minimum hold, and causes no events.
func (e *Engine) AcquireAll(ctx context.Context, locks []*Lock, refs []*Ref) (failed int, _ error) {
	returned := false
	defer func() {
		if !returned { // the driver or a context panicked, or ended the goroutine
			e.startUnlocks(context.WithoutCancel(ctx), takeLeases(refs))
		}
	}()
	failed, err := e.acquireAll(ctx, locks, refs)
	returned = true
	return failed, err
}

func (e *Engine) acquireAll(ctx context.Context, locks []*Lock, refs []*Ref) (failed int, _ error) {
	r := &round{locks: locks, refs: refs}
	for i, l := range locks {
		r.order, r.trials = append(r.order, i), append(r.trials, l.trial())
	}
	for rounds, first := 0, -1; ; rounds++ {
		r.sort(first)
		missing, err := e.acquireRound(ctx, r)
		if err == nil {
			return -1, nil
		}
		e.freeAll(ctx, refs)
		if !r.continues(ctx, missing, err) {
			return missing, err
		}
		if first = missing; rounds > 0 { // two calls may free in turns what the other one needs
			e.Pause(ctx, rounds-1, maxAllPause)
		}
	}
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

// isTaken reports whether err of an attempt means that another round may succeed.
func isTaken(err error) bool {
	return errors.Is(err, backend.ErrNotAcquired) &&
		!errors.Is(err, errReentrant) && !errors.Is(err, errUpgrade)
}

// continues reports whether another round may succeed after an error about the lock with the index
// missing. An attempt without an answer does not end an AcquireAll, because it does not end an
// Acquire: the next round waits for that lock, by the rules of Acquire.
func (r *round) continues(ctx context.Context, missing int, err error) bool {
	unanswered := errors.Is(err, backend.ErrUncertain) || errors.Is(err, backend.ErrUnavailable)
	return isTaken(err) || unanswered && missing != r.order[0] && ended(ctx) == nil
}

// acquireRound waits for the first lock of r, and makes one attempt for each of the others. It
// returns the index of the lock that it did not acquire.
func (e *Engine) acquireRound(ctx context.Context, r *round) (missing int, _ error) {
	for n, i := range r.order {
		if err := e.Acquire(ctx, r.trials[i], n == 0, r.refs[i]); err != nil {
			return i, err
		}
	}
	return e.confirm(r)
}

// confirm makes the leases of r last, unless one of them has ended meanwhile.
func (e *Engine) confirm(r *round) (missing int, _ error) {
	e.mu.Lock()
	defer e.unlock()
	for i, ref := range r.refs {
		if ref.lease.check() != nil {
			return i, errTakenBack
		}
	}
	now := e.now()
	for i, ref := range r.refs {
		if t := ref.lease.tenure; t.lock.isTrial { // else it belongs to another lease of ctx
			t.lock, t.start = r.locks[i], now
			t.acq.schedule()
		}
	}
	return -1, nil
}

// freeAll frees what a round has acquired. If ctx has ended, it does so in the background.
func (e *Engine) freeAll(ctx context.Context, refs []*Ref) {
	leases := takeLeases(refs)
	if len(leases) == 0 {
		return
	}
	if ended(ctx) == nil {
		e.UnlockAll(ctx, leases)
	} else {
		e.startUnlocks(context.WithoutCancel(ctx), leases)
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
	var errs []error
	for _, result := range e.startUnlocks(ctx, leases) {
		errs = append(errs, <-result)
	}
	return errs
}

// startUnlocks unlocks each lease on its own goroutine, and returns a channel for each result. A
// driver that panics there costs its own request.
func (e *Engine) startUnlocks(ctx context.Context, leases []*Lease) (results []chan error) {
	done := ctx.Done() // code of a user, which may not return
	e.mu.Lock()
	defer e.unlock()
	for _, l := range leases {
		result := make(chan error, 1)
		results = append(results, result)
		e.start(func() {
			err := errReleaseAborted
			defer func() {
				if value := recover(); value != nil {
					err = Uncertain(e.recovered(value))
				}
				result <- err
			}()
			err = l.unlock(ctx, done)
		})
	}
	return results
}

// Sleep blocks for d, until wake has an element, until ctx ends, or until Close begins.
func (e *Engine) Sleep(ctx context.Context, wake <-chan struct{}, d time.Duration) {
	select {
	case <-wake:
	case <-time.After(d):
	case <-ctx.Done():
	case <-e.closing.Done():
	}
}

// Pause blocks for a jittered backoff after n failures in a row, counted from 0. It returns earlier
// if ctx ends or Close begins.
func (e *Engine) Pause(ctx context.Context, n int, longest time.Duration) {
	ctx, stop := e.WhileOpen(ctx)
	defer stop()
	sleep(ctx, jittered(backoff(n, longest)))
}
