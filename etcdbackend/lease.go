package etcdbackend

import (
	"context"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
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
		if _, err := d.keepAlive(ctx, l); !isLeaseGone(err) {
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
	sent = time.Now()
	if _, err = d.touch(ctx, l.id); isLeaseGone(err) {
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

// touch is one keep-alive and returns the term that it was answered with. The client's own
// KeepAliveOnce repeats it without a pause for as long as members have no leader, and
// KeepAlive does not tell when it sent what.
func (d *driver) touch(ctx context.Context, id clientv3.LeaseID) (time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream
	stream, err := d.keepAlives.LeaseKeepAlive(ctx)
	if err != nil {
		return 0, clientv3.ContextError(ctx, err)
	}
	_ = stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}) // Recv tells what went wrong
	resp, err := stream.Recv()
	switch {
	case err != nil:
		return 0, clientv3.ContextError(ctx, err)
	case resp.TTL <= 0:
		return 0, rpctypes.ErrLeaseNotFound
	}
	return time.Duration(resp.TTL) * time.Second, nil
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
	for _, i := range members {
		if seen[gs[i].Owner] {
			answers[i].Term = backend.Term{Sent: sent, TTL: l.ttl}
		} else {
			unseen = append(unseen, i)
		}
	}
	return unseen
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

// exorcise removes keys that nobody knows of. What fails is found again.
func (d *driver) exorcise(ghosts []string) {
	ctx, cancel := d.bound(d.life)
	defer cancel()
	for _, k := range ghosts {
		if _, err := d.client.Delete(ctx, k); err != nil {
			return
		}
	}
}

// renewKey renews a grant by its key alone: one of another connection, or one that has to be
// looked for.
func (d *driver) renewKey(ctx context.Context, g *backend.Grant) (backend.Term, error) {
	resp, err := d.client.Get(ctx, d.prefix(g.Key)+g.Owner, clientv3.WithKeysOnly())
	switch {
	case err != nil:
		return backend.Term{}, interpretError(ctx, err)
	case len(resp.Kvs) == 0:
		d.mu.Lock()
		defer d.mu.Unlock()
		if a := d.acquisitions[g.Owner]; a != nil && !a.releasing {
			d.dismiss(a)
		}
		return backend.Term{}, fmt.Errorf("%w: its key is gone", backend.ErrLost)
	}
	sent := time.Now()
	ttl, err := d.touch(ctx, clientv3.LeaseID(resp.Kvs[0].Lease))
	switch {
	case isLeaseGone(err):
		return backend.Term{}, fmt.Errorf("%w: %w", backend.ErrLost, err)
	case err != nil:
		return backend.Term{}, interpretError(ctx, err)
	}
	return backend.Term{Sent: sent, TTL: ttl}, nil
}
