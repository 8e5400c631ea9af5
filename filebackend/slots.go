//go:build darwin || dragonfly || freebsd || linux

package filebackend

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/dlock-go/dlock/backend"
)

// slots limits the calls that work on the disk at the same time. Each of them keeps a thread while
// the disk hangs, also after its context has ended, and Go ends a process with 10,000 threads.
type slots chan struct{}

const (
	// maxRequests limits the attempts and inspections of a driver. They begin only with a free
	// slot, so requests that hang leave no goroutines behind them. On a disk that works, each of
	// them takes some microseconds, or one sync.
	maxRequests = 256
	// maxUpkeep limits what keeps and frees the acquisitions of a driver: renewals, releases,
	// downgrades and checks. They have their own slots, so no attempt that hangs delays them. Each
	// acquisition has at most one of them at a time, because they share its mutex.
	maxUpkeep = 1024
)

// take blocks until a slot is free. If ctx ends first, it returns an ErrUnavailable, because the
// request was not executed.
func (s slots) take(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: file: the disk does not answer the requests before it: %w",
			backend.ErrUnavailable, ctx.Err())
	}
}

// callAndFree is backend.Call for a caller with a slot, which becomes free when fn returns.
func callAndFree[T any](ctx context.Context, s slots, fn func() (T, error)) (T, error) {
	var claimed atomic.Bool // the slot, by fn or by a caller that leaves before fn begins
	defer func() {
		if !claimed.Swap(true) {
			<-s
		}
	}()
	return backend.Call(ctx, func(context.Context) (T, error) {
		if claimed.Swap(true) {
			return *new(T), ctx.Err()
		}
		defer func() { <-s }()
		return fn()
	})
}

// callInSlot is backend.Call with one of the slots.
func callInSlot[T any](ctx context.Context, s slots, fn func() (T, error)) (T, error) {
	if err := s.take(ctx); err != nil {
		return *new(T), err
	}
	return callAndFree(ctx, s, fn)
}

// beginUpkeep locks a.mu and takes a slot of the upkeep. It may block for as long as the disk
// hangs, but no thread waits meanwhile. endUpkeep must be called afterwards.
func (d *driver) beginUpkeep(a *acquisition) {
	a.mu.Lock()
	d.upkeep <- struct{}{}
}

// endUpkeep is the inverse of beginUpkeep.
func (d *driver) endUpkeep(a *acquisition) {
	<-d.upkeep
	a.mu.Unlock()
}
