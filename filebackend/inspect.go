//go:build darwin || dragonfly || freebsd || linux

package filebackend

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/kind"
)

// fenceShift is the number of bits that the core appends to a raw fence.
const fenceShift = 12

// Inspect implements backend.Inspector. It returns the holder that the record names if the lock is
// held. It takes no lock itself where the system can query one (Linux). It changes nothing, so the
// lock may have changed hands when Inspect returns.
func (d *driver) Inspect(ctx context.Context, key string) (*backend.Info, error) {
	return callInSlot(ctx, d.requests, func() (*backend.Info, error) {
		r, err := readHolder(d.path(key), key)
		if err != nil || r != nil {
			return newInfo(key, r), err
		}
		info, err := inspectMembers(setPath(d.path(key)), key)
		if err != nil || info != nil {
			return info, err
		}
		return newInfo(key, nil), nil
	})
}

// List implements backend.Inspector. It yields the held locks, without their waiters, which are
// unknown. It skips files that are not lock files.
func (d *driver) List(ctx context.Context, prefix string) iter.Seq2[*backend.Info, error] {
	return func(yield func(*backend.Info, error) bool) {
		dir, err := callInSlot(ctx, d.requests, func() (*os.File, error) {
			return os.Open(d.dir)
		})
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		if err != nil {
			yield(nil, err)
			return
		}
		defer func() { _ = dir.Close() }()
		for {
			infos, err := d.listSome(ctx, dir, prefix)
			for _, info := range infos {
				if !yield(info, nil) {
					return
				}
			}
			if err == io.EOF { //nolint:errorlint // as os.File returns it
				return
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// listSome returns the held locks among the next files of dir. It returns io.EOF after the last
// file.
func (d *driver) listSome(
	ctx context.Context, dir *os.File, prefix string,
) ([]*backend.Info, error) {
	return callInSlot(ctx, d.requests, func() ([]*backend.Info, error) {
		names, err := dir.Readdirnames(128) // a bounded number, so that ctx is checked in between
		if errors.Is(err, fs.ErrNotExist) { // removed after it was opened
			err = io.EOF
		}
		var infos []*backend.Info
		for _, name := range names {
			info, err := d.inspectFile(name)
			switch {
			case errors.Is(err, backend.ErrConflict): // foreign
			case err != nil:
				return infos, err
			case info != nil && strings.HasPrefix(info.Key, prefix):
				infos = append(infos, info)
			}
		}
		return infos, err
	})
}

// inspectFile describes the held lock of a file or a directory of members, by its name. It returns
// nil if there is none.
func (d *driver) inspectFile(name string) (info *backend.Info, err error) {
	path, ext := filepath.Join(d.dir, name), filepath.Ext(name)
	switch ext {
	case suffix:
		var r *record
		if r, err = readHolder(path, ""); r != nil {
			info = newInfo(r.key, r)
		}
	case setSuffix:
		info, err = inspectMembers(path, "")
	}
	if err != nil || info == nil || len(info.Holders) == 0 {
		return nil, err
	}
	// A file with another name than its key's is a copy, which excludes no process.
	if d.path(info.Key) != strings.TrimSuffix(path, ext)+suffix {
		return nil, nil
	}
	return info, nil
}

// readHolder returns the record of the holder of the lock file at path, or nil if the lock is free.
// It returns ErrConflict if it is not the lock file of key. An empty key stands for any.
func readHolder(path, key string) (*record, error) {
	f, err := openLock(path, unix.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.close()
	return f.holder(key)
}

// inspectMembers describes the holders among the members of a key, by the path of their directory.
// It returns nil if there is no directory.
//
// It does not lock the directory, so it works while a process is stopped that has locked it. It
// reads again if it may have missed a holder that became a reader meanwhile.
func inspectMembers(path, key string) (info *backend.Info, err error) {
	for range 4 {
		m, err := openMembers(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, interpretError("open", path, errors.Unwrap(err))
		}
		var complete bool
		info, complete, err = m.info(key)
		m.close()
		if err != nil || complete {
			return info, err
		}
	}
	return info, nil
}

// info describes the holders among the members. It reports whether it is complete: no file was
// removed, renamed or written meanwhile. key is only for a directory without holders.
func (m *members) info(key string) (info *backend.Info, complete bool, err error) {
	if err := m.read(); errors.Is(err, fs.ErrNotExist) { // removed after it was opened
		return nil, false, nil
	} else if err != nil {
		return nil, false, interpretError("read", m.path, err)
	}
	info, complete = newInfo(key, nil), true
	var last kind.Kind
	for _, e := range m.all {
		r, stable, err := m.record(e)
		if err != nil {
			return nil, false, err
		}
		complete = complete && stable
		if r == nil {
			continue
		}
		if e.word != last { // the holders of another kind have left meanwhile
			last, info.Holders = e.word, nil
		}
		info.Key, info.Mode, info.Limit = r.key, e.word.Mode(), e.word.Limit()
		info.Holders = append(info.Holders, newHolder(r))
	}
	return info, complete, nil
}

// record returns the grant of a member, or nil if the member waits or has died. It reports whether
// the file was neither removed nor being written. Files of waiters are not locked, because their
// owners may be about to lock them.
func (m *members) record(e member) (r *record, stable bool, err error) {
	fd, err := m.open(e, unix.O_RDONLY)
	if errors.Is(err, unix.ENOENT) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, interpretError("open", m.path, err)
	}
	defer func() { _ = unix.Close(fd) }()
	buf := make([]byte, slotSize)
	var n int
	err = ignoreInterrupts(func() (err error) {
		n, err = unix.Pread(fd, buf, 0)
		return err
	})
	if err != nil || n == 0 {
		return nil, true, interpretError("read", m.path, err)
	}
	isAlive, err := isLocked(fd)
	if err != nil || !isAlive {
		return nil, true, interpretError("flock", m.path, err)
	}
	r = decode(buf[:n])
	return r, r != nil, nil
}

// newInfo describes the lock of key. r is the record of its holder, or nil.
func newInfo(key string, r *record) *backend.Info {
	info := &backend.Info{Key: key, Mode: backend.Exclusive, Waiters: -1}
	if r != nil {
		info.Holders = []backend.Holder{newHolder(r)}
	}
	return info
}

// newHolder describes the holder of a record.
func newHolder(r *record) backend.Holder {
	return backend.Holder{
		Owner: r.owner, Meta: r.meta, Fence: r.fence << fenceShift, Since: r.since, TTL: -1,
	}
}
