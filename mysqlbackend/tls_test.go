package mysqlbackend

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// optionFile is read by both servers when they start, and names the files.
const optionFile = "[mysqld]\nssl-ca=/tmp/ca.pem\nssl-cert=/tmp/cert.pem\nssl-key=/tmp/key.pem\n"

// secured starts a server that has a certificate of a, issued for mysql.test, and a user who needs one too. The server
// itself writes the files, and then starts again.
func secured(t *testing.T, start func(testenv.TB, ...string) *testenv.Server, a *testenv.Authority, notAfter time.Time) *testenv.Server {
	t.Helper()
	s := start(t, "--secure-file-priv=")
	if s.Source != "container" {
		t.Skip("it would write the option file of this machine")
	}
	db := database(t, s, "?interpolateParams=true&multiStatements=true")
	c := a.Issue(t, "mysql.test", notAfter)
	for file, content := range map[string][]byte{
		"/tmp/ca.pem": a.PEM, "/tmp/cert.pem": c.CertPEM, "/tmp/key.pem": c.KeyPEM, "/etc/my.cnf": []byte(optionFile),
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
			ours, other := testenv.NewAuthority(t), testenv.NewAuthority(t)
			s := secured(t, start, ours, time.Now().Add(time.Hour))
			c := ours.Issue(t, "client.test", time.Now().Add(time.Hour))
			client := "&cert=" + c.CertFile + "&key=" + c.KeyFile
			for _, tt := range []struct {
				name, user, params string
				ok                 bool
			}{
				{"trusted", "root", "&tls=1&server-name=mysql.test&ca=" + ours.File, true},
				{"wrong authority", "root", "&tls=1&server-name=mysql.test&ca=" + other.File, false},
				{"the system's authorities", "root", "&tls=1&server-name=mysql.test", false},
				{"wrong name", "root", "&tls=1&ca=" + ours.File, false},
				{"client certificate", "x", "&tls=1&server-name=mysql.test&ca=" + ours.File + client, true},
				{"no client certificate", "x", "&tls=1&server-name=mysql.test&ca=" + ours.File, false},
				{"no TLS where it is required", "x", "", false},
			} {
				d, err := testenv.Open(t.Context(), "mysql://"+tt.user+"@"+s.Addr+"/dlock?create=1"+tt.params)
				if (err == nil) != tt.ok {
					t.Errorf("%s: %v", tt.name, err)
				}
				if err != nil {
					raw.WantIs(t, tt.name, err, backend.ErrUnavailable)
					continue
				}
				if got := ask(t, d.(*lockDriver).conn.control, "SELECT VARIABLE_VALUE FROM "+sessionStatus(s)+" WHERE VARIABLE_NAME = 'Ssl_cipher'"); got == "" {
					t.Errorf("%s: not encrypted", tt.name)
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
	a := testenv.NewAuthority(t)
	expired := secured(t, testenv.NewMariaDB, a, time.Now().Add(-time.Minute))
	plaintext := testenv.NewMariaDB(t, "--skip-ssl")
	for _, s := range []*testenv.Server{expired, plaintext} {
		d, err := testenv.Open(t.Context(), "mysql://root@"+s.Addr+"/dlock?create=1&tls=1&server-name=mysql.test&ca="+a.File)
		if err == nil {
			_ = d.Close()
			t.Error("opened")
		}
		raw.WantIs(t, "open", err, backend.ErrUnavailable)
	}
}
