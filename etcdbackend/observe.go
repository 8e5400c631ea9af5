package etcdbackend

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

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
