//go:build unix

package command

import (
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/testenv"
)

// serverBackend is a backend whose locks are on a server.
type serverBackend struct {
	name     string
	shared   func(testenv.TB) *testenv.Server
	own      func(testenv.TB) *testenv.Server // a server that the test may stop
	volatile bool                             // a restart loses the locks
}

var serverBackends = []serverBackend{
	{name: "redis", shared: testenv.Redis, own: plain(testenv.NewRedis)},
	{name: "valkey", shared: testenv.Valkey, own: plain(testenv.NewValkey)},
	{
		name: "memcached", shared: testenv.Memcached, own: plain(testenv.NewMemcached),
		volatile: true,
	},
	{name: "zk", shared: testenv.ZooKeeper, own: zooKeeper},
	{name: "etcd", shared: testenv.Etcd, own: plain(testenv.NewEtcd)},
	{name: "mysql", shared: patient(testenv.MySQL), own: patient(plain(testenv.NewMySQL))},
	{name: "mariadb", shared: patient(testenv.MariaDB), own: patient(plain(testenv.NewMariaDB))},
	{name: "postgres", shared: patient(testenv.Postgres), own: patient(plain(testenv.NewPostgres))},
}

// plain starts a server without further arguments.
func plain(start func(testenv.TB, ...string) *testenv.Server) func(testenv.TB) *testenv.Server {
	return func(tb testenv.TB) *testenv.Server {
		tb.Helper()
		return start(tb)
	}
}

// patient gives the programs time to connect on a busy machine. The core limits their requests.
func patient(start func(testenv.TB) *testenv.Server) func(testenv.TB) *testenv.Server {
	return func(tb testenv.TB) *testenv.Server {
		tb.Helper()
		s := *start(tb)
		join := "?"
		if strings.Contains(s.URL, "?") {
			join = "&"
		}
		s.URL += join + "timeout=15s"
		return &s
	}
}

func zooKeeper(tb testenv.TB) *testenv.Server {
	tb.Helper()
	return testenv.NewZooKeeper(tb, 2*time.Second)
}

// nameFor returns the name of a lock that no other test uses, and no other run of this test.
func nameFor(t *testing.T) string {
	t.Helper()
	return strings.ReplaceAll(strings.Trim(t.TempDir(), "/"), "/", "-")
}
