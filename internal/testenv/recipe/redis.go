package recipe

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/internal/testenv/runner"
	"github.com/dlock-go/dlock/internal/testenv/server"
)

const redisPort = 6379

// Redis returns the recipe of a Redis server with further arguments. With "--requirepass" the URL
// has the password.
func Redis(args ...string) *server.Recipe { return redisLike("redis", args) }

// Valkey is [Redis] for a Valkey server.
func Valkey(args ...string) *server.Recipe { return redisLike("valkey", args) }

func redisLike(name string, args []string) *server.Recipe {
	program := name + "-server"
	return &server.Recipe{
		Spec: runner.Spec{
			Name: name, Port: redisPort, Program: program, Package: program,
			Command: func(l runner.Listen) []string {
				return append(redisServer(program, l),
					"--save", "", "--appendonly", "yes", "--appendfsync", "no")
			},
			Args: args,
		},
		URL: redisURL(args),
		Probe: func(ctx context.Context, t server.Target) (string, error) {
			return redisVersion(ctx, t.URL)
		},
	}
}

// redisServer returns the command of a server or a sentinel, without flags for its data.
func redisServer(program string, l runner.Listen) []string {
	return []string{
		program, "--bind", l.Host, "--port", strconv.Itoa(l.Port), "--dir", l.Dir,
		"--protected-mode", "no",
	}
}

// redisURL returns the URL of a server with these arguments.
func redisURL(args []string) string {
	u := url.URL{Scheme: "redis", Host: "ADDRESS"}
	if i := slices.Index(args, "--requirepass"); i >= 0 && i+1 < len(args) {
		u.User = url.UserPassword("", args[i+1])
	}
	return u.String()
}

// redisVersion returns the product and its version. Products that imitate Redis report the imitated
// version of Redis and their own version.
func redisVersion(ctx context.Context, rawURL string) (string, error) {
	c, err := redisClient(rawURL)
	if err != nil {
		return "", err
	}
	defer c.Close()
	// go-redis writes to standard error if a server does not listen yet.
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", c.Options().Addr)
	if err != nil {
		return "", err
	}
	_ = conn.Close()
	info, err := c.Info(ctx, "server").Result()
	if err != nil {
		return "", err
	}
	return parseRedisInfo(info)
}

// redisClient returns a client that never retries.
func redisClient(rawURL string) (*redis.Client, error) {
	opt, err := redis.ParseURL(rawURL)
	if err != nil {
		return nil, err
	}
	opt.MaxRetries, opt.DialerRetries = -1, 1
	opt.ContextTimeoutEnabled = true
	return redis.NewClient(opt), nil
}

func parseRedisInfo(info string) (string, error) {
	fields := make(map[string]string)
	for lines := bufio.NewScanner(strings.NewReader(info)); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok {
			fields[key] = value
		}
	}
	for _, p := range [][2]string{
		{"Valkey", "valkey_version"},
		{"Dragonfly", "dragonfly_version"},
		{"Redis", "redis_version"},
	} {
		if v := fields[p[1]]; v != "" {
			return p[0] + " " + strings.TrimPrefix(v, "df-v"), nil
		}
	}
	return "", errors.New("the server does not report its version")
}
