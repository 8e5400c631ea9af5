package mysqlbackend

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/roster"
	"github.com/dlock-go/dlock/internal/background"
)

const (
	// minTTL leaves room for three renewals, each with a commit of some milliseconds, and for the
	// core's margin of 10 ms and 1 %.
	minTTL = 100 * time.Millisecond
	// timerSlack is how much longer than its setting the server lets a statement wait for a row. It
	// checks once a second which statements have waited for too long, and later on a busy machine.
	timerSlack = 2 * time.Second
	// reserve is how long a released lock is kept for the first waiter. It is ample for a wake-up
	// and the way back, and all that is lost if that waiter has died.
	reserve = 50 * time.Millisecond
	// busyFlag is set in the insert id of a refused acquisition; fences stay far below. rosterFlag
	// is set, too, if the row has a roster.
	busyFlag, rosterFlag = 1 << 62, 1 << 61
)

// driver implements backend.Driver. All fields are set by newDriver and do not change.
type driver struct {
	pools        *pools
	opts         Options
	text         *statements
	caps         backend.Capabilities
	keys         keys
	acquisitions *acquisitions
	queue        *queue
	changes      *changes
	turns        *turns
	maxRoster    int           // bytes
	maxNames     int           // bytes of the names in a statement; see chunks
	bell         string        // a random name of the driver, "" if it polls; see turns.go
	sweeping     atomic.Bool   // a sweep is under way
	rowWaiters   chan struct{} // has a value for each connection that waits for locked rows

	background background.Group // work that no caller waits for
	ctx        context.Context  // of the background work; ends when Close begins
	cancel     context.CancelFunc
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

// newDriver makes a driver and probes the server. After an error the driver that it returns must
// be closed, and nothing else.
func newDriver(ctx context.Context, p *pools, opts Options) (*driver, error) {
	d := &driver{
		pools: p, opts: opts, text: newStatements(opts.Table),
		acquisitions: newAcquisitions(), changes: newChanges(), turns: newTurns(),
		bell: rand.Text(), rowWaiters: make(chan struct{}, maxRowWaiters),
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	s, err := d.probe(ctx)
	d.keys = newKeys(&s, opts.Table)
	d.queue = newQueue(p, &s)
	d.maxRoster = int(min(maxRoster, s.maxPacket/4))
	d.maxNames = int(min(s.maxPacket/2, math.MaxInt32))
	d.caps = backend.Capabilities{
		Modes:   backend.Exclusive,
		Fencing: backend.FenceDurable,
		Inspect: true, List: true, Break: true, Move: s.table.roster,
		Notify: opts.Notify == NotifyLock && p.waitConns > 0,
		MinTTL: minTTL,
		// The client library only closes the socket of a statement that was given up. The server
		// goes on waiting for the row. A statement with the changes of several callers may be sent
		// up to abandonAfter later.
		Late: time.Duration(s.lockWait)*time.Second + timerSlack + abandonAfter,
	}
	if !d.caps.Notify {
		d.bell = "" // it has no sleep that other drivers could end
	}
	if s.table.roster {
		d.caps.Modes |= backend.Shared | backend.Permit
		d.caps.Fair = backend.FairOptional
	}
	if !s.isDurable {
		d.caps.Fencing = backend.FenceVolatile
	}
	return d, err
}

// Acquire implements backend.Driver. For a writer it is one statement, which inserts or updates the
// row. Readers, permits, writers among readers, and writers with Fair that wait enter the roster of
// the row. A repetition under the same owner returns the same grant with a new term, which counts
// from before the statement was sent.
func (d *driver) Acquire(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
	if d.caps.Modes&req.Mode == 0 {
		return nil, d.unsupported("mode " + req.Mode.String())
	}
	if err := d.keys.check(req.Key); err != nil {
		return nil, err
	}
	if req.Mode != backend.Exclusive {
		return d.enter(ctx, req)
	}
	micros := ceilMicros(req.TTL)
	args := acquireArgs(req, micros, d.acquisitions.isFirst(req.Owner))
	sent := time.Now()
	out, err := exec(ctx, d.pools.main.of(req.Key), d.text.acquire, args...)
	switch {
	case err != nil:
		return nil, err
	case out.id >= busyFlag|rosterFlag, out.id >= busyFlag && isOrdered(req):
		return d.enter(ctx, req)
	case out.id >= busyFlag:
		return nil, d.busy(req, time.Duration(out.id-busyFlag)*time.Microsecond)
	case out.id <= 0 || out.id >= backend.MaxFence:
		return nil, fmt.Errorf("the fence is %d", out.id) // acquire.sql returns no such value
	}
	d.passSignalLater(req.Owner)
	d.sweepSometimes()
	return &backend.Grant{
		Request: *req, Term: termOf(sent, micros), Fence: uint64(out.id),
	}, nil
}

// isOrdered reports whether a writer that is refused waits in the roster, which has the order of
// arrival, and not in the queue of the connections. A roster costs two statements to enter and two
// to leave.
func isOrdered(req *backend.Request) bool { return req.Fair && req.Queue }

// busy returns the answer to a request that was refused. left is the time that the holder has left.
// A request that would wait is admitted. The answer says that it is queued, so the core releases it
// when it gives up, and Release then removes what Wait may have left.
func (d *driver) busy(req *backend.Request, left time.Duration) *backend.Busy {
	b := &backend.Busy{RetryAfter: left, Queued: req.Queue && d.caps.Notify}
	if b.Queued {
		d.acquisitions.admit(req.Owner)
	}
	return b
}

// unsupported returns the error for what needs a roster, which only the table may lack.
func (d *driver) unsupported(what string) error {
	return fmt.Errorf("%w: %s: the table has no column for readers and permits; add it with\n%s",
		backend.ErrUnsupported, what, addRoster(d.opts.Table))
}

// Renew implements backend.Driver. A writer whose row has become a roster is found there. It
// returns ErrLost only if neither the row nor its roster has the grant.
func (d *driver) Renew(ctx context.Context, g *backend.Grant) (backend.Term, error) {
	return d.renewOn(ctx, d.pools.control.of(g.Key), g)
}

// renewOn is Renew on q. The capabilities do not matter: the column for rosters may have been added
// since the driver was opened.
func (d *driver) renewOn(
	ctx context.Context, q querier, g *backend.Grant,
) (backend.Term, error) {
	if isPlain(g) {
		term, err := d.renew(ctx, q, g)
		if !errors.Is(err, backend.ErrLost) {
			return term, err
		}
	}
	r := newRenewals([]*backend.Grant{g})
	_ = d.renewEntries(ctx, q, false, r, []int{0})
	return r.answers[0].Term, r.answers[0].Err
}

// renew renews g as the owner of its row on q. The insert id shows the success, because the number
// of changed rows is 0 if the term is already as long.
func (d *driver) renew(ctx context.Context, q querier, g *backend.Grant) (backend.Term, error) {
	micros := ceilMicros(g.TTL)
	sent := time.Now()
	out, err := exec(ctx, q, d.text.renew,
		micros, []byte(g.Key), []byte(g.Owner), int64(g.Fence), int64(g.Fence))
	switch {
	case err != nil:
		return backend.Term{}, err
	case out.id == 0:
		return backend.Term{}, backend.ErrLost
	}
	return termOf(sent, micros), nil
}

// termOf returns a term in µs. The server counts from the beginning of the statement, which is
// after sent, so the proof is on the safe side.
func termOf(sent time.Time, micros int64) backend.Term {
	return backend.Term{Sent: sent, TTL: time.Duration(micros) * time.Microsecond}
}

// Release implements backend.Driver. It returns nil without a grant if there was a queue entry:
// such an entry is the acquisition in the registry, with its connection. A holder gives its signal
// away before it frees the row, or in the same statement. Otherwise the row would be kept for the
// connection of the former holder.
func (d *driver) Release(ctx context.Context, g *backend.Grant) error {
	a := d.acquisitions.forget(g.Owner)
	switch a.state {
	case first:
		d.giveBackLater(a.conn)
	case holding:
		if isPlain(g) {
			return d.handOff(ctx, a.conn, g)
		}
		d.queue.giveBack(ctx, a.conn) // or the lock would be kept for this connection
	case passing:
		awaitPassed(ctx, a.passed)
	}
	queued := a.state == waiting || a.state == first
	err := d.free(ctx, g)
	if queued && errors.Is(err, backend.ErrNotHeld) {
		return nil
	}
	return err
}

// free removes a grant from its row or its roster, or the entry of a waiter from the roster. A
// plain grant may stand in the roster, because a reader that waits turns the row into one.
func (d *driver) free(ctx context.Context, g *backend.Grant) error {
	if isPlain(g) {
		err := d.remove(ctx, d.text.release, g.Key, []byte(g.Owner))
		if !errors.Is(err, backend.ErrNotHeld) {
			return err
		}
	}
	return d.leave(ctx, g.Key, g.Owner, func(r *roster.Roster) error { return r.Remove(g.Owner) })
}

// handOff releases g by the connection that has the signal of its key, so that the same statement
// gives the signal to the next waiter.
//
// A KILL QUERY that was meant for the end of this connection's wait may hit the statement. MariaDB
// then may answer as if there were nothing to release. So any answer but a success is checked by
// another connection. If the statement failed otherwise, its outcome is unknown.
func (d *driver) handOff(ctx context.Context, w *waitConn, g *backend.Grant) error {
	out, err := exec(ctx, w.conn, d.text.handOff,
		w.signal, w.signal, reserve.Microseconds(), []byte(g.Key), []byte(g.Owner))
	if err == nil && out.changed == 1 {
		w.signal = "" // the next waiter has it
		d.queue.giveBack(ctx, w)
		return nil
	}
	d.queue.discard(w)
	if err != nil && !hasNumber(err, errInterrupted) {
		return err
	}
	again := d.free(ctx, g)
	if err != nil && errors.Is(again, backend.ErrNotHeld) {
		return err // the interrupted statement may have been executed
	}
	return again
}

// remove frees a lock by text, which is release.sql or break.sql, and wakes its first waiter.
// owner has the last parameters of the statement. It returns ErrNotHeld if no row was changed.
//
// On MariaDB it wakes no waiter; see pollUntilFree.
func (d *driver) remove(ctx context.Context, text, key string, owner ...any) error {
	args := append([]any{d.keys.signal(key), reserve.Microseconds(), []byte(key)}, owner...)
	out, err := exec(ctx, d.pools.control.of(key), text, args...)
	switch {
	case err != nil:
		return err
	case out.changed == 0:
		return backend.ErrNotHeld
	}
	d.wakeLater(out)
	return nil
}

// wakeLater wakes the first waiter, whose connection a statement has returned, in the background.
// The caller of the release does not wait for it. A driver with notify=poll wakes the waiters of
// other drivers, too, because the lock is kept for them. Behind a proxy, and on MariaDB, it does
// not.
func (d *driver) wakeLater(out outcome) {
	if out.id > 0 && !d.queue.polls {
		d.background.Go(func() {
			ctx, cancel := d.boundWake()
			defer cancel()
			d.wake(ctx, out.id)
		})
	}
}

// boundWake returns a context for waking a waiter. A process may close its driver just after a
// release, so Close waits for the wake-up, and does not end it.
func (d *driver) boundWake() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), min(d.opts.Timeout, time.Second))
}

// wake ends the sleep of a connection. It has no effect if the connection has its answer already,
// or belongs to another user. Then the sleep ends by itself after maxSleep.
func (d *driver) wake(ctx context.Context, connection int64) {
	_, _ = exec(ctx, d.pools.control, fmt.Sprintf("KILL QUERY %d", connection))
}

// Capabilities implements backend.Driver.
func (d *driver) Capabilities() backend.Capabilities { return d.caps }

// Close implements backend.Driver. The background work has ended before the connections of the
// registry are closed, so each of them is closed once.
func (d *driver) Close() error {
	d.cancel()
	d.background.Close()
	for _, w := range d.acquisitions.forgetAll() {
		d.queue.discard(w)
	}
	return d.pools.close()
}

// inBackground runs fn without a caller that waits for it. The context of fn ends after
// Options.Timeout, and when Close begins. Nothing is begun once Close has begun.
func (d *driver) inBackground(fn func(context.Context)) {
	d.background.Go(func() {
		ctx, cancel := d.boundBackground()
		defer cancel()
		fn(ctx)
	})
}

// giveBackLater returns the connection of a waiter in the background.
func (d *driver) giveBackLater(w *waitConn) {
	d.inBackground(func(ctx context.Context) { d.queue.giveBack(ctx, w) })
}

// boundBackground returns a context for one request in the background.
func (d *driver) boundBackground() (context.Context, context.CancelFunc) {
	return context.WithTimeout(d.ctx, d.opts.Timeout)
}
