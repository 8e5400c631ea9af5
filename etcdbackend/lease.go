package etcdbackend

import (
	"context"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
)

// lease is a lease of etcd, on which the keys of all acquisitions with one TTL hang. It is
// kept alive by renewals, and by attempts where the last proof is not young; without
// either it ends by itself. Once gone it is replaced, and what hung on it is gone too.
type lease struct {
	id  clientv3.LeaseID
	ttl time.Duration // as granted

	sent time.Time // of the last proof; guarded by the driver's mutex
	gone bool      // the server has said so; guarded by the driver's mutex

	// doubtful: the outcome of an attempt is unknown, so a key may hang on the lease that no
	// acquisition has. Guarded by the driver's mutex.
	doubtful bool
}

func (l *lease) term() backend.Term { return backend.Term{Sent: l.sent, TTL: l.ttl} }

// slot is the place of the lease for one TTL.
type slot struct {
	turn  chan struct{} // held by who asks for a proof or a new lease
	lease *lease
}

// lease returns the lease for a TTL with a proof that is younger than a sixth of it.
func (d *driver) lease(ctx context.Context, ttl time.Duration) (*lease, error) {
	seconds := int64((ttl + time.Second - 1) / time.Second)
	s, l := d.freshLease(seconds)
	if l != nil {
		return l, nil
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if _, l = d.freshLease(seconds); l != nil { // who had the turn before has asked
		return l, nil
	}
	d.mu.Lock()
	l = s.lease
	d.mu.Unlock()
	if l != nil {
		_, err := d.keepAlive(ctx, l)
		if err == nil {
			d.findGhosts(l)
		}
		if !isLeaseGone(err) {
			return l, err
		}
	}
	return d.grantLease(ctx, s, seconds)
}

// freshLease returns no lease where it is old, or none.
func (d *driver) freshLease(seconds int64) (*slot, *lease) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.leases[seconds]
	if s == nil {
		s = &slot{turn: make(chan struct{}, 1)}
		d.leases[seconds] = s
	}
	if l := s.lease; l != nil && !l.gone && time.Since(l.sent) < l.ttl/6 {
		return s, l
	}
	return s, nil
}

// grantLease fills a slot. A lease whose answer is lost ends by itself.
func (d *driver) grantLease(ctx context.Context, s *slot, seconds int64) (*lease, error) {
	sent := time.Now()
	resp, err := d.client.Grant(ctx, seconds)
	if err != nil {
		return nil, err
	}
	l := &lease{id: resp.ID, ttl: time.Duration(resp.TTL) * time.Second, sent: sent}
	d.mu.Lock()
	defer d.mu.Unlock()
	s.lease = l
	return l, nil
}

// keepAlive proves a lease and returns from when on.
func (d *driver) keepAlive(ctx context.Context, l *lease) (sent time.Time, err error) {
	if sent, _, err = d.touch(ctx, l.id); isLeaseGone(err) {
		d.leaseGone(l)
	}
	if err != nil {
		return time.Time{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if sent.After(l.sent) {
		l.sent = sent
	}
	return sent, nil
}

// leaseGone ends all that hangs on l. Nothing of it is ever made anew but by another attempt.
func (d *driver) leaseGone(l *lease) {
	var tell []func(error)
	d.mu.Lock()
	l.gone = true
	for _, a := range d.acquisitions {
		if a.lease != l || a.releasing {
			continue
		}
		if !a.granted {
			a.signal()
			continue
		}
		tell = append(tell, a.lost)
		d.dismiss(a)
	}
	for _, s := range d.leases {
		if s.lease == l {
			s.lease = nil
		}
	}
	d.mu.Unlock()
	tellLost(tell, fmt.Errorf("%w: its lease has ended", backend.ErrLost))
}

// revokeUnused ends the leases on which nothing hangs, which would otherwise stay for their TTL. A
// lease with a grant that was not released stays: its key may have to keep the lock closed.
func (d *driver) revokeUnused() {
	ctx, cancel := d.boundTo(context.Background(), closeTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for _, l := range d.unused() {
		wg.Go(func() { _, _ = d.client.Revoke(ctx, l.id) }) // if it fails, the lease ends by itself
	}
	wg.Wait()
}

// unused returns the leases that nothing hangs on and that have not ended by themselves.
func (d *driver) unused() []*lease {
	d.mu.Lock()
	defer d.mu.Unlock()
	used := make(map[*lease]bool)
	for _, a := range d.acquisitions {
		if !a.releasing {
			used[a.lease] = true
		}
	}
	var unused []*lease
	for _, s := range d.leases {
		if l := s.lease; l != nil && !used[l] && time.Since(l.sent) < l.ttl {
			unused = append(unused, l)
		}
	}
	return unused
}

func tellLost(tell []func(error), err error) {
	for _, lost := range tell {
		if lost != nil {
			lost(err)
		}
	}
}

// Renew implements backend.Driver.
func (d *driver) Renew(ctx context.Context, g *backend.Grant) (backend.Term, error) {
	answer := d.RenewAll(ctx, []*backend.Grant{g})[0]
	return answer.Term, answer.Err
}

// RenewAll implements backend.BatchRenewer: it makes two requests per lease. The answers of
// leases come from the leader's memory, which may not yet have what a majority has
// written, so a key that does not show there is asked for by itself.
func (d *driver) RenewAll(ctx context.Context, gs []*backend.Grant) []backend.Renewal {
	ctx, cancel := d.bound(ctx)
	defer cancel()
	answers := make([]backend.Renewal, len(gs))
	byLease := make(map[*lease][]int) // nil: what hangs on no lease of ours
	d.mu.Lock()
	for i, g := range gs {
		var l *lease
		if a := d.acquisitions[g.Owner]; a != nil && a.granted && !a.releasing && a.name == g.Key {
			l = a.lease
		}
		byLease[l] = append(byLease[l], i)
	}
	d.mu.Unlock()
	var wg sync.WaitGroup
	for l, members := range byLease {
		wg.Go(func() {
			if l != nil {
				members = d.renewLease(ctx, l, gs, members, answers)
			}
			for _, i := range members {
				answers[i].Term, answers[i].Err = d.renewKey(ctx, gs[i])
			}
		})
	}
	wg.Wait()
	return answers
}

// renewLease renews the members of a lease and returns those whose keys have not shown.
func (d *driver) renewLease(
	ctx context.Context, l *lease, gs []*backend.Grant, members []int, answers []backend.Renewal,
) (unseen []int) {
	sent, err := d.keepAlive(ctx, l)
	var keys [][]byte
	if err == nil {
		keys, err = d.attached(ctx, l)
	}
	if err != nil {
		if err = interpretError(ctx, err); d.isGone(l) {
			err = fmt.Errorf("%w: its lease has ended", backend.ErrLost)
		}
		for _, i := range members {
			answers[i].Err = err
		}
		return nil
	}
	seen := d.recognise(keys)
	var doubtful []int
	for _, i := range members {
		switch {
		case !seen[gs[i].Owner]:
			unseen = append(unseen, i)
			continue
		case d.isDoubtful(gs[i].Owner):
			doubtful = append(doubtful, i)
		}
		answers[i].Term = backend.Term{Sent: sent, TTL: l.ttl}
	}
	d.checkKeys(ctx, gs, doubtful, answers)
	return unseen
}

// isDoubtful reports whether an attempt for the owner had no answer. The server may execute it after
// the owner's key was removed: the key of a later revision is a place in the queue, and not the grant's.
func (d *driver) isDoubtful(owner string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.acquisitions[owner]
	return a != nil && a.unknown
}

// maxChecks is how many keys are read at once.
const maxChecks = 16

// checkKeys replaces the answers of grants whose own keys are gone.
func (d *driver) checkKeys(ctx context.Context, gs []*backend.Grant, which []int, answers []backend.Renewal) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, maxChecks)
	for _, i := range which {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if _, err := d.findKey(ctx, gs[i]); err != nil {
				answers[i] = backend.Renewal{Err: err}
			}
		})
	}
	wg.Wait()
}

func (d *driver) isGone(l *lease) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return l.gone
}

// attached returns the keys that hang on a lease.
func (d *driver) attached(ctx context.Context, l *lease) ([][]byte, error) {
	resp, err := d.client.TimeToLive(ctx, l.id, clientv3.WithAttachedKeys())
	if err != nil {
		return nil, err
	}
	return resp.Keys, nil
}

// findGhosts looks in the background for late executions on a lease that attempts have kept alive.
// Without it a process that only waits would keep its own ghost alive for ever.
func (d *driver) findGhosts(l *lease) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !l.doubtful {
		return
	}
	d.running.Go(func() {
		ctx, cancel := d.bound(d.life)
		defer cancel()
		if keys, err := d.attached(ctx, l); err == nil {
			d.recognise(keys)
		}
	})
}

// recognise returns the owners of keys. One that nobody knows was made by a request that the
// server has executed long after it was given up: kept alive with the others, it would
// lock its name for ever, so it is removed behind the caller.
func (d *driver) recognise(keys [][]byte) (seen map[string]bool) {
	seen = make(map[string]bool, len(keys))
	var ghosts []string
	d.mu.Lock()
	for _, k := range keys {
		owner := ownerOf(k)
		if seen[owner] = true; d.acquisitions[owner] == nil && owner != "" {
			ghosts = append(ghosts, string(k))
		}
	}
	d.mu.Unlock()
	if len(ghosts) > 0 && d.life.Err() == nil {
		d.running.Go(func() { d.exorcise(ghosts) })
	}
	return seen
}

// exorcise removes keys that belong to no acquisition. What fails is found again. It never removes a key that
// was made later.
func (d *driver) exorcise(ghosts []string) {
	ctx, cancel := d.bound(d.life)
	defer cancel()
	for _, k := range ghosts {
		resp, err := d.client.Get(ctx, k, clientv3.WithKeysOnly())
		if err != nil {
			return
		}
		if len(resp.Kvs) == 0 || d.knows(ownerOf(resp.Kvs[0].Key)) {
			continue
		}
		found := clientv3.Compare(clientv3.CreateRevision(k), "=", resp.Kvs[0].CreateRevision)
		if _, err := d.client.Txn(ctx).If(found).Then(clientv3.OpDelete(k)).Commit(); err != nil {
			return
		}
	}
}

// knows reports whether there is an acquisition of the owner.
func (d *driver) knows(owner string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.acquisitions[owner] != nil
}

// findKey returns the lease on which the key of a grant hangs.
func (d *driver) findKey(ctx context.Context, g *backend.Grant) (clientv3.LeaseID, error) {
	resp, err := d.client.Get(ctx, d.prefix(g.Key)+g.Owner, clientv3.WithKeysOnly())
	switch {
	case err != nil:
		return 0, interpretError(ctx, err)
	case len(resp.Kvs) == 0, g.Fence > 0 && resp.Kvs[0].CreateRevision != int64(g.Fence):
		d.mu.Lock()
		defer d.mu.Unlock()
		if a := d.acquisitions[g.Owner]; a != nil && !a.releasing {
			d.dismiss(a)
		}
		return 0, fmt.Errorf("%w: its key is gone", backend.ErrLost)
	}
	return clientv3.LeaseID(resp.Kvs[0].Lease), nil
}

// renewKey renews a grant by its key alone: one of another connection, or one that has to be
// looked for.
func (d *driver) renewKey(ctx context.Context, g *backend.Grant) (backend.Term, error) {
	l, err := d.findKey(ctx, g)
	if err != nil {
		return backend.Term{}, err
	}
	sent, ttl, err := d.touch(ctx, l)
	switch {
	case isLeaseGone(err):
		return backend.Term{}, fmt.Errorf("%w: %w", backend.ErrLost, err)
	case err != nil:
		return backend.Term{}, interpretError(ctx, err)
	}
	return backend.Term{Sent: sent, TTL: ttl}, nil
}
