package etcdbackend

import (
	"context"
	"slices"
	"time"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/kind"
)

const (
	// linger is how long a queue is watched after its last user. So a client that contends again
	// and again does not open the watch each time.
	linger = time.Second
	// retryDelay is the pause before a failed watch is opened again, and before Open repeats a
	// request. It limits the load of a watch that always fails.
	retryDelay = 100 * time.Millisecond
)

// Wait implements backend.Waiter. It costs no request: the watch of the queue wakes it, and the
// copy of the queue shows whether its key is the first. Without a queue entry the driver watches
// nothing, so Wait then blocks until ctx ends. It returns at once if the acquisition was forgotten.
func (d *driver) Wait(
	ctx context.Context, req *backend.Request, b *backend.Busy,
) (*backend.Grant, error) {
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

// claim returns the grant if no key is in front of the present key of a for whose end it waits, and
// nil otherwise. A wake-up proves nothing by itself: it may be older than the newest change, or
// request another attempt. The term of the grant is the newest proof of its lease. If that term is
// over, because the process was stopped during the wait, the core releases the grant.
func (d *driver) claim(a *acquisition, req *backend.Request) *backend.Grant {
	d.mu.Lock()
	defer d.mu.Unlock()
	if a.state != queued || a.isLost(a.created) || !a.queue.admits(a) {
		return nil
	}
	return d.grant(a, req)
}

// queueState is the state of a copy of a queue.
//
//	event       opening  live    closed
//	fill        live     –       .
//	closeQueue  closed   closed  .
type queueState uint8

const (
	// opening: the watch or the first read is under way.
	opening queueState = iota //nolint:unused // the zero value: no code sets it
	// live: the copy is complete as of its revision, and acquisitions can wait in it.
	live
	// closed: the watch has failed, or the last user has left. Another copy may replace it.
	closed
)

// queue is a copy of the queue of one lock: its holder and waiters. A watch keeps it up to date.
//
// The copy is right as of its revision, however late it is. An entry that holds the lock at that
// revision holds it until its key is removed, because later keys have higher revisions, and the
// entries in front of it only leave, or become readers. The proof of its lease shows for how long
// the server keeps the key.
type queue struct {
	prefix string             // of the lock's keys
	cancel context.CancelFunc // ends the watch
	ready  chan struct{}      // closed at the end of opening
	err    error              // why opening failed; written before ready is closed
	// patience is how long opening waits for one member before it tries another one.
	patience time.Duration

	// d.mu guards these.
	state    queueState
	revision int64
	entries  []entry // in the order of their creation
	users    int     // attempts that wait for the copy, and acquisitions that wait in it
	idle     *time.Timer
}

// entry is one key of a queue. A later key of the same owner is another entry.
type entry struct {
	creator string // the last part of the key
	owner   string
	created int64 // create revision
	kind    kind.Kind
}

// Kind implements kind.Entry.
func (e entry) Kind() kind.Kind { return e.kind }

// index returns the index of the present key of a, or -1. An owner that lost its key may queue
// again before the copy follows: the entry of its former key is another one. d.mu must be held.
func (q *queue) index(a *acquisition) int {
	return slices.IndexFunc(q.entries, func(e entry) bool {
		return e.created == a.created && e.owner == a.owner
	})
}

// admits reports whether the present key of a holds the lock. d.mu must be held.
func (q *queue) admits(a *acquisition) bool {
	i := q.index(a)
	return i >= 0 && len(kind.Blockers(a.kind, q.entries[:i])) == 0
}

// has reports whether the present key of a is in the queue, or may be: the copy may be older than
// the key. d.mu must be held.
func (q *queue) has(a *acquisition) bool { return q.revision < a.created || q.index(a) >= 0 }

// hasCopy reports whether the queue of a lock has a live copy.
func (d *driver) hasCopy(prefix string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	q := d.queues[prefix]
	return q != nil && q.state == live
}

// awaitCopy opens the copy of a queue and blocks until it is live, until it fails, or until ctx
// ends. The caller is a user of the copy until then; linger keeps it open for joinQueue. A silent
// member gets half of the time.
func (d *driver) awaitCopy(ctx context.Context, prefix string) error {
	end, _ := ctx.Deadline() // an attempt always has one
	q := d.openQueue(prefix, max(time.Until(end)/2, retryDelay))
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.removeUser(q)
	}()
	select {
	case <-q.ready:
		return q.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// openQueue returns the copy of a queue, with the caller as a user. It starts a watch if there is
// none.
func (d *driver) openQueue(prefix string, patience time.Duration) *queue {
	d.mu.Lock()
	defer d.mu.Unlock()
	q := d.queues[prefix]
	if q == nil {
		q = &queue{prefix: prefix, ready: make(chan struct{}), patience: patience}
		var ctx context.Context
		ctx, q.cancel = context.WithCancel(d.life)
		d.queues[prefix] = q
		if !d.background.Go(func() { d.runQueue(ctx, q) }) {
			q.err = errClosed
			close(q.ready)
		}
	}
	q.addUser()
	return q
}

// addUser keeps q open until removeUser. d.mu must be held.
func (q *queue) addUser() {
	q.users++
	if q.idle != nil {
		q.idle.Stop()
	}
}

// removeUser removes a user. q is closed after linger unless it gets another one. An earlier timer
// that waits for d.mu may close q sooner, which costs at most the opening of another watch. d.mu
// must be held.
func (d *driver) removeUser(q *queue) {
	if q.users--; q.users > 0 {
		return
	}
	q.idle = time.AfterFunc(linger, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if q.users == 0 {
			d.closeQueue(q)
		}
	})
}

// closeQueue ends the watch of q. It does not wake the acquisitions in q. d.mu must be held.
func (d *driver) closeQueue(q *queue) {
	q.cancel()
	q.state = closed
	if q.idle != nil {
		q.idle.Stop()
	}
	if d.queues[q.prefix] == q {
		delete(d.queues, q.prefix)
	}
}

// joinQueue lets a wait in the copy of its queue. If the copy has ended meanwhile, a is woken for
// another attempt. The same happens if the answer of the attempt is older than the state of a: a
// Wait was granted, or a release has begun. d.mu must be held.
func (d *driver) joinQueue(a *acquisition) {
	if a.state == granted || a.state == releasing {
		a.signal()
		return
	}
	q := d.queues[a.prefix]
	if q == nil || q.state != live {
		d.leaveQueue(a)
		a.signal()
		return
	}
	if a.queue != q {
		d.leaveQueue(a)
		a.queue, a.state = q, queued
		q.addUser()
	}
	if q.admits(a) || !q.has(a) {
		a.signal()
	}
}

// leaveQueue removes a from the copy in which it waits, if any. Its key stays on the server. d.mu
// must be held.
func (d *driver) leaveQueue(a *acquisition) {
	if a.state != queued {
		return
	}
	q := a.queue
	a.queue, a.state = nil, requested
	d.removeUser(q)
}

// runQueue is the goroutine of q. It ends with the watch. If opening failed, the callers of
// awaitCopy get the error. If the watch failed later, the acquisitions in q make another attempt
// after retryDelay, which opens another copy.
func (d *driver) runQueue(ctx context.Context, q *queue) {
	err := d.follow(ctx, q)
	wasClosed := ctx.Err() != nil // after its last user, or by Close
	d.mu.Lock()
	d.closeQueue(q)
	d.mu.Unlock()
	select {
	case <-q.ready:
	default:
		q.err = err
		close(q.ready)
		return
	}
	if wasClosed && d.life.Err() == nil {
		return // after its last user: no acquisition waits in it
	}
	if !wasClosed {
		select {
		case <-time.After(retryDelay):
		case <-d.life.Done():
		}
	}
	d.wakeWaiters(q)
}

// follow makes q a copy and keeps it up to date until its watch ends.
func (d *driver) follow(ctx context.Context, q *queue) error {
	// The watch exists before the read, so the read misses no event.
	w, err := d.openWatch(ctx, q.prefix, 0, q.patience)
	if err != nil {
		return err
	}
	defer w.end()
	defer context.AfterFunc(ctx, w.end)()
	if err := d.fill(ctx, q); err != nil {
		return err
	}
	close(q.ready)
	for resp := range w.events {
		if err := resp.Err(); err != nil {
			return err
		}
		lose(d.applyEvents(q, resp.Events), errKeyRemoved)
	}
	return errEnded
}

// fill reads the queue from the server. After that q is live, unless it was closed meanwhile. It
// blocks for Options.Timeout at most. The read is linearizable, so the copy misses no key that was
// created before the read, and the watch reports the later ones.
func (d *driver) fill(ctx context.Context, q *queue) error {
	reading, cancel := d.bound(ctx)
	defer cancel()
	now, err := d.readQueue(reading, q)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	q.revision = now.Header.GetRevision()
	for _, kv := range now.Kvs {
		q.entries = append(q.entries, newEntry(kv))
	}
	q.state = live
	return nil
}

// readQueue reads the keys of a queue. A silent member gets the patience of q, and the next one the
// rest of the time.
func (d *driver) readQueue(ctx context.Context, q *queue) (*clientv3.GetResponse, error) {
	read := func(ctx context.Context) (*clientv3.GetResponse, error) {
		return d.client.Get(ctx, q.prefix, clientv3.WithPrefix(),
			clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	}
	first, cancel := context.WithTimeout(ctx, q.patience)
	defer cancel()
	now, err := read(first)
	if err != nil && first.Err() != nil && ctx.Err() == nil {
		return read(ctx)
	}
	return now, err
}

// applyEvents updates q and wakes the acquisitions that hold the lock now. It returns Request.Lost
// of the holders whose keys were removed, for the caller to pass to lose. The server delivers all
// changes of one revision in one message, so no message leaves a revision half applied.
func (d *driver) applyEvents(q *queue, events []*clientv3.Event) (lost []func(error)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, ev := range events {
		if ev.Kv.ModRevision <= q.revision { // fill has read the result
			continue
		}
		if ev.Type == mvccpb.Event_PUT {
			q.put(newEntry(ev.Kv), ev.IsCreate())
		}
		if ev.Type != mvccpb.Event_DELETE {
			continue
		}
		if f := d.markRemoved(q.remove(creatorOf(ev.Kv.Key)), ev.Kv.ModRevision); f != nil {
			lost = append(lost, f)
		}
	}
	if len(events) > 0 {
		q.revision = max(q.revision, events[len(events)-1].Kv.ModRevision)
	}
	for _, e := range kind.Holders(q.entries) {
		if a := d.acquisitions[e.owner]; a != nil && a.queue == q {
			a.signal()
		}
	}
	return lost
}

// newEntry returns the entry of a key.
func newEntry(kv *mvccpb.KeyValue) entry {
	return entry{creatorOf(kv.Key), ownerIn(kv), kv.CreateRevision, kindOf(kv.Value)}
}

// remove removes the entry of the key with that creator, and returns its owner. d.mu must be held.
func (q *queue) remove(creator string) (owner string) {
	owner = creator
	q.entries = slices.DeleteFunc(q.entries, func(e entry) bool {
		if e.creator == creator {
			owner = e.owner
		}
		return e.creator == creator
	})
	return owner
}

// put adds an entry, or changes the entry of a key that was written again: a writer has become a
// reader, or the grant has another owner. The entry keeps its position. d.mu must be held.
func (q *queue) put(e entry, isNew bool) {
	if isNew {
		q.entries = append(q.entries, e)
		return
	}
	for i, old := range q.entries {
		if old.created == e.created {
			q.entries[i] = e
		}
	}
}

// wakeWaiters wakes the acquisitions that wait in q, which is closed, for another attempt.
func (d *driver) wakeWaiters(q *queue) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range d.acquisitions {
		if a.queue == q {
			a.queue, a.state = nil, requested
			a.signal()
		}
	}
}
