package mysqlbackend

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/dlock-go/dlock/backend"
)

func init() {
	backend.Register("mysql", open)
	backend.Register("mariadb", open)
}

// settings has the variables that are set on each connection of a driver that is opened by URL,
// whatever the server's defaults are.
var settings = map[string]string{
	// Otherwise a row would stay locked, and other connections would not see its change.
	"autocommit": "1",
	// How long a statement that was given up may wait for a row, and for the table while it is
	// altered. A second is the server's minimum.
	"innodb_lock_wait_timeout": "1",
	"lock_wait_timeout":        "1",
	// Otherwise the server could truncate names.
	"sql_mode": "'STRICT_ALL_TABLES'",
	// Otherwise the connections of a host that has left the network stay for hours. It is more
	// than idleTime, in seconds.
	"wait_timeout": "30",
}

// waitTimeout is wait_timeout of a waiting connection. A limit for the time of all statements would
// end each wait, so such a connection has none; see session-settings.sql.
var waitTimeout = strconv.Itoa(maxIdle) +
	" /*!80000 , max_execution_time = 0 */ /*M! , max_statement_time = 0 */"

// New makes a driver of a database that belongs to the caller: Close leaves it open. New probes the
// server and the table, for at most eight seconds, and creates the table if Options.Create is set.
// Nil options are the defaults.
//
// These settings of the database matter:
//
//   - MaxOpenConns: acquiring, renewing and releasing share the pool with the application's own
//     statements, and waiters take up to a quarter of it, 16 at most. If it is exhausted for a TTL,
//     locks are lost. A waiter closes its connection at the end: its wake-up, a KILL QUERY, may
//     come late and must not hit another statement. A driver opened by URL has separate pools.
//   - innodb_lock_wait_timeout: how long a statement that was given up may still be executed
//     (Capabilities.Late), 50 s unless the DSN sets it. 1 is best, also for lock_wait_timeout.
//   - interpolateParams=true: without it each statement makes two round trips instead of one. A
//     driver opened by URL does better: it keeps the statements of Lock and Unlock prepared.
//   - timeout, readTimeout, writeTimeout: none by default, so that a dead connection takes a place
//     in the pool for long. readTimeout must be more than ten seconds, or waiting connections
//     break.
//   - autocommit must be on, and the database in the DSN must be the one with the table. If
//     character_set_connection is not character_set_client, the server would convert names, and New
//     returns ErrUnsupported.
func New(db *sql.DB, opts *Options) (backend.Driver, error) {
	if db == nil {
		return nil, errors.New("dlock: mysqlbackend.New needs a database")
	}
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if o.Lock == LockSession {
		return nil, fmt.Errorf("%w: New has no locks of a session; open a URL with lock=session",
			backend.ErrUnsupported)
	}
	ctx, cancel := context.WithTimeout(context.Background(), backend.OpenTimeout)
	defer cancel()
	waitConns := maxWaitConns
	if limit := db.Stats().MaxOpenConnections; limit > 0 {
		waitConns = min(maxWaitConns, limit/4)
	}
	lent := &pool{DB: db}
	p := &pools{
		main: lent, control: lent, renewals: lent, patient: lent, waiting: lent,
		waitConns: waitConns,
	}
	return opened(newDriver(ctx, p, o))
}

// open is the backend.Opener.
func open(ctx context.Context, u *backend.URL) (backend.Driver, error) {
	t, err := parseTarget(u)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, backend.OpenTimeout)
	defer cancel()
	if t.Lock == LockSession {
		return openSession(ctx, t)
	}
	p, err := connect(t)
	if err != nil {
		return nil, err
	}
	return opened(newDriver(ctx, p, t.Options))
}

// opened returns d, or closes it after an error and returns a plain nil. A probe that was not
// answered is ErrUnavailable, because no outcome of it matters.
func opened(d *driver, err error) (backend.Driver, error) {
	if err == nil {
		return d, nil
	}
	_ = d.Close()
	if !isDefinite(err) {
		err = fmt.Errorf("%w: the server did not answer: %w", backend.ErrUnavailable, err)
	}
	return nil, err
}

// connect makes the pools for the server of a URL. It does not connect yet. A statement of a
// waiting connection may last for maxQueueing, so its ReadTimeout is longer.
func connect(t *target) (*pools, error) {
	config, err := t.config()
	if err != nil {
		return nil, err
	}
	patient := config.Clone() // for waiting connections
	patient.ReadTimeout = maxQueueing + t.Timeout
	patient.Params = maps.Clone(settings)
	patient.Params["wait_timeout"] = waitTimeout
	text := newStatements(t.Table)
	hot := text.hot()
	return newPools(&connector{config: config, hot: hot}, &connector{config: patient, hot: hot},
		text.locked), nil
}

// config returns the configuration of a connection.
func (t *target) config() (*mysql.Config, error) {
	config := mysql.NewConfig()
	config.Net, config.Addr, config.DBName = t.network, t.addr, t.database
	config.User, config.Passwd = t.user, t.password
	config.Params = settings
	config.InterpolateParams = true // one round trip for a statement, not two
	config.RejectReadOnly = true    // leaves a server that is not the writer any more
	config.Timeout, config.WriteTimeout = t.Timeout, t.Timeout
	config.ReadTimeout = t.Timeout
	config.ConnectionAttributes = "program_name:dlock"
	config.Logger = &mysql.NopLogger{} // otherwise it would write to standard error
	var err error
	config.TLS, err = t.tls.Config(t.addr)
	return config, err
}

// server is what probe has found: the row of server.sql, and what follows it.
type server struct {
	version, database                  string
	readOnly, autocommit, simultaneous bool
	emptyIsNull, logsStatements        bool
	convertsText                       bool
	isDurable                          bool  // a crash of the host loses no answered commit
	lockWait                           int64 // innodb_lock_wait_timeout in seconds
	connection                         uint64
	maxPacket                          int64 // max_allowed_packet in bytes
	isProxied                          bool  // a proxy numbers the connections
	table                              shape
}

// probe checks whether the server can serve locks: it answers and admits the user, is new enough,
// and is a writer; the table exists with the right columns; and the user may use it. After an error
// the server that it returns may be incomplete. Apart from creating the table, it changes nothing.
func (d *driver) probe(ctx context.Context) (server, error) {
	s, err := d.probeServer(ctx)
	if err != nil {
		return s, err
	}
	logs, err := variables(ctx, d.pools.main, logsSQL)
	if err != nil {
		return s, err
	}
	s.logsStatements = logs["log_bin"] == "ON" && logs["binlog_format"] == "STATEMENT"
	s.isDurable = isDurable(logs)
	if err := s.check(); err != nil {
		return s, err
	}
	if s.table, err = d.probeTable(ctx); err != nil {
		return s, err
	}
	return s, d.probePrivileges(ctx)
}

// probeServer executes server.sql, and compares the number of the connection with the number in its
// greeting. They differ behind a proxy that has connections of its own: there KILL QUERY, with the
// server's number, would interrupt a connection of another program. The connections of a lent
// database do not show their greetings.
func (d *driver) probeServer(ctx context.Context) (server, error) {
	if !d.pools.owned {
		return readServer(ctx, d.pools.main)
	}
	made, err := d.pools.main.Conn(ctx)
	if err != nil {
		return server{}, interpretError(ctx, err)
	}
	defer made.Close()
	s, err := readServer(ctx, made)
	if err != nil {
		return s, err
	}
	err = made.Raw(func(raw any) error {
		if c, ok := raw.(*conn); ok {
			s.isProxied = c.isProxied(s.connection)
		}
		return nil
	})
	return s, err
}

// readServer executes server.sql.
func readServer(ctx context.Context, q querier) (server, error) {
	found, err := query(ctx, q, scanServer, plain(serverSQL))
	if err == nil && len(found) != 1 {
		err = fmt.Errorf("%w: %d rows where MySQL returns one", backend.ErrUnavailable, len(found))
	}
	if err != nil {
		return server{}, err
	}
	return found[0], nil
}

// scanServer reads the row of server.sql.
func scanServer(rows *sql.Rows) (s server, err error) {
	return s, rows.Scan(&s.version, &s.database, &s.readOnly, &s.autocommit, &s.simultaneous,
		&s.emptyIsNull, &s.convertsText, &s.lockWait, &s.connection, &s.maxPacket)
}

// variables returns the values of the server's variables that a statement shows.
func variables(ctx context.Context, q querier, text string) (map[string]string, error) {
	values := make(map[string]string)
	_, err := query(ctx, q, func(rows *sql.Rows) (_ any, err error) {
		var name, value string
		err = rows.Scan(&name, &value)
		values[name] = value
		return nil, err
	}, plain(text))
	return values, err
}

// isDurable reports whether the server answers a commit when it is on the disk. logs has its
// settings. A transaction that the binary log lacks after a crash is rolled back. MariaDB has a
// further setting, 3, which only orders the commits differently.
func isDurable(logs map[string]string) bool {
	flush := logs["innodb_flush_log_at_trx_commit"]
	return (flush == "1" || flush == "3") &&
		(logs["log_bin"] != "ON" || logs["sync_binlog"] == "1")
}

// isMariaDB reports whether the server is MariaDB and not MySQL.
func (s *server) isMariaDB() bool { return strings.Contains(s.version, "MariaDB") }

// check returns an error if the server cannot serve locks, or cannot do so now. A version that it
// does not understand is accepted.
func (s *server) check() error {
	oldest := [2]int{8, 0}
	if s.isMariaDB() {
		oldest = [2]int{10, 6}
	}
	var v [2]int
	n, _ := fmt.Sscanf(s.version, "%d.%d", &v[0], &v[1])
	switch {
	case n == 2 && slices.Compare(v[:], oldest[:]) < 0:
		return fmt.Errorf("%w: version %s, at least %d.%d is needed",
			backend.ErrUnsupported, s.version, oldest[0], oldest[1])
	case s.database == "":
		return fmt.Errorf("%w: no database is chosen", backend.ErrUnsupported)
	case !s.autocommit:
		return fmt.Errorf("%w: autocommit is off", backend.ErrUnsupported)
	case s.simultaneous:
		return fmt.Errorf("%w: sql_mode has SIMULTANEOUS_ASSIGNMENT", backend.ErrUnsupported)
	case s.emptyIsNull: // a free lock has the owner ''
		return fmt.Errorf("%w: sql_mode has EMPTY_STRING_IS_NULL", backend.ErrUnsupported)
	case s.convertsText: // two clients could have two rows for one name
		return fmt.Errorf("%w: character_set_connection is not character_set_client",
			backend.ErrUnsupported)
	case s.logsStatements:
		return fmt.Errorf("%w: binlog_format is STATEMENT: replicas would have no locks",
			backend.ErrUnsupported)
	case s.readOnly:
		return fmt.Errorf("%w: the server is read-only", backend.ErrUnavailable)
	}
	return nil
}

// probeTable checks the columns of the table, and returns its shape. If the table does not exist
// and Options.Create is set, it creates the table. An error of the creation counts only if the
// table still does not exist, because another driver may create it meanwhile.
func (d *driver) probeTable(ctx context.Context) (shape, error) {
	columns, err := d.columns(ctx)
	if err == nil && len(columns) == 0 && d.opts.Create {
		_, errCreate := exec(ctx, d.pools.main, d.text.schema)
		if columns, err = d.columns(ctx); err == nil && len(columns) == 0 {
			err = errCreate
		}
	}
	switch {
	case err != nil:
		return shape{}, err
	case len(columns) == 0:
		return shape{}, fmt.Errorf("%w: there is no table %s; make it with create=1, or with\n%s",
			backend.ErrUnavailable, d.opts.Table, d.text.schema)
	}
	return checkShape(d.opts.Table, columns)
}

// columns returns the columns of the table. There are none if the table does not exist.
func (d *driver) columns(ctx context.Context) ([]column, error) {
	return query(ctx, d.pools.main, func(rows *sql.Rows) (c column, err error) {
		return c, rows.Scan(&c.name, &c.kind, &c.key, &c.engine)
	}, plain(shapeSQL), d.opts.Table, d.opts.Table, d.opts.Table)
}

// probePrivileges makes the server explain the statements. EXPLAIN needs the same privileges as
// the statement and changes nothing. MariaDB cannot explain a batch of renewals, so this one is
// executed, for the empty name, which no lock has.
func (d *driver) probePrivileges(ctx context.Context) error {
	none, nothing := []byte{}, acquireArgs(&backend.Request{}, 0, false)
	for _, s := range []struct {
		text string
		args []any
	}{
		{d.text.acquire, nothing},
		{withNames(d.text.sweep, 1), []any{none, 0}},
	} {
		ignore := func(*sql.Rows) (any, error) { return nil, nil }
		_, err := query(ctx, d.pools.main, ignore, "EXPLAIN "+s.text, s.args...)
		if err != nil {
			return err
		}
	}
	_, err := exec(ctx, d.pools.main, withNames(d.text.renewFree, 1),
		none, 1, 0, false, none, none, 0)
	return err
}
