package pgbackend

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"fmt"

	"github.com/jackc/pgx/v5"
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

// with implements pool. If pgx has given the connection up, with returns when it has ended. So a
// request keeps its slot, and no request takes a connection that is reserved for renewals.
func (p pgxPool) with(ctx context.Context, use func(*pgx.Conn)) error {
	conn, err := p.Acquire(ctx)
	if err != nil {
		return err
	}
	use(conn.Conn())
	own := conn.Conn().PgConn()
	isClosed := own.IsClosed()
	conn.Release()
	if isClosed {
		<-own.CleanupDone()
	}
	return nil
}

// sqlPool is the database of a caller.
type sqlPool struct{ *sql.DB }

// errOtherDriver is the error of a database whose connections are not pgx's.
var errOtherDriver = fmt.Errorf("%w: the *sql.DB has another driver than pgx: open it with "+
	"github.com/jackc/pgx/v5/stdlib", backend.ErrUnsupported)

// with implements pool.
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
			<-end.CleanupDone()
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

// origin makes the connections that are not of the pool: one that listens for waiters, or the one
// that has the locks of a session.
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
