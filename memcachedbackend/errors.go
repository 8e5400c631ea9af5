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
	// errGone: the lock is free, or another's.
	errGone = errors.New("nothing of this owner under the key")
	// errContended: a value changed between each reading and writing. Nothing was written.
	errContended = fmt.Errorf("%w: the value keeps changing", backend.ErrUnavailable)
	errLists     = fmt.Errorf("%w: its holder has another list of servers", backend.ErrConflict)
	errForeign   = fmt.Errorf("%w: the value under the key is not dlock's, or another name's", backend.ErrConflict)
)

// refusals are in the lines with which the server says that it has not done what was
// asked, and may do it later.
var refusals = []string{"SERVER_ERROR out of memory", "ERROR Too many open connections", "CLIENT_ERROR unauthenticated"}

// unsupported are in the lines with which it says that it never will.
var unsupported = []string{"SERVER_ERROR object too large", `"ERROR\r\n"`}

// meanings are the sentinels of errors that have been interpreted where they arose.
var meanings = []error{
	backend.ErrNotAcquired, backend.ErrUnavailable, backend.ErrConflict, backend.ErrLost, backend.ErrUnsupported, errGone,
	memcache.ErrCacheMiss,
}

// interpretError gives what the client library said its meaning: a definite answer
// is wrapped in its sentinel; what is not leaves the outcome unknown. ctx is
// that of the call: an error after its end is told as its end.
func interpretError(ctx context.Context, err error) error {
	says := func(word string) bool { return strings.Contains(err.Error(), word) }
	switch {
	case err == nil || slices.ContainsFunc(meanings, func(m error) bool { return errors.Is(err, m) }):
		return err
	case isBegun(err):
		return endedBy(ctx, err)
	case slices.ContainsFunc(refusals, says):
		return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	case slices.ContainsFunc(unsupported, says):
		return fmt.Errorf("%w: %w", backend.ErrUnsupported, err)
	}
	return endedBy(ctx, err)
}

// unavailable is what an error means while opening, when nothing that is asked for can stay half done.
func unavailable(err error) error {
	if slices.ContainsFunc(meanings, func(m error) bool { return errors.Is(err, m) }) {
		return err
	}
	return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
}

// endedBy tells an error after the end of ctx as that.
func endedBy(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return err
}

// isForeignCounter tells that what should be a counter is no number.
func isForeignCounter(err error) bool {
	return strings.Contains(err.Error(), "cannot increment or decrement non-numeric value")
}

// begunError is the failure of a later step of an acquisition. The first one may
// have taken the lock, so no sentinel of a refusal fits.
type begunError struct{ err error }

func (e begunError) Error() string { return "after the lock was taken: " + e.err.Error() }

// As finds the client library's own error; errors.Is finds none of the sentinels.
func (e begunError) As(target any) bool { return errors.As(e.err, target) }

func isBegun(err error) bool {
	_, ok := errors.AsType[begunError](err)
	return ok
}
