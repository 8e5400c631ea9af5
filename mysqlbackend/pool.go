package mysqlbackend

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/backend"
)

const (
	// mainConns and controlConns are the sizes of the pools of a driver that is opened by URL. More
	// connections in one pool than processors in the server would only wait inside of the server.
	mainConns, controlConns = 8, 8
	// reservedConns of controlConns are for renewals that do not wait for rows. Otherwise releases
	// of locked rows could delay the renewals of all other locks until their leases end.
	reservedConns = 2
	// spareConns are further connections of the main pool. They serve requests that have waited for
	// a slot for spareAfter and need not wait for a row. Otherwise requests for locked rows could
	// take all slots, and delay the requests for all other rows.
	spareConns, spareAfter = 2, 50 * time.Millisecond
	// maxWaitConns limits the connections of a driver that wait; further waiters poll.
	maxWaitConns = 16
	// idleTime and lifetime end connections before a proxy or wait_timeout ends them. They also end
	// connections to a server whose host name has moved to another one. If a firewall has forgotten
	// the connections of a client, a renewal has no time to try one after the other.
	idleTime, lifetime = 10 * time.Second, 10 * time.Minute
	// discardTime limits the wait for the end of a connection.
	discardTime = time.Second
)

// pools are the connections of a driver. There are several so that no number of acquirers, waiters
// and releases can keep a renewal from a connection. With a lent database all are the same.
type pools struct {
	main      *pool // acquires, reads
	control   *pool // releases, wakes
	renewals  *pool // renews; it is control with reserved connections
	patient   *pool // renews locked rows, sweeps; it is control without spare connections
	waiting   *pool // waits
	waitConns int   // how many connections may wait at a time
	owned     bool  // Close closes them, and no other program part uses them
}

// close closes the pools, unless the database is lent.
func (p *pools) close() error {
	if !p.owned {
		return nil
	}
	return errors.Join(p.main.Close(), p.control.Close(), p.waiting.Close())
}

// rowWaiter returns a querier for statements that wait for a locked row. They wait for a second at
// most, also on the server after the client has given up. A connection of a lent database gets
// this limit and is closed by discard, because the application must not find the limit changed.
func (p *pools) rowWaiter(ctx context.Context) (q querier, discard func(), err error) {
	if p.owned {
		return p.patient, func() {}, nil // settings has the limit
	}
	conn, err := p.control.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	discard = func() { discardConn(conn) }
	if _, err := exec(ctx, conn, "SET SESSION innodb_lock_wait_timeout = 1"); err != nil {
		discard()
		return nil, nil, err
	}
	return conn, discard, nil
}

// discardConn closes a connection instead of returning it to its pool. The server then ends what
// the connection has or waits for. If a query of a lent database has panicked, database/sql never
// ends the use of the connection, and discardConn returns after discardTime.
func discardConn(conn *sql.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), discardTime)
	defer cancel()
	_, _ = backend.Call(ctx, func(context.Context) (none struct{}, err error) {
		_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn }) // makes the pool drop it
		return none, conn.Close()
	})
}

// newPools makes the pools of a driver that is opened by URL. Waiting connections are patient.
// locked is locked.sql.
func newPools(c, patient *connector, locked string) *pools {
	p := &pools{waitConns: maxWaitConns, owned: true}
	p.main = newPool(c, mainConns+spareConns)
	spare := &pool{DB: p.main.DB, slots: make(chan struct{}, spareConns), locked: locked}
	p.main.slots = make(chan struct{}, mainConns)
	p.control = newPool(c, controlConns)
	p.control.slots = make(chan struct{}, controlConns-reservedConns)
	p.control.prefer = p.main // one connection acquires and releases an uncontended lock
	renewals, patientOnes := *p.control, *p.control
	renewals.extra = make(chan struct{}, reservedConns)
	p.renewals, p.patient = &renewals, &patientOnes
	p.main.spare, p.control.spare = spare, spare
	p.waiting = newPool(patient, maxWaitConns)
	p.waiting.SetConnMaxIdleTime(maxIdle * time.Second / 2) // before the server closes it
	return p
}

// pool is a *sql.DB. In a driver that is opened by URL, a request takes a slot first, and then
// finds an idle connection or makes one. So database/sql rarely has to wait: while it closes a
// connection that has reached its lifetime, or after a panic of the client library, which leaves a
// connection in use. It could give up such a wait only by the context's Done channel, which costs
// a timer for each request.
type pool struct {
	*sql.DB
	slots  chan struct{} // has a value for each slot in use; nil: the database is lent
	extra  chan struct{} // further slots, for when all of slots are in use; may be nil
	prefer *pool         // its free slots are used first; may be nil
	spare  *pool         // its slots are for requests that wait for no row; may be nil
	locked string        // locked.sql, in a pool that is spare
}

// rowPool is a pool for requests that may wait for the row of a key. The key lets awaitSlot check
// whether the request would wait.
type rowPool struct {
	*pool
	key string
}

// of returns the pool for requests that may wait for the row of key. Requests that wait for no row
// use the pool itself.
func (p *pool) of(key string) querier { return rowPool{p, key} }

// newPool makes a pool for at most size connections. It does not connect yet.
func newPool(c *connector, size int) *pool {
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	db.SetConnMaxIdleTime(idleTime)
	db.SetConnMaxLifetime(lifetime)
	return &pool{DB: db, slots: make(chan struct{}, size)}
}

// Conn is the method of the *sql.DB.
func (p *pool) Conn(ctx context.Context) (_ *sql.Conn, err error) {
	defer rescue(&err, nil)
	return p.DB.Conn(ctx)
}

// slot is where a request has a slot; nil: the database is lent.
type slot chan struct{}

// free ends the use of a slot.
func (s slot) free() {
	if s != nil {
		<-s
	}
}

// slotFor takes a slot for a request on q, if q is a pool, and returns what makes the request. A
// query keeps its slot until its rows are read. Without a slot the request is not sent, so its
// error is ErrUnavailable.
func slotFor(ctx context.Context, q querier) (_ querier, s slot, err error) {
	switch p := q.(type) {
	case *pool:
		q, s, err = p.takeSlot(ctx, "")
	case rowPool:
		q, s, err = p.takeSlot(ctx, p.key)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	return q, s, nil
}

// takeSlot waits for a slot until ctx ends, and returns the connections for it. The request may
// wait for the row of key, unless key is "". A lent database has no slots: its own limit applies.
func (p *pool) takeSlot(ctx context.Context, key string) (querier, slot, error) {
	if err := ctx.Err(); err != nil || p.slots == nil {
		return p.DB, nil, err
	}
	if p.prefer != nil {
		if s := p.prefer.tryTakeSlot(); s != nil {
			return p.prefer.DB, s, nil
		}
	}
	if s := p.tryTakeSlot(); s != nil {
		return p.DB, s, nil
	}
	return p.awaitSlot(ctx, key)
}

// awaitSlot is takeSlot when no slot is free. From time to time it tries a slot of spare, which it
// keeps unless the row is locked or the connection fails.
func (p *pool) awaitSlot(ctx context.Context, key string) (querier, slot, error) {
	pause := spareAfter
	timer := time.NewTimer(pause)
	defer timer.Stop()
	var spare slot // nil during a pause
	for {
		select {
		case p.slots <- struct{}{}:
			return p.DB, p.slots, nil
		case p.extra <- struct{}{}:
			return p.DB, p.extra, nil
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-timer.C:
			if p.spare != nil {
				spare = p.spare.slots
			}
		case spare <- struct{}{}:
			if p.spare.isFree(ctx, key) {
				return p.spare.DB, spare, nil
			}
			spare.free()
			pause *= 2
			timer.Reset(pause)
			spare = nil
		}
	}
}

// isFree reports whether a connection answers that no statement has locked the row of key. No row
// has the key "". It leaves half of the time for another connection.
func (p *pool) isFree(ctx context.Context, key string) bool {
	if key == "" {
		return true
	}
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/2)
		defer cancel()
	}
	_, err := p.ExecContext(ctx, p.locked, []byte(key))
	return err == nil
}

// tryTakeSlot takes a slot if one is free, and otherwise returns nil.
func (p *pool) tryTakeSlot() slot {
	select {
	case p.slots <- struct{}{}:
		return p.slots
	default:
		return nil
	}
}
