package etcdbackend

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/batch"
	"github.com/dlock-go/dlock/backend/key"
	"github.com/dlock-go/dlock/internal/bound"
)

const (
	// maxTTL is what the server grants at most.
	maxTTL = 9_000_000_000 * time.Second
	// minTimeout is what a busy server may need for a request, however short the term.
	minTimeout = time.Second
)

type driver struct {
	client *clientv3.Client
	owned  bool // Close closes it

	kv         kv // for locks
	keepAlives pb.LeaseClient
	batcher    *batch.Batcher[call, reply]

	root    string // without a slash at its end
	id      string // of this driver: what it holds is marked with it
	inbox   string // the key under which others tell this driver what they broke
	timeout time.Duration
	caps    backend.Capabilities

	// values are those of every request's context, instead of its caller's. They ask for a leader, and so do those of life:
	// the client opens a stream of watches for each set of metadata that it meets.
	values  context.Context
	life    context.Context // of the watches
	end     context.CancelFunc
	running sync.WaitGroup

	mu           sync.Mutex
	acquisitions map[string]*acquisition // by owner: held, queued or under way
	leases       map[int64]*slot         // by seconds
	queues       map[string]*queue       // by prefix
	streams      []*stream               // of keep-alives, not in use
}

var (
	_ backend.Driver       = (*driver)(nil)
	_ backend.Waiter       = (*driver)(nil)
	_ backend.BatchRenewer = (*driver)(nil)
	_ backend.Inspector    = (*driver)(nil)
	_ backend.Breaker      = (*driver)(nil)
)

// newDriver asks the server and starts listening. After an error the driver that
// it returns has only to be closed.
func newDriver(ctx context.Context, client *clientv3.Client, owned bool, opts Options) (*driver, error) {
	leader := clientv3.WithRequireLeader(context.Background())
	d := &driver{
		client: client, owned: owned, kv: lentKV{client}, keepAlives: pb.NewLeaseClient(client.ActiveConnection()), root: opts.Root, id: rand.Text(), timeout: opts.Timeout,
		caps: backend.Capabilities{
			Modes:   backend.Exclusive,
			Fair:    backend.FairAlways,
			Fencing: backend.FenceDurable,
			Inspect: true, List: true, Break: true, Notify: true,
			MaxTTL: maxTTL,
			// What is executed even later is removed with the next renewal.
			Late: opts.Timeout,
		},
		values:       leader,
		acquisitions: make(map[string]*acquisition),
		leases:       make(map[int64]*slot),
		queues:       make(map[string]*queue),
	}
	d.life, d.end = context.WithCancel(leader)
	if owned {
		d.kv, d.values = newOwnKV(client), context.WithValue(context.Background(), wantsLeader{}, true)
	}
	d.batcher = batch.New(batch.Options[call, reply]{
		Send: d.sendBatch, Timeout: opts.Timeout, Most: maxUnderWay, Closed: errClosed,
	})
	d.inbox = d.root + "/client/" + d.id
	return d, d.begin(ctx)
}

// request is the context of one request: it ends with the caller's, or after the timeout.
type request struct {
	context.Context
	parent, values context.Context
}

func (r request) Value(key any) any { return r.values.Value(key) }

// AfterFunc lets contexts be derived from r without a goroutine.
func (r request) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(r.Context, f) }

// bound makes the context of a request.
func (d *driver) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return d.boundTo(ctx, d.timeout)
}

// timeoutFor is that of a request for a lock. It leaves time for more attempts in a term, three even to a waiter that was
// answered a third of it ago, unless the term is short: a member that does not answer is asked again, in turn with the
// others, until the client gives its connection up.
func (d *driver) timeoutFor(ttl time.Duration) time.Duration {
	return min(d.timeout, max(ttl/4, minTimeout))
}

func (d *driver) boundTo(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	b := bound.Within(ctx, timeout)
	return request{b, ctx, d.values}, b.Cancel
}

// acquisition is what the driver knows of one (Key, Owner). But for the constant
// fields it is guarded by the driver's mutex.
type acquisition struct {
	name, prefix, owner, key, meta string
	lost                           func(error)
	news                           chan struct{} // something has changed for who waits

	lease     *lease
	created   int64  // revision of its key, 0: not known
	removed   int64  // revision at which others have removed it, 0: not known
	unknown   bool   // the outcome of an attempt is
	granted   bool   // its key was the first
	releasing bool   // no news concern it any more
	queue     *queue // in which it waits
}

// maxKey is never exceeded by a valid name, of which each byte takes three at most:
// names are never hashed here, and can be listed by their prefix.
const maxKey = 3 * key.MaxName

// locks is what the keys of all locks begin with.
func (d *driver) locks() string { return d.root + lockPart }

const lockPart = "/lock/"

// prefix is what the keys of one lock begin with, and no other's.
func (d *driver) prefix(name string) string { return d.key(name, "") }

// key is that of one acquisition.
func (d *driver) key(name, owner string) string {
	return d.root + lockPart + key.Encode(name, maxKey) + "/" + owner
}

// admit registers an acquisition before its request is sent, so that no message about it
// comes too early, and no key of it is taken for one that nobody knows.
func (d *driver) admit(req *backend.Request, l *lease) *acquisition {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.acquisitions[req.Owner]
	if a == nil || a.name != req.Key {
		key := d.key(req.Key, req.Owner)
		a = &acquisition{
			name: req.Key, prefix: key[:len(key)-len(req.Owner)], owner: req.Owner, key: key, meta: req.Meta,
			lost: req.Lost, news: make(chan struct{}, 1),
		}
		d.acquisitions[req.Owner] = a
	}
	a.lease, a.releasing = l, false
	return a
}

// dismiss forgets an acquisition. The mutex is held.
func (d *driver) dismiss(a *acquisition) {
	d.leave(a)
	if d.acquisitions[a.owner] == a {
		delete(d.acquisitions, a.owner)
	}
}

// answer is what an attempt has found.
type answer struct {
	created int64            // revision of our key, 0: there is none
	lease   clientv3.LeaseID // on which our key hangs
	first   bool             // ours is the first
	holder  string           // else: whose is
}

// Acquire implements backend.Driver.
func (d *driver) Acquire(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
	if req.Mode != backend.Exclusive {
		return nil, fmt.Errorf("%w: mode %s", backend.ErrUnsupported, req.Mode)
	}
	b := bound.Within(ctx, d.timeoutFor(req.TTL)) // not boundTo, whose second result is an allocation
	defer b.Cancel()
	ctx = request{b, ctx, d.values}
	l, err := d.lease(ctx, req.TTL)
	if err != nil {
		return nil, unavailable(ctx, err)
	}
	a := d.admit(req, l)
	ans, err := d.attempt(ctx, a, req.Queue)
	if err == nil {
		return d.settle(a, req, ans)
	}
	if isLeaseGone(err) {
		d.leaseGone(l)
	}
	d.refuse(a, err)
	return nil, err
}

// refuse forgets an acquisition of which nothing can be on the server: nobody will release it.
func (d *driver) refuse(a *acquisition, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case errors.Is(err, backend.ErrConflict):
		d.dismiss(a)
	case !errors.Is(err, backend.ErrUnavailable) && !errors.Is(err, backend.ErrUnsupported):
		a.unknown, a.lease.doubtful = true, true
	case !a.unknown && a.created == 0:
		d.dismiss(a)
	}
}

// attempt is one attempt. Who would wait and is refused enters the queue in a second step,
// so that the queue is watched when that happens: the server delivers late to a watch that
// is to begin with what has already been.
func (d *driver) attempt(ctx context.Context, a *acquisition, queue bool) (answer, error) {
	if queue && d.watched(a.prefix) {
		return d.enter(ctx, a)
	}
	ans, err := d.try(ctx, a)
	if err != nil || ans.first || !queue {
		return ans, err
	}
	if err := d.watch(ctx, a.prefix); err != nil {
		return answer{}, unavailable(ctx, err)
	}
	return d.enter(ctx, a)
}

// try makes the key if there is none of the lock.
func (d *driver) try(ctx context.Context, a *acquisition) (answer, error) {
	key, prefix, end := a.bytes()
	resp, err := d.transact(ctx, a.prefix, ifNone(prefix, end,
		[]*pb.RequestOp{a.put(key, d.id)},
		[]*pb.RequestOp{getFirst(prefix, end)}))
	switch {
	case err != nil:
		return answer{}, interpretError(ctx, err)
	case resp.Succeeded:
		return answer{created: resp.Header.Revision, lease: a.lease.id, first: true}, nil
	}
	kv := resp.Responses[0].GetResponseRange().Kvs[0] // there is one, as the comparison has failed
	if string(kv.Key) == a.key {
		return answer{created: kv.CreateRevision, lease: clientv3.LeaseID(kv.Lease), first: true}, nil
	}
	r, err := decodeRecord(kv, a.name)
	return answer{holder: r.owner}, err
}

// enter makes the key, be it first or not. If it is there already it stays as it is.
func (d *driver) enter(ctx context.Context, a *acquisition) (answer, error) {
	key, prefix, end := a.bytes()
	first := getFirst(prefix, end)
	resp, err := d.transact(ctx, a.prefix, ifNone(key, nil,
		[]*pb.RequestOp{a.put(key, d.id), first},
		[]*pb.RequestOp{getKey(key), first}))
	if err != nil {
		return answer{}, interpretError(ctx, err)
	}
	ans := answer{created: resp.Header.Revision, lease: a.lease.id}
	if !resp.Succeeded {
		own := resp.Responses[0].GetResponseRange().Kvs[0]
		ans.created, ans.lease = own.CreateRevision, clientv3.LeaseID(own.Lease)
	}
	kv := resp.Responses[1].GetResponseRange().Kvs[0] // there is ours at least
	if ans.first = string(kv.Key) == a.key; ans.first {
		return ans, nil
	}
	r, err := decodeRecord(kv, a.name)
	if err != nil { // definite, so nothing may stay
		if _, failed := d.deleteKey(ctx, a.prefix, a.key); failed != nil {
			return answer{}, interpretError(ctx, failed)
		}
	}
	ans.holder = r.owner
	return ans, err
}

// put makes the key of a.
func (a *acquisition) put(key []byte, client string) *pb.RequestOp {
	return putKey(key, encodeRecord(client, a.name, a.meta, time.Now()), a.lease.id)
}

// bytes returns the key of a, the prefix of the lock's keys and the end of their range, which share
// one allocation.
func (a *acquisition) bytes() (key, prefix, end []byte) {
	n, m := len(a.key), len(a.prefix)
	b := append(append(make([]byte, 0, n+m), a.key...), a.prefix...)
	b[n+m-1]++ // a prefix ends in a slash
	return b[:n:n], b[:m:m], b[n:]
}

// settle makes an answer of the server's one of the driver's.
func (d *driver) settle(a *acquisition, req *backend.Request, ans answer) (*backend.Grant, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case ans.created > 0 && (a.lease.gone || ans.lease != a.lease.id || a.removed > ans.created):
		d.dismiss(a)
		return nil, fmt.Errorf("%w: its lease has ended", backend.ErrLost)
	case ans.first:
		a.created = ans.created
		if a.queue != nil {
			a.signal() // a Wait beside this request is in no queue any more
		}
		return d.grant(a, req), nil
	case !req.Queue:
		d.dismiss(a)
		return nil, &backend.Busy{Holder: ans.holder}
	}
	a.created = ans.created
	d.enroll(a)
	return nil, &backend.Busy{Holder: ans.holder, Queued: true}
}

// grant makes a the holder, for what is left of the last proof of its lease. The mutex is held.
func (d *driver) grant(a *acquisition, req *backend.Request) *backend.Grant {
	d.leave(a)
	a.granted = true
	return &backend.Grant{
		Request: *req,
		Term:    a.lease.term(),
		Fence:   uint64(a.created), // the core refuses what is not below backend.MaxFence
	}
}

// Release implements backend.Driver.
func (d *driver) Release(ctx context.Context, g *backend.Grant) error {
	b := bound.Within(ctx, d.timeoutFor(g.TTL)) // not boundTo, whose second result is an allocation
	defer b.Cancel()
	ctx = request{b, ctx, d.values}
	d.startRelease(g)
	key := d.key(g.Key, g.Owner)
	deleted, err := d.deleteKey(ctx, key[:len(key)-len(g.Owner)], key)
	if err != nil {
		return interpretError(ctx, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if a := d.acquisitions[g.Owner]; a != nil && a.releasing {
		d.dismiss(a)
	}
	if !deleted {
		return backend.ErrNotHeld
	}
	return nil
}

// startRelease lets what follows be no news.
func (d *driver) startRelease(g *backend.Grant) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if a := d.acquisitions[g.Owner]; a != nil {
		a.releasing = true
		d.leave(a)
	}
}

// Capabilities implements backend.Driver.
func (d *driver) Capabilities() backend.Capabilities { return d.caps }

// closeTimeout is how long Close waits for the server.
const closeTimeout = time.Second

// Close implements backend.Driver. It revokes the leases on which nothing hangs any more.
func (d *driver) Close() error {
	d.end()
	d.running.Wait()
	d.revokeUnused()
	defer d.batcher.Close()
	if !d.owned {
		return nil
	}
	return d.client.Close()
}

// lose ends a, as others have removed its key at a revision; the mutex is held. What
// it returns, unless nil, is to be called when that is free.
func (d *driver) lose(a *acquisition, revision int64) (tell func(error)) {
	if a == nil || a.releasing || revision <= a.created {
		return nil
	}
	a.removed = revision
	if !a.granted {
		a.signal()
		return nil
	}
	d.dismiss(a)
	return a.lost
}

// signal wakes who waits for a.
func (a *acquisition) signal() {
	select {
	case a.news <- struct{}{}:
	default:
	}
}
