package pgbackend

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dlock-go/dlock/backend"
)

// Each change of a roster writes the whole row, so the changes of one driver would make each other
// begin again. Therefore a lane makes one edition of a row at a time. The changes that arrive
// meanwhile are the next edition: they are read, stored and committed together.
//
// Several editions of one name can still be under way: in other lanes, in other processes, and an
// edition whose callers have all gone, while its last statement is not answered. None of them can
// undo the change of another edition, because a statement stores a roster only over the row that
// was read, and swap and insist depend on no earlier reading.

const (
	// maxSkips is how often an edition skips a locked row: for about 30 ms, longer than most
	// commits.
	maxSkips = 6
	// maxPause limits the pause after a conflict, to 2^7 ms.
	maxPause = 7
	// maxEdition limits the changes of an edition.
	maxEdition = 64
	// minGather and maxGather limit how long the next edition waits for callers that will soon
	// change the row again: half as long as the last edition took.
	minGather, maxGather = 250 * time.Microsecond, 2 * time.Millisecond
)

// errGone means that a statement was not sent, because one of its callers has gone. The edition
// then computes the statement again, without the changes of that caller. The error reaches no
// caller: an edition ends with it only if all of them have gone.
var errGone = errors.New("a caller has gone")

// editions are the editions of a lane. Lanes share none, so an edition that skips locked rows never
// waits behind an edition that waits for such a row. It is safe for concurrent use.
type editions struct {
	mu    sync.Mutex
	byKey map[string]*queue
}

// queue has the changes of one name. It exists while there are any. editions.mu guards its fields.
type queue struct {
	current  *edition
	waiting  []*caller     // for the next edition
	wanted   int           // for gather
	gathered chan struct{} // closed when so many changes wait; nil: no gather
}

// caller is a caller that changes a roster. It belongs to one edition, whose goroutine calls alter
// for each row that it reads, maybe several times. alter may run after the caller has gone, so what
// it writes may be read only after editAs has returned nil.
type caller struct {
	ctx    context.Context
	end    time.Time // of ctx; zero: it has no limit
	alter  change
	leaves string           // the change removes the entry of that owner, before all others
	mode   backend.Mode     // of the owner that leaves
	req    *backend.Request // the change requests the lock
	fence  uint64           // of the grant for req
	// isCrowded means that the grant has waiters, or other holders.
	isCrowded bool
	done      chan error // of one element: the result
	answer    error      // of the last call of alter

	// editions.mu guards the rest.
	edition *edition // nil: the change waits
	attempt *attempt // with the change; nil: none was sent
	left    bool     // the caller has gone
}

// edition is a set of changes of the roster of one name, which one statement stores. It has a
// goroutine, run, which alone uses served and contended. The goroutine ends soon after the last
// caller has gone: at once while it waits for a slot or pauses, and otherwise with its connection
// attempt or its statement, which have limits.
type edition struct {
	d        *driver
	lane     *lane
	key      string
	callers  []*caller
	served   []*caller     // of the last statement: the rest has gone
	deserted chan struct{} // closed when all callers have gone

	contended bool // the changes waited, or another client was faster
}

// isHasty reports whether the caller may leave soon. The statements then have only abandonAfter for
// its other callers.
func (m *caller) isHasty(now time.Time) bool {
	return !m.end.IsZero() && m.end.Sub(now) < abandonAfter
}

// edit changes the entries of a name, together with other callers: it reads the row and stores it
// unless another client has changed it meanwhile; then it begins again. So no row stays locked
// while the client is slow. An answer that changes nothing is about the row as it was read. In a
// lane that skips locked rows, edit returns errLocked if another statement keeps the row locked, or
// if other clients keep changing the row.
//
// If ctx ends, edit returns at once: with ErrUnavailable if no statement was sent for the change,
// and otherwise with the error of ctx. The outcome then counts as unknown even if only the reading
// of the row was sent. There is no limit for the number of conflicts: only ctx ends them in a lane
// that waits for rows.
func (d *driver) edit(ctx context.Context, l *lane, key string, alter change) error {
	return d.editAs(ctx, l, key, &caller{alter: alter})
}

// editAs makes the change of m, which must be new. It is edit for a change that swap can make, too.
func (d *driver) editAs(ctx context.Context, l *lane, key string, m *caller) error {
	if err := ctx.Err(); err != nil {
		return unsent(err)
	}
	m.ctx, m.done = ctx, make(chan error, 1)
	m.end, _ = ctx.Deadline()
	l.editions.enter(d, l, key, m)
	select {
	case err := <-m.done:
		if err == nil || ctx.Err() == nil {
			return err
		}
	case <-ctx.Done():
	}
	return l.editions.leave(d, l, key, m, ctx.Err())
}

// enter adds the change of m to the next edition of key.
func (s *editions) enter(d *driver, l *lane, key string, m *caller) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.byKey[key]
	if q == nil {
		if s.byKey == nil {
			s.byKey = make(map[string]*queue)
		}
		q = new(queue)
		s.byKey[key] = q
	}
	q.waiting = append(q.waiting, m)
	q.notify()
	if q.current == nil {
		s.next(d, l, key, q)
	}
}

// next begins the next edition of a name, or forgets the queue if nothing waits. The former edition
// may still be under way if its callers have gone; it then does not call next. s.mu must be held.
func (s *editions) next(d *driver, l *lane, key string, q *queue) {
	if len(q.waiting) == 0 {
		delete(s.byKey, key)
		return
	}
	e := &edition{
		d: d, lane: l, key: key, deserted: make(chan struct{}), contended: q.current != nil,
	}
	e.callers, q.waiting = choose(q.waiting, time.Now())
	for _, m := range e.callers {
		m.edition = e
	}
	q.current = e
	go e.run()
}

// choose returns the callers of the next edition, and the rest: callers that may leave soon have
// editions of their own. The caller that has waited longest is always chosen, so no caller starves.
func choose(waiting []*caller, now time.Time) (chosen, rest []*caller) {
	for _, m := range waiting {
		if len(chosen) < maxEdition && m.isHasty(now) == waiting[0].isHasty(now) {
			chosen = append(chosen, m)
		} else {
			rest = append(rest, m)
		}
	}
	slices.SortStableFunc(chosen, func(a, b *caller) int { return cmp.Compare(a.rank(), b.rank()) })
	return chosen, rest
}

// rank returns the order in an edition: a waiter may acquire what a holder frees.
func (m *caller) rank() int {
	if m.leaves != "" {
		return 0
	}
	return 1
}

// leave notes that the caller of m has gone, and returns its error. reason is the error of its
// context. A change that was not sent is never sent later. An edition without callers makes no
// other wait: the next edition begins at once, although a statement of the former may be under way
// for a moment.
func (s *editions) leave(d *driver, l *lane, key string, m *caller, reason error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.left = true
	q := s.byKey[key]
	if e := m.edition; e == nil {
		q.waiting = slices.DeleteFunc(q.waiting, func(o *caller) bool { return o == m })
	} else if !slices.ContainsFunc(e.callers, func(m *caller) bool { return !m.left }) {
		close(e.deserted)
		if q != nil && q.current == e {
			s.next(d, l, key, q)
		}
	}
	if m.attempt == nil {
		return unsent(reason)
	}
	m.attempt.abandon()
	return reason
}

// run makes e and answers its callers. A caller that was not served has an ended context, or a
// deadline that has passed, and returns by itself. run then begins the next edition, unless leave
// has done so.
func (e *edition) run() {
	began := time.Now()
	err := e.make()
	for _, m := range e.served {
		m.done <- cmp.Or(err, m.answer)
	}
	s := &e.lane.editions
	if n := 2 * e.granted(); n > 0 && e.contended { // each new holder leaves, and a waiter comes
		s.gather(e, n, min(max(time.Since(began)/2, minGather), maxGather))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.byKey[e.key]; q != nil && q.current == e {
		s.next(e.d, e.lane, e.key, q)
	}
}

// granted returns how many callers have become readers or have permits now.
func (e *edition) granted() (n int) {
	for _, m := range e.served {
		if m.req != nil && m.answer == nil && m.req.Mode != backend.Exclusive {
			n++
		}
	}
	return n
}

// gather blocks until n changes wait for the next edition after e, or bound is over. The callers of
// e have their answers by then, so only the next edition is delayed. Four clients of 16 goroutines
// that contend for 8 permits change the holders 2.5 times as often with it.
func (s *editions) gather(e *edition, n int, bound time.Duration) {
	s.mu.Lock()
	q := s.byKey[e.key]
	if q == nil || q.current != e {
		s.mu.Unlock()
		return
	}
	q.wanted, q.gathered = n, make(chan struct{})
	gathered := q.gathered
	q.notify()
	s.mu.Unlock()
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case <-gathered:
	case <-timer.C:
	}
}

// notify ends gather if enough changes wait. editions.mu must be held.
func (q *queue) notify() {
	if q.gathered != nil && len(q.waiting) >= q.wanted {
		close(q.gathered)
		q.gathered = nil
	}
}

// make makes e. Each change then has its answer. An error concerns all of them, and is not unknown
// if it wraps ErrUnavailable: make ends with the first statement whose outcome is unknown, so no
// earlier one can have stored a change.
func (e *edition) make() error {
	for conflicts := 0; ; conflicts++ {
		if done, err := e.swap(); done || err != nil {
			return err
		}
		r, err := e.read()
		if err != nil {
			return err
		}
		done, err := e.change(r)
		switch {
		case done || err != nil:
			return err
		case e.lane.skips && conflicts == maxSkips:
			return errLocked
		case !e.lane.skips && conflicts%maxOvertaken == maxOvertaken-1 && r.isSwappable():
			if err := e.insist(); err != nil {
				return err
			}
		}
		select {
		case <-time.After(pauseAfter(conflicts)):
		case <-e.deserted:
			return errGone
		}
		e.contended = true
	}
}

// pauseAfter returns the pause after a conflict. Pauses grow, and are random, so that the clients
// do not meet again.
func pauseAfter(conflicts int) time.Duration {
	return rand.N(time.Millisecond << min(conflicts, maxPause))
}

// read reads the row. The callers of e have begun before, so an answer that changes nothing is
// about the row as it was during the request.
func (e *edition) read() (*row, error) {
	for {
		e.served = e.present()
		r, err := callTogether(e, func(ctx context.Context, conn *pgx.Conn) (*row, error) {
			r := new(row)
			return r, r.scan(conn.QueryRow(ctx, e.d.sql.read, name(e.key)))
		})
		if !errors.Is(err, errGone) || len(e.served) == 0 {
			return r, err
		}
	}
}

// change makes the changes in r, and returns false if another client was faster. It wakes the
// waiters of its own driver after the commit: a waiter that came earlier would read the old row. If
// the outcome is unknown, it wakes them, too, because the change may be stored.
func (e *edition) change(r *row) (done bool, err error) {
	for {
		e.served = e.present()
		next, woken, err := r.edited(e.served)
		if err != nil || next == nil {
			return true, err
		}
		near, far := e.d.listener.split(woken)
		stored, err := e.store(next, far)
		if errors.Is(err, errGone) {
			continue
		}
		if stored || err != nil {
			e.d.listener.wake(near...)
		}
		return stored, err
	}
}

// store writes a row, unless it has changed since it was read, and wakes the waiters with these
// owners. They also poll, so a server that refuses the messages delays them, but not the change.
func (e *edition) store(r *row, woken []string) (bool, error) {
	if !r.found {
		version, err := e.exec(e.d.sql.insert, r.args(e.key)...)
		return version > 0, err
	}
	args, sql := r.updateArgs(e.key), &e.d.sql
	update, updateWaking := sql.update, sql.updateWaking
	switch {
	case e.lane.skips:
		update, updateWaking = sql.updateSkipping, sql.updateWakingSkipping
	case e.lane.bounded:
		update, updateWaking = sql.updateBounded, sql.updateWakingBounded
		args = append(args, rowWait(e.served, time.Now()))
	}
	if len(woken) > 0 {
		version, err := e.exec(updateWaking, append(args, woken)...)
		if !hasCode(err, codeNoPrivilege, codeQueueFull) {
			return version > 0, err
		}
	}
	if r.fence == r.read().fence && e.isOnlyOfWaiters() && !e.lane.skips && !e.lane.bounded {
		update = sql.updateFast
	}
	version, err := e.exec(update, args...)
	return version > 0, err
}

// isOnlyOfWaiters reports whether e only refuses requests, and so adds and refreshes the entries of
// waiters. If a crash of the server forgets the entries, the waiters enter again. A holder would
// otherwise wait for the commit of each waiter that comes, because it needs the same row.
func (e *edition) isOnlyOfWaiters() bool {
	return !slices.ContainsFunc(e.served, func(m *caller) bool {
		return !errors.Is(m.answer, backend.ErrNotAcquired)
	})
}

// rowWait returns the limit of updateBoundedSQL, in milliseconds: two thirds of the time of the
// caller that stays longest, so that the answer comes in time. Without an answer, the connection
// would end. Renewals of other locks would then wait until new connections are made. It returns 0,
// no limit, if a caller has no limit.
func rowWait(callers []*caller, now time.Time) string {
	var longest time.Duration
	for _, m := range callers {
		if m.end.IsZero() {
			return "0"
		}
		longest = max(longest, m.end.Sub(now))
	}
	return strconv.FormatInt(max(1, (longest*2/3).Milliseconds()), 10)
}

// exec runs a statement for e.served, which returns a number of the row that it has changed.
func (e *edition) exec(sql string, args ...any) (int64, error) {
	return callTogether(e, func(ctx context.Context, conn *pgx.Conn) (int64, error) {
		return numberOf(ctx, conn, sql, args...)
	})
}

// callTogether makes a request for e.served. It returns errGone if one of these callers has gone
// before the request was sent. Unlike call, it returns only when the request has ended: e has a
// goroutine already, and its callers leave by themselves. While it waits for a connection it has a
// slot, for at most d.patience.
func callTogether[T any](
	e *edition, request func(context.Context, *pgx.Conn) (T, error),
) (value T, err error) {
	select {
	case e.lane.slots <- struct{}{}:
		defer func() { <-e.lane.slots }()
	case <-e.deserted:
		return value, errGone
	}
	failed := e.d.connect(func(conn *pgx.Conn) {
		a := e.begin(conn)
		if a == nil {
			err = errGone
			return
		}
		value, err = request(context.WithoutCancel(e.served[0].ctx), conn)
		err = a.end(err)
	})
	if failed != nil {
		return value, unsent(failed)
	}
	return value, interpretError(err)
}

// begin notes that a statement for e.served is now sent on conn. It returns nil if one of these
// callers has gone. leave holds the same mutex, so a caller that has gone without an attempt is in
// no statement that is sent later.
func (e *edition) begin(conn *pgx.Conn) *attempt {
	s := &e.lane.editions
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(e.served) == 0 || slices.ContainsFunc(e.served, (*caller).isGone) {
		return nil
	}
	a := &attempt{lane: e.lane, callers: len(e.served)}
	for _, m := range e.served {
		m.attempt = a
	}
	a.begin(conn.PgConn(), e.d.timeout)
	return a
}

// isGone reports whether the caller of m has gone, or has to go. It compares the deadline with the
// clock, because after a stop of the process the timer of the context may fire too late. It does
// not call the context, which is the user's and could block. editions.mu must be held.
func (m *caller) isGone() bool {
	return m.left || !m.end.IsZero() && !m.end.After(time.Now())
}

// present returns the callers that have not gone.
func (e *edition) present() (callers []*caller) {
	s := &e.lane.editions
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range e.callers {
		if !m.isGone() {
			callers = append(callers, m)
		}
	}
	return callers
}
