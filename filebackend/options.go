package filebackend

import "github.com/dlock-go/dlock/backend"

// Options are the parameters of a URL. The zero value, and nil, are the defaults.
type Options struct {
	// AllowNetwork (allow-network=1) accepts a directory on a network file system
	// or FUSE. Whether its locks hold between machines is then up to that file
	// system; every acquisition waits for its disk.
	AllowNetwork bool
	// Inherit (inherit=1) lets the processes that this one starts while it holds a lock inherit
	// it, as flock(1) does: the lock is freed by Unlock, or when all of them have ended.
	Inherit bool
}

// options takes the parameters of u.
func options(u *backend.URL) (*Options, error) {
	o := &Options{}
	if err := u.TakeBool("allow-network", &o.AllowNetwork); err != nil {
		return nil, err
	}
	if err := u.TakeBool("inherit", &o.Inherit); err != nil {
		return nil, err
	}
	return o, nil
}
