//go:build unix

package testenv

import (
	"errors"
	"syscall"
)

func (p *process) pause() error  { return p.current.cmd.Process.Signal(syscall.SIGSTOP) }
func (p *process) resume() error { return p.current.cmd.Process.Signal(syscall.SIGCONT) }

// isGone reports whether there is no process of that number.
func isGone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
