package dlock

import (
	"context"

	"github.com/dlock-go/dlock/backend"
)

// RWMutex is a named lock for many readers or one writer, over all processes. Its write side is the
// [Mutex] of the same name: both exclude each other and the readers. A lease of a reader ends, is
// renewed and can be lost like any other; its loss does not concern readers with other grants.
//
// Readers and writers queue together where the backend is fair (see [Client.Capabilities]): a
// reader does not overtake a writer that waits, and the other way round.
//
// A reader cannot become a writer, because two such readers would wait for each other: Lock on a
// context of a reader's lease returns ErrNotAcquired at once. [Lease.Downgrade] is the other way.
//
// Readers of one Client share a grant of the server: a reader that comes within 100 ms or a tenth
// of the TTL, whichever is less, sends no request. So it may overtake a writer of another Client,
// and the readers of a grant are lost together. Their options must be equal, and without
// [WithFair], [WithoutRenewal], [WithMinHold], [WithMaxHold] or [WithLocalHandoff] of 0.
type RWMutex interface {
	Mutex
	// RLock blocks until it acquires the lock for reading. Like Lock, it waits until ctx ends, and
	// returns the same errors. The fence of its lease is greater than the fences of all earlier
	// writers. Readers may have equal fences and access a resource in any order, so the resource
	// compares the fence of a reader with the fences of writers only.
	RLock(ctx context.Context) (*Lease, error)
	// TryRLock makes one attempt, as TryLock does. It returns ErrNotAcquired if a writer has the
	// lock, if a writer of this Client waits for it, or, where the backend is fair, if any writer
	// waits, unless it shares a grant of this Client.
	TryRLock(ctx context.Context) (*Lease, error)
}

// rwMutex is the RWMutex of a Client.
type rwMutex struct {
	*mutex // the write side
	read   *mutex
}

// RWMutex returns the lock of the given name for readers and writers. It sends no request to the
// server. It returns ErrUnsupported if the backend has no shared locks, and otherwise the errors of
// [Client.Mutex].
func (c *Client) RWMutex(name string, opts ...Option) (RWMutex, error) {
	write, err := c.kind("rwmutex", backend.Exclusive, 0, name, opts)
	if err != nil {
		return nil, err
	}
	read, err := c.kind("rwmutex", backend.Shared, 0, name, opts)
	if err != nil {
		return nil, err
	}
	return &rwMutex{write, read}, nil
}

// RLock implements RWMutex.
func (m *rwMutex) RLock(ctx context.Context) (*Lease, error) {
	return m.read.acquire(ctx, "rlock", true)
}

// TryRLock implements RWMutex.
func (m *rwMutex) TryRLock(ctx context.Context) (*Lease, error) {
	return m.read.acquire(ctx, "try-rlock", false)
}
