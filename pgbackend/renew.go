package pgbackend

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/roster"
)

const (
	// maxBatch is the number of grants that one statement renews.
	maxBatch = 1000
	// maxSingles is the number of rosters that RenewAll changes at a time.
	maxSingles = reserved
)

// errLocked is the outcome of a renewal whose row another statement has locked. It was not
// executed.
var errLocked = fmt.Errorf("%w: another statement has locked the row", backend.ErrUnavailable)

// Renew implements backend.Driver.
func (d *driver) Renew(ctx context.Context, g *backend.Grant) (backend.Term, error) {
	term := backend.Term{Sent: backend.Began(ctx), TTL: g.TTL}
	version, err := d.exec(ctx, d.renewals, d.sql.renew,
		name(g.Key), g.Owner, roster.Micros(g.TTL), int64(g.Fence))
	if err != nil || version > 0 {
		return term, err
	}
	return term, d.renewEntry(ctx, g)
}

// renewEntry renews a grant that may be in a roster.
func (d *driver) renewEntry(ctx context.Context, g *backend.Grant) error {
	return d.edit(ctx, d.renewals, g.Key, func(entries *roster.Roster, _ uint64, now int64) error {
		if isOther(entries.Find(g.Owner), g) {
			return backend.ErrLost
		}
		return entries.Renew(g.Owner, g.TTL, now)
	})
}

// isOther reports whether e is another grant of the owner of g, which a late request made after a
// break. A grant that was rebuilt may have no fence.
func isOther(e *roster.Entry, g *backend.Grant) bool {
	return e != nil && e.Granted && g.Fence > 0 && e.Fence != g.Fence
}

// RenewAll implements backend.BatchRenewer: one statement renews up to 1,000 grants.
func (d *driver) RenewAll(ctx context.Context, gs []*backend.Grant) []backend.Renewal {
	answers := make([]backend.Renewal, len(gs))
	sent := backend.Began(ctx)
	for i, g := range gs {
		answers[i].Term = backend.Term{Sent: sent, TTL: g.TTL}
	}
	var batches sync.WaitGroup
	at := 0
	for batch := range slices.Chunk(gs, maxBatch) {
		part := answers[at : at+len(batch)]
		at += len(batch)
		batches.Go(func() { d.renewBatch(ctx, batch, part) })
	}
	batches.Wait()
	return answers
}

// renewBatch renews grants with one statement. It looks after those that the statement left out.
func (d *driver) renewBatch(ctx context.Context, gs []*backend.Grant, answers []backend.Renewal) {
	keys, owners := make([][]byte, len(gs)), make([]string, len(gs))
	ttls, fences := make([]int64, len(gs)), make([]int64, len(gs))
	for i, g := range gs {
		keys[i], owners[i] = name(g.Key), g.Owner
		ttls[i], fences[i] = roster.Micros(g.TTL), int64(g.Fence)
	}
	positions, err := call(ctx, d, d.renewals,
		func(ctx context.Context, conn *pgx.Conn) ([]int64, error) {
			rows, err := conn.Query(ctx, d.sql.renewAll, keys, owners, ttls, fences)
			if err != nil {
				return nil, err
			}
			return pgx.CollectRows(rows, pgx.RowTo[int64])
		})
	if err != nil {
		for i := range answers {
			answers[i].Err = err
		}
		return
	}
	renewed := make([]bool, len(gs))
	for _, position := range positions {
		renewed[position-1] = true
	}
	d.renewRest(ctx, gs, answers, renewed)
}

// renewRest answers the renewals that one statement could not execute: the grant is gone, it is in
// a roster, or its row is locked. It does not wait for a locked row, because RenewAll ends with its
// slowest answer.
func (d *driver) renewRest(
	ctx context.Context, gs []*backend.Grant, answers []backend.Renewal, renewed []bool,
) {
	var keys []string
	for i, g := range gs {
		if !renewed[i] {
			keys = append(keys, g.Key)
		}
	}
	if keys == nil {
		return
	}
	rows, err := d.readAll(ctx, keys)
	var singles sync.WaitGroup
	slots := make(chan struct{}, maxSingles)
	for i, g := range gs {
		if renewed[i] {
			continue
		}
		row := rows[g.Key]
		switch {
		case err != nil:
			answers[i].Err = err
		case row == nil || row.roster == nil && !row.isOf(g):
			answers[i].Err = backend.ErrLost
		case row.roster == nil:
			answers[i].Err = errLocked
		default:
			slots <- struct{}{}
			singles.Go(func() {
				answers[i].Err = d.renewEntry(ctx, g)
				<-slots
			})
		}
	}
	singles.Wait()
}

// isOf reports whether g is the grant of a row without a roster.
func (r *row) isOf(g *backend.Grant) bool {
	return r.owner == g.Owner && (g.Fence == 0 || r.fence == int64(g.Fence))
}

// readAll reads the rows of keys. A key without a row is not in the map.
func (d *driver) readAll(ctx context.Context, keys []string) (map[string]*row, error) {
	return call(ctx, d, d.renewals,
		func(ctx context.Context, conn *pgx.Conn) (map[string]*row, error) {
			found := make(map[string]*row)
			rows, err := conn.Query(ctx, d.sql.readAll, names(keys))
			if err != nil {
				return nil, err
			}
			defer rows.Close()
			for rows.Next() {
				var key []byte
				r := new(row)
				if err := r.scan(rows, &key); err != nil {
					return nil, err
				}
				found[string(key)] = r
			}
			return found, rows.Err()
		})
}
