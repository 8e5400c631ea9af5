package filebackend

import (
	"errors"

	"golang.org/x/sys/unix"
)

// flush writes the contents of fd to the disk. On this system fsync(2) leaves them in the cache of
// the drive, which a power cut empties. A file system without F_FULLFSYNC has only fsync.
func flush(fd int) error {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_FULLFSYNC, 0)
	if errors.Is(err, unix.ENOTSUP) {
		return unix.Fsync(fd)
	}
	return err
}

// flushNames writes the names in the directory fd to the disk.
func flushNames(fd int) error { return flush(fd) }
