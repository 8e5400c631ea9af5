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

// maxPause limits the pause after a conflict, to 2^7 ms.
const maxPause = 7

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
	timeout  time.Duration
	main     *lane // of all requests but renewals
	renewals *lane
	listener *listener
	sweeper  sweeper
}

func newDriver(
	pool *pgxpool.Pool, config *pgxpool.Config, dials *dialer, opts Options,
) *driver {
	d := &driver{
		pool: pool, dials: dials, table: opts.Table, sql: newStatements(opts.Table),
		timeout:  opts.Timeout,
		main:     newLane(slotsOf(int(config.MaxConns))),
		renewals: newLane(min(reserved, int(config.MaxConns))),
	}
	d.listener = newListener(config, opts.Timeout)
	d.sweeper.init(d)
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
	if req.Mode == backend.Exclusive {
		fence, err := d.exec(ctx, d.main, d.sql.take,
			name(req.Key), req.Owner, []byte(req.Meta), roster.Micros(req.TTL))
		if err != nil {
			return nil, err
		}
		if fence > 0 {
			return d.granted(req, sent, uint64(fence)), nil
		}
	}
	var fence uint64
	err := d.edit(ctx, d.main, req.Key, func(entries *roster.Roster, next uint64, now int64) error {
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

// Release implements backend.Driver. One statement frees a lock that has no waiters. It sends no
// NOTIFY, which makes all commits of the server wait for each other.
func (d *driver) Release(ctx context.Context, g *backend.Grant) error {
	version, err := d.exec(ctx, d.main, d.sql.free, name(g.Key), g.Owner)
	if err != nil || version > 0 {
		return err
	}
	err = d.remove(ctx, g)
	if !errors.Is(err, backend.ErrNotHeld) {
		return err
	}
	// The commit of an acquisition that was given up can wait for a standby for any time.
	if err := d.settle(ctx, g.Key); err != nil {
		return err
	}
	return d.remove(ctx, g)
}

// remove removes the grant or the entry of g.Owner, as the row shows it.
func (d *driver) remove(ctx context.Context, g *backend.Grant) error {
	return d.edit(ctx, d.main, g.Key, func(entries *roster.Roster, _ uint64, _ int64) error {
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

// call makes a request on a connection, when a slot of its lane is free. If ctx ends, call returns
// at once, and the request goes on in the background: pgx would end its connection, and a server to
// which all clients connect again is slow. A request is not begun after the end of ctx.
func call[T any](
	ctx context.Context, d *driver, l *lane,
	request func(context.Context, *pgx.Conn) (T, error),
) (T, error) {
	value, err := backend.Call(ctx, func(ctx context.Context) (none T, err error) {
		select {
		case l.slots <- struct{}{}:
			defer func() { <-l.slots }()
		case <-ctx.Done():
			return none, ctx.Err()
		}
		conn, err := d.connect(ctx)
		if err != nil {
			return none, unsent(err)
		}
		defer giveBack(conn)
		if ctx.Err() != nil {
			return none, ctx.Err()
		}
		ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), d.timeout, errNoAnswer)
		defer cancel()
		value, err := request(ctx, conn.Conn())
		if err != nil && ctx.Err() != nil {
			err = errNoAnswer
		}
		return value, err
	})
	if err != nil && ctx.Err() != nil {
		return *new(T), ctx.Err()
	}
	return value, interpretError(err)
}

// connect takes a connection of the pool. It does not end with ctx: until a connection is made or
// has failed, it counts in the pool, and so the request needs its slot.
func (d *driver) connect(ctx context.Context) (*pgxpool.Conn, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), openTimeout)
	defer cancel()
	return d.pool.Acquire(ctx)
}

// giveBack gives a connection back to the pool. If pgx has given it up, giveBack returns when the
// pool has room for another one. So a request keeps its slot, and no request takes a connection
// that is reserved for renewals.
func giveBack(conn *pgxpool.Conn) {
	pgConn := conn.Conn().PgConn()
	isClosed := pgConn.IsClosed()
	conn.Release()
	if isClosed {
		<-pgConn.CleanupDone()
	}
}

// exec runs a statement that returns a number of the row that it has changed. Without such a row
// exec returns 0.
func (d *driver) exec(
	ctx context.Context, l *lane, sql string, args ...any,
) (int64, error) {
	return call(ctx, d, l, func(ctx context.Context, conn *pgx.Conn) (number int64, err error) {
		err = conn.QueryRow(ctx, sql, args...).Scan(&number)
		if errors.Is(err, pgx.ErrNoRows) {
			err = nil
		}
		return number, err
	})
}

// read reads a row.
func (d *driver) read(ctx context.Context, l *lane, key string) (*row, error) {
	return call(ctx, d, l, func(ctx context.Context, conn *pgx.Conn) (*row, error) {
		r := new(row)
		err := r.scan(conn.QueryRow(ctx, d.sql.read, name(key)))
		return r, err
	})
}

// errNoAnswer is the outcome of a request that the server does not answer.
var errNoAnswer = errors.New("the server does not answer")

// edit changes the entries of a name: it reads the row and stores it unless another client has
// changed it meanwhile; then it begins again. So no row stays locked while the client is slow. An
// answer that changes nothing is that of the row as it was read.
func (d *driver) edit(ctx context.Context, l *lane, key string, alter change) error {
	leave, err := l.gates.enter(ctx, key)
	if err != nil {
		return err
	}
	defer leave()
	for conflicts := 0; ; conflicts++ {
		r, err := d.read(ctx, l, key)
		if err != nil {
			return err
		}
		next, woken, answer := r.after(alter)
		if next == nil || isFinal(answer) {
			return answer
		}
		stored, err := d.store(ctx, l, key, next, woken)
		switch {
		case err != nil:
			return err
		case stored:
			return answer
		}
		if err := pause(ctx, conflicts); err != nil {
			return err
		}
	}
}

// isFinal reports whether err is the answer to a change that is not stored. A waiter that is
// refused has a new entry.
func isFinal(err error) bool { return err != nil && !errors.Is(err, backend.ErrNotAcquired) }

// settle waits until no row of keys has a change that is not committed. A key without a row gets
// one that is free.
func (d *driver) settle(ctx context.Context, keys ...string) error {
	return d.run(ctx, d.sql.settle, names(keys), int64(backend.FenceEpoch))
}

// pause waits before another attempt to store a row that many clients change, ever longer. The
// pause is random, so that the clients do not meet again.
func pause(ctx context.Context, conflicts int) error {
	timer := time.NewTimer(rand.N(time.Millisecond << min(conflicts, maxPause)))
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
func (d *driver) store(
	ctx context.Context, l *lane, key string, r *row, woken []string,
) (bool, error) {
	args := []any{
		name(key), r.version, r.fence, r.owner, r.meta, r.since, r.expires, r.roster,
	}
	sql := d.sql.update
	switch {
	case !r.found:
		sql = d.sql.insert
	case len(woken) > 0:
		sql, args = d.sql.updateWaking, append(args, woken)
	}
	version, err := d.exec(ctx, l, sql, args...)
	return version > 0, err
}
