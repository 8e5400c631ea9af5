package filebackend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"

	"github.com/dlock-go/dlock/backend"
)

func init() { backend.Register("file", open) }

// New returns a driver whose locks are files in dir, an absolute path. It makes
// the directory and refuses one that is unsafe; see the package doc. Several drivers
// on one directory, in one process or in many, exclude each other.
func New(dir string, opts *Options) (backend.Driver, error) {
	opts = cmp.Or(opts, &Options{})
	if !filepath.IsAbs(dir) {
		return nil, fmt.Errorf("dlock: file: directory %q is not an absolute path", dir)
	}
	dir = filepath.Clean(dir)
	if err := prepare(dir, opts); err != nil {
		return nil, err
	}
	return start(dir, opts), nil
}

// DefaultDir returns the directory of the URL "file:": $XDG_STATE_HOME/dlock, else
// ~/.local/state/dlock. It makes nothing.
func DefaultDir() (string, error) {
	if state := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, "dlock"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil || !filepath.IsAbs(home) {
		return "", errors.New("dlock: file: no default directory: neither XDG_STATE_HOME nor HOME is set to an absolute path; name one, as in file:/var/lib/locks")
	}
	return filepath.Join(home, ".local", "state", "dlock"), nil
}

// open is the Opener of file:.
func open(ctx context.Context, u *backend.URL) (backend.Driver, error) {
	dir, err := directory(u)
	if err != nil {
		return nil, err
	}
	opts, err := options(u)
	if err != nil {
		return nil, err
	}
	// A file system that does not answer blocks here and leaves nothing open.
	_, err = backend.Call(ctx, func(context.Context) (struct{}, error) {
		return struct{}{}, prepare(dir, opts)
	})
	if err != nil {
		return nil, err
	}
	return start(dir, opts), nil
}

// directory returns the path of u, which names nothing else.
func directory(u *backend.URL) (string, error) {
	switch {
	case u.User != "" || u.Password != "":
		return "", errors.New("dlock: invalid URL: file: takes no user")
	case len(u.Hosts) > 0:
		return "", fmt.Errorf("dlock: invalid URL: file: takes no host; a path is written file:/%s%s", u.Hosts[0], u.Path)
	case u.Path == "":
		return DefaultDir()
	case !path.IsAbs(u.Path):
		return "", fmt.Errorf("dlock: invalid URL: file: the path %q is not absolute; write file:/…", u.Path)
	}
	return filepath.Clean(u.Path), nil
}
