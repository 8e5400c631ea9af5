//go:build darwin || dragonfly || freebsd || linux

package filebackend

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/kind"
)

// Readers, permits, and writers among them are the members of a key. Each has a file in a directory
// next to the lock file, and locks it, so the kernel says which members are alive. The names of the
// files give the order of their arrival and their kinds; see package kind for the rules.
//
// A member that holds also locks the lock file: a writer alone, readers and permits shared. So no
// mutex without a member gets the lock meanwhile, and a mutex excludes all members. A mutex looks
// for the directory after it has locked the file. If there are members, it becomes one of them.
//
// The directory itself is locked while a process looks for its place in it, for some microseconds.
// The last member to leave removes it, so a mutex without readers pays one lstat.

const (
	// maxGate is how long an attempt waits for the lock of the directory. Only a process that is
	// stopped inside of an attempt keeps it for so long.
	maxGate = time.Second
	// gatePause is the pause between two attempts to lock the directory.
	gatePause = 500 * time.Microsecond
	// firstSeq is the number of the first member of a directory. A writer that becomes a reader
	// stands in front of all others, so there must be room below.
	firstSeq = 1 << 32
)

// member is the name of a member's file.
type member struct {
	seq   uint64 // its place
	word  kind.Kind
	owner string
}

// Kind implements kind.Entry.
func (m member) Kind() kind.Kind { return m.word }

// String returns the name of the file.
func (m member) String() string {
	return fmt.Sprintf("%016x.%s.%s", m.seq, string(m.word), m.owner)
}

// parseMember is the inverse of member.String.
func parseMember(name string) (member, bool) {
	parts := strings.Split(name, ".")
	if len(parts) != 3 {
		return member{}, false
	}
	seq, err := strconv.ParseUint(parts[0], 16, 64)
	m := member{seq, kind.Kind(parts[1]), parts[2]}
	return m, err == nil && m.word.Valid() && m.String() == name
}

// members is the opened directory of the members of a key, locked by this process. It must be
// closed.
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

// openMembers opens and locks the directory at path, and makes it first if create is set. It
// returns nil if there is none.
func openMembers(path string, create bool) (*members, error) {
	for end := time.Now().Add(maxGate); time.Now().Before(end); {
		m, err := tryMembers(path, create)
		switch {
		case errors.Is(err, fs.ErrNotExist) && !create:
			return nil, nil
		case errors.Is(err, fs.ErrNotExist): // removed since it was made
		case err != nil:
			return nil, interpretError("open", path, errors.Unwrap(err))
		case m != nil:
			return m, nil
		}
		time.Sleep(gatePause)
	}
	return nil, fmt.Errorf("%w: file: another process has locked %s for more than %v",
		backend.ErrUnavailable, path, maxGate)
}

// tryMembers is one attempt of openMembers. It returns nil if another process has locked the
// directory. Its errors are of type *fs.PathError.
func tryMembers(path string, create bool) (_ *members, err error) {
	if create {
		if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	dir, err := os.OpenFile(path, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	m := &members{dir: dir, path: path}
	if err = m.lock(); err == nil {
		m.all, err = m.read()
	}
	if err == nil {
		return m, nil
	}
	m.close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, &fs.PathError{Op: "lock", Path: path, Err: err}
}

// lock locks the directory, and checks that it is still in place.
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

// read returns the members in their order. Other files are not looked at.
func (m *members) read() ([]member, error) {
	names, err := m.dir.Readdirnames(-1)
	var all []member
	for _, name := range names {
		if e, ok := parseMember(name); ok {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b member) int { return cmp.Compare(a.String(), b.String()) })
	return all, err
}

// close unlocks and closes the directory.
func (m *members) close() { _ = m.dir.Close() }

// find returns the index of an owner, or -1.
func (m *members) find(owner string) int {
	return slices.IndexFunc(m.all, func(e member) bool { return e.owner == owner })
}

// isAlive reports whether the process of a member has not ended. It removes the file of a member
// that is dead.
func (m *members) isAlive(e member) (bool, error) {
	fd, err := m.open(e, unix.O_RDONLY)
	if errors.Is(err, unix.ENOENT) { // it has left since the directory was read
		return false, nil
	}
	if err != nil {
		return false, interpretError("open", m.path, err)
	}
	defer func() { _ = unix.Close(fd) }()
	err = ignoreInterrupts(func() error { return unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB) })
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return true, nil
	case err != nil:
		return false, interpretError("flock", m.path, err)
	}
	_ = unix.Unlinkat(int(m.dir.Fd()), e.String(), 0)
	return false, nil
}

// open opens the file of a member in this directory, whatever has its path meanwhile.
func (m *members) open(e member, flags int) (fd int, err error) {
	err = ignoreInterrupts(func() (err error) {
		fd, err = unix.Openat(int(m.dir.Fd()), e.String(),
			flags|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
		return err
	})
	return fd, err
}

// add makes the file of a new member, locked.
func (m *members) add(e member) (*lockFile, error) {
	fd, err := m.open(e, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL)
	if err != nil {
		return nil, interpretError("open", m.path, err)
	}
	f := &lockFile{path: filepath.Join(m.path, e.String()), fd: fd}
	var stat unix.Stat_t
	err = unix.Fstat(fd, &stat)
	if err == nil {
		err = ignoreInterrupts(func() error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) })
	}
	if err != nil {
		_ = unix.Unlinkat(int(m.dir.Fd()), e.String(), 0)
		f.close()
		return nil, interpretError("flock", f.path, err)
	}
	f.inode = inodeOf(&stat)
	return f, nil
}

// conflict returns ErrConflict if a living member is of a kind that does not fit word.
func (m *members) conflict(word kind.Kind) error {
	for _, e := range m.all {
		conflict := word.Conflict(e.word)
		if conflict == nil {
			continue
		}
		if alive, err := m.isAlive(e); err != nil || alive {
			return cmp.Or(err, conflict)
		}
	}
	return nil
}

// blocker returns a living member among front for which one of this kind has to wait, or nil.
func (m *members) blocker(word kind.Kind, front []member) (*member, error) {
	count := 0
	for _, e := range kind.Blockers(word, front) {
		alive, err := m.isAlive(e)
		if err != nil {
			return nil, err
		}
		if alive {
			count++
		}
		if count > 0 && count >= word.Limit() {
			return &e, nil
		}
	}
	return nil, nil
}

// enter makes an attempt for a among the members of its key. It returns nil if a has the lock. A
// request that waits keeps its place in the order. a.mu must be held, and a.file open.
func (d *driver) enter(a *acquisition, req *backend.Request) error {
	m, err := openMembers(setPath(a.path), true)
	if err != nil {
		return err
	}
	defer m.close()
	word := kind.Of(req)
	if err := m.conflict(word); err != nil {
		return err
	}
	front, at := m.all, m.find(req.Owner)
	if at >= 0 {
		front = front[:at]
	}
	blocker, err := m.blocker(word, front)
	if err != nil {
		return err
	}
	if a.member == nil && (blocker == nil || req.Queue) {
		if a.member, err = m.add(member{m.last() + 1, word, req.Owner}); err != nil {
			return err
		}
	}
	if blocker != nil {
		a.file.yield()
		return a.busy(&record{owner: blocker.owner, fence: blocker.seq}, req.Queue)
	}
	return d.occupy(a, req)
}

// last returns the highest number of a member.
func (m *members) last() uint64 {
	if len(m.all) == 0 {
		return firstSeq
	}
	return m.all[len(m.all)-1].seq
}

// occupy locks the lock file for a member that waits for no other member, and records its grant.
// Only a mutex without a member can have the file locked: then a waits for it.
func (d *driver) occupy(a *acquisition, req *backend.Request) error {
	locked, err := a.file.tryLockFor(req.Mode)
	if err != nil {
		return err
	}
	if current, err := a.file.inPlace(); err != nil || locked && !current {
		return fmt.Errorf("%w: file: %s was replaced", backend.ErrUnavailable, a.path)
	}
	if !locked {
		return a.occupied(req)
	}
	d.removeWatch(a)
	fence, err := a.file.advance(a.id, req.Meta, d.boot)
	if err == nil {
		err = a.member.sign(a.id, req.Meta, fence)
	}
	if err == nil && d.opts.Inherit {
		err = errors.Join(a.file.inherit(), a.member.inherit())
	}
	if err != nil {
		return err
	}
	d.hold(a, fence)
	return nil
}

// occupied returns the answer to a member that finds the lock file locked by a mutex. a.mu must be
// held.
func (a *acquisition) occupied(req *backend.Request) error {
	holder, err := a.file.holder(a.key)
	switch {
	case err != nil:
		return err
	case holder == nil: // an attempt that is about to become a member
		return &backend.Busy{Queued: req.Queue, State: pauseWoken}
	case req.Mode == backend.Permit:
		return kind.Of(req).Conflict(kind.Writer)
	}
	return a.busy(holder, req.Queue)
}

// sign writes the grant of a member into its file, for Inspect.
func (f *lockFile) sign(name id, meta string, fence uint64) error {
	r := &record{fence: fence, since: time.Now(), key: name.key, owner: name.owner, meta: meta}
	b, err := r.encode()
	if err != nil {
		return err
	}
	err = ignoreInterrupts(func() error { _, err := unix.Pwrite(f.fd, b, 0); return err })
	return interpretError("write", f.path, err)
}

// inPlace reports whether the lock file, and the file of a member, still have their paths. a.mu
// must be held.
func (a *acquisition) inPlace() (bool, error) {
	current, err := a.file.inPlace()
	if err == nil && current && a.member != nil {
		current, err = a.member.inPlace()
	}
	return current, err
}

// leave removes the file of a member, and the directory if it was the last one. Another process
// that has the directory open finds it removed, and makes a new one.
func (a *acquisition) leave() {
	if a.member == nil {
		return
	}
	_ = unix.Unlink(a.member.path)
	a.member.unlock()
	a.member.close()
	_ = unix.Rmdir(filepath.Dir(a.member.path))
	a.member = nil
}

// info describes the living members, of which some may wait. key is only for a directory without
// holders.
func (m *members) info(key string) (*backend.Info, error) {
	info := newInfo(key, nil)
	for _, e := range m.all {
		alive, err := m.isAlive(e)
		if err != nil {
			return nil, err
		}
		if !alive {
			continue
		}
		r, err := m.record(e)
		if err != nil {
			return nil, err
		}
		if r != nil {
			info.Key, info.Mode, info.Limit = r.key, e.word.Mode(), e.word.Limit()
			info.Holders = append(info.Holders, newHolder(r))
		}
	}
	return info, nil
}

// record returns the grant in a member's file, or nil if the member waits.
func (m *members) record(e member) (*record, error) {
	fd, err := m.open(e, unix.O_RDONLY)
	if err != nil {
		return nil, interpretError("open", m.path, err)
	}
	defer func() { _ = unix.Close(fd) }()
	buf := make([]byte, slotSize)
	var n int
	err = ignoreInterrupts(func() (err error) {
		n, err = unix.Pread(fd, buf, 0)
		return err
	})
	return decode(buf[:n]), interpretError("read", m.path, err)
}

// inspectMembers describes the members of a key, by the path of their directory. It returns nil if
// there is no directory.
func inspectMembers(path, key string) (*backend.Info, error) {
	m, err := openMembers(path, false)
	if err != nil || m == nil {
		return nil, err
	}
	defer m.close()
	return m.info(key)
}
