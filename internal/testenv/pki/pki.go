// Package pki makes certificates for tests, and the configuration of servers with TLS.
//
// An [Authority] issues a [Certificate] for a server or a client. Both exist in memory and as
// files in a folder of the test, because drivers read files, and the tests' own servers do not.
// Each authority has its own random name and key and is trusted by no system. So a test decides
// which side trusts which authority:
//
//	trusted := pki.NewAuthority(t)
//	cert := trusted.Issue(t, "server.test", time.Now().Add(time.Hour))
//	url := "rediss://" + addr + "?server-name=server.test&ca=" + trusted.File
//
// [ServerTLS] is the configuration of a server program that supports TLS. The program finds its
// certificates in the files [CertFile], [KeyFile], [BothFile] and [ClientsFile] of its data folder.
// Package tlstest tests a driver against servers with good and bad certificates.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// TB is the part of a test that this package needs. A failure ends the test.
type TB interface {
	Helper()
	TempDir() string
	Fatalf(format string, args ...any)
}

// Authority issues certificates for one test.
type Authority struct {
	File string // has its certificate: the parameter ca of a URL
	PEM  []byte // the content of File

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes an authority that is valid for an hour and that no system trusts yet.
func NewAuthority(tb TB) *Authority {
	tb.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: rand.Text()},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotAfter: time.Now().Add(time.Hour),
	}
	key, der, err := sign(template, template, nil)
	if err != nil {
		tb.Fatalf("certificate: %v", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatalf("certificate: %v", err)
	}
	text := encodePEM("CERTIFICATE", der)
	return &Authority{File: writeFile(tb, text), PEM: text, cert: cert, key: key}
}

// Pool returns a pool for a server that trusts only the clients of this authority.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// Certificate is the certificate of a server or of a client, with its key.
type Certificate struct {
	TLS               tls.Certificate
	CertPEM, KeyPEM   []byte
	CertFile, KeyFile string // the same in files: the parameters cert and key of a URL
}

// Issue makes a certificate for a DNS name that is valid for the hour before notAfter.
func (a *Authority) Issue(tb TB, name string, notAfter time.Time) *Certificate {
	tb.Helper()
	c, err := a.issue(name, notAfter)
	if err != nil {
		tb.Fatalf("certificate: %v", err)
	}
	c.CertFile, c.KeyFile = writeFile(tb, c.CertPEM), writeFile(tb, c.KeyPEM)
	return c
}

// issue is Issue without the files.
func (a *Authority) issue(name string, notAfter time.Time) (*Certificate, error) {
	key, der, err := sign(&x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: notAfter.Add(-time.Hour), NotAfter: notAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, a.key)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return &Certificate{
		TLS:     tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		CertPEM: encodePEM("CERTIFICATE", der), KeyPEM: encodePEM("PRIVATE KEY", keyDER),
	}, nil
}

// sign returns a new key and its certificate. Without a signer the key signs its own certificate.
func sign(template, parent *x509.Certificate, by *ecdsa.PrivateKey) (
	key *ecdsa.PrivateKey, der []byte, err error,
) {
	key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if by == nil {
		by = key
	}
	der, err = x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	return key, der, err
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

// ServerTLS is the configuration of a server with TLS.
type ServerTLS struct {
	Cert    *Certificate
	Clients *Authority // the issuer of the clients' certificates; nil: clients need none
}

// These are the files of a server with TLS, in its data folder.
const (
	CertFile    = "cert.pem"
	KeyFile     = "key.pem"
	BothFile    = "both.pem" // the certificate and then the key
	ClientsFile = "clients.pem"
)

// Files returns the content of the files. Without Clients there is no ClientsFile.
func (s ServerTLS) Files() map[string][]byte {
	files := map[string][]byte{
		CertFile: s.Cert.CertPEM, KeyFile: s.Cert.KeyPEM,
		BothFile: slices.Concat(s.Cert.CertPEM, s.Cert.KeyPEM),
	}
	if s.Clients != nil {
		files[ClientsFile] = s.Clients.PEM
	}
	return files
}

// ClientConfig returns the configuration of a client that the server accepts, for probes. It does
// not check the server's identity.
func (s ServerTLS) ClientConfig() (*tls.Config, error) {
	config := &tls.Config{InsecureSkipVerify: true}
	if s.Clients != nil {
		c, err := s.Clients.issue("probe.test", time.Now().Add(time.Hour))
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{c.TLS}
	}
	return config, nil
}
