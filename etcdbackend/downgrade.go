package etcdbackend

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/kind"
)

// Downgrade implements backend.Downgrader. It writes the key of the writer again, as a reader's:
// the key keeps its create revision, and so its place in the queue.
func (d *driver) Downgrade(ctx context.Context, g *backend.Grant) (*backend.Grant, error) {
	ctx, cancel := d.boundTo(ctx, d.timeoutFor(g.TTL))
	defer cancel()
	d.mu.Lock()
	a := d.acquisitions[g.Owner]
	d.mu.Unlock()
	if a == nil {
		return nil, backend.ErrLost
	}
	r := newRecord(d.id, a)
	r.kind = kind.Reader
	begin(ctx)
	resp, err := d.kv.Txn(ctx, ifCreated([]byte(a.key), int64(g.Fence),
		putKey([]byte(a.key), r.encode(), a.lease.id)))
	switch {
	case isLeaseGone(err):
		d.endLease(a.lease)
		return nil, errLeaseEnded
	case err != nil:
		return nil, interpretError(ctx, err)
	case !resp.Succeeded:
		d.forgetLost(g.Owner)
		return nil, errKeyRemoved
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	a.kind = kind.Reader
	shared := *g
	shared.Mode, shared.Term = backend.Shared, a.lease.term()
	return &shared, nil
}

// ifCreated returns a transaction that does then if a key has the create revision.
func ifCreated(key []byte, revision int64, then *pb.RequestOp) *pb.TxnRequest {
	return &pb.TxnRequest{
		Compare: []*pb.Compare{{
			Key: key, Target: pb.Compare_CREATE,
			TargetUnion: &pb.Compare_CreateRevision{CreateRevision: revision},
		}},
		Success: []*pb.RequestOp{then},
	}
}

// Watch implements backend.Watcher. It has the values of the other watches, so that it shares their
// stream and requires a leader.
func (d *driver) Watch(ctx context.Context, key string, changed func()) error {
	watching := &request{Context: ctx, parent: ctx, values: d.life}
	events := d.client.Watch(watching, d.prefix(key), clientv3.WithPrefix())
	changed()
	for resp := range events {
		if err := resp.Err(); err != nil {
			return err
		}
		changed()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return errEnded
}
