//go:build darwin || dragonfly || freebsd || linux

package filebackend

import (
	"context"
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/dlock-go/dlock/backend"
)

var _ backend.Sweeper = (*driver)(nil)

// Sweep implements backend.Sweeper: what is left of a free lock is its file.
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

// sweep removes a file while it has it locked. Who is about to lock it finds it gone.
func sweep(path string) error {
	f, err := openLock(path, unix.O_RDWR)
	if err != nil {
		return err
	}
	defer f.close()
	free, err := f.tryLock()
	if err != nil || !free {
		return err
	}
	return interpret("unlink", path, ignoreInterrupts(func() error { return unix.Unlink(path) }))
}
