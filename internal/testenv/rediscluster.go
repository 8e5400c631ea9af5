package testenv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

const (
	redisMasters = 3
	redisSlots   = 16384
)

var redisClusterSpec = &spec{name: "redis-cluster", port: 6379, probe: redisClusterVersion}

func init() { redisClusterSpec.start = launchRedisCluster }

// RedisCluster returns the cluster of three masters, each with a replica, that all tests of this process share. When a master
// is gone for three seconds, its replica takes over. [Main] stops it.
func RedisCluster(tb TB) *RedisGroup {
	tb.Helper()
	return newRedisGroup(redisClusterSpec.share(tb))
}

// NewRedisCluster starts a cluster as that of [RedisCluster] for this test alone, with further arguments for each node, and
// removes it when the test ends.
func NewRedisCluster(tb TB, args ...string) *RedisGroup {
	tb.Helper()
	return newRedisGroup(redisClusterSpec.own(tb, args))
}

// Master returns the node that serves the slot of a key.
func (g *RedisGroup) Master(tb TB, key string) *Server {
	tb.Helper()
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: g.Addrs(tb)})
	defer c.Close()
	node, err := c.MasterForKey(tb.Context(), key)
	if err != nil {
		tb.Fatalf("%s: the master of %q: %v", g.Name, key, err)
	}
	return g.node(tb, node.Options().Addr)
}

func (g *RedisGroup) node(tb TB, addr string) *Server {
	tb.Helper()
	i := slices.IndexFunc(g.Nodes, func(s *Server) bool { return s.Addr == addr })
	if i < 0 {
		tb.Fatalf("%s: %s is not one of its nodes", g.Name, addr)
	}
	return g.Nodes[i]
}

func launchRedisCluster(args []string) (*Server, error) {
	members, err := newRedisMembers(2 * redisMasters)
	if err != nil {
		return nil, err
	}
	var hosts []string
	for i := range members {
		m := &members[i]
		m.flags = append([]string{
			"--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1", "--cluster-port", strconv.Itoa(m.bus),
			"--cluster-node-timeout", redisNodeTimeout, "--cluster-replica-validity-factor", "0",
			"--cluster-require-full-coverage", "no", "--repl-diskless-sync-delay", "0",
		}, args...)
		hosts = append(hosts, m.addr())
	}
	g, err := startRedis(redisClusterSpec.name, len(members), members)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), bootTimeout)
	defer cancel()
	if err := joinRedisCluster(ctx, members); err != nil {
		return nil, errors.Join(err, g.remove())
	}
	return g.up(redisClusterSpec, "redis+cluster://"+strings.Join(hosts, ","))
}

// joinRedisCluster makes a cluster of members: the first ones are the masters.
func joinRedisCluster(ctx context.Context, members []redisMember) error {
	nodes := make([]*redis.Client, len(members))
	for i, m := range members {
		c, err := redisClient("redis://" + m.addr())
		if err != nil {
			return err
		}
		defer c.Close()
		nodes[i] = c
	}
	for i, m := range members {
		var err error
		if i < redisMasters {
			first, end := i*redisSlots/redisMasters, (i+1)*redisSlots/redisMasters
			err = nodes[i].ClusterAddSlotsRange(ctx, first, end-1).Err()
		}
		meet := nodes[0].Do(ctx, "cluster", "meet", "127.0.0.1", m.port, m.bus).Err()
		if err := errors.Join(err, meet); err != nil {
			return err
		}
	}
	for i := redisMasters; i < len(nodes); i++ {
		if err := replicate(ctx, nodes[i], nodes[i-redisMasters]); err != nil {
			return err
		}
	}
	return nil
}

// replicate makes a node the replica of a master as soon as it knows that one.
func replicate(ctx context.Context, node, master *redis.Client) error {
	id, err := master.ClusterMyID(ctx).Result()
	if err != nil {
		return err
	}
	return eventually(ctx, func() error { return node.ClusterReplicate(ctx, id).Err() })
}

// eventually repeats f until it succeeds.
func eventually(ctx context.Context, f func() error) error {
	for {
		err := f()
		if err == nil || ctx.Err() != nil {
			return err
		}
		pause(ctx, probeInterval)
	}
}

// redisClusterVersion asks each node whether it takes the cluster for whole, and each master for its replica.
func redisClusterVersion(ctx context.Context, rawURL string) (version string, err error) {
	_, hosts, _ := strings.Cut(rawURL, "://")
	for host := range strings.SplitSeq(strings.TrimRight(hosts, "/"), ",") {
		if version, err = redisNodeVersion(ctx, host); err != nil {
			return "", fmt.Errorf("%s: %w", host, err)
		}
	}
	return version, nil
}

func redisNodeVersion(ctx context.Context, addr string) (string, error) {
	c, err := redisClient("redis://" + addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	state, err1 := c.ClusterInfo(ctx).Result()
	shards, err2 := c.ClusterShards(ctx).Result()
	link, err3 := c.Info(ctx, "replication").Result()
	if err := errors.Join(err1, err2, err3); err != nil {
		return "", err
	}
	if !strings.Contains(state, "cluster_state:ok") || !strings.Contains(state, "cluster_slots_ok:16384") {
		return "", errors.New("the cluster is not whole")
	}
	for _, shard := range shards {
		online := slices.DeleteFunc(shard.Nodes, func(n redis.Node) bool { return n.Health != "online" })
		if len(shard.Slots) > 0 && len(online) < 2 {
			return "", errors.New("a master has no replica")
		}
	}
	if strings.Contains(link, "role:slave") && !strings.Contains(link, "master_link_status:up") {
		return "", errors.New("the replica has no link to its master")
	}
	return redisVersion(ctx, "redis://"+addr)
}
