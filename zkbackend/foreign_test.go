package zkbackend

import (
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestReleaseRemovesNoForeignNode checks a driver that removes empty nodes itself. The driver does
// not remove a node of another program that has replaced the lock's node.
func TestReleaseRemovesNoForeignNode(t *testing.T) {
	t.Parallel()
	s := testenv.ZooKeeper(t)
	d, conn := openURL(t, s.URL), admin(t, s.Addr)
	d.noContainers.Store(true)
	g := raw.Acquire(t, d, raw.Request(t, patience))
	path, made := d.path(g.Key), false
	// This function runs while the removal of the queue is under way.
	defer d.session.onSent(action{opDelete, d.queue(g.Key)}, func() {
		for exists := true; exists; {
			var err error
			if exists, _, err = conn.Exists(d.queue(g.Key)); err != nil {
				t.Errorf("exists: %v", err)
				return
			}
		}
		// Another client removes the lock's node, and an administrator creates a node in its place.
		_ = conn.Delete(path, -1)
		_, err := conn.Create(path, []byte("precious"), zk.FlagPersistent, zk.WorldACL(zk.PermAll))
		made = err == nil
	})()
	raw.Release(t, d, g)
	if exists, _, err := conn.Exists(path); exists != made || err != nil {
		t.Errorf("a foreign node was created: %t; it exists after the release: %t, %v",
			made, exists, err)
	}
	if made {
		_ = conn.Delete(path, -1)
	}
}

// TestForeignNodeInALock checks a lock without a queue in whose node there is another one.
func TestForeignNodeInALock(t *testing.T) {
	t.Parallel()
	s := testenv.ZooKeeper(t)
	d, conn := openURL(t, s.URL), admin(t, s.Addr)
	for _, waits := range []bool{true, false} {
		req := raw.Request(t, patience)
		req.Key, req.Queue = raw.NewOwner(), waits
		for _, path := range []string{d.path(req.Key), d.path(req.Key) + "/foreign"} {
			_, err := conn.Create(path, []byte(req.Key), zk.FlagPersistent, zk.WorldACL(zk.PermAll))
			must(t, err)
		}
		raw.Release(t, d, raw.Acquire(t, d, req))
	}
}
