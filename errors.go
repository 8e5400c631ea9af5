package dlock

import (
	"fmt"
	"strings"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/key"
)

// The sentinel errors of this package. Test for them with errors.Is. Drivers wrap the same
// values.
var (
	// ErrNotAcquired means that the lock is taken and the call does not wait. A Lock that waits
	// returns it only if its context has a lease of the same name: see WithReentrant.
	ErrNotAcquired = backend.ErrNotAcquired
	// ErrLost means that the lease has ended, or may have, without an Unlock. The text of
	// the wrapping error gives the reason. Another client may hold the lock already, so the work
	// under the lease must stop. Another Lock may succeed.
	ErrLost = backend.ErrLost
	// ErrNotHeld means that there is nothing to unlock or to break. It is also the reason of the
	// end of a lease that was unlocked, so a context of such a lease has it as its cause.
	ErrNotHeld = backend.ErrNotHeld
	// ErrInvalidName means that the name is empty, longer than 512 bytes, not valid UTF-8,
	// or has control characters.
	ErrInvalidName = backend.ErrInvalidName
	// ErrUnsupported means that the backend cannot do what is required. Another attempt fails, too.
	ErrUnsupported = backend.ErrUnsupported
	// ErrUnavailable means that the server could not be reached, or did not answer in time, or
	// refused the request. A Lock that returns it has no lease; another one may succeed later.
	ErrUnavailable = backend.ErrUnavailable
	// ErrUncertain means that a request was sent and its outcome is unknown. The client
	// cleans up in the background until the lock is certainly released.
	ErrUncertain = backend.ErrUncertain
	// ErrConflict means that the name is in use for something else on the server, such as a
	// value that is not a lock of this module, or a semaphore with another limit. Another attempt
	// fails until the other use has ended.
	ErrConflict = backend.ErrConflict
	// ErrClosed means that the client was closed. Another Client is necessary for another attempt.
	ErrClosed = backend.ErrClosed
)

// Error is the error type of this package. Op is the operation, such as "lock"; Backend is
// the kind of backend, such as "redis"; Name is the lock, or empty. Err wraps a sentinel
// and the client library's own error, which errors.Is and errors.As find. No text contains
// a credential.
//
// If the caller's context ended the call, Err wraps the error of that context instead of a
// sentinel, or in addition to one. A request that exceeds a limit of the client's
// own is ErrUnavailable or ErrUncertain instead.
type Error struct {
	Op, Backend, Name string
	Err               error
}

// Error returns one line. A name is cut after 64 characters; the field Name has all of it.
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

// wrap puts err into an *Error. It returns nil if err is nil.
func (c *Client) wrap(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Backend: c.backend, Name: name, Err: err}
}

// validate checks the name of a caller, before any request. Drivers rely on it: a name that they
// receive is valid, and they encode only what their server cannot store.
func validate(name string) error {
	if err := key.Validate(name); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidName, err)
	}
	return nil
}
