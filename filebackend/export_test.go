//go:build darwin || dragonfly || freebsd || linux

package filebackend

// LockFile returns the lock file of a name.
func LockFile(dir, name string) string { return (&driver{dir: dir}).path(name) }
