package pgbackend

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/roster"
)

// minTTL is the shortest term: some round trips and commits.
const minTTL = 100 * time.Millisecond

// closeTimeout is how long Close waits for the server.
const closeTimeout = time.Second

// driver implements backend.Driver and its optional interfaces. It keeps nothing about locks: the
// table has them all.
type driver struct {
	pool     *pgxpool.Pool
	owned    bool // Close closes the pool
	dials    *dialer
	table    string
	sql      statements
	slots    chan struct{} // one for each request but renewals
	listener *listener
	sweeper  sweeper
}

func newDriver(
	pool *pgxpool.Pool, config *pgxpool.Config, dials *dialer, opts Options,
) *driver {
	d := &driver{
		pool: pool, dials: dials, table: opts.Table, sql: newStatements(opts.Table),
		slots: make(chan struct{}, slotsOf(int(config.MaxConns))),
	}
	d.listener = newListener(config, opts.Timeout)
	d.sweeper.init(d, opts.Timeout)
	return d
}

// slotsOf returns how many connections of a pool are for requests that are no renewals.
func slotsOf(size int) int {
	if size <= reserved {
		return max(1, size)
	}
	return size - reserved
}

// Capabilities implements backend.Driver.
func (d *driver) Capabilities() backend.Capabilities {
	return backend.Capabilities{
		Modes:   backend.Exclusive | backend.Shared | backend.Permit,
		Fair:    backend.FairAlways,
		Fencing: backend.FenceDurable,
		Inspect: true, List: true, Break: true, Move: true, Notify: true,
		MinTTL: minTTL,
		Late:   late,
	}
}

// Acquire implements backend.Driver. A writer takes a lock that is free, or that has expired, with
// one statement. Everything else is a change of the roster.
func (d *driver) Acquire(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
	sent := backend.Began(ctx)
	var row *row
	if req.Mode == backend.Exclusive {
		fence, before, err := d.take(ctx, req)
		if err != nil {
			return nil, err
		}
		if fence > 0 {
			return d.granted(req, sent, fence), nil
		}
		row = before
	}
	var fence uint64
	err := d.edit(ctx, req.Key, row, func(entries *roster.Roster, next uint64, now int64) error {
		e, err := entries.Acquire(req, next, now)
		if err == nil {
			fence = e.Fence
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return d.granted(req, sent, fence), nil
}

func (d *driver) granted(req *backend.Request, sent time.Time, fence uint64) *backend.Grant {
	d.sweeper.onGrant(req.Key)
	return &backend.Grant{
		Request: *req, Term: backend.Term{Sent: sent, TTL: req.TTL}, Fence: fence,
	}
}

// take makes req.Owner the writer if the lock is free. Otherwise fence is 0, and before is the row.
func (d *driver) take(ctx context.Context, req *backend.Request) (
	fence uint64, before *row, err error,
) {
	var took *int64
	before = new(row)
	err = d.do(ctx, func(ctx context.Context) error {
		return before.scan(d.pool.QueryRow(ctx, d.sql.take,
			name(req.Key), req.Owner, []byte(req.Meta), roster.Micros(req.TTL)), &took)
	})
	if err != nil || took == nil {
		return 0, before, err
	}
	return uint64(*took), nil, nil
}

// Release implements backend.Driver. One statement frees a lock that has no waiters. It wakes
// nobody, because NOTIFY makes all commits of the server wait for each other.
func (d *driver) Release(ctx context.Context, g *backend.Grant) error {
	freed, err := d.exec(ctx, d.sql.free, name(g.Key), g.Owner)
	if err != nil || freed {
		return err
	}
	return d.edit(ctx, g.Key, nil, func(entries *roster.Roster, _ uint64, _ int64) error {
		return entries.Remove(g.Owner)
	})
}

// Close implements backend.Driver.
func (d *driver) Close() error {
	d.sweeper.close()
	d.listener.close()
	if !d.owned {
		d.dials.close()
		return nil
	}
	var closing sync.WaitGroup
	closing.Go(d.pool.Close) // waits for connections that were given up, and their cancel requests
	limit := time.AfterFunc(closeTimeout, d.dials.close)
	closing.Wait()
	limit.Stop()
	d.dials.close()
	return nil
}

// do makes a request when a connection may serve it, and interprets its error.
func (d *driver) do(ctx context.Context, request func(ctx context.Context) error) error {
	select {
	case d.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-d.slots }()
	return outcome(ctx, request(ctx))
}

// outcome returns the meaning of an error, or the error of a context that has ended.
func outcome(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return interpretError(err)
}

// exec runs a statement that changes at most one row and returns its version. It reports whether
// there was one.
func (d *driver) exec(ctx context.Context, sql string, args ...any) (changed bool, err error) {
	err = d.do(ctx, func(ctx context.Context) error {
		changed, err = d.changes(ctx, sql, args...)
		return err
	})
	return changed, err
}

// changes is exec without a slot and without the meaning of errors.
func (d *driver) changes(ctx context.Context, sql string, args ...any) (bool, error) {
	var version int64
	err := d.pool.QueryRow(ctx, sql, args...).Scan(&version)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// read reads a row.
func (d *driver) read(ctx context.Context, name []byte) (*row, error) {
	r := new(row)
	err := d.do(ctx, func(ctx context.Context) error {
		return r.scan(d.pool.QueryRow(ctx, d.sql.read, name))
	})
	return r, err
}

// edit changes the entries of a name: it reads the row and stores it unless another client has
// changed it meanwhile; then it begins again. So no row stays locked while the client is slow. The
// row may have been read already. An answer that changes nothing is that of the row as it was read.
func (d *driver) edit(ctx context.Context, key string, r *row, alter change) error {
	for conflicts := 0; ; conflicts++ {
		if r == nil {
			var err error
			if r, err = d.read(ctx, name(key)); err != nil {
				return err
			}
		}
		next, woken, answer := r.after(alter)
		if next == nil || answer != nil && !errors.Is(answer, backend.ErrNotAcquired) {
			return answer
		}
		stored, err := d.store(ctx, key, next, woken)
		if err != nil {
			return err
		}
		if stored {
			return answer
		}
		r = nil
		if err := pause(ctx, conflicts); err != nil {
			return err
		}
	}
}

// pause waits before another attempt to store a row that many clients change, ever longer.
func pause(ctx context.Context, conflicts int) error {
	timer := time.NewTimer(rand.N(time.Duration(min(conflicts, 20)+1) * time.Millisecond))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// store writes a row, unless it has changed since it was read, and wakes the waiters with these
// owners.
func (d *driver) store(ctx context.Context, key string, r *row, woken []string) (bool, error) {
	args := []any{
		name(key), r.version, r.fence, r.owner, r.meta, r.since, r.expires, r.roster,
	}
	switch {
	case !r.found:
		return d.exec(ctx, d.sql.insert, args...)
	case len(woken) == 0:
		return d.exec(ctx, d.sql.update, args...)
	}
	return d.exec(ctx, d.sql.updateWaking, append(args, woken)...)
}
