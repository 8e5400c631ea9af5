package zkbackend

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/kind"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestConflictIsOfTheFirstEntry checks that a node of another kind behind the holder's is no
// conflict for a caller that fits the holder. It belongs to an attempt that is about to fail, or to
// a client that has died. The caller waits for its end, too.
func TestConflictIsOfTheFirstEntry(t *testing.T) {
	t.Parallel()
	s := testenv.ZooKeeper(t)
	holder, other, conn := openURL(t, s.URL), openURL(t, s.URL), admin(t, s.Addr)
	g := raw.Acquire(t, holder, raw.Request(t, patience))
	name := nodeName(raw.NewOwner(), kind.Kind("p3"))
	node, err := conn.Create(holder.queue(g.Key)+"/"+name, nil, zk.FlagEphemeralSequential,
		zk.WorldACL(zk.PermAll))
	must(t, err)
	try := raw.Request(t, patience)
	try.Queue = false
	_ = raw.Busy(t, other, try)
	reader := raw.Request(t, patience)
	reader.Mode = backend.Shared
	b := raw.Busy(t, other, reader)
	raw.Release(t, holder, g)
	must(t, conn.Delete(node, -1))
	_, err = other.Wait(t.Context(), reader, b)
	must(t, err)
	raw.Release(t, other, raw.Acquire(t, other, reader))
}

// TestConflictIsConfirmed checks that a conflict is reported only after a sync: the server may lag
// behind the leader, where the lock is free.
func TestConflictIsConfirmed(t *testing.T) {
	s := testenv.NewZooKeeper(t, 2*time.Second)
	d := openURL(t, s.URL)
	req, try := raw.Request(t, patience), raw.Request(t, patience)
	req.Mode, req.Limit, try.Queue = backend.Permit, 3, false
	g := raw.Acquire(t, d, req)
	const attempts = 20
	before := received(t, s.Addr)
	for range attempts {
		_, err := d.Acquire(t.Context(), try)
		raw.WantIs(t, "Acquire", err, backend.ErrConflict)
	}
	if n := received(t, s.Addr) - before; n < 3*attempts { // two lists and a sync
		t.Errorf("%d requests for %d conflicts", n, attempts)
	}
	raw.Release(t, d, g)
}

// TestInspectSkipsAVanishedHolder checks that Inspect shows the other holders if one of them leaves
// after the list of the queue.
func TestInspectSkipsAVanishedHolder(t *testing.T) {
	t.Parallel()
	d := openURL(t, testenv.ZooKeeper(t).URL)
	req, left := raw.Request(t, patience), raw.Request(t, patience)
	req.Mode, left.Mode = backend.Shared, backend.Shared
	g, gone := raw.Acquire(t, d, req), raw.Acquire(t, d, left)
	entries, err := d.session.entries(d.queue(g.Key))
	must(t, err)
	raw.Release(t, d, gone)
	holders, err := d.session.readHolders(d.queue(g.Key), entries)
	if err != nil || len(entries) != 2 || len(holders) != 1 || holders[0].Owner != g.Owner {
		t.Errorf("%+v of %+v, %v", holders, entries, err)
	}
	raw.Release(t, d, g)
}
