package memcachedbackend

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/dlock-go/dlock/backend"
)

// Inspect implements backend.Inspector. The time left is told by the clocks of the holder and
// of this machine, as the server does not tell it.
func (d *driver) Inspect(ctx context.Context, name string) (*backend.Info, error) {
	info := &backend.Info{Key: name, Mode: backend.Exclusive, Waiters: -1}
	var item *memcache.Item
	err := d.server(name).main.do(ctx, func(c *memcache.Client) (err error) {
		item, err = c.Get(newKeys(name).lock)
		return err
	})
	switch {
	case errors.Is(err, memcache.ErrCacheMiss):
		return info, nil
	case err != nil:
		return nil, err
	}
	r, ok := decode(item.Value)
	if !ok || r.name != name {
		return nil, errForeign
	}
	info.Holders = []backend.Holder{{
		Owner: r.owner, Meta: r.meta, Fence: r.fence << 12, Since: r.since,
		TTL: min(max(time.Until(r.until), time.Millisecond), maxTTL),
	}}
	return info, nil
}

// List implements backend.Inspector: the protocol cannot list keys.
func (d *driver) List(context.Context, string) iter.Seq2[*backend.Info, error] {
	return func(yield func(*backend.Info, error) bool) {
		yield(nil, fmt.Errorf("%w: memcached cannot list keys", backend.ErrUnsupported))
	}
}

// Break implements backend.Breaker. The holder is told by its next renewal.
func (d *driver) Break(ctx context.Context, name, owner string) error {
	owned := func(*record) bool { return true }
	if owner != "" {
		owned = ownedBy(owner)
	}
	return d.free(ctx, d.server(name).main, name, owned)
}
