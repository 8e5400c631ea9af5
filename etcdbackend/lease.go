package etcdbackend

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
)

// leaseState is the state of a lease and of its keys.
//
//	event     sound     doubtful  gone
//	doubt     doubtful  .         .
//	endLease  gone      gone      .
type leaseState uint8

const (
	// sound: each key of the lease belongs to an acquisition.
	sound leaseState = iota
	// doubtful: an attempt had no answer, so the lease may have a key without an acquisition.
	doubtful
	// gone: the server has reported that the lease has ended, and with it all its keys.
	gone
)

// lease is a lease of etcd, to which the keys of all acquisitions with one TTL belong. Renewals
// keep it alive, and so do attempts that find no fresh proof. Without either it ends by itself. A
// lease that is gone is replaced; its keys are gone, too.
type lease struct {
	id  clientv3.LeaseID
	ttl time.Duration // as granted by the server

	// d.mu guards these.
	sent  time.Time // when the request of the newest proof was sent
	state leaseState
}

// term returns the newest proof. d.mu must be held.
func (l *lease) term() backend.Term { return backend.Term{Sent: l.sent, TTL: l.ttl} }

// doubt records that an attempt had no answer. d.mu must be held.
func (l *lease) doubt() {
	if l.state == sound {
		l.state = doubtful
	}
}

// slot has the present lease for one TTL.
type slot struct {
	turn  chan struct{} // full while one attempt requests a proof or a new lease for all
	lease *lease        // nil: none; d.mu guards it
}

// freshLease returns the lease for a TTL with a fresh proof: one that is younger than a sixth of
// the TTL. A grant counts from that proof, so about five sixths of its term are left, or more. If
// the proof is stale, one caller requests another one, and the other callers wait for it.
func (d *driver) freshLease(ctx context.Context, ttl time.Duration) (*lease, error) {
	n := seconds(ttl)
	s, l, fresh := d.slotOf(n)
	if fresh {
		return l, nil
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if _, l, fresh = d.slotOf(n); fresh { // the caller before this one has requested a proof
		return l, nil
	}
	if l != nil {
		p, err := d.keepAlive(ctx, l)
		if err == nil {
			d.searchGhosts(l, p)
		}
		if !isLeaseGone(err) {
			return l, err
		}
	}
	return d.grantLease(ctx, s, n)
}

// seconds returns a TTL as the server counts it, rounded up.
func seconds(ttl time.Duration) int64 { return int64((ttl + time.Second - 1) / time.Second) }

// slotOf returns the slot for a TTL with its lease, which may be nil. fresh means that the lease
// has a fresh proof.
func (d *driver) slotOf(seconds int64) (s *slot, l *lease, fresh bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s = d.leases[seconds]
	if s == nil {
		s = &slot{turn: make(chan struct{}, 1)}
		d.leases[seconds] = s
	}
	l = s.lease
	return s, l, l != nil && l.state != gone && time.Since(l.sent) < l.ttl/6
}

// grantLease fills a slot. A lease whose answer is lost ends by itself. The caller must have the
// turn of s, so that no two leases are granted for one slot.
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

// keepAlive requests a proof of a lease, and returns the confirmed proof. If the lease is gone,
// keepAlive ends it.
func (d *driver) keepAlive(ctx context.Context, l *lease) (p proof, err error) {
	p, err = d.sendKeepAlive(ctx, l.id)
	if isLeaseGone(err) {
		d.endLease(l)
	}
	if err == nil {
		err = d.confirm(ctx, p)
	}
	if err != nil {
		return proof{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if p.sent.After(l.sent) { // a later request may have been answered earlier
		l.sent = p.sent
	}
	return p, nil
}

// endLease ends all acquisitions of a lease that is gone. Holders lose their locks, and waiters are
// woken for another attempt. Nothing but another attempt creates their keys again. d.mu must not be
// held, because Request.Lost calls the core.
func (d *driver) endLease(l *lease) {
	var lost []func(error)
	d.mu.Lock()
	l.state = gone
	for _, a := range d.acquisitions {
		if a.lease != l || a.state == releasing {
			continue
		}
		if a.state != granted {
			a.signal()
			continue
		}
		lost = append(lost, a.lost)
		d.forget(a)
	}
	for _, s := range d.leases {
		if s.lease == l {
			s.lease = nil
		}
	}
	d.mu.Unlock()
	lose(lost, errLeaseEnded)
}

// isGone reports whether a lease is known to be gone.
func (d *driver) isGone(l *lease) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return l.state == gone
}

// attachedKeys returns the keys that belong to a lease. The answer comes from the memory of the
// leader, which must be the leader of the proof p. A key that a majority has just written may be
// missing. A silent member gets half of the time, and the next one the rest.
func (d *driver) attachedKeys(ctx context.Context, l *lease, p proof) ([][]byte, error) {
	half, cancel := halfOf(ctx)
	defer cancel()
	resp, err := d.client.TimeToLive(half, l.id, clientv3.WithAttachedKeys())
	if err != nil && half.Err() != nil && ctx.Err() == nil {
		resp, err = d.client.TimeToLive(ctx, l.id, clientv3.WithAttachedKeys())
	}
	switch {
	case err != nil:
		return nil, err
	case p.reign != 0 && resp.RaftTerm != p.reign:
		return nil, errDeposed
	}
	return resp.Keys, nil
}

// revokeUnused revokes the leases that no acquisition uses. They would otherwise stay for their
// TTL. A lease with an unreleased grant stays, because its key may have to block the lock, as a
// lock-delay does.
func (d *driver) revokeUnused() {
	ctx, cancel := d.boundTo(context.Background(), closeTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for _, l := range d.unusedLeases() {
		// If this fails, the lease ends by itself.
		wg.Go(func() { _, _ = d.client.Revoke(ctx, l.id) })
	}
	wg.Wait()
}

// unusedLeases returns the leases that no acquisition uses and that have not ended by themselves.
// An acquisition whose release is under way does not count: its key may be removed.
func (d *driver) unusedLeases() []*lease {
	d.mu.Lock()
	defer d.mu.Unlock()
	used := make(map[*lease]bool)
	for _, a := range d.acquisitions {
		if a.state != releasing {
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
