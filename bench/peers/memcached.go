package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/bench"
)

const (
	memcachedPort = "11211"
	memcachedTTL  = 30 * time.Second
	memcachedPoll = 10 * time.Millisecond
	// memcachedIdle is how many connections are kept for the next request: one for each contender.
	memcachedIdle = 128
	// expired is an expiration at once.
	expired = -1
)

// openMemcached is what one writes by hand, since there is no Go library that keeps owners apart: add, tried
// again every 10 ms, and gets and cas, which free nobody else's lock. keep renews it.
func openMemcached(_ context.Context, u *backend.URL, s bench.Settings) (bench.Process, error) {
	client := memcache.New(u.HostsWithPort(memcachedPort)...)
	client.MaxIdleConns = memcachedIdle
	ttl := cmp.Or(s.TTL, memcachedTTL)
	expiration := int32(seconds(ttl) + 1) // the server's clock ticks once in a second: the first may be short
	life, end := context.WithCancel(context.Background())
	return process{
		mutex: func(name string) mutex {
			return func(ctx context.Context) (lease, error) {
				owner := rand.Text()
				if err := addUntilStored(ctx, life, client, memcache.Item{
					Key: name, Value: []byte(owner), Expiration: expiration,
				}); err != nil {
					return nil, err
				}
				stop := keep(life, ttl, func(context.Context) error { return expire(client, name, owner, expiration) })
				return func(context.Context) error {
					stop()
					return expire(client, name, owner, expired)
				}, nil
			}
		},
		close: func() error {
			end()
			return client.Close()
		},
	}, nil
}

// addUntilStored polls until ctx or life ends.
func addUntilStored(ctx, life context.Context, client *memcache.Client, item memcache.Item) error {
	err := client.Add(&item)
	for errors.Is(err, memcache.ErrNotStored) {
		select {
		case <-time.After(memcachedPoll):
			err = client.Add(&item)
		case <-ctx.Done():
			return ctx.Err()
		case <-life.Done():
			return life.Err()
		}
	}
	return err
}

// expire says when the owner's lock ends.
func expire(client *memcache.Client, name, owner string, expiration int32) error {
	item, err := client.Get(name)
	if err == nil && string(item.Value) != owner {
		err = errLost
	}
	if err != nil {
		return err
	}
	item.Expiration = expiration
	return client.CompareAndSwap(item)
}
