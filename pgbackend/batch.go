package pgbackend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/roster"
)

// batcher makes requests of one kind. Those that wait for a slot at the same time share one
// statement, and so one commit: 64 goroutines that lock 10,000 names make twice the pairs. The
// driver has two batchers: for acquisitions and for releases of writers. A shared statement skips
// the rows that are locked, so that they do not delay its other requests. A number of 0 is
// therefore no refusal: the caller goes on with an edition, which waits for the row. A batcher is
// safe for concurrent use.
type batcher struct {
	d    *driver
	lane *lane
	one  statement // makes one request
	all  statement // makes several requests

	mu      sync.Mutex
	waiting []*member // not sent, and the caller has not gone
}

// statement makes requests on a connection. The numbers that it returns are 0 for requests that
// have changed nothing. They are in the order of the requests. A statement is called once for a
// connection, and its context never ends: the attempt limits it.
type statement func(context.Context, *pgx.Conn, []*member) (numbers []int64, err error)

// member is a request of a batcher. batcher.mu guards attempt. The goroutine that makes the request
// writes number and err before it closes done, and the caller reads them after that.
type member struct {
	ctx     context.Context
	end     time.Time // of ctx; zero: it has no limit
	req     *backend.Request
	attempt *attempt      // nil: it has not been sent
	done    chan struct{} // closed when there is an outcome
	number  int64
	err     error
}

// isHasty reports whether the caller may leave soon. The statement then has only abandonAfter for
// its other callers.
func (m *member) isHasty(now time.Time) bool {
	return !m.end.IsZero() && m.end.Sub(now) < abandonAfter
}

// hasEnded reports whether the time of the caller is over, although it may not have noticed.
func (m *member) hasEnded(now time.Time) bool { return !m.end.IsZero() && !m.end.After(now) }

// do makes a request and returns a number of the row that it has changed. Without such a row the
// number is 0. If ctx ends, do returns at once: with ErrUnavailable if the request was not sent,
// and otherwise with the error of ctx, because its outcome is unknown. An error of a shared
// statement is the error of each of its requests.
func (b *batcher) do(ctx context.Context, req *backend.Request) (number int64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, unsent(err)
	}
	m := &member{ctx: ctx, req: req, done: make(chan struct{})}
	m.end, _ = ctx.Deadline()
	b.mu.Lock()
	b.waiting = append(b.waiting, m)
	b.mu.Unlock()
	go b.serve(m)
	select {
	case <-m.done:
		if m.err == nil || ctx.Err() == nil {
			return m.number, interpretError(m.err)
		}
	case <-ctx.Done():
	}
	return 0, b.leave(m, ctx.Err())
}

// leave notes that the caller of m has gone, and returns its error. reason is the error of its
// context. A request that was not sent is never sent later: leave and begin hold b.mu, so either
// begin finds that m waits no more, or leave finds the attempt.
func (b *batcher) leave(m *member, reason error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m.attempt == nil {
		b.remove(m)
		return unsent(reason)
	}
	m.attempt.abandon()
	return reason
}

// remove reports whether m waits, and removes it. b.mu must be held.
func (b *batcher) remove(m *member) bool {
	i := slices.Index(b.waiting, m)
	if i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
	}
	return i >= 0
}

// serve makes m, and what waits with it, when it has a slot and a connection. Another serve may
// have made m meanwhile. serve ends without m only if the caller of m has gone. Each request has a
// serve of its own, so a connection that fails ends one request, and the requests that wait with it
// try other connections. The goroutine lives as long as the caller waits, or until its connection
// attempt and its statement have ended.
func (b *batcher) serve(m *member) {
	select {
	case b.lane.slots <- struct{}{}:
		defer func() { <-b.lane.slots }()
	case <-m.done:
		return
	case <-m.ctx.Done():
		return
	}
	b.mu.Lock()
	waits := slices.Contains(b.waiting, m)
	b.mu.Unlock()
	if !waits {
		return
	}
	if err := b.d.connect(func(conn *pgx.Conn) { b.send(m, conn) }); err != nil {
		b.fail(m, unsent(err))
	}
}

// send makes m and the requests that wait with it, unless m waits no more. The requests are chosen
// only now that there is a connection: what has arrived while it was made is in the same statement.
func (b *batcher) send(m *member, conn *pgx.Conn) {
	members, a := b.begin(m, conn)
	if len(members) == 0 {
		return
	}
	statement := b.all
	if len(members) == 1 {
		statement = b.one
	}
	numbers, err := statement(context.WithoutCancel(members[0].ctx), conn, members)
	err = a.end(err)
	for i, m := range members {
		if m.err = err; err == nil {
			m.number = numbers[i]
		}
		close(m.done)
	}
}

// begin returns the requests that are now sent, and their attempt. If there are none, nothing may
// be sent, and there is no attempt.
func (b *batcher) begin(m *member, conn *pgx.Conn) (members []*member, a *attempt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	members = b.choose(m, time.Now())
	if len(members) == 0 {
		return nil, nil
	}
	a = &attempt{lane: b.lane, callers: len(members)}
	for _, m := range members {
		m.attempt = a
	}
	a.begin(conn.PgConn(), b.d.timeout)
	return members, a
}

// choose removes m, if it waits, and the requests that can share its statement: callers that may
// leave soon have statements of their own. The requests whose time is over leave the queue without
// an outcome, because each of their callers returns at the end of its context. b.mu must be held.
func (b *batcher) choose(m *member, now time.Time) []*member {
	if !b.remove(m) {
		return nil
	}
	chosen := []*member{m}
	b.waiting = slices.DeleteFunc(b.waiting, func(other *member) bool {
		fits := len(chosen) < maxBatch && other.isHasty(now) == m.isHasty(now)
		if fits {
			chosen = append(chosen, other)
		}
		return fits
	})
	return slices.DeleteFunc(chosen, func(m *member) bool { return m.hasEnded(now) })
}

// fail ends m with an error, if it still waits. It was not sent. If another serve has taken m into
// its statement meanwhile, the outcome comes from there.
func (b *batcher) fail(m *member, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.remove(m) {
		m.err = err
		close(m.done)
	}
}

// newTakes returns the batcher of acquisitions. Its numbers are fences. A single acquisition waits
// for a free row that is locked, and leaves a name without a row to the edition that follows. A
// shared statement skips locked rows, and makes the rows that are missing.
func newTakes(d *driver) *batcher {
	return &batcher{
		d: d, lane: d.main,
		one: func(ctx context.Context, conn *pgx.Conn, members []*member) ([]int64, error) {
			req := members[0].req
			fence, err := numberOf(ctx, conn, d.sql.take,
				name(req.Key), req.Owner, []byte(req.Meta), roster.Micros(req.TTL))
			return []int64{fence}, err
		},
		all: func(ctx context.Context, conn *pgx.Conn, members []*member) ([]int64, error) {
			keys, owners := subjects(members)
			metas, ttls := make([][]byte, len(members)), make([]int64, len(members))
			for i, m := range members {
				metas[i], ttls[i] = []byte(m.req.Meta), roster.Micros(m.req.TTL)
			}
			return numbersOf(ctx, conn, len(members), d.sql.takeAll,
				keys, owners, metas, ttls, int64(backend.FenceEpoch))
		},
	}
}

// newFrees returns the batcher of releases. Its numbers are versions. A single release waits for a
// row that is locked, a shared statement skips it.
func newFrees(d *driver) *batcher {
	return &batcher{
		d: d, lane: d.main,
		one: func(ctx context.Context, conn *pgx.Conn, members []*member) ([]int64, error) {
			req := members[0].req
			version, err := numberOf(ctx, conn, d.sql.free, name(req.Key), req.Owner)
			return []int64{version}, err
		},
		all: func(ctx context.Context, conn *pgx.Conn, members []*member) ([]int64, error) {
			keys, owners := subjects(members)
			return numbersOf(ctx, conn, len(members), d.sql.freeAll, keys, owners)
		},
	}
}

// subjects returns the names and the owners of requests.
func subjects(members []*member) (keys [][]byte, owners []string) {
	keys, owners = make([][]byte, len(members)), make([]string, len(members))
	for i, m := range members {
		keys[i], owners[i] = name(m.req.Key), m.req.Owner
	}
	return keys, owners
}

// numberOf runs a statement that returns a number of the row that it has changed. Without such a
// row numberOf returns 0. It reads the answer to its end, so an error of the commit, which the
// server sends after the row, is returned and not the number.
func numberOf(
	ctx context.Context, conn *pgx.Conn, sql string, args ...any,
) (number int64, err error) {
	err = conn.QueryRow(ctx, sql, args...).Scan(&number)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return number, err
}

// numbersOf runs a statement about n rows that returns, for each row that it has changed, the
// position of the row in its arguments, from 1, and a number. The numbers of the other rows are 0.
// An answer that cannot be read is an unknown outcome, because the statement was executed.
func numbersOf(
	ctx context.Context, conn *pgx.Conn, n int, sql string, args ...any,
) ([]int64, error) {
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	numbers := make([]int64, n)
	var position, number int64
	_, err = pgx.ForEachRow(rows, []any{&position, &number}, func() error {
		if position < 1 || position > int64(n) {
			return fmt.Errorf("the server has answered for row %d of %d", position, n)
		}
		numbers[position-1] = number
		return nil
	})
	return numbers, err
}
