package mysqlbackend

import (
	"cmp"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// A lock is a row of the table. schema.sql describes the columns, and acquire.sql writes them.

// Schema returns the statement that creates the table, for applications with migrations. An empty
// table name is DefaultTable. The statement has no effect if the table exists.
func Schema(table string) string {
	return strings.TrimSpace(withTable(schemaSQL, cmp.Or(table, DefaultTable))) + "\n"
}

// acquireArgs returns the parameters of acquire.sql. ttl is in µs. isFirst is whether the owner is
// the first waiter. Strings are passed as bytes, so that no character set applies to them.
func acquireArgs(req *backend.Request, ttl int64, isFirst bool) []any {
	var name, owner, meta any = []byte(req.Key), []byte(req.Owner), []byte(req.Meta)
	return []any{name, owner, ttl, meta, isFirst, owner, owner, owner, owner, meta, owner, ttl}
}

// decodeInfo reads a row of list.sql.
func decodeInfo(rows *sql.Rows) (*backend.Info, error) {
	info := &backend.Info{Mode: backend.Exclusive, Waiters: -1}
	var holder backend.Holder
	var token uint64
	var since, left int64 // µs
	err := rows.Scan(&info.Key, &holder.Owner, &holder.Meta, &token, &since, &left)
	if err != nil {
		return nil, err
	}
	holder.Fence = token << 12
	holder.Since = time.UnixMicro(since)
	holder.TTL = time.Duration(left) * time.Microsecond
	info.Holders = []backend.Holder{holder}
	return info, nil
}

// ceilMicros returns d in µs, the server's unit, rounded up.
func ceilMicros(d time.Duration) int64 {
	return int64((d + time.Microsecond - 1) / time.Microsecond)
}

// column is a row of shape.sql.
type column struct{ name, kind, key, engine string }

// maxKey and oldMaxKey are the bytes of the columns name and meta: in schema.sql, and in the tables
// of earlier builds.
const maxKey, oldMaxKey = 1024, 512

// shape returns the columns of schema.sql with the given width of name and meta.
func shape(width int) []column {
	wide := fmt.Sprintf("varbinary(%d)", width)
	return []column{
		{name: "name", kind: wide, key: "PRI"},
		{name: "owner", kind: "varbinary(64)"},
		{name: "token", kind: "bigint"},
		{name: "since", kind: "datetime(6)"},
		{name: "expires", kind: "datetime(6)"},
		{name: "meta", kind: wide},
	}
}

// checkShape returns how many bytes a name may have, or ErrConflict if the columns are not the
// columns of a table of locks. There must be at least one column.
func checkShape(table string, columns []column) (width int, err error) {
	if engine := columns[0].engine; !strings.EqualFold(engine, "InnoDB") {
		return 0, fmt.Errorf("%w: table %s has the engine %q, InnoDB is needed",
			backend.ErrConflict, table, engine)
	}
	for _, width := range []int{maxKey, oldMaxKey} {
		if hasShape(columns, shape(width)) {
			return width, nil
		}
	}
	return 0, fmt.Errorf("%w: table %s is of another shape than\n%s",
		backend.ErrConflict, table, Schema(table))
}

// hasShape reports whether columns are the columns of shape, in the same order.
func hasShape(columns, shape []column) bool {
	return slices.EqualFunc(columns, shape, func(a, b column) bool {
		kind := strings.TrimSuffix(strings.ToLower(a.kind), "(20)") // MariaDB shows this width
		return strings.EqualFold(a.name, b.name) && kind == b.kind && a.key == b.key
	})
}
