//go:build unix

package main

import (
	"context"
	"errors"
	"io"
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

// open opens a client over a lent Redis client that connects through the proxies.
func (w ways) open(rawURL string) (*dlock.Client, io.Closer, error) {
	u, err := backend.ParseURL(rawURL)
	if err != nil {
		return nil, nil, err
	}
	lent, opts := w.client(u)
	d, err := redisbackend.New(lent, opts)
	if err != nil {
		return nil, nil, errors.Join(err, lent.Close())
	}
	c, err := dlock.New(d)
	if err != nil {
		return nil, nil, errors.Join(err, d.Close(), lent.Close())
	}
	return c, lent, nil
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
