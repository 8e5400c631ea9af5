package mysqlbackend

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"time"
)

// The sweep deletes the rows of names that have not been used for long. Each acquisition pays for
// four rows of the table on average, whichever process makes it. So the whole table is checked in
// the time in which a quarter as many names are acquired as it has rows. The table then stays below
// 4/3 of the names of the last day (keep).
const (
	keep        = 24 * time.Hour
	sweepOdds   = 125 // one in so many acquisitions sweeps
	sweepWindow = 500 // rows that a sweep checks
	sweepBatch  = 500 // rows that a statement deletes
)

// sweepSometimes starts a sweep in the background, after one in sweepOdds acquisitions. A driver
// has at most one sweep under way. The caller does not wait for it, and its errors have no effect.
func (d *driver) sweepSometimes() {
	if rand.N(sweepOdds) > 0 || !d.sweeping.CompareAndSwap(false, true) {
		return
	}
	d.inBackground(func(ctx context.Context) {
		defer d.sweeping.Store(false)
		_, _ = d.sweep(ctx) // a later sweep finds what this one leaves
	})
}

// sweep deletes the stale rows among the next rows of the table. It reports whether these were the
// last rows.
func (d *driver) sweep(ctx context.Context) (last bool, err error) {
	begin, err := d.sweepStart(ctx)
	if err != nil {
		return false, err
	}
	w, err := d.sweepRows(ctx, begin)
	if err != nil {
		return false, err
	}
	if w.end != begin { // otherwise one sweep covers the whole table, and needs no cursor
		cursor, begin, end := []byte(sweepCursor), []byte(begin), []byte(w.end)
		out, err := exec(ctx, d.pools.patient, d.text.claim, cursor, end, begin, begin, end)
		if err != nil || out.changed == 0 { // another driver sweeps these rows
			return false, err
		}
	}
	nameOf := func(name any) string { return string(name.([]byte)) }
	for stale := range chunks(w.stale, nameOf, sweepBatch, d.maxNames) {
		_, err := exec(ctx, d.pools.patient,
			withNames(d.text.sweep, len(stale)), append(stale, ceilMicros(keep))...)
		if err != nil {
			return w.end == "", err
		}
	}
	return w.end == "", nil
}

// sweepStart returns the name after which the next sweep begins.
func (d *driver) sweepStart(ctx context.Context) (string, error) {
	found, err := query(ctx, d.pools.main, func(rows *sql.Rows) (name string, err error) {
		return name, rows.Scan(&name)
	}, d.text.cursor, []byte(sweepCursor))
	if err != nil || len(found) == 0 {
		return "", err
	}
	return found[0], nil
}

// window is a part of the table.
type window struct {
	stale []any  // names, as parameters
	end   string // its last name; "" at the end of the table
}

// sweepRows returns the window of sweepWindow rows after begin. It changes nothing.
func (d *driver) sweepRows(ctx context.Context, begin string) (w window, err error) {
	names, err := query(ctx, d.pools.main, func(rows *sql.Rows) (name string, err error) {
		var isStale bool
		if err = rows.Scan(&name, &isStale); isStale {
			w.stale = append(w.stale, []byte(name))
		}
		return name, err
	}, d.text.stale, ceilMicros(keep), []byte(begin), sweepWindow)
	if len(names) == sweepWindow {
		w.end = names[sweepWindow-1]
	}
	return w, err
}
