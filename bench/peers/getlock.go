package main

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/bench"
)

const (
	mysqlPort = "3306"
	// mysqlIdle is how many connections are kept for the next lock: one for each contender.
	mysqlIdle = 128
	// mysqlWait is as good as forever, in seconds: MariaDB has no other way to say so.
	mysqlWait = 1 << 20
)

// openGetLock is MySQL's GET_LOCK, by hand. The lock is its connection's: each that holds or waits has
// one to itself. It has no TTL; the server frees it when the connection breaks.
func openGetLock(_ context.Context, u *backend.URL, _ bench.Settings) (bench.Process, error) {
	config := mysql.NewConfig()
	config.User, config.Passwd, config.DBName = u.User, u.Password, strings.Trim(u.Path, "/")
	config.Net, config.Addr = "tcp", u.HostsWithPort(mysqlPort)[0]
	config.InterpolateParams = true // or each statement would be prepared before
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxIdleConns(mysqlIdle)
	life, end := context.WithCancel(context.Background())
	return process{
		mutex: func(name string) mutex {
			return func(ctx context.Context) (lease, error) { return getLock(ctx, life, db, name) }
		},
		close: func() error {
			end()
			return db.Close()
		},
	}, nil
}

// getLock waits until the lock is had, or ctx or life ends.
func getLock(ctx, life context.Context, db *sql.DB, name string) (lease, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(life, cancel)()
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if err := yes(ctx, conn, "GET_LOCK(?, ?)", name, mysqlWait); err != nil {
		_ = conn.Close() // err says more
		return nil, err
	}
	return func(ctx context.Context) error {
		defer conn.Close()
		return yes(ctx, conn, "RELEASE_LOCK(?)", name)
	}, nil
}

// yes is an error unless the server answers 1.
func yes(ctx context.Context, conn *sql.Conn, function string, args ...any) error {
	var answer sql.NullInt64
	err := conn.QueryRowContext(ctx, "SELECT "+function, args...).Scan(&answer)
	if err == nil && answer.Int64 != 1 {
		err = fmt.Errorf("%s: the server does not say yes", function)
	}
	return err
}
