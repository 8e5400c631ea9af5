package pgbackend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dlock-go/dlock/backend"
)

// Codes of PostgreSQL's errors.
const (
	codeReadOnly        = "25006"
	codeQueueFull       = "54000" // of NOTIFY
	codeNoPrivilege     = "42501"
	codeUnknownColumn   = "42703"
	codeWrongType       = "42804"
	codeUnknownOperator = "42883"
	codeNoUniqueIndex   = "42P10"
	codeWrongKind       = "42809" // not a table
	codeProtocol        = "08P01" // PgBouncer's answer to all that it cannot serve
	codeUnknownSetting  = "42704"
	codeDuplicateKey    = "23505"
	codeDuplicateTable  = "42P07"
	codeDuplicateObject = "42710" // the type of the rows of a table
)

// interpretError gives the errors of pgx their meaning. ErrUnavailable, ErrConflict and
// ErrUnsupported mean that the statement has changed nothing. An error that gets none of them is an
// unknown outcome: the core then repeats the request under the same owner, or its release.
//
// The server sends an error of the severity ERROR instead of the answer, after it has rolled the
// statement back. A FATAL error ends the connection, and can arrive after the commit: it is
// unknown, as is a connection that ends.
func interpretError(err error) error {
	_, connects := errors.AsType[*pgconn.ConnectError](err)
	err = withoutConfig(err)
	switch {
	case err == nil, isSentinel(err):
		return err
	case connects: // also by a timeout of its own
		return fmt.Errorf("%w: %w", connectSentinel(err), err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case pgconn.SafeToRetry(err):
		return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	case !isAnswer(err):
		return err
	case hasCode(err, codeUnknownColumn, codeWrongType, codeUnknownOperator, codeNoUniqueIndex,
		codeWrongKind):
		return fmt.Errorf("%w: the table is not dlock's: %w", backend.ErrConflict, err)
	}
	return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
}

// configError has the text and the cause of an error about connecting, without the configuration.
type configError struct {
	text  string
	cause error
}

func (e *configError) Error() string { return e.text }

func (e *configError) Unwrap() error { return e.cause }

// withoutConfig replaces an error of pgx that has the configuration of the connection, and with it
// the password. Its text has no password, but programs that print or report all fields of an error
// would show it. The cause of a URL that pgx cannot parse may contain the URL, so it is dropped.
func withoutConfig(err error) error {
	if _, ok := errors.AsType[*pgconn.ParseConfigError](err); ok {
		return &configError{text: err.Error()}
	}
	if connect, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return &configError{err.Error(), withoutConfig(connect.Unwrap())}
	}
	return err
}

// isAnswer reports whether err is an answer of the server, after which the connection goes on. It
// reads the severity that is not translated: the other one is in the language of the server.
func isAnswer(err error) bool {
	answer, ok := errors.AsType[*pgconn.PgError](err)
	return ok && answer.SeverityUnlocalized == "ERROR"
}

// unsent gives the error of a request that was not sent its meaning, for example the error of a
// closed pool. Its outcome is never unknown.
func unsent(err error) error {
	err = interpretError(err)
	if !isSentinel(err) {
		return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	return err
}

// isSentinel reports whether err has a meaning already.
func isSentinel(err error) bool {
	for _, sentinel := range []error{
		backend.ErrConflict, backend.ErrUnavailable, backend.ErrUnsupported,
	} {
		if errors.Is(err, sentinel) {
			return true
		}
	}
	return false
}

// connectSentinel returns the meaning of a connection that could not be made. ErrUnsupported ends a
// Lock, so it is only for errors that no later attempt can overcome.
func connectSentinel(err error) error {
	answer, _ := errors.AsType[*pgconn.PgError](err)
	switch {
	case hasCode(err, codeProtocol) && strings.Contains(answer.Message, "startup parameter"):
		return errPooler // at other times PgBouncer cannot reach its server, or is full
	case hasCode(err, codeUnknownSetting):
		return errOld
	}
	return backend.ErrUnavailable
}

// hasCode reports whether err is an error of the server with one of the codes.
func hasCode(err error, codes ...string) bool {
	answer, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return false
	}
	return slices.Contains(codes, answer.Code)
}
