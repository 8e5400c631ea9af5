package pgbackend

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/session"
)

// maxTTL is the longest idle_session_timeout, in whole hours.
const maxTTL = 596 * time.Hour

const (
	// advisoryLockSQL acquires an advisory lock, and returns the server's time in microseconds
	// after the beginning of 2026: the fence. It returns NULL if another session has the lock.
	// It returns -1, without a lock, if this is another session than the one with the mark, or if
	// the server is no writer: a lock there would exclude no client. CASE reads the clock when the
	// lock is held. Otherwise a statement that was slow could return a time from before the
	// previous holder.
	advisoryLockSQL = `SELECT CASE WHEN ` + markSQL + ` <> $3 OR NOT ` + writerSQL + ` THEN -1
	WHEN pg_try_advisory_lock($1)
	THEN (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - $2::bigint END`
	// advisoryUnlockSQL returns whether this connection had the lock, and whether the other locks
	// of the connection exclude.
	advisoryUnlockSQL = `SELECT pg_advisory_unlock($1), ` + writerSQL
	advisoryTrySQL    = `SELECT pg_try_advisory_lock($1)`
	// advisoryFreeSQL has the lock until the end of the statement, if no other session has it.
	advisoryFreeSQL = `SELECT pg_try_advisory_xact_lock($1)`
	// advisoryProveSQL returns a row if this is the session with the mark, and the server is the
	// writer.
	advisoryProveSQL = `SELECT WHERE ` + markSQL + ` = $1 AND ` + writerSQL

	// markSQL identifies a session. After a restart, a server can give the same pid again.
	markSQL = `pg_backend_pid() || ' ' || extract(epoch FROM pg_postmaster_start_time())`

	// writerSQL is the condition for a server that accepts changes. New connections to any other
	// server are refused. During recovery each transaction is read-only.
	writerSQL = `current_setting('transaction_read_only') = 'off'`
)

// openSession opens a driver with advisory locks. base has the address and the credentials of the
// server.
func openSession(ctx context.Context, base origin, opts Options) (backend.Driver, error) {
	base.config = sessionConfig(base.config, opts)
	d, err := session.Open(ctx, session.Server{
		Connect: func(ctx context.Context) (session.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, patienceOf(base, opts.Timeout))
			defer cancel()
			config, err := base.next(ctx)
			if err != nil {
				return nil, unsent(err)
			}
			return advise(ctx, config, opts.TTL)
		},
		ID: advisoryKey, TTL: opts.TTL, MinTTL: minTTL, Timeout: opts.Timeout,
	})
	if err != nil {
		return nil, unsent(err)
	}
	return d, nil
}

// silence returns after how many milliseconds the server ends a connection that is silent.
func silence(ttl time.Duration) int64 { return ttl.Milliseconds() + 1 }

// maxKeepalive is the longest time that Linux accepts, in seconds.
const maxKeepalive = 32767

// sessionConfig returns the configuration of a connection with advisory locks.
func sessionConfig(base *pgx.ConnConfig, opts Options) *pgx.ConnConfig {
	config := base.Copy()
	maps.Copy(config.RuntimeParams, settings)
	limit := silence(opts.TTL)
	maps.Copy(config.RuntimeParams, map[string]string{
		// Of a statement that was cancelled, the server would keep the lock.
		"statement_timeout":    "0",
		"idle_session_timeout": strconv.FormatInt(limit, 10),
		// TCP on the server must not give up earlier. On Linux tcp_user_timeout also replaces the
		// number of keepalives.
		"tcp_user_timeout":    strconv.FormatInt(limit, 10),
		"tcp_keepalives_idle": strconv.FormatInt(min(limit/1000+1, maxKeepalive), 10),
	})
	config.ValidateConnect = validateSession
	return config
}

// advisoryKey returns 64 bits of the hash of a key, because advisory locks have numbers.
func advisoryKey(key string) string {
	sum := sha256.Sum256([]byte("dlock:" + key))
	return string(sum[:8])
}

// number returns the number of an advisory lock.
func number(id string) int64 { return int64(binary.BigEndian.Uint64([]byte(id))) }

// endless is the context of the statements. Only Close ends them: pgx would end the connection with
// the context of one statement, and so all locks. Package session limits them, and closes the
// connection if the server does not answer in time.
var endless = context.Background()

// adviser is a connection with advisory locks. It implements session.Conn. One goroutine at a time
// uses it, but Ended and Close are safe for concurrent use. Each adviser has its own dialer, so
// that Close ends this connection, and no other.
type adviser struct {
	conn  *pgx.Conn
	link  *session.Link
	dials *dialer // also makes the connections for cancel requests
	mark  string  // of the session that has the locks
}

// advise makes a connection that the server ends after a silence of ttl.
func advise(ctx context.Context, base *pgx.ConnConfig, ttl time.Duration) (*adviser, error) {
	dial := base.DialFunc
	dials := newDialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return session.NewLink(conn, ttl), nil
	}, maxUnchecked)
	config := base.Copy()
	config.DialFunc = dials.dial
	conn, err := pgx.ConnectConfig(ctx, config)
	a := &adviser{conn: conn, dials: dials}
	if err == nil {
		err = a.check(ctx, silence(ttl))
	}
	if err != nil {
		dials.close()
		return nil, unsent(err)
	}
	return a, nil
}

// maxSilenceWithoutTCP is the longest silence, in milliseconds, that a server survives whose system
// has no tcp_user_timeout. Windows gives up what is not acknowledged after about 20 s.
const maxSilenceWithoutTCP = 10_001

// check returns an error if the settings of the connection are not the ones with which it was made:
// a hook of the caller or of the server can change them after that, and not all systems have them.
// It also reads the mark, and finds the Link.
func (a *adviser) check(ctx context.Context, silence int64) error {
	var kept, survives, ok bool
	if a.link, ok = under[*session.Link](a.conn.PgConn().Conn()); !ok {
		return fmt.Errorf("%w: AfterNetConnect hides the connection", backend.ErrUnsupported)
	}
	err := a.conn.QueryRow(ctx, `SELECT current_setting('statement_timeout') = '0' AND
		current_setting('idle_session_timeout')::interval = $1::bigint * interval '1 millisecond',
		inet_server_addr() IS NULL OR current_setting('tcp_user_timeout') = $1::bigint::text,
		`+markSQL, silence).Scan(&kept, &survives, &a.mark)
	switch {
	case err != nil:
		return err
	case !kept:
		return fmt.Errorf("%w: idle_session_timeout or statement_timeout was set after connecting",
			backend.ErrUnsupported)
	case !survives && silence > maxSilenceWithoutTCP:
		return fmt.Errorf("%w: the server has no tcp_user_timeout: its TCP could end a silent "+
			"connection before the TTL, which must be %v at most", backend.ErrUnsupported,
			maxSilenceWithoutTCP*time.Millisecond)
	}
	return nil
}

// Lock implements session.Conn. It does not wait for the holder. A fence outside of its range ends
// the connection and all of its locks, because the error is no refusal: the server has acquired the
// lock.
func (a *adviser) Lock(id string) (uint64, error) {
	var fence *int64
	err := a.conn.QueryRow(endless, advisoryLockSQL, number(id), int64(backend.FenceEpoch), a.mark).
		Scan(&fence)
	switch {
	case isAnswer(err):
		return 0, a.undo(id, err)
	case err != nil || fence == nil:
		return 0, err
	case *fence == -1:
		return 0, errMoved
	case *fence <= 0 || *fence >= backend.MaxFence:
		return 0, fmt.Errorf("the fence is %d: the server's clock is wrong", *fence)
	}
	return uint64(*fence), nil
}

// undo returns the outcome of a statement that locks, and that the server has ended with an error:
// it has no room for one more lock (max_locks_per_transaction), or an operator has cancelled the
// statement. An advisory lock is not rolled back with its statement, so undo frees it.
func (a *adviser) undo(id string, cause error) error {
	if _, _, err := a.unlock(id); err != nil {
		return err
	}
	return fmt.Errorf("%w: %w", backend.ErrUnavailable, cause)
}

// Unlock implements session.Conn. If the server ends the statement with an error, the lock may be
// free or not. A second statement frees it, and does not show whether it was held until then. A
// lock that the first one has freed belonged to this connection, but the server may have become
// read-only.
func (a *adviser) Unlock(id string) error {
	held, isWriter, err := a.unlock(id)
	wasEnded := isAnswer(err)
	if wasEnded {
		_, isWriter, err = a.unlock(id)
	}
	switch {
	case err != nil:
	case !held && !wasEnded:
		err = errNoAdvisoryLock
	case !isWriter:
		err = fmt.Errorf("%w: %w", errMoved, session.ErrFreed)
	case wasEnded:
		err = a.Prove()
	}
	return err
}

// unlock frees a lock. It reports whether the connection had the lock, and whether the server
// accepts changes.
func (a *adviser) unlock(id string) (held, isWriter bool, err error) {
	err = a.conn.QueryRow(endless, advisoryUnlockSQL, number(id)).Scan(&held, &isWriter)
	return held, isWriter, err
}

// IsFree implements session.Conn.
func (a *adviser) IsFree(id string) (isFree bool, err error) {
	err = a.conn.QueryRow(endless, advisoryFreeSQL, number(id)).Scan(&isFree)
	return isFree, interpretError(err)
}

// errNoAdvisoryLock means that the driver and the server do not agree about the locks that a
// connection has.
var errNoAdvisoryLock = errors.New("the connection has not had the lock")

// errMoved means that the server has become read-only, or that a proxy has moved the session to
// another connection.
var errMoved = errors.New("the server is read-only, or a proxy has changed the connection")

// Prove implements session.Conn. An error is an answer, too, because no pooler can have sent it.
// The statement has no name, so that each connection can execute it.
func (a *adviser) Prove() error {
	tag, err := a.conn.Exec(endless, advisoryProveSQL, pgx.QueryExecModeExec, a.mark)
	switch {
	case isAnswer(err):
		return nil
	case err == nil && tag.RowsAffected() != 1:
		return errMoved
	}
	return err
}

// Ended implements session.Conn.
func (a *adviser) Ended() <-chan struct{} { return a.link.Ended() }

// Close implements session.Conn. It closes the socket without a message to the server, and does not
// wait for it. The server frees the locks when it notices the end of the connection.
func (a *adviser) Close() { a.dials.close() }
