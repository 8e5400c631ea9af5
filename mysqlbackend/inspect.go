package mysqlbackend

import (
	"context"
	"database/sql"
	"iter"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// listPage is how many locks one statement of a listing returns.
const listPage = 500

// afterAll is the end of the range of all names: no valid UTF-8 begins with it.
const afterAll = "\xff"

// Inspect implements backend.Inspector.
func (d *lockDriver) Inspect(ctx context.Context, name string) (*backend.Info, error) {
	infos, err := d.page(ctx, name, successor(name), 1)
	if err != nil {
		return nil, err
	}
	if len(infos) == 0 {
		return &backend.Info{Key: name, Mode: backend.Exclusive, Waiters: -1}, nil
	}
	return infos[0], nil
}

// List implements backend.Inspector.
func (d *lockDriver) List(ctx context.Context, prefix string) iter.Seq2[*backend.Info, error] {
	return func(yield func(*backend.Info, error) bool) {
		first, end := prefix, endOf(prefix)
		for {
			infos, err := d.page(ctx, first, end, listPage)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, info := range infos {
				if !yield(info, nil) {
					return
				}
				first = successor(info.Key)
			}
			if len(infos) < listPage {
				return
			}
		}
	}
}

// successor returns the least string above a name.
func successor(name string) string { return name + "\x00" }

// endOf returns the least string above all names with a prefix. The last byte of
// valid UTF-8 can always be one more.
func endOf(prefix string) string {
	if prefix == "" {
		return afterAll
	}
	last := len(prefix) - 1
	return prefix[:last] + string([]byte{prefix[last] + 1})
}

// page returns the locks that are held and lie from first to before end.
func (d *lockDriver) page(ctx context.Context, first, end string, limit int) ([]*backend.Info, error) {
	return query(ctx, d.conn.main, scanInfo, d.text.list, []byte(first), []byte(end), limit)
}

// scanInfo reads a row of list.sql.
func scanInfo(rows *sql.Rows) (*backend.Info, error) {
	info := &backend.Info{Mode: backend.Exclusive, Waiters: -1}
	var holder backend.Holder
	var token uint64
	var since, left int64
	if err := rows.Scan(&info.Key, &holder.Owner, &holder.Meta, &token, &since, &left); err != nil {
		return nil, err
	}
	holder.Fence = token << 12
	holder.Since = time.UnixMicro(since)
	holder.TTL = time.Duration(left) * time.Microsecond
	info.Holders = []backend.Holder{holder}
	return info, nil
}
