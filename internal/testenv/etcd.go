package testenv

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"path"
	"strings"
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
	probe:   func(ctx context.Context, rawURL string) (string, error) { return etcdVersion(ctx, rawURL, nil) },
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

// NewEtcdTLS starts an etcd server for this test alone that speaks nothing but TLS, and removes it when the test ends.
func NewEtcdTLS(tb TB, server ServerTLS) *Server {
	tb.Helper()
	sp, config := *etcdSpec, server.probe(tb)
	sp.files = server.files()
	sp.url = func(addr string, _ []string) string { return "etcds://" + addr }
	sp.command = func(l listen, _ []string) []string {
		argv := append(etcdServer("https", l), "--listen-peer-urls", "http://127.0.0.1:0",
			"--cert-file", path.Join(l.dir, certFile), "--key-file", path.Join(l.dir, keyFile))
		if server.Clients != nil {
			argv = append(argv, "--client-cert-auth", "--trusted-ca-file", path.Join(l.dir, clientsFile))
		}
		return argv
	}
	sp.probe = func(ctx context.Context, rawURL string) (string, error) { return etcdVersion(ctx, rawURL, config) }
	return sp.own(tb, nil)
}

var etcdEnsemble = &ensembleSpec{
	name: "etcd-3",
	member: func(n int, peers []peer) *spec {
		member := *etcdSpec
		member.command = func(l listen, _ []string) []string { return etcdMember(l, n, peers) }
		return &member
	},
	leads: func(ctx context.Context, rawURL string) (leads bool, err error) {
		err = withEtcd(rawURL, nil, func(c *clientv3.Client) error {
			status, err := c.Status(ctx, c.Endpoints()[0])
			leads = err == nil && status.Leader == status.Header.MemberId
			return err
		})
		return leads, err
	},
}

// EtcdEnsemble returns the cluster of three etcd servers that all tests of this process share, when all of them answer. They
// elect another leader within one to two seconds. [Main] stops it.
func EtcdEnsemble(tb TB) *Ensemble {
	tb.Helper()
	return etcdEnsemble.share(tb)
}

// etcdCommand makes a member that waits for no peers, hence the port 0.
func etcdCommand(l listen, args []string) []string {
	return append(append(etcdServer("http", l), "--listen-peer-urls", "http://127.0.0.1:0"), args...)
}

// etcdMember makes the nth member of a cluster.
func etcdMember(l listen, n int, peers []peer) []string {
	url := func(p peer) string { return fmt.Sprintf("http://%s:%d", p.host, p.ports[0]) }
	var cluster []string
	for i, p := range peers {
		cluster = append(cluster, fmt.Sprintf("m%d=%s", i, url(p)))
	}
	return append(etcdServer("http", l), "--name", fmt.Sprint("m", n),
		"--listen-peer-urls", fmt.Sprintf("http://%s:%d", l.host, peers[n].ports[0]),
		"--initial-advertise-peer-urls", url(peers[n]), "--initial-cluster", strings.Join(cluster, ","))
}

func etcdServer(scheme string, l listen) []string {
	client := fmt.Sprintf("%s://%s:%d", scheme, l.host, l.port)
	return []string{
		"etcd", "--data-dir", l.dir, "--log-level", "error", "--listen-client-urls", client, "--advertise-client-urls", client,
	}
}

// etcdVersion asks for what only a member with a leader can answer, too.
func etcdVersion(ctx context.Context, rawURL string, config *tls.Config) (version string, err error) {
	err = withEtcd(rawURL, config, func(c *clientv3.Client) error {
		_, err := c.Get(ctx, "/")
		if errors.Is(err, rpctypes.ErrUserEmpty) { // a test has turned authentication on
			version = "etcd"
			return nil
		}
		if err != nil {
			return err
		}
		status, err := c.Status(ctx, c.Endpoints()[0])
		if err == nil {
			version = "etcd " + status.Version
		}
		return err
	})
	return version, err
}

// withEtcd has fn ask the first server of a URL.
func withEtcd(rawURL string, config *tls.Config, fn func(*clientv3.Client) error) error {
	addr, err := address(rawURL, etcdPort)
	if err != nil {
		return err
	}
	if config != nil {
		addr = "https://" + addr
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, DialTimeout: time.Second, TLS: config, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer c.Close()
	return fn(c)
}
