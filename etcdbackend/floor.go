package etcdbackend

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/key"
	"github.com/dlock-go/dlock/backend/measure"
)

var _ measure.Floor = (*driver)(nil)

// floorTTL ends what a floor that was interrupted has left.
const floorTTL = 30 * time.Second

// Floor implements measure.Floor: a transaction that makes a key where there is none, and its
// deletion. Its lease is the shared one of its TTL, which is kept alive every few seconds.
func (d *driver) Floor(ctx context.Context, name, _ string) error {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	l, err := d.lease(ctx, floorTTL)
	if err != nil {
		return interpretError(ctx, err)
	}
	k := d.root + "/floor/" + key.Encode(name, maxKey)
	resp, err := d.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(k), "=", 0)).
		Then(clientv3.OpPut(k, "", clientv3.WithLease(l.id))).Commit()
	if err == nil && !resp.Succeeded {
		err = backend.ErrNotAcquired
	}
	if err == nil {
		_, err = d.client.Delete(ctx, k)
	}
	return interpretError(ctx, err)
}
