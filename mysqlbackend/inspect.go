package mysqlbackend

import (
	"context"
	"errors"
	"iter"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/roster"
)

// listPage is the maximum number of locks that one statement of List returns.
const listPage = 500

// Inspect implements backend.Inspector.
func (d *driver) Inspect(ctx context.Context, key string) (*backend.Info, error) {
	infos, err := d.page(ctx, key, successor(key), 1)
	if err != nil {
		return nil, err
	}
	if len(infos) == 0 {
		return &backend.Info{Key: key, Mode: backend.Exclusive, Waiters: -1}, nil
	}
	return infos[0], nil
}

// List implements backend.Inspector. It reads the locks page by page, in the order of the keys.
func (d *driver) List(ctx context.Context, prefix string) iter.Seq2[*backend.Info, error] {
	return func(yield func(*backend.Info, error) bool) {
		next, end := prefix, prefixEnd(prefix)
		for {
			infos, err := d.page(ctx, next, end, listPage)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, info := range infos {
				if !yield(info, nil) {
					return
				}
				next = successor(info.Key)
			}
			if len(infos) < listPage {
				return
			}
		}
	}
}

// page returns up to limit held locks with keys from begin, inclusive, to end, exclusive.
func (d *driver) page(ctx context.Context, begin, end string, limit int) ([]*backend.Info, error) {
	return query(ctx, d.pools.main, decodeInfo, d.text.list, []byte(begin), []byte(end), limit)
}

// Break implements backend.Breaker.
func (d *driver) Break(ctx context.Context, key, owner string) error {
	err := d.remove(ctx, d.text.breakLock, key, []byte(owner), []byte(owner))
	if !d.caps.Move || !errors.Is(err, backend.ErrNotHeld) {
		return err
	}
	return d.edit(ctx, d.pools.control, key, func(r *roster.Roster, _ *rosterRow) error {
		return r.Break(owner)
	})
}
