package mysqlbackend

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/roster"
)

const (
	// listPage is the maximum number of locks that one statement of List returns.
	listPage = 500
	// maxListed is the size of the longest roster that is part of a page. Longer ones are read one
	// by one, so that a page stays below maxAnswer.
	maxListed = 8 << 10
)

// Inspect implements backend.Inspector.
func (d *driver) Inspect(ctx context.Context, key string) (*backend.Info, error) {
	found, err := d.page(ctx, key, successor(key), 1, maxAnswer)
	switch {
	case err != nil:
		return nil, err
	case len(found) == 0:
		return &backend.Info{Key: key, Mode: backend.Exclusive, Waiters: -1}, nil
	case found[0].info == nil: // another program has changed the row
		return nil, fmt.Errorf("%w: the roster cannot be read", backend.ErrConflict)
	}
	return found[0].info, nil
}

// List implements backend.Inspector. It reads the locks page by page, in the order of the keys.
func (d *driver) List(ctx context.Context, prefix string) iter.Seq2[*backend.Info, error] {
	return func(yield func(*backend.Info, error) bool) {
		next, end := prefix, prefixEnd(prefix)
		for {
			found, err := d.page(ctx, next, end, listPage, maxListed)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, l := range found {
				if !d.yieldListed(ctx, l, yield) {
					return
				}
				next = successor(l.key)
			}
			if len(found) < listPage {
				return
			}
		}
	}
}

// yieldListed calls yield for a row of a page, unless its lock is neither held nor waited for.
func (d *driver) yieldListed(
	ctx context.Context, l listed, yield func(*backend.Info, error) bool,
) (more bool) {
	var err error
	if l.info == nil {
		if l.info, err = d.Inspect(ctx, l.key); err != nil {
			yield(nil, err)
			return false
		}
	}
	return len(l.info.Holders) == 0 && l.info.Waiters <= 0 || yield(l.info, nil)
}

// page returns up to limit held locks with keys from begin, inclusive, to end, exclusive. It omits
// the contents of rosters with more than longest bytes.
func (d *driver) page(
	ctx context.Context, begin, end string, limit, longest int,
) ([]listed, error) {
	args := []any{longest, []byte(begin), []byte(end), limit}
	found, err := query(ctx, d.pools.main, decodeListed, d.text.list, args...)
	if hasNumber(err, errNoColumn) { // a table of an earlier build has no rosters
		return query(ctx, d.pools.main, decodeListed, d.text.listPlain, args...)
	}
	return found, err
}

// Break implements backend.Breaker.
func (d *driver) Break(ctx context.Context, key, owner string) error {
	err := d.remove(ctx, d.text.breakLock, key, []byte(owner), []byte(owner))
	if !errors.Is(err, backend.ErrNotHeld) {
		return err
	}
	return d.leave(ctx, key, "", func(r *roster.Roster) error { return r.Break(owner) })
}
