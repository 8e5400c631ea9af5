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
	// ErrNotAcquired means that the lock is taken and the call does not wait.
	ErrNotAcquired = backend.ErrNotAcquired
	// ErrLost means that the lease has ended, or may have, without an Unlock. The text of
	// the wrapping error gives the reason.
	ErrLost = backend.ErrLost
	// ErrNotHeld means that there is nothing to unlock or to break.
	ErrNotHeld = backend.ErrNotHeld
	// ErrInvalidName means that the name is empty, longer than 512 bytes, not valid UTF-8,
	// or has control characters.
	ErrInvalidName = backend.ErrInvalidName
	// ErrUnsupported means that the backend cannot do what is required.
	ErrUnsupported = backend.ErrUnsupported
	// ErrUnavailable means that the server could not be reached, or did not answer in time.
	ErrUnavailable = backend.ErrUnavailable
	// ErrUncertain means that a request was sent and its outcome is unknown. The client
	// cleans up in the background until the lock is certainly released.
	ErrUncertain = backend.ErrUncertain
	// ErrConflict means that the name is in use for something else on the server, such as a
	// value that is not a lock of this module.
	ErrConflict = backend.ErrConflict
	// ErrClosed means that the client was closed.
	ErrClosed = backend.ErrClosed
)

// Error is the error type of this package. Op is the operation, such as "lock"; Backend is
// the kind of backend, such as "redis"; Name is the lock, or empty. Err wraps a sentinel
// and the client library's own error, which errors.Is and errors.As find. No text contains
// a credential.
type Error struct {
	Op, Backend, Name string
	Err               error
}

// Error returns one line. A long name is cut.
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

// validate checks the name of a caller.
func validate(name string) error {
	if err := key.Validate(name); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidName, err)
	}
	return nil
}
