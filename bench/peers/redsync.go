package main

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/bench"
)

// redsyncTTL is redsync's default expiry.
const redsyncTTL = 8 * time.Second

// openRedsync uses redsync with one server and its defaults: 32 tries, with a random delay of 50 to
// 250 ms between them. After the last try Lock is called again, as its documentation permits.
// redsync has no watchdog: keep extends its locks.
func openRedsync(_ context.Context, u *backend.URL, s bench.Settings) (bench.Process, error) {
	client, err := newRedisClient(u)
	if err != nil {
		return nil, err
	}
	locker := redsync.New(goredis.NewPool(client))
	ttl := cmp.Or(s.TTL, redsyncTTL)
	life, end := context.WithCancel(context.Background())
	return process{
		mutex: func(name string) mutex {
			m := locker.NewMutex(name, redsync.WithExpiry(ttl))
			return func(ctx context.Context) (lease, error) {
				err := m.LockContext(ctx)
				for err != nil && ctx.Err() == nil && isTaken(err) {
					err = m.LockContext(ctx)
				}
				if err != nil {
					return nil, err
				}
				stop := keep(life, ttl, func(ctx context.Context) error {
					_, err := m.ExtendContext(ctx)
					return err
				})
				return func(ctx context.Context) error {
					stop()
					_, err := m.UnlockContext(ctx)
					return err
				}, nil
			}
		},
		close: func() error {
			end()
			return client.Close()
		},
	}, nil
}

// isTaken reports whether redsync reached the server and found that the lock is taken.
func isTaken(err error) bool {
	_, taken := errors.AsType[*redsync.ErrTaken](err)
	return taken || errors.Is(err, redsync.ErrFailed)
}
