package broken

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// moveBugs are bugs of grants that become shared or pass to another process, and of watches.
var moveBugs = []Bug{
	{"downgrade-does-nothing", "A Downgrade leaves the grant exclusive.", func() *flaw {
		return &flaw{downgrade: func(
			_ context.Context, _ *driver, g *backend.Grant,
		) (*backend.Grant, error) {
			shared := *g
			shared.Mode, shared.Term = backend.Shared, fromNow(g.TTL)
			return &shared, nil
		}}
	}},
	{"downgrade-frees", "A Downgrade frees the lock.", func() *flaw {
		return &flaw{downgrade: func(
			ctx context.Context, next *driver, g *backend.Grant,
		) (*backend.Grant, error) {
			shared, err := next.Downgrade(ctx, g)
			if err == nil {
				_ = next.Release(ctx, g)
			}
			return shared, err
		}}
	}},
	{"downgrade-admits-a-writer", "A Downgrade grants the lock to a waiting writer.", func() *flaw {
		var downgraded table[bool] // by key
		return &flaw{
			downgrade: func(
				ctx context.Context, next *driver, g *backend.Grant,
			) (*backend.Grant, error) {
				shared, err := next.Downgrade(ctx, g)
				if err == nil {
					downgraded.set(g.Key, true)
				}
				return shared, err
			},
			acquire: func(
				ctx context.Context, next *driver, req *backend.Request,
			) (*backend.Grant, error) {
				g, err := next.Acquire(ctx, req)
				is, _ := downgraded.get(req.Key)
				if is && req.Queue && errors.Is(err, backend.ErrNotAcquired) {
					return granted(req), nil
				}
				return g, err
			},
			wait: func(
				ctx context.Context, _ *driver, _ *backend.Request, _ *backend.Busy,
			) (*backend.Grant, error) {
				select {
				case <-ctx.Done():
					return nil, ctx.Err()
				case <-time.After(10 * time.Millisecond):
					return nil, nil
				}
			},
		}
	}},
	{"downgrade-once", "A repeated Downgrade returns ErrLost.", func() *flaw {
		var done table[bool]
		return &flaw{downgrade: func(
			ctx context.Context, next *driver, g *backend.Grant,
		) (*backend.Grant, error) {
			if again, _ := done.get(g.Owner); again {
				return nil, backend.ErrLost
			}
			done.set(g.Owner, true)
			return next.Downgrade(ctx, g)
		}}
	}},
	{"downgrade-guesses", "An executed Downgrade returns ErrUnavailable.", func() *flaw {
		var done table[bool]
		return &flaw{downgrade: func(
			ctx context.Context, next *driver, g *backend.Grant,
		) (*backend.Grant, error) {
			shared, err := next.Downgrade(ctx, g)
			if again, _ := done.get(g.Owner); !again {
				done.set(g.Owner, true)
				return nil, backend.ErrUnavailable
			}
			return shared, err
		}}
	}},
	{"downgrade-changes-fence", "A Downgrade draws another fence.", func() *flaw {
		return &flaw{downgrade: func(
			ctx context.Context, next *driver, g *backend.Grant,
		) (*backend.Grant, error) {
			shared, err := next.Downgrade(ctx, g)
			if err != nil {
				return nil, err
			}
			changed := *shared
			changed.Fence++
			return &changed, nil
		}}
	}},
	{"shows-another-fence", "After a Downgrade Inspect shows another fence.", func() *flaw {
		var downgraded table[bool] // by owner
		return &flaw{
			downgrade: func(
				ctx context.Context, next *driver, g *backend.Grant,
			) (*backend.Grant, error) {
				downgraded.set(g.Owner, true)
				return next.Downgrade(ctx, g)
			},
			inspect: inspects(func(info *backend.Info) {
				for i, h := range info.Holders {
					if is, _ := downgraded.get(h.Owner); is {
						info.Holders[i].Fence += 1 << 12
					}
				}
			}).inspect,
		}
	}},
	{"downgrade-revives", "A Downgrade of a grant that is gone succeeds.", func() *flaw {
		return &flaw{downgrade: func(
			ctx context.Context, next *driver, g *backend.Grant,
		) (*backend.Grant, error) {
			shared, err := next.Downgrade(ctx, g)
			if err != nil {
				revived := *g
				revived.Mode, revived.Term = backend.Shared, fromNow(g.TTL)
				return &revived, nil
			}
			return shared, nil
		}}
	}},
	{"export-frees", "An exported lock is free.", func() *flaw {
		return &flaw{export: func(
			ctx context.Context, next *driver, g *backend.Grant,
		) (string, error) {
			ticket, err := next.Export(ctx, g)
			if err == nil {
				_ = next.Release(ctx, g)
			}
			return ticket, err
		}}
	}},
	{"adopted-again", "A second adoption of a handle gets the lock.", func() *flaw {
		var adopted table[*backend.Grant] // by ticket
		return &flaw{adopt: func(
			ctx context.Context, next *driver, ticket string, req *backend.Request,
		) (*backend.Grant, error) {
			g, err := next.Adopt(ctx, ticket, req)
			if err == nil {
				adopted.set(ticket, g)
			} else if first, ok := adopted.get(ticket); ok {
				return &backend.Grant{
					Request: *req, Term: fromNow(req.TTL), Fence: first.Fence,
				}, nil
			}
			return g, err
		}}
	}},
	{"handle-lasts", "A handle gets the lock after its term.", func() *flaw {
		var exported table[*backend.Grant] // by ticket
		return &flaw{
			export: func(
				ctx context.Context, next *driver, g *backend.Grant,
			) (string, error) {
				ticket, err := next.Export(ctx, g)
				if err == nil {
					exported.set(ticket, g)
				}
				return ticket, err
			},
			adopt: func(
				ctx context.Context, next *driver, ticket string, req *backend.Request,
			) (*backend.Grant, error) {
				g, err := next.Adopt(ctx, ticket, req)
				if from, ok := exported.get(ticket); err != nil && ok {
					return &backend.Grant{
						Request: *req, Term: fromNow(req.TTL), Fence: from.Fence,
					}, nil
				}
				return g, err
			},
		}
	}},
	{"late-downgrade-ends-ticket", "A Downgrade after an Export spoils the ticket.", func() *flaw {
		var exported, spoilt table[bool] // by owner
		return &flaw{
			export: func(
				ctx context.Context, next *driver, g *backend.Grant,
			) (string, error) {
				exported.set(g.Owner, true)
				return next.Export(ctx, g)
			},
			downgrade: func(
				ctx context.Context, next *driver, g *backend.Grant,
			) (*backend.Grant, error) {
				if is, _ := exported.get(g.Owner); is {
					spoilt.set(g.Owner, true)
				}
				return next.Downgrade(ctx, g)
			},
			adopt: func(
				ctx context.Context, next *driver, ticket string, req *backend.Request,
			) (*backend.Grant, error) {
				owner, _, _ := strings.Cut(ticket, ".")
				if is, _ := spoilt.get(owner); is {
					return nil, backend.ErrLost
				}
				return next.Adopt(ctx, ticket, req)
			},
		}
	}},
	{"owner-is-enough", "The owner alone is a ticket.", func() *flaw {
		var tickets table[string] // by owner
		return &flaw{
			export: func(
				ctx context.Context, next *driver, g *backend.Grant,
			) (string, error) {
				ticket, err := next.Export(ctx, g)
				tickets.set(g.Owner, ticket)
				return ticket, err
			},
			adopt: func(
				ctx context.Context, next *driver, ticket string, req *backend.Request,
			) (*backend.Grant, error) {
				owner, _, _ := strings.Cut(ticket, ".")
				if known, ok := tickets.get(owner); ok {
					ticket = known
				}
				return next.Adopt(ctx, ticket, req)
			},
		}
	}},
	{"former-owner-releases", "The former owner can release an adopted lock.", func() *flaw {
		var heirs table[*backend.Grant] // by former owner
		return &flaw{
			adopt: func(
				ctx context.Context, next *driver, ticket string, req *backend.Request,
			) (*backend.Grant, error) {
				g, err := next.Adopt(ctx, ticket, req)
				if err == nil {
					former, _, _ := strings.Cut(ticket, ".")
					heirs.set(former, g)
				}
				return g, err
			},
			release: func(ctx context.Context, next *driver, g *backend.Grant) error {
				if heir, ok := heirs.get(g.Owner); ok {
					g = heir
				}
				return next.Release(ctx, g)
			},
		}
	}},
	{"adopts-once", "A repeated Adopt of one owner returns ErrLost.", func() *flaw {
		var done table[bool]
		return &flaw{adopt: func(
			ctx context.Context, next *driver, ticket string, req *backend.Request,
		) (*backend.Grant, error) {
			if again, _ := done.get(req.Owner); again {
				return nil, backend.ErrLost
			}
			done.set(req.Owner, true)
			return next.Adopt(ctx, ticket, req)
		}}
	}},
	{"adopt-no-prolonging", "A repeated Adopt returns a new term, but does not prolong the term " +
		"on the server.", func() *flaw {
		var adopted table[*backend.Grant] // by owner
		return &flaw{adopt: func(
			ctx context.Context, next *driver, ticket string, req *backend.Request,
		) (*backend.Grant, error) {
			if g, ok := adopted.get(req.Owner); ok && next.holder(ctx, req.Key) == req.Owner {
				return inNewTerm(g), nil
			}
			g, err := next.Adopt(ctx, ticket, req)
			if err == nil {
				adopted.set(req.Owner, g)
			}
			return g, err
		}}
	}},
	{"adopted-not-renewed", "An adopted grant is not renewed.", func() *flaw {
		var adopted table[bool]
		return &flaw{
			adopt: func(
				ctx context.Context, next *driver, ticket string, req *backend.Request,
			) (*backend.Grant, error) {
				adopted.set(req.Owner, true)
				return next.Adopt(ctx, ticket, req)
			},
			renew: func(
				ctx context.Context, next *driver, g *backend.Grant,
			) (backend.Term, error) {
				if is, _ := adopted.get(g.Owner); is {
					return backend.Term{}, backend.ErrLost
				}
				return next.Renew(ctx, g)
			},
		}
	}},
	{"adopts-writers-only", "A grant that was downgraded is not adopted.", func() *flaw {
		var downgraded table[bool] // by key
		return &flaw{
			downgrade: func(
				ctx context.Context, next *driver, g *backend.Grant,
			) (*backend.Grant, error) {
				downgraded.set(g.Key, true)
				return next.Downgrade(ctx, g)
			},
			adopt: func(
				ctx context.Context, next *driver, ticket string, req *backend.Request,
			) (*backend.Grant, error) {
				if is, _ := downgraded.get(req.Key); is {
					return nil, backend.ErrLost
				}
				return next.Adopt(ctx, ticket, req)
			},
		}
	}},
	{"watch-leaks", "The end of a Watch leaves a goroutine.", func() *flaw {
		return &flaw{watch: func(
			ctx context.Context, next *driver, key string, changed func(),
		) error {
			go func() { <-make(chan struct{}) }()
			return next.Watch(ctx, key, changed)
		}}
	}},
	{"watch-is-silent", "A Watch never calls changed.", func() *flaw {
		return &flaw{watch: func(
			ctx context.Context, _ *driver, _ string, _ func(),
		) error {
			<-ctx.Done()
			return ctx.Err()
		}}
	}},
}
