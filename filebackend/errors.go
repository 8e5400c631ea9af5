//go:build darwin || dragonfly || freebsd || linux

package filebackend

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/dlock-go/dlock/backend"
)

// The sentinels of the driver. There is no redaction, because a URL of this driver has no secrets.
var (
	errFair     = fmt.Errorf("%w: file: waiters are in no order", backend.ErrUnsupported)
	errReleased = fmt.Errorf("%w: file: released before it was granted", backend.ErrUnavailable)
	errHangs    = fmt.Errorf("%w: file: the disk does not answer: its locks are freed when it does",
		backend.ErrUnavailable)
	errNetwork = fmt.Errorf("%w: file: there are no readers and permits on a network file system",
		backend.ErrUnsupported)
	// errGate leaves a waiter as it is, because the attempt has done nothing.
	errGate = fmt.Errorf("%w: file: another process has locked the directory of the members",
		backend.ErrUnavailable)
	errSetRemoved = fmt.Errorf("%w: file: the directory of the members was removed",
		backend.ErrUnavailable)
	errUnknown = fmt.Errorf("%w: file: this driver does not hold it", backend.ErrLost)
)

// errRemoved returns the loss of a held lock with a file that is not in its place any more.
func errRemoved(path string) error {
	return fmt.Errorf("%w: file: %s was removed or replaced while it was held",
		backend.ErrLost, path)
}

// errDropped returns the loss of a lock with a file that its network file system refuses to write.
func errDropped(path string, err error) error {
	return fmt.Errorf("%w: file: the server of %s has dropped it: %w", backend.ErrLost, path, err)
}

// interpretError gives the error of a system call a sentinel of the contract, and returns nil for
// nil. All are definite: the driver grants nothing after a failed call. ErrConflict means that the
// file itself is unusable, and that another attempt will fail, too. ErrUnsupported means this of
// the whole file system. ErrUnavailable may pass.
func interpretError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	pathErr := &fs.PathError{Op: op, Path: path, Err: err}
	if errors.Is(err, unix.EROFS) {
		return readOnly(pathErr)
	}
	for _, permanent := range []error{
		unix.EACCES, unix.EPERM, unix.EISDIR, unix.ENOTDIR, unix.ENXIO,
		unix.ELOOP, unix.EMLINK, // O_NOFOLLOW on a symbolic link; FreeBSD returns the second one
	} {
		if errors.Is(err, permanent) {
			return fmt.Errorf("%w: file: %w", backend.ErrConflict, pathErr)
		}
	}
	return fmt.Errorf("%w: file: %w", backend.ErrUnavailable, pathErr)
}

// readOnly returns the error of a file system that refuses every change. err names the path.
func readOnly(err error) error {
	return fmt.Errorf("%w: file: locks need a file system that can be written, so name "+
		"another directory: %w", backend.ErrUnsupported, err)
}
