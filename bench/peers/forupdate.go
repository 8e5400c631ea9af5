package main

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/bench"
)

const (
	// makeTableSQL makes the table once. Without the lock the server refuses the statement to all
	// but one of the processes that start at the same time.
	makeTableSQL = `SELECT pg_advisory_xact_lock(hashtextextended('bench_peers', 0));
CREATE TABLE IF NOT EXISTS bench_peers (name text PRIMARY KEY)`
	makeRowSQL = `INSERT INTO bench_peers VALUES ($1) ON CONFLICT DO NOTHING`
	lockRowSQL = `SELECT 1 FROM bench_peers WHERE name = $1 FOR UPDATE`
	// removeRowsSQL leaves the rows that other processes use.
	removeRowsSQL = `DELETE FROM bench_peers WHERE name IN
	(SELECT name FROM bench_peers WHERE name = ANY($1) FOR UPDATE SKIP LOCKED)`
	// removeTime limits removeRowsSQL.
	removeTime = 5 * time.Second
)

// rowLocks are the locks of a process that are rows.
type rowLocks struct {
	*pgLocks
	mu   sync.Mutex
	made []string // the names whose rows this process has made
}

// openForUpdate uses SELECT … FOR UPDATE by hand. A lock is the row of its name, which stays locked
// as long as a transaction lasts. It has no TTL.
func openForUpdate(ctx context.Context, u *backend.URL, _ bench.Settings) (bench.Process, error) {
	locks, err := newPGLocks(ctx, u)
	if err != nil {
		return nil, err
	}
	if _, err := locks.pool.Exec(ctx, makeTableSQL); err != nil {
		_ = locks.close()
		return nil, answered(err)
	}
	p := &rowLocks{pgLocks: locks}
	result := locks.process(p.lockRow)
	result.close = p.close
	return result, nil
}

// lockRow implements acquire. Unlock is the commit, which also stores the row if it is new. Until
// then the INSERT of every other contender waits.
func (p *rowLocks) lockRow(ctx context.Context, conn *pgxpool.Conn, name string) (lease, error) {
	// Other levels refuse a row that was changed during the wait.
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return nil, err
	}
	for {
		found, err := tx.Exec(ctx, lockRowSQL, name)
		if err != nil {
			return nil, err
		}
		if found.RowsAffected() > 0 {
			return tx.Commit, nil
		}
		if err := p.makeRow(ctx, tx, name); err != nil {
			return nil, err
		}
	}
}

// makeRow makes the row of a name unless another contender has made it.
func (p *rowLocks) makeRow(ctx context.Context, tx pgx.Tx, name string) error {
	inserted, err := tx.Exec(ctx, makeRowSQL, name)
	if err == nil && inserted.RowsAffected() > 0 {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.made = append(p.made, name)
	}
	return err
}

// close removes the rows that this process has made, unless other processes use them. A row that
// remains does no harm.
func (p *rowLocks) close() error {
	p.free()
	p.mu.Lock()
	made := p.made
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), removeTime)
	defer cancel()
	_, _ = p.pool.Exec(ctx, removeRowsSQL, made)
	return p.pgLocks.close()
}
