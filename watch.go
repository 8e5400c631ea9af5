package dlock

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/engine"
)

const (
	// watchInterval is how often Observe inspects a lock of a backend that reports no changes.
	watchInterval = 250 * time.Millisecond
	// watchedInterval is the same for a backend that reports changes: a report may be missing.
	watchedInterval = 10 * time.Second
)

// Observe returns the state of a lock now, and then each change of its holders: for an election,
// the present leader and each new one. Changes that follow each other quickly may come as one. A
// renewal and a Downgrade are no changes. After an error the next state is yielded even if it is
// the last one again.
//
// The backend reports the changes where it can; otherwise Observe inspects the lock every 250 ms.
// It sends requests only while the loop runs, and blocks in between. The loop ends when ctx ends,
// without an error. While the server does not answer, the loop goes on, with a pause after each
// error: a caller that does not want to wait leaves the loop at an error. It ends after
// ErrUnsupported, if the backend cannot inspect locks, after ErrInvalidName, and after ErrClosed.
// The body of the loop may use the client, and may close it.
func (c *Client) Observe(ctx context.Context, name string) iter.Seq2[*backend.Info, error] {
	return func(yield func(*backend.Info, error) bool) {
		if err := c.observe(ctx, name, yield); err != nil {
			yield(nil, c.wrap("observe", name, err))
		}
	}
}

// observe yields the changes of a lock until ctx ends, and returns an error to end with.
func (c *Client) observe(
	ctx context.Context, name string, yield func(*backend.Info, error) bool,
) error {
	if c.inspector == nil || !c.caps.Inspect {
		return ErrUnsupported
	}
	if err := validate(name); err != nil {
		return err
	}
	loop, err := c.engine.EnterLoop(ctx)
	switch {
	case err != nil && ctx != nil && engine.ContextError(ctx) != nil:
		return nil
	case err != nil:
		return err
	}
	defer loop.Leave()
	changed, stop := c.engine.Watch(ctx, &engine.Lock{Name: name, Key: c.prefix + name})
	defer stop()
	interval := watchInterval
	if changed != nil {
		interval = watchedInterval
	}
	var last holders // of the last Info that was yielded
	known := false   // whether it was; not after an error
	for failures := 0; engine.ContextError(ctx) == nil; {
		info, err := c.inspect(ctx, name)
		isNews := true
		if failures++; err == nil {
			now := holdersOf(info)
			isNews = !known || !last.equals(now)
			last, failures = now, 0
		}
		known = err == nil
		switch {
		case engine.ContextError(ctx) != nil:
			return nil
		case errors.Is(err, ErrClosed), errors.Is(err, ErrUnsupported):
			return err
		}
		if isNews {
			more, err := loop.Yield(func() bool {
				return yield(info, c.wrap("observe", name, err))
			})
			if !more {
				return nil
			}
			if err != nil {
				return err
			}
		}
		if failures > 0 {
			c.engine.Pause(ctx, failures-1, watchedInterval/2)
		} else {
			c.engine.Sleep(ctx, changed, interval)
		}
	}
	return nil
}

// holders are what Observe compares, in the order of their owners: a renewal and a Downgrade change
// neither the owner nor the fence. They share no memory with an Info, which the user may change.
type holders []backend.Holder

// holdersOf returns the holders that info shows.
func holdersOf(info *backend.Info) holders {
	return slices.SortedFunc(slices.Values(info.Holders), func(a, b backend.Holder) int {
		return strings.Compare(a.Owner, b.Owner)
	})
}

func (h holders) equals(other holders) bool {
	return slices.EqualFunc(h, other, func(a, b backend.Holder) bool {
		return a.Owner == b.Owner && a.Fence == b.Fence
	})
}
