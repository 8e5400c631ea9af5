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

// Downgrade implements backend.Downgrader. It waits for the lock of the directory, and on some
// systems for mutexes that give way, for maxGate each at most. The record of the lock file stays as
// it is: the grant keeps its owner and its fence.
func (d *driver) Downgrade(ctx context.Context, g *backend.Grant) (*backend.Grant, error) {
	if d.network {
		return nil, errNetwork
	}
	return backend.Call(ctx, func(context.Context) (*backend.Grant, error) {
		a := d.find(&g.Request)
		if a == nil {
			return nil, errUnknown
		}
		d.beginUpkeep(a)
		defer d.endUpkeep(a)
		sent := time.Now()
		if err := d.check(a); err != nil {
			return nil, err
		}
		err := a.withMembers(func(m *members) error { return d.downgrade(m, a, g) })
		if err != nil {
			return nil, err
		}
		wakeWaiters(a.path) // nothing was closed
		shared := *g
		shared.Mode, shared.Term = backend.Shared, d.term(sent, g.TTL)
		return &shared, nil
	})
}

// downgrade makes a writer the first member of its key, as a reader, and then the lock of its file
// a shared one. Each step may be repeated, because an earlier call may have failed in between. a.mu
// must be held, and a must be held.
func (d *driver) downgrade(m *members, a *acquisition, g *backend.Grant) error {
	if err := d.becomeReader(m, a, g); err != nil {
		return err
	}
	_ = unmark(a.file.fd)
	return d.share(a)
}

// becomeReader gives a writer the signed file of a reader. A failure leaves the writer as it was,
// so the rename comes last. a.mu must be held.
func (d *driver) becomeReader(m *members, a *acquisition, g *backend.Grant) (err error) {
	first := member{m.first() - 1, kind.Reader, g.Owner}
	isNew := a.member == nil
	if isNew {
		if err := a.join(m, first); err != nil {
			return err
		}
	}
	err = a.member.sign(a.id, g.Meta, a.fence)
	if err == nil && d.opts.Inherit {
		err = a.member.inherit()
	}
	if err == nil && a.place.word == kind.Writer {
		err = a.rename(m, first)
	}
	if err != nil && isNew { // an unsigned file is a waiter's, which others may remove
		a.leave()
	}
	return err
}

// share makes the lock of a's file a shared one. A system may make this change in two steps
// (flock(2)); Linux does not since version 4.0. A mutex that locks the file in between finds the
// members, and gives way. share tries again for as long as that may take, and otherwise the lock is
// lost. a.mu must be held.
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

// rename gives a member another place or kind. Its file stays locked. a.mu must be held.
func (a *acquisition) rename(m *members, to member) error {
	dir := int(m.dir.Fd())
	if err := unix.Renameat(dir, a.place.String(), dir, to.String()); err != nil {
		return interpretError("rename", m.path, err)
	}
	a.place, a.member.path = to, filepath.Join(m.path, to.String())
	return nil
}
