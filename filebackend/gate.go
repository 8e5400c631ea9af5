//go:build darwin || dragonfly || freebsd || linux

package filebackend

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxGate is how long an attempt waits for the lock of the directory. Only a process that is
	// stopped inside of an attempt keeps it for so long.
	maxGate = time.Second
	// gatePause is the first pause between two attempts to lock the directory. It doubles up to
	// maxGatePause, with a jitter of one half.
	gatePause    = 500 * time.Microsecond
	maxGatePause = 10 * time.Millisecond
)

// members is the opened directory of the members of a key. It must be closed. Only inspectMembers
// reads one that it has not locked.
type members struct {
	dir  *os.File
	path string
	all  []member // in their order; some may be dead
}

// hasMembers reports whether the directory of a's key exists.
func (a *acquisition) hasMembers() (bool, error) {
	var stat unix.Stat_t
	err := ignoreInterrupts(func() error { return unix.Lstat(setPath(a.path), &stat) })
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return false, nil
	}
	return err == nil, interpretError("stat", setPath(a.path), err)
}

// withMembers calls f with the locked directory of a's key, which it makes if it is missing. If the
// last member has left and removed the directory, f can add no file (errSetRemoved). withMembers
// then calls f again with a new directory. It blocks for maxGate, and for f, at most.
func (a *acquisition) withMembers(f func(m *members) error) error {
	for end := time.Now().Add(maxGate); ; {
		m, err := lockMembers(setPath(a.path), end)
		if err != nil {
			return err
		}
		err = f(m)
		m.close()
		if !errors.Is(err, errSetRemoved) || time.Now().After(end) {
			return err
		}
	}
}

// lockMembers opens, locks and reads the directory at path. It makes the directory if it is
// missing, and tries once or until end.
func lockMembers(path string, end time.Time) (*members, error) {
	for pause := gatePause; ; pause = min(2*pause, maxGatePause) {
		m, err := tryMembers(path)
		switch {
		case err == nil:
			return m, nil
		case !isOvertaken(err):
			return nil, interpretError("open", path, errors.Unwrap(err))
		case time.Now().After(end):
			return nil, fmt.Errorf("%w: %s for more than %v", errGate, path, maxGate)
		}
		time.Sleep(pause/2 + rand.N(pause)) // it is locked, or was removed after it was made
	}
}

// tryMembers is one attempt of lockMembers. Its errors are of type *fs.PathError: EWOULDBLOCK means
// that another process has locked the directory.
func tryMembers(path string) (*members, error) {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	m, err := openMembers(path)
	if err != nil {
		return nil, err
	}
	if err = m.lock(); err == nil {
		err = m.read()
	}
	if err != nil {
		m.close()
		return nil, &fs.PathError{Op: "lock", Path: path, Err: err}
	}
	return m, nil
}

// isOvertaken reports whether another process has caused an error of tryMembers, so that the next
// attempt may succeed. Without the directory of the lock files, mkdir fails for good.
func isOvertaken(err error) bool {
	failed, ok := errors.AsType[*fs.PathError](err)
	return errors.Is(err, unix.EWOULDBLOCK) ||
		ok && failed.Op != "mkdir" && errors.Is(err, fs.ErrNotExist)
}

// openMembers opens the directory at path. Its errors are of type *fs.PathError.
func openMembers(path string) (*members, error) {
	dir, err := os.OpenFile(path, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	return &members{dir: dir, path: path}, nil
}

// lock locks the directory, and checks that it is still in place. A directory that the last member
// has removed gives no order: later processes make and read another one. The error is the system's,
// and ENOENT if the directory was removed or replaced.
func (m *members) lock() error {
	fd := int(m.dir.Fd())
	var opened, placed unix.Stat_t
	return ignoreInterrupts(func() error {
		if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
			return err
		}
		if err := unix.Fstat(fd, &opened); err != nil {
			return err
		}
		if err := unix.Lstat(m.path, &placed); err != nil {
			return err
		}
		if inodeOf(&opened) != inodeOf(&placed) {
			return unix.ENOENT
		}
		return nil
	})
}

// read reads the members in their order. It ignores other files.
func (m *members) read() error {
	names, err := m.dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		if e, ok := parseMember(name); ok {
			m.all = append(m.all, e)
		}
	}
	return nil
}

// close unlocks and closes the directory. It unlocks it first, because a child process that is
// being started still has the descriptor.
func (m *members) close() {
	_ = unix.Flock(int(m.dir.Fd()), unix.LOCK_UN)
	_ = m.dir.Close()
}
