package main

import (
	"context"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/bench"
)

// rueidislockTimeout bounds a request. By default it is 20 ms, and who has had no answer in time waits for ever,
// where nobody else locks: a busy machine would be enough.
const rueidislockTimeout = time.Second

// openRueidislock is rueidislock as its README has it for one server of at least Redis 7.0.5, but for
// rueidislockTimeout. Its locks last 5 s unless told otherwise, and are extended by itself: each third of the TTL,
// as all others, where a workload asks for one.
func openRueidislock(_ context.Context, u *backend.URL, s bench.Settings) (bench.Process, error) {
	database, err := redisDatabase(u)
	if err != nil {
		return nil, err
	}
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{
			InitAddress: u.HostsWithPort(redisPort)[:1], Username: u.User, Password: u.Password, SelectDB: database,
		},
		KeyMajority:    1,
		NoLoopTracking: true,
		KeyValidity:    s.TTL,
		ExtendInterval: s.TTL / 3,
		TryNextAfter:   rueidislockTimeout,
	})
	if err != nil {
		return nil, err
	}
	life, end := context.WithCancel(context.Background())
	return process{
		mutex: func(name string) mutex {
			return func(ctx context.Context) (lease, error) {
				if ctx.Done() == nil {
					ctx = life // Close of the Locker does not reach all who wait
				}
				held, release, err := locker.WithContext(ctx, name)
				if err != nil {
					return nil, err
				}
				return func(context.Context) error {
					defer release()
					if held.Err() != nil {
						return errLost
					}
					return nil
				}, nil
			}
		},
		close: func() error {
			end()
			locker.Close()
			return nil
		},
	}, nil
}
