package zkbackend

import (
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// Where the driver itself removes what is empty, it removes nothing that came into the place of the lock's node.
func TestReleaseRemovesNoForeignNode(t *testing.T) {
	t.Parallel()
	s := testenv.ZooKeeper(t)
	d, conn := openURL(t, s.URL), admin(t, s.Addr)
	d.plain.Store(true)
	g := raw.Acquire(t, d, raw.Request(t, patience))
	path, made := d.path(g.Key), false
	defer d.session.whenDeleted(d.queue(g.Key), func() { // the queue's removal is on its way
		for exists := true; exists; {
			var err error
			if exists, _, err = conn.Exists(d.queue(g.Key)); err != nil {
				t.Errorf("exists: %v", err)
				return
			}
		}
		_ = conn.Delete(path, -1) // another client removes the rest, and an administrator makes a node there
		_, err := conn.Create(path, []byte("precious"), zk.FlagPersistent, zk.WorldACL(zk.PermAll))
		made = err == nil
	})()
	raw.Release(t, d, g)
	if exists, _, err := conn.Exists(path); exists != made || err != nil {
		t.Errorf("a foreign node was made: %t; it is there after the release: %t, %v", made, exists, err)
	}
	if made {
		_ = conn.Delete(path, -1)
	}
}
