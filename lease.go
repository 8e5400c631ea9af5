package dlock

import (
	"context"
	"log/slog"
	"runtime"
	"slices"
	"time"
)

// Lease is a lock that is held. It is not copied. The zero Lease is a fake for
// tests: held, of fence 0, never lost, and unlocked without effect. A Lease that
// is dropped without Unlock is noticed: a warning is logged, it is renewed no more,
// and the lock is free at the end of its term.
type Lease struct {
	_       noCopy
	handle  *handle // apart, so that the collector can find a dropped Lease
	cleanup runtime.Cleanup
}

// noCopy makes vet tell about copies.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// handle is what a Lease stands for. Several handles share a hold if the lock was
// taken reentrantly. The hold's mutex guards it.
type handle struct {
	hold     *hold
	lease    *Lease // until its being dropped is watched for
	unlocked bool
	dropped  bool
	err      error         // why it has ended; nil while held
	lost     chan struct{} // made on first use
	contexts map[*leaseContext]struct{}
}

// leaseContext is a context to cancel when the lease ends.
type leaseContext struct{ cancel context.CancelCauseFunc }

// newLease makes a Lease on h, whose lock the caller holds.
func (h *hold) newLease() *Lease {
	t := &h.first
	if t.hold != nil {
		t = &handle{}
	} else {
		h.handles = h.one[:0]
	}
	t.hold = h
	h.handles = append(h.handles, t)
	h.mindDropped()
	t.lease = &Lease{handle: t}
	return t.lease
}

// watchLeases lets the collector tell of leases that are dropped. It is done at
// the first renewal: most leases do not live that long, and it costs as much as all
// the rest of a Lock. The mutex is held.
func (h *hold) watchLeases() {
	for _, t := range h.handles {
		if lease := t.lease; lease != nil {
			t.lease = nil
			lease.cleanup = runtime.AddCleanup(lease, (*handle).drop, t)
		}
	}
}

// drop is called when a Lease has become unreachable. Its handle stays on the hold,
// which is renewed only while somebody can still unlock it.
func (t *handle) drop() {
	t.hold.mu.Lock()
	held := t.err == nil
	t.dropped = true
	t.hold.mindDropped()
	t.hold.mu.Unlock()
	if held {
		t.hold.log(slog.LevelWarn, "dlock: a lease was dropped without Unlock: it is renewed no more", nil)
	}
}

// mindDropped stops the renewal where none but dropped leases stand on h, and
// resumes it. The mutex is held.
func (h *hold) mindDropped() {
	wanted := len(h.handles) == 0 || slices.ContainsFunc(h.handles, func(t *handle) bool { return !t.dropped })
	wanted = wanted && !h.mutex.settings.noRenewal
	if h.phase == live && wanted != h.renews {
		h.renews = wanted
		h.schedule()
	}
}

// end ends the handle; the hold's mutex is held. To cancel a context runs no
// code of the user's on this goroutine.
func (t *handle) end(err error) {
	if t.err != nil {
		return
	}
	t.err = err
	if t.lost != nil {
		close(t.lost)
	}
	for c := range t.contexts {
		c.cancel(err)
	}
	t.contexts = nil
}

// Name returns the name of the lock.
func (l *Lease) Name() string {
	if l.handle == nil {
		return ""
	}
	return l.handle.hold.mutex.name
}

// Owner returns the 32 hex digits under which the server knows the holder.
func (l *Lease) Owner() string {
	if l.handle == nil {
		return ""
	}
	return l.handle.hold.owner()
}

// Fence returns a number greater than that of every earlier exclusive holder of
// the name, for the resource to refuse older ones. It is opaque, often above 2^53 and below
// 2^63: in JSON and the like write it as a decimal string. 0 where the backend
// has no fences.
func (l *Lease) Fence() uint64 {
	if l.handle == nil {
		return 0
	}
	return l.handle.hold.fence()
}

// Deadline returns until when the lease is proven. It moves with each renewal. The
// zero Lease has a zero Deadline.
func (l *Lease) Deadline() time.Time {
	if l.handle == nil {
		return time.Time{}
	}
	h := l.handle.hold
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.deadline()
}

// Err returns nil while the lease is held; afterwards ErrLost (also at the end of
// a maximum hold and after a Break), ErrNotHeld (unlocked) or ErrClosed. It compares
// the clocks itself, so that it is true also right after the process was stopped.
// It does not ask the server and does not block.
func (l *Lease) Err() error {
	if l.handle == nil {
		return nil
	}
	return l.handle.check()
}

func (t *handle) check() error {
	h := t.hold
	h.mu.Lock()
	expired := h.expire(time.Now())
	err := t.err
	h.mu.Unlock()
	if expired != nil {
		h.afterLoss(expired)
	}
	return err
}

// Lost returns a channel that is closed when the lease has ended, by whatever
// cause: by a loss at its deadline, not later.
func (l *Lease) Lost() <-chan struct{} {
	t := l.handle
	if t == nil {
		return nil
	}
	t.hold.mu.Lock()
	defer t.hold.mu.Unlock()
	if t.lost == nil {
		t.lost = make(chan struct{})
		if t.err != nil {
			close(t.lost)
		}
	}
	return t.lost
}

// Context returns a context for the work under the lock: it ends with parent, and with
// the lease, then with the cause ErrLost, ErrNotHeld or ErrClosed. Its Deadline is
// parent's, since the lease's own moves. It carries the lease to [WithReentrant]. The
// CancelFunc frees what it holds.
func (l *Lease) Context(parent context.Context) (context.Context, context.CancelFunc) {
	t := l.handle
	if t == nil {
		return context.WithCancel(parent)
	}
	_ = t.check() // ends it if its time is over
	ctx, cancel := context.WithCancelCause(withHeld(parent, t.hold))
	c := &leaseContext{cancel}
	t.hold.mu.Lock()
	defer t.hold.mu.Unlock()
	if t.err != nil {
		cancel(t.err)
		return ctx, func() {}
	}
	if t.contexts == nil {
		t.contexts = make(map[*leaseContext]struct{})
	}
	t.contexts[c] = struct{}{}
	return ctx, func() { t.forget(c) }
}

func (t *handle) forget(c *leaseContext) {
	c.cancel(context.Canceled)
	t.hold.mu.Lock()
	defer t.hold.mu.Unlock()
	delete(t.contexts, c)
}

// Extend renews the lease now, beside the renewals behind the caller: nil means
// that it is good for another TTL (but for a maximum hold). ErrLost, ErrNotHeld,
// ErrClosed: it has ended. Any other error, ErrUnavailable or ctx's: it was not
// renewed, and is good until Deadline. It blocks for the lesser of the TTL and 5 s
// at most.
func (l *Lease) Extend(ctx context.Context) error {
	if l.handle == nil {
		return nil
	}
	h := l.handle.hold
	return h.mutex.client.wrap("extend", h.mutex.name, l.handle.extend(ctx))
}

func (t *handle) extend(ctx context.Context) error {
	if err := t.check(); err != nil {
		return err
	}
	c := t.hold.mutex.client
	if err := c.enter(ctx); err != nil {
		return err
	}
	defer c.leave()
	err := t.hold.renew(ctx)
	if ended := t.check(); ended != nil || err == nil {
		return ended
	}
	return c.unanswered(ctx, err)
}

// Unlock ends the lease and releases the lock. It works on a context that has
// ended: it makes its attempt, of the lesser of the TTL and 5 s, in any case; the end
// of ctx during it ends the waiting, not the release. After a loss it returns ErrLost,
// also where the release is the first to learn of it; after Close ErrClosed; any second
// time ErrNotHeld. ErrUncertain: there was no answer; the client goes on
// releasing behind.
func (l *Lease) Unlock(ctx context.Context) error {
	if l.handle == nil {
		return nil
	}
	h := l.handle.hold
	if ctx == nil {
		ctx = context.Background()
	}
	return h.mutex.client.wrap("unlock", h.mutex.name, l.unlock(ctx))
}

func (l *Lease) unlock(ctx context.Context) error {
	h := l.handle.hold
	lifecycle := &h.mutex.client.lifecycle
	if err := lifecycle.enter(); err != nil {
		return l.unlockClosed()
	}
	defer lifecycle.leave()
	return h.unlock(ctx, l)
}

// unlockClosed is Unlock after Close, which has ended the lease or is about to.
func (l *Lease) unlockClosed() error {
	t := l.handle
	t.hold.mu.Lock()
	defer t.hold.mu.Unlock()
	if t.err == nil {
		t.unlocked = true
		l.cleanup.Stop()
		return ErrClosed
	}
	return l.detach()
}

// heldKey finds in a context what its caller holds of a client.
type heldKey struct{ client *Client }

// held is a list of holds, the latest first.
type held struct {
	hold   *hold
	parent *held
}

func withHeld(ctx context.Context, h *hold) context.Context {
	parent, _ := ctx.Value(heldKey{h.mutex.client}).(*held)
	return context.WithValue(ctx, heldKey{h.mutex.client}, &held{h, parent})
}

// find returns the hold of key that ctx carries and that is still held, or nil.
func (c *Client) find(ctx context.Context, key string) *hold {
	chain, _ := ctx.Value(heldKey{c}).(*held)
	for ; chain != nil; chain = chain.parent {
		if chain.hold.mutex.key == key && chain.hold.alive() {
			return chain.hold
		}
	}
	return nil
}
