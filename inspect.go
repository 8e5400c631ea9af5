package dlock

import (
	"context"
	"errors"
	"iter"
	"strings"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/engine"
)

// Inspect returns the holders of a lock. A free lock is an Info without holders. The result
// may be out of date when it arrives: use it for people, not for decisions. It blocks until
// ctx ends, for 5 s at most. It returns ErrUnsupported if the backend cannot inspect locks.
//
// Info.Key is the name without the prefix of the client. The goroutines that wait in one client
// are one waiter. The fence of a Holder can be lower than its [Lease.Fence], by the number of the
// local hand-off, because the server is not informed of it.
func (c *Client) Inspect(ctx context.Context, name string) (*backend.Info, error) {
	info, err := c.inspect(ctx, name)
	return info, c.wrap("inspect", name, err)
}

// inspect is Inspect without the wrapping of errors.
func (c *Client) inspect(ctx context.Context, name string) (*backend.Info, error) {
	if c.inspector == nil || !c.caps.Inspect {
		return nil, ErrUnsupported
	}
	if err := validate(name); err != nil {
		return nil, err
	}
	if err := c.engine.Enter(ctx); err != nil {
		return nil, err
	}
	defer c.engine.Leave()
	bound := c.engine.Bound(ctx)
	defer bound.Cancel()
	info, err := c.inspector.Inspect(bound, c.prefix+name)
	if err == nil && info == nil {
		err = engine.ErrNothing
	}
	if err != nil {
		return nil, c.engine.ReadError(ctx, err)
	}
	info.Key = name
	return info, nil
}

// List returns every lock that is held or waited for and whose name starts with prefix, in
// no particular order. A lock that changes during the loop may or may not be included. An
// error ends the sequence; it is ErrUnsupported if the backend cannot list locks, and
// ErrClosed if the client is closed meanwhile. The body of the loop may use the client, and
// may close it.
//
// An empty prefix selects all locks with the prefix of the client. The requests are sent during
// the loop, and only ctx limits them. Each loop over the sequence lists the locks again.
func (c *Client) List(ctx context.Context, prefix string) iter.Seq2[*backend.Info, error] {
	return func(yield func(*backend.Info, error) bool) {
		if c.inspector == nil || !c.caps.List {
			yield(nil, c.wrap("list", prefix, ErrUnsupported))
			return
		}
		loop, err := c.enterList(ctx, prefix)
		if err != nil {
			yield(nil, c.wrap("list", prefix, err))
			return
		}
		defer loop.Leave()
		for info, err := range c.inspector.List(ctx, c.prefix+prefix) {
			if err == nil && info == nil {
				err = engine.ErrNothing
			}
			if err != nil {
				err = c.wrap("list", prefix, c.engine.ReadError(ctx, err))
				_, _ = loop.Yield(func() bool { return yield(nil, err) })
				return
			}
			info.Key = strings.TrimPrefix(info.Key, c.prefix)
			more, err := loop.Yield(func() bool { return yield(info, nil) })
			if more && err != nil {
				_, _ = loop.Yield(func() bool { return yield(nil, c.wrap("list", prefix, err)) })
			}
			if !more || err != nil {
				return
			}
		}
	}
}

// enterList checks the arguments of List and begins the call.
func (c *Client) enterList(ctx context.Context, prefix string) (*engine.Loop, error) {
	if prefix != "" {
		if err := validate(prefix); err != nil {
			return nil, err
		}
	}
	return c.engine.EnterLoop(ctx)
}

// Break takes a lock from its holder. If owner is not empty, it does so only if owner holds the
// lock; with an empty owner, all readers or all permits lose it. An owner from [Client.Inspect] or
// [Lease.Owner] protects a holder that came in the meantime. The holder's lease ends at once where
// the server can push, and otherwise at its next renewal, so the next holder may overlap with the
// work of the former one. Break ignores a lock-delay. It blocks until ctx ends, for 5 s at most.
//
// It returns ErrNotHeld if the lock is free or if owner does not hold it, ErrUncertain if
// the server did not answer, and ErrUnsupported if the backend cannot break locks.
func (c *Client) Break(ctx context.Context, name, owner string) error {
	return c.wrap("break", name, c.breakLock(ctx, name, owner))
}

// breakLock is Break without the wrapping of errors.
func (c *Client) breakLock(ctx context.Context, name, owner string) error {
	if c.breaker == nil || !c.caps.Break {
		return ErrUnsupported
	}
	if err := validate(name); err != nil {
		return err
	}
	if err := c.engine.Enter(ctx); err != nil {
		return err
	}
	defer c.engine.Leave()
	bound := c.engine.Bound(ctx)
	defer bound.Cancel()
	err := c.breaker.Break(bound, c.prefix+name, owner)
	if errors.Is(err, ErrNotHeld) {
		return err
	}
	return c.engine.RequestError(ctx, err)
}
