package pgbackend

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/dlock-go/dlock/backend/measure"
)

var (
	_ measure.Floor    = (*driver)(nil)
	_ measure.Counters = (*driver)(nil)
	_ measure.Sweeper  = (*driver)(nil)
)

// Floor implements measure.Floor: two statements, and so two commits. It is what a pair of Lock and
// Unlock would cost without terms, fences and waiters.
func (d *driver) Floor(ctx context.Context, key, owner string) error {
	for _, sql := range []string{d.sql.floorLock, d.sql.floorUnlock} {
		if err := d.run(ctx, sql, floorName(key), owner); err != nil {
			return err
		}
	}
	return nil
}

// Counters implements measure.Counters.
func (d *driver) Counters(ctx context.Context) (measure.Counts, error) {
	return call(ctx, d, d.main, count)
}

// count reads the counters of the server, which does not count statements.
func count(ctx context.Context, conn *pgx.Conn) (measure.Counts, error) {
	counts := measure.Counts{Commands: -1}
	err := conn.QueryRow(ctx, countSQL).Scan(&counts.Connections)
	return counts, err
}

// Count implements session.Conn.
func (a *adviser) Count() (measure.Counts, error) {
	counts, err := count(endless, a.conn)
	return counts, interpretError(err)
}

// TryLock implements session.Conn.
func (a *adviser) TryLock(id string) (acquired bool, err error) {
	err = a.conn.QueryRow(endless, advisoryTrySQL, number(id)).Scan(&acquired)
	if isAnswer(err) {
		err = a.undo(id, err)
	}
	return acquired, err
}

// Sweep implements measure.Sweeper. It deletes the rows of floors, too.
func (d *driver) Sweep(ctx context.Context, keys []string) error {
	all := names(keys)
	for _, key := range keys {
		all = append(all, floorName(key))
	}
	return d.run(ctx, d.sql.sweepNames, all)
}
