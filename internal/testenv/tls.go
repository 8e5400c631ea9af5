package testenv

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// Authority issues certificates for one test.
type Authority struct {
	File string // holds its certificate: the parameter ca of a URL
	PEM  []byte // the same

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes an authority that is valid for an hour and that nobody trusts yet.
func NewAuthority(tb TB) *Authority {
	tb.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: rand.Text()}, IsCA: true, BasicConstraintsValid: true,
		NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	key, der := sign(tb, template, template, nil)
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatalf("certificate: %v", err)
	}
	text := encodePEM("CERTIFICATE", der)
	return &Authority{File: writeFile(tb, text), PEM: text, cert: cert, key: key}
}

// Pool returns what a server takes to trust the clients of this authority alone.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// Certificate is that of a server or of a client, with its key.
type Certificate struct {
	TLS               tls.Certificate
	CertPEM, KeyPEM   []byte
	CertFile, KeyFile string // hold the same: the parameters cert and key of a URL
}

// Issue makes a certificate for a DNS name that is valid for the hour before notAfter.
func (a *Authority) Issue(tb TB, name string, notAfter time.Time) *Certificate {
	tb.Helper()
	key, der := sign(tb, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: notAfter.Add(-time.Hour), NotAfter: notAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, a.key)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatalf("key: %v", err)
	}
	c := &Certificate{
		TLS:     tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		CertPEM: encodePEM("CERTIFICATE", der), KeyPEM: encodePEM("PRIVATE KEY", keyDER),
	}
	c.CertFile, c.KeyFile = writeFile(tb, c.CertPEM), writeFile(tb, c.KeyPEM)
	return c
}

// sign returns a new key and its certificate. Without a signer it signs itself.
func sign(tb TB, template, parent *x509.Certificate, by *ecdsa.PrivateKey) (*ecdsa.PrivateKey, []byte) {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatalf("key: %v", err)
	}
	if by == nil {
		by = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	if err != nil {
		tb.Fatalf("certificate: %v", err)
	}
	return key, der
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func writeFile(tb TB, content []byte) (name string) {
	tb.Helper()
	name = filepath.Join(tb.TempDir(), "tls.pem")
	if err := os.WriteFile(name, content, 0o600); err != nil {
		tb.Fatalf("%v", err)
	}
	return name
}

// ServerTLS is what a server that speaks TLS is told.
type ServerTLS struct {
	Cert    *Certificate
	Clients *Authority // who must have issued the certificates of clients; nil: they need none
}

// The files of a server that speaks TLS.
const (
	certFile    = "cert.pem"
	keyFile     = "key.pem"
	bothFile    = "both.pem"
	clientsFile = "clients.pem"
)

func (s ServerTLS) files() map[string][]byte {
	files := map[string][]byte{
		certFile: s.Cert.CertPEM, keyFile: s.Cert.KeyPEM, bothFile: slices.Concat(s.Cert.CertPEM, s.Cert.KeyPEM),
	}
	if s.Clients != nil {
		files[clientsFile] = s.Clients.PEM
	}
	return files
}

// probe returns how to ask whether the server is there: not who it is.
func (s ServerTLS) probe(tb TB) *tls.Config {
	tb.Helper()
	config := &tls.Config{InsecureSkipVerify: true}
	if s.Clients != nil {
		config.Certificates = []tls.Certificate{s.Clients.Issue(tb, "probe.test", time.Now().Add(time.Hour)).TLS}
	}
	return config
}

// dial connects, over TLS if there is a configuration.
func dial(ctx context.Context, addr string, config *tls.Config) (net.Conn, error) {
	if config == nil {
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	}
	return (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", addr)
}

// Forwarder joins each connection that a listener accepts with one to a server: behind a listener of package tls it ends TLS,
// behind that of a unix socket it stands for the server's own. Its methods may be called by many goroutines.
type Forwarder struct {
	upstream string
	listener net.Listener
	received atomic.Int64
	wg       sync.WaitGroup // the accept loop and connections
}

// Forward forwards what l accepts to the address upstream. It is closed at the end of the test.
func Forward(tb TB, l net.Listener, upstream string) *Forwarder {
	tb.Helper()
	f := &Forwarder{upstream: upstream, listener: l}
	f.wg.Go(f.accept)
	tb.Cleanup(func() { f.Close() })
	return f
}

// Addr returns the address of the listener.
func (f *Forwarder) Addr() string { return f.listener.Addr().String() }

// Close takes no more connections, waits until clients have closed theirs, and returns how many bytes they have sent to
// the server. A second Close returns the same.
func (f *Forwarder) Close() (received int64) {
	_ = f.listener.Close()
	f.wg.Wait()
	return f.received.Load()
}

func (f *Forwarder) accept() {
	for {
		conn, err := f.listener.Accept()
		if err != nil {
			return
		}
		f.wg.Go(func() { f.forward(conn) })
	}
}

func (f *Forwarder) forward(conn net.Conn) {
	defer conn.Close()
	server, err := net.Dial("tcp", f.upstream)
	if err != nil {
		return
	}
	defer server.Close()
	var back sync.WaitGroup
	back.Go(func() { _, _ = io.Copy(conn, server) })
	n, _ := io.Copy(server, conn)
	f.received.Add(n)
	_ = server.Close()
	back.Wait()
}

// TLSTest tests what a driver makes of its TLS parameters: that it opens only where the server's certificate is good, and
// that nothing, a password least of all, reaches a server whose certificate is not.
type TLSTest struct {
	Upstream  string                               // the address of a server that speaks no TLS
	URL       string                               // the format of a URL that asks for TLS: "rediss://%s?%s", of host and parameters
	Protocols []string                             // what the server offers where the client insists on ALPN
	Use       func(t *testing.T, d backend.Driver) // does more with an open driver; nil: nothing
	// Start starts a server that speaks TLS itself, instead of Upstream behind something that ends TLS. What is sent to
	// it is not counted. nil: Upstream.
	Start func(tb TB, server ServerTLS) *Server
}

// tlsBound is how long an opening may take, refused or not.
const tlsBound = 10 * time.Second

// Run runs the cases as parallel subtests.
func (tt TLSTest) Run(t *testing.T) {
	t.Helper()
	trusted, other := NewAuthority(t), NewAuthority(t)
	const name = "server.test"
	later := time.Now().Add(time.Hour)
	good, client := trusted.Issue(t, name, later), trusted.Issue(t, "client.test", later)
	known := "server-name=" + name + "&ca=" + trusted.File
	started := make(map[ServerTLS]*Server)
	for _, c := range []struct {
		name   string
		server ServerTLS
		params string
		ok     bool
	}{
		{name: "trusted", server: ServerTLS{Cert: good}, params: known, ok: true},
		{name: "wrong authority", server: ServerTLS{Cert: other.Issue(t, name, later)}, params: known},
		{name: "the system's authorities", server: ServerTLS{Cert: good}, params: "server-name=" + name},
		{name: "wrong name", server: ServerTLS{Cert: good}, params: "ca=" + trusted.File},
		{name: "expired", server: ServerTLS{Cert: trusted.Issue(t, name, time.Now().Add(-time.Minute))}, params: known},
		{name: "no client certificate", server: ServerTLS{good, trusted}, params: known},
		{
			name: "client certificate", server: ServerTLS{good, trusted}, ok: true,
			params: known + "&cert=" + client.CertFile + "&key=" + client.KeyFile,
		},
	} {
		if tt.Start != nil && started[c.server] == nil {
			started[c.server] = tt.Start(t, c.server)
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if tt.Start != nil {
				tt.check(t, started[c.server].Addr, c.params, c.ok)
				return
			}
			f := Forward(t, c.server.listen(t, tt.Protocols), tt.Upstream)
			tt.check(t, f.Addr(), c.params, c.ok)
			if n := f.Close(); (n > 0) != c.ok {
				t.Errorf("%d bytes were sent inside of TLS", n)
			}
		})
	}
}

// listen stands for a server that speaks TLS itself.
func (s ServerTLS) listen(t *testing.T, protocols []string) net.Listener {
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

func (tt TLSTest) check(t *testing.T, host, params string, ok bool) {
	t.Helper()
	if !ok {
		host = "u:secret@" + host
	}
	began := time.Now()
	d, err := Open(t.Context(), fmt.Sprintf(tt.URL, host, params))
	if took := time.Since(began); took > tlsBound {
		t.Errorf("open took %v", took)
	}
	if (err == nil) != ok {
		t.Errorf("open: %v", err)
	}
	if err != nil && strings.Contains(err.Error(), "secret") {
		t.Errorf("the error has the password: %v", err)
	}
	if err == nil {
		tt.use(t, d)
	}
}

func (tt TLSTest) use(t *testing.T, d backend.Driver) {
	t.Helper()
	if tt.Use != nil {
		tt.Use(t, d)
	}
	if err := d.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}
