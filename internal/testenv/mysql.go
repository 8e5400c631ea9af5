package testenv

import (
	"context"
	"database/sql"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"
)

var (
	mysqlSpec   = mysqlLike("mysql", "mysqld")
	mariadbSpec = mysqlLike("mariadb", "mariadbd")
)

// MySQL returns the MySQL server that all tests of this process share. [Main] stops it.
func MySQL(tb TB) *Server {
	tb.Helper()
	return mysqlSpec.share(tb)
}

// MariaDB is [MySQL] for a MariaDB server.
func MariaDB(tb TB) *Server {
	tb.Helper()
	return mariadbSpec.share(tb)
}

// NewMySQL starts a MySQL server for this test alone, with further arguments ("--read-only"), and removes it when the
// test ends.
func NewMySQL(tb TB, args ...string) *Server {
	tb.Helper()
	return mysqlSpec.own(tb, args)
}

// NewMariaDB is [NewMySQL] for a MariaDB server.
func NewMariaDB(tb TB, args ...string) *Server {
	tb.Helper()
	return mariadbSpec.own(tb, args)
}

// mysqlLike is a server with the user root, who has no password, and the database dlock.
func mysqlLike(name, program string) *spec {
	return &spec{
		name: name, port: 3306, program: program, pkg: name + "-server-core",
		command: func(l listen, args []string) []string { return append(mysqlCommand(program, l), args...) },
		url:     func(addr string, _ []string) string { return "mysql://root@" + addr + "/dlock?create=1" },
		probe:   mysqlVersion,
	}
}

// mysqlCommand makes a server that has every acknowledged commit after a SIGKILL: it writes its log before it answers. That
// it does not wait for the disk as well, as it would by default, would matter to a crash of the machine, and costs each
// commit some milliseconds.
func mysqlCommand(program string, l listen) []string {
	flags := []string{
		program, "--bind-address=" + l.host, "--port=" + strconv.Itoa(l.port), "--max-connections=1000", "--skip-name-resolve",
		"--skip-log-bin", "--innodb-flush-log-at-trx-commit=2",
	}
	if program == "mysqld" {
		flags = append(flags, "--mysqlx=OFF")
	}
	if l.dir != containerData { // the image brings its own
		flags = append(flags, mysqlData(program, l.dir)...)
	}
	return flags
}

// containerData is where a container keeps its data, for those servers that are told.
const containerData = "/data"

// mysqlData initialises the data of a server that runs as a process, and returns the flags to use it. If that fails, the
// server does not start either, and says why.
func mysqlData(program, dir string) []string {
	data, users := filepath.Join(dir, "data"), filepath.Join(dir, "users.sql")
	initialise := exec.Command(program, "--no-defaults", "--initialize-insecure", "--datadir="+data)
	if program == "mariadbd" {
		initialise = exec.Command("mariadb-install-db", "--no-defaults", "--auth-root-authentication-method=normal", "--datadir="+data)
	}
	_ = initialise.Run()
	_ = os.WriteFile(users, []byte(mysqlUsers), 0o600)
	return []string{
		"--datadir=" + data, "--init-file=" + users, "--socket=" + filepath.Join(dir, "sock"), "--pid-file=" + filepath.Join(dir, "pid"),
	}
}

// mysqlUsers is executed at each start of a process. A line is a statement.
const mysqlUsers = `CREATE DATABASE IF NOT EXISTS dlock;
CREATE USER IF NOT EXISTS root@'%';
GRANT ALL ON *.* TO root@'%' WITH GRANT OPTION;
`

// mysqlVersion tells MySQL from MariaDB, whose version says its name.
func mysqlVersion(ctx context.Context, rawURL string) (string, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return "", err
	}
	config := mysql.NewConfig()
	config.Net, config.Addr, config.DBName = "tcp", u.Host, strings.TrimPrefix(u.Path, "/")
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	config.Logger = &mysql.NopLogger{} // it is asked until it is ready
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
