//go:build darwin || dragonfly || freebsd || linux

package filebackend

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dlock-go/dlock/backend"
)

// lockFile is one open file description of a lock file. The flock belongs to the description: it
// ends when the last of its descriptors is closed.
type lockFile struct {
	path  string
	fd    int
	inode inode
}

// inode identifies a file, whatever its name. As long as a file is open, no other file has its
// inode.
type inode struct{ device, number uint64 }

func inodeOf(stat *unix.Stat_t) inode {
	return inode{uint64(stat.Dev), stat.Ino} //nolint:unconvert // its size depends on the system
}

// openLock opens a lock file. No child process inherits it before inherit is called. openLock
// follows no symbolic link, and does not block on a pipe in the place of a lock file. It returns
// ErrConflict for these and for a directory. If the path is missing, fs.ErrNotExist is in the chain
// of its ErrUnavailable.
func openLock(path string, flags int) (*lockFile, error) {
	f := &lockFile{path: path}
	err := ignoreInterrupts(func() (err error) {
		f.fd, err = unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
		return err
	})
	if err != nil {
		return nil, interpretError("open", path, err)
	}
	var stat unix.Stat_t
	err = unix.Fstat(f.fd, &stat)
	if err == nil && stat.Mode&unix.S_IFMT != unix.S_IFREG { // a pipe or a device
		err = unix.ENXIO
	}
	if err != nil {
		f.close()
		return nil, interpretError("open", path, err)
	}
	f.inode = inodeOf(&stat)
	return f, nil
}

// close closes the descriptor, which frees the lock unless a child process has inherited it and not
// closed it yet.
func (f *lockFile) close() { _ = unix.Close(f.fd) }

// unlock frees the lock, also if a child process has inherited the descriptor.
func (f *lockFile) unlock() {
	_ = unmark(f.fd) // first, so that no file is marked without being locked
	_ = unix.Flock(f.fd, unix.LOCK_UN)
}

// yield frees the lock of an attempt that may not have it yet, if it is locked. The file stays
// open.
func (f *lockFile) yield() { _ = unix.Flock(f.fd, unix.LOCK_UN) }

// inherit makes the child processes that are started from now on inherit the descriptor.
func (f *lockFile) inherit() error {
	_, err := unix.FcntlInt(uintptr(f.fd), unix.F_SETFD, 0)
	return interpretError("fcntl", f.path, err)
}

// tryLockFor tries the flock once, alone for a writer and otherwise shared, and reports whether f
// is locked. It does not wait for a holder.
func (f *lockFile) tryLockFor(mode backend.Mode) (bool, error) {
	how := unix.LOCK_SH
	if mode == backend.Exclusive {
		how = unix.LOCK_EX
	}
	err := ignoreInterrupts(func() error { return unix.Flock(f.fd, how|unix.LOCK_NB) })
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, interpretError("flock", f.path, err)
}

// inPlace reports whether the path still names the open file. If it does not, the file was removed
// or replaced, and other processes lock another file. The error is the system's own.
func (f *lockFile) inPlace() (bool, error) {
	var now unix.Stat_t
	err := ignoreInterrupts(func() error { return unix.Lstat(f.path, &now) })
	switch {
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR):
		return false, nil
	case err != nil:
		return false, &fs.PathError{Op: "stat", Path: f.path, Err: err}
	}
	return inodeOf(&now) == f.inode, nil
}

// buffers have the size of a lock file and one byte more, which detects a file that is too long.
var buffers = sync.Pool{New: func() any { return new([fileSize + 1]byte) }}

// read returns the contents of the file. It returns ErrConflict if f is not the lock file of key.
// An empty key stands for any.
func (f *lockFile) read(key string) (contents, error) {
	buf := buffers.Get().(*[fileSize + 1]byte)
	defer buffers.Put(buf)
	var n int
	err := ignoreInterrupts(func() (err error) {
		n, err = unix.Pread(f.fd, buf[:], 0)
		return err
	})
	if err != nil {
		return contents{}, interpretError("read", f.path, err)
	}
	c, err := parse(buf[:n])
	if err == nil && c.latest != nil && key != "" && c.latest.key != key {
		err = fmt.Errorf("%w: it is the lock file of %.32q", backend.ErrConflict, c.latest.key)
	}
	if err != nil {
		return contents{}, fmt.Errorf("%w: %s: move it away or use another directory", err, f.path)
	}
	return c, nil
}

// write writes a record to its slot, in one system call. If the record is a reservation, it is on
// the disk when write returns. If the file is fresh, its name is on the disk, too.
func (f *lockFile) write(r placed, fresh bool) error {
	b, err := r.encode()
	if err != nil {
		return err
	}
	err = ignoreInterrupts(func() error {
		n, err := unix.Pwrite(f.fd, b, int64(r.slot)*slotSize)
		if err == nil && n < len(b) {
			err = unix.ENOSPC
		}
		return err
	})
	if err != nil || !r.reservation {
		return interpretError("write", f.path, err)
	}
	if err := ignoreInterrupts(func() error { return flush(f.fd) }); err != nil {
		return interpretError("fdatasync", f.path, err)
	}
	if fresh {
		if err := flushDir(f.path); err != nil {
			return err
		}
	}
	f.confirm(r.slot, b)
	return nil
}

// confirm confirms the reservation in a slot, whose bytes are b. If that fails, or is lost in a
// power cut, the next grant writes the reservation again.
func (f *lockFile) confirm(slot int, b []byte) {
	end := int64(slot+1) * slotSize
	_ = ignoreInterrupts(func() error {
		_, err := unix.Pwrite(f.fd, confirmation(b), end-confirmSize)
		return err
	})
}

// grant writes and marks the record of a new holder, and returns its fence. f must be locked. A
// reader sees the record as the holder's only after the mark.
func (f *lockFile) grant(name id, meta, boot string) (uint64, error) {
	fence, err := f.advance(name, meta, boot)
	if err != nil {
		return 0, err
	}
	return fence, interpretError("fcntl", f.path, mark(f.fd))
}

// advance writes the record of a new holder, and returns its fence. f must be locked, and no other
// process may call advance meanwhile.
func (f *lockFile) advance(name id, meta, boot string) (uint64, error) {
	c, err := f.read(name.key)
	if err != nil {
		return 0, err
	}
	r := c.next(boot, time.Now())
	if r.fence >= backend.MaxFence {
		return 0, fmt.Errorf("%w: file: the fence of %s has come to its end: remove the file",
			backend.ErrConflict, f.path)
	}
	r.key, r.owner, r.meta = name.key, name.owner, meta
	for _, w := range c.writes(r) {
		if err := f.write(w, c.fresh); err != nil {
			return 0, err
		}
	}
	return r.fence, nil
}

// holder returns the record of the process that holds the file, or nil. A record may be unreadable
// while the next holder writes it, so holder reads up to four times.
func (f *lockFile) holder(key string) (*record, error) {
	isHeld, err := isMarked(f.fd)
	if err != nil || !isHeld {
		return nil, interpretError("fcntl", f.path, err)
	}
	c, err := f.read(key)
	for range 3 {
		if err != nil || !c.damaged {
			break
		}
		c, err = f.read(key)
	}
	return c.latest, err
}
