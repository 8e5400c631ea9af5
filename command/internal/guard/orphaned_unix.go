//go:build unix

package guard

import "syscall"

// IsOrphaned reports whether no shell could continue this process after a stop.
func IsOrphaned() bool { return isOrphaned(syscall.Getpgrp(), parentOf) }

// IsForeground reports whether this process is in the foreground of its terminal.
func IsForeground() bool {
	t := openTerminal(syscall.Getpgrp())
	defer t.close()
	return t.ours()
}
