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

// The server executes each statement that reaches it, also when the caller has gone. So each
// statement about a lock has an attempt, which bounds the time in which the kernel can send it. The
// statement_timeout of the connection bounds the time on the server. The sum is Capabilities.Late:
// for so long the core repeats the release of an acquisition that was given up.

// abandonAfter is how long a request goes on after the end of its context. If pgx ended the
// connection at once, a server that is slow for a moment would have to serve all its clients'
// connections again. It is a part of late.
const abandonAfter = time.Second

// errNoAnswer is the outcome of a request that the server does not answer. The outcome is unknown:
// the server may have executed the request, or may do so until statementTimeout is over.
var errNoAnswer = errors.New("the server does not answer")

// call makes a request on a connection, when a slot of its lane is free. If ctx ends, call returns
// at once, and the request goes on in the background for a moment. A request is not begun after the
// end of ctx.
//
// request gets a context that never ends, because pgx gives up a connection as soon as the context
// of its statement ends. The attempt limits the request instead, to d.timeout, and to abandonAfter
// after the caller has gone. It is called at most once.
//
// An error that wraps ErrUnavailable means that the server has executed nothing. The error of ctx
// means that the request was sent, and that its outcome is unknown.
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
	// If ctx has ended, err is the error of ctx, or an outcome that came at the same time. The
	// caller may not rely on the latter, so call only decides whether the request was sent.
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
// its slot. connect waits for a connection for at most d.patience, also if the caller has gone.
// After an error use has not been called, so nothing was sent.
func (d *driver) connect(use func(*pgx.Conn)) error {
	ctx, cancel := context.WithTimeout(d.life, d.patience)
	defer cancel()
	return d.pool.with(ctx, use)
}

// attempt limits a statement under way, which serves one request or several. At the limit it resets
// the connection. What the kernel has not sent by then is never sent, so the server cannot execute
// it later. This is so only if package abort finds the socket: a connection of the caller's
// DialFunc that wraps its socket needs a method NetConn. An attempt is safe for concurrent use.
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

// attemptState is the state of an attempt, which has one statement. begin makes a waiting attempt
// wanted. When its last caller goes, it becomes abandoned, or reset if the lane has too many of
// them. The limit makes either of them reset. end is the last event of each attempt that has begun;
// until then the goroutine of the statement has the connection.
type attemptState int

const (
	waiting   attemptState = iota // for a connection
	wanted                        // a caller waits for the answer
	abandoned                     // all callers have gone
	reset                         // the connection has ended
	ended                         // there is an outcome, or the request never began
)

// begin notes that the request is now sent on conn, and starts its limit. It reports false if the
// caller has gone; then the request must not be sent. After true, end must be called. From begin on
// the outcome counts as unknown if the caller goes, although nothing is written yet.
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
// whose callers have all gone, and the next one ends at once. Otherwise requests for one row that
// another statement has locked would delay requests for all other rows. The shorter limit holds for
// the callers that stay, too. So requests with little time left have statements of their own.
// abandon does not block, and is called once for each caller that goes.
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

// reset ends the connection of a request that is under way. It closes the socket only: pgx, which
// another goroutine uses, then returns an error, and sends a cancel request to the server on
// another connection. It has no effect on an attempt that has ended, whose connection may serve
// another request already. a.mu must be held.
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

// end notes the outcome of the request and returns it. A connection that was reset is closed, so
// that no pool lends it again, even if the answer has come before the reset. The same holds for a
// connection to a standby, which a pool of the caller could lend for an hour. end must be called
// before the connection returns to its pool: otherwise the limit could end the statement of another
// request. end stops the limit, so nothing is left of the attempt.
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
	if hasCode(err, codeReadOnly) || errors.Is(err, errReadOnly) {
		_ = a.conn.Close(context.Background()) // another connection may find the primary
	}
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

// errUnreplicated is the outcome of such a statement. It is unknown. When the core repeats the
// acquisition, the new commit waits for the standby, and so for the earlier commit, too.
var errUnreplicated = errors.New("the wait for a standby was cancelled")

// noteUnreplicated implements pgconn.NoticeHandler. The message can be in any language, so it
// detects the warning by the function of the server that sends it. pgx calls it on the goroutine of
// the statement, before the statement returns: the server sends the warning before it is ready for
// the next statement. A pool of the caller has its own handler, so the note is never made there.
func noteUnreplicated(conn *pgconn.PgConn, notice *pgconn.Notice) {
	if notice.Routine == "SyncRepWaitForLSN" {
		conn.CustomData()[unreplicated] = true
	}
}
