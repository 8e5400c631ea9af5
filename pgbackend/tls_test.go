package pgbackend

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/pki"
	"github.com/dlock-go/dlock/internal/testenv/raw"
	"github.com/dlock-go/dlock/internal/testenv/tlstest"
)

func TestTLS(t *testing.T) {
	t.Parallel()
	tlstest.Suite{
		URL:   "postgres://postgres:correct-horse@%s/dlock?tls=1&%s",
		Start: startTLS,
		Use: func(t *testing.T, d backend.Driver) {
			t.Helper()
			raw.Release(t, d, raw.Acquire(t, d, raw.Request(t, time.Minute)))
		},
	}.Run(t)
}

// TestTLSOfTheEnvironment sets the variables that make libpq use TLS, or another certificate.
func TestTLSOfTheEnvironment(t *testing.T) {
	t.Setenv("PGSSLMODE", "verify-full")
	t.Setenv("PGSSLNEGOTIATION", "direct")
	t.Setenv("PGSSLCERTMODE", "disable")
	for _, authority := range []string{"system", "/nowhere/ca.pem"} {
		t.Setenv("PGSSLROOTCERT", authority)
		plain := &target{hosts: []string{"a:1", "b:2"}, database: "locks"}
		config, dials, err := plain.config(false)
		if err != nil {
			t.Fatal(err)
		}
		dials.close()
		conn := config.ConnConfig
		if conn.TLSConfig != nil || len(conn.Fallbacks) != 1 || conn.Fallbacks[0].TLSConfig != nil {
			t.Errorf("%s: TLS is on: %+v", authority, conn.Fallbacks)
		}
		if conn.SSLNegotiation != "" || conn.SSLCertMode == "disable" {
			t.Errorf("%s: %q, %q", authority, conn.SSLNegotiation, conn.SSLCertMode)
		}
	}
}

// startTLS starts a server that accepts only TLS. The server asks for TLS inside of its protocol,
// so nothing else can end TLS in front of it.
func startTLS(tb testenv.TB, config pki.ServerTLS) *testenv.Server {
	tb.Helper()
	s := testenv.NewPostgres(tb)
	conn := connected(tb, s.URL)
	for name, content := range config.Files() {
		write(tb, conn, name, string(content))
	}
	rule := "hostssl all all all scram-sha-256"
	if config.Clients != nil {
		rule += " clientcert=verify-ca"
		exec(tb, conn, `ALTER SYSTEM SET ssl_ca_file = '`+pki.ClientsFile+`'`)
	}
	write(tb, conn, "pg_hba.conf", rule)
	exec(tb, conn, `ALTER SYSTEM SET ssl_cert_file = '`+pki.CertFile+`'`)
	exec(tb, conn, `ALTER SYSTEM SET ssl_key_file = '`+pki.KeyFile+`'`)
	exec(tb, conn, `ALTER SYSTEM SET ssl = on`)
	exec(tb, conn, `SELECT pg_reload_conf()`)
	for end := time.Now().Add(30 * time.Second); ; { // the first process reads the files later
		plain, err := pgx.Connect(tb.Context(), s.URL+"?sslmode=disable")
		if err != nil {
			return s
		}
		_ = plain.Close(tb.Context())
		if time.Now().After(end) {
			tb.Fatalf("the server accepts connections without TLS")
		}
	}
}

// write writes a file in the folder of the server's data, which no other user can read.
func write(tb testenv.TB, conn *pgx.Conn, name, content string) {
	tb.Helper()
	exec(tb, conn, `CREATE TEMPORARY TABLE content AS
		SELECT * FROM regexp_split_to_table($1, '\n') AS line`, content)
	exec(tb, conn, `COPY content TO PROGRAM 'umask 077; cat >`+name+`'`)
	exec(tb, conn, `DROP TABLE content`)
}
