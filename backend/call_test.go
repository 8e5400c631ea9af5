package backend

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
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
	for name, ctx := range map[string]context.Context{"cancellable": t.Context(), "not": context.Background()} {
		if n, err := Call(ctx, func(context.Context) (int, error) { return 1, nil }); n != 1 || err != nil {
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

func TestBoundEndsAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, watched := range []bool{true, false} {
			b := NewBound(t.Context(), time.Second)
			began := time.Now()
			if watched {
				<-b.Done()
			} else {
				time.Sleep(time.Second)
			}
			if took := time.Since(began); took != time.Second || !errors.Is(b.Err(), context.DeadlineExceeded) {
				t.Errorf("after %v the error is %v", took, b.Err())
			}
			b.Cancel()
		}
	})
}

func TestBoundKeepsAnEarlierDeadline(t *testing.T) {
	t.Parallel()
	parent, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	b := NewBound(parent, time.Hour)
	defer b.Cancel()
	got, _ := b.Deadline()
	if want, _ := parent.Deadline(); !got.Equal(want) {
		t.Errorf("Deadline = %v, want the parent's %v", got, want)
	}
}

func TestBoundEndsWithItsParentAndByCancel(t *testing.T) {
	t.Parallel()
	parent, cancel := context.WithCancel(t.Context())
	before, after, own := NewBound(parent, time.Hour), NewBound(parent, time.Hour), NewBound(t.Context(), time.Hour)
	done := before.Done()
	cancel()
	<-done
	<-after.Done()
	own.Cancel()
	<-own.Done()
	for _, b := range []*Bound{before, after, own} {
		if !errors.Is(b.Err(), context.Canceled) {
			t.Errorf("Err = %v, want context.Canceled", b.Err())
		}
	}
}

func TestDeadlineOnly(t *testing.T) {
	t.Parallel()
	b := NewBound(context.Background(), time.Hour)
	defer b.Cancel()
	ctx, ok := DeadlineOnly(b)
	deadline, has := ctx.Deadline()
	if want, _ := b.Deadline(); !ok || !has || !deadline.Equal(want) || ctx.Done() != nil {
		t.Errorf("DeadlineOnly of an uncancellable Bound: %v, deadline %v, Done %v", ok, deadline, ctx.Done())
	}
	cancellable := NewBound(t.Context(), time.Hour)
	defer cancellable.Cancel()
	if _, ok := DeadlineOnly(cancellable); ok {
		t.Error("DeadlineOnly of a cancellable Bound is true")
	}
	if _, ok := DeadlineOnly(t.Context()); ok {
		t.Error("DeadlineOnly of a cancellable context is true")
	}
}

func TestBeganIsBeforeTheRequest(t *testing.T) {
	t.Parallel()
	began := time.Now().Add(-time.Minute)
	b := NewBoundFrom(context.Background(), began, time.Hour)
	defer b.Cancel()
	if got := Began(b); !got.Equal(began) {
		t.Errorf("Began = %v, want %v", got, began)
	}
	if end, _ := b.Deadline(); !end.Equal(began.Add(time.Hour)) {
		t.Errorf("Deadline = %v, want an hour after %v", end, began)
	}
	before := time.Now()
	if got := Began(t.Context()); got.Before(before) || got.After(time.Now()) {
		t.Errorf("without a Bound Began = %v, want the present", got)
	}
}
