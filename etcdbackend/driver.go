package etcdbackend

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/batch"
	"github.com/dlock-go/dlock/backend/kind"
	"github.com/dlock-go/dlock/internal/background"
	"github.com/dlock-go/dlock/internal/bound"
)

const (
	// maxTTL is the longest term that a server grants.
	maxTTL = 9_000_000_000 * time.Second
	// closeTimeout limits how long Close waits for the server.
	closeTimeout = time.Second
)

// driver is one client of a cluster, with one lease for each TTL and one copy of the queue for each
// contended lock. Requests are sent without d.mu.
type driver struct {
	client    *clientv3.Client
	ownership ownership

	kv         kv             // sends the requests for locks, below the batcher
	keepAlives pb.LeaseClient // opens the streams of keep-alives
	batcher    *batch.Batcher[call, reply]

	root    string               // of all keys, without a slash at its end
	id      string               // of this driver: its records have it
	inbox   string               // the key to which other drivers write the owners that they break
	timeout time.Duration        // of a request; see timeoutFor
	caps    backend.Capabilities // constant after start

	// Every request gets its values from this context instead of the caller's. They make requests
	// require a leader, and so do the values of life: without a leader a member then refuses them
	// at once instead of at their timeout.
	values context.Context
	life   context.Context    // of watches, streams and background work
	end    context.CancelFunc // ends life
	// watchStream is the number of the stream for new watches. See openWatch.
	watchStream atomic.Int64
	// background counts goroutines that no caller waits for. Close waits for them.
	background background.Group

	mu           sync.Mutex
	acquisitions map[string]*acquisition // by owner; see admit and forget
	adopted      map[string]int          // numbers of adopted keys by creator
	leases       map[int64]*slot         // by TTL in seconds
	queues       map[string]*queue       // by prefix of the lock's keys
	streams      []*stream               // idle streams of keep-alives
}

var (
	_ backend.Driver       = (*driver)(nil)
	_ backend.Waiter       = (*driver)(nil)
	_ backend.BatchRenewer = (*driver)(nil)
	_ backend.Combiner     = (*driver)(nil)
	_ backend.Inspector    = (*driver)(nil)
	_ backend.Breaker      = (*driver)(nil)
	_ backend.Mover        = (*driver)(nil)
	_ backend.Downgrader   = (*driver)(nil)
	_ backend.Watcher      = (*driver)(nil)
)

// ownership is whether Close closes the client.
type ownership bool

const (
	lent  ownership = false // the caller of New closes it
	owned ownership = true  // open has made it
)

// newDriver returns a driver and sends nothing. start completes it, and only Close may be called
// before that.
func newDriver(client *clientv3.Client, o ownership, opts Options) *driver {
	leader := clientv3.WithRequireLeader(context.Background())
	d := &driver{
		client: client, ownership: o, kv: lentKV{client}, values: leader,
		keepAlives: pb.NewLeaseClient(client.ActiveConnection()),
		root:       opts.Root, id: rand.Text(), timeout: opts.Timeout,
		caps: backend.Capabilities{
			Modes:   backend.Exclusive | backend.Shared | backend.Permit,
			Fair:    backend.FairAlways,
			Fencing: backend.FenceDurable,
			Inspect: true, List: true, Break: true, Move: true, Notify: true,
			MaxTTL: maxTTL, // probe sets MinTTL
			// The next renewal removes the key of a request that is executed even later.
			Late: opts.Timeout,
		},
		acquisitions: make(map[string]*acquisition),
		adopted:      make(map[string]int),
		leases:       make(map[int64]*slot),
		queues:       make(map[string]*queue),
	}
	d.life, d.end = context.WithCancel(leader)
	if o == owned {
		d.kv = newOwnKV(client)
		d.values = context.WithValue(context.Background(), wantsLeader{}, true) // for failFast
	}
	d.batcher = batch.New(batch.Options[call, reply]{
		Send: d.sendBatch, Timeout: opts.Timeout, MaxUnderWay: maxUnderWay,
	})
	d.inbox = d.inboxOf(d.id)
	return d
}

// Acquire implements backend.Driver. It sends one request if it needs no queue entry or has a copy
// of the queue, and up to three otherwise. A lease without a fresh proof costs one or two more.
func (d *driver) Acquire(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
	b := bound.Within(ctx, d.timeoutFor(req.TTL)) // the second result of boundTo is an allocation
	defer b.Cancel()
	ctx = &request{Context: b, parent: ctx, values: d.values}
	l, err := d.freshLease(ctx, req.TTL)
	if err != nil {
		return nil, asUnavailable(ctx, err)
	}
	a := d.admit(req, l, req.Owner)
	ans, err := d.attempt(ctx, a, req)
	if err == nil {
		return d.applyAnswer(a, req, ans)
	}
	if isLeaseGone(err) {
		d.endLease(l)
	}
	d.applyError(a, err)
	return nil, err
}

// answer is the server's answer to an attempt.
type answer struct {
	created  int64            // create revision of the own key; 0: the key does not exist
	lease    clientv3.LeaseID // to which the own key belongs
	first    bool             // no key is in front for whose end it waits: the lock is granted
	holder   string           // the owner of the first key, unless that is the own key
	revision int64            // of the answer
	entries  []record         // all keys, where they were read, without the own key
}

// attempt makes one attempt. The queue must be watched before the attempt creates a queue entry,
// because the server delivers the past to a new watch late. So if the driver has no copy of the
// queue, a first request tries without a queue entry. If the lock is taken and the core will wait,
// a second request creates the entry after awaitCopy.
func (d *driver) attempt(
	ctx context.Context, a *acquisition, req *backend.Request,
) (answer, error) {
	if req.Queue && d.hasCopy(a.prefix) {
		return d.enqueue(ctx, a)
	}
	ans, err := d.createIfFree(ctx, a)
	if err == nil && !ans.first && a.kind != kind.Writer {
		ans, err = d.createIfAdmitted(ctx, a, ans, req.Queue)
	}
	switch {
	case err != nil || ans.first:
		return ans, err
	case !req.Queue:
		return d.stepBack(ctx, a, ans)
	}
	if err := d.awaitCopy(ctx, a.prefix); err != nil {
		return answer{}, asUnavailable(ctx, err)
	}
	return d.enqueue(ctx, a)
}

// createIfFree creates the key of a if the lock has no keys. Otherwise it reads the keys: for a
// writer the first one. Among them can be the key of a, if an earlier attempt has created it and
// the answer was lost.
func (d *driver) createIfFree(ctx context.Context, a *acquisition) (answer, error) {
	key, prefix, end := a.bytes()
	return d.create(ctx, a, ifNone(prefix, end,
		[]*pb.RequestOp{a.put(key, d.id)},
		[]*pb.RequestOp{a.getFront(prefix, end)}))
}

// maxAdmissions limits how often in a row an attempt creates the key of a reader or a permit only
// if no other key was created meanwhile.
const maxAdmissions = 4

// createIfAdmitted creates the key of a if it need not wait for any of the present keys, which ans
// has. If other keys are created at the same time again and again, an attempt that does not wait
// creates the key behind them.
func (d *driver) createIfAdmitted(
	ctx context.Context, a *acquisition, ans answer, wait bool,
) (answer, error) {
	key, prefix, end := a.bytes()
	for range maxAdmissions {
		if ans.created > 0 || len(kind.Blockers(a.kind, ans.entries)) > 0 {
			return ans, nil
		}
		next, err := d.create(ctx, a, ifOlder(prefix, end, ans.revision,
			[]*pb.RequestOp{a.put(key, d.id)},
			[]*pb.RequestOp{a.getFront(prefix, end)}))
		if err != nil || next.first {
			return next, err
		}
		ans = next
	}
	if wait {
		return ans, nil
	}
	return d.enqueue(ctx, a)
}

// stepBack removes the key of an attempt that does not wait, if it has one.
func (d *driver) stepBack(ctx context.Context, a *acquisition, ans answer) (answer, error) {
	if ans.created == 0 {
		return ans, nil
	}
	if err := d.withdraw(ctx, a); err != nil {
		return answer{}, uncertain(err)
	}
	ans.created = 0
	return ans, nil
}

// withdraw removes the key of an attempt, before the attempt returns. After any error the key may
// have stayed, so the caller returns uncertain(err). The core may repeat the attempt with the same
// owner, so withdraw records a removal that may be executed later.
func (d *driver) withdraw(ctx context.Context, a *acquisition) error {
	_, err := d.removeKey(ctx, a.keys)
	if err = interpretError(ctx, err); err != nil && !isDefinite(err) {
		d.expectRemoval(a)
	}
	return err
}

// create sends a transaction that creates the key of a where nothing blocks it, or reads the keys.
func (d *driver) create(
	ctx context.Context, a *acquisition, txn *pb.TxnRequest,
) (answer, error) {
	resp, err := d.transact(ctx, a.prefix, txn)
	switch {
	case err != nil:
		return answer{}, interpretError(ctx, err)
	case resp.Succeeded:
		return answer{created: resp.Header.Revision, lease: a.lease.id, first: true}, nil
	}
	ans := answer{revision: resp.Header.Revision}
	return ans, a.readFront(&ans, resp.Responses[0].GetResponseRange().Kvs)
}

// enqueue creates the key of a, whether it has to wait or not. An existing key stays as it is, and
// so keeps its position in the queue.
func (d *driver) enqueue(ctx context.Context, a *acquisition) (answer, error) {
	key, prefix, end := a.bytes()
	front := a.getFront(prefix, end)
	resp, err := d.transact(ctx, a.prefix, ifNone(key, nil,
		[]*pb.RequestOp{a.put(key, d.id), front},
		[]*pb.RequestOp{getKey(key), front}))
	if err != nil {
		return answer{}, interpretError(ctx, err)
	}
	ans := answer{created: resp.Header.Revision, lease: a.lease.id}
	if !resp.Succeeded {
		own := resp.Responses[0].GetResponseRange().Kvs
		if len(own) == 0 {
			return answer{}, errMalformed
		}
		ans.setOwn(a, own[0])
	}
	err = a.readFront(&ans, resp.Responses[1].GetResponseRange().Kvs)
	if err != nil { // ErrConflict is definite, so the own key must not stay
		if failed := d.withdraw(ctx, a); failed != nil {
			return answer{}, fmt.Errorf("%w (after: %v)",
				uncertain(failed), err) //nolint:errorlint // err is no answer to the attempt
		}
	}
	return ans, err
}

// getFront returns the operation that reads what a has to know of the keys of its lock. A writer
// waits for all keys in front of its own, so the first key is enough.
func (a *acquisition) getFront(prefix, end []byte) *pb.RequestOp {
	if a.kind == kind.Writer {
		return getFirst(prefix, end)
	}
	return getAll(prefix, end)
}

// readFront reads the keys of getFront into ans. There is at least one, because the transaction has
// found one. It returns ErrConflict if a key in front of the own key, or the first key, is not
// dlock's, or if the first key is of another kind.
func (a *acquisition) readFront(ans *answer, kvs []*mvccpb.KeyValue) error {
	for _, kv := range kvs {
		if string(kv.Key) == a.key {
			ans.setOwn(a, kv)
			ans.first = len(kind.Blockers(a.kind, ans.entries)) == 0
			return nil
		}
		r, err := decode(kv, a.name)
		if err == nil && len(ans.entries) == 0 { // see kind.Conflict
			err = a.kind.Conflict(r.kind)
		}
		if err != nil {
			return err
		}
		if len(ans.entries) == 0 {
			ans.holder = r.owner
		}
		ans.entries = append(ans.entries, r)
	}
	return nil
}

// setOwn records the own key of a. A key whose grant another owner has adopted counts as lost: it
// has no lease of a.
func (ans *answer) setOwn(a *acquisition, kv *mvccpb.KeyValue) {
	ans.created, ans.lease = kv.CreateRevision, clientv3.NoLease
	if ownerIn(kv) == a.owner {
		ans.lease = clientv3.LeaseID(kv.Lease)
	}
}

// put returns the operation that creates the key of a.
func (a *acquisition) put(key []byte, client string) *pb.RequestOp {
	return putKey(key, newRecord(client, a).encode(), a.lease.id)
}

// applyAnswer changes the state of a according to the answer, and returns the result of Acquire. An
// own key under another lease than the lease of this attempt is no grant: the keep-alives of this
// driver would not renew it. Nor is a key that an earlier attempt may still remove. After this
// ErrLost a call that waits begins with another owner.
func (d *driver) applyAnswer(
	a *acquisition, req *backend.Request, ans answer,
) (*backend.Grant, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case ans.created > 0 && (ans.lease != a.lease.id || a.isLost(ans.created)):
		d.forget(a)
		return nil, errLeaseEnded
	case ans.first:
		a.setKey(ans.created)
		if a.state == queued {
			a.signal() // a concurrent Wait is in no queue from now on
		}
		return d.grant(a, req), nil
	case !req.Queue:
		d.forget(a)
		return nil, &backend.Busy{Holder: ans.holder}
	}
	a.setKey(ans.created)
	d.joinQueue(a)
	return nil, &backend.Busy{Holder: ans.holder, Queued: true}
}

// applyError records the error of an attempt. If the acquisition has certainly left nothing on the
// server, applyError forgets it, because the core will not release it. A definite error does not
// prove that: an earlier attempt may have created a key, or may still be executed.
func (d *driver) applyError(a *acquisition, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case !isDefinite(err):
		a.mayHaveGhost = true
		a.lease.doubt()
	case !a.mayHaveGhost && (a.created == 0 || errors.Is(err, backend.ErrConflict)):
		d.forget(a)
	}
}

// Renew implements backend.Driver. It costs as many requests as a RenewAll.
func (d *driver) Renew(ctx context.Context, g *backend.Grant) (backend.Term, error) {
	renewal := d.RenewAll(ctx, []*backend.Grant{g})[0]
	return renewal.Term, renewal.Err
}

// Release implements backend.Driver. It sends one request, and needs no State. A key that may have
// been adopted has another name than its owner, or is not its creator's any more: see releaseOwned.
func (d *driver) Release(ctx context.Context, g *backend.Grant) error {
	b := bound.Within(ctx, d.timeoutFor(g.TTL)) // the second result of boundTo is an allocation
	defer b.Cancel()
	ctx = &request{Context: b, parent: ctx, values: d.values}
	a := d.startRelease(g.Owner)
	if a == nil || a.creator() != g.Owner {
		return d.releaseOwned(ctx, g)
	}
	removed, err := d.removeKey(ctx, a.keys)
	if err != nil {
		return interpretError(ctx, err)
	}
	d.finishRelease(g.Owner)
	if !removed {
		return backend.ErrNotHeld
	}
	return nil
}

// Capabilities implements backend.Driver.
func (d *driver) Capabilities() backend.Capabilities { return d.caps }

// Close implements backend.Driver. It ends the background work and waits for it. Then it revokes
// the leases that no lock needs any more, for closeTimeout at most, and leaves unreleased locks to
// the end of their terms.
func (d *driver) Close() error {
	d.end()
	d.background.Close()
	d.revokeUnused()
	defer d.batcher.Close()
	if d.ownership == lent {
		return nil
	}
	return d.client.Close()
}
