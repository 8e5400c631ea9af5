//go:build darwin || dragonfly || freebsd || linux

package filebackend

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// prepare makes dir if it is missing and refuses one where locks would be unsafe.
func prepare(dir string, opts *Options) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("dlock: file: %w", err)
	}
	var stat unix.Stat_t
	if err := ignoreInterrupts(func() error { return unix.Stat(dir, &stat) }); err != nil {
		return fmt.Errorf("dlock: file: %w", &fs.PathError{Op: "stat", Path: dir, Err: err})
	}
	if err := private(dir, &stat); err != nil {
		return err
	}
	if err := steady(dir, maxLinks); err != nil {
		return err
	}
	network, err := networkFS(dir)
	if err != nil {
		return fmt.Errorf("dlock: file: %w", &fs.PathError{Op: "statfs", Path: dir, Err: err})
	}
	return local(dir, network, opts)
}

// local refuses a network file system, unless the user insists.
func local(dir, network string, opts *Options) error {
	if network == "" || opts.AllowNetwork {
		return nil
	}
	return fmt.Errorf("dlock: file: %s is on %s, where a lock may hold on each machine for itself: use a local directory, or add allow-network=1 to the URL", dir, network)
}

// private refuses a directory where another user could put or remove files.
func private(dir string, stat *unix.Stat_t) error {
	switch euid := os.Geteuid(); {
	case stat.Mode&unix.S_IFMT != unix.S_IFDIR:
		return fmt.Errorf("dlock: file: %w", &fs.PathError{Op: "open", Path: dir, Err: unix.ENOTDIR})
	case int(stat.Uid) != euid:
		return fmt.Errorf("dlock: file: %s belongs to user %d and this process to user %d: use a directory of its own, or chown %d it", dir, stat.Uid, euid, euid)
	case stat.Mode&0o022 != 0:
		return fmt.Errorf("dlock: file: %s is writable by other users (mode %04o): chmod 700 it, or use a directory in it", dir, stat.Mode&0o7777)
	}
	return nil
}

// maxLinks is how many symbolic links a path may have, one behind the other.
const maxLinks = 40

// steady refuses a path in which another user could turn a symbolic link: before the turn and after
// it two processes would lock in two directories.
func steady(path string, links int) error {
	for ; path != "/"; path = filepath.Dir(path) {
		var stat, parent unix.Stat_t
		err := ignoreInterrupts(func() error { return unix.Lstat(path, &stat) })
		if err == nil {
			err = ignoreInterrupts(func() error { return unix.Stat(filepath.Dir(path), &parent) })
		}
		switch {
		case err != nil:
			return fmt.Errorf("dlock: file: %w", &fs.PathError{Op: "stat", Path: path, Err: err})
		case stat.Mode&unix.S_IFMT != unix.S_IFLNK:
			continue
		case links == 0:
			return fmt.Errorf("dlock: file: %w", &fs.PathError{Op: "open", Path: path, Err: unix.ELOOP})
		case foreign(stat.Uid) || foreign(parent.Uid) || parent.Mode&0o022 != 0 && parent.Mode&unix.S_ISVTX == 0:
			return fmt.Errorf("dlock: file: %s is a symbolic link that another user can turn: name the directory itself", path)
		}
		target, err := os.Readlink(path)
		if err != nil {
			return fmt.Errorf("dlock: file: %w", err)
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		if err := steady(filepath.Clean(target), links-1); err != nil {
			return err
		}
	}
	return nil
}

// foreign reports whether a user is neither root nor that of the process.
func foreign(uid uint32) bool { return uid != 0 && int(uid) != os.Geteuid() }

// ignoreInterrupts repeats a system call that a signal interrupted.
func ignoreInterrupts(call func() error) error {
	for {
		if err := call(); err != unix.EINTR { //nolint:errorlint // a system call's own
			return err
		}
	}
}

// flushDir puts the directory of path on the disk, and so its new files' names.
func flushDir(path string) error {
	dir := filepath.Dir(path)
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return interpret("open", dir, err)
	}
	defer func() { _ = unix.Close(fd) }()
	err = ignoreInterrupts(func() error { return unix.Fsync(fd) })
	return interpret("fsync", dir, err)
}
