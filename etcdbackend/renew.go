package etcdbackend

import (
	"context"
	"fmt"
	"sync"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
)

// maxChecks limits how many keys of one lease are read at once.
const maxChecks = 16

// RenewAll implements backend.BatchRenewer. It sends three requests for each lease, whatever the
// number of its locks is: a keep-alive, a read that confirms it, and a read of the lease's keys.
// The last read may miss a key: see attachedKeys. Such a grant is renewed singly, and so is a grant
// of another driver.
//
// The requests for different leases are sent at the same time. Each goroutine writes only to the
// renewals of its own members.
//
// The order of the three requests matters. The keys are read after the keep-alive, so a key that is
// found existed after the new term had begun. RenewAll blocks for Options.Timeout at most.
func (d *driver) RenewAll(ctx context.Context, gs []*backend.Grant) []backend.Renewal {
	ctx, cancel := d.bound(ctx)
	defer cancel()
	renewals := make([]backend.Renewal, len(gs))
	var wg sync.WaitGroup
	for l, members := range d.byLease(gs) {
		wg.Go(func() {
			if l != nil {
				members = d.renewLease(ctx, l, gs, members, renewals)
			}
			for _, i := range members {
				renewals[i].Term, renewals[i].Err = d.renewKey(ctx, gs[i])
			}
		})
	}
	wg.Wait()
	return renewals
}

// byLease returns the indices of grants by lease. Under nil are the grants that this driver does
// not hold.
func (d *driver) byLease(gs []*backend.Grant) map[*lease][]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	members := make(map[*lease][]int)
	for i, g := range gs {
		var l *lease
		if a := d.acquisitions[g.Owner]; a != nil && a.state == granted && a.name == g.Key {
			l = a.lease
		}
		members[l] = append(members[l], i)
	}
	return members
}

// renewLease renews the grants of one lease and writes to their renewals. members are their
// indices. It returns the members whose keys were not among the keys of the lease.
func (d *driver) renewLease(
	ctx context.Context, l *lease, gs []*backend.Grant, members []int, renewals []backend.Renewal,
) (unseen []int) {
	p, err := d.keepAlive(ctx, l)
	var attached [][]byte
	if err == nil {
		attached, err = d.attachedKeys(ctx, l, p)
	}
	if err != nil {
		if err = interpretError(ctx, err); d.isGone(l) {
			err = errLeaseEnded
		}
		for _, i := range members {
			renewals[i].Err = err
		}
		return nil
	}
	seen := d.sweepGhosts(l, attached)
	if !seen[markerName(l.id)] {
		d.mark(l) // it was never created, or an operator has deleted it
	}
	var uncertain []int
	for _, i := range members {
		owner := gs[i].Owner
		if !seen[d.creatorFor(owner)] {
			unseen = append(unseen, i)
			continue
		}
		if d.mayHaveGhost(owner) {
			uncertain = append(uncertain, i)
		}
		renewals[i].Term = backend.Term{Sent: p.sent, TTL: l.ttl}
	}
	d.checkKeys(ctx, gs, uncertain, renewals)
	return unseen
}

// creatorFor returns the owner that created the key of an owner.
func (d *driver) creatorFor(owner string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if a := d.acquisitions[owner]; a != nil {
		return a.creator()
	}
	return owner
}

// mayHaveGhost reports whether an attempt of the owner had no answer. The server may execute that
// attempt after the owner's key was removed. It then creates a key with a later revision, which is
// a queue entry and not the key of the grant.
func (d *driver) mayHaveGhost(owner string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.acquisitions[owner]
	return a != nil && a.mayHaveGhost
}

// checkKeys reads the keys of the grants with the given indices. It replaces the renewals of grants
// whose own keys are gone, and of grants whose keys it could not read. Only grants after an attempt
// without an answer need this, because their lease may have another key with the same name.
func (d *driver) checkKeys(
	ctx context.Context, gs []*backend.Grant, indices []int, renewals []backend.Renewal,
) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, maxChecks)
	for _, i := range indices {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if _, err := d.findKey(ctx, gs[i]); err != nil {
				renewals[i] = backend.Renewal{Err: err}
			}
		})
	}
	wg.Wait()
}

// findKey reads the key of a grant and returns its lease. It returns ErrLost and forgets the
// acquisition if the key is gone, was created again after the grant, or has another owner. Without
// a fence, as in a rebuilt grant, it checks only that the owner has a key.
func (d *driver) findKey(ctx context.Context, g *backend.Grant) (clientv3.LeaseID, error) {
	kv, err := d.keyOf(ctx, g)
	switch {
	case err != nil:
		return 0, interpretError(ctx, err)
	case kv == nil, g.Fence > 0 && kv.CreateRevision != int64(g.Fence):
		d.forgetLost(g.Owner)
		return 0, errKeyGone
	}
	return clientv3.LeaseID(kv.Lease), nil
}

// keyOf returns the key of an owner, or nil if there is none. If this driver does not have the
// acquisition, the owner may have adopted the key of any other owner: then keyOf reads all keys of
// the lock.
func (d *driver) keyOf(ctx context.Context, g *backend.Grant) (*mvccpb.KeyValue, error) {
	first, all := d.prefix(g.Key), []clientv3.OpOption{clientv3.WithPrefix()}
	if a := d.find(g.Owner); a != nil && a.name == g.Key {
		first, all = a.key, nil
	}
	resp, err := d.client.Get(ctx, first, all...)
	if err != nil {
		return nil, err
	}
	return ownedBy(resp.Kvs, g.Owner), nil
}

// ownedBy returns the key of an owner among the keys of a lock, or nil.
func ownedBy(kvs []*mvccpb.KeyValue, owner string) *mvccpb.KeyValue {
	for _, kv := range kvs {
		if ownerIn(kv) == owner {
			return kv
		}
	}
	return nil
}

// renewKey renews a grant by its key alone: a grant of another driver, or one whose key was not
// among the keys of its lease. The keep-alive renews the whole lease of the key, but it proves
// nothing for the other grants of that lease.
func (d *driver) renewKey(ctx context.Context, g *backend.Grant) (backend.Term, error) {
	id, err := d.findKey(ctx, g)
	if err != nil {
		return backend.Term{}, err
	}
	p, err := d.sendKeepAlive(ctx, id)
	if isLeaseGone(err) {
		return backend.Term{}, fmt.Errorf("%w: %w", backend.ErrLost, err)
	}
	if err == nil {
		err = d.confirm(ctx, p)
	}
	if err != nil {
		return backend.Term{}, interpretError(ctx, err)
	}
	return backend.Term{Sent: p.sent, TTL: p.ttl}, nil
}
