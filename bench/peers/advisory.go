package main

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/bench"
)

// openAdvisory uses PostgreSQL's advisory locks by hand. A lock has no TTL. A name is its hash, so
// two names can be one lock.
func openAdvisory(ctx context.Context, u *backend.URL, _ bench.Settings) (bench.Process, error) {
	p, err := newPGLocks(ctx, u)
	if err != nil {
		return nil, err
	}
	return p.process(lockAdvisory), nil
}

// lockAdvisory implements acquire.
func lockAdvisory(ctx context.Context, conn *pgxpool.Conn, name string) (lease, error) {
	_, err := conn.Exec(ctx, "SELECT pg_advisory_lock(hashtextextended($1, 0))", name)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		var freed bool
		err := conn.QueryRow(ctx, "SELECT pg_advisory_unlock(hashtextextended($1, 0))", name).
			Scan(&freed)
		if err == nil && !freed {
			err = errors.New("pg_advisory_unlock: the lock was not held")
		}
		return err
	}, nil
}
