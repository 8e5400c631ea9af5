//go:build unix

package main

import (
	"slices"
	"time"

	"github.com/dlock-go/dlock/internal/campaign"
	"github.com/dlock-go/dlock/internal/testenv"
)

const ttl = 2 * time.Second

// targets are all servers.
var targets = []*target{
	{name: "redis", ttl: ttl, expiry: ttl, fair: true, start: func(tb testenv.TB) *place { return redisPlace(testenv.Redis(tb)) }},
	{name: "valkey", ttl: ttl, expiry: ttl, fair: true, start: func(tb testenv.TB) *place { return redisPlace(testenv.Valkey(tb)) }},
	{name: "redis-cluster", ttl: ttl, expiry: ttl, fair: true, start: clusterPlace},
	{name: "redis-sentinel", ttl: ttl, expiry: ttl, fair: true, start: func(tb testenv.TB) *place { return sentinelPlace(tb, "?wait=1", campaign.F) }},
	{name: "redis-sentinel-all", ttl: ttl, expiry: ttl, fair: true, start: func(tb testenv.TB) *place { return sentinelPlace(tb, "?wait=2", campaign.X) }},
	{name: "memcached", ttl: ttl, expiry: ttl + 2*time.Second, start: memcachedPlace},
	{name: "zookeeper", ttl: ttl, expiry: zookeeperExpiry, start: zookeeperPlace},
	{name: "zookeeper-3", ttl: ttl, expiry: zookeeperExpiry, start: func(tb testenv.TB) *place {
		p := ensemblePlace(testenv.ZooKeeperEnsemble(tb), "?session="+zookeeperSession.String())
		return p.wiped(campaign.F, func(tb testenv.TB) { wipeZooKeeper(tb, p.addrs) })
	}},
	{name: "etcd", ttl: ttl, expiry: ttl + time.Second, start: etcdPlace},
	{name: "etcd-3", ttl: ttl, expiry: ttl + time.Second, start: func(tb testenv.TB) *place {
		p := ensemblePlace(testenv.EtcdEnsemble(tb), "")
		p.faults[campaign.Wipe] = fault{campaign.F, func(tb testenv.TB, _ string) func() { wipeEtcd(tb, p.addrs); return nil }}
		return p
	}},
	{name: "mysql", ttl: ttl, expiry: ttl, start: func(tb testenv.TB) *place { return mysqlPlace(testenv.MySQL(tb)) }},
	{name: "mariadb", ttl: ttl, expiry: ttl, start: func(tb testenv.TB) *place { return mysqlPlace(testenv.MariaDB(tb)) }},
	{name: "file", ttl: ttl, expiry: 4 * ttl, start: filePlace}, // a stopped holder keeps its lock
}

// ZooKeeper keeps the lock of a dead holder for its session, and two ticks of half a second.
const (
	zookeeperTick    = 500 * time.Millisecond
	zookeeperSession = 3 * time.Second
	zookeeperExpiry  = zookeeperSession + 2*zookeeperTick
)

// serverPlace is one server, which is paused and restarted.
func serverPlace(s *testenv.Server, restart campaign.Class) *place {
	p := &place{
		source: s.Source, version: s.Version, url: s.URL, addrs: []string{s.Addr}, through: replaced(s.URL, s.Addr),
		faults: make(map[campaign.Kind]fault),
	}
	if s.Source == "url" { // given by URL
		return p
	}
	pause := func(tb testenv.TB, _ string) func() { return s.Pause(tb) }
	p.faults[campaign.PauseShort] = fault{campaign.X, pause}
	p.faults[campaign.Pause] = fault{campaign.X, pause}
	p.faults[campaign.Restart] = fault{restart, func(tb testenv.TB, _ string) func() { s.Restart(tb); return nil }}
	return p
}

// wiped adds the fault of an operator that deletes everything, unless the server was given by URL.
func (p *place) wiped(class campaign.Class, wipe func(tb testenv.TB)) *place {
	if p.source != "url" {
		p.faults[campaign.Wipe] = fault{class, func(tb testenv.TB, _ string) func() { wipe(tb); return nil }}
	}
	return p
}

func redisPlace(s *testenv.Server) *place {
	return serverPlace(s, campaign.X).wiped(campaign.F, func(tb testenv.TB) { wipeRedis(tb, s.Addr) })
}

func memcachedPlace(tb testenv.TB) *place {
	s := testenv.Memcached(tb)
	return serverPlace(s, campaign.F).wiped(campaign.U, func(tb testenv.TB) { wipeMemcached(tb, s.Addr) })
}

func zookeeperPlace(tb testenv.TB) *place {
	p := serverPlace(testenv.NewZooKeeper(tb, zookeeperTick), campaign.X)
	query := "?session=" + zookeeperSession.String()
	through := p.through
	p.url += query
	p.through = func(addrs []string) string { return through(addrs) + query }
	return p.wiped(campaign.F, func(tb testenv.TB) { wipeZooKeeper(tb, p.addrs) })
}

func etcdPlace(tb testenv.TB) *place {
	s := testenv.Etcd(tb)
	return serverPlace(s, campaign.X).wiped(campaign.F, func(tb testenv.TB) { wipeEtcd(tb, []string{s.Addr}) })
}

func mysqlPlace(s *testenv.Server) *place {
	return serverPlace(s, campaign.X).wiped(campaign.F, func(tb testenv.TB) { wipeMySQL(tb, s.URL) })
}

func filePlace(tb testenv.TB) *place {
	dir := tb.TempDir()
	p := &place{source: "process", url: "file:" + dir, faults: make(map[campaign.Kind]fault)}
	return p.wiped(campaign.F, func(tb testenv.TB) { wipeFiles(tb, dir) })
}

// ensemblePlace is three servers, of which the leader dies or stands still.
func ensemblePlace(e *testenv.Ensemble, query string) *place {
	p := &place{
		source: e.Source, version: e.Version, url: e.URL + query, addrs: make([]string, len(e.Members)),
		through: func(addrs []string) string { return e.URLOf(addrs...) + query }, faults: make(map[campaign.Kind]fault),
	}
	for i, m := range e.Members {
		p.addrs[i] = m.Addr
	}
	if e.Source == "url" {
		return p
	}
	pause := func(tb testenv.TB, _ string) func() { return e.Pause(tb) }
	p.faults[campaign.PauseShort] = fault{campaign.X, pause}
	p.faults[campaign.Pause] = fault{campaign.X, pause}
	p.faults[campaign.LeaderKill] = fault{campaign.X, func(tb testenv.TB, _ string) func() { return e.Kill(tb, e.Leader(tb)) }}
	p.faults[campaign.LeaderStop] = fault{campaign.X, func(tb testenv.TB, _ string) func() { return e.Leader(tb).Pause(tb) }}
	return p
}

// clusterPlace is a Redis cluster. It may forget a lock whenever a replica takes over, as its
// replication is asynchronous.
func clusterPlace(tb testenv.TB) *place {
	g := testenv.RedisCluster(tb)
	master := func(tb testenv.TB, name string) *testenv.Server { return g.Master(tb, "dlock:{"+name+"}") }
	p := groupPlace(g, g.URL, campaign.F, master)
	return p.wiped(campaign.F, func(tb testenv.TB) { wipeCluster(tb, g.Addrs(tb)) })
}

// sentinelPlace is a Redis master with two replicas behind sentinels, and stopped is what the locks
// of query promise where a master returns that was replaced while it stood still. With wait=1 the
// second replica may still acknowledge for that one, when the first is the master already. With
// wait=2 the new master would have to.
func sentinelPlace(tb testenv.TB, query string, stopped campaign.Class) *place {
	g := testenv.RedisSentinel(tb)
	master := func(tb testenv.TB, _ string) *testenv.Server { return g.SentinelMaster(tb) }
	p := groupPlace(g, g.URL+query, campaign.X, master)
	if leader, ok := p.faults[campaign.LeaderStop]; ok {
		p.faults[campaign.LeaderStop] = fault{stopped, leader.inject}
	}
	return p.wiped(campaign.F, func(tb testenv.TB) { wipeRedis(tb, g.SentinelMaster(tb).Addr) })
}

func groupPlace(g *testenv.RedisGroup, url string, failover campaign.Class, master func(testenv.TB, string) *testenv.Server) *place {
	p := &place{source: g.Source, version: g.Version, url: url, faults: make(map[campaign.Kind]fault)}
	if g.Source == "url" {
		return p
	}
	for _, s := range slices.Concat(g.Nodes, g.Sentinels) {
		p.addrs = append(p.addrs, s.Addr)
	}
	pause := func(tb testenv.TB, _ string) func() { return g.Pause(tb) }
	p.faults[campaign.PauseShort] = fault{campaign.X, pause}
	p.faults[campaign.Pause] = fault{failover, pause} // longer than the members take each other for alive
	p.faults[campaign.Failover] = fault{failover, func(tb testenv.TB, name string) func() {
		back := g.Take(tb, master(tb, name), true)
		return func() { back(); g.Await(tb) }
	}}
	p.faults[campaign.LeaderStop] = fault{failover, func(tb testenv.TB, name string) func() {
		back := g.Take(tb, master(tb, name), false)
		return func() { back(); g.Await(tb) }
	}}
	return p
}
