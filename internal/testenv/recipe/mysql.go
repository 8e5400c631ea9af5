package recipe

import (
	"context"
	"database/sql"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/dlock-go/dlock/internal/testenv/pki"
	"github.com/dlock-go/dlock/internal/testenv/runner"
	"github.com/dlock-go/dlock/internal/testenv/server"
)

// MySQL returns the recipe of a MySQL server with further arguments. It has the database dlock and
// the user root, which has no password.
func MySQL(args ...string) *server.Recipe { return mysqlLike("mysql", "mysqld", args) }

// MariaDB is [MySQL] for a MariaDB server.
func MariaDB(args ...string) *server.Recipe { return mysqlLike("mariadb", "mariadbd", args) }

// MySQLTLS returns the recipe of a MySQL server with a certificate. Each user may require TLS.
func MySQLTLS(s pki.ServerTLS) *server.Recipe { return withCertificate(MySQL(), s) }

// MariaDBTLS is [MySQLTLS] for a MariaDB server.
func MariaDBTLS(s pki.ServerTLS) *server.Recipe { return withCertificate(MariaDB(), s) }

func withCertificate(r *server.Recipe, s pki.ServerTLS) *server.Recipe {
	r.TLS = &s
	command := r.Command
	r.Command = func(l runner.Listen) []string {
		flags := append(command(l), "--ssl-cert="+path.Join(l.Dir, pki.CertFile),
			"--ssl-key="+path.Join(l.Dir, pki.KeyFile))
		if s.Clients != nil {
			flags = append(flags, "--ssl-ca="+path.Join(l.Dir, pki.ClientsFile))
		}
		return flags
	}
	return r
}

func mysqlLike(name, program string, args []string) *server.Recipe {
	return &server.Recipe{
		Spec: runner.Spec{
			Name: name, Port: 3306, Program: program, Package: name + "-server-core",
			Command: func(l runner.Listen) []string { return mysqlCommand(program, l) }, Args: args,
		},
		URL:   "mysql://root@ADDRESS/dlock?create=1",
		Probe: mysqlVersion,
	}
}

func mysqlCommand(program string, l runner.Listen) []string {
	flags := []string{
		program, "--bind-address=" + l.Host, "--port=" + strconv.Itoa(l.Port),
		"--max-connections=1000", "--skip-name-resolve", "--skip-log-bin",
	}
	// A commit goes to the kernel, and nothing waits for the disk. So it survives the server, but
	// not the host. The server's variables look as if it were on the disk.
	if program == "mysqld" {
		// No test reads the performance schema, which takes a tenth of the processor time. MariaDB
		// has it only on request.
		flags = append(flags, "--mysqlx=OFF", "--innodb-flush-method=nosync",
			"--performance-schema=OFF")
	} else {
		flags = append(flags, "--debug-no-sync")
	}
	if l.Container {
		// The image has its own data, on a volume. Temporary tables are there as well: Docker's own
		// file system may cost a processor more than the server does.
		return append(flags, "--tmpdir=/var/lib/mysql")
	}
	return append(flags, mysqlData(program, l.Dir)...)
}

// mysqlData initialises the data of a server that runs as a process, and returns the flags for the
// data. If it fails, the server does not start either, and its log has the reason.
func mysqlData(program, dir string) []string {
	data, users := filepath.Join(dir, "data"), filepath.Join(dir, "users.sql")
	initialise := exec.Command(program, "--no-defaults", "--initialize-insecure", "--datadir="+data)
	if program == "mariadbd" {
		initialise = exec.Command("mariadb-install-db", "--no-defaults",
			"--auth-root-authentication-method=normal", "--datadir="+data)
	}
	_ = initialise.Run()
	_ = os.WriteFile(users, []byte(mysqlUsers), 0o600)
	return []string{
		"--datadir=" + data, "--init-file=" + users,
		"--socket=" + filepath.Join(dir, "sock"), "--pid-file=" + filepath.Join(dir, "pid"),
	}
}

// mysqlUsers is executed at each start of a process. Each line is a statement.
const mysqlUsers = `CREATE DATABASE IF NOT EXISTS dlock;
CREATE USER IF NOT EXISTS root@'%';
GRANT ALL ON *.* TO root@'%' WITH GRANT OPTION;
`

// mysqlVersion distinguishes MySQL from MariaDB by the name in MariaDB's version.
func mysqlVersion(ctx context.Context, t server.Target) (string, error) {
	u, err := url.Parse(t.URL)
	if err != nil {
		return "", err
	}
	config := mysql.NewConfig()
	config.Net, config.Addr, config.DBName = "tcp", u.Host, strings.TrimPrefix(u.Path, "/")
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	config.Logger = &mysql.NopLogger{} // probes fail until the server is ready
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return "", err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	var version string
	if err := db.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version); err != nil {
		return "", err
	}
	number, _, _ := strings.Cut(version, "-")
	if strings.Contains(version, "MariaDB") {
		return "MariaDB " + number, nil
	}
	return "MySQL " + number, nil
}
