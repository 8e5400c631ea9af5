package main

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"

	"github.com/go-sql-driver/mysql"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/bench"
)

const (
	mysqlPort = "3306"
	// mysqlIdle is how many connections are kept for the next lock: one for each contender.
	mysqlIdle = 128
	// mysqlWait is practically for ever, in seconds. MariaDB has no value for an unlimited wait.
	mysqlWait = 1 << 20
)

// openGetLock uses MySQL's GET_LOCK by hand. A lock belongs to a connection, so each
// holder and each waiter has a separate connection. A lock has no TTL: the server frees it
// when the connection breaks.
func openGetLock(_ context.Context, u *backend.URL, _ bench.Settings) (bench.Process, error) {
	config := mysql.NewConfig()
	config.User, config.Passwd, config.DBName = u.User, u.Password, strings.Trim(u.Path, "/")
	config.Net, config.Addr = "tcp", u.HostsWithPort(mysqlPort)[0]
	config.InterpolateParams = true // otherwise each statement would be prepared first
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	p := &getLocks{db: sql.OpenDB(connector)}
	p.db.SetMaxIdleConns(mysqlIdle)
	p.life, p.end = context.WithCancel(context.Background())
	return process{
		mutex: func(name string) mutex {
			return func(ctx context.Context) (lease, error) { return p.lock(ctx, name) }
		},
		close: p.close,
	}, nil
}

// getLocks are the locks of a process.
type getLocks struct {
	db   *sql.DB
	life context.Context
	end  context.CancelFunc
	held sync.Map // *sql.Conn → true; DB.Close leaves the connections open
}

// lock blocks until it acquires the lock, or until ctx or the process ends.
func (p *getLocks) lock(ctx context.Context, name string) (lease, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.life, cancel)()
	conn, err := p.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if err := yes(ctx, conn, "GET_LOCK(?, ?)", name, mysqlWait); err != nil {
		_ = conn.Close() // err is more useful
		return nil, err
	}
	p.held.Store(conn, true)
	return func(ctx context.Context) error {
		defer conn.Close()
		p.held.Delete(conn)
		return yes(ctx, conn, "RELEASE_LOCK(?)", name)
	}, nil
}

func (p *getLocks) close() error {
	p.end()
	err := p.db.Close()
	for conn := range p.held.Range {
		_ = conn.(*sql.Conn).Close()
	}
	return err
}

// yes calls a function of the server. It returns an error unless the answer is 1.
func yes(ctx context.Context, conn *sql.Conn, function string, args ...any) error {
	var answer sql.NullInt64
	err := conn.QueryRowContext(ctx, "SELECT "+function, args...).Scan(&answer)
	if err == nil && answer.Int64 != 1 {
		err = fmt.Errorf("%s: the server did not answer 1", function)
	}
	return err
}
