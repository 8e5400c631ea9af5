package dlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dlock-go/dlock/internal/engine"
)

// maxElectPause limits the pause before Elect stands again.
const maxElectPause = 5 * time.Second

// Elect stands for election under name until ctx ends. While this client leads, Elect calls lead on
// the caller's goroutine, with the lease and its context. Of all clients that stand, at most one
// leads at a time.
//
// When the lease is lost, the context of lead ends. lead must return soon after that, because the
// next leader may begin. Elect then stands again, whatever lead returned. If lead returns nil while
// it leads, Elect resigns, pauses for about 50 ms, so that another client can lead, and stands
// again. If lead returns an error while it leads, Elect resigns and returns the error.
//
// A leader whose machine is stopped can overlap with the next leader when it continues. The fence
// of its lease lets a resource refuse its writes, as with any lock.
//
// If the server cannot be reached, Elect keeps trying with backoff: the pauses grow to a tenth of
// the TTL, and to 5 s at most. It returns ctx's error when ctx has ended, ErrClosed if the client
// was closed, and otherwise the errors of [Client.Mutex] and the definite errors of [Mutex].Lock,
// such as ErrConflict. It takes the options of [Client.Mutex]; an election takes no part in local
// hand-offs.
func (c *Client) Elect(
	ctx context.Context, name string, lead func(context.Context, *Lease) error, opts ...Option,
) error {
	if ctx == nil || lead == nil {
		return c.wrap("elect", name, errors.New("the context or the function is nil"))
	}
	m, err := c.mutex(name, append(slices.Clone(opts), WithLocalHandoff(0)))
	if err != nil {
		return err
	}
	for failures := 0; ; failures++ {
		lease, err := m.acquire(ctx, "elect", true)
		switch {
		case err == nil:
			failures = 0
			err = lease.lead(ctx, lead)
		case isTemporary(err), isEnd(ctx, err):
			err = nil
		}
		if ended := engine.ContextError(ctx); ended != nil {
			return errors.Join(c.wrap("elect", name, ended), err)
		}
		if err != nil {
			return err
		}
		c.engine.Pause(ctx, failures, min(m.lock.MaxPause(), maxElectPause))
	}
}

// lead calls fn as the leader, and unlocks. It returns the error of a leader that was not deposed,
// or ErrClosed.
func (l *Lease) lead(ctx context.Context, fn func(context.Context, *Lease) error) error {
	var failure error // of a leader that leads
	deposed := false
	err := l.run(ctx, func(ctx context.Context, l *Lease) error {
		err := fn(ctx, l)
		if deposed = errors.Is(l.Err(), ErrLost); !deposed {
			failure = err
		}
		return err
	})
	if deposed || failure == nil && errors.Is(err, ErrLost) { // Unlock may be the first to notice
		return nil
	}
	return err
}

// isTemporary reports whether a Lock that failed with err may succeed later.
func isTemporary(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUncertain)
}

// isEnd reports whether a Lock failed with err because ctx has ended.
func isEnd(ctx context.Context, err error) bool {
	return engine.ContextError(ctx) != nil &&
		(errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded))
}
