//go:build darwin || dragonfly || freebsd || linux

package filebackend

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/dlock-go/dlock/backend"
)

var (
	errFair     = fmt.Errorf("%w: file: waiters are in no order", backend.ErrUnsupported)
	errMode     = fmt.Errorf("%w: file: exclusive locks only", backend.ErrUnsupported)
	errReleased = fmt.Errorf("%w: file: released before it was granted", backend.ErrUnavailable)
	errHangs    = fmt.Errorf("%w: file: the disk does not answer: its locks are freed when it does", backend.ErrUnavailable)
	errUnknown  = fmt.Errorf("%w: file: this driver does not hold it", backend.ErrLost)
)

// errRemoved says that a held lock file is not in its place any more.
func errRemoved(path string) error {
	return fmt.Errorf("%w: file: %s was removed or replaced while it was held", backend.ErrLost, path)
}

// interpret makes a system's error one of the contract. What is wrong with the file
// itself does not pass by waiting: ErrConflict. All else may: nothing was granted.
func interpret(op, path string, err error) error {
	if err == nil {
		return nil
	}
	pathErr := &fs.PathError{Op: op, Path: path, Err: err}
	for _, definite := range []error{
		unix.EACCES, unix.EPERM, unix.EROFS, unix.EISDIR, unix.ENOTDIR, unix.ENXIO,
		unix.ELOOP, unix.EMLINK, // O_NOFOLLOW met a symbolic link; the second is FreeBSD's
	} {
		if errors.Is(err, definite) {
			return fmt.Errorf("%w: file: %w", backend.ErrConflict, pathErr)
		}
	}
	return fmt.Errorf("%w: file: %w", backend.ErrUnavailable, pathErr)
}
