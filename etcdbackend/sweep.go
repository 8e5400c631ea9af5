package etcdbackend

import (
	"bytes"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// A ghost is a key without an acquisition. The server has executed its request long after the
// caller gave the request up and released the acquisition. Keep-alives would keep the ghost alive
// with the other keys of the lease, and it would lock its name for ever. Only the driver that has
// the lease detects it.
//
// A ghost makes no second holder, because the driver grants nothing for it. It keeps its name taken
// until a renewal or an attempt sweeps its lease, or until the lease ends.

// searchGhosts searches a doubtful lease for ghosts in the background. Attempts call it after a
// keep-alive, with its proof. Without it a process that only waits, and renews no grant, would keep
// its own ghost alive for ever.
func (d *driver) searchGhosts(l *lease, p proof) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l.state != doubtful {
		return
	}
	d.background.Go(func() {
		ctx, cancel := d.bound(d.life)
		defer cancel()
		if attached, err := d.attachedKeys(ctx, l, p); err == nil {
			d.sweepGhosts(l, attached)
		}
	})
}

// sweepGhosts returns the last parts of the keys of a lease: the creators, and the name of the
// marker. It removes the keys of unknown owners in the background. The inbox, the markers and the
// keys of Floor are no ghosts.
func (d *driver) sweepGhosts(l *lease, attached [][]byte) (creators map[string]bool) {
	creators = make(map[string]bool, len(attached))
	var ghosts []string
	d.mu.Lock()
	for _, k := range attached {
		creator := creatorOf(k)
		creators[creator] = true
		isOfLock := bytes.HasPrefix(k, []byte(d.locks()))
		if isOfLock && d.acquisitions[creator] == nil && d.adopted[creator] == 0 && creator != "" {
			ghosts = append(ghosts, string(k))
		}
	}
	d.mu.Unlock()
	if len(ghosts) > 0 {
		d.background.Go(func() { d.removeGhosts(l, ghosts) })
	}
	return creators
}

// removeGhosts removes keys of l without an acquisition. After an error it stops: the next sweep
// finds the rest. Since the sweep an owner may have got an acquisition, its key may have been
// created again, or an Export may have moved the key to another lease. So removeGhosts checks all
// of them, and removes only the revision that it has checked.
func (d *driver) removeGhosts(l *lease, ghosts []string) {
	ctx, cancel := d.bound(d.life)
	defer cancel()
	for _, k := range ghosts {
		resp, err := d.client.Get(ctx, k)
		if err != nil {
			return
		}
		if len(resp.Kvs) == 0 || d.isKnown(ownerIn(resp.Kvs[0])) ||
			resp.Kvs[0].Lease != int64(l.id) {
			continue
		}
		found := clientv3.Compare(clientv3.ModRevision(k), "=", resp.Kvs[0].ModRevision)
		if _, err := d.client.Txn(ctx).If(found).Then(clientv3.OpDelete(k)).Commit(); err != nil {
			return
		}
	}
}
