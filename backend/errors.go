package backend

import "errors"

// The sentinels that drivers return; dlock exports them under the same identity.
// A driver wraps them with %w around the server's error and leaves any further
// wrapping to the core.
//
// These are the usual failures of a server and their sentinels:
//
//	a closed port, a wrong password, no permission, a missing database    ErrUnavailable
//	a server of the wrong kind or too old, a setting that excludes locks  ErrUnsupported
//	a foreign table, node or value in the place of a lock                 ErrConflict
//	a request that was rolled back or refused before it was executed      ErrUnavailable
//	a refusal that repeats each time, such as a full disk or quota        ErrUnavailable
//	a connection that ended before the answer, a timeout                  none: unknown outcome
//
// A refusal that is permanent, such as a wrong password, is ErrUnavailable, too:
// the core retries for a term, and an operator may repair it in that time.
//
// A driver maps the errors of its client library in one function, which has a
// table test:
//
//	func interpretError(err error) error {
//		switch {
//		case err == nil,
//			errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
//			return err
//		case isRefused(err): // certainly not executed
//			return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
//		case isWrongType(err):
//			return fmt.Errorf("%w: %w", backend.ErrConflict, err)
//		}
//		return err // unknown
//	}
//
// Context errors are returned as they are. Both errors are wrapped with %w, so
// that an application can find the client library's own error.
var (
	// ErrNotAcquired means that the lock is taken. [*Busy] wraps it. Definite.
	ErrNotAcquired = errors.New("dlock: lock not acquired")
	// ErrLost means that the grant is gone without a release. Definite.
	ErrLost = errors.New("dlock: lock lost")
	// ErrNotHeld means that there is nothing to release or to break. Definite.
	ErrNotHeld = errors.New("dlock: lock not held")
	// ErrInvalidName means that a name breaks the rules for names. Definite.
	ErrInvalidName = errors.New("dlock: invalid lock name")
	// ErrUnsupported means that the backend cannot do what is required. Definite.
	ErrUnsupported = errors.New("dlock: not supported by this backend")
	// ErrUnavailable means that the server could not be reached: the request was
	// certainly not executed. Definite, and another attempt may succeed later.
	ErrUnavailable = errors.New("dlock: backend unavailable")
	// ErrUncertain means that the outcome of a request is unknown. The core adds
	// it; drivers return the client library's error as it is.
	ErrUncertain = errors.New("dlock: outcome unknown")
	// ErrConflict means that the name is in use for something else: another kind
	// of lock, another limit, or a foreign value. Definite.
	ErrConflict = errors.New("dlock: name in use for something else")
	// ErrClosed means that the client was closed.
	ErrClosed = errors.New("dlock: client closed")
)
