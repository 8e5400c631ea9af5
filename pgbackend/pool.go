package pgbackend

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dlock-go/dlock/backend"
)

// pool lends connections. It is safe for concurrent use.
type pool interface {
	// with calls use with a connection, which use may end. After an error there is no connection,
	// and use has not been called.
	with(ctx context.Context, use func(*pgx.Conn)) error
	// Close closes the pool.
	Close()
}

// pgxPool is a pool of pgx.
type pgxPool struct{ *pgxpool.Pool }

// with implements pool. If pgx has given the connection up, with returns when it has ended, but
// after cleanupTimeout in any case. So a request keeps its slot, and no request takes a connection
// that is reserved for renewals. A connection that has not ended by then no longer counts in its
// pool, which would count it for 15 s.
func (p pgxPool) with(ctx context.Context, use func(*pgx.Conn)) error {
	conn, err := p.Acquire(ctx)
	if err != nil {
		return err
	}
	use(conn.Conn())
	if own := conn.Conn().PgConn(); own.IsClosed() && !awaitCleanup(own) {
		conn.Hijack()
		return nil
	}
	conn.Release()
	return nil
}

// cleanupTimeout limits the wait for a connection that pgx has given up. It is longer than a cancel
// request in a pool of the driver. In a pool of the caller, whose connections no dialer of the
// driver makes, a cancel request takes up to 15 s. Two of them would stop all renewals.
const cleanupTimeout = 2 * cancelTimeout

// awaitCleanup waits until a connection has ended that pgx has given up. It reports false if the
// connection has not ended after cleanupTimeout.
func awaitCleanup(conn *pgconn.PgConn) bool {
	timer := time.NewTimer(cleanupTimeout)
	defer timer.Stop()
	select {
	case <-conn.CleanupDone():
		return true
	case <-timer.C:
		return false
	}
}

// sqlPool is the database of a caller.
type sqlPool struct{ *sql.DB }

// errOtherDriver is the error of a database whose connections are not pgx's.
var errOtherDriver = fmt.Errorf("%w: the *sql.DB has another driver than pgx: open it with "+
	"github.com/jackc/pgx/v5/stdlib", backend.ErrUnsupported)

// with implements pool, as for a pool of pgx. database/sql keeps a connection that has ended in its
// count until Raw returns ErrBadConn. This error is not returned to the caller of with, because use
// was called.
func (p sqlPool) with(ctx context.Context, use func(*pgx.Conn)) error {
	conn, err := p.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	used := false
	err = conn.Raw(func(raw any) error {
		own, ok := raw.(*stdlib.Conn)
		if !ok {
			return errOtherDriver
		}
		used = true
		use(own.Conn())
		if end := own.Conn().PgConn(); end.IsClosed() {
			_ = awaitCleanup(end)
			return sqldriver.ErrBadConn // makes room for another one
		}
		return nil
	})
	if used {
		return nil
	}
	return err
}

// Close implements pool. The database belongs to the caller.
func (p sqlPool) Close() {}

// origin makes the connections that are not of the pool: the connection that listens for waiters,
// or the connection that has the locks of a session. A pool cannot lend them, because it would take
// them from its other users for as long as the driver lives.
type origin struct {
	config *pgx.ConnConfig
	// beforeConnect changes the configuration of the next connection, such as a password that
	// expires. It may be nil.
	beforeConnect func(context.Context, *pgx.ConnConfig) error
}

// originOf returns the origin of the connections of a pool.
func originOf(config *pgxpool.Config) origin {
	return origin{config: config.ConnConfig, beforeConnect: config.BeforeConnect}
}

// next returns the configuration of the next connection. Its notifications are the driver's: a
// handler of the caller would get them, and a handler of one connection belongs to it alone.
func (o origin) next(ctx context.Context) (config *pgx.ConnConfig, err error) {
	config = o.config.Copy()
	if o.beforeConnect != nil {
		err = o.beforeConnect(ctx, config)
	}
	config.OnNotification = nil
	return config, err
}
