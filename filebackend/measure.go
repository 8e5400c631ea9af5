//go:build darwin || dragonfly || freebsd || linux

package filebackend

import (
	"context"
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/measure"
)

var _ measure.Sweeper = (*driver)(nil)

// Sweep implements measure.Sweeper. The remains of a free lock are its file. There is no Floor and
// there are no Counters: no server handles requests.
func (d *driver) Sweep(ctx context.Context, names []string) error {
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := sweep(d.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// sweep removes the lock file at path if it is free.
func sweep(path string) error {
	f, err := openLock(path, unix.O_RDWR)
	if err != nil {
		return err
	}
	defer f.close()
	return f.remove()
}

// remove removes f if it is free. It locks f first, so that a driver which is about to lock f finds
// it gone afterwards. A file that replaced f meanwhile belongs to another process and stays.
func (f *lockFile) remove() error {
	free, err := f.tryLockFor(backend.Exclusive)
	if err != nil || !free {
		return err
	}
	current, err := f.inPlace()
	if err == nil && current {
		err = ignoreInterrupts(func() error { return unix.Unlink(f.path) })
	}
	return interpretError("unlink", f.path, err)
}
