//go:build darwin || dragonfly || freebsd || linux

package filebackend

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// connect makes dir if it is missing, and probes it. There is no connection: each attempt opens its
// lock file, and connects again if the directory is gone.
func connect(dir string, opts *Options) error {
	if err := makeDir(dir); errors.Is(err, unix.EROFS) {
		return readOnly(err)
	} else if err != nil {
		return fmt.Errorf("dlock: file: %w", err)
	}
	return probe(dir, opts)
}

// makeDir makes dir and its missing parents, and writes their names to the disk. Otherwise a power
// cut could remove the directory with all counters in it. A parent that the user cannot read is not
// synced.
func makeDir(dir string) error {
	var missing []string
	for path := dir; isMissing(path); path = filepath.Dir(path) {
		missing = append(missing, path)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, path := range missing {
		if err := flushDir(path); err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	return nil
}

// isMissing reports whether nothing has this path.
func isMissing(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// probe refuses a directory in which locks would be unsafe. It changes nothing.
func probe(dir string, opts *Options) error {
	var stat unix.Stat_t
	if err := ignoreInterrupts(func() error { return unix.Stat(dir, &stat) }); err != nil {
		return fmt.Errorf("dlock: file: %w", &fs.PathError{Op: "stat", Path: dir, Err: err})
	}
	if err := checkPrivate(dir, &stat); err != nil {
		return err
	}
	if err := checkPath(dir); err != nil {
		return err
	}
	network, err := networkFS(dir)
	if err != nil {
		return fmt.Errorf("dlock: file: %w", &fs.PathError{Op: "statfs", Path: dir, Err: err})
	}
	return checkLocal(dir, network, opts)
}

// checkLocal refuses a network file system, unless the options allow it. network is its name, or
// empty for a local file system.
func checkLocal(dir, network string, opts *Options) error {
	if network == "" || opts.AllowNetwork {
		return nil
	}
	return fmt.Errorf("dlock: file: %s is on %s, where a lock may hold on each machine for "+
		"itself: use a local directory, or add allow-network=1 to the URL", dir, network)
}

// checkPrivate refuses a directory in which another user could create or remove files. Such a user
// could take every lock away from its holder.
func checkPrivate(dir string, stat *unix.Stat_t) error {
	switch euid := os.Geteuid(); {
	case stat.Mode&unix.S_IFMT != unix.S_IFDIR:
		return fmt.Errorf("dlock: file: %w",
			&fs.PathError{Op: "open", Path: dir, Err: unix.ENOTDIR})
	case int(stat.Uid) != euid:
		return fmt.Errorf("dlock: file: %s belongs to user %d and this process to user %d: "+
			"use a directory of its own, or chown %d it", dir, stat.Uid, euid, euid)
	case stat.Mode&0o022 != 0:
		return fmt.Errorf("dlock: file: %s is writable by other users (mode %04o): "+
			"chmod 700 it, or use a directory in it", dir, stat.Mode&0o7777)
	}
	return nil
}

// maxLinks is the number of symbolic links that a path may lead through.
const maxLinks = 40

// checkPath refuses a path in which another user can replace a symbolic link, or a directory that
// lies in one writable by all (without the sticky bit). Otherwise two processes could lock in two
// directories, one before the replacement and one after it. checkPath follows the path name by
// name, as the kernel does.
func checkPath(path string) error {
	at, names := "/", strings.Split(path, "/")
	for links := 0; len(names) > 0; {
		name := names[0]
		names = names[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at) // at contains no symbolic link, so this is its parent
			continue
		}
		target, err := linkTarget(at, name)
		switch {
		case err != nil:
			return err
		case target == "":
			at = filepath.Join(at, name)
			continue
		case links == maxLinks:
			return fmt.Errorf("dlock: file: %w",
				&fs.PathError{Op: "open", Path: path, Err: unix.ELOOP})
		case filepath.IsAbs(target):
			at = "/"
		}
		links++
		names = append(strings.Split(target, "/"), names...)
	}
	return nil
}

// linkTarget returns the target of a symbolic link in dir, or "" if name is not a symbolic link. It
// returns an error if another user can replace name.
func linkTarget(dir, name string) (string, error) {
	path := filepath.Join(dir, name)
	var stat, parent unix.Stat_t
	err := ignoreInterrupts(func() error { return unix.Lstat(path, &stat) })
	if err == nil { // the permissions of dir decide about replacing a name in it
		err = ignoreInterrupts(func() error { return unix.Lstat(dir, &parent) })
	}
	if err != nil {
		return "", fmt.Errorf("dlock: file: %w", &fs.PathError{Op: "stat", Path: path, Err: err})
	}
	isLink, isSticky := stat.Mode&unix.S_IFMT == unix.S_IFLNK, parent.Mode&unix.S_ISVTX != 0
	switch {
	case !isLink && parent.Mode&0o002 != 0 && !isSticky:
		return "", fmt.Errorf("dlock: file: other users can replace %s, because %s is writable by "+
			"all (mode %04o): use another directory, or chmod +t it", path, dir, parent.Mode&0o7777)
	case !isLink:
		return "", nil
	case isForeign(stat.Uid) || isForeign(parent.Uid) || parent.Mode&0o022 != 0 && !isSticky:
		return "", fmt.Errorf("dlock: file: %s is a symbolic link that another user can replace: "+
			"name the directory itself", path)
	}
	target, err := os.Readlink(path)
	if err != nil {
		return "", fmt.Errorf("dlock: file: %w", err)
	}
	return target, nil
}

// isForeign reports whether a user is neither root nor the user of the process.
func isForeign(uid uint32) bool { return uid != 0 && int(uid) != os.Geteuid() }

// ignoreInterrupts repeats a system call that a signal interrupted. The Go runtime sends signals to
// its own threads, to preempt goroutines.
func ignoreInterrupts(call func() error) error {
	for {
		if err := call(); err != unix.EINTR { //nolint:errorlint // a system call's own
			return err
		}
	}
}

// flushDir writes the directory of path to the disk, and with it the names of its new files.
// Syncing a file does not sync its name.
func flushDir(path string) error {
	dir := filepath.Dir(path)
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return interpretError("open", dir, err)
	}
	defer func() { _ = unix.Close(fd) }()
	err = ignoreInterrupts(func() error { return flushNames(fd) })
	return interpretError("fsync", dir, err)
}
