package broken

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/dlock-go/dlock/backend"
)

// combineBugs are the bugs of backend.Combiner.
var combineBugs = []Bug{
	{
		"takes-a-part", "A refused AcquireAll keeps the locks before the taken one.",
		func() *flaw {
			return &flaw{acquireAll: func(
				ctx context.Context, next *driver, reqs []*backend.Request,
			) (grants []*backend.Grant, failed int, err error) {
				for i, req := range reqs {
					g, err := next.Acquire(ctx, req)
					if err != nil {
						return nil, i, err
					}
					grants = append(grants, g)
				}
				return grants, 0, nil
			}}
		},
	},
	{
		"blames-the-first", "An error of AcquireAll is always about the first request.",
		func() *flaw {
			return &flaw{acquireAll: func(
				ctx context.Context, next *driver, reqs []*backend.Request,
			) (grants []*backend.Grant, failed int, err error) {
				grants, _, err = next.AcquireAll(ctx, reqs)
				return grants, 0, err
			}}
		},
	},
	{"all-only-once", "A repeated AcquireAll by the holder returns *Busy.", func() *flaw {
		return &flaw{acquireAll: func(
			ctx context.Context, next *driver, reqs []*backend.Request,
		) (grants []*backend.Grant, failed int, err error) {
			for i, req := range reqs {
				if next.holder(ctx, req.Key) == req.Owner {
					return nil, i, &backend.Busy{Holder: req.Owner}
				}
			}
			return next.AcquireAll(ctx, reqs)
		}}
	}},
	{"all-no-prolonging", "A repeated AcquireAll returns new terms, but does not prolong the " +
		"terms on the server.", func() *flaw {
		var held table[*backend.Grant] // by owner
		return &flaw{acquireAll: func(
			ctx context.Context, next *driver, reqs []*backend.Request,
		) (grants []*backend.Grant, failed int, err error) {
			for _, req := range reqs {
				g, ok := held.get(req.Owner)
				if !ok || next.holder(ctx, req.Key) != req.Owner {
					break
				}
				grants = append(grants, inNewTerm(g))
			}
			if len(grants) == len(reqs) {
				return grants, 0, nil
			}
			grants, failed, err = next.AcquireAll(ctx, reqs)
			for _, g := range grants {
				held.set(g.Owner, g)
			}
			return grants, failed, err
		}}
	}},
	{"half-is-unanswered", "An AcquireAll without an answer takes the first half.", func() *flaw {
		var calls atomic.Int32
		return &flaw{acquireAll: func(
			ctx context.Context, next *driver, reqs []*backend.Request,
		) (grants []*backend.Grant, failed int, err error) {
			if calls.Add(1) != 2 {
				return next.AcquireAll(ctx, reqs)
			}
			for _, req := range reqs[:len(reqs)/2] {
				_, _ = next.Acquire(ctx, req)
			}
			return nil, 0, backend.ErrUncertain
		}}
	}},
	{"all-with-one-fence", "All grants of all AcquireAlls have the same fence.", func() *flaw {
		return &flaw{acquireAll: func(
			ctx context.Context, next *driver, reqs []*backend.Request,
		) (grants []*backend.Grant, failed int, err error) {
			grants, failed, err = next.AcquireAll(ctx, reqs)
			for i, g := range grants {
				same := *g
				same.Fence, grants[i] = 7, &same
			}
			return grants, failed, err
		}}
	}},
	{"ignores-other-kinds", "AcquireAll replaces readers and permits by writers.", func() *flaw {
		return &flaw{acquireAll: func(
			ctx context.Context, next *driver, reqs []*backend.Request,
		) (grants []*backend.Grant, failed int, err error) {
			for _, req := range reqs {
				info, err := next.Inspect(ctx, req.Key)
				if err == nil && info.Mode != backend.Exclusive {
					_ = next.Break(ctx, req.Key, "")
				}
			}
			return next.AcquireAll(ctx, reqs)
		}}
	}},
	{"all-break-holders", "AcquireAll breaks the lock that is taken.", func() *flaw {
		return &flaw{acquireAll: func(
			ctx context.Context, next *driver, reqs []*backend.Request,
		) (grants []*backend.Grant, failed int, err error) {
			for range 3 { // the holder and two waiters
				grants, failed, err = next.AcquireAll(ctx, reqs)
				if !errors.Is(err, backend.ErrNotAcquired) {
					break
				}
				_ = next.Break(ctx, reqs[failed].Key, "")
			}
			return grants, failed, err
		}}
	}},
	{"release-all-stops", "ReleaseAll stops at the first grant that is gone.", func() *flaw {
		return &flaw{releaseAll: func(
			ctx context.Context, next *driver, gs []*backend.Grant,
		) []error {
			errs := make([]error, len(gs))
			for i, g := range gs {
				if errs[i] = next.Release(ctx, g); errors.Is(errs[i], backend.ErrNotHeld) {
					break
				}
			}
			return errs
		}}
	}},
	{"release-all-does-nothing", "ReleaseAll returns nil and removes nothing.", func() *flaw {
		return &flaw{releaseAll: func(
			_ context.Context, _ *driver, gs []*backend.Grant,
		) []error {
			return make([]error, len(gs))
		}}
	}},
}
