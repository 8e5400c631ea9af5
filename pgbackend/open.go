package pgbackend

import (
	"cmp"
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/tlsfile"
	"github.com/dlock-go/dlock/internal/abort"
)

func init() {
	backend.Register("postgres", open)
	backend.Register("postgresql", open)
}

const (
	// statementTimeout limits each statement on the server, also a statement that was given up
	// while it waits for a row. The server stops counting before the commit.
	statementTimeout = 2 * time.Second
	// late is how long after the end of its context a statement may be executed: as long as the
	// socket may send it, and then wait for a row. Its commit may take longer; settle waits for it.
	late = abandonAfter + statementTimeout
	// maxConns is the size of the pool of a driver that is opened by URL.
	maxConns = 20
	// pingAfter is how long a connection is idle before it is checked, and pingTimeout limits the
	// check.
	pingAfter   = time.Second
	pingTimeout = time.Second
	// pooledIdleTime is how long an idle connection to a pooler is kept.
	pooledIdleTime = 5 * time.Second
	// reserved connections of a pool serve renewals only. Half of them never wait for a locked row.
	reserved = 4
	// maxMessage limits a message of the server, so that no other protocol costs the memory of the
	// process. See maxAnswer.
	maxMessage = 64 << 20
)

// settings are the parameters of each connection on which the statements depend. A database or a
// role can have other defaults. default_transaction_read_only is not among them: an operator fences
// a server with it before a switchover, and a parameter of the connection would overrule that.
var settings = map[string]string{
	"synchronous_commit":            "on",             // an answer is on the disk
	"default_transaction_isolation": "read committed", // see statements
	"statement_timeout":             strconv.FormatInt(statementTimeout.Milliseconds(), 10),
	"lock_timeout":                  "0",
	"idle_session_timeout":          "0",
	"client_min_messages":           "warning", // see noteUnreplicated
	"application_name":              "dlock",
	// Of a host that has left the network, the rows that a statement has locked are free soon.
	"tcp_keepalives_idle":     "10",
	"tcp_keepalives_interval": "5",
	"tcp_keepalives_count":    "3",
	"tcp_user_timeout":        "25000",
}

// New makes a driver of a pool that belongs to the caller: Close leaves it open. New probes the
// server and the table, for at most eight seconds, and creates the table if it does not exist. Nil
// options are the defaults.
//
// The driver makes one more connection with the pool's configuration, for its waiters. With
// LockSession that connection has all locks, and the driver does not use the pool. These settings
// of the pool matter:
//
//   - MaxConns: acquiring, renewing and releasing share the pool with the application's own
//     statements. If it is exhausted for a TTL, locks are lost. Of more than four connections the
//     driver leaves four to its renewals. A driver opened by URL has a pool of its own.
//   - ConnConfig.ConnectTimeout and PingTimeout should be a few seconds: pgx has two minutes and no
//     limit. After a firewall has forgotten the idle connections, each renewal waits that long for
//     one of them.
//   - The isolation level must be READ COMMITTED and synchronous_commit must not be off or local:
//     otherwise New returns ErrUnsupported. ConnConfig.RuntimeParams sets both.
//   - A pool of several hosts needs target_session_attrs=read-write: otherwise a new connection can
//     reach a standby. The driver ends such a connection with its first request, which is
//     ErrUnavailable.
//   - statement_timeout limits how long a statement that was given up may still be executed.
//     Capabilities.Late takes it for at most two seconds. transaction_timeout should not be
//     shorter: it ends the connection, so the outcome of the statement is unknown.
//   - If an operator cancels a commit that waits for a synchronous standby, it counts as a success.
//   - ConnConfig.DialFunc may wrap its sockets if the wrappers have a method NetConn() net.Conn.
//     Otherwise the kernel can send a statement that was given up later than Capabilities.Late.
//   - Behind a pooler in transaction mode that does not support prepared statements,
//     ConnConfig.DefaultQueryExecMode must be pgx.QueryExecModeCacheDescribe.
func New(pool *pgxpool.Pool, opts *Options) (backend.Driver, error) {
	if pool == nil {
		return nil, errors.New("dlock: pgbackend.New needs a pool")
	}
	ctx, cancel := context.WithTimeout(context.Background(), backend.OpenTimeout)
	defer cancel()
	config := pool.Config()
	return lend(ctx, pgxPool{pool}, int(config.MaxConns), originOf(config), opts)
}

// NewDB is New for a database that was opened with pgx's stdlib, or with sql.Open and the driver
// "pgx". A database with another driver is ErrUnsupported.
//
// MaxOpenConns takes the place of MaxConns; if the database has no limit, the driver uses 20
// connections at most. The connection for the waiters is made as the first one of the database was;
// the hooks of stdlib, such as OptionBeforeConnect, are not called for it. If it cannot be made,
// waiters poll.
func NewDB(db *sql.DB, opts *Options) (backend.Driver, error) {
	if db == nil {
		return nil, errors.New("dlock: pgbackend.NewDB needs a database")
	}
	ctx, cancel := context.WithTimeout(context.Background(), backend.OpenTimeout)
	defer cancel()
	var base origin
	err := sqlPool{db}.with(ctx, func(conn *pgx.Conn) { base.config = conn.Config() })
	if err != nil {
		return nil, unsent(err)
	}
	size := cmp.Or(db.Stats().MaxOpenConnections, maxConns)
	return lend(ctx, sqlPool{db}, size, base, opts)
}

// lend makes a driver of a pool that belongs to the caller.
func lend(
	ctx context.Context, pool pool, size int, base origin, opts *Options,
) (backend.Driver, error) {
	o := opts.withDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Lock == LockSession {
		return openSession(ctx, base, o)
	}
	dials := newDialer(base.config.DialFunc, 0)
	base.config.DialFunc = dials.dial
	return newDriver(pool, size, base, dials, o).opened(ctx)
}

// open implements backend.Opener. If it finds a pooler, it connects again without the settings that
// a pooler refuses.
func open(ctx context.Context, u *backend.URL) (backend.Driver, error) {
	t, err := parseTarget(u)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, backend.OpenTimeout)
	defer cancel()
	if t.Lock == LockSession {
		config, dials, err := t.config(false)
		if err != nil {
			return nil, err
		}
		config.ConnConfig.DialFunc = dials.dialFunc
		return openSession(ctx, originOf(config), t.Options)
	}
	d, err := t.open(ctx, false)
	if errors.Is(err, errPooler) {
		d, err = t.open(ctx, true)
	}
	return d, err
}

// open opens a driver with rows as locks. pooled: there is a pooler in front of the server.
func (t *target) open(ctx context.Context, pooled bool) (backend.Driver, error) {
	config, dials, err := t.config(pooled)
	if err != nil {
		return nil, err
	}
	pool, err := newPool(ctx, config, pooled)
	if err != nil {
		dials.close()
		return nil, interpretError(err)
	}
	d := newDriver(pgxPool{pool}, int(config.MaxConns), originOf(config), dials, t.Options)
	d.owned, d.pooled = true, pooled
	return d.opened(ctx)
}

// opened returns d after its probe, or closes it. Its own time limit is no outcome that is unknown,
// because nothing has been locked.
func (d *driver) opened(ctx context.Context) (backend.Driver, error) {
	_, err := backend.Call(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, d.probe(ctx)
	})
	if err == nil {
		return d, nil
	}
	_ = d.Close()
	return nil, unsent(err)
}

// newPool makes the pool of a driver. If a connection that was idle does not answer, maybe none
// does, for example after a firewall has forgotten them. The pool then ends all of them, because a
// renewal has no time to try one after the other. A pooler can also be silent because all of its
// connections are in use.
func newPool(
	ctx context.Context, config *pgxpool.Config, pooled bool,
) (pool *pgxpool.Pool, err error) {
	config.ShouldPing = func(ctx context.Context, idle pgxpool.ShouldPingParams) bool {
		if idle.IdleDuration < pingAfter {
			return false
		}
		ctx, cancel := context.WithTimeout(ctx, pingTimeout)
		defer cancel()
		if idle.Conn.Ping(ctx) == nil {
			return false
		}
		if ctx.Err() != nil && !pooled { // it has not been closed by the server
			pool.Reset()
		}
		if conn := idle.Conn.PgConn(); conn.IsClosed() { // otherwise it counts for a while
			_ = abort.Close(conn.Conn())
			<-conn.CleanupDone()
		}
		return true // the pool finds out that this one has ended
	}
	pool, err = pgxpool.NewWithConfig(ctx, config)
	return pool, err
}

// config returns the configuration of the pool. A pooler has no settings of single connections and
// maybe no prepared statements with names. pgx insists on parsing one, and takes from the
// environment what is not in the URL, such as PGPASSWORD and the file of passwords.
func (t *target) config(pooled bool) (*pgxpool.Config, *dialer, error) {
	config, err := pgxpool.ParseConfig(t.text())
	if err != nil {
		err = withoutConfig(err)
		return nil, nil, fmt.Errorf("dlock: invalid URL or environment: %w", err)
	}
	base := &net.Dialer{Timeout: t.Timeout}
	dials := newDialer(base.DialContext, maxUnchecked)
	if t.socket != "" {
		file := t.socketFile()
		dials.dialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return base.DialContext(ctx, "unix", file)
		}
	}
	config.MaxConns = maxConns
	conn := config.ConnConfig
	if t.password != "" {
		conn.Password = t.password
	}
	conn.DialFunc = dials.dial
	conn.ConnectTimeout = t.Timeout
	conn.MaxProtocolMessageBodyLen = maxMessage
	maps.Copy(conn.RuntimeParams, settings)
	conn.ValidateConnect = validate
	if pooled {
		conn.RuntimeParams = map[string]string{"application_name": settings["application_name"]}
		conn.ValidateConnect = validatePooled
		conn.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		// A pool of sessions gives each connection one of the few connections of the server.
		config.MaxConnIdleTime, config.HealthCheckPeriod = pooledIdleTime, pooledIdleTime
	}
	conn.OnNotice = noteUnreplicated
	return config, dials, t.secure(&conn.Config)
}

// withoutTLS keeps pgx from taking settings of TLS from the environment: only the URL counts.
const withoutTLS = "sslmode=disable sslrootcert='' sslnegotiation='' sslcertmode=allow"

// text returns the hosts, the user and the database in the form that pgx parses.
func (t *target) text() string {
	var hosts, ports []string
	for _, host := range t.hosts {
		name, port, _ := net.SplitHostPort(host)
		hosts, ports = append(hosts, name), append(ports, port)
	}
	if t.socket != "" {
		hosts, ports = []string{path.Dir(t.socketFile())}, []string{"5432"}
	}
	quote := strings.NewReplacer(`\`, `\\`, `'`, `\'`)
	text := fmt.Sprintf("host='%s' port='%s' dbname='%s' %s",
		quote.Replace(strings.Join(hosts, ",")), strings.Join(ports, ","),
		quote.Replace(t.database), withoutTLS)
	if t.user != "" {
		text += fmt.Sprintf(" user='%s'", quote.Replace(t.user))
	}
	return text
}

// socketFile returns the path of the socket. If the URL has the path of a folder, the file has
// PostgreSQL's usual name.
func (t *target) socketFile() string {
	if info, err := os.Stat(t.socket); err == nil && info.IsDir() {
		return path.Join(t.socket, ".s.PGSQL.5432")
	}
	return t.socket
}

// secure sets the configuration of TLS for each host.
func (t *target) secure(config *pgconn.Config) error {
	if t.tls == nil {
		return nil
	}
	common, err := t.tls.Config("")
	if err != nil {
		return err
	}
	forHost := func(host string, port uint16) *tls.Config {
		return tlsfile.For(net.JoinHostPort(host, strconv.Itoa(int(port))), common)
	}
	config.TLSConfig = forHost(config.Host, config.Port)
	for _, other := range config.Fallbacks {
		other.TLSConfig = forHost(other.Host, other.Port)
	}
	return nil
}

// facts are what check has found out about a connection.
type facts struct {
	isPooled  bool // there is a pooler in front of the server
	isLimited bool // statements end in time for Capabilities.Late
	isQuiet   bool // no warning arrives, see noteUnreplicated
}

// validate checks a connection to the server itself. pgx calls it for each new connection, and
// tries the next host after an error, for example if the host is a standby. It does not check a
// connection later: if the server has become a standby, the connection ends with its first request,
// see attempt.end.
func validate(ctx context.Context, conn *pgconn.PgConn) error {
	f, err := checkOwn(ctx, conn)
	return cmp.Or(err, f.unkept())
}

// validateSession is validate for a connection with advisory locks, whose statements have no limit.
func validateSession(ctx context.Context, conn *pgconn.PgConn) error {
	_, err := checkOwn(ctx, conn)
	return err
}

// checkOwn is check for a connection that the driver has to the server itself.
func checkOwn(ctx context.Context, conn *pgconn.PgConn) (facts, error) {
	f, err := check(ctx, conn, true)
	if f.isPooled {
		err = errPooler // before the settings, which the pooler has not kept
	}
	return f, err
}

// validatePooled checks a connection to a pooler.
func validatePooled(ctx context.Context, conn *pgconn.PgConn) error {
	f, err := check(ctx, conn, false)
	return cmp.Or(err, f.unkept())
}

// checkLent checks a connection of a pool of the caller, and reports whether there is a pooler in
// front of the server. Without a pooler the limits of statements are the caller's choice.
func checkLent(ctx context.Context, conn *pgconn.PgConn) (pooled bool, err error) {
	f, err := check(ctx, conn, false)
	if err == nil && f.isPooled {
		err = f.unkept()
	}
	return f.isPooled, err
}

// unkept returns an error if the connection lacks settings of a driver that is opened by URL. A
// pooler, a proxy or a trigger of the server can undo them.
func (f facts) unkept() error {
	switch {
	case !f.isLimited:
		return fmt.Errorf("%w: statement_timeout must be two seconds at most, but a pooler, a "+
			"proxy or a login trigger has changed it: ALTER ROLE … SET statement_timeout = '2s'",
			backend.ErrUnsupported)
	case f.isQuiet:
		return fmt.Errorf("%w: client_min_messages must be warning or lower, but a pooler, a "+
			"proxy or a login trigger has changed it", backend.ErrUnsupported)
	}
	return nil
}

// checkSQL reads what check compares. If the connection is the driver's own and not a pooler's, the
// last column turns transaction_timeout off, which PostgreSQL has since 17: a short one would end a
// connection whose statement waits for a row. It has no place in settings, because an older server
// refuses a connection with it.
const checkSQL = `SELECT current_setting('transaction_read_only'),
	current_setting('synchronous_commit'), current_setting('transaction_isolation'),
	current_setting('server_version_num'), pg_backend_pid(),
	current_setting('statement_timeout') <> '0'
		AND current_setting('statement_timeout')::interval <= interval '2 seconds',
	current_setting('client_min_messages') IN ('error', 'fatal', 'panic'),
	CASE WHEN %t AND pg_backend_pid() = %d AND current_setting('transaction_timeout', true) <> '0'
		THEN set_config('transaction_timeout', '0', false) END`

// checked is the number of values that checkSQL reads.
const checked = 8

// check checks the server of a connection, which is own if the driver may change its settings. It
// needs one round trip, and prepares no statement, which a pooler might not support.
func check(ctx context.Context, conn *pgconn.PgConn, own bool) (f facts, err error) {
	results, err := conn.Exec(ctx, fmt.Sprintf(checkSQL, own, conn.PID())).ReadAll()
	if err != nil {
		return f, err
	}
	values, ok := onlyRow(results)
	if !ok {
		return f, errStranger
	}
	readOnly, commit, isolation := values[0], values[1], values[2]
	version, pid := values[3], values[4]
	number, err := strconv.Atoi(version)
	// A pooler has its own numbers.
	f.isPooled = pid != strconv.FormatUint(uint64(conn.PID()), 10)
	f.isLimited, f.isQuiet = values[5] == "t", values[6] == "t"
	switch {
	case err != nil || number < 140000:
		err = errOld
	case readOnly != "off":
		err = errReadOnly
	case commit == "off" || commit == "local":
		err = fmt.Errorf("%w: synchronous_commit is %s: a crash or a failover would forget locks",
			backend.ErrUnsupported, commit)
	case isolation != "read committed":
		err = fmt.Errorf("%w: the isolation level is %s, and must be read committed",
			backend.ErrUnsupported, isolation)
	default:
		trust(conn.Conn())
	}
	return f, err
}

// onlyRow returns the values of a result of validate. The peer may be no server of PostgreSQL.
func onlyRow(results []*pgconn.Result) (values []string, ok bool) {
	if len(results) != 1 || len(results[0].Rows) != 1 || len(results[0].Rows[0]) != checked {
		return nil, false
	}
	for _, value := range results[0].Rows[0] {
		values = append(values, string(value))
	}
	return values, true
}

// errOld is the error of a server without the settings or the statements of the driver.
var errOld = fmt.Errorf("%w: the server is older than PostgreSQL 14", backend.ErrUnsupported)

var (
	// errPooler is the error of a connection that does not reach the server itself.
	errPooler = fmt.Errorf("%w: there is a pooler in front of the server, which does not keep "+
		"the settings and the locks of a connection; connect to the server itself",
		backend.ErrUnsupported)
	// errReadOnly is the error of a server that accepts no changes.
	errReadOnly = fmt.Errorf("%w: the server is a standby or read-only", backend.ErrUnavailable)
	// errStranger is the error of a peer that is no server of PostgreSQL.
	errStranger = fmt.Errorf("%w: the peer does not answer as PostgreSQL does",
		backend.ErrUnsupported)
)

// probe checks the server and the table, and creates the table if it does not exist.
func (d *driver) probe(ctx context.Context) (err error) {
	failed := d.pool.with(ctx, func(conn *pgx.Conn) { err = d.probeOn(ctx, conn) })
	return cmp.Or(failed, err)
}

// probeOn is probe on one connection.
func (d *driver) probeOn(ctx context.Context, conn *pgx.Conn) (err error) {
	if !d.owned { // otherwise each connection has been checked
		if d.pooled, err = checkLent(ctx, conn.PgConn()); err != nil {
			return err
		}
	}
	table, err := d.findTable(ctx, conn)
	if err != nil {
		return err
	}
	d.sql = newStatements(table)
	return d.checkTable(ctx, conn, table)
}

// findTable creates the table if it does not exist, and returns its name with its schema. The
// search path of a connection decides about a name without a schema. So the statements have the
// schema: a search path or a temporary table that the application has left on a connection of its
// pool does not lead them to another table.
func (d *driver) findTable(ctx context.Context, conn *pgx.Conn) (table string, err error) {
	var missing, isOwn bool
	var found *string
	err = conn.QueryRow(ctx, probeSQL, quoted(d.table)).Scan(&missing, &d.durable, &found, &isOwn)
	if err != nil {
		return "", err
	}
	table = quoted(d.table)
	switch {
	case strings.Contains(d.table, ".") || found == nil:
	case isOwn:
		return "", fmt.Errorf("%w: the table %s is in the schema %s of this user alone, because "+
			"search_path has $user: another user would have locks of its own; name the schema, "+
			"as in table=%[3]s.%[2]s", backend.ErrUnsupported, d.table, *found)
	default:
		table = pgx.Identifier{*found, d.table}.Sanitize()
	}
	if missing {
		err = d.create(ctx, conn, table)
	}
	return table, err
}

// checkTable returns an error if the table is not dlock's, or cannot carry locks.
func (d *driver) checkTable(ctx context.Context, conn *pgx.Conn, table string) error {
	var columns string
	var isUnique, isLogged, isAllowed bool
	err := conn.QueryRow(ctx, shapeSQL, table).Scan(&columns, &isUnique, &isLogged, &isAllowed)
	switch {
	case err != nil:
		return err
	case columns != shape:
		return fmt.Errorf("%w: the table %s is not dlock's: it has the columns %s",
			backend.ErrConflict, d.table, columns)
	case !isUnique:
		return fmt.Errorf("%w: the table %s is not dlock's: it needs a unique index on the "+
			"column name alone, and no deferrable one: CREATE UNIQUE INDEX ON %s (name)",
			backend.ErrConflict, d.table, table)
	case !isLogged:
		return fmt.Errorf("%w: the table %s is unlogged or temporary: a crash would forget locks",
			backend.ErrUnsupported, d.table)
	case !isAllowed:
		return fmt.Errorf("%w: the user needs SELECT, INSERT, UPDATE and DELETE on the table %s",
			backend.ErrUnavailable, d.table)
	}
	_, err = conn.Exec(ctx, d.sql.sweepNames, [][]byte{})
	return err
}

// create creates the table. Of two processes that create it at the same time, PostgreSQL refuses
// one with an error.
func (d *driver) create(ctx context.Context, conn *pgx.Conn, table string) error {
	_, err := conn.Exec(ctx, schema(table))
	switch {
	case err == nil, hasCode(err, codeDuplicateKey, codeDuplicateTable, codeDuplicateObject):
		return nil
	case hasCode(err, codeNoPrivilege):
		return fmt.Errorf("%w: the table does not exist, and this user may not create it: %w; "+
			"the statement is: %s", backend.ErrUnavailable, err, schema(table))
	}
	return err
}
