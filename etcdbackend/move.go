package etcdbackend

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/kind"
)

// A grant moves by another value under the same key. The key keeps its name and its create
// revision, and so its position in the queue and its fence. Its value has the new owner.

// maxEdits limits how often edit tries again because another request has changed the key. Only the
// requests of one owner and an adoption change a key, so the second attempt usually succeeds.
const maxEdits = 4

// errChanging is the error of an edit that was never the first to change the key.
var errChanging = fmt.Errorf("%w: the key keeps changing", backend.ErrUnavailable)

// Downgrade implements backend.Downgrader. It writes the key of the writer again, as a reader's.
func (d *driver) Downgrade(ctx context.Context, g *backend.Grant) (*backend.Grant, error) {
	ctx, cancel := d.boundTo(ctx, d.timeoutFor(g.TTL))
	defer cancel()
	a := d.find(g.Owner)
	if a == nil {
		return nil, backend.ErrLost
	}
	_, err := d.edit(ctx, a.key, g.Key, func(r record) (*pb.RequestOp, error) {
		if !r.is(g) {
			return nil, errKeyGone
		}
		r.kind = kind.Reader
		return putKey([]byte(a.key), r.encode(), a.lease.id), nil
	})
	switch {
	case isLeaseGone(err):
		d.endLease(a.lease)
		return nil, errLeaseEnded
	case err != nil:
		d.forgetIfLost(g.Owner, err)
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	a.kind = kind.Reader
	shared := *g
	shared.Mode, shared.Term = backend.Shared, a.lease.term()
	return &shared, nil
}

// Export implements backend.Mover. It moves the key to a lease that no client keeps alive. The
// ticket has the creator of the key, by which Adopt finds it, and a secret: a client that may
// inspect the lock knows its owner. The term of the exported grant begins when the server grants
// that lease. If the key is not moved, the lease stays without keys until it ends by itself.
func (d *driver) Export(ctx context.Context, g *backend.Grant) (ticket string, err error) {
	ctx, cancel := d.boundTo(ctx, d.timeoutFor(g.TTL))
	defer cancel()
	a := d.find(g.Owner)
	if a == nil {
		return "", backend.ErrLost
	}
	last, err := d.client.Grant(ctx, seconds(g.TTL))
	if err != nil {
		return "", asUnavailable(ctx, err)
	}
	secret := rand.Text()
	_, err = d.edit(ctx, a.key, g.Key, func(r record) (*pb.RequestOp, error) {
		if !r.is(g) {
			return nil, errKeyGone
		}
		r.secret = secret
		return putKey([]byte(a.key), r.encode(), last.ID), nil
	})
	if err != nil {
		d.forgetIfLost(g.Owner, err)
		return "", err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forget(a)
	return a.creator() + "." + secret, nil
}

// Adopt implements backend.Mover. It moves the key to the lease of this driver. The same write
// removes the secret, so a second adopter gets ErrLost. The adopter itself gets its grant again if
// it repeats the request.
func (d *driver) Adopt(
	ctx context.Context, ticket string, req *backend.Request,
) (*backend.Grant, error) {
	ctx, cancel := d.boundTo(ctx, d.timeoutFor(req.TTL))
	defer cancel()
	creator, secret, _ := strings.Cut(ticket, ".")
	if creator == "" || secret == "" {
		return nil, backend.ErrLost
	}
	l, err := d.freshLease(ctx, req.TTL)
	if err != nil {
		return nil, asUnavailable(ctx, err)
	}
	a := d.admit(req, l, creator)
	r, err := d.edit(ctx, a.key, a.name, func(r record) (*pb.RequestOp, error) {
		isMine := r.owner == req.Owner && r.secret == ""
		if !isMine && r.secret != secret || r.kind != a.kind {
			return nil, errAdopted
		}
		r.client, r.owner, r.meta, r.secret = d.id, req.Owner, req.Meta, ""
		r.since = time.Now()
		return putKey([]byte(a.key), r.encode(), l.id), nil
	})
	if isLeaseGone(err) {
		d.endLease(l)
	}
	switch {
	case errors.Is(err, backend.ErrLost):
		d.forgetLost(req.Owner)
		return nil, err
	case err != nil:
		d.applyError(a, err)
		return nil, err
	}
	if r.secret != "" { // otherwise it is the lease of an earlier Adopt, which has other keys, too
		d.revokeLater(r.lease)
	}
	return d.applyAnswer(a, req, answer{created: r.created, lease: l.id, first: true})
}

// releaseOwned releases what a Release cannot remove by its name alone. The key of an adopted grant
// has the name of another owner. The key of an owner that is not in the registry may have another
// owner by now. One request suffices, unless the owner has a key that was written again.
func (d *driver) releaseOwned(ctx context.Context, g *backend.Grant) error {
	k := newKeys(d.root, g.Key, g.Owner)
	key, prefix, end := k.bytes()
	resp, err := d.transact(ctx, k.prefix, ifNew(key, deleteKey(key), getAll(prefix, end)))
	if err != nil {
		return interpretError(ctx, err)
	}
	if !resp.Succeeded {
		err = d.removeOwned(ctx, g, resp.Responses[0].GetResponseRange().Kvs)
	}
	if err == nil || errors.Is(err, backend.ErrNotHeld) {
		d.finishRelease(g.Owner)
	}
	return err
}

// removeOwned removes the key of an owner, which is one of kvs. It returns ErrNotHeld if it is none
// of them.
func (d *driver) removeOwned(
	ctx context.Context, g *backend.Grant, kvs []*mvccpb.KeyValue,
) error {
	kv := ownedBy(kvs, g.Owner)
	if kv == nil {
		return backend.ErrNotHeld
	}
	_, err := d.edit(ctx, string(kv.Key), g.Key, func(r record) (*pb.RequestOp, error) {
		if r.owner != g.Owner {
			return nil, backend.ErrLost
		}
		return deleteKey(kv.Key), nil
	})
	if errors.Is(err, backend.ErrLost) {
		return backend.ErrNotHeld
	}
	return err
}

// edit changes a key: it reads the key, and executes the operation that change returns for its
// record if no other request has changed the key meanwhile. So a request that is executed late
// changes nothing. edit returns the record that it has replaced. It returns ErrLost if there is no
// key, or the error of change.
func (d *driver) edit(
	ctx context.Context, key, name string, change func(r record) (*pb.RequestOp, error),
) (record, error) {
	for range maxEdits {
		resp, err := d.client.Get(ctx, key)
		switch {
		case err != nil:
			return record{}, asUnavailable(ctx, err)
		case len(resp.Kvs) == 0:
			return record{}, errKeyGone
		}
		r, err := decode(resp.Kvs[0], name)
		if err != nil {
			return record{}, errKeyGone
		}
		op, err := change(r)
		if err != nil {
			return record{}, err
		}
		txn, err := d.sendTxn(ctx, ifUnchanged([]byte(key), r.modified, op))
		if err != nil {
			return record{}, interpretError(ctx, err)
		}
		if txn.Succeeded {
			return r, nil
		}
	}
	return record{}, errChanging
}

// is reports whether r is the record of g.
func (r record) is(g *backend.Grant) bool {
	return r.owner == g.Owner && (g.Fence == 0 || r.created == int64(g.Fence))
}

// forgetIfLost forgets the acquisition of an owner if err is a loss.
func (d *driver) forgetIfLost(owner string, err error) {
	if errors.Is(err, backend.ErrLost) {
		d.forgetLost(owner)
	}
}

// revokeLater revokes a lease without keys in the background. If this fails, it ends by itself.
func (d *driver) revokeLater(id int64) {
	d.background.Go(func() {
		ctx, cancel := d.bound(d.life)
		defer cancel()
		_, _ = d.client.Revoke(ctx, clientv3.LeaseID(id))
	})
}
