package etcdbackend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
)

const (
	// linger is how long a queue is watched after the last has waited in it: who
	// contends again and again need not open the watch each time.
	linger = time.Second
	// rewatch is the pause after a watch has failed, so that one that always fails
	// makes nobody busy.
	rewatch = 100 * time.Millisecond
)

// Wait implements backend.Waiter.
func (d *driver) Wait(ctx context.Context, req *backend.Request, b *backend.Busy) (*backend.Grant, error) {
	if !b.Queued {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	d.mu.Lock()
	a := d.acquisitions[req.Owner]
	d.mu.Unlock()
	if a == nil {
		return nil, nil
	}
	select {
	case <-a.news:
		return d.claim(a, req), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// claim returns the grant if it is a's turn.
func (d *driver) claim(a *acquisition, req *backend.Request) *backend.Grant {
	d.mu.Lock()
	defer d.mu.Unlock()
	if a.queue == nil || a.releasing || a.lease.gone || a.removed > a.created || !a.queue.isFirst(a) {
		return nil
	}
	return d.grant(a, req)
}

// queue is a copy of who holds and waits for one lock, which a watch keeps up to date. It is
// right as of its revision, whatever the delay: who is first then stays so until its
// key is removed, and its lease tells for how long that is not to be feared. All but
// the constant fields are guarded by the driver's mutex.
type queue struct {
	prefix string
	cancel context.CancelFunc
	ready  chan struct{} // closed when it is a copy, or has failed
	err    error         // why it failed

	revision int64
	places   []place // in the order of their making
	live     bool    // from ready on, until it fails or is closed
	users    int     // who open it or wait in it
	idle     *time.Timer
}

type place struct {
	owner   string
	created int64
}

// head is whose turn it is.
func (q *queue) head() string {
	if len(q.places) == 0 {
		return ""
	}
	return q.places[0].owner
}

// isFirst reports whether the present key of a is the first. An owner that lost its key may queue
// again before the copy follows: the place of its former key grants nothing.
func (q *queue) isFirst(a *acquisition) bool {
	return len(q.places) > 0 && q.places[0] == place{a.owner, a.created}
}

// watched tells whether there is a copy.
func (d *driver) watched(prefix string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	q := d.queues[prefix]
	return q != nil && q.live
}

// watch returns when there is a copy.
func (d *driver) watch(ctx context.Context, prefix string) error {
	q := d.open(prefix)
	defer d.unuse(q)
	select {
	case <-q.ready:
		return q.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// open returns the queue, and counts the caller as a user.
func (d *driver) open(prefix string) *queue {
	d.mu.Lock()
	defer d.mu.Unlock()
	q := d.queues[prefix]
	if q == nil {
		q = &queue{prefix: prefix, ready: make(chan struct{})}
		var ctx context.Context
		ctx, q.cancel = context.WithCancel(d.life)
		d.queues[prefix] = q
		d.running.Go(func() { d.follow(ctx, q) })
	}
	d.use(q)
	return q
}

func (d *driver) use(q *queue) {
	q.users++
	if q.idle != nil {
		q.idle.Stop()
	}
}

func (d *driver) unuse(q *queue) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.disuse(q)
}

// disuse closes q, some time after its last user. The mutex is held.
func (d *driver) disuse(q *queue) {
	if q.users--; q.users > 0 {
		return
	}
	q.idle = time.AfterFunc(linger, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if q.users == 0 {
			d.drop(q)
		}
	})
}

// drop ends q. The mutex is held.
func (d *driver) drop(q *queue) {
	q.cancel()
	q.live = false
	if q.idle != nil {
		q.idle.Stop()
	}
	if d.queues[q.prefix] == q {
		delete(d.queues, q.prefix)
	}
}

// enroll lets a wait in its queue. Where that has ended meanwhile a looks again. The
// mutex is held.
func (d *driver) enroll(a *acquisition) {
	q := d.queues[a.prefix]
	if q == nil || !q.live {
		d.leave(a)
		a.signal()
		return
	}
	if a.queue != q {
		d.leave(a)
		a.queue = q
		d.use(q)
	}
	if q.isFirst(a) {
		a.signal()
	}
}

// leave takes a out of its queue. The mutex is held.
func (d *driver) leave(a *acquisition) {
	if q := a.queue; q != nil {
		a.queue = nil
		d.disuse(q)
	}
}

// follow is the goroutine of q.
func (d *driver) follow(ctx context.Context, q *queue) {
	err := d.copy(ctx, q)
	closed := ctx.Err() != nil // by its last user, or with the driver
	d.mu.Lock()
	d.drop(q)
	d.mu.Unlock()
	select {
	case <-q.ready:
	default:
		q.err = err
		close(q.ready)
		return
	}
	if !closed {
		select {
		case <-time.After(rewatch):
		case <-d.life.Done():
		}
	}
	d.dissolve(q)
}

var errEnded = errors.New("the watch has ended")

// copy makes q a copy and keeps it so until its watch ends.
func (d *driver) copy(ctx context.Context, q *queue) error {
	events := d.client.Watch(ctx, q.prefix, clientv3.WithPrefix()) // which returns when the watch stands
	bound, cancel := d.bound(ctx)
	defer cancel()
	now, err := d.client.Get(bound, q.prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	if err != nil {
		return err
	}
	d.mu.Lock()
	q.revision = now.Header.Revision
	for _, kv := range now.Kvs {
		q.places = append(q.places, place{ownerOf(kv.Key), kv.CreateRevision})
	}
	q.live = ctx.Err() == nil
	live := q.live
	d.mu.Unlock()
	if !live {
		return ctx.Err()
	}
	close(q.ready)
	for resp := range events {
		if err := resp.Err(); err != nil {
			return err
		}
		tellLost(d.apply(q, resp.Events), fmt.Errorf("%w: its key was removed", backend.ErrLost))
	}
	return errEnded
}

// apply brings q up to date, and wakes who is first now. It returns whom to tell of a loss.
func (d *driver) apply(q *queue, events []*clientv3.Event) (tell []func(error)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, ev := range events {
		if ev.Kv.ModRevision <= q.revision {
			continue
		}
		owner := ownerOf(ev.Kv.Key)
		if ev.Type == mvccpb.Event_PUT && ev.IsCreate() {
			q.places = append(q.places, place{owner, ev.Kv.CreateRevision})
		}
		if ev.Type != mvccpb.Event_DELETE {
			continue
		}
		q.places = slices.DeleteFunc(q.places, func(p place) bool { return p.owner == owner })
		if lost := d.lose(d.acquisitions[owner], ev.Kv.ModRevision); lost != nil {
			tell = append(tell, lost)
		}
	}
	if len(events) > 0 {
		q.revision = max(q.revision, events[len(events)-1].Kv.ModRevision)
	}
	if a := d.acquisitions[q.head()]; a != nil && a.queue == q {
		a.signal()
	}
	return tell
}

// dissolve sends those who wait in q to look again.
func (d *driver) dissolve(q *queue) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range d.acquisitions {
		if a.queue == q {
			a.queue = nil
			a.signal()
		}
	}
}

// ownerOf returns the last part of a key.
func ownerOf(key []byte) string { return string(key[bytes.LastIndexByte(key, '/')+1:]) }

// listen starts to watch the inbox and returns when that stands: no break can come
// before the holder listens.
func (d *driver) listen(ctx context.Context) error {
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
		return unavailable(ctx, err)
	}
	d.running.Go(func() {
		defer end()
		d.receive(events, created.Header.Revision+1)
	})
	return nil
}

// watchInbox watches from a revision on, 0 being now.
func (d *driver) watchInbox(ctx context.Context, revision int64) clientv3.WatchChan {
	return d.client.Watch(ctx, d.inbox, clientv3.WithRev(revision), clientv3.WithCreatedNotify(), clientv3.WithFilterDelete())
}

// receive is the goroutine of the inbox. What it misses, as it has been compacted, holders learn
// from their next renewal.
func (d *driver) receive(events clientv3.WatchChan, revision int64) {
	for {
		for resp := range events {
			if resp.CompactRevision > 0 {
				revision = 0
			}
			if resp.Err() != nil {
				break
			}
			for _, ev := range resp.Events {
				d.broken(string(ev.Kv.Value), ev.Kv.ModRevision)
			}
			if !resp.Created || revision == 0 { // a watch of the past is created before it has told it
				revision = resp.Header.Revision + 1
			}
		}
		select {
		case <-time.After(rewatch):
		case <-d.life.Done():
			return
		}
		events = d.watchInbox(d.life, revision)
	}
}

// broken tells the owner that its key was removed.
func (d *driver) broken(owner string, revision int64) {
	d.mu.Lock()
	lost := d.lose(d.acquisitions[owner], revision)
	d.mu.Unlock()
	tellLost([]func(error){lost}, fmt.Errorf("%w: it was broken", backend.ErrLost))
}
