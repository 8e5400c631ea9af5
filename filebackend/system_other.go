//go:build darwin || dragonfly || freebsd

package filebackend

import "golang.org/x/sys/unix"

// These systems have no second kind of lock that could be queried: a POSIX lock would end with any
// descriptor of the file in the process. So a query tries the flock itself, shared and for an
// instant. An attempt in that instant is answered with *Busy.

// mark does nothing: the flock is the mark.
func mark(int) error { return nil }

// unmark does nothing.
func unmark(int) error { return nil }

// isMarked reports whether another descriptor has locked fd's file.
func isMarked(fd int) (bool, error) {
	err := unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB)
	switch err { //nolint:errorlint // a system call's own
	case nil:
		return false, unix.Flock(fd, unix.LOCK_UN)
	case unix.EWOULDBLOCK:
		return true, nil
	default:
		return false, err
	}
}

// withoutSignals calls f. These systems keep no order of waiters that a signal could change.
func withoutSignals(f func() error) error { return f() }

// bootID returns "", unknown: the driver syncs every fence.
func bootID() string { return "" }

// networkFS returns a name for the file system of dir if it is not a local one, and otherwise "".
func networkFS(dir string) (string, error) {
	var stat unix.Statfs_t
	if err := ignoreInterrupts(func() error { return unix.Statfs(dir, &stat) }); err != nil {
		return "", err
	}
	if stat.Flags&unix.MNT_LOCAL != 0 {
		return "", nil
	}
	return "a network file system", nil
}

// inMemory reports whether the files of dir are in memory only, so that a restart of the machine
// removes them.
func inMemory(dir string) bool {
	var stat unix.Statfs_t
	err := ignoreInterrupts(func() error { return unix.Statfs(dir, &stat) })
	return err == nil && unix.ByteSliceToString(stat.Fstypename[:]) == "tmpfs"
}
