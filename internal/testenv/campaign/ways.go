//go:build unix

package main

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/redisbackend"
)

// ways lead from the addresses of servers to those of proxies. The members of a Redis cluster and
// the sentinels give clients each other's addresses, so it is the client's dialer that takes the
// detour.
type ways map[string]string

// String is the form for an environment variable.
func (w ways) String() string {
	var pairs []string
	for addr, way := range w {
		pairs = append(pairs, addr+"="+way)
	}
	return strings.Join(pairs, ",")
}

func parseWays(list string) ways {
	w := make(ways)
	for pair := range strings.SplitSeq(list, ",") {
		if addr, way, ok := strings.Cut(pair, "="); ok {
			w[addr] = way
		}
	}
	return w
}

// dial connects to the proxy of a server.
func (w ways) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, w[addr])
}

// open lends the driver a client that goes by way of the proxies.
func (w ways) open(rawURL string) (*dlock.Client, error) {
	u, err := backend.ParseURL(rawURL)
	if err != nil {
		return nil, err
	}
	c, opts := w.client(u)
	d, err := redisbackend.New(c, opts)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return dlock.New(&lent{d.(redisDriver), c})
}

// redisDriver is what the core uses of the driver.
type redisDriver interface {
	backend.Driver
	backend.Waiter
	backend.BatchRenewer
	backend.Inspector
	backend.Breaker
}

// lent is a driver that closes the client that was lent to it.
type lent struct {
	redisDriver
	client redis.UniversalClient
}

func (l *lent) Close() error { return errors.Join(l.redisDriver.Close(), l.client.Close()) }

func (w ways) client(u *backend.URL) (redis.UniversalClient, *redisbackend.Options) {
	if u.Scheme == "redis+cluster" {
		return redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: u.HostsWithPort("6379"), Dialer: w.dial, ContextTimeoutEnabled: true,
		}), nil
	}
	return redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: testenv.RedisMaster, SentinelAddrs: u.HostsWithPort("26379"), Dialer: w.dial, ContextTimeoutEnabled: true,
	}), &redisbackend.Options{Wait: 1}
}
