package mysqlbackend

import (
	"context"
	"database/sql"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/measure"
)

var (
	_ measure.Floor    = (*lockDriver)(nil)
	_ measure.Counters = (*lockDriver)(nil)
	_ measure.Sweeper  = (*lockDriver)(nil)
)

// Floor implements measure.Floor: two commits, each of the one row. The rows are those of locks, under names
// that no lock has.
func (d *lockDriver) Floor(ctx context.Context, name, owner string) error {
	row := floorRow(name)
	if _, err := exec(ctx, d.conn.main, d.text.floorLock, row, []byte(owner), []byte(owner)); err != nil {
		return err
	}
	out, err := exec(ctx, d.conn.main, d.text.floorUnlock, row, []byte(owner))
	if err == nil && out.changed != 1 {
		err = backend.ErrNotHeld
	}
	return err
}

// floorRow is the name of a floor's row. No lock has a name with a control character.
func floorRow(name string) []byte { return []byte("\x00" + name) }

// Counters implements measure.Counters, by the server's status variables.
func (d *lockDriver) Counters(ctx context.Context) (measure.Counts, error) {
	counts := measure.Counts{Commands: -1, Connections: -1}
	_, err := query(ctx, d.conn.main, func(rows *sql.Rows) (any, error) {
		var name string
		var n int64
		err := rows.Scan(&name, &n)
		switch strings.ToLower(name) {
		case "questions":
			counts.Commands = n
		case "threads_connected":
			counts.Connections = n
		}
		return nil, err
	}, "SHOW GLOBAL STATUS WHERE Variable_name IN ('Questions', 'Threads_connected')")
	return counts, err
}

// Sweep implements measure.Sweeper: what is left of a free lock, or of a floor, is its row.
func (d *lockDriver) Sweep(ctx context.Context, names []string) error {
	for batch := range slices.Chunk(names, sweepBatch) {
		args := make([]any, 0, 2*len(batch)+1)
		for _, name := range batch {
			args = append(args, []byte(name), floorRow(name))
		}
		if _, err := exec(ctx, d.conn.main, withNames(d.text.sweep, len(args)), append(args, 0)...); err != nil {
			return err
		}
	}
	return nil
}
