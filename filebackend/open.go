package filebackend

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dlock-go/dlock/backend"
)

func init() { backend.Register("file", open) }

// New returns a driver with the lock files in dir, an absolute path. It makes the directory if it
// is missing, and refuses an unsafe one; see the package documentation. Several drivers of one
// directory exclude each other, in one process or in many. opts may be nil. New blocks for as long
// as the file system takes.
func New(dir string, opts *Options) (backend.Driver, error) {
	settings := opts.withDefaults()
	if !filepath.IsAbs(dir) {
		return nil, fmt.Errorf("dlock: file: directory %q is not an absolute path", dir)
	}
	dir = filepath.Clean(dir)
	if err := connect(dir, &settings); err != nil {
		return nil, err
	}
	return newDriver(dir, settings), nil
}

// DefaultDir returns the directory of the URL "file:": $XDG_STATE_HOME/dlock, or
// ~/.local/state/dlock if that variable is not an absolute path. It does not make the directory.
func DefaultDir() (string, error) {
	if state := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, "dlock"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil || !filepath.IsAbs(home) {
		return "", errors.New("dlock: file: no default directory: neither XDG_STATE_HOME nor " +
			"HOME is set to an absolute path; name one, as in file:/var/lib/locks")
	}
	return filepath.Join(home, ".local", "state", "dlock"), nil
}

// open is the Opener of "file:".
func open(ctx context.Context, u *backend.URL) (backend.Driver, error) {
	t, err := parseTarget(u)
	if err != nil {
		return nil, err
	}
	// A file system that does not answer blocks only this call. The call leaves nothing open.
	_, err = backend.Call(ctx, func(context.Context) (struct{}, error) {
		return struct{}{}, connect(t.dir, &t.Options)
	})
	if err != nil {
		return nil, err
	}
	return newDriver(t.dir, t.Options), nil
}
