package recipe

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dlock-go/dlock/internal/testenv/runner"
	"github.com/dlock-go/dlock/internal/testenv/server"
)

// PgBouncer returns the recipe of a PgBouncer in front of the PostgreSQL server at addr. mode is
// "session" or "transaction": what a client has a connection of the server for.
//
// A PgBouncer that runs as a process refuses to run as root.
func PgBouncer(addr, mode string) *server.Recipe {
	return &server.Recipe{
		Spec: runner.Spec{
			Name: "pgbouncer", Port: 6432, Program: "pgbouncer", Package: "pgbouncer",
			Env:     pgbouncerVariables,
			Command: func(l runner.Listen) []string { return pgbouncerCommand(l, addr, mode) },
		},
		URL:   "postgres://postgres:" + postgresPassword + "@ADDRESS/dlock",
		Probe: pgbouncerVersion,
	}
}

// pgbouncerVariables are for the image of another maker, which makes a configuration of its own.
func pgbouncerVariables(runner.Listen) map[string]string {
	return map[string]string{"DB_HOST": "unused"}
}

// pgbouncerCommand writes the files pgbouncer.ini and users, in a container with its shell. Clients
// log in with md5, because the tests connect thousands of times: PgBouncer has no option for the
// number of SCRAM's iterations, which is 4096.
func pgbouncerCommand(l runner.Listen, addr, mode string) []string {
	dir := l.Dir
	if l.Container {
		dir = "/tmp" // not all images have the folder
	}
	settings, users := filepath.Join(dir, "pgbouncer.ini"), filepath.Join(dir, "users")
	host, port, _ := net.SplitHostPort(addr)
	const format = `[databases]
* = host=%s port=%s
[pgbouncer]
listen_addr = %s
listen_port = %s
unix_socket_dir =
auth_type = md5
auth_file = %s
admin_users = postgres
pool_mode = %s
default_pool_size = 100
max_client_conn = 1000
`
	ini := fmt.Sprintf(format, host, port, l.Host, strconv.Itoa(l.Port), users, mode)
	list := `"postgres" "` + postgresPassword + `"`
	if l.Container {
		const start = `echo "$1" >"$0" && echo "$3" >"$2" && exec pgbouncer "$0"`
		return []string{"sh", "-c", start, settings, ini, users, list}
	}
	// Without the files the server does not start, and its log has the reason.
	_ = os.WriteFile(settings, []byte(ini), 0o600)
	_ = os.WriteFile(users, []byte(list), 0o600)
	return []string{"pgbouncer", settings}
}

// pgbouncerVersion returns the version, such as "PgBouncer 1.25.0", if the server behind it
// answers.
func pgbouncerVersion(ctx context.Context, t server.Target) (string, error) {
	config, err := pgconn.ParseConfig(t.URL + "?sslmode=disable")
	if err != nil {
		return "", err
	}
	if _, err := ask(ctx, config, "SELECT 1"); err != nil {
		return "", err
	}
	config.Database = "pgbouncer"
	return ask(ctx, config, "SHOW VERSION")
}

// ask returns the first value of the answer to a statement.
func ask(ctx context.Context, config *pgconn.Config, sql string) (string, error) {
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	results, err := conn.Exec(ctx, sql).ReadAll()
	if err != nil {
		return "", err
	}
	if len(results) != 1 || len(results[0].Rows) != 1 || len(results[0].Rows[0]) != 1 {
		return "", fmt.Errorf("%s returns no value", sql)
	}
	return string(results[0].Rows[0][0]), nil
}
