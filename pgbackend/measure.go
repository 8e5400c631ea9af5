package pgbackend

import (
	"context"

	"github.com/dlock-go/dlock/backend/measure"
)

// Floor implements measure.Floor: two statements, and so two commits.
func (d *driver) Floor(ctx context.Context, key, owner string) error {
	return d.do(ctx, func(ctx context.Context) error {
		for _, sql := range []string{d.sql.floorLock, d.sql.floorUnlock} {
			if _, err := d.pool.Exec(ctx, sql, floorName(key), owner); err != nil {
				return err
			}
		}
		return nil
	})
}

// Counters implements measure.Counters. The server does not count statements.
func (d *driver) Counters(ctx context.Context) (measure.Counts, error) {
	counts := measure.Counts{Commands: -1}
	err := d.do(ctx, func(ctx context.Context) error {
		return d.pool.QueryRow(ctx, d.sql.count).Scan(&counts.Connections)
	})
	return counts, err
}

// Sweep implements measure.Sweeper. It deletes the rows of floors, too.
func (d *driver) Sweep(ctx context.Context, keys []string) error {
	all := names(keys)
	for _, key := range keys {
		all = append(all, floorName(key))
	}
	return d.do(ctx, func(ctx context.Context) error {
		_, err := d.pool.Exec(ctx, d.sql.sweepNames, all)
		return err
	})
}
