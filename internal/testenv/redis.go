package testenv

import (
	"bufio"
	"context"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

var (
	redisSpec  = redisLike("redis")
	valkeySpec = redisLike("valkey")
)

// Redis returns the Redis server that all tests of this process share. [Main] stops it.
func Redis(tb TB) *Server {
	tb.Helper()
	return redisSpec.share(tb)
}

// Valkey is [Redis] for a Valkey server.
func Valkey(tb TB) *Server {
	tb.Helper()
	return valkeySpec.share(tb)
}

// NewRedis starts a Redis server for this test alone, with further arguments ("--maxmemory", "8mb"), and removes it when
// the test ends. With "--requirepass" the URL carries the password.
func NewRedis(tb TB, args ...string) *Server {
	tb.Helper()
	return redisSpec.own(tb, args)
}

// NewValkey is [NewRedis] for a Valkey server.
func NewValkey(tb TB, args ...string) *Server {
	tb.Helper()
	return valkeySpec.own(tb, args)
}

func redisLike(name string) *spec {
	program := name + "-server"
	return &spec{
		name: name, port: 6379, program: program, pkg: program,
		command: func(l listen, args []string) []string { return append(redisCommand(program, l), args...) },
		url:     redisURL,
		probe:   redisVersion,
	}
}

// redisCommand makes a server that has every acknowledged write after a SIGKILL: it writes its log before it answers. That
// it does not wait for the disk as well (appendfsync always) would matter to a crash of the machine, and costs each command
// some milliseconds.
func redisCommand(program string, l listen) []string {
	return []string{
		program, "--bind", l.host, "--port", strconv.Itoa(l.port), "--dir", l.dir, "--protected-mode", "no",
		"--save", "", "--appendonly", "yes", "--appendfsync", "no",
	}
}

func redisURL(addr string, args []string) string {
	u := url.URL{Scheme: "redis", Host: addr}
	if i := slices.Index(args, "--requirepass"); i >= 0 && i+1 < len(args) {
		u.User = url.UserPassword("", args[i+1])
	}
	return u.String()
}

// redisVersion tells Redis from what speaks its protocol: those report the version of Redis they imitate, and their own.
func redisVersion(ctx context.Context, rawURL string) (string, error) {
	c, err := redisClient(rawURL)
	if err != nil {
		return "", err
	}
	defer c.Close()
	info, err := c.Info(ctx, "server").Result()
	if err != nil {
		return "", err
	}
	return parseRedisInfo(info)
}

// redisClient returns a client that tries everything once.
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
