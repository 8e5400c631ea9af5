package main

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/bench"
)

const (
	redislockTTL   = 30 * time.Second // as in the README's watchdog
	redislockRetry = 5 * time.Millisecond
)

// openRedislock uses bsm/redislock with a linear backoff. The library has no default backoff, and
// its examples wait for 100 or 500 ms, so that contenders would hardly meet. An Obtain whose
// context has no deadline ends after the TTL with one of two errors, and is then repeated. The
// library has no watchdog: keep refreshes its locks.
func openRedislock(_ context.Context, u *backend.URL, s bench.Settings) (bench.Process, error) {
	client, err := newRedisClient(u)
	if err != nil {
		return nil, err
	}
	locker := redislock.New(client)
	options := &redislock.Options{RetryStrategy: redislock.LinearBackoff(redislockRetry)}
	ttl := cmp.Or(s.TTL, redislockTTL)
	life, end := context.WithCancel(context.Background())
	return process{
		mutex: func(name string) mutex {
			return func(ctx context.Context) (lease, error) {
				lock, err := locker.Obtain(ctx, name, ttl, options)
				for ctx.Err() == nil && (errors.Is(err, redislock.ErrNotObtained) ||
					errors.Is(err, context.DeadlineExceeded)) {
					lock, err = locker.Obtain(ctx, name, ttl, options)
				}
				if err != nil {
					return nil, err
				}
				stop := keep(life, ttl, func(ctx context.Context) error {
					return lock.Refresh(ctx, ttl, nil)
				})
				return func(ctx context.Context) error {
					stop()
					return lock.Release(ctx)
				}, nil
			}
		},
		close: func() error {
			end()
			return client.Close()
		},
	}, nil
}
