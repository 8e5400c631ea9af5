package testenv

import (
	"slices"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv/pki"
	"github.com/dlock-go/dlock/internal/testenv/recipe"
	"github.com/dlock-go/dlock/internal/testenv/server"
)

// recipes are the single servers of this file, for each folder of images. Their order is the order
// in which the command packages prints them.
var recipes = []*server.Recipe{
	recipe.Redis(), recipe.Valkey(), recipe.Memcached(), recipe.ZooKeeper(), recipe.Etcd(),
	recipe.MySQL(), recipe.MariaDB(), recipe.Postgres(), recipe.PgBouncer("", "session"),
}

// Recipes returns the recipes of all kinds of single servers.
func Recipes() []*server.Recipe { return slices.Clone(recipes) }

// Redis returns the Redis server that all tests of this process share. [Main] stops it.
func Redis(tb TB) *Server {
	tb.Helper()
	return share(tb, recipe.Redis())
}

// NewRedis starts a Redis server for this test alone, with further arguments ("--maxmemory",
// "8mb"). With "--requirepass" the URL has the password. The server is removed when the test ends.
func NewRedis(tb TB, args ...string) *Server {
	tb.Helper()
	return own(tb, recipe.Redis(args...))
}

// Valkey is [Redis] for a Valkey server.
func Valkey(tb TB) *Server {
	tb.Helper()
	return share(tb, recipe.Valkey())
}

// NewValkey is [NewRedis] for a Valkey server.
func NewValkey(tb TB, args ...string) *Server {
	tb.Helper()
	return own(tb, recipe.Valkey(args...))
}

// RedisCluster returns the cluster of three masters, each with a replica, that all tests of this
// process share. If a master is silent for three seconds, its replica is promoted. [Main] stops the
// cluster.
func RedisCluster(tb TB) *RedisGroup {
	tb.Helper()
	return newRedisGroup(share(tb, recipe.RedisCluster()))
}

// NewRedisCluster starts a cluster like the cluster of [RedisCluster] for this test alone, with
// further arguments for each node. The cluster is removed when the test ends.
func NewRedisCluster(tb TB, args ...string) *RedisGroup {
	tb.Helper()
	return newRedisGroup(own(tb, recipe.RedisCluster(args...)))
}

// RedisSentinel returns the master with two replicas and three sentinels that all tests of this
// process share. If the master is silent for three seconds, a replica is promoted. [Main] stops the
// servers.
func RedisSentinel(tb TB) *RedisGroup {
	tb.Helper()
	return newRedisGroup(share(tb, recipe.RedisSentinel()))
}

// NewRedisSentinel starts servers like the servers of [RedisSentinel] for this test alone, with
// further lines of configuration for each sentinel. They are removed when the test ends.
func NewRedisSentinel(tb TB, config ...string) *RedisGroup {
	tb.Helper()
	return newRedisGroup(own(tb, recipe.RedisSentinel(config...)))
}

// Memcached returns the memcached server that all tests of this process share. [Main] stops it.
func Memcached(tb TB) *Server {
	tb.Helper()
	return share(tb, recipe.Memcached())
}

// NewMemcached starts a memcached server for this test alone, with further arguments ("-m", "8",
// "-M"). The server is removed when the test ends.
func NewMemcached(tb TB, args ...string) *Server {
	tb.Helper()
	return own(tb, recipe.Memcached(args...))
}

// NewMemcachedTLS starts a memcached server for this test alone that accepts only TLS. The server
// is removed when the test ends.
func NewMemcachedTLS(tb TB, config pki.ServerTLS) *Server {
	tb.Helper()
	return own(tb, recipe.MemcachedTLS(config))
}

// ZooKeeper returns the ZooKeeper server that all tests of this process share. [Main] stops it.
func ZooKeeper(tb TB) *Server {
	tb.Helper()
	return share(tb, recipe.ZooKeeper())
}

// NewZooKeeper starts a ZooKeeper server for this test alone, with sessions of 2 to 20 ticks. The
// server is removed when the test ends.
func NewZooKeeper(tb TB, tick time.Duration) *Server {
	tb.Helper()
	return own(tb, recipe.ZooKeeperTick(tick))
}

// NewZooKeeperTLS starts a ZooKeeper server for this test alone that accepts only TLS. The server
// is removed when the test ends.
func NewZooKeeperTLS(tb TB, config pki.ServerTLS) *Server {
	tb.Helper()
	return own(tb, recipe.ZooKeeperTLS(config))
}

// ZooKeeperEnsemble returns the ensemble of three ZooKeeper servers that all tests of this process
// share, when all of them serve. They grant sessions of 1 s to 40 s. [Main] stops the ensemble.
func ZooKeeperEnsemble(tb TB) *Ensemble {
	tb.Helper()
	return shareEnsemble(tb, recipe.ZooKeeperEnsemble())
}

// Etcd returns the etcd server that all tests of this process share. It is a cluster with one
// member. [Main] stops it.
func Etcd(tb TB) *Server {
	tb.Helper()
	return share(tb, recipe.Etcd())
}

// NewEtcd starts an etcd server for this test alone, with further arguments
// ("--auto-compaction-retention", "1s"). The server is removed when the test ends.
func NewEtcd(tb TB, args ...string) *Server {
	tb.Helper()
	return own(tb, recipe.Etcd(args...))
}

// NewEtcdTLS starts an etcd server for this test alone that accepts only TLS. The server is removed
// when the test ends.
func NewEtcdTLS(tb TB, config pki.ServerTLS) *Server {
	tb.Helper()
	return own(tb, recipe.EtcdTLS(config))
}

// EtcdEnsemble returns the cluster of three etcd servers that all tests of this process share, when
// all of them answer. They elect another leader within one to two seconds. [Main] stops the
// cluster.
func EtcdEnsemble(tb TB) *Ensemble {
	tb.Helper()
	return shareEnsemble(tb, recipe.EtcdEnsemble())
}

// MySQL returns the MySQL server that all tests of this process share. [Main] stops it.
func MySQL(tb TB) *Server {
	tb.Helper()
	return share(tb, recipe.MySQL())
}

// NewMySQL starts a MySQL server for this test alone, with further arguments ("--read-only"). The
// server is removed when the test ends.
func NewMySQL(tb TB, args ...string) *Server {
	tb.Helper()
	return own(tb, recipe.MySQL(args...))
}

// MariaDB is [MySQL] for a MariaDB server.
func MariaDB(tb TB) *Server {
	tb.Helper()
	return share(tb, recipe.MariaDB())
}

// NewMariaDB is [NewMySQL] for a MariaDB server.
func NewMariaDB(tb TB, args ...string) *Server {
	tb.Helper()
	return own(tb, recipe.MariaDB(args...))
}

// NewMySQLTLS starts a MySQL server with a certificate, for this test alone. It also accepts
// connections without TLS, unless a user requires TLS. The server is removed when the test ends.
func NewMySQLTLS(tb TB, config pki.ServerTLS) *Server {
	tb.Helper()
	return own(tb, recipe.MySQLTLS(config))
}

// NewMariaDBTLS is [NewMySQLTLS] for a MariaDB server.
func NewMariaDBTLS(tb TB, config pki.ServerTLS) *Server {
	tb.Helper()
	return own(tb, recipe.MariaDBTLS(config))
}

// Postgres returns the PostgreSQL server that all tests of this process share. [Main] stops it.
func Postgres(tb TB) *Server {
	tb.Helper()
	return share(tb, recipe.Postgres())
}

// NewPostgres starts a PostgreSQL server for this test alone, with further arguments ("-c",
// "synchronous_commit=off"). The server is removed when the test ends.
func NewPostgres(tb TB, args ...string) *Server {
	tb.Helper()
	return own(tb, recipe.Postgres(args...))
}

// NewPostgresPair starts a PostgreSQL server with a standby, for this test alone. If synchronous is
// true, each commit waits for the standby. Only the test promotes the standby. The servers are
// removed when the test ends.
func NewPostgresPair(tb TB, synchronous bool) *Pair {
	tb.Helper()
	return newPair(own(tb, recipe.PostgresPair(synchronous)), synchronous)
}

// NewPgBouncer starts a PgBouncer in front of a PostgreSQL server, for this test alone, with the
// pool mode "session" or "transaction", which follows its name in the report. It is removed when
// the test ends.
func NewPgBouncer(tb TB, s *Server, mode string) *Server {
	tb.Helper()
	addr := s.Addr
	if u, err := backend.ParseURL(s.DirectURL()); err == nil { // as a container reaches it
		addr = u.HostsWithPort("5432")[0]
	}
	return own(aloneTB{tb, "-" + mode}, recipe.PgBouncer(addr, mode))
}
