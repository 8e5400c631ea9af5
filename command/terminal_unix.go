//go:build unix

package command

import (
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal is the controlling terminal of dlock. A nil *terminal stands for none.
type terminal struct {
	fd    int
	group int // dlock's process group
}

// openTerminal returns nil if the process has no controlling terminal.
func openTerminal() *terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return &terminal{fd: fd, group: syscall.Getpgrp()}
}

func (t *terminal) close() {
	if t != nil {
		_ = unix.Close(t.fd)
	}
}

// has reports whether group is in the foreground.
func (t *terminal) has(group int) bool {
	if t == nil {
		return false
	}
	got, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	return err == nil && got == group
}

// ours reports whether dlock's group is in the foreground.
func (t *terminal) ours() bool { return t != nil && t.has(t.group) }

// give puts group into the foreground. dlock must be there.
func (t *terminal) give(group int) { _ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group) }

// take puts dlock's group into the foreground. A process that does so from the background is
// stopped, unless it ignores SIGTTOU.
func (t *terminal) take() {
	ignored := signal.Ignored(syscall.SIGTTOU)
	signal.Ignore(syscall.SIGTTOU)
	t.give(t.group)
	if !ignored {
		signal.Reset(syscall.SIGTTOU)
	}
}

// isOrphaned reports whether dlock's group could not be continued if it were stopped: no shell of
// the session waits for it (POSIX, orphaned process group).
func isOrphaned() bool {
	group := syscall.Getpgrp()
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
