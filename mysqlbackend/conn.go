package mysqlbackend

import (
	"cmp"
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/abort"
	"github.com/dlock-go/dlock/internal/session"
)

// connector makes the connections of a driver that is opened by URL. Connect changes none of the
// fields, so connections may be made concurrently.
type connector struct {
	config  *mysql.Config
	hot     []string      // the statements that are worth preparing
	silence time.Duration // the TTL of a session: the sockets have a session.Link; 0: they do not
}

// Driver implements driver.Connector of database/sql.
func (c *connector) Driver() sqldriver.Driver { return mysql.MySQLDriver{} }

// Connect implements driver.Connector of database/sql. Its errors are ErrUnavailable, because no
// statement was sent. It takes no longer than config.Timeout in all, whereas the client library
// limits each of the steps after the dial separately. So a server that accepts connections and does
// not answer costs a request no more than that.
func (c *connector) Connect(ctx context.Context) (sqldriver.Conn, error) {
	began := time.Now()
	bounded, cancel := context.WithCancel(ctx)
	defer cancel()
	bound := c.config.Timeout
	if deadline, ok := ctx.Deadline(); ok { // ctx may have a deadline and no Done
		bound = min(bound, time.Until(deadline))
	}
	defer time.AfterFunc(bound, cancel).Stop()
	conn, err := c.connect(bounded)
	if err != nil && time.Since(began) >= c.config.Timeout && ctx.Err() == nil {
		// This timer, or the library's, has ended it.
		err = fmt.Errorf("not connected within %v", c.config.Timeout)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	return conn, nil
}

// connect makes one connection. It returns the library's own connection if that does not have the
// methods of libraryConn. A panic, which head cannot prevent under TLS, leaves a goroutine.
func (c *connector) connect(ctx context.Context) (_ sqldriver.Conn, err error) {
	s := &socket{silence: c.silence, isEncrypted: c.config.TLS != nil}
	defer rescue(&err, func() { _ = s.Close() })
	config := c.config.Clone()
	config.DialFunc = s.dial
	inner, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	made, err := inner.Connect(ctx)
	if err != nil {
		return nil, err
	}
	s.isReady = true
	library, ok := made.(libraryConn)
	if !ok {
		return made, nil
	}
	return &conn{
		libraryConn: library, socket: s, hot: c.hot,
		prepared: make(map[string]sqldriver.StmtExecContext),
	}, nil
}

// libraryConn has all methods of the client library's connection that database/sql may use.
type libraryConn interface {
	sqldriver.Conn
	sqldriver.ConnBeginTx
	sqldriver.ConnPrepareContext
	sqldriver.ExecerContext
	sqldriver.QueryerContext
	sqldriver.NamedValueChecker
	sqldriver.Pinger
	sqldriver.SessionResetter
	sqldriver.Validator
}

// conn executes statements with less effort than the client library alone. Hot statements are
// prepared, so that the server need not parse them. If a context can only end at its deadline, the
// socket gets this deadline, which saves a goroutine that watches the context. Without prepared
// statements, an uncontended pair of Lock and Unlock takes 20 % longer. As database/sql requires, a
// conn is used by one goroutine at a time.
type conn struct {
	libraryConn
	socket   *socket
	hot      []string // nil once the server has refused a prepared statement
	prepared map[string]sqldriver.StmtExecContext
	isLeft   bool // the server has reported that it is read-only or closes it, or see abandon
}

// isProxied reports whether the server knows the connection by another number than the one in its
// greeting, which has 32 bits.
func (c *conn) isProxied(number uint64) bool { return uint32(number) != c.socket.head.number }

// abandon closes the connection after a panic of the client library. The pool drops it.
func (c *conn) abandon() {
	c.isLeft = true
	_ = c.socket.Close()
}

// ExecContext implements driver.ExecerContext of database/sql. If the answer to a statement of the
// driver reports that the server is read-only, it returns errLeaving: the pool then connects again
// and may reach the writer. The client library does the same for the server's own errors.
func (c *conn) ExecContext(
	ctx context.Context, text string, args []sqldriver.NamedValue,
) (_ sqldriver.Result, err error) {
	defer rescue(&err, c.abandon)
	result, err := c.exec(ctx, text, args)
	c.isLeft = c.isLeft || hasNumber(err, errPacket) // the server closes the connection
	if hasNoName(err) {
		return nil, errLeaving
	}
	if err != nil {
		return nil, err
	}
	if id, err := result.LastInsertId(); err == nil && isReadOnly(text, id) {
		return nil, errLeaving
	}
	return result, nil
}

// Close implements driver.Conn of database/sql, which calls it when no request is under way.
func (c *conn) Close() error {
	c.socket.orderly.Store(true)
	return c.libraryConn.Close()
}

// exec executes a statement, prepared if it is hot. A deadline-only ctx limits the socket.
func (c *conn) exec(
	ctx context.Context, text string, args []sqldriver.NamedValue,
) (sqldriver.Result, error) {
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
		c.hot = nil // this connection prepares nothing more
	}
	return c.libraryConn.ExecContext(ctx, text, args)
}

// QueryContext implements driver.QueryerContext of database/sql.
func (c *conn) QueryContext(
	ctx context.Context, text string, args []sqldriver.NamedValue,
) (_ sqldriver.Rows, err error) {
	defer rescue(&err, c.abandon)
	made, err := c.libraryConn.QueryContext(ctx, text, args)
	c.isLeft = c.isLeft || hasNumber(err, errPacket)
	if err != nil {
		return nil, err
	}
	return c.rowsOf(made), nil
}

// connRows are the rows of a query. If their column is_read_only reports a read-only server, the
// connection is closed, for the same reason as in ExecContext.
type connRows struct {
	sqldriver.Rows
	conn *conn
	at   int // the column that reports it; negative: there is none
}

func (c *conn) rowsOf(made sqldriver.Rows) *connRows {
	return &connRows{made, c, slices.Index(made.Columns(), "is_read_only")}
}

// Next implements driver.Rows of database/sql.
func (r *connRows) Next(dest []sqldriver.Value) (err error) {
	defer rescue(&err, r.conn.abandon)
	err = r.Rows.Next(dest)
	if err == nil && r.at >= 0 && dest[r.at] != int64(0) {
		r.conn.isLeft = true
	}
	return err
}

// Close implements driver.Rows of database/sql. It reads the remaining rows.
func (r *connRows) Close() (err error) {
	defer rescue(&err, r.conn.abandon)
	return r.Rows.Close()
}

// libraryStatement has the methods of the client library's statement that are used.
type libraryStatement interface {
	sqldriver.Stmt
	sqldriver.StmtExecContext
	sqldriver.StmtQueryContext
}

// connStatement is a prepared statement. Its ExecContext is only used by the conn's.
type connStatement struct {
	libraryStatement
	conn *conn
}

// PrepareContext implements driver.ConnPrepareContext of database/sql.
func (c *conn) PrepareContext(ctx context.Context, text string) (_ sqldriver.Stmt, err error) {
	defer rescue(&err, c.abandon)
	made, err := c.libraryConn.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	library, ok := made.(libraryStatement)
	if !ok {
		return made, nil
	}
	return &connStatement{library, c}, nil
}

// QueryContext implements driver.StmtQueryContext of database/sql.
func (s *connStatement) QueryContext(
	ctx context.Context, args []sqldriver.NamedValue,
) (_ sqldriver.Rows, err error) {
	defer rescue(&err, s.conn.abandon)
	made, err := s.libraryStatement.QueryContext(ctx, args)
	if err != nil {
		return nil, err
	}
	return s.conn.rowsOf(made), nil
}

// IsValid implements driver.Validator of database/sql. The pool closes a connection that is not.
func (c *conn) IsValid() bool { return !c.isLeft && c.libraryConn.IsValid() }

// errUnprepared means that the server does not have a prepared statement any more, or accepts no
// further one. The statement was not executed.
var errUnprepared = errors.New("not prepared")

// execPrepared executes a statement that it prepares at its first use. It returns errUnprepared if
// the caller must execute the statement without preparing it.
func (c *conn) execPrepared(
	ctx context.Context, text string, args []sqldriver.NamedValue,
) (sqldriver.Result, error) {
	statement, ok := c.prepared[text]
	if !ok {
		made, err := c.PrepareContext(ctx, text)
		switch {
		case err == nil:
			statement, ok = made.(sqldriver.StmtExecContext)
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !isReply(err): // nothing was executed
			return nil, sqldriver.ErrBadConn
		}
		if !ok {
			return nil, errUnprepared
		}
		c.prepared[text] = statement
	}
	result, err := statement.ExecContext(ctx, args)
	if hasNumber(err, errUnknownStatement, errNeedReprepare) {
		err = errUnprepared
	}
	return result, err
}

// maxAnswer limits the server's answer to one request, in bytes. The client library reads an answer
// of any length into memory. The longest answers are a page of List, with up to 5 MB, and a roster
// of maxRoster bytes.
const maxAnswer = 8 << 20

var errLongAnswer = fmt.Errorf("the answer has more than %d bytes", maxAnswer)

// socket is a network connection with limited answers. Its reads and writes also end at a time of
// the driver, if that is earlier than the client library's deadline. One goroutine at a time reads
// and writes. Only Close may come from another one, which watches a context.
type socket struct {
	net.Conn
	silence     time.Duration // as in connector: Conn is a session.Link; 0: it is none
	isEncrypted bool          // by TLS, after the greeting
	isReady     bool          // the connection is made
	end         time.Time     // of the present request; zero: only the library's deadlines
	answered    int           // bytes since the last request
	head        head          // of the present answer
	orderly     atomic.Bool   // the library closes it with a farewell, and not after a failure
}

// Close implements net.Conn. After a failure it discards what the kernel has not sent, so that the
// server does not execute a request after Capabilities.Late. It does not do so in a session, which
// needs no Late: after the request the server reads the end of the connection, and frees its locks.
func (s *socket) Close() error {
	if s.orderly.Load() {
		return s.Conn.Close()
	}
	return abort.Close(s.Conn)
}

// Write implements net.Conn. The next answer begins after it.
func (s *socket) Write(p []byte) (int, error) {
	s.answered = 0
	s.head.begin(p, s.isReady, s.isEncrypted)
	return s.Conn.Write(p)
}

// Read implements net.Conn. It fails after maxAnswer bytes for one request, and if the client
// library could not read the answer.
func (s *socket) Read(p []byte) (int, error) {
	if s.answered > maxAnswer {
		return 0, errLongAnswer
	}
	n, err := s.Conn.Read(p)
	s.answered += n
	return n, cmp.Or(s.head.check(p[:n]), err)
}

// dial connects the socket and returns it.
func (s *socket) dial(ctx context.Context, network, addr string) (_ net.Conn, err error) {
	s.Conn, err = (&net.Dialer{}).DialContext(ctx, network, addr)
	if err == nil && s.silence > 0 {
		s.Conn = session.NewLink(s.Conn, s.silence)
	}
	return s, err
}

// SetReadDeadline implements net.Conn.
func (s *socket) SetReadDeadline(t time.Time) error { return s.Conn.SetReadDeadline(s.earlier(t)) }

// SetWriteDeadline implements net.Conn.
func (s *socket) SetWriteDeadline(t time.Time) error {
	return s.Conn.SetWriteDeadline(s.earlier(t))
}

// earlier returns the earlier of s.end and the library's deadline t.
func (s *socket) earlier(t time.Time) time.Time {
	if !s.end.IsZero() && s.end.Before(t) {
		return s.end
	}
	return t
}

// SyscallConn implements syscall.Conn. The client library uses it to check whether a connection
// that was idle is still alive.
func (s *socket) SyscallConn() (syscall.RawConn, error) {
	inner, ok := s.Conn.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return inner.SyscallConn()
}
