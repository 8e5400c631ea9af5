package memcachedbackend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/dlock-go/dlock/backend"
)

var (
	// errGone means that the lock is free or has another owner. Renewals return it as ErrLost,
	// releases as ErrNotHeld.
	errGone = errors.New("nothing of this owner under the key")
	// errContended means that a value changed each time between gets and cas. Nothing was written.
	errContended = fmt.Errorf("%w: the value keeps changing", backend.ErrUnavailable)

	// errOtherList and errForeign need a correction by the user, so they are not *Busy.
	errOtherList = fmt.Errorf("%w: its holder has another list of servers", backend.ErrConflict)
	errForeign   = fmt.Errorf("%w: the value under the key is not dlock's, or another name's",
		backend.ErrConflict)
	// errNoFence means that a counter has a number that can be no fence.
	errNoFence = errors.New("the counter of fences has a number that is not dlock's")
	// errClock means that a fence of this clock would be too large. No request was sent.
	errClock = fmt.Errorf("%w: the clock of this machine is wrong", backend.ErrUnavailable)
)

// unsupported returns the error of a request for another mode than Exclusive.
func unsupported(mode backend.Mode) error {
	return fmt.Errorf("%w: mode %s", backend.ErrUnsupported, mode)
}

// interpretError gives an error of the client library its meaning: it wraps a definite answer in
// the sentinel of package backend. Any other error leaves the outcome unknown. ctx is the context
// of the call; an error after the end of ctx is also ctx's error.
//
// The client library returns most refusals of the server as plain text, so the text decides.
func interpretError(ctx context.Context, err error) error {
	switch {
	case err == nil || isDefinite(err):
		return err
	case isIncomplete(err):
		return contextError(ctx, err)
	case isRefusal(err):
		return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	case isUnsupported(err):
		return fmt.Errorf("%w: %w", backend.ErrUnsupported, err)
	}
	return contextError(ctx, err)
}

// probeError returns err as ErrUnavailable, unless it is definite already. It is for errors of
// probe, which leaves no lock whatever the outcome of its requests.
func probeError(err error) error {
	if isDefinite(err) {
		return err
	}
	return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
}

// contextError adds ctx's error to an error that came after the end of ctx.
func contextError(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return err
}

// definite are the sentinels of errors with a meaning: they were interpreted where they arose.
var definite = []error{
	backend.ErrNotAcquired, backend.ErrUnavailable, backend.ErrConflict, backend.ErrLost,
	backend.ErrUnsupported, errGone, memcache.ErrCacheMiss,
}

func isDefinite(err error) bool {
	return slices.ContainsFunc(definite, func(s error) bool { return errors.Is(err, s) })
}

// isRefusal reports whether the server has not executed the request, but may execute it later.
func isRefusal(err error) bool {
	return contains(err, "SERVER_ERROR out of memory") ||
		contains(err, "ERROR Too many open connections") ||
		contains(err, unauthenticated)
}

// isUnsupported reports whether the server never executes such a request.
func isUnsupported(err error) bool {
	return contains(err, "SERVER_ERROR object too large") || contains(err, `"ERROR\r\n"`)
}

// isForeignCounter reports whether the value of a counter is not a number, or no fence.
func isForeignCounter(err error) bool {
	return errors.Is(err, errNoFence) ||
		contains(err, "cannot increment or decrement non-numeric value")
}

func contains(err error, text string) bool { return strings.Contains(err.Error(), text) }

// incompleteError is the error of an attempt that failed after its first request. That request may
// have taken the lock, so the outcome is unknown, even if the later request was refused.
type incompleteError struct{ err error }

func (e incompleteError) Error() string { return "after the lock was taken: " + e.err.Error() }

// As finds the error of the client library. There is no Unwrap, so errors.Is finds no sentinel of a
// refusal.
func (e incompleteError) As(target any) bool { return errors.As(e.err, target) }

func isIncomplete(err error) bool {
	_, ok := errors.AsType[incompleteError](err)
	return ok
}
