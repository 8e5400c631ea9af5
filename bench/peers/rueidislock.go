package main

import (
	"context"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/bench"
)

// rueidislockTimeout limits a request. The default is 20 ms. A Lock without an answer in that time
// waits for ever if no other client locks, and any busy machine can cause this.
const rueidislockTimeout = time.Second

// openRueidislock uses rueidislock with the options of its README for one server of at least
// Redis 7.0.5, except for rueidislockTimeout. By default its locks last 5 s, and the library
// extends them. If a workload requests a TTL, the library extends them each third of the TTL,
// like the locks of all peers.
func openRueidislock(_ context.Context, u *backend.URL, s bench.Settings) (bench.Process, error) {
	database, err := redisDatabase(u)
	if err != nil {
		return nil, err
	}
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{
			InitAddress: u.HostsWithPort(redisPort)[:1],
			Username:    u.User,
			Password:    u.Password,
			SelectDB:    database,
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
					ctx = life // Close of the Locker does not reach all waiters
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
