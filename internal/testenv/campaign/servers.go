//go:build unix

package main

import (
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock/internal/campaign"
	"github.com/dlock-go/dlock/internal/testenv"
)

const ttl = 2 * time.Second

// targets are all servers.
var targets = []*target{
	{name: "redis", ttl: ttl, expiry: ttl, fair: true, start: func(tb testenv.TB) *place {
		return redisPlace(testenv.Redis(tb))
	}},
	{name: "valkey", ttl: ttl, expiry: ttl, fair: true, start: func(tb testenv.TB) *place {
		return redisPlace(testenv.Valkey(tb))
	}},
	{name: "redis-cluster", ttl: ttl, expiry: ttl, fair: true, start: clusterPlace},
	{
		name: "redis-sentinel", ttl: ttl, expiry: ttl, fair: true,
		start: func(tb testenv.TB) *place { return sentinelPlace(tb, "?wait=1", campaign.F) },
	},
	{
		name: "redis-sentinel-all", ttl: ttl, expiry: ttl, fair: true,
		start: func(tb testenv.TB) *place { return sentinelPlace(tb, "?wait=2", campaign.X) },
	},
	{name: "memcached", ttl: ttl, expiry: ttl + 2*time.Second, start: memcachedPlace},
	{name: "zookeeper", ttl: ttl, expiry: zookeeperExpiry, start: zookeeperPlace},
	{name: "zookeeper-3", ttl: ttl, expiry: zookeeperExpiry, start: func(tb testenv.TB) *place {
		p := ensemblePlace(testenv.ZooKeeperEnsemble(tb))
		return p.wiped(campaign.F, func(tb testenv.TB) { wipeZooKeeper(tb, p.addrs) })
	}},
	{name: "etcd", ttl: ttl, expiry: ttl + time.Second, start: etcdPlace},
	{name: "etcd-3", ttl: ttl, expiry: ttl + time.Second, start: func(tb testenv.TB) *place {
		p := ensemblePlace(testenv.EtcdEnsemble(tb))
		p.reclass(campaign.LeaderStop, campaign.F) // the leader may end leases that were renewed
		return p.wiped(campaign.F, func(tb testenv.TB) { wipeEtcd(tb, p.addrs) })
	}},
	{name: "mysql", ttl: ttl, expiry: ttl, start: func(tb testenv.TB) *place {
		return mysqlPlace(testenv.MySQL(tb))
	}},
	{name: "mariadb", ttl: ttl, expiry: ttl, start: func(tb testenv.TB) *place {
		return mysqlPlace(testenv.MariaDB(tb))
	}},
	{name: "postgres", ttl: ttl, expiry: ttl, fair: true, start: postgresPlace},
	{name: "mysql-session", ttl: ttl, expiry: ttl + time.Second, start: func(tb testenv.TB) *place {
		return sessionPlace(testenv.MySQL(tb))
	}},
	{name: "postgres-session", ttl: ttl, expiry: ttl, start: func(tb testenv.TB) *place {
		return sessionPlace(testenv.Postgres(tb))
	}},
	{name: "postgres-pair", ttl: ttl, expiry: ttl, fair: true, start: pairPlace},
	{name: "file", ttl: ttl, expiry: 4 * ttl, start: filePlace}, // a stopped holder keeps its lock
}

// ZooKeeper keeps the lock of a dead holder for the TTL and, at most, the shortest session that the
// server grants. By default that is two ticks.
const (
	zookeeperTick   = 500 * time.Millisecond
	zookeeperExpiry = ttl + 2*zookeeperTick
)

// serverPlace returns the place of one server that can be paused and restarted.
func serverPlace(s *testenv.Server, restart campaign.Class) *place {
	p := &place{
		source: s.Source, version: s.Version, url: s.URL, addrs: []string{s.Addr},
		through: replaced(s.URL, s.Addr), faults: make(map[campaign.Kind]fault),
	}
	if s.Source == "url" { // given by URL
		return p
	}
	pause := func(tb testenv.TB, _ string) func() { return s.Pause(tb) }
	p.faults[campaign.PauseShort] = fault{campaign.X, pause}
	p.faults[campaign.Pause] = fault{campaign.X, pause}
	p.faults[campaign.Restart] = fault{restart, func(tb testenv.TB, _ string) func() {
		s.Restart(tb)
		return nil
	}}
	return p
}

// wiped adds the fault of an operator that deletes all data, unless the server was given by URL.
func (p *place) wiped(class campaign.Class, wipe func(tb testenv.TB)) *place {
	if p.source != "url" {
		p.faults[campaign.Wipe] = fault{class, func(tb testenv.TB, _ string) func() {
			wipe(tb)
			return nil
		}}
	}
	return p
}

// reclass changes the class of a fault, if p has the fault.
func (p *place) reclass(k campaign.Kind, class campaign.Class) {
	if f, ok := p.faults[k]; ok {
		p.faults[k] = fault{class, f.inject}
	}
}

func redisPlace(s *testenv.Server) *place {
	p := serverPlace(s, campaign.X)
	return p.wiped(campaign.F, func(tb testenv.TB) { wipeRedis(tb, s.Addr) })
}

func memcachedPlace(tb testenv.TB) *place {
	s := testenv.Memcached(tb)
	p := serverPlace(s, campaign.F)
	return p.wiped(campaign.U, func(tb testenv.TB) { wipeMemcached(tb, s.Addr) })
}

func zookeeperPlace(tb testenv.TB) *place {
	p := serverPlace(testenv.NewZooKeeper(tb, zookeeperTick), campaign.X)
	return p.wiped(campaign.F, func(tb testenv.TB) { wipeZooKeeper(tb, p.addrs) })
}

func etcdPlace(tb testenv.TB) *place {
	s := testenv.Etcd(tb)
	p := serverPlace(s, campaign.X)
	return p.wiped(campaign.F, func(tb testenv.TB) { wipeEtcd(tb, []string{s.Addr}) })
}

func mysqlPlace(s *testenv.Server) *place {
	p := serverPlace(s, campaign.X)
	return p.wiped(campaign.F, func(tb testenv.TB) { wipeMySQL(tb, s.URL) })
}

func postgresPlace(tb testenv.TB) *place {
	s := testenv.Postgres(tb)
	p := serverPlace(s, campaign.X)
	return p.wiped(campaign.F, func(tb testenv.TB) { wipePostgres(tb, s.URL) })
}

// sessionPlace returns the place of a server whose locks end with a connection. If the server or
// the network ends the connection, the next holder can have the lock before the holder detects
// that.
func sessionPlace(s *testenv.Server) *place {
	p := serverPlace(s, campaign.F)
	p.url = inSession(p.url)
	through := p.through
	p.through = func(addrs []string) string { return inSession(through(addrs)) }
	p.weak = []campaign.Kind{campaign.Reset}
	return p
}

// inSession returns rawURL with the parameter for locks of a session.
func inSession(rawURL string) string {
	if strings.Contains(rawURL, "?") {
		return rawURL + "&lock=session"
	}
	return rawURL + "?lock=session"
}

// pairPlace returns the place of a primary with a synchronous standby. An operator promotes the
// standby after the primary has been killed.
func pairPlace(tb testenv.TB) *place {
	pair := testenv.NewPostgresPair(tb, true)
	p := serverPlace(pair.Server, campaign.X)
	p.addrs = []string{pair.Primary().Addr, pair.Standby().Addr}
	p.through = func(addrs []string) string {
		return strings.NewReplacer(p.addrs[0], addrs[0], p.addrs[1], addrs[1]).Replace(p.url)
	}
	p.faults[campaign.Failover] = fault{campaign.X, func(tb testenv.TB, _ string) func() {
		pair.Primary().Kill(tb)
		pair.Promote(tb)
		return func() { pair.Rejoin(tb) }
	}}
	return p.wiped(campaign.F, func(tb testenv.TB) { wipePostgres(tb, pair.Primary().URL) })
}

func filePlace(tb testenv.TB) *place {
	dir := tb.TempDir()
	p := &place{source: "process", url: "file:" + dir, faults: make(map[campaign.Kind]fault)}
	return p.wiped(campaign.F, func(tb testenv.TB) { wipeFiles(tb, dir) })
}

// ensemblePlace returns the place of three servers. Its faults kill or stop the leader.
func ensemblePlace(e *testenv.Ensemble) *place {
	p := &place{
		source: e.Source, version: e.Version, url: e.URL,
		addrs:   make([]string, len(e.Members)),
		through: func(addrs []string) string { return e.URLOf(addrs...) },
		faults:  make(map[campaign.Kind]fault),
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
	p.faults[campaign.LeaderKill] = fault{campaign.X, func(tb testenv.TB, _ string) func() {
		return e.Kill(tb, e.Leader(tb))
	}}
	p.faults[campaign.LeaderStop] = fault{campaign.X, func(tb testenv.TB, _ string) func() {
		return e.Leader(tb).Pause(tb)
	}}
	return p
}

// clusterPlace returns the place of a Redis cluster. The cluster can lose a lock when a replica is
// promoted, because its replication is asynchronous.
func clusterPlace(tb testenv.TB) *place {
	g := testenv.RedisCluster(tb)
	master := func(tb testenv.TB, name string) *testenv.Server {
		return g.Master(tb, "dlock:{"+name+"}")
	}
	p := groupPlace(g, g.URL, campaign.F, master)
	return p.wiped(campaign.F, func(tb testenv.TB) { wipeCluster(tb, g.Addrs(tb)) })
}

// sentinelPlace returns the place of a Redis master with two replicas and sentinels. stopped is the
// class of a master that is stopped, replaced and then resumed, for locks with query. With wait=1
// the second replica may still acknowledge requests of the former master, while the first replica
// is already the master. With wait=2 the new master itself would have to acknowledge them.
func sentinelPlace(tb testenv.TB, query string, stopped campaign.Class) *place {
	g := testenv.RedisSentinel(tb)
	master := func(tb testenv.TB, _ string) *testenv.Server { return g.SentinelMaster(tb) }
	p := groupPlace(g, g.URL+query, campaign.X, master)
	p.reclass(campaign.LeaderStop, stopped)
	return p.wiped(campaign.F, func(tb testenv.TB) { wipeRedis(tb, g.SentinelMaster(tb).Addr) })
}

func groupPlace(
	g *testenv.RedisGroup, url string, failover campaign.Class,
	master func(testenv.TB, string) *testenv.Server,
) *place {
	p := &place{
		source: g.Source, version: g.Version, url: url, faults: make(map[campaign.Kind]fault),
	}
	if g.Source == "url" {
		return p
	}
	for _, s := range slices.Concat(g.Nodes, g.Sentinels) {
		p.addrs = append(p.addrs, s.Addr)
	}
	pause := func(tb testenv.TB, _ string) func() { return g.Pause(tb) }
	p.faults[campaign.PauseShort] = fault{campaign.X, pause}
	p.faults[campaign.Pause] = fault{failover, pause} // long enough for a failover
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
