package recipe

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/dlock-go/dlock/internal/testenv/group"
	"github.com/dlock-go/dlock/internal/testenv/pki"
	"github.com/dlock-go/dlock/internal/testenv/runner"
	"github.com/dlock-go/dlock/internal/testenv/server"
)

// Etcd returns the recipe of an etcd server with further arguments. It is a cluster with one
// member.
func Etcd(args ...string) *server.Recipe {
	return &server.Recipe{
		Spec: runner.Spec{
			Name: "etcd", Port: 2379, Program: "etcd", Package: "etcd-server",
			Command: func(l runner.Listen) []string { return etcdAlone("http", l) }, Args: args,
		},
		URL:   "etcd://ADDRESS",
		Probe: etcdVersion,
	}
}

// EtcdTLS returns the recipe of an etcd server that accepts only TLS.
func EtcdTLS(s pki.ServerTLS) *server.Recipe {
	r := Etcd()
	r.URL, r.TLS = "etcds://ADDRESS", &s
	r.Command = func(l runner.Listen) []string {
		argv := append(etcdAlone("https", l), "--cert-file", path.Join(l.Dir, pki.CertFile),
			"--key-file", path.Join(l.Dir, pki.KeyFile))
		if s.Clients != nil {
			clients := path.Join(l.Dir, pki.ClientsFile)
			argv = append(argv, "--client-cert-auth", "--trusted-ca-file", clients)
		}
		return argv
	}
	return r
}

// EtcdEnsemble returns the recipe of a cluster of three etcd servers. They elect another leader
// within one to two seconds.
func EtcdEnsemble() *group.EnsembleRecipe {
	return &group.EnsembleRecipe{
		Name: "etcd-3",
		Member: func(n int, peers []group.Peer) *server.Recipe {
			r := Etcd()
			r.Command = func(l runner.Listen) []string { return etcdMember(l, n, peers) }
			return r
		},
		Leads: etcdLeads,
	}
}

// etcdAlone returns the command of a member without peers. Its peer port is 0, because no peer
// connects.
func etcdAlone(scheme string, l runner.Listen) []string {
	return append(etcdServer(scheme, l), "--listen-peer-urls", "http://127.0.0.1:0")
}

// etcdMember returns the command of the nth member of a cluster.
func etcdMember(l runner.Listen, n int, peers []group.Peer) []string {
	url := func(p group.Peer) string { return fmt.Sprintf("http://%s:%d", p.Host, p.Ports[0]) }
	var cluster []string
	for i, p := range peers {
		cluster = append(cluster, fmt.Sprintf("m%d=%s", i, url(p)))
	}
	return append(etcdServer("http", l), "--name", fmt.Sprint("m", n),
		"--listen-peer-urls", fmt.Sprintf("http://%s:%d", l.Host, peers[n].Ports[0]),
		"--initial-advertise-peer-urls", url(peers[n]),
		"--initial-cluster", strings.Join(cluster, ","))
}

func etcdServer(scheme string, l runner.Listen) []string {
	client := fmt.Sprintf("%s://%s:%d", scheme, l.Host, l.Port)
	return []string{
		"etcd", "--data-dir", l.Dir, "--log-level", "error",
		"--unsafe-no-fsync", // a commit survives the server, but not the host
		"--listen-client-urls", client, "--advertise-client-urls", client,
	}
}

// etcdVersion returns the version of a member. It makes a request that only a member with a leader
// can answer.
func etcdVersion(ctx context.Context, t server.Target) (version string, err error) {
	err = withEtcd(t, func(c *clientv3.Client) error {
		_, err := c.Get(ctx, "/")
		if errors.Is(err, rpctypes.ErrUserEmpty) { // a test has enabled authentication
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

// etcdLeads reports whether a member is the leader.
func etcdLeads(ctx context.Context, member server.Target) (leads bool, err error) {
	err = withEtcd(member, func(c *clientv3.Client) error {
		status, err := c.Status(ctx, c.Endpoints()[0])
		leads = err == nil && status.Leader == status.Header.MemberId
		return err
	})
	return leads, err
}

// withEtcd calls fn with a client of one server.
func withEtcd(t server.Target, fn func(*clientv3.Client) error) error {
	endpoint := t.Addr
	if t.TLS != nil {
		endpoint = "https://" + endpoint
	}
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{endpoint}, DialTimeout: time.Second, TLS: t.TLS, Logger: zap.NewNop(),
	})
	if err != nil {
		return err
	}
	defer c.Close()
	return fn(c)
}
