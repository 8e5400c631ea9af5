package recipe

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/dlock-go/dlock/internal/testenv/runner"
	"github.com/dlock-go/dlock/internal/testenv/server"
)

// postgresPassword is the password of the user postgres.
const postgresPassword = "correct-horse"

// Postgres returns the recipe of a PostgreSQL server with further arguments ("-c",
// "default_transaction_isolation=serializable"). It has the database dlock, and the user postgres
// with a password.
//
// A server that runs as a process refuses to run as root. Pause stops only its first process, so
// connections that are open go on.
func Postgres(args ...string) *server.Recipe {
	return &server.Recipe{
		Spec: runner.Spec{
			Name: "postgres", Port: 5432, Program: "postgres", Package: "postgresql",
			Env: postgresVariables, Command: postgresCommand, Args: args,
		},
		URL:   "postgres://postgres:" + postgresPassword + "@ADDRESS/dlock",
		Probe: postgresVersion,
	}
}

// postgresVariables configure the official image.
func postgresVariables(runner.Listen) map[string]string {
	return map[string]string{
		"POSTGRES_PASSWORD": postgresPassword, "POSTGRES_DB": "dlock",
		// As in our image: the tests connect thousands of times.
		"POSTGRES_INITDB_ARGS": "--set=scram_iterations=1",
	}
}

func postgresCommand(l runner.Listen) []string {
	if !l.Container { // the image has its own data
		initialisePostgres(l.Dir)
	}
	return postgresServer(l)
}

// postgresServer returns the command of a server whose data exist.
func postgresServer(l runner.Listen) []string {
	flags := []string{"postgres"}
	for _, setting := range []string{
		"listen_addresses=" + l.Host, "port=" + strconv.Itoa(l.Port),
		"max_connections=1000", "shared_buffers=32MB",
		"fsync=on", // otherwise the driver claims less, and the suite proves less
	} {
		flags = append(flags, "-c", setting)
	}
	if !l.Container {
		flags = append(flags, "-D", postgresData(l.Dir), "-c", "unix_socket_directories="+l.Dir)
	}
	return flags
}

// postgresData returns the folder of the data of a server that runs as a process.
func postgresData(dir string) string { return filepath.Join(dir, "data") }

// initialisePostgres initialises the data of a server that runs as a process. If it fails, the
// server does not start either, and its log has the reason.
func initialisePostgres(dir string) {
	data, password := postgresData(dir), filepath.Join(dir, "password")
	_ = os.WriteFile(password, []byte(postgresPassword), 0o600)
	_ = exec.Command("initdb", "--pgdata="+data, "--username=postgres", "--pwfile="+password,
		"--auth=scram-sha-256", "--encoding=UTF8", "--locale=C").Run()
	create := exec.Command("postgres", "--single", "-D", data, "postgres")
	create.Stdin = strings.NewReader("CREATE DATABASE dlock")
	_ = create.Run()
}

// postgresVersion returns the version, such as "PostgreSQL 18.6".
func postgresVersion(ctx context.Context, t server.Target) (string, error) {
	conn, err := pgx.Connect(ctx, t.URL+"?sslmode=prefer")
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	var version string
	if err := conn.QueryRow(ctx, "SHOW server_version").Scan(&version); err != nil {
		return "", err
	}
	return postgresProduct(version), nil
}

// postgresProduct returns the product with the version that a server reports.
func postgresProduct(version string) string {
	number, _, _ := strings.Cut(version, " ") // Debian's follows
	return "PostgreSQL " + number
}
