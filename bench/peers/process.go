package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dlock-go/dlock/bench"
)

// errLost is the error of an Unlock whose lock was lost before.
var errLost = errors.New("the lock was lost")

// process is a bench.Process made of functions. Locks that are held when it is closed end with
// their TTL, or with their session.
type process struct {
	mutex func(name string) mutex
	close func() error
}

func (p process) Mutex(name string) (bench.Mutex, error) { return p.mutex(name), nil }

func (p process) Close() error { return p.close() }

// mutex is the Lock of a bench.Mutex.
type mutex func(ctx context.Context) (lease, error)

func (m mutex) Lock(ctx context.Context) (bench.Lease, error) {
	l, err := m(ctx)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// lease is the Unlock of a bench.Lease.
type lease func(ctx context.Context) error

func (l lease) Unlock(ctx context.Context) error { return l(ctx) }

// keep refreshes a lock each third of its TTL, until life ends or stop is called. stop waits for a
// refresh in progress. Libraries without a watchdog leave the refresh to their users: bsm/redislock
// shows a goroutine with a ticker for each lock. keep uses a timer, which costs less, so that the
// figures show the cost of the library. Unlock detects whether the lock was lost.
func keep(
	life context.Context, ttl time.Duration, refresh func(context.Context) error,
) (stop func()) {
	var mu sync.Mutex
	var timer *time.Timer
	stopped := false
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(ttl/3, func() {
		mu.Lock()
		defer mu.Unlock()
		if stopped || life.Err() != nil {
			return
		}
		ctx, cancel := context.WithTimeout(life, ttl/3)
		defer cancel()
		_ = refresh(ctx) // the next refresh may succeed
		timer.Reset(ttl / 3)
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		stopped = true
		timer.Stop()
	}
}

// seconds converts a TTL for servers that count in seconds. The result is no shorter than d.
func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }
