//go:build unix

package command

import (
	"errors"
	"os"
	"syscall"
)

// interrupts are the signals that end dlock while it has no command running.
var interrupts = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

// relayed returns the further signals that are handed on to a running command.
//
// In a group of its own it gets none from the terminal, so all go through us. In
// ours it gets those of the terminal together with us; that leaves the two
// which only a program sends. SIGCONT is wanted in any case: a lease may have
// ended while we were stopped.
func relayed(group bool) []os.Signal {
	signals := []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT}
	if group {
		signals = append(signals, syscall.SIGWINCH, syscall.SIGTSTP)
	}
	return signals
}

// forward hands on a signal that we got in the command's stead: to the command
// alone what means nothing to others, and to its group what a terminal or a
// supervisor sends to a whole job.
//
// With the group shared, only what a terminal never sends is handed on, so that
// nothing arrives twice.
func (c *child) forward(sig os.Signal) {
	switch {
	case sig == syscall.SIGUSR1, sig == syscall.SIGUSR2, !c.group && sig == syscall.SIGTERM:
		_ = c.cmd.Process.Signal(sig) // it may have ended just now
	case !c.group:
	case sig == syscall.SIGTSTP:
		c.stop()
	default:
		c.signal(sig.(syscall.Signal))
	}
}

// stop stops the command and then dlock, as a terminal would have done with
// both. It is SIGSTOP, since nobody watches over a command that ignores SIGTSTP.
func (c *child) stop() {
	c.signal(syscall.SIGSTOP)
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
}

// terminate asks the command to end, and its group; also one that is stopped.
func (c *child) terminate() {
	c.signal(syscall.SIGTERM)
	c.signal(syscall.SIGCONT)
}

// kill ends the command, and its group.
func (c *child) kill() { c.signal(syscall.SIGKILL) }

// signal signals the group where it is the command's own, else the command.
func (c *child) signal(sig syscall.Signal) {
	if !c.group {
		_ = c.cmd.Process.Signal(sig)
		return
	}
	// A group outlives its leader and keeps its number reserved; an empty one is ESRCH.
	_ = syscall.Kill(-c.cmd.Process.Pid, sig)
}

// alive reports whether anything is left of the command, or of its group.
func (c *child) alive() bool {
	if c.running() { // asked once: it may end at any moment, and its group be left
		return true
	}
	if !c.group {
		return false
	}
	// As the first process of a container we inherit its orphans: a zombie counts
	// as a member until somebody waits for it.
	for {
		if pid, err := syscall.Wait4(-c.cmd.Process.Pid, nil, syscall.WNOHANG, nil); pid <= 0 && !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	return !errors.Is(syscall.Kill(-c.cmd.Process.Pid, 0), syscall.ESRCH)
}

// exitCode is the command's own, or 128 and the signal that ended it. It is
// called after done is closed.
func (c *child) exitCode() int {
	if status, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return exitSignal + int(status.Signal())
	}
	return c.cmd.ProcessState.ExitCode()
}
