// Package bound has the context that the core passes to a driver.
package bound

import (
	"context"
	"sync/atomic"
	"time"
)

// Bound is a context that ends with its parent or at a deadline. The core passes one to every call
// of a driver. It replaces context.WithTimeout, which costs four allocations and a timer for each
// request: a Bound costs one allocation until the first call of Done. With a timer for each
// request, a pair of Lock and Unlock would have 21 allocations on mem: instead of 9, and take 2.6
// times as long. A Bound is safe for concurrent use.
type Bound struct {
	parent   context.Context
	began    time.Time
	limit    time.Duration
	other    context.Context       // ends the context, too; may be nil
	timed    atomic.Pointer[timed] // made by the first Done
	canceled atomic.Bool
	earlier  bool // the limit is earlier than the parent's deadline, and needs its own timer
}

// timed is the standard context that the first call of Done makes.
type timed struct {
	context.Context
	cancel context.CancelFunc
	stop   func() bool // detaches the context from Bound.other; may be nil
}

// end ends the context and frees its timer.
func (t *timed) end() {
	if t.stop != nil {
		t.stop()
	}
	t.cancel()
}

// New returns a context that ends with parent or after d. Call Cancel to free its resources. For
// example, a request of at most one second:
//
//	bound := bound.New(ctx, time.Second)
//	defer bound.Cancel()
//	grant, err := driver.Acquire(bound, req)
func New(parent context.Context, d time.Duration) *Bound {
	return From(parent, time.Now(), d)
}

// From returns a context that ends with parent or at began plus d. began must be a recent reading
// of time.Now(); it saves another one.
func From(parent context.Context, began time.Time, d time.Duration) *Bound {
	return new(Bound).Begin(parent, began, d)
}

// Begin initializes the zero Bound b as From does, and returns it. It saves an allocation if the
// caller already has memory for a Bound. A Bound must not begin twice, because a driver may keep
// it.
func (b *Bound) Begin(parent context.Context, began time.Time, d time.Duration) *Bound {
	b.parent, b.began, b.limit, b.earlier = parent, began, d, true
	if end, ok := parent.Deadline(); ok && end.Sub(began) <= d {
		b.limit, b.earlier = end.Sub(began), false
	}
	return b
}

// Within is New for a driver whose client library calls Done. ctx is the context of a call of the
// driver. It must not be cancelled before that call returns. If ctx is a Bound with a parent that
// cannot end, the new Bound ends by itself: at the deadline of ctx, and with the context that ctx
// got from EndWith. So ctx needs no timer. This saves eight allocations of a request to etcd.
func Within(ctx context.Context, d time.Duration) *Bound {
	p, ok := ctx.(*Bound)
	if !ok || p.parent.Done() != nil {
		return New(ctx, d)
	}
	b := New((*deadlineOnly)(p), d)
	b.earlier, b.other = true, p.other
	return b
}

// Began returns the time at which the request of ctx began. The clock was read before any part of
// the request was written. So the time is as good as time.Now() for Term.Sent, and costs nothing.
// If ctx is not a Bound, Began returns time.Now().
func Began(ctx context.Context) time.Time {
	if b, ok := ctx.(*Bound); ok {
		return b.began
	}
	return time.Now()
}

// EndWith makes b end when other ends, too. It must be called before b is used. [DeadlineOnly]
// ignores other: a request that runs in place is not interrupted and ends at the deadline.
func (b *Bound) EndWith(other context.Context) *Bound {
	b.other = other
	return b
}

// Cancel ends the context and frees its timer.
func (b *Bound) Cancel() {
	b.canceled.Store(true)
	if t := b.timed.Load(); t != nil {
		t.end()
	}
}

// Deadline returns the deadline of the parent or of b, whichever is earlier.
func (b *Bound) Deadline() (time.Time, bool) { return b.began.Add(b.limit), true }

// Value returns the parent's value. Once the timer exists, Value goes through it: the standard
// library then finds its own context, and needs no goroutine for a context that is derived from b.
func (b *Bound) Value(key any) any {
	if t := b.timed.Load(); t != nil {
		return t.Value(key)
	}
	return b.parent.Value(key)
}

// Done returns a channel that is closed when the context ends. The first call makes the timer.
func (b *Bound) Done() <-chan struct{} {
	t := b.timed.Load()
	if t == nil {
		t = b.newTimed()
		if !b.timed.CompareAndSwap(nil, t) {
			t.end()
			t = b.timed.Load()
		}
	}
	if b.canceled.Load() {
		t.end()
	}
	return t.Done()
}

// newTimed makes the standard context. If the parent's deadline is the earlier one, it sets no
// timer: of two timers for one instant the wrong one may fire first, and give the wrong error.
func (b *Bound) newTimed() *timed {
	t := &timed{}
	if b.earlier {
		t.Context, t.cancel = context.WithDeadline(b.parent, b.began.Add(b.limit))
	} else {
		t.Context, t.cancel = context.WithCancel(b.parent)
	}
	if b.other != nil {
		t.stop = context.AfterFunc(b.other, t.cancel)
	}
	return t
}

// Err returns nil until the context has ended. It compares the clock itself.
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

// DeadlineOnly is for drivers with a client library that ends a request at its context's deadline
// by itself, by a timeout of the socket. If ctx can end in no other way, DeadlineOnly returns true
// and a context with the deadline, but without a Done channel. The request may then run in place,
// without the goroutine of backend.Call and a timer. Otherwise DeadlineOnly returns ctx and false.
func DeadlineOnly(ctx context.Context) (context.Context, bool) {
	if b, ok := ctx.(*Bound); ok && b.parent.Done() == nil {
		return (*deadlineOnly)(b), true
	}
	return ctx, ctx.Done() == nil
}
