package zkbackend

import (
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
)

// refusals are errors that say that the request was certainly not executed.
var refusals = []error{
	zk.ErrNoServer, // given to requests that were never sent
	zk.ErrNoAuth, zk.ErrAuthFailed, zk.ErrInvalidACL,
	zk.ErrSessionExpired, zk.ErrSessionMoved,
	zk.ErrNoNode, // of a directory, where it is not the answer itself
}

// unimplemented is how the client library says code -6: the server is too old.
const unimplemented = "unknown error: -6"

// interpretError gives what the client library said its meaning: a definite answer is wrapped
// in its sentinel; what is not leaves the outcome unknown.
func interpretError(err error) error {
	if err == nil || errors.Is(err, backend.ErrUnavailable) {
		return err
	}
	for _, refusal := range refusals {
		if errors.Is(err, refusal) {
			return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
		}
	}
	if isUnimplemented(err) {
		return fmt.Errorf("%w: %w", backend.ErrUnsupported, err)
	}
	return err
}

// unavailable is interpretError for opening, which leaves nothing whose outcome would matter.
func unavailable(err error) error {
	if err = interpretError(err); errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrUnsupported) {
		return err
	}
	return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
}

func isUnimplemented(err error) bool { return err != nil && err.Error() == unimplemented }

// leaderlessError is that of an ensemble that seems to be without a leader.
type leaderlessError struct{ error }

func (e *leaderlessError) Unwrap() error { return e.error }

// isPassing tells that another attempt may succeed soon: the connection was lost, or there was no leader.
func isPassing(err error) bool {
	_, leaderless := errors.AsType[*leaderlessError](err)
	return leaderless || errors.Is(err, zk.ErrConnectionClosed)
}

var (
	// errVanished: the place in the queue is gone, and the next attempt takes another.
	errVanished = errors.New("the node was deleted")
	// errReleased: the acquisition was given up while an attempt waited its turn.
	errReleased = errors.New("the acquisition was released meanwhile")
	// errMeasured ends the session that showed the server's tick.
	errMeasured = errors.New("the session was for its timeout only")
	// errUnwatched leaves a renewal open: whether the node exists is not known at the moment.
	errUnwatched = errors.New("the node is being watched again")
	errForeign   = fmt.Errorf("%w: the node under the key is not dlock's, or another name's", backend.ErrConflict)
	errMode      = fmt.Errorf("%w: zookeeper locks are exclusive only", backend.ErrUnsupported)
)

// answered tells that err is the server's answer, so that the request is not under way.
func answered(err error) bool {
	return !errors.Is(err, zk.ErrConnectionClosed) && !errors.Is(err, zk.ErrClosing) &&
		errors.Is(interpretError(err), backend.ErrUnavailable)
}
