//go:build darwin || dragonfly || freebsd || linux

package filebackend

import (
	"context"
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/dlock-go/dlock/backend/measure"
)

var _ measure.Sweeper = (*driver)(nil)

// Sweep implements measure.Sweeper: what is left of a free lock is its file.
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

// sweep removes the file at path if it is free.
func sweep(path string) error {
	f, err := openLock(path, unix.O_RDWR)
	if err != nil {
		return err
	}
	defer f.close()
	return f.remove()
}

// remove removes f while it has it locked: a driver that is about to lock it finds it gone. What
// has come in its place meanwhile is another's.
func (f *lockFile) remove() error {
	free, err := f.tryLock()
	if err != nil || !free {
		return err
	}
	current, err := f.inPlace()
	if err == nil && current {
		err = ignoreInterrupts(func() error { return unix.Unlink(f.path) })
	}
	return interpret("unlink", f.path, err)
}
