package membackend

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// AcquireAll implements backend.Combiner. It checks all requests before it executes the first one,
// so a refused call leaves nothing to undo. The mutex is locked for both loops and the keys differ,
// so the second loop grants what the first one has checked.
func (d *driver) AcquireAll(
	ctx context.Context, reqs []*backend.Request,
) (grants []*backend.Grant, failed int, err error) {
	if err := d.checkOpen(); err != nil {
		return nil, 0, err
	}
	now := backend.Began(ctx)
	d.space.mu.Lock()
	defer d.space.mu.Unlock()
	for i, req := range reqs {
		if err := d.space.refusal(req, now); err != nil {
			return nil, i, err
		}
	}
	for i, req := range reqs {
		g, err := d.space.acquire(req, now)
		if err != nil {
			return nil, i, err
		}
		grants = append(grants, g)
	}
	return grants, 0, nil
}

// ReleaseAll implements backend.Combiner. The contract requires no single step: each release has an
// answer of its own, and there is no round trip to save.
func (d *driver) ReleaseAll(ctx context.Context, gs []*backend.Grant) []error {
	errs := make([]error, len(gs))
	for i, g := range gs {
		errs[i] = d.Release(ctx, g)
	}
	return errs
}

// refusal returns the error of acquire for an exclusive request without a queue entry, or nil if
// acquire would grant it. A lock that is not free has a holder, which excludes an exclusive request
// unless it is a repetition by that holder. s.mu must be held.
func (s *space) refusal(req *backend.Request, now time.Time) error {
	if s.isBroken(req) {
		return errBroken
	}
	l := s.current(req.Key, now)
	if l == nil {
		return nil
	}
	if err := l.conflict(req); err != nil {
		return err
	}
	if find(l.holders, req.Owner) == nil {
		return l.busy(nil, req.Mode, now)
	}
	return nil
}
