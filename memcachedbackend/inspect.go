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

// Inspect implements backend.Inspector. The server does not report the time left, so Inspect
// computes it from the clocks of the holder and of this machine.
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
		// At least 1 ms: the server still has the value, and the clocks may differ.
		TTL: min(max(time.Until(r.until), time.Millisecond), maxTTL),
	}}
	return info, nil
}

// List implements backend.Inspector. The protocol cannot list keys.
func (d *driver) List(context.Context, string) iter.Seq2[*backend.Info, error] {
	return func(yield func(*backend.Info, error) bool) {
		yield(nil, fmt.Errorf("%w: memcached cannot list keys", backend.ErrUnsupported))
	}
}

// Break implements backend.Breaker. The holder's next renewal reports the loss.
func (d *driver) Break(ctx context.Context, name, owner string) error {
	owned := ownedByAny
	if owner != "" {
		owned = ownedBy(owner)
	}
	return d.removeLock(ctx, d.server(name).main, name, owned)
}
