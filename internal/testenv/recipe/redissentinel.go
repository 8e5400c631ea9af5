package recipe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/internal/testenv/runner"
	"github.com/dlock-go/dlock/internal/testenv/server"
)

// RedisMaster is the sentinels' name of the master.
const RedisMaster = "mymaster"

const (
	redisNodes     = 3 // a master and its replicas
	redisSentinels = 3
)

// RedisSentinel returns the recipe of a master with two replicas and three sentinels. If the master
// is silent for three seconds, a replica is promoted. config are further lines of configuration for
// each sentinel.
func RedisSentinel(config ...string) *server.Recipe {
	return &server.Recipe{
		Spec:  runner.Spec{Name: "redis-sentinel", Port: 26379, Args: config},
		URL:   "redis+sentinel://ADDRESS/" + RedisMaster,
		Probe: redisSentinelVersion,
		Start: startRedisSentinel,
	}
}

func startRedisSentinel(r *server.Recipe) (*server.Instance, error) {
	members, err := newRedisMembers(redisNodes + redisSentinels)
	if err != nil {
		return nil, err
	}
	master := strconv.Itoa(members[0].port)
	nodes, sentinels := members[:redisNodes], members[redisNodes:]
	for i := range nodes {
		nodes[i].flags = []string{"--repl-diskless-sync-delay", "0"}
		if i > 0 {
			nodes[i].config = "replicaof 127.0.0.1 " + master
		}
	}
	var addrs []string
	for i := range sentinels {
		sentinels[i].flags = []string{"--sentinel"}
		sentinels[i].config = fmt.Sprintf(`sentinel monitor %[1]s 127.0.0.1 %[2]s 2
sentinel down-after-milliseconds %[1]s %[3]s
sentinel failover-timeout %[1]s 2000
%[4]s
`, RedisMaster, master, redisNodeTimeout, strings.Join(r.Args, "\n"))
		addrs = append(addrs, sentinels[i].addr())
	}
	g, err := startRedis(r.Name, members, redisNodes)
	if err != nil {
		return nil, err
	}
	return g.Instance(r, addrs...)
}

// RedisSentinelMaster returns the address of the master. It repeats the request to each of the
// sentinels until one of them answers or ctx ends.
func RedisSentinelMaster(ctx context.Context, sentinels []string) (addr string, err error) {
	err = server.Eventually(ctx, func() (err error) {
		for _, s := range sentinels {
			var state map[string]string
			if state, err = redisSentinelState(ctx, s); err == nil {
				addr = net.JoinHostPort(state["ip"], state["port"])
				return nil
			}
		}
		return err
	})
	return addr, err
}

// redisSentinelState returns a sentinel's information about the master.
func redisSentinelState(ctx context.Context, addr string) (map[string]string, error) {
	c := redis.NewSentinelClient(&redis.Options{
		Addr: addr, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
	})
	defer c.Close()
	return c.Master(ctx, RedisMaster).Result()
}

// redisSentinelVersion returns the version when the sentinels have found the master, its replicas
// and each other.
func redisSentinelVersion(ctx context.Context, t server.Target) (string, error) {
	_, rest, _ := strings.Cut(t.URL, "://")
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

// redisSentinelReady returns the master's address when a sentinel has found all replicas and
// sentinels.
func redisSentinelReady(ctx context.Context, addr string) (master string, err error) {
	state, err := redisSentinelState(ctx, addr)
	if err != nil {
		return "", err
	}
	flags, replicas, others := state["flags"], state["num-slaves"], state["num-other-sentinels"]
	if flags != "master" || replicas != "2" || others != "2" {
		return "", fmt.Errorf("flags %s, %s replicas, %s other sentinels", flags, replicas, others)
	}
	return net.JoinHostPort(state["ip"], state["port"]), nil
}
