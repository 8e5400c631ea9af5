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

// Inspect shows the holder that the file names, if it still holds. It does not touch
// the lock.
func (d *driver) Inspect(ctx context.Context, key string) (*backend.Info, error) {
	return backend.Call(ctx, func(context.Context) (*backend.Info, error) {
		r, err := d.holder(d.path(key), key)
		if err != nil {
			return nil, err
		}
		return info(key, r), nil
	})
}

// List shows the held locks; who waits is not known. Files that are not lock files
// are passed over.
func (d *driver) List(ctx context.Context, prefix string) iter.Seq2[*backend.Info, error] {
	return func(yield func(*backend.Info, error) bool) {
		dir, err := backend.Call(ctx, func(context.Context) (*os.File, error) { return os.Open(d.dir) })
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

// listSome looks at the next files of dir. io.EOF: there are no more.
func (d *driver) listSome(ctx context.Context, dir *os.File, prefix string) ([]*backend.Info, error) {
	return backend.Call(ctx, func(context.Context) ([]*backend.Info, error) {
		names, err := dir.Readdirnames(128)
		var infos []*backend.Info
		for _, name := range names {
			if !strings.HasSuffix(name, suffix) {
				continue
			}
			r, err := d.holder(filepath.Join(d.dir, name), "")
			if errors.Is(err, backend.ErrConflict) || r == nil && err == nil {
				continue
			}
			if err != nil {
				return infos, err
			}
			if strings.HasPrefix(r.key, prefix) && filepath.Base(d.path(r.key)) == name {
				infos = append(infos, info(r.key, r))
			}
		}
		return infos, err
	})
}

// holder returns the record of who holds the lock file at path, or nil. An empty key
// takes the file of any.
func (d *driver) holder(path, key string) (*record, error) {
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

// info shows key with its holder, if it has one.
func info(key string, r *record) *backend.Info {
	info := &backend.Info{Key: key, Mode: backend.Exclusive, Waiters: -1}
	if r != nil {
		info.Holders = []backend.Holder{{
			Owner: r.owner, Meta: r.meta, Fence: r.fence << 12, Since: r.since, TTL: -1,
		}}
	}
	return info
}
