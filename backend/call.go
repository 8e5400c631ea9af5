package backend

import (
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock/internal/bound"
)

// errExited is the result of a function that has called runtime.Goexit.
var errExited = errors.New("the function of Call has ended its goroutine")

// Call runs fn and returns its result, or ctx's error as soon as ctx ends. In the
// latter case fn continues in the background and its result is dropped. Drivers
// use it to honour contexts where the client library does not.
//
// For example:
//
//	reply, err := backend.Call(ctx, func(ctx context.Context) (string, error) {
//		return conn.Do(ctx, "GET", key)
//	})
//
// Call costs a goroutine while fn runs, unless ctx can never end. fn must return
// by itself some time after ctx has ended, for example by a timeout of its
// socket, because nothing else stops it. If fn panics, Call panics with the same
// value, unless it has returned already. So a panic, for example in a hook of the
// client library, fails one call and does not end the process.
//
// If ctx has ended before the call, fn does not run. The error is then ctx's and
// not ErrUnavailable, so that callers need no special case for it.
func Call[T any](ctx context.Context, fn func(context.Context) (T, error)) (T, error) {
	type result struct {
		value    T
		err      error
		panicked any // the value of a panic
	}
	if err := ctx.Err(); err != nil {
		return *new(T), err
	}
	if ctx.Done() == nil {
		return fn(ctx)
	}
	done := make(chan result, 1)
	go func() {
		r := result{err: errExited}
		defer func() {
			r.panicked = recover()
			done <- r
		}()
		r.value, r.err = fn(ctx)
	}()
	select {
	case r := <-done:
		if r.panicked != nil {
			panic(r.panicked)
		}
		return r.value, r.err
	case <-ctx.Done():
		return *new(T), ctx.Err()
	}
}

// Began returns the time at which the request of ctx began. It is a reading of
// the clock before any part of the request was written, so it is as good as
// time.Now() for Term.Sent, and costs nothing. If ctx comes from elsewhere, Began
// returns time.Now().
func Began(ctx context.Context) time.Time { return bound.Began(ctx) }

// DeadlineOnly is for drivers with a client library that ends a request at its
// context's deadline by itself, by a timeout of the socket. If ctx can end in no
// other way, DeadlineOnly returns a context that has the deadline and no Done
// channel, and true. The request may then run in place, without the goroutine of
// [Call] and a timer. On Redis this saves 20 of 44 allocations, and a quarter of
// the time, of an uncontended pair of Acquire and Release. Otherwise DeadlineOnly
// returns ctx and false.
//
// Drivers outside of this module gain by it what the drivers in it gain: the release
// of an Unlock needs no goroutine, and neither does a Lock with a context that cannot
// end.
func DeadlineOnly(ctx context.Context) (context.Context, bool) { return bound.DeadlineOnly(ctx) }
