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
	memcachedTimeout = 3 * time.Second // as in dlock; a busy machine exceeds the default of 500 ms
	// memcachedConns limits the connections. The client does not limit them, and servers accept no
	// more than 1,024 by default.
	memcachedConns = 128
	// expired is the expiration of an item that expires at once.
	expired = -1
)

// cache is a client with a limited number of connections.
type cache struct {
	*memcache.Client
	slots chan struct{}
}

// openMemcached is a lock that is written by hand, because no Go library distinguishes
// owners. Lock repeats add every 10 ms. Unlock uses gets and cas, so that it frees no other
// owner's lock. keep renews the lock.
func openMemcached(_ context.Context, u *backend.URL, s bench.Settings) (bench.Process, error) {
	client := memcache.New(u.HostsWithPort(memcachedPort)...)
	client.MaxIdleConns, client.Timeout = memcachedConns, memcachedTimeout
	c := cache{client, make(chan struct{}, memcachedConns)}
	ttl := cmp.Or(s.TTL, memcachedTTL)
	// The server's clock ticks once per second, and the first second may be short.
	expiration := int32(seconds(ttl) + 1)
	life, end := context.WithCancel(context.Background())
	return process{
		mutex: func(name string) mutex {
			return func(ctx context.Context) (lease, error) {
				owner := rand.Text()
				if err := c.addUntilStored(ctx, life, name, owner, expiration); err != nil {
					return nil, err
				}
				stop := keep(life, ttl, func(context.Context) error {
					return c.expire(name, owner, expiration)
				})
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

// addUntilStored polls until the item is stored, or until ctx or life ends.
func (c cache) addUntilStored(
	ctx, life context.Context, name, owner string, expiration int32,
) error {
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

// expire sets the end of the owner's lock. It returns errLost if another owner has the lock.
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
