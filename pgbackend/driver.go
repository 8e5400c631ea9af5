package pgbackend

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/roster"
)

// A writer without waiters is a row, and takes and frees make its requests. All other requests
// about holders and waiters are changes of the roster, which editions make.

const (
	// minTTL is the shortest term: some round trips and commits.
	minTTL = 100 * time.Millisecond
	// closeTimeout is how long Close waits for the server.
	closeTimeout = time.Second
)

// driver implements backend.Driver and its optional interfaces. It keeps nothing about locks: the
// table has them all. So a driver that has lost its connections, or its server in a failover, goes
// on with the next connection. All fields are set before it is used, and it is safe for concurrent
// use.
type driver struct {
	pool     pool
	owned    bool // Close closes the pool
	pooled   bool // there is a pooler in front of the server, and so no LISTEN
	durable  bool // the server keeps its commits if its host crashes
	dials    *dialer
	table    string
	sql      statements
	timeout  time.Duration
	patience time.Duration   // limits the wait for a connection of the pool
	life     context.Context // ends with Close
	end      context.CancelFunc
	main     *lane // of all requests but renewals
	hasty    *lane // main, for requests that do not wait for locked rows
	renewals *lane // they do not wait for locked rows
	patient  *lane // of renewals that wait for locked rows
	takes    *batcher
	frees    *batcher
	listener *listener
	sweeper  sweeper
}

var (
	_ backend.Driver       = (*driver)(nil)
	_ backend.Waiter       = (*driver)(nil)
	_ backend.BatchRenewer = (*driver)(nil)
	_ backend.Combiner     = (*driver)(nil)
	_ backend.Inspector    = (*driver)(nil)
	_ backend.Breaker      = (*driver)(nil)
	_ backend.Mover        = (*driver)(nil)
	_ backend.Downgrader   = (*driver)(nil)
)

// newDriver returns a driver over a pool of at most size connections. base makes another connection
// for its waiters. main has all connections of the pool but the reserved ones, which renewals and
// patient divide equally. In a pool that is not larger than reserved, the lanes have more slots
// than there are connections, and their requests also wait for each other.
func newDriver(pool pool, size int, base origin, dials *dialer, opts Options) *driver {
	d := &driver{
		pool: pool, dials: dials, table: opts.Table, timeout: opts.Timeout,
		patience: patienceOf(base, opts.Timeout),
		main:     newLane(slotsOf(size)),
	}
	d.life, d.end = context.WithCancel(context.Background())
	d.hasty = &lane{slots: d.main.slots, abandoned: d.main.abandoned, skips: true}
	half := max(1, min(reserved, size)/2)
	d.renewals, d.patient = newLane(half), newLane(half)
	d.renewals.skips = true
	d.patient.bounded = true
	d.takes, d.frees = newTakes(d), newFrees(d)
	d.listener = newListener(base, opts.Timeout)
	d.sweeper.init(d)
	return d
}

// patienceOf returns how long a new connection can take, which tries all hosts one after the other.
func patienceOf(base origin, timeout time.Duration) time.Duration {
	return max(backend.OpenTimeout, time.Duration(1+len(base.config.Fallbacks))*timeout)
}

// slotsOf returns how many connections of a pool are for requests that are no renewals.
func slotsOf(size int) int {
	if size <= reserved {
		return max(1, size)
	}
	return size - reserved
}

// Acquire implements backend.Driver. A writer takes a lock that is free, or that has expired, with
// one statement, which several requests may share. Everything else is a change of the roster. If it
// refuses a request with Queue, the request has an entry there, which keeps its place for most of
// roster.Place at least. An error that does not wrap ErrUnavailable, ErrConflict, ErrUnsupported or
// ErrNotAcquired is an unknown outcome.
func (d *driver) Acquire(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
	sent := backend.Began(ctx)
	if req.Mode == backend.Exclusive {
		fence, err := d.takes.do(ctx, req)
		if err != nil {
			return nil, err
		}
		if fence > 0 {
			return d.granted(req, sent, uint64(fence)), nil
		}
	}
	m := &caller{req: req}
	m.alter = func(entries *roster.Roster, next uint64, now int64) error {
		e, err := entries.Acquire(req, next, now)
		if err == nil {
			m.fence, m.isCrowded = e.Fence, len(*entries) > 1
		}
		return err
	}
	if err := d.editAs(ctx, d.main, req.Key, m); err != nil {
		return nil, err
	}
	g := d.granted(req, sent, m.fence)
	if m.isCrowded {
		g.State = crowded{}
	}
	return g, nil
}

// crowded is the State of a grant that had waiters or other holders when it was granted. It only
// decides which statement a release tries first.
type crowded struct{}

func (d *driver) granted(req *backend.Request, sent time.Time, fence uint64) *backend.Grant {
	d.sweeper.onGrant()
	return &backend.Grant{
		Request: *req, Term: backend.Term{Sent: sent, TTL: req.TTL}, Fence: fence,
	}
}

// Renew implements backend.Driver. It takes one statement for a writer without waiters.
func (d *driver) Renew(ctx context.Context, g *backend.Grant) (backend.Term, error) {
	term := backend.Term{Sent: backend.Began(ctx), TTL: g.TTL}
	version, err := d.exec(ctx, d.renewals, d.sql.renew,
		name(g.Key), g.Owner, roster.Micros(g.TTL), int64(g.Fence))
	if err != nil || version > 0 {
		return term, err
	}
	gs := []*backend.Grant{g}
	err = renewEntries(ctx, d.editHastily, g.Key, gs)[0]
	if errors.Is(err, errLocked) {
		err = renewEntries(ctx, d.editPatiently, g.Key, gs)[0]
	}
	return term, err
}

// Release implements backend.Driver. One statement frees a lock that has no waiters. It sends no
// NOTIFY, which makes all commits of the server wait for each other. Readers and permits are always
// in a roster.
func (d *driver) Release(ctx context.Context, g *backend.Grant) error {
	if g.Mode != backend.Exclusive {
		return d.remove(ctx, d.main, g)
	}
	if g.State == nil {
		version, err := d.frees.do(ctx, &g.Request)
		if err != nil || version > 0 {
			return err
		}
	}
	return d.remove(ctx, d.main, g)
}

// remove removes the grant or the entry of g.Owner from a row that may have a roster. The commit of
// an acquisition that was given up can wait for a standby for any time, so remove waits for it
// before it reports that there is nothing. Otherwise the core would take the release for done, and
// a commit that takes longer than Capabilities.Late would leave the lock taken for a whole TTL. If
// the wait lasts longer than statementTimeout, remove returns ErrUnavailable.
//
// If there is nothing, an earlier release of unknown outcome may have removed it. Its message did
// not include the waiters of this driver, and it woke them perhaps before its commit. So remove
// wakes them again.
func (d *driver) remove(ctx context.Context, l *lane, g *backend.Grant) error {
	err := d.removeSeen(ctx, l, g)
	if !errors.Is(err, backend.ErrNotHeld) {
		return err
	}
	if err := d.settleOne(ctx, g.Key); err != nil {
		return err
	}
	err = d.removeSeen(ctx, l, g)
	if errors.Is(err, backend.ErrNotHeld) {
		d.listener.wakeAll(g.Key)
	}
	return err
}

// removeSeen removes the grant or the entry of g.Owner, as the row shows it.
func (d *driver) removeSeen(ctx context.Context, l *lane, g *backend.Grant) error {
	return d.editAs(ctx, l, g.Key, &caller{
		leaves: g.Owner, mode: g.Mode,
		alter: func(entries *roster.Roster, _ uint64, _ int64) error {
			return entries.Remove(g.Owner)
		},
	})
}

// settleOne settles one key. Of several of one key only one has a slot, because the row can be
// locked for long.
func (d *driver) settleOne(ctx context.Context, key string) error {
	leave, err := d.main.gates.enter(ctx, key)
	if err != nil {
		return unsent(err)
	}
	defer leave()
	return d.settle(ctx, key)
}

// settle waits until no row of keys has a change that is not committed. A key without a row gets a
// free row. It waits for statementTimeout at most, and then returns ErrUnavailable. A statement
// that reaches the server later is not waited for: for such statements there is Capabilities.Late.
func (d *driver) settle(ctx context.Context, keys ...string) error {
	return d.run(ctx, d.sql.settle, names(keys), int64(backend.FenceEpoch))
}

// Capabilities implements backend.Driver.
func (d *driver) Capabilities() backend.Capabilities {
	fencing := backend.FenceDurable
	if !d.durable {
		fencing = backend.FenceVolatile
	}
	return backend.Capabilities{
		Modes:   backend.Exclusive | backend.Shared | backend.Permit,
		Fair:    backend.FairAlways,
		Fencing: fencing,
		Inspect: true, List: true, Break: true, Move: true, Notify: !d.pooled,
		MinTTL: minTTL,
		Late:   late,
	}
}

// Close implements backend.Driver. It blocks for about two seconds at most: for the connection that
// listens, and then closeTimeout for the statements under way. After that it ends the sockets of a
// pool that it owns. The statements on a pool of the caller go on, at most until their limits. No
// other request gets a connection, because d.life has ended.
func (d *driver) Close() error {
	d.sweeper.close()
	d.listener.close()
	d.end()
	if !d.owned {
		d.drain()
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

// drain waits for requests that were given up, for a moment, and lets no other begin. hasty has the
// slots of main.
func (d *driver) drain() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	for _, l := range []*lane{d.main, d.renewals, d.patient} {
		l.drain(ctx)
	}
}

// exec runs a statement that returns a number of the row that it has changed. Without such a row
// exec returns 0.
func (d *driver) exec(
	ctx context.Context, l *lane, sql string, args ...any,
) (int64, error) {
	return call(ctx, d, l, func(ctx context.Context, conn *pgx.Conn) (int64, error) {
		return numberOf(ctx, conn, sql, args...)
	})
}

// execAll runs a statement about n rows. It returns a number for each of them, which is 0 unless
// the statement has changed the row.
func (d *driver) execAll(
	ctx context.Context, l *lane, n int, sql string, args ...any,
) ([]int64, error) {
	return call(ctx, d, l, func(ctx context.Context, conn *pgx.Conn) ([]int64, error) {
		return numbersOf(ctx, conn, n, sql, args...)
	})
}

// run runs a statement without a result, in the lane of all requests but renewals. It returns the
// errors of call.
func (d *driver) run(ctx context.Context, sql string, args ...any) error {
	_, err := call(ctx, d, d.main, func(ctx context.Context, conn *pgx.Conn) (struct{}, error) {
		_, err := conn.Exec(ctx, sql, args...)
		return struct{}{}, err
	})
	return err
}

// read reads a row.
func (d *driver) read(ctx context.Context, l *lane, key string) (*row, error) {
	return call(ctx, d, l, func(ctx context.Context, conn *pgx.Conn) (*row, error) {
		r := &row{sent: time.Now()}
		err := r.scan(conn.QueryRow(ctx, d.sql.read, name(key)))
		return r, err
	})
}
