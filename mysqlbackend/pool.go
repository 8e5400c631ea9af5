package mysqlbackend

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
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
	// maxWaitConns limits the connections of a driver that wait; further waiters poll.
	maxWaitConns = 16
	// idleTime and lifetime end connections before a proxy or wait_timeout ends them. They also end
	// connections to a server whose host name has moved to another one. If a firewall has forgotten
	// the connections of a client, a renewal has no time to try one after the other.
	idleTime, lifetime = 10 * time.Second, 10 * time.Minute
)

// pools are the connections of a driver. There are several so that no number of acquirers, waiters
// and releases can keep a renewal from a connection. With a lent database all are the same.
type pools struct {
	main      *pool // acquires, reads, sweeps
	control   *pool // releases, wakes, renews locked rows
	renewals  *pool // renews; it is control with reserved connections
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
		return p.control, func() {}, nil // connSettings has the limit
	}
	conn, err := p.control.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	discard = func() { discardConn(conn) }
	if _, err := conn.ExecContext(ctx, "SET SESSION innodb_lock_wait_timeout = 1"); err != nil {
		discard()
		return nil, nil, err
	}
	return conn, discard, nil
}

// discardConn closes a connection instead of returning it to its pool. The server then ends what
// the connection has or waits for.
func discardConn(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn }) // makes the pool drop it
	_ = conn.Close()
}

// newPools makes the pools of a driver that is opened by URL. Waiting connections are patient.
func newPools(c, patient *connector) *pools {
	p := &pools{waitConns: maxWaitConns, owned: true}
	p.main = newPool(c, mainConns)
	p.control = newPool(c, controlConns)
	p.control.slots = make(chan struct{}, controlConns-reservedConns)
	p.control.prefer = p.main // one connection acquires and releases an uncontended lock
	renewals := *p.control
	renewals.extra = make(chan struct{}, reservedConns)
	p.renewals = &renewals
	p.waiting = newPool(patient, maxWaitConns)
	p.waiting.SetConnMaxIdleTime(maxIdle * time.Second / 2) // before the server closes it
	return p
}

// pool is a *sql.DB. In a driver that is opened by URL, a request takes a slot first, and then
// finds an idle connection or makes one. So database/sql never has to wait. It could give up such
// a wait only by the context's Done channel, which costs a timer for each request.
type pool struct {
	*sql.DB
	slots  chan struct{} // has a value for each slot in use; nil: the database is lent
	extra  chan struct{} // further slots, for when all of slots are in use; may be nil
	prefer *pool         // its free slots are used first; may be nil
}

// newPool makes a pool for at most size connections. It does not connect yet.
func newPool(c *connector, size int) *pool {
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	db.SetConnMaxIdleTime(idleTime)
	db.SetConnMaxLifetime(lifetime)
	return &pool{DB: db, slots: make(chan struct{}, size)}
}

// ExecContext is the method of the *sql.DB, with a slot.
func (p *pool) ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error) {
	if p.slots == nil {
		return p.DB.ExecContext(ctx, text, args...)
	}
	var slot slot
	if p.prefer != nil && ctx.Err() == nil {
		slot = p.prefer.tryTakeSlot()
	}
	if slot != nil {
		p = p.prefer
	} else {
		var err error
		if slot, err = p.takeSlot(ctx); err != nil {
			return nil, err
		}
	}
	defer slot.free()
	view, _ := backend.DeadlineOnly(ctx)
	return p.DB.ExecContext(view, text, args...)
}

// slot is where a request has a slot; nil: the database is lent.
type slot chan struct{}

// free ends the use of a slot.
func (s slot) free() {
	if s != nil {
		<-s
	}
}

// takeSlot waits for a slot until ctx ends. A query keeps its slot until its rows are read.
func (p *pool) takeSlot(ctx context.Context) (slot, error) {
	if err := ctx.Err(); err != nil || p.slots == nil {
		return nil, err
	}
	if s := p.tryTakeSlot(); s != nil {
		return s, nil
	}
	select {
	case p.slots <- struct{}{}:
		return p.slots, nil
	case p.extra <- struct{}{}:
		return p.extra, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
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
