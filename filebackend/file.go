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

// lockFile is one open file description of a lock file.
type lockFile struct {
	path  string
	fd    int
	inode inode
}

// inode tells files apart, whatever their names.
type inode struct{ device, number uint64 }

func inodeOf(stat *unix.Stat_t) inode {
	return inode{uint64(stat.Dev), stat.Ino} //nolint:unconvert // its size depends on the system
}

// openLock opens a lock file that no child process inherits. It follows no
// symbolic link, and does not block on a pipe that somebody put there.
func openLock(path string, flags int) (*lockFile, error) {
	f := &lockFile{path: path}
	err := ignoreInterrupts(func() (err error) {
		f.fd, err = unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
		return err
	})
	if err != nil {
		return nil, interpret("open", path, err)
	}
	var stat unix.Stat_t
	err = unix.Fstat(f.fd, &stat)
	if err == nil && stat.Mode&unix.S_IFMT != unix.S_IFREG {
		err = unix.ENXIO
	}
	if err != nil {
		f.close()
		return nil, interpret("open", path, err)
	}
	f.inode = inodeOf(&stat)
	return f, nil
}

// close frees whatever the description has locked, unless a child process has
// inherited it and not closed it yet.
func (f *lockFile) close() { _ = unix.Close(f.fd) }

// unlock frees what it has locked in any case.
func (f *lockFile) unlock() {
	_ = unmark(f.fd)
	_ = unix.Flock(f.fd, unix.LOCK_UN)
}

// inherit has the processes inherit the description that this one starts from now on.
func (f *lockFile) inherit() error {
	_, err := unix.FcntlInt(uintptr(f.fd), unix.F_SETFD, 0)
	return interpret("fcntl", f.path, err)
}

// tryLock tries the flock once.
func (f *lockFile) tryLock() (bool, error) {
	err := ignoreInterrupts(func() error { return unix.Flock(f.fd, unix.LOCK_EX|unix.LOCK_NB) })
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, interpret("flock", f.path, err)
}

// inPlace tells whether the path still names the open file. If not, somebody
// removed or replaced it, and others lock another one. Its error is the system's own.
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

// buffers hold a lock file each, and a byte more, by which too long a file shows.
var buffers = sync.Pool{New: func() any { return new([fileSize + 1]byte) }}

// read returns what the file says of key. ErrConflict: it is not the lock file of key.
func (f *lockFile) read(key string) (contents, error) {
	buf := buffers.Get().(*[fileSize + 1]byte)
	defer buffers.Put(buf)
	var n int
	err := ignoreInterrupts(func() (err error) {
		n, err = unix.Pread(f.fd, buf[:], 0)
		return err
	})
	if err != nil {
		return contents{}, interpret("read", f.path, err)
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

// write puts a record into its slot. A reservation is on the disk, in a fresh file with the
// file's name, when write returns.
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
		return interpret("write", f.path, err)
	}
	if err := ignoreInterrupts(func() error { return flush(f.fd) }); err != nil {
		return interpret("fdatasync", f.path, err)
	}
	if fresh {
		return flushDir(f.path)
	}
	return nil
}

// grant makes owner the holder in a file that is locked already, and returns
// its fence.
func (f *lockFile) grant(e id, meta, boot string) (uint64, error) {
	c, err := f.read(e.key)
	if err != nil {
		return 0, err
	}
	r := c.next(boot, time.Now())
	if r.fence >= backend.MaxFence {
		return 0, fmt.Errorf("%w: file: the fence of %s has come to its end: remove the file", backend.ErrConflict, f.path)
	}
	r.key, r.owner, r.meta = e.key, e.owner, meta
	for _, w := range c.writes(r) {
		if err := f.write(w, c.fresh); err != nil {
			return 0, err
		}
	}
	if err := mark(f.fd); err != nil {
		return 0, interpret("fcntl", f.path, err)
	}
	return r.fence, nil
}

// holder returns the record of the process that holds the file, or nil.
func (f *lockFile) holder(key string) (*record, error) {
	held, err := marked(f.fd)
	if err != nil || !held {
		return nil, interpret("fcntl", f.path, err)
	}
	c, err := f.read(key)
	for range 3 {
		if err != nil || !c.damaged {
			break
		}
		c, err = f.read(key) // the next holder was just writing
	}
	return c.latest, err
}
