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
	"github.com/dlock-go/dlock/internal/testenv/recipe"
	"github.com/dlock-go/dlock/redisbackend"
)

// ways maps the addresses of servers to the addresses of their proxies. The members of a Redis
// cluster and the sentinels announce each other's addresses to clients. Therefore the client's
// dialer must replace the addresses.
type ways map[string]string

// String returns the form for an environment variable.
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

// open opens a driver over a lent client that connects through the proxies. The client is closed
// with the process: a driver of this package would refuse the handles of other workers.
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
	return dlock.New(d)
}

func (w ways) client(u *backend.URL) (redis.UniversalClient, *redisbackend.Options) {
	if u.Scheme == "redis+cluster" {
		return redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: u.HostsWithPort("6379"), Dialer: w.dial, ContextTimeoutEnabled: true,
		}), nil
	}
	return redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: recipe.RedisMaster, SentinelAddrs: u.HostsWithPort("26379"),
		Dialer: w.dial, ContextTimeoutEnabled: true,
	}), &redisbackend.Options{Wait: 1}
}
