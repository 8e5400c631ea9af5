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

// run calls fn with a context of l, and unlocks l in any case, also if ctx panics.
func (l *Lease) run(ctx context.Context, fn func(context.Context, *Lease) error) (err error) {
	cancel := func() {}
	defer func() { cancel() }()
	defer func() { err = l.finish(ctx, err) }()
	leaseCtx, end := l.Context(ctx)
	cancel = end
	return fn(leaseCtx, l)
}

// finish unlocks l and returns the error of Do, whose function returned err. Err is read before
// Unlock, so that a Close that begins after the function has returned does not count as an end of
// the lease during it. The reason of a loss may wrap ErrNotHeld, too: that of the server.
func (l *Lease) finish(ctx context.Context, err error) error {
	ended, returned := l.Err(), false
	defer func() {
		if !returned { // ctx has panicked
			_ = l.Unlock(context.Background())
		}
	}()
	unlockErr := l.Unlock(ctx)
	returned = true
	if ended == nil && errors.Is(unlockErr, ErrLost) {
		ended = l.ref.Lease().Err()
	}
	switch {
	case errors.Is(ended, ErrLost), ended != nil && !errors.Is(ended, ErrNotHeld):
		return errors.Join(err, l.client.wrap("do", l.Name(), ended))
	case unlockErr != nil && !errors.Is(unlockErr, ErrNotHeld): // fn may unlock
		l.ref.Lease().Warn("dlock: unlock failed", unlockErr)
	}
	return err
}
