package dlock

import (
	"context"
	"fmt"

	"github.com/dlock-go/dlock/backend"
)

// Semaphore is a named number of permits, over all processes. Each permit is a lease with its own
// fence, renewal and loss. A resource must not refuse the lower fences of permits: their holders
// are there at the same time. The permit of a holder that dies is free at the end of its term. The
// loss of a permit does not concern the other permits.
type Semaphore interface {
	// Name returns the name that the Semaphore was made with.
	Name() string
	// Acquire blocks until it has a permit. Like [Mutex].Lock, it waits until ctx ends, and returns
	// the same errors. It returns ErrConflict if the name is in use by a lock, or by a semaphore
	// with another limit. A context that holds a permit may acquire another one.
	Acquire(ctx context.Context) (*Lease, error)
	// TryAcquire makes one attempt, as [Mutex].TryLock does. It returns ErrNotAcquired if all
	// permits are taken.
	TryAcquire(ctx context.Context) (*Lease, error)
}

// maxLimit is the greatest limit of a semaphore.
const maxLimit = 1 << 20

// semaphore is the Semaphore of a Client.
type semaphore struct{ permit *mutex }

// Semaphore returns the semaphore of the given name with limit permits, 1 to 1,048,576. All users
// of the name must use the same limit. It sends no request to the server. It returns ErrUnsupported
// if the backend has no semaphores, or with [WithReentrant], and otherwise the errors of
// [Client.Mutex].
func (c *Client) Semaphore(name string, limit int, opts ...Option) (Semaphore, error) {
	if limit < 1 || limit > maxLimit {
		return nil, c.wrap("semaphore", name,
			fmt.Errorf("limit %d: it must be 1 to %d", limit, maxLimit))
	}
	permit, err := c.kind("semaphore", backend.Permit, limit, name, opts)
	if err != nil {
		return nil, err
	}
	if permit.lock.Reentrant {
		return nil, c.wrap("semaphore", name,
			fmt.Errorf("%w: WithReentrant: a permit is not shared", ErrUnsupported))
	}
	return &semaphore{permit}, nil
}

// Name implements Semaphore.
func (s *semaphore) Name() string { return s.permit.lock.Name }

// Acquire implements Semaphore.
func (s *semaphore) Acquire(ctx context.Context) (*Lease, error) {
	return s.permit.acquire(ctx, "acquire", true)
}

// TryAcquire implements Semaphore.
func (s *semaphore) TryAcquire(ctx context.Context) (*Lease, error) {
	return s.permit.acquire(ctx, "try-acquire", false)
}
