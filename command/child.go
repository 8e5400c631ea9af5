package command

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"runtime"
)

// child is the command while it runs. Its methods are called from one goroutine.
type child struct {
	cmd   *exec.Cmd
	group bool          // it leads a process group of its own
	done  chan struct{} // closed when the command has ended and was waited for
}

// startChild starts cmd, in a process group of its own or in ours.
func startChild(cmd *exec.Cmd, group bool) (*child, error) {
	c := &child{cmd: cmd, group: group, done: make(chan struct{})}
	setAttributes(cmd, group)
	started := make(chan error)
	go func() {
		// Pdeathsig goes out when the thread that forked ends, not the process: the
		// thread is this goroutine's for as long as the command runs (go.dev/issue/27505).
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // ProcessState tells how it ended
			close(c.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, cannotRun(cmd.Args[0], err)
	}
	return c, nil
}

// Done is closed when the command itself has ended.
func (c *child) Done() <-chan struct{} { return c.done }

// running reports whether the command itself has not ended.
func (c *child) running() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

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
		return &exitError{exitNotFound, fmt.Errorf("%s: command not found", name)}
	}
	// The path stands in the error of package os, and again in that of exec.
	if inner, ok := errors.AsType[*fs.PathError](err); ok {
		err = inner.Err
	} else if inner, ok := errors.AsType[*exec.Error](err); ok {
		err = inner.Err
	}
	return &exitError{exitNoExec, fmt.Errorf("%s: cannot be executed: %w", name, err)}
}
