package pgbackend

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/jackc/pgx/v5"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/roster"
)

// listPage is the maximum number of rows that one statement of List reads.
const listPage = 5000

// Inspect implements backend.Inspector. It locks no row, so it waits for no other statement.
func (d *driver) Inspect(ctx context.Context, key string) (*backend.Info, error) {
	r, err := d.read(ctx, d.main, key)
	if err != nil {
		return nil, err
	}
	return r.info(key)
}

// info describes the lock of a row.
func (r *row) info(key string) (*backend.Info, error) {
	entries, err := r.entries()
	if err != nil {
		return nil, err
	}
	return entries.Info(key, r.now.UnixMicro()), nil
}

// List implements backend.Inspector. It reads the table in pages, by name. Between two pages
// nothing stays open on the server, so a slow caller delays no vacuum. Free rows stay for a day,
// and there can be very many of them, so a page limits the rows that the server reads, not the
// locks. A row that cannot be read does not hide the other locks: its error is the last result.
func (d *driver) List(ctx context.Context, prefix string) iter.Seq2[*backend.Info, error] {
	return func(yield func(*backend.Info, error) bool) {
		var unreadable error
		from := name(prefix)
		for from != nil {
			p, err := d.list(ctx, from, pastPrefix(prefix), listPage)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, l := range p.locks {
				info, err := l.describe(ctx, d)
				switch {
				case errors.Is(err, backend.ErrConflict):
					unreadable = cmp.Or(unreadable, fmt.Errorf("lock %q: %w", l.key, err))
				case err != nil:
					yield(nil, err)
					return
				case len(info.Holders) == 0 && info.Waiters == 0:
				case !yield(info, nil):
					return
				}
			}
			from = p.next
		}
		if unreadable != nil {
			yield(nil, unreadable)
		}
	}
}

// page is a page of List.
type page struct {
	locks []listed
	next  []byte // where the next page begins, or nil
}

// listed is the row of a lock in a page.
type listed struct {
	key string
	row *row
}

// describe describes the lock. It reads a roster that was too long for the page.
func (l *listed) describe(ctx context.Context, d *driver) (*backend.Info, error) {
	if l.row.isCut() {
		return d.Inspect(ctx, l.key)
	}
	return l.row.info(l.key)
}

// list returns the locks between two names, of the first limit rows from the first name on.
func (d *driver) list(ctx context.Context, from, to []byte, limit int) (*page, error) {
	return call(ctx, d, d.main, func(ctx context.Context, conn *pgx.Conn) (*page, error) {
		rows, err := conn.Query(ctx, d.sql.list, from, to, limit)
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		p := new(page)
		var last []byte
		for rows.Next() {
			if err := p.add(rows, &last); err != nil {
				return nil, err
			}
		}
		if last != nil && bytes.Compare(last, to) < 0 {
			p.next = append(last, 0) // the next possible name
		}
		return p, rows.Err()
	})
}

// add adds a row of listSQL, if it has a name, and sets the last name of the page. The time of a
// row can be later than the terms of its entries.
func (p *page) add(from pgx.Row, last *[]byte) error {
	var key []byte
	r := new(row)
	err := r.scan(from, last, &key)
	if err == nil && key != nil {
		p.locks = append(p.locks, listed{string(key), r})
	}
	return err
}

// Break implements backend.Breaker. It wakes the waiters that it lets in, as a release does. The
// holder finds out with its next renewal. If all holders are to go, it also removes a roster that
// cannot be read.
func (d *driver) Break(ctx context.Context, key, owner string) error {
	err := d.edit(ctx, d.main, key, func(entries *roster.Roster, _ uint64, _ int64) error {
		return entries.Break(owner)
	})
	if owner == "" && errors.Is(err, backend.ErrConflict) {
		return d.clearUnreadable(ctx, key, err)
	}
	return err
}

// clearUnreadable removes a roster that cannot be read, with all its entries. It returns reason if
// another client has changed the row meanwhile.
func (d *driver) clearUnreadable(ctx context.Context, key string, reason error) error {
	r, err := d.read(ctx, d.main, key)
	if err != nil {
		return err
	}
	if _, err := r.entries(); err == nil {
		return reason
	}
	free := r.with(nil, uint64(r.fence))
	version, err := d.exec(ctx, d.main, d.sql.update, free.updateArgs(key)...)
	if err == nil && version == 0 {
		return reason
	}
	return err
}
