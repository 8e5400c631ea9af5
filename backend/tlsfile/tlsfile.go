// Package tlsfile reads the TLS parameters that the URLs of all drivers share: ca, cert and
// key, which name files, and server-name. No parameter disables the verification of the
// server's certificate.
//
// An Opener takes the parameters from the URL, and reads the files when it connects:
//
//	files, err := tlsfile.Take(u, "rediss")
//	if err != nil {
//		return nil, err
//	}
//	config, err := files.Config(addr) // nil for plaintext
//
// Take reports what is wrong with the URL before anything is dialled. A driver that connects
// to several servers calls [For] for each of them.
package tlsfile

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/dlock-go/dlock/backend"
)

// Files are the TLS parameters of a URL. A nil *Files stands for plaintext.
type Files struct {
	CA         string // file of the trusted authorities; "" means the system's
	Cert, Key  string // files of the client's certificate and its key; both or neither
	ServerName string // the name in the server's certificate; "" means the host's
}

// Take takes the parameters and reads no file. TLS is requested by the scheme secure, such
// as "rediss", or by the parameter tls if secure is empty. Without TLS, Take returns nil,
// and the other parameters are errors.
func Take(u *backend.URL, secure string) (*Files, error) {
	encrypt, asked := u.Scheme == secure, secure+"://"
	if secure == "" {
		asked = "tls=1"
		if err := u.TakeBool("tls", &encrypt); err != nil {
			return nil, err
		}
	}
	var f Files
	u.TakeString("ca", &f.CA)
	u.TakeString("cert", &f.Cert)
	u.TakeString("key", &f.Key)
	u.TakeString("server-name", &f.ServerName)
	switch {
	case !encrypt && f != Files{}:
		return nil, errors.New("dlock: invalid URL: ca, cert, key and server-name go with " + asked)
	case !encrypt:
		return nil, nil
	case (f.Cert == "") != (f.Key == ""):
		return nil, fmt.Errorf("dlock: invalid URL: cert=%q and key=%q go together", f.Cert, f.Key)
	}
	return &f, nil
}

// Config reads the files and makes a configuration for connections to addr. If addr and
// ServerName are empty, [For] has to complete it. The files are read once: a certificate
// that is replaced later needs another Open. The oldest protocol is TLS 1.2.
//
// It returns an error if a file cannot be read, or does not hold a certificate or its key in
// PEM. The error names the file and does not quote its content. The Config of nil is nil,
// which means plaintext.
func (f *Files) Config(addr string) (*tls.Config, error) {
	if f == nil {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.ServerName}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("dlock: parameter \"ca\": %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("dlock: parameter \"ca\": %s holds no certificate", f.CA)
		}
	}
	if f.Cert != "" {
		pair, err := readPair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("dlock: parameters \"cert\" and \"key\": %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return For(addr, config), nil
}

// readPair is tls.LoadX509KeyPair with errors that name the files and do not quote their
// content.
func readPair(certFile, keyFile string) (tls.Certificate, error) {
	cert, err := os.ReadFile(certFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := os.ReadFile(keyFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s and %s are not a certificate and its key in PEM",
			certFile, keyFile)
	}
	return pair, nil
}

// For returns config with the host of addr as the name to verify, unless config has a name.
// It does not change config. An addr without a port, such as the path of a socket, has no
// host.
func For(addr string, config *tls.Config) *tls.Config {
	host, _, err := net.SplitHostPort(addr)
	if config.ServerName != "" || err != nil {
		return config
	}
	config = config.Clone()
	config.ServerName = host
	return config
}
