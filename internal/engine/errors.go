package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// Most of these errors wrap a sentinel of package backend, by which the caller decides what to do.
// errBroken alone never reaches a user: the engine tries again, or returns errTakenBack.
var (
	errHeldHere = fmt.Errorf("%w: it is held or waited for in this client",
		backend.ErrNotAcquired)
	errReentrant = fmt.Errorf("%w: this context holds it already, and not both locks are "+
		"WithReentrant", backend.ErrNotAcquired)
	errUpgrade = fmt.Errorf("%w: this context holds a read lease of the name, and would wait for "+
		"itself", backend.ErrNotAcquired)
	errOtherHold = fmt.Errorf("%w: the outer lock has a shorter minimum hold, a longer maximum "+
		"hold or a shorter lock-delay than this reentrant one", backend.ErrUnsupported)
	errBroken    = errors.New("the grant was lost before its waiter had it")
	errTakenBack = fmt.Errorf("%w: %w", backend.ErrNotAcquired, errBroken)
	errLate      = fmt.Errorf("%w: the term was over when its grant arrived",
		backend.ErrUnavailable)
	errAdoptedLate = fmt.Errorf("%w: the term was over when the adopted grant arrived",
		backend.ErrLost)
	errGhost = fmt.Errorf("%w: a request of its Lock may still be executed, so it cannot be "+
		"exported yet", backend.ErrUnavailable)
	errTermOver    = fmt.Errorf("%w: not renewed before its deadline", backend.ErrLost)
	errMaxHoldOver = fmt.Errorf("%w: its maximum hold is over", backend.ErrLost)
	errNoWriter    = errors.New("it is not the lease of a writer")
	errShared      = errors.New("another lease stands on the same grant")
	errMoving      = errors.New("a Downgrade or an Export of it is under way")
	errEitherMode  = errors.New("a Downgrade of it had no answer; call Downgrade again")
	errNilContext  = errors.New("the context is nil")
	errGoexit      = errors.New("it ended its goroutine")
	errAborted     = errors.New("the driver did not return")
	errNoAnswer    = errors.New("no answer in time")

	errReleaseAborted = Uncertain(errAborted) // made once: each release begins with it

	// These are the reasons of losses for which the driver gives none.
	errReportedGone    = fmt.Errorf("%w: the server reported that it is gone", backend.ErrLost)
	errGoneAtRenewal   = errGoneWhen("renewed")
	errGoneAtDowngrade = errGoneWhen("downgraded")
	errGoneAtExport    = errGoneWhen("exported")
	errGoneAtRelease   = errGoneWhen("released")
	errGoneAtAdoption  = fmt.Errorf("%w: the handle was adopted before, or its term is over",
		backend.ErrLost)
)

// errOldTerm is the error of a driver that returned a term older than the grant's.
var errOldTerm = errors.New("the driver returned a term that began before the grant's")

// ErrNothing is the error of a driver that returned neither a result nor an error.
var ErrNothing = errors.New("the driver returned neither a result nor an error")

// exhaustedError is the error of a waiter after a TTL without an answer.
type exhaustedError struct{ error }

func (e *exhaustedError) Unwrap() error { return e.error }

// isExhausted reports whether err ends a waiter because the server was silent for a TTL.
func isExhausted(err error) bool {
	_, exhausted := errors.AsType[*exhaustedError](err)
	return exhausted
}

// silentError returns the error of a waiter that sent no request, because another Lock of this
// client had tried for a TTL, and failed because of failure.
func silentError(failure error) error {
	return fmt.Errorf("%w: another Lock of this client has tried for a TTL: %w",
		backend.ErrUnavailable, failure)
}

// panicError returns an error for the value that code of a driver or a user panicked with.
func panicError(value any) error {
	if err, ok := value.(error); ok {
		return fmt.Errorf("it panicked: %w", err)
	}
	return fmt.Errorf("it panicked: %v", value)
}

// recovered returns an error for a value that a driver panicked with on a goroutine of the engine.
// The value is nil if the driver ended the goroutine, or returned too few answers.
func (e *Engine) recovered(value any) error {
	if value == nil {
		return ErrNothing
	}
	return errors.Join(errAborted, panicError(value))
}

// errGoneWhen returns the reason of a loss that a request of the holder detected.
func errGoneWhen(it string) error {
	return fmt.Errorf("%w: the server had it no more when it was %s", backend.ErrLost, it)
}

// reading is what the engine reads from the error of a request. Reading runs the methods of the
// error, which are code of a driver, so e.mu must not be held.
type reading struct {
	err           error // nil: success
	loss          error // the reason, if the server reported a loss
	isNotHeld     bool
	isUnavailable bool // the request was not executed
	isUnknown     bool // the outcome is unknown
}

// read reads err, and bare is the reason of a loss without a text. An error whose methods panic,
// such as a nil pointer in an interface, costs the request and not the process.
func read(err, bare error) (r reading) {
	if err == nil {
		return reading{}
	}
	defer func() {
		if value := recover(); value != nil {
			err := fmt.Errorf("the methods of its error of type %T panicked: %v", err, value)
			r = reading{err: err, isUnknown: true}
		}
	}()
	r = reading{
		err: err, isUnknown: isUnknown(err), isNotHeld: errors.Is(err, backend.ErrNotHeld),
		isUnavailable: errors.Is(err, backend.ErrUnavailable),
	}
	// The engine calls AsType later, and a method As of err may panic.
	if busy, ok := errors.AsType[*backend.Busy](err); ok && busy == nil {
		return reading{err: ErrNothing, isUnknown: true}
	}
	if isLost(err) {
		r.loss = explained(err, bare)
	}
	return r
}

// sound returns err, or an error of its own if the methods of err panic.
func sound(err error) error {
	if busy, ok := err.(*backend.Busy); ok && busy != nil { //nolint:errorlint // often, and cheap
		return err
	}
	return read(err, nil).err
}

// reportedLoss returns the reason of a loss that the driver reported with cause.
func reportedLoss(cause error) error {
	switch r := read(cause, errReportedGone); {
	case r.err == nil:
		return errReportedGone
	case r.loss == nil:
		return fmt.Errorf("%w: %w", backend.ErrLost, r.err)
	default:
		return r.loss
	}
}

// explained returns the reason of a loss: err, or bare if err has no other text than ErrLost.
func explained(err, bare error) error {
	if err == backend.ErrLost { //nolint:errorlint // a wrapped one has a text
		return bare
	}
	return err
}

// overdue returns the reason of a loss at the deadline after a renewal that failed with err. It has
// the text of err and does not wrap it, so it matches no other sentinel than ErrLost. It runs the
// methods of err, so e.mu must not be held.
func overdue(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		err = errNoAnswer
	}
	return fmt.Errorf("%w: the last renewal failed: %s", errTermOver, fmt.Sprint(err))
}

func isLost(err error) bool { return errors.Is(err, backend.ErrLost) }

// IsDefinite reports whether err is a definite answer of a driver to Acquire. No part of such a
// request is executed later.
func IsDefinite(err error) bool {
	return errors.Is(err, backend.ErrNotAcquired) || errors.Is(err, backend.ErrUnsupported) ||
		errors.Is(err, backend.ErrConflict) || errors.Is(err, backend.ErrInvalidName) || isLost(err)
}

// isUnknown reports whether the outcome of a request that failed with err is unknown.
// ErrUnavailable is not unknown: by the contract of package backend, the request was not executed.
func isUnknown(err error) bool {
	return err != nil && !IsDefinite(err) && !errors.Is(err, backend.ErrUnavailable)
}

// isFinal reports whether err rules out that another attempt succeeds.
func isFinal(err error) bool {
	_, busy := errors.AsType[*backend.Busy](err)
	return isExhausted(err) || IsDefinite(err) && !busy
}

// ContextError returns why ctx ended: its error, and its cause if there is another one. It
// returns nil if ctx has not ended.
func ContextError(ctx context.Context) error {
	err, cause := ended(ctx), context.Cause(ctx)
	if err == nil || cause == nil || errors.Is(err, cause) {
		return err
	}
	if slices.ContainsFunc(sentinels, func(s error) bool { return errors.Is(cause, s) }) {
		// The cause is of another call, for example of the parent lease of ctx.
		return fmt.Errorf("%w: %s", err, cause.Error())
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// endOf is ContextError for a call whose ctx has ended. If Close has ended it with a lease of ctx,
// the caller has cancelled nothing, so the error is ErrClosed.
func (e *Engine) endOf(ctx context.Context) error {
	if e.closing.Err() != nil && e.EndedByClose(ctx) {
		return backend.ErrClosed
	}
	return ContextError(ctx)
}

// heldKey is the key of a context under which the held leases of an engine are stored.
type heldKey struct{ engine *Engine }

// EndedByClose reports whether ctx has ended because a lease of it was closed.
func (e *Engine) EndedByClose(ctx context.Context) bool {
	return errors.Is(context.Cause(ctx), backend.ErrClosed) && ctx.Value(heldKey{e}) != nil
}

// sentinels are the errors that say something about a lock or its client.
var sentinels = []error{
	backend.ErrNotAcquired, backend.ErrLost, backend.ErrNotHeld, backend.ErrInvalidName,
	backend.ErrUnsupported, backend.ErrUnavailable, backend.ErrUncertain, backend.ErrConflict,
	backend.ErrClosed,
}

// ended is ctx.Err, but it also reports a deadline that has passed before its timer has fired: a
// socket with the same deadline may have been first.
func ended(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ctx.Err() == nil && ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// Unanswered returns the error of a request without an answer, in the caller's terms. It never
// exposes internal timeouts.
func (e *Engine) Unanswered(ctx context.Context, err error) error {
	switch {
	case ended(ctx) != nil:
		return e.endOf(ctx)
	case errors.Is(err, context.Canceled) && e.closing.Err() != nil:
		return backend.ErrClosed
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %w", backend.ErrUnavailable, errNoAnswer)
	}
	return err
}

// RequestError returns the caller's error of a single request that failed with err, or nil if err
// is nil. After ErrUnavailable the request was not executed, so the error of an unknown outcome
// does not wrap it. RequestError calls code of ctx, so e.mu must not be held.
func (e *Engine) RequestError(ctx context.Context, err error) error {
	if err == nil || IsDefinite(err) {
		return err
	}
	failure := e.Unanswered(ctx, err)
	switch {
	case !isUnknown(err):
		return Unavailable(failure)
	case errors.Is(failure, backend.ErrUnavailable):
		failure = cmp.Or(ended(ctx), errNoAnswer)
	}
	return Uncertain(failure)
}

// ReadError returns the caller's error of a request that failed with err and changed nothing that
// the caller has to undo: an Inspect, a List or an Extend. An error that wraps no
// sentinel becomes ErrUnavailable: the server did not answer, or refused the request.
func (e *Engine) ReadError(ctx context.Context, err error) error {
	failure := e.Unanswered(ctx, err)
	isSentinel := func(s error) bool { return errors.Is(failure, s) }
	if ended(ctx) != nil || slices.ContainsFunc(sentinels, isSentinel) {
		return failure
	}
	return Unavailable(failure)
}

// Uncertain wraps err for a request with an unknown outcome.
func Uncertain(err error) error { return fmt.Errorf("%w: %w", backend.ErrUncertain, err) }

// Unavailable wraps err for a server that did not answer.
func Unavailable(err error) error {
	if errors.Is(err, backend.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
}
