package broken

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// kindBugs are bugs of locks for readers and writers, and of semaphores.
var kindBugs = []Bug{
	{"reader-despite-writer", "A reader gets the lock of a writer.", func() *flaw {
		return granting(backend.Shared)
	}},
	{"writer-despite-reader", "A writer gets the lock of a reader.", func() *flaw {
		var read table[bool]
		return &flaw{acquire: func(
			ctx context.Context, next *driver, req *backend.Request,
		) (*backend.Grant, error) {
			g, err := next.Acquire(ctx, req)
			if req.Mode == backend.Shared && err == nil {
				read.set(req.Key, true)
			}
			isRead, _ := read.get(req.Key)
			if req.Mode == backend.Exclusive && isRead && errors.Is(err, backend.ErrNotAcquired) {
				return granted(req), nil
			}
			return g, err
		}}
	}},
	{"readers-are-writers", "A reader excludes the other readers.", func() *flaw {
		return &flaw{acquire: func(
			ctx context.Context, next *driver, req *backend.Request,
		) (*backend.Grant, error) {
			changed := *req
			if req.Mode == backend.Shared {
				changed.Mode = backend.Exclusive
			}
			return next.Acquire(ctx, &changed)
		}}
	}},
	{"readers-overtake", "A reader overtakes the writers that wait.", func() *flaw {
		var reading table[time.Time]
		return &flaw{acquire: func(
			ctx context.Context, next *driver, req *backend.Request,
		) (*backend.Grant, error) {
			last, _ := reading.get(req.Key)
			if req.Mode == backend.Exclusive && time.Since(last) < time.Second {
				return nil, &backend.Busy{RetryAfter: 10 * time.Millisecond}
			}
			g, err := next.Acquire(ctx, req)
			if req.Mode == backend.Shared && err == nil {
				reading.set(req.Key, time.Now())
			}
			return g, err
		}}
	}},
	{"writers-overtake", "A writer overtakes the readers that wait.", func() *flaw {
		var writing table[time.Time]
		note := func(req *backend.Request, g *backend.Grant) {
			if req.Mode == backend.Exclusive && g != nil {
				writing.set(req.Key, time.Now())
			}
		}
		return &flaw{
			acquire: func(
				ctx context.Context, next *driver, req *backend.Request,
			) (*backend.Grant, error) {
				last, _ := writing.get(req.Key)
				if req.Mode == backend.Shared && time.Since(last) < time.Second {
					return nil, &backend.Busy{RetryAfter: 10 * time.Millisecond}
				}
				g, err := next.Acquire(ctx, req)
				note(req, g)
				return g, err
			},
			wait: func(
				ctx context.Context, next *driver, req *backend.Request, b *backend.Busy,
			) (*backend.Grant, error) {
				g, err := next.Wait(ctx, req, b)
				note(req, g)
				return g, err
			},
		}
	}},
	{"readers-end-together", "The release of one reader ends all.", func() *flaw {
		return endingTogether(backend.Shared)
	}},
	{"permits-end-together", "The release of one permit ends all.", func() *flaw {
		return endingTogether(backend.Permit)
	}},
	{"holders-are-broken-together", "Break of one of several holders ends all.", func() *flaw {
		return &flaw{breakLock: func(
			ctx context.Context, next *driver, key, owner string,
		) error {
			info, err := next.Inspect(ctx, key)
			if err == nil && info.Mode != backend.Exclusive {
				owner = ""
			}
			return next.Break(ctx, key, owner)
		}}
	}},
	{"slow-writer", "A writer waits for 15 seconds.", func() *flaw {
		return delaying(backend.Exclusive)
	}},
	{"slow-reader", "A reader that is refused waits for 15 seconds.", func() *flaw {
		return delaying(backend.Shared)
	}},
	{"permit-each-time", "A repeated Acquire takes another permit.", func() *flaw {
		var owners table[bool]
		return &flaw{acquire: func(
			ctx context.Context, next *driver, req *backend.Request,
		) (*backend.Grant, error) {
			again, _ := owners.get(req.Owner)
			owners.set(req.Owner, true)
			if !again || req.Mode != backend.Permit {
				return next.Acquire(ctx, req)
			}
			changed := *req
			changed.Owner = strings.Repeat("f", len(req.Owner))
			g, err := next.Acquire(ctx, &changed)
			if err == nil {
				g = &backend.Grant{Request: *req, Fence: g.Fence, Term: g.Term}
			}
			return g, err
		}}
	}},
	{"one-reader-shown", "Inspect shows one reader of many.", func() *flaw {
		return inspects(func(info *backend.Info) {
			info.Holders = info.Holders[:min(1, len(info.Holders))]
		})
	}},
	{"readers-are-not-renewed", "The renewal of a reader proves nothing.", func() *flaw {
		return &flaw{
			acquire: func(
				ctx context.Context, next *driver, req *backend.Request,
			) (*backend.Grant, error) {
				if req.Mode != backend.Shared {
					return next.Acquire(ctx, req)
				}
				g, err := next.Acquire(ctx, request(req, 400*time.Millisecond))
				if err == nil {
					g = &backend.Grant{Request: *req, Fence: g.Fence, Term: fromNow(req.TTL)}
				}
				return g, err
			},
			renew: func(
				ctx context.Context, next *driver, g *backend.Grant,
			) (backend.Term, error) {
				if g.Mode == backend.Shared {
					return fromNow(g.TTL), nil
				}
				return next.Renew(ctx, g)
			},
		}
	}},
	{"permit-too-many", "A semaphore has more holders than its limit.", func() *flaw {
		return granting(backend.Permit)
	}},
	{
		"limit-ignored", "A request with another limit changes the limit of a semaphore.",
		func() *flaw {
			var limits table[int]
			return &flaw{acquire: func(
				ctx context.Context, next *driver, req *backend.Request,
			) (*backend.Grant, error) {
				changed := *req
				if limit, ok := limits.get(req.Key); ok && req.Mode == backend.Permit {
					changed.Limit = limit
				}
				limits.set(req.Key, changed.Limit)
				return next.Acquire(ctx, &changed)
			}}
		},
	},
	{"conflict-is-mute", "The error of a conflict has neither kind nor limit.", func() *flaw {
		return &flaw{acquire: func(
			ctx context.Context, next *driver, req *backend.Request,
		) (*backend.Grant, error) {
			g, err := next.Acquire(ctx, req)
			if errors.Is(err, backend.ErrConflict) {
				err = backend.ErrConflict
			}
			return g, err
		}}
	}},
	{"fences-by-kind", "Semaphores have higher fences than the other kinds.", func() *flaw {
		return &flaw{acquire: func(
			ctx context.Context, next *driver, req *backend.Request,
		) (*backend.Grant, error) {
			g, err := next.Acquire(ctx, req)
			if err != nil || req.Mode != backend.Permit {
				return g, err
			}
			changed := *g
			changed.Fence += 1 << 20
			return &changed, nil
		}}
	}},
	{"kinds-apart", "A semaphore and a mutex of one name are two locks.", func() *flaw {
		apart := func(req backend.Request) backend.Request {
			if req.Mode == backend.Permit {
				req.Key += "/permits"
			}
			return req
		}
		return &flaw{
			acquire: func(
				ctx context.Context, next *driver, req *backend.Request,
			) (*backend.Grant, error) {
				changed := apart(*req)
				g, err := next.Acquire(ctx, &changed)
				if err == nil {
					g = &backend.Grant{Request: *req, Fence: g.Fence, Term: g.Term}
				}
				return g, err
			},
			release: func(ctx context.Context, next *driver, g *backend.Grant) error {
				return next.Release(ctx, &backend.Grant{Request: apart(g.Request)})
			},
		}
	}},
	{"conflict-for-all", "For a second a conflict is an answer to all attempts.", func() *flaw {
		var conflicts table[time.Time] // by key
		return &flaw{acquire: func(
			ctx context.Context, next *driver, req *backend.Request,
		) (*backend.Grant, error) {
			if last, _ := conflicts.get(req.Key); time.Since(last) < time.Second {
				return nil, backend.ErrConflict
			}
			g, err := next.Acquire(ctx, req)
			if errors.Is(err, backend.ErrConflict) {
				conflicts.set(req.Key, time.Now())
			}
			return g, err
		}}
	}},
	{"permit-lost", "A released permit is not free.", func() *flaw {
		return &flaw{release: func(ctx context.Context, next *driver, g *backend.Grant) error {
			if g.Mode == backend.Permit {
				return nil
			}
			return next.Release(ctx, g)
		}}
	}},
	{
		"late-renewal-takes-a-permit", "A renewal of an expired permit takes another permit.",
		func() *flaw {
			var late table[*backend.Grant] // by key
			return &flaw{
				renew: func(
					ctx context.Context, next *driver, g *backend.Grant,
				) (backend.Term, error) {
					term, err := next.Renew(ctx, g)
					if ctx.Err() != nil {
						late.set(g.Key, g)
					}
					return term, err
				},
				acquire: func(
					ctx context.Context, next *driver, req *backend.Request,
				) (*backend.Grant, error) {
					g, err := next.Acquire(ctx, req)
					if old, _ := late.get(req.Key); old != nil && err == nil {
						late.set(req.Key, nil)
						_, _ = next.Acquire(ctx, request(&old.Request, 10*time.Minute))
					}
					return g, err
				},
			}
		},
	},
	{"slow-release", "Of several locks that are freed, one is free after 10 s.", func() *flaw {
		var freed table[bool] // by key
		return &flaw{
			acquire: func( // so that LockAll acquires its locks one by one
				ctx context.Context, next *driver, req *backend.Request,
			) (*backend.Grant, error) {
				return next.Acquire(ctx, req)
			},
			release: func(ctx context.Context, next *driver, g *backend.Grant) error {
				again, _ := freed.get(g.Key)
				if !again && strings.HasSuffix(g.Key, "/0") {
					freed.set(g.Key, true)
					time.Sleep(10 * time.Second)
				}
				return next.Release(context.WithoutCancel(ctx), g)
			},
		}
	}},
	{"half-taken", "Of several locks that are freed, one stays locked.", func() *flaw {
		return &flaw{release: func(ctx context.Context, next *driver, g *backend.Grant) error {
			if strings.HasSuffix(g.Key, "/0") {
				return nil
			}
			return next.Release(ctx, g)
		}}
	}},
	{"permits-last", "The permit of a dead holder stays taken.", func() *flaw {
		return &flaw{acquire: func(
			ctx context.Context, next *driver, req *backend.Request,
		) (*backend.Grant, error) {
			if req.Mode != backend.Permit {
				return next.Acquire(ctx, req)
			}
			g, err := next.Acquire(ctx, request(req, time.Hour))
			if err == nil {
				g = &backend.Grant{Request: *req, Fence: g.Fence, Term: fromNow(req.TTL)}
			}
			return g, err
		}}
	}},
}

// endingTogether returns a flaw that ends all grants with the release of one grant in a mode.
func endingTogether(mode backend.Mode) *flaw {
	return &flaw{release: func(ctx context.Context, next *driver, g *backend.Grant) error {
		err := next.Release(ctx, g)
		if breaker, ok := next.Driver.(backend.Breaker); ok && g.Mode == mode {
			_ = breaker.Break(ctx, g.Key, "")
		}
		return err
	}}
}

// delaying returns a flaw that refuses a waiter in a mode for 15 seconds after its first refusal.
// On a slow machine seconds pass between this refusal and the release.
func delaying(mode backend.Mode) *flaw {
	var refused table[time.Time] // by owner
	return &flaw{
		acquire: func(
			ctx context.Context, next *driver, req *backend.Request,
		) (*backend.Grant, error) {
			since, isWaiter := refused.get(req.Owner)
			if isWaiter && time.Since(since) < 15*time.Second {
				return nil, &backend.Busy{RetryAfter: 10 * time.Millisecond}
			}
			g, err := next.Acquire(ctx, req)
			if errors.Is(err, backend.ErrNotAcquired) && req.Mode == mode && !isWaiter {
				refused.set(req.Owner, time.Now())
			}
			return g, err
		},
		wait: func(
			ctx context.Context, next *driver, req *backend.Request, b *backend.Busy,
		) (*backend.Grant, error) {
			if req.Mode != mode {
				return next.Wait(ctx, req, b)
			}
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(10 * time.Millisecond):
				return nil, nil
			}
		},
	}
}

// granting returns a flaw that grants each request in a mode that the server has refused.
func granting(mode backend.Mode) *flaw {
	return &flaw{acquire: func(
		ctx context.Context, next *driver, req *backend.Request,
	) (*backend.Grant, error) {
		g, err := next.Acquire(ctx, req)
		if req.Mode == mode && errors.Is(err, backend.ErrNotAcquired) {
			return granted(req), nil
		}
		return g, err
	}}
}

// granted returns a grant that the server has not given.
func granted(req *backend.Request) *backend.Grant {
	return &backend.Grant{Request: *req, Term: fromNow(req.TTL), Fence: 1}
}
