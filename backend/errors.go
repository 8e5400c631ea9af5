package backend

import "errors"

// The sentinels that drivers return and that dlock hands on under the same
// identity. A driver wraps them with %w around what the server said and leaves
// the rest of the wrapping to the core.
//
// What the server says, and the sentinel for it:
//
//	a closed port, a wrong password, no permission, a missing database   ErrUnavailable
//	a server of the wrong kind or too old, a setting that rules locks out ErrUnsupported
//	a table, a node or a value in the place of a lock that is not dlock's ErrConflict
//	a request that was rolled back or refused before it was executed      ErrUnavailable
//	a refusal that repeats each time, such as a full disk or quota        ErrUnavailable
//	a connection that ended before the answer, a timeout                  none: the outcome is unknown
//
// A refusal that can not change, such as a wrong password, is ErrUnavailable, too: the
// core tries for a term, and an operator may repair it meanwhile.
var (
	// ErrNotAcquired says that the lock is taken. A [*Busy] is one.
	ErrNotAcquired = errors.New("dlock: lock not acquired")
	// ErrLost says that the grant is gone although nobody released it. Definite.
	ErrLost = errors.New("dlock: lock lost")
	// ErrNotHeld says that there is nothing to release or to break. Definite.
	ErrNotHeld = errors.New("dlock: lock not held")
	// ErrInvalidName says that a name breaks the rules for names.
	ErrInvalidName = errors.New("dlock: invalid lock name")
	// ErrUnsupported says that the backend cannot do what was asked. Definite.
	ErrUnsupported = errors.New("dlock: not supported by this backend")
	// ErrUnavailable says that the server could not be asked: the request was
	// certainly not executed. Definite, and worth another try later.
	ErrUnavailable = errors.New("dlock: backend unavailable")
	// ErrUncertain says that the outcome of a request is unknown.
	ErrUncertain = errors.New("dlock: outcome unknown")
	// ErrConflict says that the name is in use for something else: another kind
	// of lock, another limit, or a value that is not dlock's. Definite.
	ErrConflict = errors.New("dlock: name in use for something else")
	// ErrClosed says that the client was closed.
	ErrClosed = errors.New("dlock: client closed")
)
