package filebackend

import (
	"errors"

	"github.com/dlock-go/dlock/backend"
)

// Options are the parameters of a URL. The zero value, and nil, are the defaults.
type Options struct {
	// AllowNetwork (allow-network=1) accepts a directory on a network file system
	// or FUSE. Whether its locks hold between machines is then up to that file
	// system; every acquisition waits for its disk.
	AllowNetwork bool
	// Inherit (inherit=1) lets the processes that this one starts while it holds a lock inherit
	// it, as flock(1) does: the lock is freed by Unlock, or when all of them have ended.
	Inherit bool
	// Endless (endless=1) gives a lock no term: its lease has a deadline a century away, and lasts
	// through a stop of the process that is longer than the TTL, as the kernel's lock does. It has an
	// effect where the system tells of a lock file that is removed (Linux).
	Endless bool
}

// options takes the parameters of u.
func options(u *backend.URL) (*Options, error) {
	o := &Options{}
	if err := u.TakeBool("allow-network", &o.AllowNetwork); err != nil {
		return nil, err
	}
	if err := errors.Join(u.TakeBool("inherit", &o.Inherit), u.TakeBool("endless", &o.Endless)); err != nil {
		return nil, err
	}
	return o, nil
}
