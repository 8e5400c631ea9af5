// Package guard runs the command of dlock run under a guard process. The guard is the parent of the
// command, and keeps all processes of the job in its reach. It ends the job when dlock is killed,
// and at the end of the lease if dlock is stopped. On Windows there is no guard process.
//
// A program that imports this package is a guard if its first argument is [Name].
package guard

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"
)

// LookInterval is how often dlock and its guard check whether a group has ended: no signal reports
// the end of its last process.
const LookInterval = 5 * time.Millisecond

// The exit codes of a command that cannot start, as in sh.
const (
	CodeNoExec   = 126 // the command cannot be executed
	CodeNotFound = 127 // the command does not exist
)

// Command is a command before its start.
type Command struct {
	Program string   // the file of dlock itself, which the guard executes
	Path    string   // the file of the command
	Args    []string // its words, beginning with its name
	Env     []string // its whole environment
	Files   [3]*os.File
}

// StartError is the reason why a command cannot run. Code is the exit code of sh for that reason.
// IsPassing is true if a later attempt may succeed without a change of the command.
type StartError struct {
	Code      int
	IsPassing bool
	text      string
}

// passing are errors of a system that is short of processes, memory or descriptors, and the error
// of a file that is being written.
var passing = []error{
	syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.ETXTBSY,
}

func isPassing(err error) bool {
	return slices.ContainsFunc(passing, func(p error) bool { return errors.Is(err, p) })
}

func (e *StartError) Error() string { return e.text }

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// loaderOf says which other program the system needs to execute a file.
func loaderOf(path string) string {
	const mark = "#!"
	begin := make([]byte, len(mark))
	file, err := os.Open(path)
	if err == nil {
		defer file.Close()
		_, err = io.ReadFull(file, begin)
	}
	if err == nil && string(begin) != mark {
		return "dynamic loader that it needs"
	}
	return "program that it names behind " + mark
}

// CannotRun returns the error of a command that cannot start because of err. As in sh, a missing
// command and a command that is not executable have different exit codes.
func CannotRun(name string, err error) *StartError {
	if errors.Is(err, fs.ErrNotExist) {
		text := name + ": command not found"
		if executed, ok := errors.AsType[*fs.PathError](err); ok && exists(executed.Path) {
			text = fmt.Sprintf("%s: the %s was not found", name, loaderOf(executed.Path))
		}
		return &StartError{Code: CodeNotFound, text: text}
	}
	// The errors of package os repeat the path.
	if inner, ok := errors.AsType[*fs.PathError](err); ok {
		err = inner.Err
	}
	return &StartError{
		Code: CodeNoExec, IsPassing: isPassing(err),
		text: fmt.Sprintf("%s: cannot be executed: %v", name, err),
	}
}
