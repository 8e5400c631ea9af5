//go:build darwin || dragonfly || freebsd || linux

package filebackend

import (
	"context"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/kind"
)

// Downgrade implements backend.Downgrader.
func (d *driver) Downgrade(ctx context.Context, g *backend.Grant) (*backend.Grant, error) {
	return backend.Call(ctx, func(context.Context) (*backend.Grant, error) {
		a := d.find(&g.Request)
		if a == nil {
			return nil, errUnknown
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		sent := time.Now()
		if err := d.check(a); err != nil {
			return nil, err
		}
		if err := d.downgrade(a, g); err != nil {
			return nil, err
		}
		wakeWaiters(a.path) // nothing was closed
		shared := *g
		shared.Mode, shared.Term = backend.Shared, d.term(sent, g.TTL)
		return &shared, nil
	})
}

// downgrade makes a writer the first member of its key, as a reader, and then the lock of its file
// a shared one. The kernel makes this change in two steps. A mutex that locks the file in between
// finds the members, and gives way. a.mu must be held, and a must be held.
func (d *driver) downgrade(a *acquisition, g *backend.Grant) error {
	m, err := openMembers(setPath(a.path), true)
	if err != nil {
		return err
	}
	defer m.close()
	reader := member{m.first() - 1, kind.Reader, g.Owner}
	switch at := m.find(g.Owner); {
	case at < 0:
		if a.member, err = m.add(reader); err != nil {
			return err
		}
		if err := a.member.sign(a.id, g.Meta, a.fence); err != nil {
			return err
		}
		if d.opts.Inherit {
			if err := a.member.inherit(); err != nil {
				return err
			}
		}
	case m.all[at].word != kind.Writer:
		return nil // it is a reader already
	default:
		if err := m.rename(m.all[at], reader); err != nil {
			return err
		}
		a.member.path = filepath.Join(m.path, reader.String())
	}
	_ = unmark(a.file.fd)
	return d.share(a)
}

// share makes the lock of a's file a shared one. It repeats the second step for as long as a mutex
// may take to give way. If that takes too long, the lock is lost. a.mu must be held.
func (d *driver) share(a *acquisition) error {
	for end := time.Now().Add(maxGate); ; {
		shared, err := a.file.tryLockFor(backend.Shared)
		if shared {
			return nil
		}
		if err != nil || time.Now().After(end) {
			d.forget(a)
			return errUnknown
		}
		time.Sleep(gatePause)
	}
}

// first returns the lowest number of a member.
func (m *members) first() uint64 {
	if len(m.all) == 0 {
		return firstSeq
	}
	return m.all[0].seq
}

// rename gives a member another place or kind. Its file stays locked.
func (m *members) rename(from, to member) error {
	dir := int(m.dir.Fd())
	err := unix.Renameat(dir, from.String(), dir, to.String())
	return interpretError("rename", m.path, err)
}
