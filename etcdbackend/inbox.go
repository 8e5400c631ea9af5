package etcdbackend

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// The inbox of a driver is a key. A driver that breaks a lock writes the broken owner to the inbox
// of the holder's driver. One watch of the inbox serves all held locks, so an uncontended lock
// needs no watch.

// openInbox starts to watch the inbox. It returns when the watch exists, so that no break comes
// before the driver listens. ctx limits only the opening.
func (d *driver) openInbox(ctx context.Context) error {
	ctx, cancel := d.bound(ctx)
	defer cancel()
	life, end := context.WithCancel(d.life)
	stop := context.AfterFunc(ctx, end) // nothing else ends Watch
	events := d.watchInbox(life, 0)
	created, ok := <-events
	err := created.Err()
	switch {
	case !stop():
		err = ctx.Err()
	case !ok:
		err = errEnded
	}
	if err != nil {
		end()
		return asUnavailable(ctx, err)
	}
	d.background.Go(func() {
		defer end()
		d.readInbox(events, created.Header.Revision+1)
	})
	return nil
}

// watchInbox watches the inbox from a revision. 0 means from now on.
func (d *driver) watchInbox(ctx context.Context, revision int64) clientv3.WatchChan {
	return d.client.Watch(ctx, d.inbox,
		clientv3.WithRev(revision), clientv3.WithCreatedNotify(), clientv3.WithFilterDelete())
}

// readInbox is the goroutine of the inbox. If a watch fails, readInbox opens another one from the
// next revision after retryDelay. If a compaction has removed that revision, holders learn of a
// missed break from their next renewal.
func (d *driver) readInbox(events clientv3.WatchChan, revision int64) {
	for {
		for resp := range events {
			if resp.CompactRevision > 0 {
				revision = 0
			}
			if resp.Err() != nil {
				break
			}
			for _, ev := range resp.Events {
				d.loseBroken(string(ev.Kv.Value), ev.Kv.ModRevision)
			}
			// The notice that the watch exists has the newest revision, but the events of the past
			// are still to come.
			if !resp.Created || revision == 0 {
				revision = resp.Header.Revision + 1
			}
		}
		select {
		case <-time.After(retryDelay):
		case <-d.life.Done():
			return
		}
		events = d.watchInbox(d.life, revision)
	}
}

// loseBroken reports that Break removed the key of an owner at a revision. The watch of the queue
// may report the same removal; only the first of both has an effect.
func (d *driver) loseBroken(owner string, revision int64) {
	d.mu.Lock()
	lost := d.markRemoved(owner, revision)
	d.mu.Unlock()
	lose([]func(error){lost}, errBroken)
}
