//go:build unix

package runner

import (
	"errors"
	"syscall"
)

// Pause implements Control.
func (p *process) Pause() error { return p.current.cmd.Process.Signal(syscall.SIGSTOP) }

// Resume implements Control.
func (p *process) Resume() error { return p.current.cmd.Process.Signal(syscall.SIGCONT) }

// isGone reports whether there is no process with that id.
func isGone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
