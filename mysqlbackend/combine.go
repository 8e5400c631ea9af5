package mysqlbackend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
)

const (
	// maxTogether limits the locks of one acquire-all.sql: its answer has seven bits for an index.
	maxTogether = 1 << 7
	// maxFreed limits the locks of one release-all.sql, whose answer has two bits for each.
	maxFreed = 31
	// The answer of acquire-all.sql to a refused attempt has busyFlag and these parts.
	hasFlag, indexShift, rosterBit = 1 << 61, 54, 1 << 53
)

// AcquireAll implements backend.Combiner. It sends one statement, and further ones if a row does
// not exist yet or is locked. It does not wait for a row that stays locked, because the statement
// would keep the other rows locked meanwhile: then the core acquires the locks one by one.
func (d *driver) AcquireAll(
	ctx context.Context, reqs []*backend.Request,
) (grants []*backend.Grant, failed int, err error) {
	ttl := reqs[0].TTL
	if len(reqs) > maxTogether ||
		slices.ContainsFunc(reqs, func(r *backend.Request) bool { return r.TTL != ttl }) {
		return nil, 0, fmt.Errorf("%w: these locks in one step", backend.ErrUnsupported)
	}
	for i, req := range reqs {
		if err := d.keys.check(req.Key); err != nil {
			return nil, i, err
		}
	}
	micros := ceilMicros(ttl)
	sent, answer, err := d.takeAll(ctx, reqs, micros)
	switch {
	case err != nil:
		return nil, 0, err
	case answer >= busyFlag:
		return d.refuseAll(ctx, reqs, answer)
	case answer >= backend.MaxFence:
		return nil, 0, fmt.Errorf("the fence is %d", answer) // the statement returns no such value
	}
	for _, req := range reqs {
		grants = append(grants, &backend.Grant{
			Request: *req, Term: termOf(sent, micros), Fence: uint64(answer),
		})
		d.sweepSometimes()
	}
	return grants, 0, nil
}

// errLockedRow is the answer to an attempt that would have to wait for a row. It was not
// executed.
var errLockedRow = fmt.Errorf("%w: a row stays locked", backend.ErrUnsupported)

// takeAll executes acquire-all.sql until no row is locked or missing. It returns the time before
// the last execution, and the answer. The pauses are 21 ms in all. An execution that finds a locked
// row has changed nothing, so the term counts from the last one.
func (d *driver) takeAll(
	ctx context.Context, reqs []*backend.Request, micros int64,
) (sent time.Time, answer int64, err error) {
	text, args := withNames(d.text.acquireAll, len(reqs)), acquireAllArgs(reqs, micros)
	for _, p := range renewPauses {
		if p > 0 {
			if err := pause(ctx, p); err != nil {
				return sent, 0, err
			}
		}
		sent = time.Now()
		out, err := exec(ctx, d.pools.main, text, args...)
		if err == nil && out.id == 0 {
			if err = d.makeRows(ctx, reqs); err == nil {
				sent = time.Now()
				out, err = exec(ctx, d.pools.main, text, args...)
			}
		}
		isLocked := hasNumber(err, errNoWait, errLockWait)
		if err == nil && out.id > 0 || err != nil && !isLocked {
			return sent, out.id, err
		}
	}
	return sent, 0, errLockedRow
}

// makeRows makes free rows for the names that have none, one after the other. One statement for
// all of them would keep the rows of some names locked while it waits for another one.
func (d *driver) makeRows(ctx context.Context, reqs []*backend.Request) error {
	for _, req := range reqs {
		_, err := exec(ctx, d.pools.main.of(req.Key), d.text.rosterRow, []byte(req.Key))
		switch {
		case hasNumber(err, errLockWait):
			return errLockedRow
		case err != nil:
			return err
		}
	}
	return nil
}

// refuseAll returns the refusal in the answer of acquire-all.sql. A lock that an earlier attempt of
// the same owners has acquired is released.
func (d *driver) refuseAll(
	ctx context.Context, reqs []*backend.Request, answer int64,
) (grants []*backend.Grant, failed int, err error) {
	failed = int(answer >> indexShift & (maxTogether - 1))
	if failed >= len(reqs) {
		return nil, 0, fmt.Errorf("the answer is %d", answer) // the statement returns no such value
	}
	if answer&rosterBit != 0 {
		return d.refuseByRoster(ctx, reqs, failed, answer&hasFlag != 0)
	}
	left := time.Duration(answer&(rosterBit-1)) * time.Microsecond
	return nil, failed, d.undoAll(ctx, reqs, answer&hasFlag != 0, d.busy(reqs[failed], left))
}

// refuseByRoster returns the refusal of the request with the index failed by the roster of its row.
// If the owner is the writer in the roster, because a reader waits for it since an earlier attempt,
// it keeps that grant, and the remaining locks are acquired in one step.
func (d *driver) refuseByRoster(
	ctx context.Context, reqs []*backend.Request, failed int, has bool,
) (_ []*backend.Grant, _ int, err error) {
	req := reqs[failed]
	row, err := d.readRoster(ctx, &edition{key: req.Key, q: d.pools.main.of(req.Key)})
	if err != nil {
		return nil, failed, d.undoAll(ctx, reqs, has, err)
	}
	r, err := row.entries()
	if err != nil {
		return nil, failed, d.undoAll(ctx, reqs, has, err)
	}
	holds := r.Find(req.Owner) != nil
	_, err = r.Acquire(req, uint64(row.draw()), row.now)
	if err == nil && (!holds || row.owner != rosterOwner) { // it has just changed
		err = fmt.Errorf("%w: the row changes", backend.ErrUnsupported)
	}
	if err != nil {
		return nil, failed, d.undoAll(ctx, reqs, has || holds, err)
	}
	kept, err := d.enter(ctx, req)
	if err != nil {
		return nil, failed, d.undoAll(ctx, reqs, true, err)
	}
	rest := slices.Delete(slices.Clone(reqs), failed, failed+1)
	if len(rest) == 0 {
		return []*backend.Grant{kept}, 0, nil
	}
	grants, i, err := d.AcquireAll(ctx, rest)
	if err != nil {
		if i >= failed {
			i++
		}
		return nil, i, d.undoAll(ctx, reqs, isAnswer(err), err)
	}
	return slices.Insert(grants, failed, kept), 0, nil
}

// isAnswer reports whether the core does not release the requests of an attempt with this error.
func isAnswer(err error) bool {
	return errors.Is(err, backend.ErrNotAcquired) || isDefinite(err)
}

// undoAll returns reason, after it has released what an earlier attempt of the same owners has
// acquired, if there is any. If that fails, it returns an error of unknown outcome.
func (d *driver) undoAll(
	ctx context.Context, reqs []*backend.Request, has bool, reason error,
) error {
	if !has {
		return reason
	}
	grants := make([]*backend.Grant, len(reqs))
	for i, req := range reqs {
		grants[i] = &backend.Grant{Request: *req}
	}
	for _, err := range d.ReleaseAll(ctx, grants) {
		if err != nil && !errors.Is(err, backend.ErrNotHeld) {
			return fmt.Errorf("%v, and the other locks were not released: %v",
				reason, err) //nolint:errorlint // neither is an answer to the attempt
		}
	}
	return reason
}

// ReleaseAll implements backend.Combiner. A statement releases up to maxFreed locks. What it does
// not find is released alone: a lock whose row is locked now, a grant in a roster, and a holder
// that still has the signal of its key. So are grants that are gone. It blocks until each of them
// has an answer.
func (d *driver) ReleaseAll(ctx context.Context, gs []*backend.Grant) []error {
	r := newReleases(gs)
	var plain []int
	for i, g := range gs {
		if isPlain(g) && !d.acquisitions.has(g.Owner) {
			plain = append(plain, i)
		} else {
			r.alone(i, func() error { return d.Release(ctx, g) })
		}
	}
	var batches sync.WaitGroup
	for batch := range slices.Chunk(plain, maxFreed) {
		batches.Go(func() { d.releaseBatch(ctx, r, batch) })
	}
	batches.Wait()
	r.singles.Wait()
	return r.errs
}

// releaseBatch releases the grants at indices.
func (d *driver) releaseBatch(ctx context.Context, r *releases, indices []int) {
	text := withNames(d.text.releaseAll, len(indices))
	out, err := exec(ctx, d.pools.control, text, d.releaseAllArgs(r.grants, indices)...)
	for n, i := range indices {
		switch {
		case err != nil:
			r.errs[i] = err
		case out.id>>(2*n)&1 == 0:
			r.alone(i, func() error { return d.free(ctx, r.grants[i]) })
		case out.id>>(2*n+1)&1 == 1:
			d.wakeFirstLater(r.grants[i].Key)
		}
	}
}

// releases is one call of ReleaseAll.
type releases struct {
	grants  []*backend.Grant
	errs    []error // of the grants, in their order
	singles sync.WaitGroup
	waiting chan struct{} // has a value for each release that may wait for a locked row
	gaveUp  atomic.Bool   // the server has given up one of these waits
}

func newReleases(gs []*backend.Grant) *releases {
	return &releases{
		grants: gs, errs: make([]error, len(gs)), waiting: make(chan struct{}, maxRowWaiters),
	}
}

// errNotBegun is the answer to a release that was not sent.
var errNotBegun = fmt.Errorf("%w: the rows of other locks stay locked", backend.ErrUnavailable)

// alone calls release, which releases the grant at index i, in the background. It does not call it
// after the server has given up the wait for another row: ReleaseAll ends with its slowest answer.
// The core then releases the lock by a request of its own.
func (r *releases) alone(i int, release func() error) {
	r.singles.Go(func() {
		r.waiting <- struct{}{}
		defer func() { <-r.waiting }()
		if r.gaveUp.Load() {
			r.errs[i] = errNotBegun
			return
		}
		r.errs[i] = release()
		if hasNumber(r.errs[i], errLockWait) {
			r.gaveUp.Store(true)
		}
	})
}

// wakeFirstLater wakes the first waiter for key in the background.
func (d *driver) wakeFirstLater(key string) {
	if d.queue.polls {
		return
	}
	d.background.Go(func() {
		ctx, cancel := d.boundWake()
		defer cancel()
		d.wakeOwner(ctx, d.keys.signal(key))
	})
}
