package etcdbackend

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/batch"
)

// No error needs redaction: the client library quotes neither the password nor a token.

var (
	// errTimeout is the end of a timeout of the driver. It is no context error, because no context
	// of the caller has ended.
	errTimeout = errors.New("no answer in time")
	// errEnded is the end of a watch without an error of the server.
	errEnded = errors.New("the watch has ended")
	// errClosed is the answer to the waiters that come while Close is under way.
	errClosed = &unsentError{errors.New("the driver is closed")}
)

// The reasons of a loss.
var (
	errLeaseEnded = fmt.Errorf("%w: its lease has ended", backend.ErrLost)
	errKeyGone    = fmt.Errorf("%w: its key is gone", backend.ErrLost)
	errKeyRemoved = fmt.Errorf("%w: its key was removed", backend.ErrLost)
	errAdopted    = fmt.Errorf("%w: it was adopted, or its term is over", backend.ErrLost)
	errBroken     = fmt.Errorf("%w: it was broken", backend.ErrLost)
)

// refusals are the errors of a server that has not proposed the request to the cluster, so that the
// request is not executed. A later attempt may succeed. A server returns no other error before its
// proposal after which another attempt is useful.
//
// rpctypes.ErrNoSpace is not among them: the server executes the request that exceeds its quota,
// and answers it with the same error as the requests that it refuses from then on.
var refusals = []error{
	rpctypes.ErrNoLeader, rpctypes.ErrNotCapable, rpctypes.ErrUnhealthy,
	rpctypes.ErrTooManyRequests, rpctypes.ErrPermissionDenied,
	rpctypes.ErrAuthFailed, rpctypes.ErrAuthOldRevision, rpctypes.ErrInvalidAuthToken,
	rpctypes.ErrUserEmpty, rpctypes.ErrUserNotFound, rpctypes.ErrAuthNotEnabled,
}

// interpretError wraps an error of the client library in the sentinel that it means. An error that
// it returns without a sentinel leaves the outcome unknown. ctx is the context of the request, as
// bound returns it: once it has ended, an error without a sentinel is reported as its end.
//
// A lease that is gone is ErrUnavailable, not ErrLost: the server has executed nothing, and the
// next attempt gets another lease. The callers report the loss of grants themselves.
func interpretError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case isUnsent(err), isLeaseGone(err), isRefusal(err):
		return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	case errors.Is(err, rpctypes.ErrRequestTooLarge), status.Code(err) == codes.Unimplemented:
		return fmt.Errorf("%w: %w", backend.ErrUnsupported, err)
	case ctx.Err() == nil:
		return err
	}
	if r, ok := ctx.(*request); ok && r.parent.Err() == nil {
		return errTimeout
	}
	return fmt.Errorf("%w: %w", ctx.Err(), err)
}

// asUnavailable is interpretError for requests before the request for the lock, and for requests of
// Open. Whatever their outcome is, the lock was not requested.
func asUnavailable(ctx context.Context, err error) error {
	if err = interpretError(ctx, err); isDefinite(err) {
		return err
	}
	return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
}

// isDefinite reports whether an interpreted error of an attempt is definite. Otherwise the outcome
// of the attempt is unknown.
func isDefinite(err error) bool {
	return errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrUnsupported) ||
		errors.Is(err, backend.ErrConflict)
}

// uncertain returns the error of an attempt whose key may have stayed. err can be a definite answer
// to the removal, but it is no answer to the attempt, so it is in the text alone.
func uncertain(err error) error {
	return fmt.Errorf("the key may have stayed: %v", err) //nolint:errorlint // see above
}

// unsentError is the error of a request that has not left the client.
type unsentError struct{ error }

// Unwrap returns the error of gRPC.
func (e *unsentError) Unwrap() error { return e.error }

// GRPCStatus lets the client read the status of the wrapped error.
func (e *unsentError) GRPCStatus() *status.Status { return status.Convert(e.error) }

// isUnsent reports whether failFast or Close has marked err, or whether the request has not left
// the queue of the batcher.
func isUnsent(err error) bool {
	_, ok := errors.AsType[*unsentError](err)
	return ok || errors.Is(err, batch.ErrUnsent)
}

// isRefusal reports whether err is one of refusals.
func isRefusal(err error) bool {
	for _, refusal := range refusals {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

// isRefusedForOne reports whether one request can be the reason why the server refused its batch.
func isRefusedForOne(err error) bool {
	return isLeaseGone(err) || isDenied(err) ||
		errors.Is(err, rpctypes.ErrRequestTooLarge) || errors.Is(err, rpctypes.ErrTooManyOps)
}

// isTransient reports whether another attempt may succeed soon, because a member did not answer or
// the cluster had no leader.
func isTransient(err error) bool {
	return errors.Is(err, rpctypes.ErrNoLeader) ||
		!isUnsent(err) && !isRefusal(err) && !isFull(err) &&
			!errors.Is(err, backend.ErrUnsupported)
}

// isLeaseGone reports whether the server has no such lease. It has then executed nothing.
func isLeaseGone(err error) bool { return errors.Is(err, rpctypes.ErrLeaseNotFound) }

// isFull reports whether the server has exceeded its quota. It may have executed the request.
func isFull(err error) bool { return errors.Is(err, rpctypes.ErrNoSpace) }

// isDenied reports whether the user has no permission for the request.
func isDenied(err error) bool { return errors.Is(err, rpctypes.ErrPermissionDenied) }
