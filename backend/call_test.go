package backend

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
)

func TestCallReturnsWhenTheContextEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	release := make(chan struct{})
	defer close(release)
	started := make(chan struct{})
	go func() {
		<-started
		cancel()
	}()
	_, err := Call(ctx, func(context.Context) (int, error) {
		close(started)
		<-release
		return 1, nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Call returned %v, want context.Canceled", err)
	}
}

func TestCallReturnsTheResult(t *testing.T) {
	t.Parallel()
	for name, ctx := range map[string]context.Context{
		"cancellable": t.Context(),
		"not":         context.Background(),
	} {
		n, err := Call(ctx, func(context.Context) (int, error) { return 1, nil })
		if n != 1 || err != nil {
			t.Errorf("%s: Call = %d, %v", name, n, err)
		}
	}
}

func TestCallDoesNotBeginOnADeadContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Call(ctx, func(context.Context) (int, error) {
		t.Error("the function was run")
		return 0, nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Call returned %v", err)
	}
}

// TestCallOfAFunctionThatDoesNotReturn checks that a panic of the function reaches the caller,
// which may recover from it. The end of its goroutine is an error.
func TestCallOfAFunctionThatDoesNotReturn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // it fails if a Call waits for ever
		func() {
			defer func() {
				if value := recover(); value != "on purpose" {
					t.Errorf("Call panicked with %v", value)
				}
			}()
			_, err := Call(t.Context(), func(context.Context) (int, error) { panic("on purpose") })
			t.Errorf("Call returned %v, want a panic", err)
		}()
		_, err := Call(t.Context(), func(context.Context) (int, error) {
			runtime.Goexit()
			return 0, nil
		})
		if !errors.Is(err, errExited) {
			t.Errorf("Call returned %v, want %v", err, errExited)
		}
		// A panic after the end of the context is dropped.
		ctx, cancel := context.WithCancel(t.Context())
		end := make(chan struct{})
		_, err = Call(ctx, func(context.Context) (int, error) {
			cancel()
			<-end
			panic("on purpose")
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Call returned %v, want context.Canceled", err)
		}
		close(end)
		synctest.Wait()
	})
}

// TestCallRunsInPlace checks that Call runs the function in the caller's goroutine if the context
// can never end, so that a panic reaches the caller.
func TestCallRunsInPlace(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("the function was not run")
		}
	}()
	_, _ = Call(context.Background(), func(context.Context) (int, error) { panic("in place") })
}
