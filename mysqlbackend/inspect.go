package mysqlbackend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

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
	case found[0].info == nil && found[0].err == nil: // another program has changed the row
		return nil, fmt.Errorf("%w: the roster is too long", backend.ErrConflict)
	}
	return found[0].info, found[0].err
}

// List implements backend.Inspector. It reads the locks page by page, in the order of the keys.
// Each page is one statement, so the list is of no single moment. A lock that cannot be read does
// not hide the other locks: the first such error is the last result.
func (d *driver) List(ctx context.Context, prefix string) iter.Seq2[*backend.Info, error] {
	return func(yield func(*backend.Info, error) bool) {
		var unreadable error
		for l, err := range d.rows(ctx, prefix) {
			if err == nil && l.info == nil && l.err == nil {
				l.info, l.err = d.Inspect(ctx, l.key)
			}
			switch err = cmp.Or(err, l.err); {
			case errors.Is(err, backend.ErrConflict):
				unreadable = cmp.Or(unreadable, err)
			case err != nil:
				yield(nil, err)
				return
			case (len(l.info.Holders) > 0 || l.info.Waiters > 0) && !yield(l.info, nil):
				return
			}
		}
		if unreadable != nil {
			yield(nil, unreadable)
		}
	}
}

// rows returns the rows of the locks with a prefix. An error is the last result.
func (d *driver) rows(ctx context.Context, prefix string) iter.Seq2[listed, error] {
	return func(yield func(listed, error) bool) {
		next, end := prefix, prefixEnd(prefix)
		for {
			found, err := d.page(ctx, next, end, listPage, maxListed)
			if err != nil {
				yield(listed{}, err)
				return
			}
			for _, l := range found {
				if !yield(l, nil) {
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

// page returns up to limit held locks with keys from begin, inclusive, to end, exclusive. It omits
// the contents of rosters with more than longest bytes.
func (d *driver) page(
	ctx context.Context, begin, end string, limit, longest int,
) ([]listed, error) {
	args := []any{longest, []byte(begin), []byte(end), limit}
	found, err := query(ctx, d.pools.main, decodeListed, d.text.list, args...)
	if hasNumber(err, errNoColumn) { // a table of an earlier build has no rosters
		found, err = query(ctx, d.pools.main, decodeListed, d.text.listPlain, args...)
	}
	isReport := func(l listed) bool { return l.key == "" }
	return slices.DeleteFunc(found, isReport), err
}

// Break implements backend.Breaker. It tries the row first, and then the roster. The holder is not
// notified: its next renewal returns ErrLost. If all holders are to go, it also removes a roster
// that cannot be read.
func (d *driver) Break(ctx context.Context, key, owner string) error {
	err := d.remove(ctx, d.text.breakLock, key, []byte(owner), []byte(owner))
	if !errors.Is(err, backend.ErrNotHeld) {
		return err
	}
	err = d.leave(ctx, key, "", func(r *roster.Roster) error { return r.Break(owner) })
	if owner == "" && errors.Is(err, backend.ErrConflict) {
		return d.clearUnreadable(ctx, key, err)
	}
	return err
}

// clearUnreadable removes a roster that cannot be read, with all its entries. It returns reason if
// another client has changed the row meanwhile.
func (d *driver) clearUnreadable(ctx context.Context, key string, reason error) error {
	e := &edition{key: key, q: d.pools.control.of(key)}
	row, err := d.readRoster(ctx, e)
	if err != nil {
		return err
	}
	if _, err := row.entries(); err == nil {
		return reason
	}
	cleared, err := d.writeRoster(ctx, e, row, &version{}, true)
	if err == nil && !cleared {
		return reason
	}
	return err
}
