package backend

import (
	"context"
	"errors"
	"testing"
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
