package mysqlbackend

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/dlock-go/dlock/backend"
)

// Numbers of server errors that are used outside of interpretError.
const (
	errNull        = 1048 // ER_BAD_NULL_ERROR; see hasNoName
	errLockWait    = 1205 // ER_LOCK_WAIT_TIMEOUT
	errDeadlock    = 1213 // ER_LOCK_DEADLOCK
	errNoColumn    = 1054 // ER_BAD_FIELD_ERROR
	errPacket      = 1153 // ER_NET_PACKET_TOO_LARGE: the server has not read the statement
	errInterrupted = 1317 // ER_QUERY_INTERRUPTED
	errTimedOut    = 3024 // ER_QUERY_TIMEOUT
	errNoWait      = 3572 // ER_LOCK_NOWAIT; MariaDB answers errLockWait

	errUnknownStatement = 1243 // ER_UNKNOWN_STMT_HANDLER: a proxy has moved the session
	errNeedReprepare    = 1615 // ER_NEED_REPREPARE
)

// errReadOnly means that the server is not the writer. errLeaving also makes database/sql close the
// connection and try another.
var (
	errReadOnly = fmt.Errorf("%w: the server is read-only", backend.ErrUnavailable)
	errLeaving  = fmt.Errorf("%w: %w", errReadOnly, sqldriver.ErrBadConn)
)

// refusals are the errors of a server that has not executed a statement, or has rolled it back. It
// may execute the statement later, or another server may. Each statement is a transaction of its
// own, so nothing of it remains.
var refusals = []uint16{
	1020, // ER_CHECKREAD: the row has changed meanwhile
	1021, // ER_DISK_FULL
	1040, // ER_CON_COUNT_ERROR
	1044, // ER_DBACCESS_DENIED_ERROR
	1045, // ER_ACCESS_DENIED_ERROR
	errNull,
	1047, // ER_UNKNOWN_COM_ERROR: a Galera node that is not ready
	1049, // ER_BAD_DB_ERROR
	1114, // ER_RECORD_FILE_FULL
	1129, // ER_HOST_IS_BLOCKED
	1130, // ER_HOST_NOT_PRIVILEGED
	1142, // ER_TABLEACCESS_DENIED_ERROR
	1143, // ER_COLUMNACCESS_DENIED_ERROR
	1146, // ER_NO_SUCH_TABLE
	errPacket,
	1203, // ER_TOO_MANY_USER_CONNECTIONS
	errLockWait,
	errDeadlock,
	errNoWait,
	1226, // ER_USER_LIMIT_REACHED
	1227, // ER_SPECIFIC_ACCESS_DENIED_ERROR
	1301, // ER_WARN_ALLOWED_PACKET_OVERFLOWED: a roster would be longer than a packet
	1290, // ER_OPTION_PREVENTS_STATEMENT: read-only
	1792, // ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION
	1836, // ER_READ_ONLY_MODE
	3101, // ER_TRANSACTION_ROLLBACK_DURING_COMMIT: by group replication
}

// mismatches are the errors of a table with other columns than schema.sql.
var mismatches = []uint16{
	errNoColumn,
	1264, // ER_WARN_DATA_OUT_OF_RANGE
	1364, // ER_NO_DEFAULT_FOR_FIELD
	1366, // ER_TRUNCATED_WRONG_VALUE_FOR_FIELD
	1406, // ER_DATA_TOO_LONG
}

// gaps are the errors of a server that does not understand the driver's statements.
var gaps = []uint16{
	1064, // ER_PARSE_ERROR
	1305, // ER_SP_DOES_NOT_EXIST
}

// unreadables are the errors of a server whose functions for JSON cannot read the text of a roster.
// The statement has changed nothing. The last eight are MariaDB's.
var unreadables = []uint16{
	1300, // ER_INVALID_CHARACTER_STRING
	3140, // ER_INVALID_JSON_TEXT
	3141, // ER_INVALID_JSON_TEXT_IN_PARAM
	3143, // ER_INVALID_JSON_PATH
	3144, // ER_INVALID_JSON_CHARSET
	3146, // ER_INVALID_TYPE_FOR_JSON
	3156, // ER_INVALID_JSON_VALUE_FOR_CAST
	3157, // ER_JSON_DOCUMENT_TOO_DEEP
	3854, // ER_CANNOT_CONVERT_STRING
	4035, // ER_JSON_BAD_CHR
	4036, // ER_JSON_NOT_JSON_CHR
	4037, // ER_JSON_EOS
	4038, // ER_JSON_SYNTAX
	4039, // ER_JSON_ESCAPING
	4040, // ER_JSON_DEPTH
	4041, // ER_JSON_PATH_EOS
	4042, // ER_JSON_PATH_SYNTAX
}

// isUnreadable reports whether err proves that the server has not executed a statement with
// functions for JSON, and never will: the driver then has to read the roster itself.
func isUnreadable(err error) bool {
	return hasNumber(err, unreadables...) || errors.Is(err, backend.ErrConflict) ||
		errors.Is(err, backend.ErrUnsupported)
}

// interpretError classifies an error of the client library. It wraps a definite answer in its
// sentinel; any other error leaves the outcome unknown. ctx is the context of the call: an error
// after its end is reported as its end. The library's errors contain no password, as
// TestOpenExplainsWithoutSecrets checks, so nothing is redacted.
func interpretError(ctx context.Context, err error) error {
	switch {
	case err == nil || errors.Is(err, backend.ErrUnavailable): // from the connector
		return err
	case hasNoName(err):
		return fmt.Errorf("%w: %w", errReadOnly, err)
	case hasNumber(err, mismatches...):
		return fmt.Errorf("%w: %w", backend.ErrConflict, err)
	case hasNumber(err, gaps...):
		return fmt.Errorf("%w: %w", backend.ErrUnsupported, err)
	case isUnsent(err) && ctx.Err() != nil: // the end may have closed the connection
		return fmt.Errorf("%w: %w: %w", backend.ErrUnavailable, ctx.Err(), err)
	case isUnsent(err) || hasNumber(err, refusals...):
		return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	case ctx.Err() != nil && !errors.Is(err, ctx.Err()):
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return err
}

// isUnsent reports whether err means that the statement was not executed because it has not left
// the client. The client library returns ErrBadConn only then, or if the server has reported that
// it is read-only.
func isUnsent(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return true
	}
	return errors.Is(err, sqldriver.ErrBadConn)
}

// isDefinite reports whether err describes the server, or means that nothing was executed. The core
// does not repeat or release such a request because of an unknown outcome.
func isDefinite(err error) bool {
	return errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrUnsupported) ||
		errors.Is(err, backend.ErrConflict)
}

// isReply reports whether err is an answer of the server, with any number.
func isReply(err error) bool {
	_, ok := errors.AsType[*mysql.MySQLError](err)
	return ok
}

// isInterrupted reports whether err is an answer of the server that leaves the outcome unknown, for
// example after a KILL QUERY. The connection goes on.
func isInterrupted(err error) bool { return isReply(err) && !isDefinite(err) }

// hasNoName reports whether err is the answer of a read-only server to acquire.sql.
func hasNoName(err error) bool {
	reply, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && reply.Number == errNull &&
		strings.Contains(strings.ToLower(reply.Message), "'name'")
}

// hasNumber reports whether err is an answer of the server with one of these numbers.
func hasNumber(err error, numbers ...uint16) bool {
	reply, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && slices.Contains(numbers, reply.Number)
}
