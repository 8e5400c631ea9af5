package memcachedbackend

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/testenv"
)

// authority issues certificates for a test and keeps its own in a file.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{file: filepath.Join(t.TempDir(), "ca.pem")}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	var der []byte
	a.key, der = sign(t, template, template, nil)
	var err error
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(a.file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return a
}

// issue makes the certificate of a server or a client.
func (a *authority) issue(t *testing.T, name string, notAfter time.Time) tls.Certificate {
	t.Helper()
	key, der := sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{name}, NotBefore: notAfter.Add(-time.Hour), NotAfter: notAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, a.key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// sign returns a new key and its certificate; without a signer it signs itself.
func sign(t *testing.T, template, parent *x509.Certificate, by *ecdsa.PrivateKey) (*ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if by == nil {
		by = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	if err != nil {
		t.Fatal(err)
	}
	return key, der
}

// terminate ends TLS in front of a server, as a proxy beside it does, and returns how many bytes
// arrived inside of it.
func terminate(t *testing.T, upstream string, config *tls.Config) (addr string, read func() int) {
	t.Helper()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	total := 0
	wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				n := forward(conn, upstream)
				mu.Lock()
				defer mu.Unlock()
				total += n
			})
		}
	})
	stop := sync.OnceFunc(func() { _ = listener.Close(); wg.Wait() })
	t.Cleanup(stop)
	return listener.Addr().String(), func() int { stop(); return total }
}

func forward(conn net.Conn, upstream string) int {
	defer conn.Close()
	server, err := net.Dial("tcp", upstream)
	if err != nil {
		return 0
	}
	defer server.Close()
	var back sync.WaitGroup
	back.Go(func() { _, _ = io.Copy(conn, server) })
	n, _ := io.Copy(server, conn)
	_ = server.Close()
	back.Wait()
	return int(n)
}

func TestTLS(t *testing.T) {
	t.Parallel()
	s := testenv.Memcached(t)
	trusted, other := newAuthority(t), newAuthority(t)
	later := time.Now().Add(time.Hour)
	tests := []struct {
		name string
		cert tls.Certificate
		url  string // parameters
		ok   bool
	}{
		{"trusted", trusted.issue(t, "cache.test", later), "&server-name=cache.test&ca=" + trusted.file, true},
		{"wrong authority", other.issue(t, "cache.test", later), "&server-name=cache.test&ca=" + trusted.file, false},
		{"the system's authorities", trusted.issue(t, "cache.test", later), "&server-name=cache.test", false},
		{"wrong name", trusted.issue(t, "cache.test", later), "&ca=" + trusted.file, false},
		{"expired", trusted.issue(t, "cache.test", time.Now().Add(-time.Minute)), "&server-name=cache.test&ca=" + trusted.file, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			addr, read := terminate(t, s.Addr, &tls.Config{Certificates: []tls.Certificate{tt.cert}})
			user := ""
			if !tt.ok {
				user = "u:secret@"
			}
			d, err := tryOpen(t.Context(), "memcached://"+user+addr+"?tls=1"+tt.url)
			if (err == nil) != tt.ok {
				t.Errorf("open: %v", err)
			}
			if d != nil {
				for range 3 { // the connection is not taken for dead
					release(t, d.(*driver), acquire(t, d.(*driver), request(t, time.Minute)))
				}
				if err := d.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			}
			if n := read(); (n > 0) != tt.ok {
				t.Errorf("%d bytes were sent inside of TLS", n)
			}
		})
	}
}

func TestTLSClientCertificate(t *testing.T) {
	t.Parallel()
	s := testenv.Memcached(t)
	a := newAuthority(t)
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	addr, _ := terminate(t, s.Addr, &tls.Config{
		Certificates: []tls.Certificate{a.issue(t, "cache.test", time.Now().Add(time.Hour))},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: pool,
	})
	pair := a.issue(t, "client.test", time.Now().Add(time.Hour))
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, block := range map[string]*pem.Block{
		"cert.pem": {Type: "CERTIFICATE", Bytes: pair.Certificate[0]},
		"key.pem":  {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	base := "memcached://" + addr + "?tls=1&server-name=cache.test&ca=" + a.file
	if d, err := tryOpen(t.Context(), base); err == nil {
		_ = d.Close()
		t.Error("opened without a certificate")
	}
	d := openURL(t, base+"&cert="+filepath.Join(dir, "cert.pem")+"&key="+filepath.Join(dir, "key.pem"))
	release(t, d, acquire(t, d, request(t, time.Minute)))
}

// TestPassword takes a list that every system has for an auth file: names, and what follows their
// first colon.
func TestPassword(t *testing.T) {
	t.Parallel()
	s := testenv.NewMemcached(t, "-Y", "/etc/passwd")
	var errs []error
	for _, password := range []string{ // the image of ours, Debian's, Alpine's
		"x:0:0::/:/bin/sh", "x:0:0:root:/root:/bin/bash", "x:0:0:root:/root:/bin/sh", "x:0:0:root:/root:/bin/ash",
	} {
		d, err := New([]string{s.Addr}, &Options{User: "root", Password: password})
		if err != nil {
			errs = append(errs, err)
			continue
		}
		release(t, d.(*driver), acquire(t, d.(*driver), request(t, time.Minute)))
		if err := d.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		return
	}
	t.Errorf("no password is right: %v", errs)
}
