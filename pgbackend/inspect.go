package pgbackend

import (
	"context"
	"iter"

	"github.com/jackc/pgx/v5"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/roster"
)

// listPage is the number of rows that List reads with one statement.
const listPage = 500

// Inspect implements backend.Inspector.
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

// List implements backend.Inspector. It reads the table in pages, by name.
func (d *driver) List(ctx context.Context, prefix string) iter.Seq2[*backend.Info, error] {
	return func(yield func(*backend.Info, error) bool) {
		from := name(prefix)
		for {
			infos, err := d.list(ctx, from, pastPrefix(prefix))
			if err != nil {
				yield(nil, err)
				return
			}
			for _, info := range infos {
				if !yield(info, nil) {
					return
				}
			}
			if len(infos) < listPage {
				return
			}
			from = append(name(infos[len(infos)-1].Key), 0) // the next possible name
		}
	}
}

// list returns a page of the locks between two names.
func (d *driver) list(ctx context.Context, from, to []byte) ([]*backend.Info, error) {
	return call(ctx, d, d.main,
		func(ctx context.Context, conn *pgx.Conn) ([]*backend.Info, error) {
			rows, err := conn.Query(ctx, d.sql.list, from, to, listPage)
			if err != nil {
				return nil, err
			}
			return pgx.CollectRows(rows, listed)
		})
}

// listed returns the lock of a row of listSQL.
func listed(from pgx.CollectableRow) (*backend.Info, error) {
	var key []byte
	r := new(row)
	if err := r.scan(from, &key); err != nil {
		return nil, err
	}
	return r.info(string(key))
}

// Break implements backend.Breaker.
func (d *driver) Break(ctx context.Context, key, owner string) error {
	return d.edit(ctx, d.main, key, func(entries *roster.Roster, _ uint64, _ int64) error {
		return entries.Break(owner)
	})
}
