package mysqlbackend

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

const (
	// maxPlaces is how many connections of a driver wait; others poll.
	maxPlaces = 16
	// maxQueueing is how long one waits in the queue of a name before looking at the lock again.
	maxQueueing = 10 * time.Second
	// maxSleep is how long the first of a queue sleeps before looking at the lock again; so long
	// also may a connection that was lost stay the first.
	maxSleep = time.Second
	// maxIdle is for how many seconds a waiting connection may be idle before the server closes it. A living
	// waiter is idle for one Acquire, since waiting is a statement. The first waiter of a host that has stopped or
	// left the network is idle for ever, and until the server closes its connection it keeps the signal: each
	// hand-off then took up to 10 s. Measured on both servers: wait_timeout begins with the answer to a statement.
	maxIdle = 2
	// maxKeep is how long who has waited keeps the signal while it holds: a release within that time hands over
	// by the signal itself, and a later one has to wake the first who waits. It keeps a place as well.
	maxKeep = 20 * time.Millisecond
	// early is how much before the end of its context a wait ends by itself: a statement that is
	// interrupted costs its connection.
	early = 20 * time.Millisecond
	// leastPoll and mostPoll are the pauses of those for whom there is no place.
	leastPoll, mostPoll = 5 * time.Millisecond, 250 * time.Millisecond
	// leastLook and mostLook are the pauses of the first of a queue on MariaDB, each twice as long as the last. They
	// are well below reserve: the lock is kept for no longer.
	leastLook, mostLook = time.Millisecond, reserve / 2
)

// queue is this driver's share in the queues of all names: a place is a connection.
type queue struct {
	db       *pool
	space    string // database and table
	fraction bool   // the server knows fractions of a second
	looks    bool   // the first looks at the lock again and again, since the server does not wake it safely
	lent     bool   // others use the connections, too
	free     chan struct{}

	mu      sync.Mutex
	entries map[string]*place // by owner: who was refused and would wait; nil but for the first, who looks at the lock or holds it
}

// place is a connection that waits, or that is the first of those who do: it has the signal
// of the name. A place is used by one goroutine at a time.
type place struct {
	conn  *sql.Conn
	first string        // the signal that it has, or ""
	holds bool          // its owner has the lock by now, and hands it over with the signal
	left  chan struct{} // closed when passOn has given the signal away; nil before passOn does
}

func newQueue(conn connection, s *server, table string) *queue {
	q := &queue{
		db: conn.waiting, space: s.database + "\x00" + table + "\x00", fraction: s.mariaDB(), looks: s.mariaDB(), lent: !conn.owned,
		free: make(chan struct{}, conn.places), entries: make(map[string]*place),
	}
	for range conn.places {
		q.free <- struct{}{}
	}
	return q
}

// signal is the name of the user-level lock that the first waiter has. Such locks belong to the
// whole server, have at most 64 characters, and fold case here and there.
func (q *queue) signal(name string) string {
	sum := sha256.Sum256([]byte(q.space + name))
	return "dlock:" + hex.EncodeToString(sum[:16])
}

// Wait implements backend.Waiter.
func (d *lockDriver) Wait(ctx context.Context, req *backend.Request, _ *backend.Busy) (*backend.Grant, error) {
	bound := maxQueueing
	if deadline, ok := ctx.Deadline(); ok {
		bound = min(bound, time.Until(deadline)-early)
	}
	if !d.caps.Notify || bound < early {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	p, err := d.queue.enter(ctx, req.Owner)
	if err != nil {
		return nil, interpretError(ctx, err)
	}
	if p == nil {
		return nil, pause(ctx, leastPoll+rand.N(mostPoll-leastPoll))
	}
	if err := d.await(ctx, p, req.Key, bound); err != nil {
		d.queue.discard(p)
		return nil, err
	}
	if p.first == "" {
		d.queue.giveBack(ctx, p)
	} else {
		d.queue.keep(req.Owner, p)
	}
	return nil, nil
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// await queues, or as the first of the queue sleeps until the lock may be free. Who becomes the first looks
// at the lock before it sleeps: who was it before has just handed over.
func (d *lockDriver) await(ctx context.Context, p *place, name string, bound time.Duration) error {
	if p.first == "" {
		return d.queue.advance(ctx, p, d.queue.signal(name), bound)
	}
	if d.queue.looks {
		return d.lookUntilFree(ctx, p.conn, name, bound)
	}
	micros := min(bound, maxSleep).Microseconds()
	_, err := query(ctx, p.conn, scanNullable, d.text.sleep, max(micros, 0), []byte(name))
	if replied(err, errInterrupted) {
		return nil // woken
	}
	return err
}

// lookUntilFree looks at the lock until it may be free. On MariaDB the first does that and does not sleep in the server,
// since no SLEEP ends without a risk there: all of the server share one mutex. A KILL QUERY that finds it taken keeps a
// mutex of the connection that it ends, and tries again every 50 ms, for two seconds. That connection wakes up with the
// first mutex and waits for the second (in the stacks: THD::abort_current_cond_wait and Interruptible_wait::wait), and
// all others that sleep or kill wait for it. Measured on MariaDB 11.8.9, with two locks and six drivers on a busy
// machine: one of 150 hand-offs took 200 ms and more, and the KILL QUERY up to 2.1 s.
func (d *lockDriver) lookUntilFree(ctx context.Context, q querier, name string, bound time.Duration) error {
	end := time.Now().Add(bound)
	for p := leastLook; ; p = min(2*p, mostLook) {
		held, err := query(ctx, q, scanNullable, d.text.look, []byte(name))
		left := time.Until(end)
		switch {
		case replied(err, errInterrupted): // by a process of an earlier version
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

// advance waits to become the first of the queue, and takes the signal then.
func (q *queue) advance(ctx context.Context, p *place, signal string, bound time.Duration) error {
	ms := max(1, bound.Milliseconds())
	seconds := float64(ms) / 1000
	if !q.fraction {
		seconds = float64((ms + 999) / 1000)
	}
	got, err := query(ctx, p.conn, scanNullable, withMillis(ms), signal, seconds)
	switch {
	case err != nil && !replied(err, errTimedOut, errInterrupted):
		return err
	case err != nil || len(got) != 1 || !got[0].Valid: // it may have got it in the same instant
		_, err = query(ctx, p.conn, scanNullable, releaseSignal, signal)
		return err
	case got[0].Int64 == 1:
		p.first = signal
	}
	return nil
}

const releaseSignal = "SELECT RELEASE_LOCK(?)"

func scanNullable(rows *sql.Rows) (n sql.NullInt64, err error) { return n, rows.Scan(&n) }

// enlist makes an entry for owner.
func (q *queue) enlist(owner string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, ok := q.entries[owner]; !ok {
		q.entries[owner] = nil
	}
}

// isFirst tells whether owner is the first of those who wait.
func (q *queue) isFirst(owner string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.entries[owner]
	return p != nil && p.left == nil
}

// promote makes the entry of owner that of a holder, if it is the first in the queue, and else removes it. It
// reports whether a waiter has become a holder. The same owner can be granted the lock twice: a late request of
// its own was quicker.
func (q *queue) promote(owner string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.entries[owner]
	switch {
	case p == nil:
		delete(q.entries, owner)
		return false
	case p.holds:
		return false
	}
	p.holds = true
	return true
}

// strike removes the entry of owner, if there is one, and returns the place that it has kept.
func (q *queue) strike(owner string) (p *place, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p, ok = q.entries[owner]
	delete(q.entries, owner)
	return p, ok
}

func (q *queue) keep(owner string, p *place) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.entries[owner] = p
}

// enter returns the place that owner has kept, or a new one; nil if all are taken.
func (q *queue) enter(ctx context.Context, owner string) (*place, error) {
	if p := q.kept(owner); p != nil {
		return p, nil
	}
	select {
	case <-q.free:
	default:
		return nil, nil
	}
	conn, err := q.db.Conn(ctx)
	if err != nil {
		q.free <- struct{}{}
		return nil, err
	}
	p := &place{conn: conn}
	if q.lent { // the connections of a URL have it from the beginning
		if _, err := exec(ctx, conn, "SET SESSION wait_timeout = "+strconv.Itoa(maxIdle)); err != nil {
			q.discard(p)
			return nil, err
		}
	}
	return p, nil
}

func (q *queue) kept(owner string) *place {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.entries[owner]
	if p != nil {
		q.entries[owner] = nil
	}
	return p
}

// giveBack passes the signal to the next of the queue, and the connection to the pool. A connection that was lost
// meanwhile is discarded. So is one of a database that is lent: a KILL may be on its way to it, and would hit a
// statement of the application.
func (q *queue) giveBack(ctx context.Context, p *place) {
	if q.lent || p.first != "" && !q.pass(ctx, p) {
		q.discard(p)
		return
	}
	_ = p.conn.Close()
	q.free <- struct{}{}
}

// pass gives the signal to the next of the queue.
func (q *queue) pass(ctx context.Context, p *place) bool {
	got, err := query(ctx, p.conn, scanNullable, releaseSignal, p.first)
	return err == nil && len(got) == 1 && got[0].Int64 == 1
}

// discard ends the connection, and with it whatever it has or waits for.
func (q *queue) discard(p *place) {
	discardConn(p.conn)
	q.free <- struct{}{}
}

func discardConn(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // so that the pool forgets it
	_ = conn.Close()
}

// close ends all places. Nobody uses one any more.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, p := range q.entries {
		if p != nil {
			q.discard(p)
		}
	}
	clear(q.entries)
}

// passOn gives the signal of owner, who holds the lock now, to the next who waits, if the lock is not released within
// maxKeep.
func (d *lockDriver) passOn(owner string) {
	if !d.queue.promote(owner) {
		return
	}
	d.goBehind(func(ctx context.Context) {
		if pause(ctx, maxKeep) != nil { // Close ends all places
			return
		}
		if p := d.queue.leave(owner); p != nil {
			d.queue.giveBack(ctx, p)
			close(p.left)
			d.queue.strike(owner)
		}
	})
}

// leave marks the place of owner, if it still has one, as being given back.
func (q *queue) leave(owner string) *place {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.entries[owner]
	if p != nil {
		p.left = make(chan struct{})
	}
	return p
}

// awaitLeaving waits until passOn has given the signal away: a release before that would keep the lock for the
// connection of its own holder. It waits no longer than the lock would be kept.
func awaitLeaving(ctx context.Context, p *place) {
	ctx, cancel := context.WithTimeout(ctx, reserve)
	defer cancel()
	select {
	case <-p.left:
	case <-ctx.Done():
	}
}

// wake ends the sleep of a connection. If that has got its answer already, or its user is
// another one, this does nothing.
func (d *lockDriver) wake(ctx context.Context, connection int64) {
	_, _ = exec(ctx, d.conn.control, fmt.Sprintf("KILL QUERY %d", connection))
}
