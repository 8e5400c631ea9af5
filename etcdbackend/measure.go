package etcdbackend

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/measure"
)

var _ measure.Floor = (*driver)(nil)

// floorTTL is the term of a lock of Floor. If Floor is interrupted, its key stays that long.
const floorTTL = 30 * time.Second

// Floor implements measure.Floor. A transaction creates a key if it does not exist, and a second
// request removes it. The key belongs to the shared lease of floorTTL, for which a keep-alive is
// sent every few seconds.
func (d *driver) Floor(ctx context.Context, name, _ string) error {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	l, err := d.freshLease(ctx, floorTTL)
	if err != nil {
		return interpretError(ctx, err)
	}
	k := d.floorKey(name)
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
