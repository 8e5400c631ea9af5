package testenv

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const etcdPort = 2379

var etcdSpec = &spec{
	name: "etcd", port: etcdPort, program: "etcd", pkg: "etcd-server",
	command: etcdCommand,
	url:     func(addr string, _ []string) string { return "etcd://" + addr },
	probe:   etcdVersion,
}

// Etcd returns the etcd server, a cluster of one, that all tests of this process share. [Main] stops it.
func Etcd(tb TB) *Server {
	tb.Helper()
	return etcdSpec.share(tb)
}

// NewEtcd starts an etcd server for this test alone, with further arguments ("--auto-compaction-retention", "1s"), and removes it
// when the test ends.
func NewEtcd(tb TB, args ...string) *Server {
	tb.Helper()
	return etcdSpec.own(tb, args)
}

// etcdCommand makes a member that waits for no peers, hence the port 0.
func etcdCommand(l listen, args []string) []string {
	client := fmt.Sprintf("http://%s:%d", l.host, l.port)
	return append([]string{
		"etcd", "--data-dir", l.dir, "--log-level", "error",
		"--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", "http://127.0.0.1:0",
	}, args...)
}

// etcdVersion asks for what only a member with a leader can answer, too.
func etcdVersion(ctx context.Context, rawURL string) (string, error) {
	addr, err := address(rawURL, etcdPort)
	if err != nil {
		return "", err
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, DialTimeout: time.Second, Logger: zap.NewNop()})
	if err != nil {
		return "", err
	}
	defer c.Close()
	_, err = c.Get(ctx, "/")
	if errors.Is(err, rpctypes.ErrUserEmpty) { // a test has turned authentication on
		return "etcd", nil
	}
	if err != nil {
		return "", err
	}
	status, err := c.Status(ctx, addr)
	if err != nil {
		return "", err
	}
	return "etcd " + status.Version, nil
}
