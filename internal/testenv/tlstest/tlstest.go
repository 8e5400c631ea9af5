// Package tlstest tests the TLS parameters of a driver's URL against servers with good and bad
// certificates. Only tests import it.
//
// The cases are the same for all drivers. In each case the driver opens a URL. The server's
// certificate is valid, or it has the wrong authority, the wrong name or has expired; or the server
// requires a certificate of the client. Two kinds of servers are possible:
//
//   - a forwarder that ends TLS in front of a server without TLS. It counts the bytes that the
//     driver sends inside TLS, so the test detects a password that reaches an untrusted server;
//   - a server that supports TLS itself.
package tlstest

import (
	"crypto/tls"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/pki"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// Suite tests a driver's TLS parameters. The driver must open only if the server's certificate is
// valid. It must not send data to a server with another certificate, least of all a password.
type Suite struct {
	Upstream  string                               // the address of a server without TLS
	URL       string                               // "rediss://%s?%s", for host and parameters
	Protocols []string                             // for a client that requires ALPN
	Use       func(t *testing.T, d backend.Driver) // tests an open driver; may be nil
	// Start starts a server with TLS. The bytes that it receives are not counted. If Start is nil,
	// a Forwarder ends TLS in front of Upstream.
	Start func(tb testenv.TB, server pki.ServerTLS) *testenv.Server
}

// Run runs the cases as parallel subtests.
func (s Suite) Run(t *testing.T) {
	t.Helper()
	trusted, other := pki.NewAuthority(t), pki.NewAuthority(t)
	const name = "server.test"
	later := time.Now().Add(time.Hour)
	good, client := trusted.Issue(t, name, later), trusted.Issue(t, "client.test", later)
	known := "server-name=" + name + "&ca=" + trusted.File
	server := func(c *pki.Certificate) pki.ServerTLS { return pki.ServerTLS{Cert: c} }
	expired := trusted.Issue(t, name, time.Now().Add(-time.Minute))
	both := pki.ServerTLS{Cert: good, Clients: trusted} // the client must present a certificate
	started := make(map[pki.ServerTLS]*testenv.Server)
	for _, c := range []struct {
		name   string
		server pki.ServerTLS
		params string
		ok     bool
	}{
		{name: "trusted", server: server(good), params: known, ok: true},
		{name: "wrong authority", server: server(other.Issue(t, name, later)), params: known},
		{name: "the system's authorities", server: server(good), params: "server-name=" + name},
		{name: "wrong name", server: server(good), params: "ca=" + trusted.File},
		{name: "expired", server: server(expired), params: known},
		{name: "no client certificate", server: both, params: known},
		{
			name: "client certificate", server: both, ok: true,
			params: known + "&cert=" + client.CertFile + "&key=" + client.KeyFile,
		},
	} {
		if s.Start != nil && started[c.server] == nil {
			started[c.server] = s.Start(t, c.server)
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if s.Start != nil {
				s.check(t, started[c.server].Addr, c.params, c.ok)
				return
			}
			f := testenv.Forward(t, listen(t, c.server, s.Protocols), s.Upstream)
			s.check(t, f.Addr(), c.params, c.ok)
			if n := f.Close(); (n > 0) != c.ok {
				t.Errorf("the driver sent %d bytes inside TLS", n)
			}
		})
	}
}

// listen returns a listener that acts as a server with TLS.
func listen(t *testing.T, s pki.ServerTLS, protocols []string) net.Listener {
	t.Helper()
	config := &tls.Config{Certificates: []tls.Certificate{s.Cert.TLS}, NextProtos: protocols}
	if s.Clients != nil {
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, s.Clients.Pool()
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// check opens the URL. If it must fail, check also opens it with a wrong password, which the error
// must not contain. Without that password, nothing but the certificate is wrong.
func (s Suite) check(t *testing.T, host, params string, ok bool) {
	t.Helper()
	if !ok {
		for _, login := range []string{"", raw.Login} {
			url := fmt.Sprintf(s.URL, login+host, params)
			raw.WantIs(t, url, raw.Refused(t, url, ""), backend.ErrUnavailable)
		}
		return
	}
	d, err := testenv.Open(t.Context(), fmt.Sprintf(s.URL, host, params))
	if err != nil {
		t.Errorf("Open: %v", err)
		return
	}
	s.use(t, d)
}

func (s Suite) use(t *testing.T, d backend.Driver) {
	t.Helper()
	if s.Use != nil {
		s.Use(t, d)
	}
	if err := d.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}
