package mysqlbackend

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"time"

	"github.com/dlock-go/dlock/backend"
)

const (
	// maxQueueing limits how long a waiter stands in the queue of a key before the core makes
	// another attempt.
	maxQueueing = 10 * time.Second
	// maxSleep limits how long the first waiter sleeps before the core makes another attempt. A
	// connection that was lost may also stay the first for so long.
	maxSleep = time.Second
	// maxIdle is for how many seconds a waiting connection may be idle before the server closes it.
	// A living waiter is idle for one Acquire, because waiting is a statement. The first waiter of
	// a host that has stopped or left the network is idle for ever. Until the server closes its
	// connection it keeps the signal, and each hand-off takes up to 10 s. Measured on both servers:
	// wait_timeout begins with the answer to a statement.
	maxIdle = 2
	// maxKeep is how long a holder that has waited keeps the signal. A release within that time
	// gives the signal away itself, and a later one has to wake the first waiter. The signal also
	// takes one of the connections that wait.
	maxKeep = 20 * time.Millisecond
	// endMargin is how long before the end of its context a wait ends by itself: a statement that
	// is interrupted costs its connection.
	endMargin = 20 * time.Millisecond
	// minPoll and maxPoll are the pauses of waiters without a connection.
	minPoll, maxPoll = 5 * time.Millisecond, 250 * time.Millisecond
	// minRowPoll and maxRowPoll are the pauses of the first waiter on MariaDB, each twice as long
	// as the last. They are well below reserve, because the lock is kept for no longer.
	minRowPoll, maxRowPoll = time.Millisecond, reserve / 2
)

// Wait implements backend.Waiter. A waiter in a roster waits for its turn there. Any other waiter
// either advances in the queue until its connection is the first, or, as the first, waits until the
// lock may be free. A waiter without a connection pauses and lets the core poll.
//
// It never returns a grant. After nil, nil the core makes another attempt, which is the only way to
// the lock. After an error in the queue of a key, the connection is closed, and the next Wait
// begins at the end of that queue.
func (d *driver) Wait(
	ctx context.Context, req *backend.Request, b *backend.Busy,
) (*backend.Grant, error) {
	bound := maxQueueing
	if deadline, ok := ctx.Deadline(); ok {
		bound = min(bound, time.Until(deadline)-endMargin)
	}
	if in, ok := b.State.(inRoster); ok {
		return nil, d.awaitTurn(ctx, req, in, bound)
	}
	if !d.caps.Notify || bound < endMargin {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	w, err := d.connectWaiter(ctx, req.Owner)
	if err != nil {
		return nil, interpretError(ctx, err)
	}
	if w == nil {
		return nil, pause(ctx, minPoll+rand.N(maxPoll-minPoll))
	}
	if err := d.await(ctx, w, req.Key, bound); err != nil {
		d.queue.discard(w)
		return nil, err
	}
	if w.signal == "" {
		d.queue.giveBack(ctx, w)
	} else {
		d.acquisitions.keep(req.Owner, w)
	}
	return nil, nil
}

// connectWaiter returns the connection that owner has kept, or a new one. It returns nil if all
// connections for waiters are in use.
func (d *driver) connectWaiter(ctx context.Context, owner string) (*waitConn, error) {
	if w := d.acquisitions.take(owner); w != nil {
		return w, nil
	}
	return d.queue.connect(ctx)
}

// pause blocks for t, or until ctx ends. It returns the error of ctx.
func pause(ctx context.Context, t time.Duration) error {
	timer := time.NewTimer(t)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// await advances w in the queue or, if it is the first, sleeps until the lock may be free. A new
// first waiter returns at once, for an attempt before its first sleep: the previous first waiter
// has just passed the signal on, so the lock may be free already.
func (d *driver) await(
	ctx context.Context, w *waitConn, key string, bound time.Duration,
) error {
	if w.signal == "" {
		return d.queue.awaitSignal(ctx, w, d.keys.signal(key), bound)
	}
	if d.queue.polls {
		return d.pollUntilFree(ctx, w.conn, key, bound)
	}
	micros := min(bound, maxSleep).Microseconds()
	_, err := query(ctx, w.conn, scanWait, d.text.sleep, max(micros, 0), []byte(key))
	if hasNumber(err, errInterrupted) {
		return nil // woken
	}
	return err
}

// pollUntilFree reads the row until the lock may be free. The first waiter on MariaDB does this
// instead of a sleep in the server, where no SLEEP ends without a risk: all SLEEPs of the server
// share one mutex.
//
// A KILL QUERY may find this mutex taken. It then keeps a mutex of the connection that it ends, and
// tries again every 50 ms, for two seconds. That connection wakes up with the first mutex and waits
// for the second. (The stacks show THD::abort_current_cond_wait and Interruptible_wait::wait.) All
// other connections that sleep or kill wait for it. Measured on MariaDB 11.8.9, with two locks and
// six drivers on a busy machine: one of 150 hand-offs took 200 ms or more, and the KILL QUERY up to
// 2.1 s.
func (d *driver) pollUntilFree(
	ctx context.Context, q querier, key string, bound time.Duration,
) error {
	end := time.Now().Add(bound)
	for p := minRowPoll; ; p = min(2*p, maxRowPoll) {
		held, err := query(ctx, q, scanWait, d.text.held, []byte(key))
		left := time.Until(end)
		switch {
		case hasNumber(err, errInterrupted): // by a process of an earlier version
			return nil
		case err != nil:
			return err
		case len(held) != 1 || held[0].Int64 == 0 || left <= 0:
			return nil
		}
		if err := pause(ctx, min(p, left)); err != nil {
			return err
		}
	}
}

// scanNullable reads a row of one number.
func scanNullable(rows *sql.Rows) (n sql.NullInt64, err error) { return n, rows.Scan(&n) }

// scanWait reads a row of one number and is_read_only. It returns errReadOnly for a read-only
// server, whose locks and queues are not those of the writer.
func scanWait(rows *sql.Rows) (n sql.NullInt64, err error) {
	var isReadOnly bool
	err = rows.Scan(&n, &isReadOnly)
	if err == nil && isReadOnly {
		err = errReadOnly
	}
	return n, err
}

// passSignalLater is called after a grant. If owner has waited and holds the signal, the background
// gives the signal to the next waiter after maxKeep, unless the lock is released before.
func (d *driver) passSignalLater(owner string) {
	if !d.acquisitions.hold(owner) {
		return
	}
	d.background.Go(func() {
		if pause(d.ctx, maxKeep) == nil { // otherwise Close discards the connection
			d.passSignal(owner)
		}
	})
}

// passSignal gives the signal of a holder to the next waiter, if owner has it. The state passing
// keeps a concurrent Release from the connection: it waits for passed instead.
func (d *driver) passSignal(owner string) {
	a := d.acquisitions.pass(owner)
	if a == nil {
		return
	}
	ctx, cancel := d.boundBackground()
	defer cancel()
	d.queue.giveBack(ctx, a.conn)
	close(a.passed)
	d.acquisitions.endPassing(owner, a)
}

// awaitPassed waits until the signal has been given away. Otherwise a release would keep the lock
// for the connection of its own holder. It waits no longer than the lock would be kept.
func awaitPassed(ctx context.Context, passed <-chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, reserve)
	defer cancel()
	select {
	case <-passed:
	case <-ctx.Done():
	}
}

// queue is this driver's part of the queues of all keys. The server orders the waiters of a key:
// each waits by GET_LOCK for the same user-level lock, the signal. The connection that has the
// signal is the first of the queue.
type queue struct {
	pool         *pool
	hasFractions bool          // GET_LOCK accepts fractions of a second
	polls        bool          // the first waiter polls the row: no KILL QUERY wakes it safely
	lent         bool          // the application also uses the connections
	free         chan struct{} // has a value for each further connection that may wait
}

// newQueue returns the queue of a driver. s may be incomplete if the driver is only to be closed.
func newQueue(p *pools, s *server) *queue {
	q := &queue{
		pool: p.waiting, hasFractions: s.isMariaDB(), lent: !p.owned,
		polls: s.isMariaDB() || s.isProxied,
		free:  make(chan struct{}, p.waitConns),
	}
	for range p.waitConns {
		q.free <- struct{}{}
	}
	return q
}

// waitConn is a connection that waits in the queue of one key. It counts against maxWaitConns until
// it is given back or discarded, once. It is used by one goroutine at a time.
type waitConn struct {
	conn   *sql.Conn
	signal string // the signal that it has as the first of the queue, else ""
}

// connect returns a new connection for a waiter, or nil if there are maxWaitConns already. It does
// not wait until one of them is free, because the waiter can poll.
func (q *queue) connect(ctx context.Context) (*waitConn, error) {
	select {
	case <-q.free:
	default:
		return nil, nil
	}
	conn, err := q.pool.Conn(ctx)
	if err != nil {
		q.free <- struct{}{}
		return nil, err
	}
	w := &waitConn{conn: conn}
	if q.lent { // other connections have it from their beginning
		if _, err := exec(ctx, conn, "SET SESSION wait_timeout = "+waitTimeout); err != nil {
			q.discard(w)
			return nil, err
		}
	}
	return w, nil
}

// awaitSignal waits until w is the first of the queue and has the signal, or until bound is over. A
// timeout and the signal can come together. So it then releases the signal, whether the connection
// has it or not, and the next Wait begins at the end of the queue.
func (q *queue) awaitSignal(
	ctx context.Context, w *waitConn, signal string, bound time.Duration,
) error {
	ms := max(1, bound.Milliseconds())
	seconds := float64(ms) / 1000
	if !q.hasFractions {
		seconds = float64((ms + 999) / 1000)
	}
	got, err := query(ctx, w.conn, scanWait, withMillis(ms), signal, seconds)
	switch {
	case err != nil && !hasNumber(err, errTimedOut, errInterrupted):
		return err
	case err != nil || len(got) != 1 || !got[0].Valid: // it may have got it at the same moment
		_, err = query(ctx, w.conn, scanWait, releaseSignalSQL, signal)
		return err
	case got[0].Int64 == 1:
		w.signal = signal
	}
	return nil
}

// giveBack passes the signal of w to the next waiter, and returns the connection to the pool. It
// discards a connection that was lost meanwhile. It also discards the connection of a lent
// database: a KILL QUERY may be on its way to it, and would hit a statement of the application.
func (q *queue) giveBack(ctx context.Context, w *waitConn) {
	if q.lent || w.signal != "" && !releaseSignal(ctx, w) {
		q.discard(w)
		return
	}
	_ = w.conn.Close()
	q.free <- struct{}{}
}

// releaseSignalSQL gives a signal away. It returns 1, unless the connection did not have it, and
// whether the server is read-only.
const releaseSignalSQL = "SELECT RELEASE_LOCK(?), " +
	"CONCAT(@@global.read_only) NOT IN ('0', 'OFF') AS is_read_only"

// releaseSignal gives the signal of w to the next waiter. It returns false if w did not have it, or
// if the connection is lost.
func releaseSignal(ctx context.Context, w *waitConn) (ok bool) {
	got, err := query(ctx, w.conn, scanWait, releaseSignalSQL, w.signal)
	return err == nil && len(got) == 1 && got[0].Int64 == 1
}

// discard closes the connection, and so ends its wait and its signal on the server. It blocks for
// discardTime at most.
func (q *queue) discard(w *waitConn) {
	discardConn(w.conn)
	q.free <- struct{}{}
}
