package zkbackend

import (
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
)

var (
	// errForeign is the answer if the lock's node holds no name or another one.
	errForeign = fmt.Errorf("%w: the node under the key is not dlock's, or another name's",
		backend.ErrConflict)

	// errExpired ends a session that the server has ended.
	errExpired = fmt.Errorf("%w: the server has ended the session", backend.ErrLost)

	// errShortened ends a session to which another server grants a shorter timeout.
	errShortened = fmt.Errorf("%w: the server has shortened the session's timeout", backend.ErrLost)

	// errDeleted is the loss of a holder whose node no longer exists.
	errDeleted = fmt.Errorf("%w: its node was deleted", backend.ErrLost)

	// errNotOfSession is the loss of a grant that the present session does not have.
	errNotOfSession = fmt.Errorf("%w: this session does not hold it", backend.ErrLost)

	// errReleased is the answer to an attempt that waited its turn while the acquisition was
	// released.
	errReleased = fmt.Errorf("%w: the acquisition was released meanwhile", backend.ErrUnavailable)

	// errRemoving is the answer to an attempt whose node may be removed by an earlier request. The
	// core continues with another owner.
	errRemoving = fmt.Errorf("%w: an earlier request may still remove its node", backend.ErrLost)

	// errEntryDeleted means that a waiter's node no longer exists. The next attempt creates
	// another.
	errEntryDeleted = errors.New("the node was deleted")

	// errTooFast is the answer if a queue changes after each list of it.
	errTooFast = fmt.Errorf("%w: the lock changes its holder too fast", backend.ErrUnavailable)

	// errUnwatched leaves the outcome of a renewal open: the node is not watched at the moment, so
	// it may no longer exist.
	errUnwatched = errors.New("the node is being watched again")

	// errMalformed closes a connection whose answers the client library cannot handle.
	errMalformed = errors.New("the answer does not come from a ZooKeeper server")

	// errMeasured ends the session that measured the server's tick.
	errMeasured = errors.New("the session was for its timeout only")
)

// refusals are errors of requests that were certainly not executed.
var refusals = []error{
	zk.ErrNoServer, // of requests that were never sent
	zk.ErrNoAuth,
	zk.ErrAuthFailed,
	zk.ErrInvalidACL,
	zk.ErrSessionExpired,
	zk.ErrSessionMoved,
	zk.ErrNoNode, // of a parent node; where it is an answer, the caller handles it
}

// The client library has no errors for these codes of a server, but only texts.
const (
	unimplemented = "unknown error: -6"   // the server is too old
	quotaExceeded = "unknown error: -125" // a quota of the server does not permit the node
	throttled     = "unknown error: -127" // the server has too many requests
)

// interpretError classifies an error of the client library. It wraps a definite answer in its
// sentinel. It returns any other error unchanged, because the outcome is unknown. It takes no
// context: the library has none, and [call] returns the error of a context itself.
func interpretError(err error) error {
	if err == nil || errors.Is(err, backend.ErrUnavailable) {
		return err
	}
	for _, refusal := range refusals {
		if errors.Is(err, refusal) {
			return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
		}
	}
	switch err.Error() {
	case unimplemented:
		return fmt.Errorf("%w: %w", backend.ErrUnsupported, err)
	case quotaExceeded:
		return fmt.Errorf("%w: the quota is exceeded: %w", backend.ErrUnavailable, err)
	case throttled:
		return fmt.Errorf("%w: the server is overloaded: %w", backend.ErrUnavailable, err)
	}
	return err
}

// uncertain returns the error of a request that was executed in part, or may be executed. err can
// be the server's refusal of another part, so it is in the text alone.
func uncertain(err error) error {
	return fmt.Errorf("the outcome is unknown: %v", err) //nolint:errorlint // see above
}

// unavailable is interpretError for Open, which leaves nothing whose outcome matters: an unknown
// outcome is ErrUnavailable, too.
func unavailable(err error) error {
	err = interpretError(err)
	if errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrUnsupported) {
		return err
	}
	return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
}

// isDefinite reports whether err is the server's refusal of a request, so that the request is not
// under way and was not executed.
func isDefinite(err error) bool {
	return !errors.Is(err, zk.ErrConnectionClosed) && !errors.Is(err, zk.ErrClosing) &&
		errors.Is(interpretError(err), backend.ErrUnavailable)
}

// isUnimplemented reports whether the server is too old for the request.
func isUnimplemented(err error) bool { return err != nil && err.Error() == unimplemented }

// leaderlessError is the error of an ensemble that seems to have no leader.
type leaderlessError struct{ error }

func (e *leaderlessError) Unwrap() error { return e.error }

// isTransient reports whether another attempt may succeed soon: the connection was lost, or there
// was no leader.
func isTransient(err error) bool {
	_, leaderless := errors.AsType[*leaderlessError](err)
	return leaderless || errors.Is(err, zk.ErrConnectionClosed)
}
