package etcdbackend

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
)

// All keys of a driver with one TTL share a lease, so one keep-alive renews any number of locks.
// The price is a common end: if the server ends the lease, all these locks are lost at once.
//
// The leader ends a lease that got no keep-alive for its TTL. A keep-alive that comes later waits
// until the lease is gone, so it proves nothing. But a lease can also end after a confirmed
// keep-alive: an operator revokes it, or a former leader does (see Server requirements in the
// package documentation). No proof excludes that. The next renewal detects the end, and so does an
// attempt that creates a key of the lease. Until then there may be another holder.

// leaseState is the state of a lease and of its keys.
//
//	event     sound     doubtful  gone
//	doubt     doubtful  .         .
//	endLease  gone      gone      .
type leaseState uint8

const (
	// sound: each key of the lease belongs to an acquisition.
	sound leaseState = iota
	// doubtful: an attempt had no answer, so the lease may have a key without an acquisition. It
	// stays doubtful until its end, because a request may be executed however late.
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

// age returns the time since the newest proof: the larger of the monotonic and the wall-clock time,
// because the monotonic clock stands still while the machine is suspended. d.mu must be held.
func (l *lease) age() time.Duration {
	now := time.Now()
	return max(now.Sub(l.sent), now.Round(0).Sub(l.sent.Round(0)))
}

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
//
// The lease may end before the caller uses it: the server then refuses the request with
// rpctypes.ErrLeaseNotFound, and creates no key. freshLease blocks for its turn and its requests,
// until ctx ends at most. It does not interpret errors. After an error of one caller the next one
// sends its own request.
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
		switch {
		case errors.Is(err, errLapsed):
			d.revokeLapsed(l)
		case !isLeaseGone(err):
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
	return s, l, l != nil && l.state != gone && l.age() < l.ttl/6
}

// grantLease fills a slot. A lease whose answer is lost ends by itself. The caller must have the
// turn of s, so that no two leases are granted for one slot. A grant needs no confirmation as a
// keep-alive does, because a majority writes it. The server may grant a longer TTL than requested.
func (d *driver) grantLease(ctx context.Context, s *slot, seconds int64) (*lease, error) {
	sent := time.Now()
	resp, err := d.client.Grant(ctx, seconds)
	if err != nil {
		return nil, err
	}
	l := &lease{id: resp.ID, ttl: time.Duration(resp.TTL) * time.Second, sent: sent}
	d.mu.Lock()
	s.lease = l
	d.mu.Unlock()
	d.mark(l)
	return l, nil
}

// findLease returns the lease with an id that a slot or an acquisition has, or nil.
func (d *driver) findLease(id clientv3.LeaseID) *lease {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.leases {
		if s.lease != nil && s.lease.id == id {
			return s.lease
		}
	}
	for _, a := range d.acquisitions {
		if a.lease != nil && a.lease.id == id {
			return a.lease
		}
	}
	return nil
}

// keepAlive requests a proof of a lease, and returns the confirmed proof. If the lease is gone,
// keepAlive ends it. After any other error the former proof stays valid. keepAlive is safe for
// concurrent use: RenewAll calls it without the turn of the slot. d.mu must not be held.
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
	if l.age() >= l.ttl-margin(l.ttl) {
		return proof{}, errLapsed
	}
	if p.sent.After(l.sent) { // a later request may have been answered earlier
		l.sent = p.sent
	}
	return p, nil
}

// margin returns how much earlier a lease counts as lapsed than its TTL ends, because the clocks of
// the client and the server may run at different rates. The core ends leases by the same margin.
func margin(ttl time.Duration) time.Duration { return ttl/100 + 10*time.Millisecond }

// errLapsed is the error of a keep-alive that was answered after the end of the former proof. The
// server renews a lease even while its revocation is under way.
var errLapsed = fmt.Errorf("%w: the answer came after the end of the lease's term",
	backend.ErrUnavailable)

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

// revokeLapsed revokes a lapsed lease in the background. The keep-alive that was too late may have
// prolonged it on the server. An acquisition that waits has a key of the lease, which would block
// the lock and gets no grant any more. A lease with a grant stays, because the core has to release
// the grant, for example after a lock-delay.
func (d *driver) revokeLapsed(l *lease) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range d.acquisitions {
		if a.lease == l && a.state == granted {
			return
		}
	}
	d.revokeLater(int64(l.id))
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
//
// For a lease that is gone the server returns no keys and no error. The keys include the inbox of
// this driver after a Break, and the keys of Floor.
func (d *driver) attachedKeys(ctx context.Context, l *lease, p proof) ([][]byte, error) {
	half, cancel := halfOf(ctx)
	defer cancel()
	limit := d.maxAttached()
	resp, err := d.kv.LeaseKeys(half, l.id, limit)
	if err != nil && half.Err() != nil && ctx.Err() == nil {
		resp, err = d.kv.LeaseKeys(ctx, l.id, limit)
	}
	switch {
	case err != nil:
		return nil, err
	case p.reign != 0 && resp.Header.GetRaftTerm() != p.reign:
		return nil, errDeposed
	}
	return resp.Keys, nil
}

// maxAttached returns the limit of the keys of a lease in bytes. Above maxMessage it grows with the
// number of locks: a lease whose keys cannot be read is never renewed, and its locks are lost.
func (d *driver) maxAttached() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maxMessage + len(d.acquisitions)*(len(d.root)+maxEntry)
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

// unusedLeases returns the leases that no acquisition uses. An acquisition whose release is under
// way does not count: its key may be removed. A lapsed lease counts, because a new leader may have
// prolonged it.
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
		if l := s.lease; l != nil && !used[l] {
			unused = append(unused, l)
		}
	}
	return unused
}
