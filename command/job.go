package command

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
)

// lookCommand finds a command as sh does, so that a misspelt one need not wait
// for a lock. Unlike package exec it takes one from "." where PATH says so.
func lookCommand(name string) (path string, err error) {
	path, err = exec.LookPath(name)
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return "", cannotRun(name, err)
	}
	return path, nil
}

// cannotRun tells as sh does whether a command is missing or not executable.
func cannotRun(name string, err error) error {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return &exitError{code: exitNotFound, err: fmt.Errorf("%s: command not found", name)}
	}
	// The path stands in the error of package os, and again in that of exec.
	if inner, ok := errors.AsType[*fs.PathError](err); ok {
		err = inner.Err
	} else if inner, ok := errors.AsType[*exec.Error](err); ok {
		err = inner.Err
	}
	return &exitError{code: exitNoExec, err: fmt.Errorf("%s: cannot be executed: %w", name, err)}
}
