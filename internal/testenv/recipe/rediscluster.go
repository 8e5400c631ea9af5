package recipe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/internal/testenv/runner"
	"github.com/dlock-go/dlock/internal/testenv/server"
)

const (
	redisMasters = 3
	redisSlots   = 16384
)

// RedisCluster returns the recipe of a cluster of three masters, each with a replica. If a master
// is silent for three seconds, its replica is promoted. args are further arguments of each node.
func RedisCluster(args ...string) *server.Recipe {
	return &server.Recipe{
		Spec:  runner.Spec{Name: "redis-cluster", Port: redisPort, Args: args},
		URL:   "redis+cluster://ADDRESS",
		Probe: redisClusterVersion,
		Start: startRedisCluster,
	}
}

func startRedisCluster(r *server.Recipe) (*server.Instance, error) {
	members, err := newRedisMembers(2 * redisMasters)
	if err != nil {
		return nil, err
	}
	var addrs []string
	for i := range members {
		m := &members[i]
		m.flags = append([]string{
			"--cluster-enabled", "yes",
			"--cluster-announce-ip", "127.0.0.1", "--cluster-port", strconv.Itoa(m.bus),
			"--cluster-node-timeout", redisNodeTimeout, "--cluster-replica-validity-factor", "0",
			"--cluster-require-full-coverage", "no", "--repl-diskless-sync-delay", "0",
		}, r.Args...)
		addrs = append(addrs, m.addr())
	}
	g, err := startRedis(r.Name, members, len(members))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), server.BootTimeout)
	defer cancel()
	if err := joinRedisCluster(ctx, members); err != nil {
		return nil, errors.Join(err, g.Remove())
	}
	return g.Instance(r, addrs...)
}

// joinRedisCluster makes a cluster of members. The first three are the masters.
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

// replicate makes a node the replica of a master, as soon as the node has heard of the master.
func replicate(ctx context.Context, node, master *redis.Client) error {
	id, err := master.ClusterMyID(ctx).Result()
	if err != nil {
		return err
	}
	return server.Eventually(ctx, func() error { return node.ClusterReplicate(ctx, id).Err() })
}

// RedisClusterMaster returns the address of the node that serves the slot of a key. addrs are the
// addresses of nodes.
func RedisClusterMaster(ctx context.Context, addrs []string, key string) (addr string, err error) {
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	defer c.Close()
	node, err := c.MasterForKey(ctx, key)
	if err != nil {
		return "", fmt.Errorf("the master of %q: %w", key, err)
	}
	return node.Options().Addr, nil
}

// redisClusterVersion returns the version when each node reports that the cluster is complete, and
// each master has its replica.
func redisClusterVersion(ctx context.Context, t server.Target) (version string, err error) {
	_, hosts, _ := strings.Cut(t.URL, "://")
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
	if !strings.Contains(state, "cluster_state:ok") ||
		!strings.Contains(state, "cluster_slots_ok:16384") {
		return "", errors.New("the cluster is not complete")
	}
	if slices.ContainsFunc(shards, lacksReplica) {
		return "", errors.New("a master has no replica")
	}
	if strings.Contains(link, "role:slave") && !strings.Contains(link, "master_link_status:up") {
		return "", errors.New("the replica has no link to its master")
	}
	return redisVersion(ctx, "redis://"+addr)
}

// lacksReplica reports whether a shard with slots has fewer than two nodes that are online.
func lacksReplica(shard redis.ClusterShard) bool {
	online := 0
	for _, n := range shard.Nodes {
		if n.Health == "online" {
			online++
		}
	}
	return len(shard.Slots) > 0 && online < 2
}
