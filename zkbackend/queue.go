package zkbackend

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/kind"
)

// entries lists the holder and the waiters of a lock, in their order. It is empty if there is no
// such lock. Nodes of other names are ignored.
func (s *session) entries(queue string) ([]entry, error) {
	entries, err := s.entriesOf(queue)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	return entries, err
}

// entriesOf is entries for a queue that exists. Otherwise it returns zk.ErrNoNode.
func (s *session) entriesOf(queue string) ([]entry, error) {
	names, _, err := s.conn.Children(queue)
	return parseEntries(names), err
}

// parseEntries returns the entries with these names, in their order.
func parseEntries(names []string) []entry {
	entries := make([]entry, 0, len(names))
	for _, name := range names {
		if e, ok := parseEntry(name); ok {
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, compareEntries)
	return entries
}

// syncedEntries is entries of a server that has caught up with the leader.
func (s *session) syncedEntries(queue string) ([]entry, error) {
	if _, err := s.conn.Sync(queue); err != nil {
		return nil, err
	}
	return s.entries(queue)
}

// checkRoom returns *Busy if a, which has no node yet, would have to wait behind the present
// entries, and ErrConflict if they are of another kind. It returns zk.ErrNoNode if the server has
// no queue. The server may lag behind the leader, so a refusal is confirmed by a second list, after
// a sync.
func (a *acquisition) checkRoom() error {
	s := a.session
	entries, err := s.entriesOf(a.queue)
	if a.refusal(entries) != nil {
		entries, err = s.syncedEntries(a.queue)
	}
	return cmp.Or(err, a.refusal(entries))
}

// checkQueueExists returns zk.ErrNoNode if the server has no queue for a. It may lag behind the
// leader.
func (a *acquisition) checkQueueExists() error {
	exists, _, err := a.session.conn.Exists(a.queue)
	if err == nil && !exists {
		err = zk.ErrNoNode
	}
	return err
}

// refusal returns the answer to an attempt that does not wait and finds these entries. It is nil if
// the attempt can go on.
func (a *acquisition) refusal(entries []entry) error {
	err := kind.Conflict(a.kind, entries)
	if err == nil && len(kind.Blockers(a.kind, entries)) > 0 {
		return &backend.Busy{Holder: entries[0].owner}
	}
	return err
}

// createNode creates the node of a behind all nodes of the queue, and begins to watch it. A write
// to the queue in the same transaction makes the server report the number of its nodes: a node that
// is alone needs no list. begun is when the attempt began. a.turn must be taken.
func (d *driver) createNode(a *acquisition, meta string, begun moment) error {
	results, err := a.session.conn.Multi(
		&zk.CreateRequest{
			Path: a.queue + "/" + nodeName(a.owner, a.kind), Data: []byte(meta),
			Acl: d.settings.acl, Flags: zk.FlagEphemeralSequential,
		},
		&zk.SetDataRequest{Path: a.queue, Version: -1})
	if err != nil {
		if !isDefinite(err) {
			a.markUnknown()
		}
		return err
	}
	if len(results) != 2 || results[1].Stat == nil {
		a.markUnknown()
		return errors.New("unexpected answer")
	}
	stat := results[1].Stat
	a.markQueued(results[0].String)
	a.alone, a.created = stat.NumChildren == 1, uint64(stat.Mzxid)
	a.own.Store(a.session.watchInBackground(a.node))
	a.session.proof.add(begun)
	return nil
}

// createWithQueue creates the queue, unless it exists already, and the node of a. The second
// request does not wait for the answer to the first, which saves a round trip: on one connection
// the server executes it after the first. Otherwise it may find no queue. a.turn must be taken.
func (d *driver) createWithQueue(a *acquisition, meta string, begun moment) error {
	s := a.session
	sent, made := make(chan struct{}), make(chan error, 1)
	defer s.onSent(action{opContainer, a.queue}, func() { close(sent) })()
	go func() { made <- d.makeContainer(s, a.queue, nil) }()
	select {
	case <-sent:
	case err := <-made: // no container was requested, or another attempt has taken the signal
		if err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return err
		}
		made <- err
	}
	err := d.createNode(a, meta, begun)
	if unmade := <-made; errors.Is(err, zk.ErrNoNode) && !errors.Is(unmade, zk.ErrNodeExists) {
		return cmp.Or(unmade, err)
	}
	return err
}

// makeLock creates the node of a lock, which holds its name, unless it exists already. It reports
// whether there are nodes in it, and returns ErrConflict if another node is in its place.
func (d *driver) makeLock(s *session, name string) (hasQueue bool, err error) {
	path := d.path(name)
	err = d.makeContainer(s, path, []byte(name))
	if errors.Is(err, zk.ErrNoNode) {
		if err = d.makeDirectory(s); err != nil {
			return false, err
		}
		err = d.makeContainer(s, path, []byte(name))
	}
	d.makesLocks.Store(err == nil)
	if !errors.Is(err, zk.ErrNodeExists) {
		return false, err
	}
	return s.checkLock(path, name)
}

// makeDirectory creates the directory of locks if there is none. It does not create the chroot:
// clients with a misspelt chroot would not exclude the clients with the right one.
func (d *driver) makeDirectory(s *session) error {
	exists, _, err := s.conn.Exists(d.settings.root)
	if exists || err != nil {
		return err
	}
	_, err = s.conn.Create(d.settings.root, nil, zk.FlagPersistent, d.settings.acl)
	switch {
	case errors.Is(err, zk.ErrNodeExists):
		return nil
	case errors.Is(err, zk.ErrNoNode):
		return fmt.Errorf("%w: the chroot %q does not exist",
			backend.ErrUnavailable, d.settings.Chroot)
	}
	return err
}

// makeContainer creates a node that the server removes when it is empty. Servers before 3.5 have no
// such nodes; there it creates a normal node, which remove deletes.
func (d *driver) makeContainer(s *session, path string, data []byte) error {
	if !d.noContainers.Load() {
		_, err := s.conn.CreateContainer(path, data, zk.FlagContainer, d.settings.acl)
		if !isUnimplemented(err) {
			return err
		}
		d.noContainers.Store(true)
	}
	_, err := s.conn.Create(path, data, zk.FlagPersistent, d.settings.acl)
	return err
}

// checkLock reports whether there are nodes in the node of a lock. It returns ErrConflict if the
// node at path is not the node of that lock.
func (s *session) checkLock(path, name string) (hasQueue bool, err error) {
	data, stat, err := s.conn.Get(path)
	switch {
	case err != nil:
		return false, err
	case string(data) != name:
		return false, errForeign
	}
	return stat.NumChildren > 0, nil
}

// remove deletes a node of a queue. It returns ErrNotHeld if there is no such node. The server
// wakes the successor, which watches the node.
//
// On a server without containers, and when the numbers of the queue have ended, it also deletes the
// queue and the lock's node; the server refuses that while they have nodes. Both go in one
// transaction: after the queue alone, the lock's node could be replaced by a foreign one.
func (d *driver) remove(s *session, queue, node string) error {
	err := s.conn.Delete(node, -1)
	if errors.Is(err, zk.ErrNoNode) {
		return backend.ErrNotHeld
	}
	if err == nil && (d.noContainers.Load() || !isOrdered(node)) {
		_, _ = s.conn.Multi(
			&zk.DeleteRequest{Path: queue, Version: -1},
			&zk.DeleteRequest{Path: strings.TrimSuffix(queue, queueNode), Version: -1})
	}
	return err
}
