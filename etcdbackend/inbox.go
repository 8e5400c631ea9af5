package etcdbackend

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// The inbox of a driver is a key. A driver that breaks a lock writes the broken owner to the inbox
// of the holder's driver. One watch of the inbox serves all held locks, so an uncontended lock
// needs no watch.
//
// The same watch reports the end of a lease: each lease of the driver has a marker, a key that the
// server removes with the lease. The removal comes to the holders as fast as to the waiters. It is
// needed after a former leader has revoked a lease that was renewed, and after an operator has.
// The removal alone proves nothing, because an operator can delete the marker. So the driver
// creates the marker again, which the server refuses only if the lease has ended.
//
// A message is only faster than a renewal, never necessary: if it is lost, the holder detects the
// Break, or the end of the lease, when it renews. So the driver never reads the inbox itself, and a
// failed watch costs only time. The inbox belongs to the lease of the broken holder, and ends with
// it.

// openInbox starts to watch the inbox and the markers. It returns when the watch exists, so that no
// break comes before the driver listens. ctx limits only the opening.
func (d *driver) openInbox(ctx context.Context) error {
	ctx, cancel := d.bound(ctx)
	defer cancel()
	w, err := d.openWatch(ctx, d.inbox, 0, d.timeout/2)
	if err != nil {
		return asUnavailable(ctx, err)
	}
	d.background.Go(func() { d.readInbox(w) })
	return nil
}

// readInbox is the goroutine of the inbox. If a watch fails, readInbox opens another one from the
// next revision. If a compaction has removed that revision, holders learn of a missed break from
// their next renewal.
func (d *driver) readInbox(w watch) {
	revision := w.revision + 1
	for {
		for resp := range w.events {
			if resp.CompactRevision > 0 {
				revision = 0
			}
			if resp.Err() != nil {
				break
			}
			for _, ev := range resp.Events {
				d.readMessage(ev)
			}
			revision = resp.Header.GetRevision() + 1
		}
		w.end()
		var err error
		if w, err = d.reopenInbox(revision); err != nil {
			return
		}
		if revision == 0 {
			revision = w.revision + 1
		}
	}
}

// reopenInbox opens another watch of the inbox from a revision, and begins with retryDelay. 0 means
// from now on. It repeats that until the watch exists, and returns an error only if the driver is
// closed.
func (d *driver) reopenInbox(revision int64) (watch, error) {
	for {
		select {
		case <-time.After(retryDelay):
		case <-d.life.Done():
			return watch{}, errClosed
		}
		if w, err := d.openWatch(d.life, d.inbox, revision, d.timeout/2); err == nil {
			return w, nil
		}
	}
}

// readMessage handles one change of the inbox or of a marker.
func (d *driver) readMessage(ev *clientv3.Event) {
	isInbox := string(ev.Kv.Key) == d.inbox
	switch {
	case isInbox && ev.Type == clientv3.EventTypePut:
		d.loseBroken(string(ev.Kv.Value), ev.Kv.ModRevision)
	case !isInbox && ev.Type == clientv3.EventTypeDelete:
		if l := d.findLease(d.leaseOf(ev.Kv.Key)); l != nil {
			d.mark(l)
		}
	}
}

// mark creates the marker of a lease in the background, and ends the lease if the server has no
// such lease. It repeats what may have failed for a moment, for Options.Timeout at most. Without
// the marker, the next renewal detects the end of the lease; if the lease has not ended, the
// renewal calls mark again.
func (d *driver) mark(l *lease) {
	d.background.Go(func() {
		ctx, cancel := d.bound(d.life)
		defer cancel()
		for {
			err := d.putMarker(ctx, l)
			if isLeaseGone(err) {
				d.endLease(l)
				return
			}
			if err == nil || !isTransient(err) && !isUnsent(err) {
				return
			}
			select {
			case <-time.After(retryDelay):
			case <-ctx.Done():
				return
			}
		}
	})
}

// putMarker sends one request for mark, which leaves mark time to repeat it with another member.
func (d *driver) putMarker(ctx context.Context, l *lease) error {
	ctx, cancel := d.boundTo(ctx, d.timeoutFor(l.ttl))
	defer cancel()
	_, err := d.client.Put(ctx, d.markerOf(l.id), "", clientv3.WithLease(l.id))
	return err
}

// loseBroken reports that Break removed the key of an owner at a revision. The watch of the queue
// may report the same removal; only the first of both has an effect.
func (d *driver) loseBroken(owner string, revision int64) {
	d.mu.Lock()
	lost := d.markRemoved(owner, revision)
	d.mu.Unlock()
	lose([]func(error){lost}, errBroken)
}
