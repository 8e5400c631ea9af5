package main

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/bench"
)

// advisoryConns is the maximum number of connections: one for each holder and each waiter.
const advisoryConns = 900

// openAdvisory uses PostgreSQL's advisory locks by hand. A lock belongs to a connection, so each
// holder and each waiter has a separate connection. A lock has no TTL: the server frees it when the
// connection breaks. A name is its hash, so two names can be one lock.
func openAdvisory(ctx context.Context, u *backend.URL, _ bench.Settings) (bench.Process, error) {
	address := url.URL{
		Scheme: "postgres", Host: strings.Join(u.HostsWithPort("5432"), ","), Path: u.Path,
		User: url.UserPassword(u.User, u.Password), RawQuery: "sslmode=disable",
	}
	config, err := pgxpool.ParseConfig(address.String())
	if err != nil {
		return nil, err
	}
	config.MaxConns = advisoryConns
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	p := &advisoryLocks{pool: pool}
	p.life, p.end = context.WithCancel(context.Background())
	return process{
		mutex: func(name string) mutex {
			return func(ctx context.Context) (lease, error) { return p.lock(ctx, name) }
		},
		close: p.close,
	}, nil
}

// advisoryLocks are the locks of a process.
type advisoryLocks struct {
	pool *pgxpool.Pool
	life context.Context
	end  context.CancelFunc
	held sync.Map // *pgxpool.Conn → true; Pool.Close waits for them
}

// lock blocks until it acquires the lock, or until ctx or the process ends.
func (p *advisoryLocks) lock(ctx context.Context, name string) (lease, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.life, cancel)()
	conn, err := p.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	_, err = conn.Exec(ctx, "SELECT pg_advisory_lock(hashtextextended($1, 0))", name)
	if err != nil {
		conn.Release()
		return nil, err
	}
	p.held.Store(conn, true)
	return func(ctx context.Context) error {
		if _, held := p.held.LoadAndDelete(conn); !held {
			return context.Canceled // by close
		}
		defer conn.Release()
		var freed bool
		err := conn.QueryRow(ctx, "SELECT pg_advisory_unlock(hashtextextended($1, 0))", name).
			Scan(&freed)
		if err == nil && !freed {
			err = fmt.Errorf("pg_advisory_unlock: the lock was not held")
		}
		return err
	}, nil
}

func (p *advisoryLocks) close() error {
	p.end()
	for conn := range p.held.Range {
		if _, held := p.held.LoadAndDelete(conn); held {
			conn := conn.(*pgxpool.Conn)
			_ = conn.Conn().Close(context.Background())
			conn.Release()
		}
	}
	p.pool.Close()
	return nil
}
