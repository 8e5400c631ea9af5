package mysqlbackend

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/measure"
)

var (
	_ measure.Floor    = (*driver)(nil)
	_ measure.Counters = (*driver)(nil)
	_ measure.Sweeper  = (*driver)(nil)
)

// Floor implements measure.Floor by two commits, each of one row. The rows are in the table of
// locks, under names that no lock has.
func (d *driver) Floor(ctx context.Context, key, owner string) error {
	row := floorRow(key)
	_, err := exec(ctx, d.pools.main, d.text.floorLock, row, []byte(owner), []byte(owner))
	if err != nil {
		return err
	}
	out, err := exec(ctx, d.pools.main, d.text.floorUnlock, row, []byte(owner))
	if err == nil && out.changed != 1 {
		err = backend.ErrNotHeld
	}
	return err
}

// Counters implements measure.Counters.
func (d *driver) Counters(ctx context.Context) (measure.Counts, error) {
	return count(ctx, d.pools.main)
}

// count reads the status variables of the server.
func count(ctx context.Context, q querier) (measure.Counts, error) {
	counts := measure.Counts{Commands: -1, Connections: -1}
	_, err := query(ctx, q, func(rows *sql.Rows) (any, error) {
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

// Count implements session.Conn.
func (l *locker) Count() (measure.Counts, error) {
	counts, err := count(context.Background(), l.conn)
	if isInterrupted(err) {
		err = fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	return counts, err
}

// TryLock implements session.Conn.
func (l *locker) TryLock(id string) (bool, error) {
	acquired, err := l.number(l.try, id)
	if isInterrupted(err) {
		err = l.undo(id, err)
	}
	return acquired == 1, err
}

// Sweep implements measure.Sweeper. The remains of a free lock, or of a floor, are its row.
func (d *driver) Sweep(ctx context.Context, keys []string) error {
	for batch := range slices.Chunk(keys, sweepBatch) {
		args := make([]any, 0, 2*len(batch)+1)
		for _, key := range batch {
			args = append(args, []byte(key), floorRow(key))
		}
		text := withNames(d.text.sweep, len(args))
		if _, err := exec(ctx, d.pools.main, text, append(args, 0)...); err != nil {
			return err
		}
	}
	return nil
}
