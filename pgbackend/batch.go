package pgbackend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/roster"
)

// batcher makes requests of one kind. Those that wait for a slot at the same time share one
// statement, and so one commit. It is safe for concurrent use.
type batcher struct {
	d    *driver
	lane *lane
	one  statement // makes one request
	all  statement // makes several requests

	mu      sync.Mutex
	waiting []*member // some of them may have gone
}

// statement makes requests on a connection. The numbers that it returns are 0 for requests that
// have changed nothing.
type statement func(context.Context, *pgx.Conn, []*member) (numbers []int64, err error)

// member is a request of a batcher.
type member struct {
	ctx     context.Context
	req     *backend.Request
	attempt *attempt      // nil: it has not been sent
	done    chan struct{} // closed when there is an outcome
	number  int64
	err     error
}

// do makes a request and returns a number of the row that it has changed. Without such a row the
// number is 0. If ctx ends, do returns at once.
func (b *batcher) do(ctx context.Context, req *backend.Request) (number int64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	m := &member{ctx: ctx, req: req, done: make(chan struct{})}
	b.mu.Lock()
	b.waiting = append(b.waiting, m)
	b.mu.Unlock()
	go b.serve(ctx)
	select {
	case <-m.done:
		if m.err != nil && ctx.Err() != nil {
			return 0, ctx.Err()
		}
		return m.number, interpretError(m.err)
	case <-ctx.Done():
		b.abandon(m)
		return 0, ctx.Err()
	}
}

// abandon leaves m to itself, because its caller has gone.
func (b *batcher) abandon(m *member) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m.attempt != nil {
		m.attempt.abandon()
	}
}

// serve makes all requests that wait, when it has a slot and a connection. Each request has one
// serve, and each serve removes one request at least, unless there is none left.
func (b *batcher) serve(ctx context.Context) {
	select {
	case b.lane.slots <- struct{}{}:
		defer func() { <-b.lane.slots }()
	case <-ctx.Done():
		return
	}
	b.mu.Lock()
	left := len(b.waiting)
	b.mu.Unlock()
	if left == 0 {
		return
	}
	if err := b.d.connect(ctx, b.send); err != nil {
		b.fail(unsent(err))
	}
}

// send makes all requests that wait.
func (b *batcher) send(conn *pgx.Conn) {
	members, a := b.begin(conn)
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

// begin returns the requests that wait, and notes that they are now sent.
func (b *batcher) begin(conn *pgx.Conn) (members []*member, a *attempt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	members = b.next(maxBatch)
	a = &attempt{lane: b.lane, callers: len(members)}
	for _, m := range members {
		m.attempt = a
	}
	if len(members) > 0 {
		a.begin(conn.PgConn(), b.d.timeout)
	}
	return members, a
}

// next removes the first n requests whose callers are there. b.mu must be held.
func (b *batcher) next(n int) []*member {
	b.waiting = slices.DeleteFunc(b.waiting, func(m *member) bool { return m.ctx.Err() != nil })
	n = min(n, len(b.waiting))
	members := slices.Clone(b.waiting[:n])
	b.waiting = slices.Delete(b.waiting, 0, n)
	return members
}

// fail ends one request with an error. It was not sent.
func (b *batcher) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.next(1) {
		m.err = err
		close(m.done)
	}
}

// newTakes returns the batcher of acquisitions. Its numbers are fences.
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

// newFrees returns the batcher of releases. Its numbers are versions.
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
// row numberOf returns 0.
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
			return fmt.Errorf("%w: position %d of %d", errStranger, position, n)
		}
		numbers[position-1] = number
		return nil
	})
	return numbers, err
}
