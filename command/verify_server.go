package command

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"strings"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/conformance/faultproxy"
)

// server is the server of one URL. It is the conformance.Harness of the cases.
type server struct {
	url      string
	prefix   string // of all names
	name     string // of the server: the URL without its secrets
	local    bool   // there is no server
	faults   bool
	upstream []string // with faults, the addresses behind the proxy
}

// newServer does not connect yet. With faults, it returns an error if a proxy cannot be put between
// the client and the server of the URL.
func newServer(url, prefix string, faults bool) (*server, error) {
	u, err := backend.ParseURL(url)
	if err != nil {
		return nil, err
	}
	outer, _ := u.Take("prefix")
	s := &server{
		url: url, name: u.String(), local: u.Scheme == "mem" || u.Scheme == "file", faults: faults,
		prefix: cmp.Or(prefix, outer+"dlock-verify/"+strings.ToLower(rand.Text()[:10])+"/"),
	}
	if faults && !s.local {
		err = s.prepareForProxy(u)
	}
	return s, err
}

// urlName returns the i-th URL without its secrets, for messages.
func urlName(url string, i int) string {
	u, err := backend.ParseURL(url)
	if err != nil {
		return fmt.Sprintf("URL %d", i+1)
	}
	return u.String()
}

// defaultPorts has the ports of the schemes whose clients connect only to the hosts of their URL. A
// proxy can be put between such a client and its server.
var defaultPorts = map[string]string{
	"redis": "6379", "rediss": "6379",
	"etcd": "2379", "etcds": "2379",
	"zk": "2181", "zookeeper": "2181",
	"mysql": "3306", "mariadb": "3306",
	"postgres": "5432", "postgresql": "5432",
	"memcached": "11211",
}

// prepareForProxy finds the addresses of the servers. The certificates of the servers do not name
// the proxy, so the URL must have the name that is in the certificates.
func (s *server) prepareForProxy(u *backend.URL) error {
	port, ok := defaultPorts[u.Scheme]
	switch {
	case !ok:
		return usagef(
			"--faults: servers of %s: send clients to other addresses, past any proxy", u.Scheme)
	case len(u.Hosts) == 0:
		return usagef("--faults: the proxy needs a host, a socket is not enough")
	}
	s.upstream = u.HostsWithPort(port)
	secure := u.Scheme == "rediss" || u.Scheme == "etcds"
	if err := u.TakeBool("tls", &secure); err != nil {
		return err
	}
	if _, named := u.Take("server-name"); named || !secure {
		return nil
	}
	if len(s.upstream) > 1 {
		return usagef("--faults: with TLS and several hosts the URL needs server-name, " +
			"which is in the certificates of all")
	}
	host, _, err := net.SplitHostPort(s.upstream[0])
	s.url = withParameter(s.url, "server-name", host)
	return err
}

// skips returns the reason why a case cannot run here, or "" if it can.
func (s *server) skips(c conformance.Case) string {
	switch {
	case c.Faults && s.local:
		return "there is no server"
	case c.Alone && c.Faults:
		return "it would stop the server"
	case c.Alone:
		return "it counts what the process uses, and other cases run meanwhile"
	case c.Faults && !s.faults:
		return "it needs --faults"
	}
	return ""
}

// harness is the HarnessMaker of the cases.
func (s *server) harness(t conformance.TB) conformance.Harness {
	if len(s.upstream) == 0 {
		return s
	}
	p, err := faultproxy.New(s.upstream...)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return &proxied{s, p}
}

// Driver implements conformance.Harness.
func (s *server) Driver(ctx context.Context) (backend.Driver, error) { return s.open(ctx, nil) }

// open connects to hosts, or to the hosts of the URL if hosts is empty. It does not check the
// parameters, because dlock.Open has accepted them.
func (s *server) open(ctx context.Context, hosts []string) (backend.Driver, error) {
	u, err := backend.ParseURL(s.url)
	if err != nil {
		return nil, err
	}
	open, err := backend.Lookup(u.Scheme)
	if err != nil {
		return nil, err
	}
	if len(hosts) > 0 {
		u.Hosts = hosts
	}
	return open(ctx, u)
}

// Prefix implements conformance.Harness.
func (s *server) Prefix() string { return s.prefix }

// Close implements conformance.Harness. It does nothing.
func (s *server) Close() {}

// proxied is a server behind a proxy that can cut the network.
type proxied struct {
	*server
	proxy *faultproxy.Proxy
}

var _ conformance.Faults = (*proxied)(nil)

// Driver implements conformance.Harness.
func (p *proxied) Driver(ctx context.Context) (backend.Driver, error) {
	return p.open(ctx, p.proxy.Addrs())
}

// Close closes the proxy.
func (p *proxied) Close() { p.proxy.Close() }

// Cut implements conformance.Faults.
func (p *proxied) Cut(t conformance.TB) (heal func()) {
	heal = p.proxy.Cut()
	t.Cleanup(heal)
	return heal
}

// DropReply implements conformance.Faults.
func (p *proxied) DropReply(_ conformance.TB, nth int) { p.proxy.DropReply(nth) }

// Pause is never called: cases that stop the server do not run.
func (p *proxied) Pause(t conformance.TB) (resume func()) {
	t.Fatalf("the server is not ours to stop")
	return nil
}

// Restart is never called, for the same reason.
func (p *proxied) Restart(t conformance.TB) { t.Fatalf("the server is not ours to restart") }
