package recipe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dlock-go/dlock/internal/testenv/group"
	"github.com/dlock-go/dlock/internal/testenv/runner"
	"github.com/dlock-go/dlock/internal/testenv/server"
)

// PostgresPair returns the recipe of a PostgreSQL server, the primary, with a physical standby,
// which receives all of its changes. If synchronous is true, each commit of the primary waits for
// the standby. Only [PostgresPromote] promotes the standby.
func PostgresPair(synchronous bool) *server.Recipe {
	return &server.Recipe{
		Spec:  runner.Spec{Name: "postgres-pair", Port: 5432},
		URL:   Postgres().URL,
		Probe: postgresPairVersion,
		Start: func(r *server.Recipe) (*server.Instance, error) {
			return startPostgresPair(r, synchronous)
		},
	}
}

// startPostgresPair starts two servers, and replaces the second one by a standby of the first.
func startPostgresPair(r *server.Recipe, synchronous bool) (*server.Instance, error) {
	ports, err := runner.FreePorts(2)
	if err != nil {
		return nil, err
	}
	plan := group.Plan{Name: r.Name, Kind: Postgres(), Nodes: 2, Idle: postgresIdle}
	var addrs []string
	for _, port := range ports {
		m := group.Member{Port: port, Command: postgresCommand}
		plan.Members, addrs = append(plan.Members, m), append(addrs, m.Addr())
	}
	g, err := plan.Start()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), server.BootTimeout)
	defer cancel()
	if err := PostgresRejoin(ctx, g, 1, synchronous); err != nil {
		return nil, errors.Join(err, g.Remove())
	}
	return g.Instance(r, addrs...)
}

// postgresIdle is a command that keeps running and has no port. The official image starts its
// servers with a script, as root.
var postgresIdle = []string{"sh", "-c", `export POSTGRES_PASSWORD=unused
exec $(command -v docker-entrypoint.sh) postgres -c listen_addresses=`}

// PostgresRejoin replaces the nth member of a pair by a new standby of the other member. It returns
// when the standby receives the changes and, if synchronous is true, each commit waits for it.
func PostgresRejoin(
	ctx context.Context, pair *group.Group, n int, synchronous bool,
) error {
	primary := pair.Members[1-n]
	if err := pair.Replace(n, postgresStandby(primary.Addr)); err != nil {
		return err
	}
	return withPostgres(ctx, primary.URL, func(conn *pgx.Conn) error {
		if synchronous {
			return awaitSynchronous(ctx, conn, primary.URL)
		}
		return awaitStandby(ctx, conn, "state = 'streaming'")
	})
}

// postgresStandby returns the command of a standby of the server at an address. Before its first
// start it copies the server's data.
func postgresStandby(primary string) func(l runner.Listen) []string {
	host, port, _ := net.SplitHostPort(primary)
	from := fmt.Sprintf("host=%s port=%s user=postgres password=%s", host, port, postgresPassword)
	return func(l runner.Listen) []string {
		command := append(postgresServer(l), "-c", "wal_retrieve_retry_interval=100ms")
		if l.Container {
			return append([]string{"sh", "-c", postgresCopy, from}, command...)
		}
		// Without the data the server does not start, and its log has the reason.
		_ = exec.Command("pg_basebackup", "--dbname="+from, "--pgdata="+postgresData(l.Dir),
			"--checkpoint=fast", "--write-recovery-conf", "--no-sync").Run()
		return command
	}
}

// postgresCopy replaces the data of a container by a copy of the data of another server, $0, and
// starts a server with it. A container that is started again has the copy already.
const postgresCopy = `
[ -e "$PGDATA/copied" ] || {
	rm -rf "$PGDATA"/* &&
	pg_basebackup --dbname="$0" --pgdata="$PGDATA" --checkpoint=fast --write-recovery-conf \
		--no-sync &&
	: >"$PGDATA/copied"
} && exec $(command -v docker-entrypoint.sh) "$@"`

// PostgresPromote promotes the standby with this URL. It returns when the standby accepts changes.
func PostgresPromote(ctx context.Context, standby string) error {
	return withPostgres(ctx, standby, func(conn *pgx.Conn) error {
		var promoted bool
		err := conn.QueryRow(ctx, `SELECT pg_promote()`).Scan(&promoted)
		if err == nil && !promoted {
			err = errors.New("the standby is not promoted in time")
		}
		return err
	})
}

// PostgresUnfollow makes the standby with this URL receive no more changes. It returns when the
// stream has ended.
func PostgresUnfollow(ctx context.Context, standby string) error {
	return withPostgres(ctx, standby, func(conn *pgx.Conn) error {
		if err := configure(ctx, conn, "primary_conninfo", ""); err != nil {
			return err
		}
		return eventually(ctx, conn, "the standby receives changes",
			`SELECT count(*) = 0 FROM pg_stat_wal_receiver`)
	})
}

// awaitSynchronous makes each commit of a primary wait for its standby. The processes of the server
// read a new setting one after the other. So the name of no standby comes first, until a commit
// waits.
func awaitSynchronous(ctx context.Context, conn *pgx.Conn, url string) error {
	const setting = "synchronous_standby_names"
	if err := configure(ctx, conn, setting, "nowhere"); err != nil {
		return err
	}
	err := server.Eventually(ctx, func() error { return commitWaits(ctx, url) })
	if err != nil {
		return err
	}
	if err := configure(ctx, conn, setting, "*"); err != nil {
		return err
	}
	return awaitStandby(ctx, conn, "sync_state = 'sync'")
}

// commitTime is longer than a commit that waits for no standby.
const commitTime = 300 * time.Millisecond

// commitWaits returns nil if a commit waits for a standby.
func commitWaits(ctx context.Context, url string) error {
	return withPostgres(ctx, url, func(conn *pgx.Conn) error {
		ctx, cancel := context.WithTimeout(ctx, commitTime)
		defer cancel()
		_, err := conn.Exec(ctx, `SELECT pg_logical_emit_message(true, 'test', '')`)
		if ctx.Err() != nil {
			return nil
		}
		return errors.Join(errors.New("a commit does not wait for the standby"), err)
	})
}

// awaitStandby waits until the primary has a standby in a state.
func awaitStandby(ctx context.Context, conn *pgx.Conn, state string) error {
	return eventually(ctx, conn, "the primary has no standby",
		`SELECT count(*) > 0 FROM pg_stat_replication WHERE `+state)
}

// eventually waits until a query returns true. otherwise describes the state until then.
func eventually(ctx context.Context, conn *pgx.Conn, otherwise, sql string) error {
	return server.Eventually(ctx, func() error {
		var is bool
		err := conn.QueryRow(ctx, sql).Scan(&is)
		if err == nil && !is {
			err = errors.New(otherwise)
		}
		return err
	})
}

// configure changes a setting of a server, which its processes read soon after that.
func configure(ctx context.Context, conn *pgx.Conn, name, value string) error {
	_, err := conn.Exec(ctx, "ALTER SYSTEM SET "+name+" = '"+value+"'")
	if err == nil {
		_, err = conn.Exec(ctx, `SELECT pg_reload_conf()`)
	}
	return err
}

// withPostgres calls f with a connection to the server with this URL.
func withPostgres(ctx context.Context, url string, f func(conn *pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, url+"?sslmode=prefer")
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return f(conn)
}

// postgresPairVersion returns the version when the primary has its standby.
func postgresPairVersion(ctx context.Context, t server.Target) (string, error) {
	conn, err := pgx.Connect(ctx, t.URL+"?sslmode=prefer&target_session_attrs=read-write")
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	var version string
	var standbys int
	err = conn.QueryRow(ctx, `SELECT current_setting('server_version'),
		(SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming')`).
		Scan(&version, &standbys)
	if err == nil && standbys == 0 {
		err = errors.New("the primary has no standby")
	}
	return postgresProduct(version), err
}
