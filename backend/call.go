package backend

import (
	"context"
	"sync/atomic"
	"time"
)

// Call runs fn and returns its result, or ctx's error as soon as ctx ends: then
// fn goes on alone and its result is dropped. It is how a driver keeps the
// promise to honour contexts whatever its client library does, and it costs a
// goroutine while fn runs. fn must end by itself some time later (a socket
// timeout), since nothing else ends it.
//
// fn is not run at all if ctx has ended already; the error is then ctx's and
// not ErrUnavailable, so that callers need not tell the two cases apart.
func Call[T any](ctx context.Context, fn func(context.Context) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	if err := ctx.Err(); err != nil {
		return *new(T), err
	}
	if ctx.Done() == nil {
		return fn(ctx)
	}
	done := make(chan result, 1)
	go func() {
		value, err := fn(ctx)
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return *new(T), ctx.Err()
	}
}

// Bound is a context that ends with its parent or at a deadline. It is what
// the core gives to every driver call: context.WithTimeout, but for one
// allocation as long as nobody asks for Done. Safe for concurrent use.
type Bound struct {
	parent   context.Context
	began    time.Time
	limit    time.Duration
	other    context.Context       // ends it too; may be nil
	timed    atomic.Pointer[timed] // made by the first Done
	canceled atomic.Bool
	earlier  bool // than the parent's end: it needs a timer of its own
}

type timed struct {
	context.Context
	cancel context.CancelFunc
}

// NewBound returns a context that ends with parent or after d. Cancel frees
// what it holds.
func NewBound(parent context.Context, d time.Duration) *Bound {
	return NewBoundFrom(parent, time.Now(), d)
}

// NewBoundFrom returns a context that ends with parent or at d after began, which was
// time.Now() a moment ago.
func NewBoundFrom(parent context.Context, began time.Time, d time.Duration) *Bound {
	b := &Bound{parent: parent, began: began, limit: d, earlier: true}
	if end, ok := parent.Deadline(); ok && end.Sub(began) <= d {
		b.limit, b.earlier = end.Sub(began), false
	}
	return b
}

// Began returns when the request that ctx is for was begun: a reading of the clock
// before anything of it was written, as good as time.Now() for Term.Sent, and free. For
// a ctx that is no Bound it is time.Now().
func Began(ctx context.Context) time.Time {
	if b, ok := ctx.(*Bound); ok {
		return b.began
	}
	return time.Now()
}

// EndWith makes b end when other does, too. It is called before b is used.
// [DeadlineOnly] does not count other: a request that is under way in place is not
// interrupted, and ends at the deadline.
func (b *Bound) EndWith(other context.Context) *Bound {
	b.other = other
	return b
}

// Cancel ends the context and frees its timer.
func (b *Bound) Cancel() {
	b.canceled.Store(true)
	if t := b.timed.Load(); t != nil {
		t.cancel()
	}
}

// Deadline is the earlier of the parent's and the bound's own.
func (b *Bound) Deadline() (time.Time, bool) { return b.began.Add(b.limit), true }

// Value is the parent's. Once there is a timer it is asked first: the standard
// library finds it so, and needs no goroutine for a context that is derived from b.
func (b *Bound) Value(key any) any {
	if t := b.timed.Load(); t != nil {
		return t.Value(key)
	}
	return b.parent.Value(key)
}

// Done is closed when the context ends. The first call makes the timer.
func (b *Bound) Done() <-chan struct{} {
	t := b.timed.Load()
	if t == nil {
		t = b.newTimed()
		if !b.timed.CompareAndSwap(nil, t) {
			t.cancel()
			t = b.timed.Load()
		}
	}
	if b.canceled.Load() {
		t.cancel()
	}
	return t.Done()
}

// newTimed leaves the parent's deadline to the parent: of two timers for one
// instant the wrong one may be first.
func (b *Bound) newTimed() *timed {
	t := &timed{}
	if b.earlier {
		t.Context, t.cancel = context.WithDeadline(b.parent, b.began.Add(b.limit))
	} else {
		t.Context, t.cancel = context.WithCancel(b.parent)
	}
	if b.other != nil {
		stop, cancel := context.AfterFunc(b.other, t.cancel), t.cancel
		t.cancel = func() {
			stop()
			cancel()
		}
	}
	return t
}

// Err is nil until the context has ended.
func (b *Bound) Err() error {
	if err := b.parent.Err(); err != nil {
		return err
	}
	if t := b.timed.Load(); t != nil && t.Err() != nil {
		return t.Err()
	}
	switch {
	case b.canceled.Load(), b.other != nil && b.other.Err() != nil:
		return context.Canceled
	case time.Since(b.began) >= b.limit:
		return context.DeadlineExceeded
	}
	return nil
}

// deadlineOnly is a Bound without its Done channel.
type deadlineOnly Bound

func (d *deadlineOnly) Deadline() (time.Time, bool) { return (*Bound)(d).Deadline() }
func (d *deadlineOnly) Done() <-chan struct{}       { return nil }
func (d *deadlineOnly) Err() error                  { return (*Bound)(d).Err() }
func (d *deadlineOnly) Value(key any) any           { return d.parent.Value(key) }

// DeadlineOnly is for drivers whose client library ends a request at its
// context's deadline by itself, by the timeout of a socket. If ctx can end in
// no other way, DeadlineOnly returns a view of it that has the deadline and no
// Done channel, and true: the request may then run in place, which saves Call's
// goroutine and a timer. Otherwise it returns ctx and false.
func DeadlineOnly(ctx context.Context) (context.Context, bool) {
	if b, ok := ctx.(*Bound); ok && b.parent.Done() == nil {
		return (*deadlineOnly)(b), true
	}
	return ctx, ctx.Done() == nil
}
