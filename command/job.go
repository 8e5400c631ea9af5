package command

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
)

// lookCommand finds a command as sh does, so that a misspelt command fails before dlock waits for
// the lock. Unlike package exec, it accepts a command in "." if PATH names that directory.
func lookCommand(name string) (path string, err error) {
	path, err = exec.LookPath(name)
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return "", cannotRun(name, err)
	}
	return path, nil
}

// cannotRun returns the error of a command that cannot start. As in sh, a missing command and a
// command that is not executable have different exit codes.
func cannotRun(name string, err error) error {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return &exitError{code: exitNotFound, err: fmt.Errorf("%s: command not found", name)}
	}
	// The errors of package os and of package exec repeat the path.
	if inner, ok := errors.AsType[*fs.PathError](err); ok {
		err = inner.Err
	} else if inner, ok := errors.AsType[*exec.Error](err); ok {
		err = inner.Err
	}
	return &exitError{code: exitNoExec, err: fmt.Errorf("%s: cannot be executed: %w", name, err)}
}
