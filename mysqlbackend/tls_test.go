package mysqlbackend

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/pki"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// optionFile is read by both servers at their start. It names the certificate files.
const optionFile = "[mysqld]\nssl-ca=/tmp/ca.pem\nssl-cert=/tmp/cert.pem\nssl-key=/tmp/key.pem\n"

// secured starts a server with a certificate of a, issued for mysql.test, and with a user x that
// must present a certificate, too. The server writes the files itself and is then restarted.
func secured(
	t *testing.T, start func(testenv.TB, ...string) *testenv.Server,
	a *pki.Authority, notAfter time.Time,
) *testenv.Server {
	t.Helper()
	s := start(t, "--secure-file-priv=")
	if s.Source != "container" {
		t.Skip("does not apply: the test would overwrite the option file of this machine")
	}
	db := database(t, s, "?interpolateParams=true&multiStatements=true")
	c := a.Issue(t, "mysql.test", notAfter)
	for file, content := range map[string][]byte{
		"/tmp/ca.pem":   a.PEM,
		"/tmp/cert.pem": c.CertPEM,
		"/tmp/key.pem":  c.KeyPEM,
		"/etc/my.cnf":   []byte(optionFile),
	} {
		do(t, db, "SELECT ? INTO DUMPFILE '"+file+"'", content)
	}
	do(t, db, "CREATE USER x IDENTIFIED BY '' REQUIRE X509; GRANT ALL ON dlock.* TO x")
	_ = db.Close()
	s.Restart(t)
	return s
}

func TestTLS(t *testing.T) {
	t.Parallel()
	for name, start := range starters {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ours, other := pki.NewAuthority(t), pki.NewAuthority(t)
			s := secured(t, start, ours, time.Now().Add(time.Hour))
			c := ours.Issue(t, "client.test", time.Now().Add(time.Hour))
			const named = "&tls=1&server-name=mysql.test"
			client := "&cert=" + c.CertFile + "&key=" + c.KeyFile
			for _, tt := range []struct {
				name, user, params string
				ok                 bool
			}{
				{"trusted", "root", named + "&ca=" + ours.File, true},
				{"wrong authority", "root", named + "&ca=" + other.File, false},
				{"the system's authorities", "root", named, false},
				{"wrong name", "root", "&tls=1&ca=" + ours.File, false},
				{"client certificate", "x", named + "&ca=" + ours.File + client, true},
				{"no client certificate", "x", named + "&ca=" + ours.File, false},
				{"no TLS where it is required", "x", "", false},
			} {
				url := "mysql://" + tt.user + "@" + s.Addr +
					"/dlock?create=1&timeout=30s" + tt.params
				d, err := testenv.Open(t.Context(), url)
				if (err == nil) != tt.ok {
					t.Errorf("%s: %v", tt.name, err)
				}
				if err != nil {
					raw.WantIs(t, tt.name, err, backend.ErrUnavailable)
					continue
				}
				cipher := ask(t, d.(*driver).pools.control, "SELECT VARIABLE_VALUE FROM "+
					sessionStatus(s)+" WHERE VARIABLE_NAME = 'Ssl_cipher'")
				if cipher == "" {
					t.Errorf("%s: the connection is not encrypted", tt.name)
				}
				_ = d.Close()
			}
		})
	}
}

func sessionStatus(s *testenv.Server) string {
	if s.Name == "mariadb" {
		return "information_schema.SESSION_STATUS"
	}
	return "performance_schema.session_status"
}

func TestTLSRefusesExpiredCertificatesAndPlaintext(t *testing.T) {
	t.Parallel()
	a := pki.NewAuthority(t)
	expired := secured(t, testenv.NewMariaDB, a, time.Now().Add(-time.Minute))
	plaintext := testenv.NewMariaDB(t, "--skip-ssl")
	for _, s := range []*testenv.Server{expired, plaintext} {
		d, err := testenv.Open(t.Context(), "mysql://root@"+s.Addr+"/dlock?create=1&timeout=30s"+
			"&tls=1&server-name=mysql.test&ca="+a.File)
		if err == nil {
			_ = d.Close()
			t.Error("Open succeeded")
		}
		raw.WantIs(t, "open", err, backend.ErrUnavailable)
	}
}
