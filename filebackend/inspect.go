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
)

// fenceShift is the number of bits that the core appends to a raw fence.
const fenceShift = 12

// Inspect implements backend.Inspector. It returns the holder that the record names if the lock is
// held. It takes no lock itself where the system can query one (Linux).
func (d *driver) Inspect(ctx context.Context, key string) (*backend.Info, error) {
	return backend.Call(ctx, func(context.Context) (*backend.Info, error) {
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
		dir, err := backend.Call(ctx, func(context.Context) (*os.File, error) {
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
	return backend.Call(ctx, func(context.Context) ([]*backend.Info, error) {
		names, err := dir.Readdirnames(128) // a bounded number, so that ctx is checked in between
		var infos []*backend.Info
		for _, name := range names {
			if strings.HasSuffix(name, setSuffix) {
				info, err := inspectMembers(filepath.Join(d.dir, name), "")
				if err != nil {
					return infos, err
				}
				if info != nil && len(info.Holders) > 0 && strings.HasPrefix(info.Key, prefix) {
					infos = append(infos, info)
				}
				continue
			}
			if !strings.HasSuffix(name, suffix) {
				continue
			}
			r, err := readHolder(filepath.Join(d.dir, name), "")
			if errors.Is(err, backend.ErrConflict) || r == nil && err == nil { // foreign, or free
				continue
			}
			if err != nil {
				return infos, err
			}
			// A file with another name than its key's is a copy, which excludes no process.
			if strings.HasPrefix(r.key, prefix) && filepath.Base(d.path(r.key)) == name {
				infos = append(infos, newInfo(r.key, r))
			}
		}
		return infos, err
	})
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
