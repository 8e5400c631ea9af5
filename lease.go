package dlock

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/internal/engine"
)

// Lease is a holder's right to a lock, from the return of Lock until Unlock or until the
// lease is lost. It must not be copied; go vet reports copies.
//
// A Lease that is dropped without Unlock is detected when the garbage collector runs. The
// client then logs a warning and stops the renewals, and the lock is free at the end of its
// term. A Lease is in use, not dropped, after a call of Lost, and until the CancelFuncs of
// its contexts have been called.
//
// The zero Lease is a fake for tests: it is held, its fence is 0, it is never lost, and
// Unlock has no effect.
type Lease struct {
	_      noCopy
	ref    engine.Ref
	client *Client
}

// noCopy makes go vet report copies. A dropped Lease is detected by its address: if the user kept
// only a copy, the garbage collector would find the original dropped, and the renewals would stop.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// Name returns the name of the lock.
func (l *Lease) Name() string {
	if h := l.ref.Lease(); h != nil {
		return h.Lock().Name
	}
	return ""
}

// Owner returns 32 hex digits, the server's name for the holder. A local hand-off does not
// change it, so two leases in a row can have the same owner; their fences differ. Leases that
// share a grant, of readers or of a reentrant lock, have one owner, too.
func (l *Lease) Owner() string {
	if h := l.ref.Lease(); h != nil {
		return h.Owner()
	}
	return ""
}

// Fence returns a number greater than the fences of all earlier exclusive holders of the
// name. Send it with each write, so that the resource can refuse lower ones.
//
// A fence is opaque and below 2^63, but often above 2^53: write it to JSON and the like as
// a decimal string. It is 0 where the backend has no fences, see [Client.Capabilities].
func (l *Lease) Fence() uint64 {
	if h := l.ref.Lease(); h != nil {
		return h.Fence()
	}
	return 0
}

// Deadline returns the time until which the lease is proven. It moves with each renewal. It is
// the start of the last answered request plus the TTL, less 1 % and 10 ms, or the end of a
// maximum hold. Deadline sends no request.
//
// The background renewal is due after a third of the TTL. So with renewals and without a maximum
// hold, a Deadline that is closer than half of the TTL means that a renewal is slow or has failed,
// except shortly after a Lock that has waited: its first renewal is then under way. [Lease.Extend]
// makes it a full term. After the end of all leases that share the grant it is the last deadline.
// The zero Lease has a zero Deadline.
func (l *Lease) Deadline() time.Time {
	if h := l.ref.Lease(); h != nil {
		return h.Deadline()
	}
	return time.Time{}
}

// Err returns nil while the lease is held. After its end it returns an error that wraps
//
//   - ErrLost if the lease was lost, also by a maximum hold or a Break. Its text gives the
//     reason: the deadline that passed or the server's answer.
//   - ErrNotHeld if it was unlocked.
//   - ErrClosed if the client was closed.
//
// Err compares the clocks itself, so that it is right at once after the process was stopped
// for a while. It does not block and sends no request.
func (l *Lease) Err() error {
	if h := l.ref.Lease(); h != nil {
		return h.Err()
	}
	return nil
}

// Lost returns a channel that is closed when the lease ends for any reason; [Lease.Err] has
// the reason. A lease that is not renewed in time ends at its deadline, not later. After a
// suspend of the machine the channel is closed within 60 ms. The channel of the zero Lease
// is nil.
func (l *Lease) Lost() <-chan struct{} {
	if h := l.ref.Lease(); h != nil {
		return h.Lost(&l.ref)
	}
	return nil
}

// Context returns a context for the work under the lock. It ends with parent and with the lease,
// also with its Unlock; [context.Cause] then returns the lease's Err. If the release is the first
// to detect a loss, the cause is ErrNotHeld, because the context ended as Unlock began. The
// Deadline is parent's, since the deadline of the lease moves with each renewal. A Lock with
// [WithReentrant] on this context, or on one derived from it, shares the lease's grant.
//
// Call the CancelFunc to free the context's resources; it does not unlock.
func (l *Lease) Context(parent context.Context) (context.Context, context.CancelFunc) {
	if h := l.ref.Lease(); h != nil {
		return h.Context(parent, &l.ref)
	}
	return context.WithCancel(parent)
}

// Extend renews the lease now, in addition to the background renewals. When it returns nil,
// the lease is proven for another TTL, or until the end of its maximum hold. A backend whose
// session proves all of its locks may use a proof that is up to a sixth of the TTL old. Extend
// blocks for at most the TTL or 5 s, whichever is less, or until ctx ends.
//
// It returns ErrLost, ErrNotHeld or ErrClosed if the lease has ended. After any other
// error, such as ErrUnavailable or ctx's error, the lease is still held until its Deadline.
// The server may have renewed it without an answer, which does not move the Deadline.
func (l *Lease) Extend(ctx context.Context) error {
	h := l.ref.Lease()
	if h == nil {
		return nil
	}
	return l.client.wrap("extend", h.Lock().Name, h.Extend(ctx))
}

// Unlock ends the lease and releases the lock. It works on a context that has ended: it always
// makes one attempt, which takes at most the TTL or 5 s, whichever is less. It sends no request if
// the lock passes to a waiter of this client, is kept for its minimum hold, or has another lease on
// the same grant. If ctx ends during the attempt, Unlock returns and the release goes on in the
// background. A context of this lease ends, too, but that does not count; its deadline does.
//
// It returns
//
//   - ErrLost if the lease was lost, also if the release is the first to detect the loss. A
//     lock without a lock-delay is then released early, not at the end of its term.
//   - ErrClosed if the client was closed.
//   - ErrNotHeld if the lease was unlocked before.
//   - ErrUncertain if the server did not answer. The client then repeats the release in the
//     background until it is answered.
func (l *Lease) Unlock(ctx context.Context) error {
	h := l.ref.Lease()
	if h == nil {
		return nil
	}
	if ctx == nil {
		ctx = context.Background()
	}
	return l.client.wrap("unlock", h.Lock().Name, h.Unlock(ctx))
}
