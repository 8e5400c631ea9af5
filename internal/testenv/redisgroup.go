package testenv

import (
	"context"
	"slices"

	"github.com/dlock-go/dlock/internal/testenv/group"
	"github.com/dlock-go/dlock/internal/testenv/recipe"
	"github.com/dlock-go/dlock/internal/testenv/server"
)

// RedisGroup is several Redis servers that act as one: a cluster, or a master with its replicas and
// their sentinels. The methods of [Server] affect all of them: Pause pauses and Kill kills each
// server.
type RedisGroup struct {
	*Server
	Nodes     []*Server // the servers with data; empty if the group was given by URL
	Sentinels []*Server
}

// newRedisGroup returns the group of a server that share or own returned.
func newRedisGroup(s *Server) *RedisGroup {
	rg := &RedisGroup{Server: s}
	if g, ok := s.instance.Control.(*group.Group); ok {
		rg.Nodes, rg.Sentinels = s.members[:g.Nodes], s.members[g.Nodes:]
	}
	return rg
}

// Addrs returns the addresses of the nodes and then of the sentinels. If the group was given by
// URL, these addresses are not available, and the test is skipped.
func (g *RedisGroup) Addrs(tb TB) []string {
	tb.Helper()
	if len(g.Nodes) == 0 {
		tb.Skipf("%s was given by %s: its members are not known", g.Name, g.instance.URLVariable())
	}
	return addrsOf(slices.Concat(g.Nodes, g.Sentinels))
}

// Master returns the node of a cluster that serves the slot of a key.
func (g *RedisGroup) Master(tb TB, key string) *Server {
	tb.Helper()
	addr, err := recipe.RedisClusterMaster(tb.Context(), g.Addrs(tb), key)
	if err != nil {
		tb.Fatalf("%s: %v", g.Name, err)
	}
	return g.node(tb, addr)
}

// SentinelMaster returns the node that the sentinels report as the master.
func (g *RedisGroup) SentinelMaster(tb TB) *Server {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), server.GivenTimeout)
	defer cancel()
	addr, err := recipe.RedisSentinelMaster(ctx, addrsOf(g.Sentinels))
	if err != nil {
		tb.Fatalf("%s: %v", g.Name, err)
	}
	return g.node(tb, addr)
}

func (g *RedisGroup) node(tb TB, addr string) *Server {
	tb.Helper()
	i := slices.IndexFunc(g.Nodes, func(s *Server) bool { return s.Addr == addr })
	if i < 0 {
		tb.Fatalf("%s: %s is not one of its nodes", g.Name, addr)
	}
	return g.Nodes[i]
}

// Await waits until all members answer and agree, because a test may have stopped some.
func (g *RedisGroup) Await(tb TB) {
	tb.Helper()
	if _, err := g.instance.Await(server.BootTimeout); err != nil {
		tb.Fatalf("%v", err)
	}
}

// Take stops a member until back is called or the test ends. If kill is true the member is killed,
// otherwise it is paused.
func (g *RedisGroup) Take(tb TB, member *Server, kill bool) (back func()) {
	tb.Helper()
	if kill {
		return killed(tb, member)
	}
	return member.Pause(tb)
}
