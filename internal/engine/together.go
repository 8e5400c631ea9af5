package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/bound"
)

// This file has the requests of a backend.Combiner, which are about several acquisitions. Each of
// them has its own owner, place in a line, grant and state, as if its request had been sent alone:
// nothing outside of this file distinguishes it from another one.

// acquireTogether makes one attempt for the locks of r with the given indices, in one request. It
// returns the index of the lock that the error is about. ErrUnsupported means that the driver
// cannot acquire these locks in one step.
func (e *Engine) acquireTogether(
	ctx context.Context, r *round, indices []int,
) (missing int, _ error) {
	if err := e.Enter(ctx); err != nil {
		return indices[0], err
	}
	defer e.Leave()
	var members []*acquisition
	var of []int                            // the indices of members
	defer func() { e.giveUpAll(members) }() // also if the driver or a context panics
	for _, i := range indices {
		a, err := e.startTrial(ctx, r.trials[i], r.refs[i])
		if err != nil {
			return i, err
		}
		if a != nil {
			members, of = append(members, a), append(of, i)
		}
	}
	if len(members) == 0 {
		return -1, nil
	}
	failed, err := e.requestAll(ctx, members)
	if err != nil {
		return of[failed], e.RequestError(ctx, err)
	}
	for n, a := range members {
		if err := a.accept(r.trials[of[n]], a.grant, false, r.refs[of[n]]); err != nil {
			return of[n], asTaken(err)
		}
	}
	return -1, nil
}

// startTrial makes an acquisition that does not wait. It returns nil if ctx carries a lease on l
// already, which is then in ref.
func (e *Engine) startTrial(ctx context.Context, l *Lock, ref *Ref) (*acquisition, error) {
	if holds, err := e.reenter(ctx, l, ref); holds {
		return nil, err
	}
	e.mu.Lock()
	p, err := e.join(l, false)
	e.unlock()
	if err != nil {
		return nil, err
	}
	return e.newAcquisition(l, p.line, false, silence{}), nil
}

// requestAll is one request for all members. It returns the index of the member that the error is
// about. Until the driver has returned, the outcome is unknown. So if it panics, giveUpAll releases
// every member, and the releases are repeated.
func (e *Engine) requestAll(ctx context.Context, members []*acquisition) (failed int, _ error) {
	first := members[0] // all have equal settings
	bound := first.newBound().Begin(ctx, time.Now(), first.lock.requestLimit()).EndWith(e.closing)
	defer bound.Cancel()
	reqs := make([]*backend.Request, len(members))
	for i, a := range members {
		reqs[i], a.attempted = &a.request, true
	}
	grants, failed, err := e.combiner.AcquireAll(bound, reqs)
	err = sound(err)
	if err == nil && (len(grants) != len(reqs) || slices.Contains(grants, nil)) {
		err = ErrNothing
	}
	isUncertain := isUnknown(err)
	e.mu.Lock()
	defer e.unlock()
	for i, a := range members {
		if a.attempted = isUncertain; err == nil {
			a.grant = grants[i]
		}
	}
	if failed < 0 || failed >= len(members) {
		failed = 0
	}
	return failed, err
}

// giveUpAll gives up the members that have no lease.
func (e *Engine) giveUpAll(members []*acquisition) {
	e.mu.Lock()
	defer e.unlock()
	for _, a := range members {
		if a.state == requesting {
			a.giveUp(false)
		}
	}
}

// asTaken returns the error of an attempt whose grant was unusable.
func asTaken(err error) error {
	if errors.Is(err, errBroken) {
		return errTakenBack
	}
	return err
}

// releaseTogether releases the acquisitions of unlocks in one request. A release without an answer
// goes on alone, also if the driver does not return.
func (e *Engine) releaseTogether(ctx context.Context, now time.Time, unlocks []*unlocking) {
	limit := unlocks[0].tenure.acq.lock.requestLimit()
	bound := bound.From(ctx, now, limit).EndWith(e.working)
	defer bound.Cancel()
	result := make(chan []error, 1)
	e.mu.Lock()
	e.start(func() { e.requestReleases(bound, unlocks, result) })
	e.unlock()
	missing := slices.Repeat([]error{errAborted}, len(unlocks))
	for i, answer := range awaitDriver(bound, limit, result, missing) {
		unlocks[i].released(ctx, now, answer)
	}
}

// requestReleases calls the driver for releaseTogether, which may have given up when the driver
// returns. If it panics, or ends the goroutine, each release gets that as its answer.
func (e *Engine) requestReleases(
	ctx context.Context, unlocks []*unlocking, result chan<- []error,
) {
	grants := make([]*backend.Grant, len(unlocks))
	for i, u := range unlocks {
		grants[i] = u.tenure.acq.toRelease()
	}
	var answers []error
	defer func() {
		if failure := e.recovered(recover()); len(answers) != len(unlocks) {
			answers = slices.Repeat([]error{failure}, len(unlocks))
		}
		result <- answers
	}()
	answers = e.combiner.ReleaseAll(ctx, grants)
}

// released handles the answer to a release that was sent for several acquisitions.
func (u *unlocking) released(ctx context.Context, now time.Time, answer error) {
	a := u.tenure.acq
	answered, err := a.released(answer)
	if answered {
		u.result <- err
		return
	}
	a.engine.mu.Lock()
	defer a.engine.unlock()
	a.engine.start(func() { u.release(ctx, now, err) })
}
