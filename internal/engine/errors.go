package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/backend"
)

var (
	errHeldHere = fmt.Errorf("%w: it is held or waited for in this client",
		backend.ErrNotAcquired)
	errReentrant = fmt.Errorf("%w: this context holds it already, and not both locks are "+
		"WithReentrant", backend.ErrNotAcquired)
	errUpgrade = fmt.Errorf("%w: this context holds a read lease of the name, and would wait for "+
		"itself", backend.ErrNotAcquired)
	errBroken    = errors.New("the grant was lost before its waiter had it")
	errTakenBack = fmt.Errorf("%w: %w", backend.ErrNotAcquired, errBroken)
	errSilent    = fmt.Errorf("%w: the server has not answered for a TTL", backend.ErrUnavailable)
	errLate      = fmt.Errorf("%w: the term was over when its grant arrived",
		backend.ErrUnavailable)
	errAdoptedLate = fmt.Errorf("%w: the term was over when the adopted grant arrived",
		backend.ErrLost)
	errGhost = fmt.Errorf("%w: a request of its Lock may still be executed, so it cannot be "+
		"exported yet", backend.ErrUnavailable)
	errTermOver    = fmt.Errorf("%w: not renewed before its deadline", backend.ErrLost)
	errMaxHoldOver = fmt.Errorf("%w: its maximum hold is over", backend.ErrLost)
	errNoWriter    = errors.New("it is not the lease of a writer")
	errShared      = errors.New("another lease stands on the same grant")
	errMoving      = errors.New("a Downgrade or an Export of it is under way")
	errEitherMode  = errors.New("a Downgrade of it had no answer; call Downgrade again")
	errNilContext  = errors.New("the context is nil")
	errGoexit      = errors.New("it ended its goroutine")
	errAborted     = errors.New("the driver did not return")
	errNoAnswer    = errors.New("no answer in time")

	errReleaseAborted = Uncertain(errAborted) // made once: each release begins with it
)

// ErrNothing is the error of a driver that returned neither a result nor an error.
var ErrNothing = errors.New("the driver returned neither a result nor an error")

// exhaustedError is the error of a waiter after a TTL without an answer.
type exhaustedError struct{ error }

func (e *exhaustedError) Unwrap() error { return e.error }

func isExhausted(err error) bool {
	_, exhausted := errors.AsType[*exhaustedError](err)
	return exhausted
}

func panicError(value any) error {
	if err, ok := value.(error); ok {
		return fmt.Errorf("it panicked: %w", err)
	}
	return fmt.Errorf("it panicked: %v", value)
}

func isLost(err error) bool { return errors.Is(err, backend.ErrLost) }

// IsDefinite reports whether err is a definite answer of a driver to Acquire.
func IsDefinite(err error) bool {
	return errors.Is(err, backend.ErrNotAcquired) || errors.Is(err, backend.ErrUnsupported) ||
		errors.Is(err, backend.ErrConflict) || errors.Is(err, backend.ErrInvalidName) || isLost(err)
}

// isUnknown reports whether the outcome of a request that failed with err is unknown.
func isUnknown(err error) bool {
	return err != nil && !IsDefinite(err) && !errors.Is(err, backend.ErrUnavailable)
}

// isFinal reports whether err rules out that another attempt succeeds.
func isFinal(err error) bool {
	_, busy := errors.AsType[*backend.Busy](err)
	return isExhausted(err) || IsDefinite(err) && !busy
}

// ContextError returns why ctx ended: its error, and its cause if there is another one. It
// returns nil if ctx has not ended.
func ContextError(ctx context.Context) error {
	err, cause := ended(ctx), context.Cause(ctx)
	if err == nil || cause == nil || errors.Is(err, cause) {
		return err
	}
	if errors.Is(cause, backend.ErrClosed) || isLost(cause) ||
		errors.Is(cause, backend.ErrNotHeld) {
		// The cause is of the parent lease of ctx, not of this call.
		return fmt.Errorf("%w: %s", err, cause.Error())
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// ended is ctx.Err, but it also reports a deadline that has passed before its timer has fired: a
// socket with the same deadline may have been first.
func ended(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ctx.Err() == nil && ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// Unanswered returns the error of a request without an answer, in the caller's terms. It never
// exposes internal timeouts.
func (e *Engine) Unanswered(ctx context.Context, err error) error {
	switch {
	case ended(ctx) != nil:
		return ContextError(ctx)
	case errors.Is(err, context.Canceled) && e.closing.Err() != nil:
		return backend.ErrClosed
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %w", backend.ErrUnavailable, errNoAnswer)
	}
	return err
}

// Uncertain wraps err for a request with an unknown outcome.
func Uncertain(err error) error { return fmt.Errorf("%w: %w", backend.ErrUncertain, err) }

// Unavailable wraps err for a server that did not answer.
func Unavailable(err error) error {
	if errors.Is(err, backend.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
}
