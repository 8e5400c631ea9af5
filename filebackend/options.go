package filebackend

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"

	"github.com/dlock-go/dlock/backend"
)

// Options are the parameters of a URL. The zero value and nil are the defaults.
type Options struct {
	// AllowNetwork (allow-network=1) accepts a directory on a network file system or on FUSE. That
	// file system then decides whether its locks exclude other machines. Every acquisition and
	// every renewal waits for its disk. There are neither readers nor permits.
	AllowNetwork bool
	// Inherit (inherit=1) makes child processes inherit the locks that are held when they are
	// started, as flock(1) does. Unlock frees such a lock; without Unlock it is free when all these
	// processes have ended.
	Inherit bool
	// Block (block=1) makes each waiter wait in flock(2), in its own thread. The system decides the
	// order of waiters, and Linux serves them in the order of their arrival. A process that was
	// stopped (SIGSTOP) queues again, at the end. Block suits programs that run in many processes
	// with few waiters each: a waiter causes no work, however many processes wait.
	//
	// The thread of a waiter that has given up stays until the lock is free, also after Close, and
	// keeps the lock file open. While a driver has 32 such threads, its next waiters get none: they
	// poll, after 50 ms at first and later every 2 s.
	Block bool
	// Endless (endless=1) grants locks without a term: the deadline of a lease is a century away.
	// The lease outlives a stop of the process that is longer than the TTL, as the kernel's lock
	// does. The driver checks every second that the lock file is in its place. A lease that has
	// ended, also one whose maximum hold is over, keeps the lock until its Unlock or the end of the
	// process.
	Endless bool
}

// withDefaults returns a copy of o. The zero value of each field is its default, so it fills
// nothing.
func (o *Options) withDefaults() Options {
	if o == nil {
		return Options{}
	}
	return *o
}

// target is the content of a URL.
type target struct {
	Options
	dir string
}

// parseTarget takes the directory and all parameters of u. It does not touch the file system.
func parseTarget(u *backend.URL) (*target, error) {
	t := &target{}
	// The parameters come first: dlock.Open reports a parameter that was not taken, and hides err.
	badParameters := errors.Join(
		u.TakeBool("allow-network", &t.AllowNetwork),
		u.TakeBool("inherit", &t.Inherit),
		u.TakeBool("endless", &t.Endless),
		u.TakeBool("block", &t.Block),
	)
	dir, err := parseDir(u)
	if err != nil {
		return nil, err
	}
	t.dir = dir
	return t, badParameters
}

// parseDir returns the directory of u, or DefaultDir if u has no path. It refuses all other parts
// of an address.
func parseDir(u *backend.URL) (string, error) {
	switch {
	case u.User != "" || u.Password != "":
		return "", errors.New("dlock: invalid URL: file: takes no user")
	case len(u.Hosts) > 0:
		return "", fmt.Errorf("dlock: invalid URL: file: takes no host, and %q stands in its "+
			"place; an absolute path follows, as in file:///absolute/path", u.Hosts[0])
	case u.Path == "":
		return DefaultDir()
	case !path.IsAbs(u.Path):
		return "", fmt.Errorf("dlock: invalid URL: file: the path %q is relative; "+
			"write an absolute path, as in file:///absolute/path", u.Path)
	}
	return filepath.Clean(u.Path), nil
}
