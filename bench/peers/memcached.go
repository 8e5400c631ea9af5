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
	memcachedPort    = "11211"
	memcachedTTL     = 30 * time.Second
	memcachedPoll    = 10 * time.Millisecond
	memcachedTimeout = 3 * time.Second // as dlock's; by default 500 ms, which a busy machine exceeds
	// memcachedConns bounds the connections. The client does not, and servers take no more than 1,024 by default.
	memcachedConns = 128
	// expired is an expiration at once.
	expired = -1
)

// cache is a client whose connections are bounded.
type cache struct {
	*memcache.Client
	slots chan struct{}
}

// openMemcached is what one writes by hand, since there is no Go library that keeps owners apart: add, tried
// again every 10 ms, and gets and cas, which free nobody else's lock. keep renews it.
func openMemcached(_ context.Context, u *backend.URL, s bench.Settings) (bench.Process, error) {
	client := memcache.New(u.HostsWithPort(memcachedPort)...)
	client.MaxIdleConns, client.Timeout = memcachedConns, memcachedTimeout
	c := cache{client, make(chan struct{}, memcachedConns)}
	ttl := cmp.Or(s.TTL, memcachedTTL)
	expiration := int32(seconds(ttl) + 1) // the server's clock ticks once in a second: the first may be short
	life, end := context.WithCancel(context.Background())
	return process{
		mutex: func(name string) mutex {
			return func(ctx context.Context) (lease, error) {
				owner := rand.Text()
				if err := c.addUntilStored(ctx, life, name, owner, expiration); err != nil {
					return nil, err
				}
				stop := keep(life, ttl, func(context.Context) error { return c.expire(name, owner, expiration) })
				return func(context.Context) error {
					stop()
					return c.expire(name, owner, expired)
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
func (c cache) addUntilStored(ctx, life context.Context, name, owner string, expiration int32) error {
	for {
		err := c.add(&memcache.Item{Key: name, Value: []byte(owner), Expiration: expiration})
		if !errors.Is(err, memcache.ErrNotStored) {
			return err
		}
		select {
		case <-time.After(memcachedPoll):
		case <-ctx.Done():
			return ctx.Err()
		case <-life.Done():
			return life.Err()
		}
	}
}

func (c cache) add(item *memcache.Item) error {
	c.slots <- struct{}{}
	defer func() { <-c.slots }()
	return c.Add(item)
}

// expire says when the owner's lock ends.
func (c cache) expire(name, owner string, expiration int32) error {
	c.slots <- struct{}{}
	defer func() { <-c.slots }()
	item, err := c.Get(name)
	if err == nil && string(item.Value) != owner {
		err = errLost
	}
	if err != nil {
		return err
	}
	item.Expiration = expiration
	return c.CompareAndSwap(item)
}
