package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/dlock-go/dlock"
)

// The exit codes: those of sysexits(3) where it has a fitting one, and the
// shell's. In between they are the command's own.
const (
	exitNo          = 1   // nothing to break, or not wanted; or the output was not
	exitUsage       = 64  // command line or URL
	exitUnavailable = 69  // the backend cannot be reached or does not answer
	exitNotAcquired = 75  // the lock was not to be had in time
	exitLost        = 76  // the lock was lost while the command ran
	exitUnsupported = 78  // the backend cannot do what is asked
	exitNoExec      = 126 // the command cannot be executed
	exitNotFound    = 127 // the command does not exist
	exitSignal      = 128 // plus the number of the signal
)

// sentinels maps what dlock's errors say to exit codes; the first that fits counts.
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

// exitError gives an error another exit code than its sentinel's. Without an
// error it says nothing: the code is the command's own.
type exitError struct {
	code   int
	err    error
	signal syscall.Signal // it has ended the command; 0: none
	key    bool           // a key of the terminal may have sent it
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// interrupted says that a signal came before the work was done.
type interrupted struct{ signal syscall.Signal }

func (e interrupted) Error() string { return "ended by a signal: " + e.signal.String() }

// usagef is an error of the command line.
func usagef(format string, args ...any) error {
	return &exitError{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// exitCode is the one place that maps errors to exit codes. What nobody
// classified is the fault of the command line or of the URL, until a connection
// stands: then it is the backend's. That leaves standard output.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if exit, ok := errors.AsType[*exitError](err); ok {
		return exit.code
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
	return exitUsage
}

// message is what standard error shows of err: one line, the name of the
// program left to the caller.
func message(err error) string {
	if err == nil {
		return ""
	}
	lines := strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' })
	return strings.ReplaceAll(strings.Join(lines, "; "), "dlock: ", "")
}
