package testenv

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// RedisMaster is what the sentinels call the master.
const RedisMaster = "mymaster"

var redisSentinelSpec = &spec{name: "redis-sentinel", port: 26379, probe: redisSentinelVersion}

func init() { redisSentinelSpec.start = launchRedisSentinel }

// RedisSentinel returns the master with two replicas and three sentinels that all tests of this process share. When the master
// is gone for three seconds, a replica takes over. [Main] stops it.
func RedisSentinel(tb TB) *RedisGroup {
	tb.Helper()
	return newRedisGroup(redisSentinelSpec.share(tb))
}

// NewRedisSentinel starts servers as those of [RedisSentinel] for this test alone, with further lines of configuration for
// each sentinel, and removes them when the test ends.
func NewRedisSentinel(tb TB, config ...string) *RedisGroup {
	tb.Helper()
	return newRedisGroup(redisSentinelSpec.own(tb, config))
}

// SentinelMaster returns the node that the sentinels call the master.
func (g *RedisGroup) SentinelMaster(tb TB) *Server {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), givenTimeout)
	defer cancel()
	var addr string
	if err := eventually(ctx, func() (err error) {
		for _, s := range g.Sentinels {
			if addr, err = redisSentinelMaster(ctx, s.Addr); err == nil {
				return nil
			}
		}
		return err
	}); err != nil {
		tb.Fatalf("%s: %v", g.Name, err)
	}
	return g.node(tb, addr)
}

func launchRedisSentinel(config []string) (*Server, error) {
	const nodes, sentinels = 3, 3
	members, err := newRedisMembers(nodes + sentinels)
	if err != nil {
		return nil, err
	}
	port := strconv.Itoa(members[0].port)
	var hosts []string
	for i := range members {
		m := &members[i]
		switch {
		case i >= nodes:
			m.flags = []string{"--sentinel"}
			m.config = fmt.Sprintf(`sentinel monitor %[1]s 127.0.0.1 %[2]s 2
sentinel down-after-milliseconds %[1]s %[3]s
sentinel failover-timeout %[1]s 2000
%[4]s
`, RedisMaster, port, redisNodeTimeout, strings.Join(config, "\n"))
			hosts = append(hosts, m.addr())
		case i > 0:
			m.config = "replicaof 127.0.0.1 " + port
		}
		if i < nodes {
			m.flags = append(m.flags, "--repl-diskless-sync-delay", "0")
		}
	}
	g, err := startRedis(redisSentinelSpec.name, nodes, members)
	if err != nil {
		return nil, err
	}
	return g.up(redisSentinelSpec, "redis+sentinel://"+strings.Join(hosts, ",")+"/"+RedisMaster)
}

func redisSentinelMaster(ctx context.Context, addr string) (string, error) {
	state, err := redisSentinelState(ctx, addr)
	return net.JoinHostPort(state["ip"], state["port"]), err
}

// redisSentinelState returns what a sentinel knows of the master.
func redisSentinelState(ctx context.Context, addr string) (map[string]string, error) {
	c := redis.NewSentinelClient(&redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true})
	defer c.Close()
	return c.Master(ctx, RedisMaster).Result()
}

// redisSentinelVersion asks the sentinels whether they know the master, its replicas and each other.
func redisSentinelVersion(ctx context.Context, rawURL string) (string, error) {
	_, rest, _ := strings.Cut(rawURL, "://")
	hosts, _, _ := strings.Cut(rest, "/")
	var master string
	for addr := range strings.SplitSeq(hosts, ",") {
		its, err := redisSentinelReady(ctx, addr)
		if err != nil {
			return "", fmt.Errorf("%s: %w", addr, err)
		}
		if master != "" && its != master {
			return "", errors.New("the sentinels do not agree on the master")
		}
		master = its
	}
	c, err := redisClient("redis://" + master)
	if err != nil {
		return "", err
	}
	defer c.Close()
	info, err := c.Info(ctx, "replication").Result()
	if err != nil {
		return "", err
	}
	if !strings.Contains(info, "role:master") || strings.Count(info, "state=online") != 2 {
		return "", errors.New("the master does not have its replicas")
	}
	return redisVersion(ctx, "redis://"+master)
}

// redisSentinelReady returns the master's address when a sentinel knows everybody.
func redisSentinelReady(ctx context.Context, addr string) (master string, err error) {
	state, err := redisSentinelState(ctx, addr)
	if err != nil {
		return "", err
	}
	if state["flags"] != "master" || state["num-slaves"] != "2" || state["num-other-sentinels"] != "2" {
		return "", fmt.Errorf("flags %s, %s replicas, %s other sentinels", state["flags"], state["num-slaves"], state["num-other-sentinels"])
	}
	return net.JoinHostPort(state["ip"], state["port"]), nil
}

// pause waits for d, or for the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
