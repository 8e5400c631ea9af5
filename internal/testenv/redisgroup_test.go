package testenv

import "testing"

func TestRedisCluster(t *testing.T)  { grouped(t, RedisCluster(t), 6, 0) }
func TestRedisSentinel(t *testing.T) { grouped(t, RedisSentinel(t), 3, 3) }

// grouped pauses and restarts all members.
func grouped(t *testing.T, g *RedisGroup, nodes, sentinels int) {
	t.Helper()
	if len(g.Nodes) != nodes || len(g.Sentinels) != sentinels {
		t.Errorf("the group has %d nodes and %d sentinels", len(g.Nodes), len(g.Sentinels))
	}
	g.Pause(t)()
	g.Restart(t)
}
