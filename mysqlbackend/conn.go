package mysqlbackend

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"slices"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/dlock-go/dlock/backend"
)

// pool is a *sql.DB. In one of a driver that is opened by URL, who has a turn finds a connection or makes one:
// database/sql never has to wait, which it can only give up by a context's Done, and a request needs no timer.
type pool struct {
	*sql.DB
	turns chan struct{} // as many as connections; nil: the database is lent
	other *pool         // whose free turns are taken first; may be nil
}

func newPool(c *connector, size int) *pool {
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	db.SetConnMaxIdleTime(idleTime)
	db.SetConnMaxLifetime(lifetime)
	return &pool{DB: db, turns: make(chan struct{}, size)}
}

// ExecContext is that of the *sql.DB.
func (p *pool) ExecContext(ctx context.Context, text string, args ...any) (sql.Result, error) {
	if p.turns == nil {
		return p.DB.ExecContext(ctx, text, args...)
	}
	if p.other != nil && ctx.Err() == nil && p.other.tryEnter() {
		p = p.other
	} else if err := p.enter(ctx); err != nil {
		return nil, err
	}
	defer p.leave()
	view, _ := backend.DeadlineOnly(ctx)
	return p.DB.ExecContext(view, text, args...)
}

// enter waits for a turn. Whoever executes a query, too, has one until the rows are read.
func (p *pool) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil || p.turns == nil || p.tryEnter() {
		return err
	}
	select {
	case p.turns <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *pool) tryEnter() bool {
	select {
	case p.turns <- struct{}{}:
		return true
	default:
		return false
	}
}

func (p *pool) leave() {
	if p.turns != nil {
		<-p.turns
	}
}

// connector makes the connections of a driver that is opened by URL.
type connector struct {
	config *mysql.Config
	hot    []string // the statements that are worth to be prepared
}

// Driver implements driver.Connector.
func (c *connector) Driver() driver.Driver { return mysql.MySQLDriver{} }

// Connect implements driver.Connector. It says of what fails that no statement was sent, and takes no longer
// than dialling may: the client library bounds the steps that follow one by one, and not all of them.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	began := time.Now()
	bounded, cancel := context.WithCancel(ctx)
	defer cancel()
	bound := c.config.Timeout
	if deadline, ok := ctx.Deadline(); ok { // which may be all that ends it
		bound = min(bound, time.Until(deadline))
	}
	defer time.AfterFunc(bound, cancel).Stop()
	conn, err := c.connect(bounded)
	if err != nil && time.Since(began) >= c.config.Timeout && ctx.Err() == nil { // by this timer or the library's
		err = fmt.Errorf("not connected within %v", c.config.Timeout)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	return conn, nil
}

func (c *connector) connect(ctx context.Context) (driver.Conn, error) {
	s := &socket{}
	config := c.config.Clone()
	config.DialFunc = s.dial
	inner, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	session, err := inner.Connect(ctx)
	if err != nil {
		return nil, err
	}
	library, ok := session.(libraryConn)
	if !ok {
		return session, nil
	}
	return &conn{libraryConn: library, socket: s, hot: c.hot, prepared: make(map[string]driver.StmtExecContext)}, nil
}

// libraryConn is all that database/sql may use of a connection of the client library.
type libraryConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.NamedValueChecker
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// conn executes statements with less effort than the client library alone: the hot ones are prepared, which saves
// the server from parsing them, and a context that can only end at its deadline is honoured by a deadline of the
// socket, which saves the goroutine that would watch it. Together they are a tenth of a commit.
type conn struct {
	libraryConn
	socket   *socket
	hot      []string
	prepared map[string]driver.StmtExecContext
}

// ExecContext implements driver.ExecerContext. It leaves a server that is read-only, as the client library does where
// the server says so by an error: another connection may find the writer.
func (c *conn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	result, err := c.exec(ctx, text, args)
	if err != nil {
		return nil, err
	}
	if id, err := result.LastInsertId(); err == nil && isReadOnly(text, id) {
		return nil, driver.ErrBadConn
	}
	return result, nil
}

func (c *conn) exec(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	c.socket.answered = 0
	if view, ok := backend.DeadlineOnly(ctx); ok {
		ctx = view
		c.socket.end, _ = view.Deadline()
		defer func() { c.socket.end = time.Time{} }()
	}
	if slices.Contains(c.hot, text) {
		result, err := c.execPrepared(ctx, text, args)
		if !errors.Is(err, errUnprepared) {
			return result, err
		}
		c.hot = nil // this connection does without
	}
	return c.libraryConn.ExecContext(ctx, text, args)
}

// QueryContext implements driver.QueryerContext.
func (c *conn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	c.socket.answered = 0
	return c.libraryConn.QueryContext(ctx, text, args)
}

// errUnprepared tells that the server does not know a prepared statement, or does not take one more.
var errUnprepared = errors.New("not prepared")

func (c *conn) execPrepared(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	statement, ok := c.prepared[text]
	if !ok {
		made, err := c.PrepareContext(ctx, text)
		switch {
		case err == nil:
			statement, ok = made.(driver.StmtExecContext)
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !isReply(err): // nothing was executed
			return nil, driver.ErrBadConn
		}
		if !ok {
			return nil, errUnprepared
		}
		c.prepared[text] = statement
	}
	result, err := statement.ExecContext(ctx, args)
	if replied(err, errUnknownStatement, errNeedReprepare) {
		err = errUnprepared
	}
	return result, err
}

// maxAnswer bounds in bytes what the server may send in answer to one request, or to connect. The client library collects
// an answer of any length. A page of a listing, the longest answer, has about a megabyte.
const maxAnswer = 8 << 20

var errLongAnswer = fmt.Errorf("the answer has more than %d bytes", maxAnswer)

// socket is a connection whose reads and writes end at a time of our own, if that is earlier than what the client
// library sets, and whose answers are bounded.
type socket struct {
	net.Conn
	end      time.Time // zero: none
	answered int       // bytes since the last request
}

// Read implements net.Conn.
func (s *socket) Read(p []byte) (int, error) {
	if s.answered > maxAnswer {
		return 0, errLongAnswer
	}
	n, err := s.Conn.Read(p)
	s.answered += n
	return n, err
}

func (s *socket) dial(ctx context.Context, network, addr string) (_ net.Conn, err error) {
	s.Conn, err = (&net.Dialer{}).DialContext(ctx, network, addr)
	return s, err
}

// SetReadDeadline implements net.Conn.
func (s *socket) SetReadDeadline(t time.Time) error { return s.Conn.SetReadDeadline(s.earlier(t)) }

// SetWriteDeadline implements net.Conn.
func (s *socket) SetWriteDeadline(t time.Time) error { return s.Conn.SetWriteDeadline(s.earlier(t)) }

func (s *socket) earlier(t time.Time) time.Time {
	if !s.end.IsZero() && s.end.Before(t) {
		return s.end
	}
	return t
}

// SyscallConn implements syscall.Conn: the client library looks whether a connection that was idle is still alive.
func (s *socket) SyscallConn() (syscall.RawConn, error) {
	inner, ok := s.Conn.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return inner.SyscallConn()
}
