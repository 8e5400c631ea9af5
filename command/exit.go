package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/command/internal/guard"
)

// The exit codes are from sysexits(3), if it has a fitting code, and from the shell. All other
// codes are the exit codes of the command.
const (
	exitNo          = 1  // the answer is no, such as nothing to break; or a file cannot be written
	exitUsage       = 64 // command line or URL
	exitUnavailable = 69 // the backend cannot be reached or does not answer
	exitNotAcquired = 75 // the lock was not acquired in time
	exitLost        = 76 // the lock was lost while the command ran
	exitUnsupported = 78 // the backend does not support the request
	exitNoExec      = guard.CodeNoExec
	exitNotFound    = guard.CodeNotFound
	exitSignal      = 128 // plus the number of the signal
)

// sentinels maps dlock's errors to exit codes. The first match counts.
var sentinels = []struct {
	err  error
	code int
}{
	{dlock.ErrLost, exitLost},
	{dlock.ErrInvalidName, exitUsage},
	{dlock.ErrUnsupported, exitUnsupported},
	{dlock.ErrConflict, exitUnsupported},
	{dlock.ErrUnavailable, exitUnavailable},
	{dlock.ErrUncertain, exitUnavailable},
	{context.DeadlineExceeded, exitUnavailable},
	{dlock.ErrNotAcquired, exitNotAcquired},
	{dlock.ErrNotHeld, exitNo},
}

// exitError gives an error another exit code than its sentinel's. Without err it has no message:
// the code is the command's own.
type exitError struct {
	code   int
	err    error
	signal syscall.Signal // the signal that ended the command, or 0
	key    bool           // a key of the terminal may have sent it
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// interrupted is the error if a signal came before the work was done.
type interrupted struct{ signal syscall.Signal }

func (e interrupted) Error() string { return "ended by a signal: " + e.signal.String() }

// seen is an error whose text is on standard error already.
type seen struct{ error }

func (e seen) Unwrap() error { return e.error }

func isSeen(err error) bool {
	_, ok := errors.AsType[seen](err)
	return ok
}

// usagef returns an error of the command line.
func usagef(format string, args ...any) error {
	return &exitError{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// exitCode is the only place that maps errors to exit codes. Before a connection exists, an
// unclassified error is a mistake in the command line or in the URL. After that it is an error of
// the backend. An error of a file is an error of the output.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if exit, ok := errors.AsType[*exitError](err); ok {
		return exit.code
	}
	if failed, ok := errors.AsType[*guard.StartError](err); ok {
		return failed.Code
	}
	if signal, ok := errors.AsType[interrupted](err); ok {
		return exitSignal + int(signal.signal)
	}
	for _, sentinel := range sentinels {
		if errors.Is(err, sentinel.err) {
			return sentinel.code
		}
	}
	if failed, ok := errors.AsType[*dlock.Error](err); ok && failed.Op != "open" {
		return exitUnavailable
	} else if ok {
		return exitUsage
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return exitNo
	}
	if _, ok := errors.AsType[*os.LinkError](err); ok {
		return exitNo
	}
	return exitUsage
}

// message returns the text of err for standard error: one line, without the name of the program.
func message(err error) string {
	if err == nil {
		return ""
	}
	lines := strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' })
	return withoutProgram(strings.Join(lines, "; "))
}

// withoutProgram removes the name of the program where an error of the library begins. A name in
// quotes, or the meta of a holder, can have the same text.
func withoutProgram(text string) string {
	const program = "dlock: "
	var b strings.Builder
	isQuoted, isStart := false, true
	for text != "" {
		if !isQuoted && isStart && strings.HasPrefix(text, program) {
			text = text[len(program):]
			continue
		}
		n := 1
		switch {
		case isQuoted && text[0] == '\\' && len(text) > 1:
			n = 2
		case text[0] == '"':
			isQuoted = !isQuoted
		}
		isStart = text[0] == '(' || text[0] == ' ' && endsClause(b.String())
		b.WriteString(text[:n])
		text = text[n:]
	}
	return b.String()
}

// endsClause reports whether an error may begin after text and a space.
func endsClause(text string) bool {
	return strings.HasSuffix(text, ":") || strings.HasSuffix(text, ";")
}
