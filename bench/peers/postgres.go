package main

import (
	"context"
	"errors"
	"math"
	"net/url"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dlock-go/dlock/backend"
)

const pgPort = "5432"

// pgLocks are the locks of a process that belong to connections of PostgreSQL. Each holder and
// each waiter has a separate connection. The server frees a lock when its connection breaks.
type pgLocks struct {
	pool *pgxpool.Pool
	life context.Context
	end  context.CancelFunc
	held sync.Map // *pgxpool.Conn → true; Pool.Close waits for them
}

// newPGLocks returns locks without a limit of connections. It makes no connection.
func newPGLocks(ctx context.Context, u *backend.URL) (*pgLocks, error) {
	address := url.URL{
		Scheme: "postgres", Host: strings.Join(u.HostsWithPort(pgPort), ","), Path: u.Path,
		User: url.UserPassword(u.User, u.Password), RawQuery: "sslmode=disable",
	}
	config, err := pgxpool.ParseConfig(address.String())
	if err != nil {
		return nil, err
	}
	config.MaxConns = math.MaxInt32
	p := &pgLocks{}
	if p.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, err
	}
	p.life, p.end = context.WithCancel(context.Background())
	return p, nil
}

// acquire acquires the lock of a name on a connection, and returns its Unlock. After an error the
// connection has no lock, or it is in a transaction or closed, so that the pool drops it.
type acquire func(ctx context.Context, conn *pgxpool.Conn, name string) (lease, error)

// process returns the process whose locks are acquired by a function.
func (p *pgLocks) process(acquire acquire) process {
	return process{
		mutex: func(name string) mutex {
			return func(ctx context.Context) (lease, error) { return p.lock(ctx, acquire, name) }
		},
		close: p.close,
	}
}

// lock blocks until it acquires the lock, or until ctx or the process ends.
func (p *pgLocks) lock(ctx context.Context, acquire acquire, name string) (lease, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.life, cancel)()
	conn, err := p.pool.Acquire(ctx)
	if err != nil {
		return nil, answered(err)
	}
	unlock, err := acquire(ctx, conn, name)
	if err != nil {
		conn.Release()
		return nil, err
	}
	p.held.Store(conn, true)
	if err := p.life.Err(); err != nil { // close may have missed it
		p.drop(conn)
		return nil, err
	}
	return func(ctx context.Context) error {
		if _, held := p.held.LoadAndDelete(conn); !held {
			return context.Canceled // by close
		}
		defer conn.Release()
		return unlock(ctx)
	}, nil
}

// drop closes a connection that is still held, and with it frees its lock.
func (p *pgLocks) drop(conn *pgxpool.Conn) {
	if _, held := p.held.LoadAndDelete(conn); held {
		_ = conn.Conn().Close(context.Background())
		conn.Release()
	}
}

// free wakes the waiters and frees the locks that are held.
func (p *pgLocks) free() {
	p.end()
	for conn := range p.held.Range {
		p.drop(conn.(*pgxpool.Conn))
	}
}

func (p *pgLocks) close() error {
	p.free()
	p.pool.Close()
	return nil
}

// answered returns the server's own words if it has refused a connection. err also has addresses,
// which are too long for a table.
func answered(err error) error {
	if refusal, ok := errors.AsType[*pgconn.PgError](err); ok {
		return refusal
	}
	return err
}
