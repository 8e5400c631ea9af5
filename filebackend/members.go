//go:build darwin || dragonfly || freebsd || linux

package filebackend

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
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
// The file of a member that waits is empty, and each attempt sets its modification time. So other
// requests detect a waiter that is stopped: they remove its file, and it queues again when it
// continues. The file of a holder has its record, and stays for as long as the process lives.
//
// The directory itself is locked while a process makes an attempt in it, for some microseconds, or
// until the disk has synced its grant.
// Files are added, signed and removed under this lock, except that each member removes its own. The
// last member to leave removes the directory, so a mutex without readers pays one lstat.

const (
	// waiterTerm is how long a waiter keeps its place without an attempt. It makes one every
	// 3/2 pauseMember at the latest. If the clock is set, waiters may lose their places, and
	// nothing else.
	waiterTerm = 3 * time.Second
	// pruned is the number of members that each request probes, so that dead ones are removed.
	pruned = 2
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

// condition is the condition of a member.
type condition uint8

const (
	left  condition = iota // it has left or died, or it has lost its place
	waits                  // it waits for the lock
	holds                  // it holds the lock
)

// probe returns the condition of a member. It removes the file of a process that has died, or of a
// waiter that is stopped. m must be locked.
func (m *members) probe(e member) (condition, error) {
	fd, err := m.open(e, unix.O_RDONLY)
	if errors.Is(err, unix.ENOENT) { // it has left since the directory was read
		return left, nil
	}
	if err != nil {
		return left, interpretError("open", m.path, err)
	}
	defer func() { _ = unix.Close(fd) }()
	isAlive, err := isLocked(fd)
	var stat unix.Stat_t
	if err == nil {
		err = unix.Fstat(fd, &stat)
	}
	switch {
	case err != nil:
		return left, interpretError("flock", m.path, err)
	case isAlive && stat.Size > 0: // it is signed
		return holds, nil
	case isAlive && !isStale(time.Unix(stat.Mtim.Unix())):
		return waits, nil
	}
	err = unix.Unlinkat(int(m.dir.Fd()), e.String(), 0)
	if isAlive && err != nil && !errors.Is(err, unix.ENOENT) {
		return left, interpretError("unlink", m.path, err) // with its file, it has its place
	}
	return left, nil
}

// isLocked reports whether a process has locked the file of a member. If none has, it locks the
// file itself, until fd is closed. That lock is shared, so a process that probes a dead member does
// not make it seem alive to another one.
func isLocked(fd int) (bool, error) {
	err := ignoreInterrupts(func() error { return unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB) })
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

// isStale reports whether a waiter with its last attempt at this time is stopped. A time in the
// future is from before the clock was set back.
func isStale(attempt time.Time) bool { return time.Since(attempt).Abs() > waiterTerm }

// prune probes some of the members in front of a request, in no order, so that dead ones are
// removed. Readers probe no readers otherwise. The request's own file must not be among them: after
// a stop of its process it would be removed as a stopped waiter's, and its permit would not count.
func (m *members) prune(front []member) {
	for range min(pruned, len(front)) {
		_, _ = m.probe(front[rand.N(len(front))])
	}
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
	if errors.Is(err, unix.ENOENT) {
		return nil, errSetRemoved
	}
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
		if c, err := m.probe(e); err != nil || c != left {
			return cmp.Or(err, conflict)
		}
	}
	return nil
}

// blocker returns nil if one of this kind has to wait for no living member among front. Otherwise
// its record has the place of such a member as its fence, and the owner of a holder, if one was
// found.
func (m *members) blocker(word kind.Kind, front []member) (*record, error) {
	var r record
	count := 0
	for _, e := range kind.Blockers(word, front) {
		c, err := m.probe(e)
		switch {
		case err != nil:
			return nil, err
		case c == left:
			continue
		case c == holds:
			r.owner = e.owner
		}
		r.fence = e.seq
		if count++; count >= word.Limit() {
			return &r, nil
		}
	}
	return nil, nil
}

// enter makes an attempt for a among the members of its key. It returns nil if a has the lock. A
// request that waits keeps its place in the order. The core polls at any interval if the driver has
// no Wait for it, so enter then limits the pause: see waiterTerm. a.mu must be held, and a.file
// open.
func (d *driver) enter(a *acquisition, req *backend.Request) error {
	if a.member != nil {
		a.member.touch() // first: the directory may be locked
	}
	err := a.withMembers(func(m *members) error { return d.enterAmong(m, a, req) })
	if busy, ok := errors.AsType[*backend.Busy](err); ok && busy.Queued && !d.notifies() {
		busy.RetryAfter = pauseMember
	}
	return err
}

// enterAmong is enter, with the locked directory. a.mu must be held.
func (d *driver) enterAmong(m *members, a *acquisition, req *backend.Request) error {
	word := kind.Of(req)
	if err := m.conflict(word); err != nil {
		return err
	}
	front, err := a.front(m)
	if err != nil {
		return err
	}
	m.prune(front)
	blocker, err := m.blocker(word, front)
	if err != nil {
		return err
	}
	isNew := a.member == nil
	if isNew && (blocker == nil || req.Queue) {
		if err := a.join(m, member{m.last() + 1, word, req.Owner}); err != nil {
			return err
		}
	}
	if blocker != nil {
		return a.busy(blocker, req.Queue)
	}
	err = d.occupy(a, req)
	if err != nil && isNew && (req.Mode == backend.Permit || !isQueued(err)) {
		a.leave() // now: a permit's file is a conflict for the mutexes that wait for the lock file
	}
	return err
}

// front returns the members in front of a, and confirms its place. A waiter whose file was removed
// has lost its place: it is no member any more. a.mu must be held.
func (a *acquisition) front(m *members) ([]member, error) {
	if a.member == nil {
		return m.all, nil
	}
	current, err := a.member.inPlace()
	if err != nil {
		return nil, fmt.Errorf("%w: file: %w", backend.ErrUnavailable, err)
	}
	at := slices.Index(m.all, a.place)
	if !current || at < 0 {
		a.member.close()
		a.member = nil
		return m.all, nil
	}
	return m.all[:at], nil
}

// join gives a this place, with a file. a.mu must be held.
func (a *acquisition) join(m *members, place member) error {
	file, err := m.add(place)
	if err == nil {
		a.member, a.place = file, place
	}
	return err
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
//
// The directory must be locked. Readers and permits have the lock file together, so nothing else
// keeps two of them from writing its record at the same time. a.mu must be held.
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

// occupied returns the answer to a member that finds the lock file locked by a mutex. The holder is
// unknown if an attempt is about to give way, or if another program has locked the file. a.mu must
// be held.
func (a *acquisition) occupied(req *backend.Request) error {
	holder, err := a.file.holder(a.key)
	switch {
	case err != nil:
		return err
	case holder != nil && req.Mode == backend.Permit:
		return kind.Of(req).Conflict(kind.Writer)
	}
	return a.busy(holder, req.Queue)
}

// touch sets the modification time of a waiter's file. A failure costs at most its place.
func (f *lockFile) touch() {
	now := time.Now()
	_ = os.Chtimes(f.path, now, now)
}

// sign writes the grant of a member into its file, for Inspect and for probe.
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
