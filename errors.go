package dlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// The errors of this package; ask for them with errors.Is.
var (
	// ErrNotAcquired: the lock is taken and the call does not wait.
	ErrNotAcquired = backend.ErrNotAcquired
	// ErrLost: the lease has ended, or may have, although nobody unlocked it.
	ErrLost = backend.ErrLost
	// ErrNotHeld: there is nothing to unlock or to break.
	ErrNotHeld = backend.ErrNotHeld
	// ErrInvalidName: the name is empty, longer than 512 bytes, not valid UTF-8 or
	// has control characters.
	ErrInvalidName = backend.ErrInvalidName
	// ErrUnsupported: the backend cannot do what is asked.
	ErrUnsupported = backend.ErrUnsupported
	// ErrUnavailable: the server could not be reached, or did not answer in time.
	ErrUnavailable = backend.ErrUnavailable
	// ErrUncertain: a request was sent and its outcome is unknown. The client goes
	// on behind the caller until the lock is certainly released.
	ErrUncertain = backend.ErrUncertain
	// ErrConflict: the name is in use for something else on the server.
	ErrConflict = backend.ErrConflict
	// ErrClosed: the client was closed.
	ErrClosed = backend.ErrClosed
)

// Error is what the methods of this package return: what was attempted, on
// which kind of backend and for which name. Its text carries no credential. Err,
// and through it the client library's own error, is reachable with errors.Is and
// errors.As.
type Error struct {
	Op, Backend, Name string
	Err               error
}

// Error returns one line; a long name is cut.
func (e *Error) Error() string {
	text := "dlock: " + e.Op
	if e.Name != "" {
		text += fmt.Sprintf(" %.64q", e.Name)
	}
	if e.Backend != "" {
		text += " (" + e.Backend + ")"
	}
	return text + ": " + strings.ReplaceAll(e.Err.Error(), "dlock: ", "")
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// wrap puts err into an *Error, once.
func (c *Client) wrap(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Backend: c.backend, Name: name, Err: err}
}

// isDefinite tells whether err is a definite answer of a driver to Acquire.
func isDefinite(err error) bool {
	return errors.Is(err, ErrNotAcquired) || errors.Is(err, ErrUnsupported) ||
		errors.Is(err, ErrConflict) || errors.Is(err, ErrLost)
}

// endOf says why ctx ended: its error, and its cause where that tells more.
func endOf(ctx context.Context) error {
	err, cause := ended(ctx), context.Cause(ctx)
	if cause == nil || errors.Is(err, cause) {
		return err
	}
	if errors.Is(cause, ErrClosed) || errors.Is(cause, ErrLost) || errors.Is(cause, ErrNotHeld) {
		return fmt.Errorf("%w: %s", err, cause.Error()) // of the lease that ctx comes from, not of this call
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// ended is ctx.Err, but for a deadline that has come and whose timer has not: a socket
// with the same deadline may have been first.
func ended(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ctx.Err() == nil && ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// unanswered says in the caller's terms why a request ended without an answer: a
// caller shall see the end of no context but its own, and not that of our bounds.
func (c *Client) unanswered(ctx context.Context, err error) error {
	switch {
	case ended(ctx) != nil:
		return endOf(ctx)
	case errors.Is(err, context.Canceled) && c.lifecycle.closing.Err() != nil:
		return ErrClosed
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: no answer in time", ErrUnavailable)
	}
	return err
}

// uncertain marks err as the error of a request whose outcome is unknown.
func uncertain(err error) error { return fmt.Errorf("%w: %w", ErrUncertain, err) }

// unavailable marks err as the error of a server that gave no answer.
func unavailable(err error) error {
	if errors.Is(err, ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
