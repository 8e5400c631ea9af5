package mysqlbackend

import (
	"cmp"
	"database/sql"
	"fmt"
	"math"
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

// acquireAllArgs returns the parameters of acquire-all.sql. ttl is in µs.
func acquireAllArgs(reqs []*backend.Request, ttl int64) []any {
	names, count := namesOf(reqs), []any{len(reqs)}
	var owners, metas []any
	for _, req := range reqs {
		owners, metas = append(owners, []byte(req.Owner)), append(metas, []byte(req.Meta))
	}
	return slices.Concat(
		count, names, names, owners, names, count, names, owners, metas, []any{ttl})
}

// namesOf returns the names of the rows of reqs, as parameters.
func namesOf(reqs []*backend.Request) (names []any) {
	for _, req := range reqs {
		names = append(names, []byte(req.Key))
	}
	return names
}

// releaseAllArgs returns the parameters of release-all.sql for the grants at indices.
func (d *driver) releaseAllArgs(gs []*backend.Grant, indices []int) []any {
	var names, owners, signals []any
	for _, i := range indices {
		names, owners = append(names, []byte(gs[i].Key)), append(owners, []byte(gs[i].Owner))
		signals = append(signals, d.keys.signal(gs[i].Key))
	}
	return slices.Concat(names, names, owners, names, signals, names, []any{len(names)}, names,
		[]any{reserve.Microseconds()})
}

// rosterOwner is the owner of a row that has a roster.
const rosterOwner = "*"

// listed is a row of list.sql.
type listed struct {
	key  string
	info *backend.Info // nil: the roster is too long for a page, or there is an error
	err  error         // the roster cannot be read
}

// decodeListed reads a row of list.sql. The waiters of a row without a roster stand in the queue of
// its signal, which is not read here: their number is -1. It returns errReadOnly for a read-only
// server. The row that reports this has no key.
func decodeListed(rows *sql.Rows) (l listed, err error) {
	var row rosterRow
	err = rows.Scan(&l.key, &row.owner, &row.meta, &row.token, &row.since, &row.expires, &row.now,
		&row.readOnly, &row.text)
	if err == nil && row.readOnly {
		err = errReadOnly
	}
	if err != nil || l.key == "" || row.owner == rosterOwner && row.text == nil {
		return l, err
	}
	r, err := row.entries()
	if err != nil {
		l.err = fmt.Errorf("lock %q: %w", l.key, err)
		return l, nil
	}
	l.info = r.Info(l.key, row.now)
	if row.owner != rosterOwner {
		l.info.Waiters = -1
	}
	return l, nil
}

// ceilMicros returns d in µs, the server's unit, rounded up. The longest durations are rounded
// down, because the sum would wrap.
func ceilMicros(d time.Duration) int64 {
	d = min(d, math.MaxInt64-time.Microsecond)
	return int64((d + time.Microsecond - 1) / time.Microsecond)
}

// column is a row of shape.sql.
type column struct{ name, kind, key, engine string }

// maxKey and oldMaxKey are the bytes of the columns name and meta: in schema.sql, and in the tables
// of earlier builds.
const maxKey, oldMaxKey = 1024, 512

// shape is what the tables of earlier builds have otherwise than schema.sql.
type shape struct {
	width  int  // of name and meta, in bytes
	roster bool // there is a column for readers and permits
}

// shapes are the tables that a driver accepts, the present one first.
var shapes = []shape{{maxKey, true}, {maxKey, false}, {oldMaxKey, true}, {oldMaxKey, false}}

// columns returns the columns of a table.
func (s shape) columns() []column {
	wide := fmt.Sprintf("varbinary(%d)", s.width)
	columns := []column{
		{name: "name", kind: wide, key: "PRI"},
		{name: "owner", kind: "varbinary(64)"},
		{name: "token", kind: "bigint"},
		{name: "since", kind: "datetime(6)"},
		{name: "expires", kind: "datetime(6)"},
		{name: "meta", kind: wide},
	}
	if s.roster {
		columns = append(columns, column{name: "roster", kind: "mediumblob"})
	}
	return columns
}

// addRoster returns the statement that adds the column for readers and permits to a table of an
// earlier build.
func addRoster(table string) string {
	return "ALTER TABLE `" + table + "` ADD COLUMN roster MEDIUMBLOB"
}

// checkShape returns the shape of a table, or ErrConflict if the columns are not the columns of a
// table of locks. There must be at least one column.
func checkShape(table string, columns []column) (shape, error) {
	if engine := columns[0].engine; !strings.EqualFold(engine, "InnoDB") {
		return shape{}, fmt.Errorf("%w: table %s has the engine %q, InnoDB is needed",
			backend.ErrConflict, table, engine)
	}
	for _, s := range shapes {
		if hasShape(columns, s.columns()) {
			return s, nil
		}
	}
	return shape{}, fmt.Errorf("%w: table %s is of another shape than\n%s",
		backend.ErrConflict, table, Schema(table))
}

// hasShape reports whether columns are those of a shape, in the same order.
func hasShape(columns, of []column) bool {
	return slices.EqualFunc(columns, of, func(a, b column) bool {
		kind := strings.TrimSuffix(strings.ToLower(a.kind), "(20)") // MariaDB shows this width
		return strings.EqualFold(a.name, b.name) && kind == b.kind && a.key == b.key
	})
}
