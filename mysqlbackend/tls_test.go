package mysqlbackend

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/pki"
	"github.com/dlock-go/dlock/internal/testenv/raw"
	"github.com/dlock-go/dlock/internal/testenv/tlstest"
)

// secured are functions that start a server with a certificate.
var secured = map[string]func(testenv.TB, pki.ServerTLS) *testenv.Server{
	"mysql": testenv.NewMySQLTLS, "mariadb": testenv.NewMariaDBTLS,
}

// TestTLS checks that the driver uses TLS and verifies the server's certificate. Both servers start
// TLS inside of their protocol, so nothing else can end TLS in front of them.
func TestTLS(t *testing.T) {
	t.Parallel()
	for name, start := range secured {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tlstest.Suite{
				URL: "mysql://secure@%s/dlock?create=1&timeout=30s&tls=1&%s",
				Start: func(tb testenv.TB, config pki.ServerTLS) *testenv.Server {
					tb.Helper()
					s := start(tb, config)
					createUser(tb, s, config)
					return s
				},
				Use: func(t *testing.T, d backend.Driver) {
					t.Helper()
					raw.Release(t, d, raw.Acquire(t, d, raw.Request(t, time.Minute)))
				},
			}.Run(t)
		})
	}
}

// createUser creates the user "secure", which needs TLS and, if the server checks the certificates
// of clients, a certificate.
func createUser(tb testenv.TB, s *testenv.Server, config pki.ServerTLS) {
	tb.Helper()
	requirement := "SSL"
	if config.Clients != nil {
		requirement = "X509"
	}
	db := database(tb, s, "")
	do(tb, db, "CREATE USER secure IDENTIFIED BY '' REQUIRE "+requirement)
	do(tb, db, "GRANT ALL ON dlock.* TO secure")
}

// TestTLSAgainstPlaintext checks that a server without TLS gets no password from a driver that
// expects TLS.
func TestTLSAgainstPlaintext(t *testing.T) {
	t.Parallel()
	s := testenv.NewMariaDB(t, "--skip-ssl")
	url := "mysql://" + raw.Login + s.Addr + "/dlock?timeout=30s&tls=1"
	err := raw.Refused(t, url, "server does not support TLS")
	raw.WantIs(t, "Open", err, backend.ErrUnavailable)
}
