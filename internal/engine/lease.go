package engine

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// Ref is the user's end of a [Lease]. It is separate from the Lease, so that the garbage
// collector can detect a dropped one. The zero Ref has no Lease.
type Ref struct{ lease *Lease }

// Lease returns the lease, or nil.
func (r *Ref) Lease() *Lease { return r.lease }

// Lease is one holder's right to a lock. A tenure has several if the lock is taken reentrantly.
// e.mu guards all fields except tenure. Its methods are safe for concurrent use.
type Lease struct {
	tenure    *tenure
	next      *Lease // of the tenure's list
	ref       *Ref   // keeps the user's end reachable; nil while it is watched and not in use
	watched   bool   // a cleanup is registered
	announced bool   // its beginning was noted
	trial     bool   // it may not last, and causes no events until it does; see AcquireAll
	state     leaseState
	reason    error  // why it has ended; nil while it is held
	views     *views // made on first use
}

// views are what shows the user the end of a lease. Most leases have none.
type views struct {
	lost     chan struct{} // made on first use
	any      *AnyLost      // of the leases that were acquired together; nil: not used
	contexts contexts      // nil: there is none
}

// view returns the views of l, and makes them on first use. e.mu must be held.
func (l *Lease) view() *views {
	if l.views == nil {
		l.views = new(views)
	}
	return l.views
}

// inUse reports whether the user waits for an end. v may be nil. e.mu must be held.
func (v *views) inUse() bool {
	return v != nil && (v.lost != nil || v.any != nil || len(v.contexts) > 0)
}

// AnyLost is the channel for the end of the first of several leases. The zero AnyLost has none.
// e.mu guards it.
type AnyLost struct {
	lost  chan struct{}
	ended bool
}

// end closes the channel. A second call has no effect. e.mu must be held.
func (n *AnyLost) end() {
	if !n.ended {
		n.ended = true
		close(n.lost)
	}
}

// leaseContext is a context that ends with the lease.
type leaseContext struct{ cancel context.CancelCauseFunc }

// contexts are the contexts of one lease.
type contexts map[*leaseContext]struct{}

// end sets the reason of the end of l. The contexts of l end when e.mu is unlocked. e.mu must be
// held.
func (l *Lease) end(reason error) {
	e := l.tenure.acq.engine
	l.reason, l.ref = reason, nil
	v := l.views
	if v == nil {
		return
	}
	if v.lost != nil {
		close(v.lost)
	}
	if v.any != nil {
		v.any.end()
	}
	for c := range v.contexts {
		e.ends = append(e.ends, end{l.tenure.lock, c, reason})
	}
	v.contexts = nil
}

// end is the end of a context that has not ended yet.
type end struct {
	lock *Lock
	*leaseContext
	reason error
}

// endTimeout is how long a goroutine waits for contexts to end. Contexts of the standard library
// end within microseconds, so they have ended when Unlock returns. A context of a user's type may
// take longer.
const endTimeout = 5 * time.Millisecond

// endContexts starts to end the contexts of leases. A user's type can be the parent of such a
// context and takes part in its end, so each context has a goroutine for it: a parent that blocks
// or panics delays no other context. e.mu must be held.
func (e *Engine) endContexts() (done chan struct{}) {
	done = make(chan struct{}, len(e.ends))
	for _, end := range e.ends {
		e.start(func() {
			defer func() {
				if value := recover(); value != nil {
					e.log(end.lock, slog.LevelError,
						"dlock: a parent of a lease's context panicked", panicError(value))
				}
				done <- struct{}{}
			}()
			end.cancel(end.reason)
		})
	}
	e.ends = nil
	return done
}

// awaitEnds waits until the contexts that send to done have ended, for endTimeout at most.
func awaitEnds(done chan struct{}) {
	timeout := time.After(endTimeout)
	for range cap(done) {
		select {
		case <-done:
		case <-timeout:
			return
		}
	}
}

// Lock returns the lock of l.
func (l *Lease) Lock() *Lock { return l.tenure.lock }

// Owner returns the owner of the grant on the server.
func (l *Lease) Owner() string { return l.tenure.acq.currentGrant().Owner }

// Fence returns the fence: the server's, followed by the number of the hand-off.
func (l *Lease) Fence() uint64 { return l.tenure.fence }

// Deadline returns the time until which l is proven. A renewal moves it, and a suspend brings it
// closer. After the end of the tenure it stays what it was at that end.
func (l *Lease) Deadline() time.Time {
	e := l.tenure.acq.engine
	e.mu.Lock()
	defer e.unlock()
	_ = l.check()
	return l.tenure.deadline(e.now())
}

// Err returns the reason of the end of l, or nil. It compares the clocks itself.
func (l *Lease) Err() error {
	e := l.tenure.acq.engine
	e.mu.Lock()
	defer e.unlock()
	return l.check()
}

// check ends l if its time is over, and returns the reason of its end. e.mu must be held.
func (l *Lease) check() error {
	if l.reason == nil {
		a := l.tenure.acq
		_ = a.expire(a.engine.now())
	}
	return l.reason
}

// Lost returns a channel that is closed when l ends. If l has ended, it is closed already. r is the
// user's end of l, which must stay reachable: the user may keep only the channel.
func (l *Lease) Lost(r *Ref) <-chan struct{} {
	e := l.tenure.acq.engine
	e.mu.Lock()
	defer e.unlock()
	l.keep(r)
	v := l.view()
	if v.lost == nil {
		v.lost = make(chan struct{})
		if l.reason != nil {
			close(v.lost)
		}
	}
	_ = l.check()
	return v.lost
}

// LostAny returns the channel of n, which is closed when the first of the leases in refs ends. If
// one has ended, it is closed already. Each call must be for the same leases.
func (e *Engine) LostAny(n *AnyLost, refs []*Ref) <-chan struct{} {
	e.mu.Lock()
	defer e.unlock()
	if n.lost == nil {
		n.lost = make(chan struct{})
	}
	for _, r := range refs {
		l := r.lease
		l.keep(r)
		l.view().any = n
		if l.check() != nil {
			n.end()
		}
	}
	return n.lost
}

// Context returns a context that ends with parent and with l. The CancelFunc frees its resources. r
// is the user's end of l. If l has ended, the context has ended, too. parent is a user's, so its
// methods run before e.mu is locked.
func (l *Lease) Context(parent context.Context, r *Ref) (context.Context, context.CancelFunc) {
	e := l.tenure.acq.engine
	ctx, cancel := context.WithCancelCause(withHeld(parent, l))
	c := &leaseContext{cancel}
	e.mu.Lock()
	reason := l.check()
	if reason == nil {
		v := l.view()
		if v.contexts == nil {
			v.contexts = make(contexts)
		}
		l.keep(r)
		v.contexts[c] = struct{}{}
	}
	e.unlock()
	if reason != nil {
		cancel(reason)
	}
	return ctx, func() { l.forget(c) }
}

// forget ends c as its CancelFunc, and removes it from l. A second call has no effect.
func (l *Lease) forget(c *leaseContext) {
	e := l.tenure.acq.engine
	e.mu.Lock()
	if l.views != nil {
		delete(l.views.contexts, c)
	}
	e.unlock()
	c.cancel(context.Canceled)
}

// Extend renews l now. If it returns nil, l is proven for another term. It blocks for one request,
// at most for the TTL or 5 s. Background renewals go on meanwhile, and the newest term counts. It
// returns the reason if l has ended, even if the request succeeded. After any other error l is held
// until its deadline, and the scheduler goes on renewing it.
func (l *Lease) Extend(ctx context.Context) error {
	if err := l.Err(); err != nil {
		return err
	}
	a := l.tenure.acq
	e := a.engine
	if err := e.Enter(ctx); err != nil {
		return err
	}
	defer e.Leave()
	err := a.renew(ctx, extension)
	if ended := l.Err(); ended != nil || err == nil {
		return ended
	}
	return e.ReadError(ctx, err)
}

// Unlock ends l. With the last lease of a tenure it keeps, hands off or releases the acquisition.
// It waits for the answer to the release until ctx ends, but always makes one attempt. The end of a
// context of l, which Unlock itself ends, does not count.
//
// The release is counted as a call in the same step in which l ends, so that a Close that begins
// then waits for it.
func (l *Lease) Unlock(ctx context.Context) error {
	done := ctx.Done() // code of a user, which may not return
	once := isClosed(done)
	e := l.tenure.acq.engine
	now := e.now()
	e.mu.Lock()
	next, err := l.beginUnlock(now)
	if next == releaseNow {
		e.calls.Add(1)
	}
	e.unlock()
	if next == nothing {
		return err
	}
	defer e.Leave()
	err = l.releaseFor(ctx, done, once, now)
	l.endUnlock(err)
	return err
}

// beginUnlock ends l and, if it is the last lease of its tenure, keeps or hands off the
// acquisition. Otherwise the caller has to release it, and then to call endUnlock. It compares the
// clocks first: an Unlock after the deadline returns the loss, and not the success of a release.
// e.mu must be held.
func (l *Lease) beginUnlock(now time.Time) (next, error) {
	t := l.tenure
	e := t.acq.engine
	_ = t.acq.expire(now)
	if e.closing.Err() != nil {
		return nothing, l.unlockClosed()
	}
	if err := l.detach(); err != nil {
		return nothing, err
	}
	if t.leases == nil && t.unlocked(now) == releaseNow {
		t.silent = !l.trial
		return releaseNow, nil
	}
	if !l.trial {
		e.noteEnded(t, nil)
	}
	return nothing, nil
}

// endUnlock notes the outcome of the release.
func (l *Lease) endUnlock(err error) {
	l.tenure.acq.noteUnlocked(err)
	l.setReason(err)
}

// setReason makes a loss that the release detected the reason of the end of l. Otherwise Err would
// return ErrNotHeld, as after a good Unlock.
func (l *Lease) setReason(err error) {
	if !isLost(err) {
		return
	}
	e := l.tenure.acq.engine
	e.mu.Lock()
	defer e.unlock()
	l.reason = err
	e.warn(l.tenure.lock, "dlock: lease lost", err)
}

// detach removes l from its tenure. It returns the reason if l has ended already. The first Unlock
// of a lease that has ended returns the reason, and a second one ErrNotHeld. The last of these
// first calls releases an orphan, whose holders have then all stopped. e.mu must be held.
func (l *Lease) detach() error {
	t, before := l.tenure, l.state
	switch {
	case !l.on(leaseUnlockEvent):
		return backend.ErrNotHeld
	case before == leaseEnded:
		if t.acq.ended--; t.acq.ended == 0 {
			t.acq.releaseEarly()
		}
		return l.reason
	}
	l.end(backend.ErrNotHeld)
	t.remove(l)
	return nil
}

// unlockClosed is Unlock after Close has begun: Close has ended l or will. e.mu must be held.
func (l *Lease) unlockClosed() error {
	before := l.state
	switch {
	case !l.on(leaseUnlockEvent):
		return backend.ErrNotHeld
	case before == leaseEnded:
		return l.reason
	}
	return backend.ErrClosed
}

// watch registers cleanups that detect dropped leases. It is called at each renewal and not
// earlier: most leases do not live that long, and a cleanup costs as much as the rest of a Lock. A
// lease whose end the user waits for is in use, although only the channel or the context may be
// left of it. e.mu must be held.
func (t *tenure) watch() {
	for l := t.leases; l != nil; l = l.next {
		if l.ref == nil || l.views.inUse() {
			continue
		}
		if !l.watched {
			l.watched = true
			runtime.AddCleanup(l.ref, (*Lease).drop, l)
		}
		l.ref = nil
	}
}

// keep keeps the user's end of l reachable until watch finds that l is not in use. e.mu must be
// held.
func (l *Lease) keep(r *Ref) {
	if l.reason == nil {
		l.ref = r
	}
}

// drop stops the renewals of l. The garbage collector calls it when the user has dropped l. The
// lock is not released then, because the user's code may still rely on it: the lease ends at its
// deadline.
func (l *Lease) drop() {
	t := l.tenure
	e := t.acq.engine
	e.mu.Lock()
	defer e.unlock()
	if l.on(leaseDropEvent) {
		t.acq.schedule() // without a renewal, which later renewals would wait for
		e.warn(t.lock, "dlock: a lease was dropped without Unlock: it is renewed no more", nil)
	}
}

// chain is a list of leases, the newest first.
type chain struct {
	lease  *Lease
	parent *chain
}

// withHeld returns a context that carries l and the leases of ctx. It calls ctx.Value, which is
// code of a user, so e.mu must not be held.
func withHeld(ctx context.Context, l *Lease) context.Context {
	key := heldKey{l.tenure.acq.engine}
	parent, _ := ctx.Value(key).(*chain)
	return context.WithValue(ctx, key, &chain{l, parent})
}

// reenter puts into ref another lease on a tenure of l that ctx carries. It reports whether ctx
// carries one; err is then errReentrant unless both locks are reentrant. A permit is never shared.
// It calls ctx.Value, so e.mu must not be held.
func (e *Engine) reenter(ctx context.Context, l *Lock, ref *Ref) (holds bool, err error) {
	if l.mode() == backend.Permit {
		return false, nil
	}
	held, _ := ctx.Value(heldKey{e}).(*chain)
	for ; held != nil; held = held.parent {
		if t := held.lease.tenure; t.lock.Key == l.Key {
			if shared, err := t.join(l, ref); shared || err != nil {
				return true, err
			}
		}
	}
	return false, nil
}

// join puts another lease on t into ref, unless t is over.
func (t *tenure) join(l *Lock, ref *Ref) (shared bool, _ error) {
	e := t.acq.engine
	e.mu.Lock()
	defer e.unlock()
	if can, err := t.admits(l); !can {
		return false, err
	}
	t.share(ref)
	ref.lease.trial = l.isTrial
	t.acq.schedule()
	return true, nil
}

// admits reports whether a lease on l can share t. The error says why not; it is nil if t is over,
// or if the server decides. e.mu must be held.
func (t *tenure) admits(l *Lock) (bool, error) {
	if _ = t.acq.expire(t.acq.engine.now()); t.state != held || t.leases == nil {
		return false, nil
	}
	switch {
	case t.lock.mode() == backend.Permit:
		return false, nil // the server answers that the name is in use by a semaphore
	case l.mode() == backend.Exclusive && t.acq.mode&backend.Shared != 0:
		return false, errUpgrade
	case !l.Reentrant || !t.lock.Reentrant:
		return false, errReentrant
	case t.acq.pin.isMoving():
		return false, fmt.Errorf("%w: %w", backend.ErrNotAcquired, errMoving)
	}
	err := t.covers(l)
	return err == nil, err
}
