package bound

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

func TestBoundEndsAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, watched := range []bool{true, false} {
			b := New(t.Context(), time.Second)
			began := time.Now()
			if watched {
				<-b.Done()
			} else {
				time.Sleep(time.Second)
			}
			took := time.Since(began)
			if took != time.Second || !errors.Is(b.Err(), context.DeadlineExceeded) {
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
	b := New(parent, time.Hour)
	defer b.Cancel()
	got, _ := b.Deadline()
	if want, _ := parent.Deadline(); !got.Equal(want) {
		t.Errorf("Deadline = %v, want the parent's %v", got, want)
	}
}

func TestBoundEndsWithItsParentAndByCancel(t *testing.T) {
	t.Parallel()
	parent, cancel := context.WithCancel(t.Context())
	before, after := New(parent, time.Hour), New(parent, time.Hour)
	own := New(t.Context(), time.Hour)
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
	b := New(context.Background(), time.Hour)
	defer b.Cancel()
	ctx, ok := DeadlineOnly(b)
	deadline, has := ctx.Deadline()
	if want, _ := b.Deadline(); !ok || !has || !deadline.Equal(want) || ctx.Done() != nil {
		t.Errorf("DeadlineOnly of an uncancellable Bound: %v, deadline %v, Done %v",
			ok, deadline, ctx.Done())
	}
	cancellable := New(t.Context(), time.Hour)
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
	b := From(context.Background(), began, time.Hour)
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

// TestBoundWithin checks that the end of the call's context also ends the driver's request.
func TestBoundWithin(t *testing.T) {
	t.Parallel()
	endless, short, long := context.Background(), time.Second, time.Minute
	type made struct {
		ctx   context.Context
		limit time.Duration
	}
	for name, test := range map[string]struct {
		make func(ended context.Context) made
		want error
	}{
		"its limit": {
			func(context.Context) made { return made{New(endless, long), short} },
			context.DeadlineExceeded,
		},
		"the limit of ctx": {
			func(context.Context) made { return made{New(endless, short), long} },
			context.DeadlineExceeded,
		},
		"the same": {
			func(context.Context) made { return made{New(endless, short), short} },
			context.DeadlineExceeded,
		},
		"EndWith": {
			func(c context.Context) made { return made{New(endless, long).EndWith(c), long} },
			context.Canceled,
		},
		"the parent": {
			func(c context.Context) made { return made{New(c, long), long} },
			context.Canceled,
		},
		"a plain one": {func(c context.Context) made { return made{c, long} }, context.Canceled},
		"Err, no Done": {
			func(context.Context) made { return made{New(endless, short), long} },
			context.DeadlineExceeded,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ended, cancel := context.WithCancel(endless)
				defer cancel()
				m := test.make(ended)
				b := Within(m.ctx, m.limit)
				defer b.Cancel()
				began := time.Now()
				if errors.Is(test.want, context.Canceled) {
					time.AfterFunc(short, cancel)
				}
				if name == "Err, no Done" {
					time.Sleep(short)
				} else {
					<-b.Done()
				}
				if err := b.Err(); !errors.Is(err, test.want) || time.Since(began) != short {
					t.Errorf("it ended with %v after %v, want %v after %v",
						err, time.Since(began), test.want, short)
				}
			})
		})
	}
}

// TestBoundWithinNeedsNoTimerOfItsContext watches only the inner Bound. The outer one then has no
// timer.
func TestBoundWithinNeedsNoTimerOfItsContext(t *testing.T) {
	t.Parallel()
	outer := New(context.Background(), time.Minute)
	inner := Within(outer, time.Second)
	defer inner.Cancel()
	if inner.Done(); outer.timed.Load() != nil {
		t.Error("the context of the call has a timer")
	}
}

// TestBoundHasItsParentsValues reads a value before and after the timer exists. With the timer,
// contexts that are derived from the Bound need no goroutines.
func TestBoundHasItsParentsValues(t *testing.T) {
	type key struct{}
	parent, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "v"))
	defer cancel()
	b := New(parent, time.Hour)
	defer b.Cancel()
	if v := b.Value(key{}); v != "v" {
		t.Errorf("without a timer the value is %v", v)
	}
	const derived = 100
	goroutines := runtime.NumGoroutine()
	for range derived {
		_, stop := context.WithCancel(b)
		defer stop()
	}
	if n := runtime.NumGoroutine() - goroutines; n >= derived {
		t.Errorf("%d contexts cost %d goroutines", derived, n)
	}
	if v := b.Value(key{}); v != "v" {
		t.Errorf("with a timer the value is %v", v)
	}
}
