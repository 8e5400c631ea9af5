//go:build dragonfly || freebsd

package filebackend

import "golang.org/x/sys/unix"

// flush writes the contents of fd to the disk.
func flush(fd int) error { return unix.Fsync(fd) }

// flushNames writes the names in the directory fd to the disk.
func flushNames(fd int) error { return unix.Fsync(fd) }
