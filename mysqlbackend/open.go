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
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/dlock-go/dlock/backend"
)

func init() {
	backend.Register("mysql", open)
	backend.Register("mariadb", open)
}

const (
	// openTimeout bounds an opening whose context has no earlier end.
	openTimeout = 8 * time.Second
	// mainConns and controlConns are the sizes of the pools for acquiring and looking, and for
	// renewing and releasing; more of either than of processors would only wait inside of the server.
	mainConns, controlConns = 8, 8
	// idleTime and lifetime end connections before a proxy or wait_timeout does, and those
	// to a server whose name has moved to another one.
	idleTime, lifetime = time.Minute, 10 * time.Minute
)

// session is set on each connection that the driver makes, whatever the server's defaults are.
var session = map[string]string{
	"autocommit": "1", // else a row would stay locked, and nothing be seen of its change
	// How long a statement may go on waiting that was given up: for rows, and for
	// the table while it is altered. A second is the least.
	"innodb_lock_wait_timeout": "1",
	"lock_wait_timeout":        "1",
	"sql_mode":                 "'STRICT_ALL_TABLES'", // else names could be cut short
}

// New makes a driver of a database that the caller has and keeps: Close leaves it open. It looks at the
// server and the table, for at most eight seconds, and makes the table where
// Options.Create says so. Nil options are the defaults.
//
// These settings of the database matter:
//
//   - MaxOpenConns: acquiring, renewing and releasing share the pool with everything else that uses
//     it, and waiters take up to a quarter of it, 16 at most. When it is exhausted for a TTL, locks
//     are lost. A waiter closes its connection at the end: its wake-up, a KILL QUERY, may come late
//     and must not hit another statement. A driver opened by URL has separate pools.
//   - innodb_lock_wait_timeout: how long a statement that was given up may still be executed
//     (Capabilities.Late), 50 s unless the DSN sets it. 1 is best; lock_wait_timeout too.
//   - interpolateParams=true: without it each statement makes two round trips and not one. A driver opened
//     by URL does better: it keeps the statements of Lock and Unlock prepared.
//   - timeout, readTimeout, writeTimeout: none by default, so that a dead connection takes a place in the
//     pool for long. readTimeout must be more than ten seconds, or waiting connections break.
//   - autocommit must be on, and the database chosen by the DSN is where the table lies.
func New(db *sql.DB, opts *Options) (backend.Driver, error) {
	if db == nil {
		return nil, errors.New("dlock: mysqlbackend.New needs a database")
	}
	settings, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	places := maxPlaces
	if most := db.Stats().MaxOpenConnections; most > 0 {
		places = min(maxPlaces, most/4)
	}
	lent := &pool{DB: db}
	return opened(newDriver(ctx, connection{main: lent, control: lent, waiting: lent, places: places}, settings))
}

func open(ctx context.Context, u *backend.URL) (backend.Driver, error) {
	t, err := parseTarget(u)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	conn, err := connect(t)
	if err != nil {
		return nil, err
	}
	return opened(newDriver(ctx, conn, t.Options))
}

// opened makes a plain nil of what could not be opened, and leaves nothing open. A probe that was not answered is no
// request whose outcome matters.
func opened(d *lockDriver, err error) (backend.Driver, error) {
	if err == nil {
		return d, nil
	}
	_ = d.Close()
	if !isDefinite(err) {
		err = fmt.Errorf("%w: the server did not answer: %w", backend.ErrUnavailable, err)
	}
	return nil, err
}

// connection is what a driver stands on.
type connection struct {
	main    *pool // acquires, looks, sweeps
	control *pool // renews and releases
	waiting *pool // waits
	places  int   // how many connections may wait
	owned   bool  // Close closes them, and nobody else uses them
}

func (c connection) close() error {
	if !c.owned {
		return nil
	}
	return errors.Join(c.main.Close(), c.control.Close(), c.waiting.Close())
}

// impatient returns a querier whose statements wait for a row for a second at most, also on the server after the client
// has given up. A connection of a lent database is made so and then discarded.
func (c connection) impatient(ctx context.Context) (q querier, discard func(), err error) {
	if c.owned {
		return c.control, func() {}, nil
	}
	conn, err := c.control.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	discard = func() { discardConn(conn) }
	if _, err := conn.ExecContext(ctx, "SET SESSION innodb_lock_wait_timeout = 1"); err != nil {
		discard()
		return nil, nil, err
	}
	return conn, discard, nil
}

// connect makes the pools for one server. Nothing is dialled yet. There are three so that
// no number of acquirers and waiters can keep a renewal from getting a connection.
func connect(t *target) (connection, error) {
	config := mysql.NewConfig()
	config.Net, config.Addr, config.DBName = t.network, t.addr, t.database
	config.User, config.Passwd = t.user, t.password
	config.Params = session
	config.InterpolateParams = true // one round trip for a statement, not two
	config.RejectReadOnly = true    // leave a server that is not the writer any more
	config.Timeout, config.WriteTimeout = t.Timeout, t.Timeout
	config.ReadTimeout = t.Timeout
	config.ConnectionAttributes = "program_name:dlock"
	config.Logger = &mysql.NopLogger{} // it would write to standard error
	var err error
	if config.TLS, err = t.tls.Config(t.addr); err != nil {
		return connection{}, err
	}
	patient := config.Clone()
	patient.ReadTimeout = maxQueueing + t.Timeout
	patient.Params = maps.Clone(session)
	patient.Params["wait_timeout"] = strconv.Itoa(maxIdle)
	c := connection{places: maxPlaces, owned: true}
	hot := newStatements(t.Table).hot()
	c.main = newPool(&connector{config, hot}, mainConns)
	c.control = newPool(&connector{config, hot}, controlConns)
	c.control.other = c.main // a lock that nobody else wants is taken and released by one connection
	c.waiting = newPool(&connector{patient, hot}, maxPlaces)
	c.waiting.SetConnMaxIdleTime(maxIdle * time.Second / 2) // before the server closes it
	return c, nil
}

// server is what server.sql returns.
type server struct {
	version, database                  string
	readOnly, autocommit, simultaneous bool
	emptyIsNull, logsStatements        bool
	lockWait                           int64 // s
}

// probe finds out whether the server can serve locks: that it answers and lets us in, that it is
// new enough and writes, that the table is there and ours, and that we may use it.
func (d *lockDriver) probe(ctx context.Context) (server, error) {
	found, err := query(ctx, d.conn.main, func(rows *sql.Rows) (s server, err error) {
		return s, rows.Scan(&s.version, &s.database, &s.readOnly, &s.autocommit, &s.simultaneous, &s.emptyIsNull, &s.lockWait)
	}, plain(serverSQL))
	if err == nil && len(found) != 1 {
		err = fmt.Errorf("%w: %d rows where MySQL returns one", backend.ErrUnavailable, len(found))
	}
	if err != nil {
		return server{}, err
	}
	s := found[0]
	logs, err := query(ctx, d.conn.main, func(rows *sql.Rows) (_ any, err error) {
		return nil, rows.Scan(new(string), new(string))
	}, plain(binlogSQL))
	if err != nil {
		return s, err
	}
	s.logsStatements = len(logs) == 2
	if err := s.check(); err != nil {
		return s, err
	}
	if err := d.probeTable(ctx); err != nil {
		return s, err
	}
	return s, d.probePrivileges(ctx)
}

func (s *server) mariaDB() bool { return strings.Contains(s.version, "MariaDB") }

func (s *server) check() error {
	least := [2]int{8, 0}
	if s.mariaDB() {
		least = [2]int{10, 6}
	}
	var v [2]int
	n, _ := fmt.Sscanf(s.version, "%d.%d", &v[0], &v[1])
	switch {
	case n == 2 && slices.Compare(v[:], least[:]) < 0:
		return fmt.Errorf("%w: version %s, at least %d.%d is needed", backend.ErrUnsupported, s.version, least[0], least[1])
	case s.database == "":
		return fmt.Errorf("%w: no database is chosen", backend.ErrUnsupported)
	case !s.autocommit:
		return fmt.Errorf("%w: autocommit is off", backend.ErrUnsupported)
	case s.simultaneous:
		return fmt.Errorf("%w: sql_mode has SIMULTANEOUS_ASSIGNMENT", backend.ErrUnsupported)
	case s.emptyIsNull: // a free lock has the owner ''
		return fmt.Errorf("%w: sql_mode has EMPTY_STRING_IS_NULL", backend.ErrUnsupported)
	case s.logsStatements:
		return fmt.Errorf("%w: binlog_format is STATEMENT: replicas would have no locks", backend.ErrUnsupported)
	case s.readOnly:
		return fmt.Errorf("%w: the server is read-only", backend.ErrUnavailable)
	}
	return nil
}

// probeTable looks whether the table is there, or makes it, and is ours. Who else makes it at the
// same time may make us fail, and that we need not.
func (d *lockDriver) probeTable(ctx context.Context) error {
	columns, err := d.columns(ctx)
	if err == nil && len(columns) == 0 && d.opts.Create {
		_, errCreate := exec(ctx, d.conn.main, d.text.schema)
		if columns, err = d.columns(ctx); err == nil && len(columns) == 0 {
			err = errCreate
		}
	}
	switch {
	case err != nil:
		return err
	case len(columns) == 0:
		return fmt.Errorf("%w: there is no table %s; make it with create=1, or with\n%s",
			backend.ErrUnavailable, d.opts.Table, d.text.schema)
	}
	d.maxKey, err = checkShape(d.opts.Table, columns)
	return err
}

// column is a row of shape.sql.
type column struct{ name, kind, key, engine string }

func (d *lockDriver) columns(ctx context.Context) ([]column, error) {
	return query(ctx, d.conn.main, func(rows *sql.Rows) (c column, err error) {
		return c, rows.Scan(&c.name, &c.kind, &c.key, &c.engine)
	}, plain(shapeSQL), d.opts.Table)
}

// maxKey and oldMaxKey are the widths of names and meta: in schema.sql, and in the tables of earlier builds.
const maxKey, oldMaxKey = 1024, 512

// shape is that of schema.sql, apart from the width.
func shape(width int) []column {
	wide := fmt.Sprintf("varbinary(%d)", width)
	return []column{
		{name: "name", kind: wide, key: "PRI"},
		{name: "owner", kind: "varbinary(64)"},
		{name: "token", kind: "bigint"},
		{name: "since", kind: "datetime(6)"},
		{name: "expires", kind: "datetime(6)"},
		{name: "meta", kind: wide},
	}
}

// checkShape returns how many bytes a name may have.
func checkShape(table string, columns []column) (width int, err error) {
	if engine := columns[0].engine; !strings.EqualFold(engine, "InnoDB") {
		return 0, fmt.Errorf("%w: table %s has the engine %q, InnoDB is needed", backend.ErrConflict, table, engine)
	}
	for _, width := range []int{maxKey, oldMaxKey} {
		if hasShape(columns, shape(width)) {
			return width, nil
		}
	}
	return 0, fmt.Errorf("%w: table %s is of another shape than\n%s", backend.ErrConflict, table, Schema(table))
}

func hasShape(columns, shape []column) bool {
	return slices.EqualFunc(columns, shape, func(a, b column) bool {
		kind := strings.TrimSuffix(strings.ToLower(a.kind), "(20)") // a width that MariaDB still tells
		return strings.EqualFold(a.name, b.name) && kind == b.kind && a.key == b.key
	})
}

// probePrivileges makes the server explain the statements, which takes the same privileges as
// to execute them and changes nothing. A batch of renewals cannot be explained on MariaDB. It is executed for a
// name that no lock has.
func (d *lockDriver) probePrivileges(ctx context.Context) error {
	none, nothing := []byte{}, acquireArgs(&backend.Request{}, 0, false)
	for _, s := range []struct {
		text string
		args []any
	}{
		{d.text.acquire, nothing},
		{withNames(d.text.sweep, 1), []any{none, 0}},
	} {
		_, err := query(ctx, d.conn.main, func(*sql.Rows) (any, error) { return nil, nil }, "EXPLAIN "+s.text, s.args...)
		if err != nil {
			return err
		}
	}
	_, err := exec(ctx, d.conn.main, withNames(d.text.renewFree, 1), none, 1, 0, none, none)
	return err
}
