package pgbackend

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/abort"
)

// abandonAfter is how long a request goes on after the end of its context. If pgx ended the
// connection at once, a server that is slow for a moment would have to serve all its clients'
// connections again.
const abandonAfter = time.Second

// errNoAnswer is the outcome of a request that the server does not answer.
var errNoAnswer = errors.New("the server does not answer")

// call makes a request on a connection, when a slot of its lane is free. If ctx ends, call returns
// at once, and the request goes on in the background for a moment. A request is not begun after the
// end of ctx.
func call[T any](
	ctx context.Context, d *driver, l *lane,
	request func(context.Context, *pgx.Conn) (T, error),
) (T, error) {
	a := &attempt{lane: l, callers: 1}
	value, err := backend.Call(ctx, func(ctx context.Context) (value T, err error) {
		select {
		case l.slots <- struct{}{}:
			defer func() { <-l.slots }()
		case <-ctx.Done():
			return value, ctx.Err()
		}
		failed := d.connect(func(conn *pgx.Conn) {
			if ctx.Err() != nil || !a.begin(conn.PgConn(), d.timeout) {
				err = ctx.Err()
				return
			}
			value, err = request(context.WithoutCancel(ctx), conn)
			err = a.end(err)
		})
		if failed != nil {
			return value, unsent(failed)
		}
		return value, err
	})
	switch {
	case err == nil || ctx.Err() == nil:
	case a.abandon():
		return *new(T), ctx.Err()
	default:
		return *new(T), unsent(ctx.Err())
	}
	return value, interpretError(err)
}

// connect calls use with a connection of the pool. Connecting ends with the driver and not with the
// caller: until a connection is made or has failed, it counts in the pool, and so the request needs
// its slot.
func (d *driver) connect(use func(*pgx.Conn)) error {
	ctx, cancel := context.WithTimeout(d.life, d.patience)
	defer cancel()
	return d.pool.with(ctx, use)
}

// attempt limits a statement under way, which serves one request or several. At the limit it resets
// the connection. What the kernel has not sent by then is never sent, so the server cannot execute
// it later. It is safe for concurrent use.
type attempt struct {
	lane *lane

	mu      sync.Mutex
	state   attemptState
	callers int // that made the requests
	gone    int // of them
	conn    *pgconn.PgConn
	limit   *time.Timer
	until   time.Time // when limit ends, unless a caller goes
}

// attemptState is the state of an attempt.
type attemptState int

const (
	waiting   attemptState = iota // for a connection
	wanted                        // a caller waits for the answer
	abandoned                     // all callers have gone
	reset                         // the connection has ended
	ended                         // there is an outcome, or the request never began
)

// begin notes that the request is now sent on conn. It reports false if the caller has gone.
func (a *attempt) begin(conn *pgconn.PgConn, timeout time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state != waiting {
		return false
	}
	a.state, a.conn, a.until = wanted, conn, time.Now().Add(timeout)
	a.limit = time.AfterFunc(timeout, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.reset()
	})
	return true
}

// abandon shortens the limit of the statement, because a caller has gone. It reports whether the
// statement was sent; otherwise it never is. Only half of the slots of a lane can have statements
// whose callers have all gone, and the next one ends at once: otherwise requests for one row that
// another statement has locked would delay those for all other rows.
func (a *attempt) abandon() (sent bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gone++
	switch {
	case a.state == waiting:
		a.state = ended
		return false
	case a.state != wanted:
		return true
	case a.gone == 1:
		a.limit.Reset(min(abandonAfter, time.Until(a.until)))
	}
	switch all := a.gone == a.callers; {
	case all && a.lane.abandon():
		a.state = abandoned
	case all:
		a.reset()
	}
	return true
}

// reset ends the connection of a request that is under way. a.mu must be held.
func (a *attempt) reset() {
	switch a.state {
	case abandoned:
		a.lane.abandoned.Add(-1)
	case wanted:
	default:
		return
	}
	a.state = reset
	_ = abort.Close(a.conn.Conn())
}

// end notes the outcome of the request and returns it. A connection that was reset is closed.
func (a *attempt) end(err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.limit.Stop()
	switch a.state {
	case abandoned:
		a.lane.abandoned.Add(-1)
	case reset:
		_ = a.conn.Close(context.Background())
		if err != nil {
			err = errNoAnswer
		}
	}
	a.state = ended
	if _, ok := a.conn.CustomData()[unreplicated]; ok {
		_ = a.conn.Close(context.Background()) // and the note with it
		return errUnreplicated
	}
	return err
}

// unreplicated is the key of a note on a connection: the server has ended the wait of a commit for
// a standby, because an operator cancelled the statement. It then reports success, although a
// failover can forget the change.
const unreplicated = "dlock: unreplicated"

// errUnreplicated is the outcome of such a statement. It is unknown.
var errUnreplicated = errors.New("the wait for a standby was cancelled")

// noteUnreplicated implements pgconn.NoticeHandler. Its message can be in any language.
func noteUnreplicated(conn *pgconn.PgConn, notice *pgconn.Notice) {
	if notice.Routine == "SyncRepWaitForLSN" {
		conn.CustomData()[unreplicated] = true
	}
}
