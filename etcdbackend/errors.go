package etcdbackend

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dlock-go/dlock/backend"
)

// refusals are what a server says that has not proposed to the cluster what was asked, and may do
// it later. It says nothing else before it proposes that is worth another try.
var refusals = []error{
	rpctypes.ErrNoLeader, rpctypes.ErrNotCapable, rpctypes.ErrUnhealthy, rpctypes.ErrTooManyRequests, rpctypes.ErrNoSpace,
	rpctypes.ErrPermissionDenied, rpctypes.ErrAuthFailed, rpctypes.ErrAuthOldRevision, rpctypes.ErrInvalidAuthToken,
	rpctypes.ErrUserEmpty, rpctypes.ErrUserNotFound, rpctypes.ErrAuthNotEnabled,
}

// interpretError gives what the client library said its meaning: a definite
// answer is wrapped in its sentinel; what is not leaves the outcome unknown. ctx
// is that of the request, as bound made it: an error after its end is told as its end.
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
	if r, ok := ctx.(request); ok && r.parent.Err() == nil {
		return errTimeout // of ours, so not told as the end of a context
	}
	return fmt.Errorf("%w: %w", ctx.Err(), err)
}

var errTimeout = errors.New("no answer in time")

// unavailable is interpretError for what comes before the request for the lock, and for opening.
func unavailable(ctx context.Context, err error) error {
	if err = interpretError(ctx, err); errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrUnsupported) {
		return err
	}
	return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
}

// unsentError is the error of a request that has not left the client.
type unsentError struct{ error }

func (e *unsentError) Unwrap() error              { return e.error }
func (e *unsentError) GRPCStatus() *status.Status { return status.Convert(e.error) }

func isUnsent(err error) bool {
	_, ok := errors.AsType[*unsentError](err)
	return ok
}

func isRefusal(err error) bool {
	for _, refusal := range refusals {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

// refusedForOne tells that the server has refused a batch because of what may be one request in it.
func refusedForOne(err error) bool {
	return isLeaseGone(err) || isDenied(err) || errors.Is(err, rpctypes.ErrNoSpace) ||
		errors.Is(err, rpctypes.ErrRequestTooLarge) || errors.Is(err, rpctypes.ErrTooManyOps)
}

// isPassing tells that another attempt may succeed soon: a member did not answer, or the cluster had no leader.
func isPassing(err error) bool {
	return errors.Is(err, rpctypes.ErrNoLeader) ||
		!isUnsent(err) && !isRefusal(err) && !errors.Is(err, backend.ErrUnsupported)
}

// isLeaseGone tells that the server does not know the lease, and has done nothing.
func isLeaseGone(err error) bool { return errors.Is(err, rpctypes.ErrLeaseNotFound) }

func isDenied(err error) bool { return errors.Is(err, rpctypes.ErrPermissionDenied) }
