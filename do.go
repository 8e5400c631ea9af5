package dlock

import (
	"context"
	"errors"
)

// Do acquires the lock, calls fn on the caller's goroutine with the lease's context, and
// unlocks, also if fn panics or calls runtime.Goexit.
//
// The context of fn ends with ctx and with the lease. Do then still waits until fn returns, so
// fn has to watch its context, and must stop writing when it ends. fn may call Unlock itself.
// When Do returns, the lease has ended. The lock can still be taken then, because of a minimum
// hold or because the server did not answer; see [Lease.Unlock].
//
// It returns fn's error. If the lease ended before fn returned, the error is joined with
// the reason, which wraps ErrLost or ErrClosed, even if fn returned nil. A failed Unlock is
// logged and not returned. If the lock is not acquired, fn is not called and Do returns the
// error of Lock.
func (c *Client) Do(
	ctx context.Context, name string, fn func(context.Context, *Lease) error, opts ...Option,
) error {
	lease, err := c.Lock(ctx, name, opts...)
	if err != nil {
		return err
	}
	return lease.run(ctx, fn)
}

// TryDo is Do, but it returns ErrNotAcquired at once if the lock is taken.
func (c *Client) TryDo(
	ctx context.Context, name string, fn func(context.Context, *Lease) error, opts ...Option,
) error {
	lease, err := c.TryLock(ctx, name, opts...)
	if err != nil {
		return err
	}
	return lease.run(ctx, fn)
}

// run calls fn with a context of l, and unlocks l in any case. Err is read before Unlock, so
// that a Close that begins after fn has returned does not count as an end of the lease during fn.
func (l *Lease) run(ctx context.Context, fn func(context.Context, *Lease) error) (err error) {
	leaseCtx, cancel := l.Context(ctx)
	defer cancel()
	defer func() {
		ended := l.Err()
		unlockErr := l.Unlock(ctx)
		if ended == nil && errors.Is(unlockErr, ErrLost) {
			ended = l.ref.Lease().Err()
		}
		if ended != nil && !errors.Is(ended, ErrNotHeld) {
			err = errors.Join(err, l.client.wrap("do", l.Name(), ended))
		} else if unlockErr != nil && !errors.Is(unlockErr, ErrNotHeld) { // fn may unlock
			l.ref.Lease().Warn("dlock: unlock failed", unlockErr)
		}
	}()
	return fn(leaseCtx, l)
}
