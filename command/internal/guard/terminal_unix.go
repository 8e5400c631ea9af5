//go:build unix

package guard

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// terminal is the controlling terminal of dlock and its guard. A nil *terminal
// means that there is none.
type terminal struct {
	fd    int
	group int         // dlock's process group
	modes *term.State // at the start; nil if unknown
}

// openTerminal returns nil if the process has no controlling terminal.
func openTerminal(group int) *terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	modes, _ := term.GetState(fd)
	return &terminal{fd: fd, group: group, modes: modes}
}

// terminalModes returns the present modes of the controlling terminal, or nil if there is none.
func terminalModes() *term.State {
	t := openTerminal(0)
	if t == nil {
		return nil
	}
	defer t.close()
	return t.modes
}

func (t *terminal) close() {
	if t != nil {
		_ = unix.Close(t.fd)
	}
}

// front returns the group in the foreground, or 0 if it is unknown.
func (t *terminal) front() int {
	if t == nil {
		return 0
	}
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return group
}

// has reports whether group is in the foreground.
func (t *terminal) has(group int) bool { return group != 0 && t.front() == group }

// isWith reports whether group is in the foreground, or has ended there. Some systems then leave
// the terminal without a group.
func (t *terminal) isWith(group int) bool {
	if t == nil || t.isGone() {
		return false
	}
	front := t.front()
	return front == group || front <= 0 || syscall.Kill(-front, 0) == syscall.ESRCH
}

// isGone reports whether the terminal has hung up.
func (t *terminal) isGone() bool {
	_, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	return err != nil
}

// ours reports whether dlock's group is in the foreground.
func (t *terminal) ours() bool { return t != nil && t.has(t.group) }

// give puts group into the foreground.
func (t *terminal) give(group int) {
	fromTheBackground(func() { _ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group) })
}

// fromTheBackground calls fn with SIGTTOU ignored. Otherwise the system stops a process that
// changes its terminal from the background. Only Notify undoes an Ignore.
func fromTheBackground(fn func()) {
	signal.Ignore(syscall.SIGTTOU)
	fn()
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTTOU)
}

// take puts dlock's group into the foreground.
func (t *terminal) take() { t.give(t.group) }

// restore sets the modes that the terminal had at the start, as shells do after a signal
// has ended a command. A killed editor, for example, leaves the echo off. dlock's group
// must be in the foreground.
func (t *terminal) restore() {
	if t.modes != nil {
		fromTheBackground(func() { _ = term.Restore(t.fd, t.modes) })
	}
}

// isOrphaned reports whether no shell of the session waits for group, which is dlock's (POSIX,
// orphaned process group). If such a group were stopped, no shell could continue it.
func isOrphaned(group int, parentOf func(int) int) bool {
	session, err := unix.Getsid(0)
	if err != nil {
		return true
	}
	for pid := syscall.Getppid(); pid > 0; pid = parentOf(pid) {
		if of, err := unix.Getsid(pid); err != nil || of != session {
			return true
		}
		if of, err := syscall.Getpgid(pid); err != nil || of != group {
			return err != nil
		}
	}
	return true
}
