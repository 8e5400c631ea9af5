package mysqlbackend

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/session"
)

// maxTTL limits wait_timeout. After about 15 minutes the TCP of a server gives up a connection of
// which it has no acknowledgement, for example on Linux by tcp_retries2.
const maxTTL = 10 * time.Minute

// openSession opens a driver with user-level locks.
func openSession(ctx context.Context, t *target) (backend.Driver, error) {
	config, err := t.config()
	if err != nil {
		return nil, err
	}
	config.ReadTimeout, config.WriteTimeout = 0, 0 // each statement has its own limit
	ttl := time.Duration(seconds(t.TTL)) * time.Second
	c := &connector{config: config, silence: ttl}
	d, err := session.Open(ctx, session.Server{
		Connect: func(ctx context.Context) (session.Conn, error) {
			// About 16 round trips, one after the other.
			ctx, cancel := context.WithTimeout(ctx, max(backend.OpenTimeout, t.Timeout))
			defer cancel()
			return connectLocker(ctx, c, ttl)
		},
		ID:  func(key string) string { return userLock(t.database, key) },
		TTL: ttl, MinTTL: minTTL, Timeout: t.Timeout,
	})
	if err != nil && !isDefinite(err) {
		err = fmt.Errorf("%w: the server did not answer: %w", backend.ErrUnavailable, err)
	}
	if err != nil {
		return nil, err
	}
	return d, nil
}

// seconds rounds a TTL up.
func seconds(ttl time.Duration) int64 { return int64((ttl + time.Second - 1) / time.Second) }

// userLock returns the name of a user-level lock. Such names have at most 64 characters, and the
// whole server shares them, so it is a hash with the database in it. On some servers the name of a
// database can be written in upper and lower case.
func userLock(database, key string) string {
	sum := sha256.Sum256([]byte(strings.ToLower(database) + "\x00" + key))
	return "dlock-held:" + hex.EncodeToString(sum[:24])
}

// locker is a connection with user-level locks. It implements session.Conn. The locks end with the
// connection, and no other session can free them.
type locker struct {
	db   *sql.DB // has this connection only
	conn *sql.Conn
	link *session.Link
	mark string // the name of a lock that this connection alone has
	made *conn
	once sync.Once

	// Prepared, a pair of Lock and Unlock takes three quarters of the time.
	lock, unlock, prove, try *sql.Stmt
}

// connectLocker makes a connection that the server ends after a silence of ttl.
func connectLocker(ctx context.Context, c *connector, ttl time.Duration) (*locker, error) {
	l := &locker{db: sql.OpenDB(c), mark: "dlock-session:" + rand.Text()}
	err := l.connect(ctx, ttl)
	if err != nil {
		l.Close()
		if !isDefinite(err) {
			err = fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
		}
		return nil, err
	}
	return l, nil
}

// connect makes the connection, sets its variables, and checks the server. Only the mark is then
// locked.
func (l *locker) connect(ctx context.Context, ttl time.Duration) (err error) {
	if l.conn, err = l.db.Conn(ctx); err != nil {
		return err
	}
	err = l.conn.Raw(func(made any) error {
		c, ok := made.(*conn)
		if !ok {
			return fmt.Errorf("%w: the client library is another one", backend.ErrUnsupported)
		}
		l.link, l.made = c.socket.Conn.(*session.Link), c
		return nil
	})
	if err != nil {
		return err
	}
	set := strings.Replace(plain(sessionSettingsSQL), "{seconds}",
		strconv.FormatInt(seconds(ttl), 10), 1)
	if _, err := exec(ctx, l.conn, set); err != nil {
		return err
	}
	if err := l.check(ctx, ttl); err != nil {
		return err
	}
	return l.prepare(ctx)
}

// prepare prepares the statements that each lock needs.
func (l *locker) prepare(ctx context.Context) error {
	for text, statement := range map[string]**sql.Stmt{
		sessionLockSQL: &l.lock, sessionUnlockSQL: &l.unlock, sessionProveSQL: &l.prove,
		sessionTrySQL: &l.try,
	} {
		made, err := l.conn.PrepareContext(ctx, plain(text))
		if err != nil {
			return interpretError(ctx, err)
		}
		*statement = made
	}
	return nil
}

// check acquires the mark, and returns an error if user-level locks of the server cannot exclude.
func (l *locker) check(ctx context.Context, ttl time.Duration) error {
	found, err := readServer(ctx, l.conn)
	if err == nil {
		err = found.check()
	}
	if err != nil {
		return err
	}
	var marked, advances bool
	var silence int64
	_, err = query(ctx, l.conn, func(rows *sql.Rows) (_ any, err error) {
		return nil, rows.Scan(&marked, new(int), &advances, &silence)
	}, plain(sessionServerSQL), l.mark)
	switch {
	case err != nil:
		return err
	case l.made.isProxied(found.connection):
		return fmt.Errorf("%w: there is a pooler or proxy in front of the server, which can "+
			"change the connection; connect to the server itself", backend.ErrUnsupported)
	case !marked:
		return fmt.Errorf("%w: the server refuses a user-level lock that is free",
			backend.ErrUnsupported)
	case !advances:
		return fmt.Errorf("%w: the server runs with sysdate-is-now: it has no clock for fences",
			backend.ErrUnsupported)
	case silence != seconds(ttl):
		return fmt.Errorf("%w: a proxy keeps wait_timeout from the server", backend.ErrUnsupported)
	}
	return l.checkVariables(ctx, ttl)
}

// checkVariables returns an error if other servers have locks of their own, or if the TCP of the
// server gives up a silent connection before wait_timeout.
func (l *locker) checkVariables(ctx context.Context, ttl time.Duration) error {
	found, err := variables(ctx, l.conn, sessionVariablesSQL)
	if err != nil {
		return err
	}
	return allow(found, ttl)
}

// allow returns an error if locks of a connection cannot exclude on a server with these variables.
func allow(variables map[string]string, ttl time.Duration) error {
	after, _ := strconv.Atoi(variables["tcp_keepalive_time"])
	switch {
	case variables["wsrep_on"] == "ON":
		return fmt.Errorf("%w: each node of a Galera cluster has its own user-level locks",
			backend.ErrUnsupported)
	case variables["group_replication_single_primary_mode"] == "OFF":
		return fmt.Errorf("%w: each server of a group with several primaries has its own "+
			"user-level locks", backend.ErrUnsupported)
	case after > 0 && time.Duration(after)*time.Second < ttl: // 0 is the system's
		return fmt.Errorf("%w: the server's tcp_keepalive_time is shorter than the TTL of %v",
			backend.ErrUnsupported, ttl)
	}
	return nil
}

// number executes a statement that returns a number. Only Close ends it. If Close comes just before
// the statement, database/sql panics.
func (l *locker) number(statement *sql.Stmt, args ...any) (n int64, err error) {
	defer rescue(&err, nil)
	err = statement.QueryRow(args...).Scan(&n)
	return n, interpretError(context.Background(), err)
}

var (
	// errMoved means that the server has become read-only, or that a proxy has moved the session
	// to another connection.
	errMoved = errors.New("the server is read-only, or a proxy has changed the connection")
	// errNoUserLock means that the driver and the server do not agree about the locks that a
	// connection has.
	errNoUserLock = errors.New("the connection has not had the lock")
)

// Lock implements session.Conn.
func (l *locker) Lock(id string) (uint64, error) {
	fence, err := l.number(l.lock, l.mark, id)
	switch {
	case isInterrupted(err):
		return 0, l.undo(id, err)
	case err != nil:
		return 0, err
	case fence == -1:
		return 0, errMoved
	case fence < 0 || fence >= backend.MaxFence:
		return 0, fmt.Errorf("the fence is %d: the server's clock is wrong", fence)
	}
	return uint64(fence), nil
}

// undo returns the outcome of a statement that locks, and that was interrupted, for example by a
// KILL QUERY. A user-level lock is not rolled back with its statement, so undo frees it.
func (l *locker) undo(id string, cause error) error {
	if _, err := l.number(l.unlock, id); err != nil {
		return cause // which ends the connection
	}
	return fmt.Errorf("%w: %w", backend.ErrUnavailable, cause)
}

// Unlock implements session.Conn. If the statement is interrupted, the lock may be free or not. A
// second statement frees it, and a third one proves that this is still the connection. A lock that
// was freed belonged to this connection, but the server may have become read-only.
func (l *locker) Unlock(id string) error {
	held, err := l.number(l.unlock, id)
	switch {
	case isInterrupted(err):
		if _, err = l.number(l.unlock, id); err == nil {
			err = l.Prove()
		}
	case err == nil && held == 2:
		err = fmt.Errorf("%w: %w", errMoved, session.ErrFreed)
	case err == nil && held != 1:
		err = errNoUserLock
	}
	return err
}

// IsFree implements session.Conn.
func (l *locker) IsFree(id string) (bool, error) {
	scan := func(rows *sql.Rows) (s sql.NullBool, err error) { return s, rows.Scan(&s) }
	found, err := query(context.Background(), l.conn, scan, "SELECT IS_FREE_LOCK(?)", id)
	if isInterrupted(err) {
		err = fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	return len(found) > 0 && found[0].Bool, err
}

// Prove implements session.Conn. A statement that is interrupted proves nothing, so Prove repeats
// it.
func (l *locker) Prove() error {
	valid, err := l.number(l.prove, l.mark)
	if isInterrupted(err) {
		valid, err = l.number(l.prove, l.mark)
	}
	if err == nil && valid != 1 {
		err = errMoved
	}
	return err
}

// Ended implements session.Conn.
func (l *locker) Ended() <-chan struct{} { return l.link.Ended() }

// Close implements session.Conn. A statement that is under way ends with the Link.
func (l *locker) Close() {
	l.once.Do(func() {
		if l.link != nil {
			_ = l.link.Close()
		}
		if l.conn != nil {
			discardConn(l.conn)
		}
		_ = l.db.Close()
	})
}
