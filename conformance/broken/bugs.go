package broken

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/measure"
)

// Bug is one error in the behavior of a driver.
type Bug struct {
	Name string
	Does string       // describes the error in a sentence
	flaw func() *flaw // makes a flaw with a new state
}

// Wrapper returns a function that wraps the drivers of one Harness. These drivers share the bug's
// state, as processes share a server.
func (b Bug) Wrapper() func(backend.Driver) backend.Driver {
	f := b.flaw()
	return func(d backend.Driver) backend.Driver { return wrap(d, f) }
}

// Bugs returns all bugs.
func Bugs() []Bug {
	return slices.Concat(
		grantBugs, termBugs, renewalBugs, releaseBugs, waitBugs, showBugs, nameBugs,
		resourceBugs, measureBugs, kindBugs, moveBugs, combineBugs,
	)
}

var errBroken = errors.New("broken on purpose")

var grantBugs = []Bug{
	{"second-holder", "Acquire grants a held lock to a second owner.", func() *flaw {
		return &flaw{acquire: func(
			ctx context.Context, next *driver, req *backend.Request,
		) (*backend.Grant, error) {
			g, err := next.Acquire(ctx, req)
			if errors.Is(err, backend.ErrNotAcquired) {
				_ = next.Release(ctx, &backend.Grant{Request: *req})
				return &backend.Grant{Request: *req, Term: fromNow(req.TTL), Fence: 1}, nil
			}
			return g, err
		}, release: func(ctx context.Context, next *driver, g *backend.Grant) error {
			time.Sleep(2 * time.Millisecond) // so that the lock can have a second owner meanwhile
			return next.Release(ctx, g)
		}}
	}},
	{"late-is-never-executed", "A request that is executed after its release is " +
		"refused with ErrUnavailable.", func() *flaw {
		var released table[bool]
		return &flaw{
			acquire: func(
				ctx context.Context, next *driver, req *backend.Request,
			) (*backend.Grant, error) {
				if _, gone := released.get(req.Owner); gone {
					return nil, fmt.Errorf("%w: %w", backend.ErrUnavailable, errBroken)
				}
				return next.Acquire(ctx, req)
			},
			release: func(ctx context.Context, next *driver, g *backend.Grant) error {
				released.set(g.Owner, true)
				return next.Release(ctx, g)
			},
		}
	}},
	{"not-idempotent", "A repeated Acquire by the holder returns *Busy.", func() *flaw {
		var owners table[bool]
		return &flaw{acquire: func(
			ctx context.Context, next *driver, req *backend.Request,
		) (*backend.Grant, error) {
			if _, held := owners.get(req.Owner); held && next.holder(ctx, req.Key) == req.Owner {
				return nil, &backend.Busy{Holder: req.Owner}
			}
			g, err := next.Acquire(ctx, req)
			owners.set(req.Owner, true)
			return g, err
		}, wait: func(
			ctx context.Context, next *driver, req *backend.Request, b *backend.Busy,
		) (*backend.Grant, error) {
			if next.holder(ctx, req.Key) == req.Owner {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return next.Wait(ctx, req, b)
		}}
	}},
	{"never-grants-again", "Acquire of a lock that was released once returns *Busy.", func() *flaw {
		var released table[bool]
		return &flaw{
			acquire: func(
				ctx context.Context, next *driver, req *backend.Request,
			) (*backend.Grant, error) {
				if _, gone := released.get(req.Key); gone {
					return nil, &backend.Busy{Holder: "a ghost"}
				}
				return next.Acquire(ctx, req)
			},
			release: func(ctx context.Context, next *driver, g *backend.Grant) error {
				err := next.Release(ctx, g)
				if err == nil {
					released.set(g.Key, true)
				}
				return err
			},
			wait: func(
				ctx context.Context, next *driver, req *backend.Request, b *backend.Busy,
			) (*backend.Grant, error) {
				g, err := next.Wait(ctx, req, b)
				if _, gone := released.get(req.Key); gone {
					return nil, err
				}
				return g, err
			},
		}
	}},
	{"no-fence", "A Grant has no fence.", func() *flaw {
		return fences(func(*table[uint64], *backend.Grant) uint64 { return 0 })
	}},
	{"constant-fence", "All grants have the same fence.", func() *flaw {
		return fences(func(*table[uint64], *backend.Grant) uint64 { return 7 })
	}},
	{"falling-fence", "Each fence is lower than the previous one.", func() *flaw {
		return fences(func(t *table[uint64], _ *backend.Grant) uint64 {
			return 1<<40 - add(t, "", 1)
		})
	}},
	{"huge-fence", "A fence is above MaxFence.", func() *flaw {
		return fences(func(_ *table[uint64], g *backend.Grant) uint64 {
			return backend.MaxFence + g.Fence
		})
	}},
	{"another-grant", "The Grant has another owner.", func() *flaw {
		return grants(func(g *backend.Grant) { g.Owner = strings.Repeat("0", 32) })
	}},
	{"conflict-forever", "Every Acquire returns ErrConflict.", func() *flaw {
		return &flaw{acquire: func(
			context.Context, *driver, *backend.Request,
		) (*backend.Grant, error) {
			return nil, fmt.Errorf("%w: %w", backend.ErrConflict, errBroken)
		}}
	}},
	{"unknown-is-unavailable", "Every error with an unknown " +
		"outcome becomes ErrUnavailable.", func() *flaw {
		return outcomes(func(err error) error {
			return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
		})
	}},
	{"unknown-is-lost", "Every error with an unknown outcome becomes ErrLost.", func() *flaw {
		return outcomes(func(err error) error { return fmt.Errorf("%w: %w", backend.ErrLost, err) })
	}},
	{"foreign-is-busy", "A value that dlock did not write is treated as " +
		"a held lock.", func() *flaw {
		return &flaw{acquire: func(
			ctx context.Context, next *driver, req *backend.Request,
		) (*backend.Grant, error) {
			g, err := next.Acquire(ctx, req)
			if errors.Is(err, backend.ErrConflict) {
				return nil, &backend.Busy{}
			}
			return g, err
		}}
	}},
	{"any-mode", "A request in an unclaimed mode is treated as exclusive.", func() *flaw {
		return &flaw{
			acquire: func(
				ctx context.Context, next *driver, req *backend.Request,
			) (*backend.Grant, error) {
				changed := *req
				changed.Mode, changed.Limit = backend.Exclusive, 0
				return next.Acquire(ctx, &changed)
			},
			capabilities: func(caps backend.Capabilities) backend.Capabilities {
				caps.Modes = backend.Exclusive
				return caps
			},
		}
	}},
	{"ignores-contexts", "Requests ignore the end of their context.", func() *flaw {
		blind := context.WithoutCancel
		return &flaw{
			acquire: func(
				ctx context.Context, next *driver, req *backend.Request,
			) (*backend.Grant, error) {
				return next.Acquire(blind(ctx), req)
			},
			renew: func(ctx context.Context, next *driver, g *backend.Grant) (backend.Term, error) {
				return next.Renew(blind(ctx), g)
			},
			release: func(ctx context.Context, next *driver, g *backend.Grant) error {
				return next.Release(blind(ctx), g)
			},
			wait: func(
				ctx context.Context, next *driver, req *backend.Request, b *backend.Busy,
			) (*backend.Grant, error) {
				bounded, cancel := context.WithTimeout(blind(ctx), time.Minute)
				defer cancel()
				return next.Wait(bounded, req, b)
			},
		}
	}},
}

// fences returns a flaw that changes the fence of each new grant.
func fences(fence func(*table[uint64], *backend.Grant) uint64) *flaw {
	var t table[uint64]
	return grants(func(g *backend.Grant) { g.Fence = fence(&t, g) })
}

// grants returns a flaw that changes each new Grant.
func grants(change func(*backend.Grant)) *flaw {
	changed := func(g *backend.Grant, err error) (*backend.Grant, error) {
		if g == nil || err != nil {
			return g, err
		}
		other := *g
		change(&other)
		return &other, nil
	}
	return &flaw{
		acquire: func(
			ctx context.Context, next *driver, req *backend.Request,
		) (*backend.Grant, error) {
			return changed(next.Acquire(ctx, req))
		},
		wait: func(
			ctx context.Context, next *driver, req *backend.Request, b *backend.Busy,
		) (*backend.Grant, error) {
			return changed(next.Wait(ctx, req, b))
		},
	}
}

// outcomes returns a flaw that changes each error with an unknown outcome.
func outcomes(change func(error) error) *flaw {
	told := func(err error) error {
		for _, known := range []error{
			nil, backend.ErrNotAcquired, backend.ErrLost, backend.ErrNotHeld,
			backend.ErrUnsupported, backend.ErrUnavailable, backend.ErrConflict,
			context.Canceled, context.DeadlineExceeded,
		} {
			if errors.Is(err, known) {
				return err
			}
		}
		return change(err)
	}
	return &flaw{
		acquire: func(
			ctx context.Context, next *driver, req *backend.Request,
		) (*backend.Grant, error) {
			g, err := next.Acquire(ctx, req)
			return g, told(err)
		},
		renew: func(ctx context.Context, next *driver, g *backend.Grant) (backend.Term, error) {
			term, err := next.Renew(ctx, g)
			return term, told(err)
		},
		release: func(ctx context.Context, next *driver, g *backend.Grant) error {
			return told(next.Release(ctx, g))
		},
	}
}

var termBugs = []Bug{
	{"no-prolonging", "A repeated Acquire returns a new term, but does not prolong the term " +
		"on the server.", func() *flaw {
		var held table[*backend.Grant]
		return &flaw{acquire: func(
			ctx context.Context, next *driver, req *backend.Request,
		) (*backend.Grant, error) {
			if g, ok := held.get(req.Owner); ok && next.holder(ctx, req.Key) == req.Owner {
				return inNewTerm(g), nil
			}
			g, err := next.Acquire(ctx, req)
			if err == nil {
				held.set(req.Owner, g)
			}
			return g, err
		}}
	}},
	{"repeated-without-meta", "The Grant of a repeated Acquire has no Meta.", func() *flaw {
		return repeated(func(g *backend.Grant) { g.Meta = "" })
	}},
	{"repeated-without-limit", "The Grant of a repeated Acquire has no Limit.", func() *flaw {
		return repeated(func(g *backend.Grant) { g.Limit = 0 })
	}},
	{"term-from-answer", "A term counts from the answer.", func() *flaw {
		return &flaw{
			acquire: func(
				ctx context.Context, next *driver, req *backend.Request,
			) (*backend.Grant, error) {
				g, err := next.Acquire(ctx, req)
				if err == nil {
					g = &backend.Grant{
						Request: g.Request, Fence: g.Fence, State: g.State,
						Term: fromNow(g.Term.TTL),
					}
				}
				return g, err
			},
			renew: func(ctx context.Context, next *driver, g *backend.Grant) (backend.Term, error) {
				term, err := next.Renew(ctx, g)
				return fromNow(term.TTL), err
			},
		}
	}},
	{"term-from-tomorrow", "A term counts from one hour after the request was sent.", func() *flaw {
		return grants(func(g *backend.Grant) { g.Term.Sent = g.Term.Sent.Add(time.Hour) })
	}},
	{"shorter-term", "The server keeps a grant for a third of the answered term.", func() *flaw {
		return terms(func(ttl time.Duration) time.Duration {
			return max(ttl/3, 60*time.Millisecond)
		})
	}},
	{"longer-term", "The server keeps a grant for a minute more than " +
		"the answered term.", func() *flaw {
		return terms(func(ttl time.Duration) time.Duration { return ttl + time.Minute })
	}},
	{"floored-term", "The server keeps a grant for the whole seconds of its term.", func() *flaw {
		return terms(func(ttl time.Duration) time.Duration {
			return max(ttl.Truncate(time.Second), 60*time.Millisecond)
		})
	}},
	{"wrapped-term", "A term of 72 min wraps to a short one.", func() *flaw {
		return terms(func(ttl time.Duration) time.Duration {
			return max(ttl%(1<<32*time.Microsecond), 60*time.Millisecond)
		})
	}},
	{"wrapped-sum", "The longest term wraps when it is rounded up.", func() *flaw {
		return terms(func(ttl time.Duration) time.Duration {
			return max((ttl+time.Microsecond-1)/time.Microsecond*time.Microsecond, 1)
		})
	}},
	{"rounded-down-answer", "The answered term is shorter than the requested term.", func() *flaw {
		return grants(func(g *backend.Grant) { g.Term.TTL = g.Term.TTL / 2 })
	}},
}

// repeated returns a flaw that changes the Grant of each repeated Acquire.
func repeated(change func(*backend.Grant)) *flaw {
	var granted table[bool] // by owner
	return grants(func(g *backend.Grant) {
		if again, _ := granted.get(g.Owner); again {
			change(g)
		}
		granted.set(g.Owner, true)
	})
}

// terms returns a flaw that changes the term for which the server keeps a grant, but not the term
// in the answer.
func terms(kept func(time.Duration) time.Duration) *flaw {
	return &flaw{
		acquire: func(
			ctx context.Context, next *driver, req *backend.Request,
		) (*backend.Grant, error) {
			g, err := next.Acquire(ctx, request(req, kept(req.TTL)))
			if err == nil {
				term := backend.Term{Sent: g.Term.Sent, TTL: req.TTL}
				g = &backend.Grant{Request: *req, Fence: g.Fence, State: g.State, Term: term}
			}
			return g, err
		},
		renew: func(ctx context.Context, next *driver, g *backend.Grant) (backend.Term, error) {
			term, err := next.Renew(ctx, withTTL(g, kept(g.TTL)))
			term.TTL = g.TTL
			return term, err
		},
		wait: func(
			ctx context.Context, next *driver, req *backend.Request, b *backend.Busy,
		) (*backend.Grant, error) {
			g, err := next.Wait(ctx, req, b)
			if g != nil && err == nil {
				term := backend.Term{Sent: g.Term.Sent, TTL: req.TTL}
				g = &backend.Grant{Request: *req, Fence: g.Fence, State: g.State, Term: term}
			}
			return g, err
		},
	}
}

var renewalBugs = []Bug{
	{"no-renewal", "Renew returns a term, but does not prolong the term " +
		"on the server.", func() *flaw {
		return &flaw{renew: func(
			ctx context.Context, next *driver, g *backend.Grant,
		) (backend.Term, error) {
			if next.holder(ctx, g.Key) != g.Owner {
				return backend.Term{}, backend.ErrLost
			}
			return fromNow(g.TTL), nil
		}}
	}},
	{"no-single-renewal", "Renew, but not RenewAll, returns a term without prolonging the term " +
		"on the server.", func() *flaw {
		return &flaw{
			renew: func(context.Context, *driver, *backend.Grant) (backend.Term, error) {
				return fromNow(time.Hour), nil
			},
			renewAll: func(
				ctx context.Context, next *driver, gs []*backend.Grant,
			) []backend.Renewal {
				return next.RenewAll(ctx, gs)
			},
		}
	}},
	{"renew-re-creates", "Renew restores a grant that is gone.", func() *flaw {
		return &flaw{renew: func(
			ctx context.Context, next *driver, g *backend.Grant,
		) (backend.Term, error) {
			term, err := next.Renew(ctx, g)
			if !errors.Is(err, backend.ErrLost) {
				return term, err
			}
			req := g.Request
			req.Queue = false
			again, err := next.Acquire(ctx, &req)
			if err != nil {
				return backend.Term{}, backend.ErrLost
			}
			return again.Term, nil
		}}
	}},
	{"renew-any-owner", "Renew prolongs the grant of another owner.", func() *flaw {
		return &flaw{renew: renewHolder}
	}},
	{"renew-all-any-owner", "RenewAll, but not Renew, prolongs the grant " +
		"of another owner.", func() *flaw {
		return &flaw{renewAll: func(
			ctx context.Context, next *driver, gs []*backend.Grant,
		) []backend.Renewal {
			renewals := make([]backend.Renewal, len(gs))
			for i, g := range gs {
				renewals[i].Term, renewals[i].Err = renewHolder(ctx, next, g)
			}
			return renewals
		}}
	}},
	{"loss-never-reported", "Renew of a grant that is gone returns a term.", func() *flaw {
		return &flaw{renew: func(
			ctx context.Context, next *driver, g *backend.Grant,
		) (backend.Term, error) {
			term, err := next.Renew(ctx, g)
			if errors.Is(err, backend.ErrLost) {
				return fromNow(g.TTL), nil
			}
			return term, err
		}}
	}},
	{"loss-is-unknown", "Renew of a grant that is gone returns an unknown error.", func() *flaw {
		return &flaw{renew: func(
			ctx context.Context, next *driver, g *backend.Grant,
		) (backend.Term, error) {
			term, err := next.Renew(ctx, g)
			if errors.Is(err, backend.ErrLost) {
				err = errBroken
			}
			return term, err
		}}
	}},
	{"first-loss-fails-all", "RenewAll fails for all grants of a request if one of " +
		"them is gone.", func() *flaw {
		return &flaw{renewAll: func(
			ctx context.Context, next *driver, gs []*backend.Grant,
		) []backend.Renewal {
			renewals := next.RenewAll(ctx, gs)
			for _, r := range renewals {
				if r.Err != nil {
					for i := range renewals {
						renewals[i].Err = r.Err
					}
				}
			}
			return renewals
		}}
	}},
	{"renew-all-stops-at-500", "RenewAll leaves the answers after " +
		"the first 500 empty.", func() *flaw {
		return &flaw{renewAll: func(
			ctx context.Context, next *driver, gs []*backend.Grant,
		) []backend.Renewal {
			renewals := next.RenewAll(ctx, gs[:min(len(gs), 500)])
			return append(renewals, make([]backend.Renewal, len(gs)-len(renewals))...)
		}}
	}},
	{"one-entry-fails-all", "RenewAll fails for all grants of a request if the entry of one of " +
		"them is locked.", func() *flaw {
		return &flaw{renewAll: func(
			ctx context.Context, next *driver, gs []*backend.Grant,
		) []backend.Renewal {
			renewals := next.RenewAll(ctx, gs)
			if ctx.Err() != nil {
				for i := range renewals {
					renewals[i] = backend.Renewal{Err: ctx.Err()}
				}
			}
			return renewals
		}}
	}},
	{"late-renewal-revives", "A renewal that is executed after the release " +
		"restores the grant.", func() *flaw {
		var late table[bool]
		return &flaw{
			renew: func(ctx context.Context, next *driver, g *backend.Grant) (backend.Term, error) {
				term, err := next.Renew(ctx, g)
				if ctx.Err() != nil {
					late.set(g.Owner, true)
				}
				return term, err
			},
			release: func(ctx context.Context, next *driver, g *backend.Grant) error {
				err := next.Release(ctx, g)
				if _, revived := late.get(g.Owner); revived && err == nil {
					_, _ = next.Acquire(ctx, &g.Request)
				}
				return err
			},
		}
	}},
	{"abandoned-renewal-loses", "After a renewal that was given up, each " +
		"renewal returns ErrLost.", func() *flaw {
		var late table[bool]
		return &flaw{renew: func(
			ctx context.Context, next *driver, g *backend.Grant,
		) (backend.Term, error) {
			if _, lost := late.get(g.Owner); lost {
				return backend.Term{}, backend.ErrLost
			}
			term, err := next.Renew(ctx, g)
			if ctx.Err() != nil {
				late.set(g.Owner, true)
			}
			return term, err
		}}
	}},
	{"renewal-fails", "No renewal succeeds.", func() *flaw {
		return &flaw{renew: func(context.Context, *driver, *backend.Grant) (backend.Term, error) {
			return backend.Term{}, errBroken
		}}
	}},
	{"late-renewal-shortens", "A renewal that is executed after its successor shortens " +
		"the successor's term.", func() *flaw {
		var late table[bool]
		return &flaw{renew: func(
			ctx context.Context, next *driver, g *backend.Grant,
		) (backend.Term, error) {
			term, err := next.Renew(ctx, g)
			if ctx.Err() != nil {
				late.set(g.Owner, true)
			} else if _, shortens := late.get(g.Owner); shortens && err == nil {
				later := context.WithoutCancel(ctx)
				// The term is still long when the release ends it.
				time.AfterFunc(time.Second, func() { _ = next.Release(later, g) })
			}
			return term, err
		}}
	}},
}

// renewHolder renews the grant of any owner that holds the key of g.
func renewHolder(ctx context.Context, next *driver, g *backend.Grant) (backend.Term, error) {
	other := *g
	if owner := next.holder(ctx, g.Key); owner != "" {
		other.Owner = owner
	}
	return next.Renew(ctx, &other)
}

var releaseBugs = []Bug{
	{"release-does-nothing", "Release returns nil and removes nothing.", func() *flaw {
		return &flaw{release: func(context.Context, *driver, *backend.Grant) error { return nil }}
	}},
	{"release-any-owner", "Release removes the grant of another owner.", func() *flaw {
		return &flaw{release: func(ctx context.Context, next *driver, g *backend.Grant) error {
			err := next.Release(ctx, g)
			if owner := next.holder(ctx, g.Key); errors.Is(err, backend.ErrNotHeld) && owner != "" {
				other := *g
				other.Owner = owner
				return next.Release(ctx, &other)
			}
			return err
		}}
	}},
	{"late-release-frees", "A release that is executed late removes the grant of " +
		"the present owner.", func() *flaw {
		var late table[bool]
		return &flaw{
			release: func(ctx context.Context, next *driver, g *backend.Grant) error {
				err := next.Release(ctx, g)
				if ctx.Err() != nil {
					late.set(g.Key, true)
				}
				return err
			},
			acquire: func(
				ctx context.Context, next *driver, req *backend.Request,
			) (*backend.Grant, error) {
				g, err := next.Acquire(ctx, req)
				if _, freed := late.get(req.Key); freed && err == nil {
					_ = next.Release(ctx, g)
				}
				return g, err
			},
		}
	}},
	{"release-of-nothing", "Release of an owner that has nothing returns nil.", func() *flaw {
		return &flaw{release: func(ctx context.Context, next *driver, g *backend.Grant) error {
			if err := next.Release(ctx, g); !errors.Is(err, backend.ErrNotHeld) {
				return err
			}
			return nil
		}}
	}},
	{"release-needs-state", "Release and Renew find nothing without the State " +
		"of the Grant.", func() *flaw {
		f := grants(func(g *backend.Grant) { g.State = errBroken })
		f.release = func(ctx context.Context, next *driver, g *backend.Grant) error {
			if g.State == nil {
				return backend.ErrNotHeld
			}
			return next.Release(ctx, g)
		}
		f.renew = func(ctx context.Context, next *driver, g *backend.Grant) (backend.Term, error) {
			if g.State == nil {
				return backend.Term{}, backend.ErrLost
			}
			return next.Renew(ctx, g)
		}
		return f
	}},
	{"release-fails", "Each Release removes the grant, but returns " +
		"an unknown error.", func() *flaw {
		return &flaw{release: func(ctx context.Context, next *driver, g *backend.Grant) error {
			_ = next.Release(ctx, g)
			return errBroken
		}}
	}},
	{"first-release-fails", "The first Release of each grant is not executed, and returns " +
		"an unknown error.", func() *flaw {
		var seen table[bool]
		return &flaw{release: func(ctx context.Context, next *driver, g *backend.Grant) error {
			if _, again := seen.get(g.Owner); !again {
				seen.set(g.Owner, true)
				return errBroken
			}
			return next.Release(ctx, g)
		}}
	}},
	{"release-fails-at-times", "One Release in a hundred is not executed, and returns " +
		"an unknown error.", func() *flaw {
		var n atomic.Int64
		return &flaw{release: func(ctx context.Context, next *driver, g *backend.Grant) error {
			if n.Add(1)%100 == 0 {
				return errBroken
			}
			return next.Release(ctx, g)
		}}
	}},
	{"release-not-queued", "Release of a queue entry removes nothing.", func() *flaw {
		return &flaw{release: func(ctx context.Context, next *driver, g *backend.Grant) error {
			if owner := next.holder(ctx, g.Key); owner != "" && owner != g.Owner {
				return backend.ErrNotHeld
			}
			return next.Release(ctx, g)
		}}
	}},
	{"break-any-owner", "Break of one owner breaks the lock of any owner.", func() *flaw {
		return &flaw{breakLock: func(ctx context.Context, next *driver, key, _ string) error {
			return next.Break(ctx, key, "")
		}}
	}},
	{"break-does-nothing", "Break returns nil and removes nothing.", func() *flaw {
		return &flaw{breakLock: func(context.Context, *driver, string, string) error { return nil }}
	}},
	{"break-of-nothing", "Break of a free lock returns nil.", func() *flaw {
		return &flaw{breakLock: func(ctx context.Context, next *driver, key, owner string) error {
			if err := next.Break(ctx, key, owner); !errors.Is(err, backend.ErrNotHeld) {
				return err
			}
			return nil
		}}
	}},
	{"break-wakes-no-waiter", "Break wakes no waiter.", func() *flaw {
		var broken table[bool]
		return &flaw{
			breakLock: func(ctx context.Context, next *driver, key, owner string) error {
				broken.set(key, true)
				return next.Break(ctx, key, owner)
			},
			wait: func(
				ctx context.Context, next *driver, req *backend.Request, b *backend.Busy,
			) (*backend.Grant, error) {
				g, err := next.Wait(ctx, req, b)
				if _, asleep := broken.get(req.Key); asleep && err == nil {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return g, err
			},
		}
	}},
}

var waitBugs = []Bug{
	{"lost-wake-up", "Nothing wakes a Wait.", func() *flaw {
		return &flaw{wait: func(
			ctx context.Context, _ *driver, _ *backend.Request, _ *backend.Busy,
		) (*backend.Grant, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}
	}},
	{"polls", "Nothing wakes a Wait, and it ends after a second.", func() *flaw {
		return &flaw{wait: func(
			ctx context.Context, _ *driver, _ *backend.Request, _ *backend.Busy,
		) (*backend.Grant, error) {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(time.Second):
				return nil, nil
			}
		}}
	}},
	{"missed-release", "Wait misses a release that came before it.", func() *flaw {
		return &flaw{wait: func(
			ctx context.Context, next *driver, req *backend.Request, b *backend.Busy,
		) (*backend.Grant, error) {
			if holder := next.holder(ctx, req.Key); holder == "" || holder == req.Owner {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return next.Wait(ctx, req, b)
		}}
	}},
	{"one-waiter", "Of the waiters for one key, only one is woken.", func() *flaw {
		var waiting table[uint64]
		return &flaw{wait: func(
			ctx context.Context, next *driver, req *backend.Request, b *backend.Busy,
		) (*backend.Grant, error) {
			if add(&waiting, req.Key, 1) > 1 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return next.Wait(ctx, req, b)
		}}
	}},
	{"wait-is-busy", "Wait always returns at once.", func() *flaw {
		return &flaw{wait: func(
			ctx context.Context, _ *driver, _ *backend.Request, _ *backend.Busy,
		) (*backend.Grant, error) {
			return nil, ctx.Err()
		}}
	}},
	{"wait-fails", "Wait returns an unknown error.", func() *flaw {
		return &flaw{wait: func(
			ctx context.Context, _ *driver, _ *backend.Request, _ *backend.Busy,
		) (*backend.Grant, error) {
			return nil, errBroken
		}}
	}},
	{"wrong-end", "Wait returns a wrong error when its context ends.", func() *flaw {
		return &flaw{wait: func(
			ctx context.Context, next *driver, req *backend.Request, b *backend.Busy,
		) (*backend.Grant, error) {
			g, err := next.Wait(ctx, req, b)
			if ctx.Err() != nil {
				return nil, errBroken
			}
			return g, err
		}}
	}},
	{"not-fair", "A fair request leaves no queue entry.", func() *flaw {
		return &flaw{acquire: func(
			ctx context.Context, next *driver, req *backend.Request,
		) (*backend.Grant, error) {
			changed := *req
			changed.Fair, changed.Queue = false, false
			return next.Acquire(ctx, &changed)
		}}
	}},
	{"first-comes-last", "The first fair waiter of a lock is woken last.", func() *flaw {
		var first table[string]
		return &flaw{
			acquire: func(
				ctx context.Context, next *driver, req *backend.Request,
			) (*backend.Grant, error) {
				changed := *req
				changed.Fair, changed.Queue = false, false
				g, err := next.Acquire(ctx, &changed)
				_, known := first.get(req.Key)
				if !known && errors.Is(err, backend.ErrNotAcquired) {
					first.set(req.Key, req.Owner)
				}
				return g, err
			},
			wait: func(
				ctx context.Context, _ *driver, req *backend.Request, _ *backend.Busy,
			) (*backend.Grant, error) {
				poll := 10 * time.Millisecond
				if owner, _ := first.get(req.Key); owner == req.Owner {
					poll = 2 * time.Second
				}
				select {
				case <-ctx.Done():
					return nil, ctx.Err()
				case <-time.After(poll):
					return nil, nil
				}
			},
		}
	}},
	{"try-queues", "Acquire without Queue leaves a queue entry.", func() *flaw {
		return &flaw{acquire: func(
			ctx context.Context, next *driver, req *backend.Request,
		) (*backend.Grant, error) {
			changed := *req
			changed.Queue, changed.Fair = true, true
			return next.Acquire(ctx, &changed)
		}}
	}},
	{"entry-stays", "A queue entry outlives its waiter.", func() *flaw {
		var ghosts table[bool]
		return &flaw{
			acquire: func(
				ctx context.Context, next *driver, req *backend.Request,
			) (*backend.Grant, error) {
				ghost := *req
				g, err := next.Acquire(ctx, req)
				_, made := ghosts.get(req.Key)
				if !made && errors.Is(err, backend.ErrNotAcquired) && req.Queue {
					ghosts.set(req.Key, true)
					ghost.Owner, ghost.Fair = strings.Repeat("f", 32), true
					ghost.TTL = 10 * time.Minute
					_, _ = next.Acquire(ctx, &ghost)
				}
				return g, err
			},
		}
	}},
	{"busy-guesses", "*Busy reports a term that is too long, and a queue entry that " +
		"does not exist.", func() *flaw {
		return busy(func(b *backend.Busy) { b.RetryAfter, b.Queued = 24*time.Hour, true })
	}},
	{"no-retry-after", "*Busy lets the waiter sleep beyond the holder's term.", func() *flaw {
		return busy(func(b *backend.Busy) { b.RetryAfter = 24 * time.Hour })
	}},
	{"retry-after-floored", "*Busy reports no remaining time in the last 400 ms of the " +
		"holder's term.", func() *flaw {
		return busy(func(b *backend.Busy) {
			b.RetryAfter = b.RetryAfter.Truncate(400 * time.Millisecond)
		})
	}},
	{"keeps-attempts", "A held lock keeps the Request of its Acquire in memory.", func() *flaw {
		var kept table[*backend.Request]
		return &flaw{acquire: func(
			ctx context.Context, next *driver, req *backend.Request,
		) (*backend.Grant, error) {
			kept.set(req.Owner, req)
			return next.Acquire(ctx, req)
		}}
	}},
	{"never-late", "A request is executed after its release, although " +
		"Capabilities.Late is 0.", func() *flaw {
		var late table[*backend.Request]
		return &flaw{
			capabilities: func(caps backend.Capabilities) backend.Capabilities {
				caps.Late = 0
				return caps
			},
			acquire: func(
				ctx context.Context, next *driver, req *backend.Request,
			) (*backend.Grant, error) {
				g, err := next.Acquire(ctx, req)
				if err != nil && ctx.Err() != nil {
					late.set(req.Owner, req)
				}
				return g, err
			},
			release: func(ctx context.Context, next *driver, g *backend.Grant) error {
				err := next.Release(ctx, g)
				if req, ok := late.get(g.Owner); ok {
					_, _ = next.Acquire(ctx, req)
				}
				return err
			},
		}
	}},
}

// busy returns a flaw that changes each *Busy.
func busy(change func(*backend.Busy)) *flaw {
	return &flaw{acquire: func(
		ctx context.Context, next *driver, req *backend.Request,
	) (*backend.Grant, error) {
		g, err := next.Acquire(ctx, req)
		if b, ok := errors.AsType[*backend.Busy](err); ok {
			changed := *b
			change(&changed)
			return nil, &changed
		}
		return g, err
	}}
}

var showBugs = []Bug{
	{"list-wildcards", "% and _ are wildcards in the prefix of List.", func() *flaw {
		return &flaw{list: func(
			ctx context.Context, next *driver, prefix string,
		) iter.Seq2[*backend.Info, error] {
			i := strings.IndexAny(prefix, "%_")
			if i < 0 {
				return next.List(ctx, prefix)
			}
			return next.List(ctx, prefix[:i])
		}}
	}},
	{"list-stops-at-500", "List ends after 500 names.", func() *flaw {
		return lists(func(n int, _ *backend.Info) (skip, stop bool) { return false, n >= 500 })
	}},
	{"list-is-empty", "List shows nothing.", func() *flaw {
		return lists(func(int, *backend.Info) (skip, stop bool) { return true, false })
	}},
	{"shows-the-dead", "Inspect and List show a holder whose term is over.", func() *flaw {
		var last table[*backend.Info]
		f := inspects(func(info *backend.Info) {
			if dead, ok := last.get(info.Key); ok && len(info.Holders) == 0 {
				*info = *dead
			}
		})
		f.acquire = func(
			ctx context.Context, next *driver, req *backend.Request,
		) (*backend.Grant, error) {
			g, err := next.Acquire(ctx, req)
			if err == nil { // a look at the lock may come too late for a short term
				last.set(req.Key, &backend.Info{
					Key: req.Key, Mode: req.Mode,
					Holders: []backend.Holder{{Owner: g.Owner, Fence: g.Fence, TTL: req.TTL}},
				})
			}
			return g, err
		}
		return f
	}},
	{"inspect-hides", "Inspect shows no holder.", func() *flaw {
		return inspects(func(info *backend.Info) { info.Holders = nil })
	}},
	{"inspect-guesses", "Inspect shows waiters that do not exist, and no meta.", func() *flaw {
		return inspects(func(info *backend.Info) {
			info.Waiters += 7
			for i := range info.Holders {
				info.Holders[i].Meta = ""
			}
		})
	}},
	{"caps-change", "Each call of Capabilities returns a different value.", func() *flaw {
		var n atomic.Int64
		return &flaw{capabilities: func(caps backend.Capabilities) backend.Capabilities {
			caps.Late = time.Duration(n.Add(1))
			return caps
		}}
	}},
	{"caps-claim", "Capabilities claim a Session, although grants " +
		"outlive their connection.", func() *flaw {
		return &flaw{capabilities: func(caps backend.Capabilities) backend.Capabilities {
			caps.Session = !caps.Session
			return caps
		}}
	}},
	{"caps-bounds", "Capabilities.MinTTL is above Capabilities.MaxTTL.", func() *flaw {
		return &flaw{capabilities: func(caps backend.Capabilities) backend.Capabilities {
			caps.MinTTL, caps.MaxTTL = time.Second, time.Millisecond
			return caps
		}}
	}},
}

// lists returns a flaw that leaves names out of a List, or ends it early.
func lists(choose func(n int, info *backend.Info) (skip, stop bool)) *flaw {
	return &flaw{list: func(
		ctx context.Context, next *driver, prefix string,
	) iter.Seq2[*backend.Info, error] {
		return func(yield func(*backend.Info, error) bool) {
			n := 0
			for info, err := range next.List(ctx, prefix) {
				skip, stop := choose(n, info)
				n++
				if stop || !skip && !yield(info, err) {
					return
				}
			}
		}
	}}
}

// inspects returns a flaw that changes each Info of Inspect.
func inspects(change func(*backend.Info)) *flaw {
	return &flaw{inspect: func(
		ctx context.Context, next *driver, key string,
	) (*backend.Info, error) {
		info, err := next.Inspect(ctx, key)
		if err != nil {
			return nil, err
		}
		changed := *info
		changed.Holders = slices.Clone(info.Holders)
		change(&changed)
		return &changed, nil
	}}
}

var nameBugs = []Bug{
	{"names-lower-case", "Names that differ in upper and lower case are one lock.", func() *flaw {
		return names(strings.ToLower)
	}},
	{"names-cut-at-191", "Names that differ after 191 bytes are one lock.", func() *flaw {
		return names(func(key string) string { return key[:min(len(key), 191)] })
	}},
	{"names-are-paths", "Names that are equal as paths are one lock.", func() *flaw {
		return names(func(key string) string {
			for strings.Contains(key, "//") {
				key = strings.ReplaceAll(key, "//", "/")
			}
			return strings.TrimSuffix(key, "/..")
		})
	}},
	{"names-are-patterns", "Release also frees all locks whose names begin " +
		"with its name.", func() *flaw {
		return &flaw{release: func(ctx context.Context, next *driver, g *backend.Grant) error {
			err := next.Release(ctx, g)
			for info, failed := range next.List(ctx, g.Key) {
				if failed == nil && info.Key != g.Key {
					_ = next.Break(ctx, info.Key, "")
				}
			}
			return err
		}}
	}},
}

// names returns a flaw that maps the keys of all requests.
func names(to func(string) string) *flaw {
	mapped := func(g *backend.Grant) *backend.Grant {
		changed := *g
		changed.Key = to(g.Key)
		return &changed
	}
	return &flaw{
		acquire: func(
			ctx context.Context, next *driver, req *backend.Request,
		) (*backend.Grant, error) {
			changed := *req
			changed.Key = to(req.Key)
			g, err := next.Acquire(ctx, &changed)
			if err == nil {
				g = &backend.Grant{Request: *req, Term: g.Term, Fence: g.Fence, State: g.State}
			}
			return g, err
		},
		renew: func(ctx context.Context, next *driver, g *backend.Grant) (backend.Term, error) {
			return next.Renew(ctx, mapped(g))
		},
		release: func(ctx context.Context, next *driver, g *backend.Grant) error {
			return next.Release(ctx, mapped(g))
		},
		wait: func(
			ctx context.Context, next *driver, req *backend.Request, b *backend.Busy,
		) (*backend.Grant, error) {
			changed := *req
			changed.Key = to(req.Key)
			return next.Wait(ctx, &changed, b)
		},
	}
}

var resourceBugs = []Bug{
	{"wait-leaks", "A cancelled Wait leaves its request in memory.", func() *flaw {
		var waited table[*[512]byte]
		return &flaw{wait: func(
			ctx context.Context, next *driver, req *backend.Request, b *backend.Busy,
		) (*backend.Grant, error) {
			g, err := next.Wait(ctx, req, b)
			if ctx.Err() != nil {
				waited.set(req.Owner, new([512]byte))
			}
			return g, err
		}}
	}},
	{"wait-leaks-owners", "A cancelled Wait leaves its owner in a map.", func() *flaw {
		var waited table[struct{}]
		return &flaw{wait: func(
			ctx context.Context, next *driver, req *backend.Request, b *backend.Busy,
		) (*backend.Grant, error) {
			g, err := next.Wait(ctx, req, b)
			if ctx.Err() != nil {
				waited.set(req.Owner, struct{}{})
			}
			return g, err
		}}
	}},
	{"close-leaks", "Close leaves a goroutine.", func() *flaw {
		return &flaw{close: func(next *driver) error {
			go func() { time.Sleep(2 * time.Minute) }()
			return next.Close()
		}}
	}},
	{"close-fails", "Close returns an error.", func() *flaw {
		return &flaw{close: func(next *driver) error {
			_ = next.Close()
			return errBroken
		}}
	}},
	{"never-reconnects", "After one unknown error, each request fails.", func() *flaw {
		var dead atomic.Bool
		failing := func(err error) error {
			if dead.Load() {
				return fmt.Errorf("%w: %w", backend.ErrUnavailable, errBroken)
			}
			return err
		}
		f := outcomes(func(err error) error { dead.Store(true); return err })
		acquire := f.acquire
		f.acquire = func(
			ctx context.Context, next *driver, req *backend.Request,
		) (*backend.Grant, error) {
			if err := failing(nil); err != nil {
				return nil, err
			}
			return acquire(ctx, next, req)
		}
		f.wait = func(
			ctx context.Context, next *driver, req *backend.Request, b *backend.Busy,
		) (*backend.Grant, error) {
			g, err := next.Wait(ctx, req, b)
			if err != nil && ctx.Err() == nil {
				dead.Store(true)
			}
			return g, err
		}
		return f
	}},
	{"restart-frees", "After an unknown error, the next owner gets a held lock.", func() *flaw {
		var shaken atomic.Bool
		f := outcomes(func(err error) error { shaken.Store(true); return err })
		f.acquire = func(
			ctx context.Context, next *driver, req *backend.Request,
		) (*backend.Grant, error) {
			g, err := next.Acquire(ctx, req)
			if errors.Is(err, backend.ErrNotAcquired) && shaken.Load() {
				_ = next.Break(ctx, req.Key, "")
				return next.Acquire(ctx, req)
			}
			return g, err
		}
		f.wait = func(
			ctx context.Context, next *driver, req *backend.Request, b *backend.Busy,
		) (*backend.Grant, error) {
			g, err := next.Wait(ctx, req, b)
			if err != nil && ctx.Err() == nil {
				shaken.Store(true)
			}
			return g, err
		}
		return f
	}},
}

var measureBugs = []Bug{
	{"floor-locks", "Floor breaks the lock of its name.", func() *flaw {
		return &flaw{floor: func(ctx context.Context, next *driver, key, owner string) error {
			return next.Break(ctx, key, "")
		}}
	}},
	{"counters-stand", "Counters do not count.", func() *flaw {
		return &flaw{counters: func() measure.Counts { return measure.Counts{Commands: 5} }}
	}},
	{"sweep-frees", "Sweep removes held locks.", func() *flaw {
		return &flaw{sweep: func(ctx context.Context, next *driver, keys []string) error {
			for _, key := range keys {
				_ = next.Break(ctx, key, "")
			}
			return nil
		}}
	}},
	{"sent-twice", "ReleaseThen calls sent twice.", func() *flaw {
		return &flaw{releaseThen: func(
			ctx context.Context, next *driver, g *backend.Grant, sent func(),
		) error {
			sent()
			sent()
			return next.Release(ctx, g)
		}}
	}},
}
