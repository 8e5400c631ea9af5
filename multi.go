package dlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/engine"
)

// maxNames is the maximum number of names of LockAll.
const maxNames = 128

// MultiLease is the leases of several locks that were acquired together. The loss of one of them is
// the loss of the MultiLease; the rest stay held until Unlock. It must not be copied.
//
// The zero MultiLease is a fake for tests, like the zero [Lease].
type MultiLease struct {
	_      noCopy
	client *Client
	leases []*Lease // in the order of the names
	lost   engine.AnyLost
}

// LockAll acquires the locks of all names, or none of them. It blocks until then, or until ctx
// ends, and takes 1 to 128 names. A name that is there twice is locked once.
//
// Calls of LockAll do not deadlock, whatever the order of their names: a call waits for one lock at
// a time, and holds no other one meanwhile. It usually waits for the lock with the first name
// in byte order, so that calls do not keep each other from their locks. A call that needs several
// contended locks may wait for longer than a Lock of each, and for as long as other callers always
// hold one of its locks.
//
// Where the backend can do so, a LockAll of free locks is one request, and so is their Unlock.
//
// The options apply to each lock; the locks take no part in local hand-offs. A minimum and a
// maximum hold begin when all locks are acquired. LockAll returns the errors of [Client.Mutex] and
// [Mutex].Lock, with the name of the lock in question. After an error it frees the locks that it
// had, in the background if ctx has ended.
func (c *Client) LockAll(
	ctx context.Context, names []string, opts ...Option,
) (*MultiLease, error) {
	const op = "lock-all"
	if len(names) < 1 || len(names) > maxNames {
		return nil, c.wrap(op, "",
			fmt.Errorf("%d names: LockAll takes 1 to %d", len(names), maxNames))
	}
	var locks []*engine.Lock
	opts = append(slices.Clone(opts), WithLocalHandoff(0))
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			continue
		}
		m, err := c.kind(op, backend.Exclusive, 0, name, opts)
		if err != nil {
			return nil, err
		}
		locks = append(locks, &m.lock)
	}
	return c.acquireAll(ctx, op, locks)
}

// acquireAll acquires all locks, and notes their events: one Attempt and one Acquired for each
// lock. An error of one lock is the error in the events of all of them.
func (c *Client) acquireAll(
	ctx context.Context, op string, locks []*engine.Lock,
) (*MultiLease, error) {
	m := &MultiLease{client: c}
	refs, began := make([]*engine.Ref, len(locks)), time.Time{}
	for i, l := range locks {
		lease := &Lease{client: c}
		m.leases, refs[i] = append(m.leases, lease), &lease.ref
		began = c.engine.NoteAttempt(ctx, l)
	}
	failed, err := c.engine.AcquireAll(ctx, locks, refs)
	if err != nil {
		err = c.wrap(op, locks[failed].Name, err)
	}
	for i, l := range locks {
		c.engine.NoteAcquired(ctx, l, refs[i], err, began)
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Leases returns the leases in the order of the names, one for each different name. They may be
// unlocked one by one.
func (m *MultiLease) Leases() []*Lease { return slices.Clone(m.leases) }

// Err returns nil while all leases are held, and otherwise the reason of the first one, in the
// order of the names, that has ended; see [Lease.Err].
func (m *MultiLease) Err() error {
	for _, l := range m.leases {
		if err := l.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Deadline returns the earliest Deadline of the leases, and the zero time without leases.
func (m *MultiLease) Deadline() (earliest time.Time) {
	for _, l := range m.leases {
		if d := l.Deadline(); earliest.IsZero() || d.Before(earliest) {
			earliest = d
		}
	}
	return earliest
}

// Lost returns a channel that is closed when the first of the leases ends for any reason. It is the
// same one at each call, and each call compares the clocks. The channel of the zero MultiLease is
// nil.
func (m *MultiLease) Lost() <-chan struct{} {
	if len(m.leases) == 0 {
		return nil
	}
	refs := make([]*engine.Ref, len(m.leases))
	for i, l := range m.leases {
		refs[i] = &l.ref
	}
	return m.client.engine.LostAny(&m.lost, refs)
}

// Context returns a context that ends with parent and with the first of the leases; see
// [Lease.Context]. Call the CancelFunc to free its resources.
func (m *MultiLease) Context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	cancels := []context.CancelFunc{cancel}
	for _, l := range m.leases {
		ctx, cancel = l.Context(ctx)
		cancels = append(cancels, cancel)
	}
	return ctx, func() {
		for _, cancel := range slices.Backward(cancels) {
			cancel()
		}
	}
}

// Unlock unlocks all leases at the same time; see [Lease.Unlock]. It returns the errors of all of
// them, joined. The loss of one lease is such an error; the rest is unlocked nevertheless.
func (m *MultiLease) Unlock(ctx context.Context) error {
	if len(m.leases) == 0 {
		return nil
	}
	if ctx == nil {
		ctx = context.Background()
	}
	leases := make([]*engine.Lease, len(m.leases))
	for i, l := range m.leases {
		leases[i] = l.ref.Lease()
	}
	var failures []error
	for i, err := range m.client.engine.UnlockAll(ctx, leases) {
		failures = append(failures, m.client.wrap("unlock", leases[i].Lock().Name, err))
	}
	return errors.Join(failures...)
}
