package pgbackend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/roster"
)

const (
	// maxBatch is the number of grants that one statement renews.
	maxBatch = 1000
	// maxEdits is the number of rosters that RenewAll changes at a time.
	maxEdits = reserved
)

// errLocked is the outcome of a renewal whose row another statement has locked. It was not
// executed.
var errLocked = fmt.Errorf("%w: another statement has locked the row", backend.ErrUnavailable)

// A renewal creates nothing: it checks the owner, and the fence if the grant has one. It returns
// ErrLost only after a statement has read, as committed, that the row is gone or does not have the
// grant. A row that is locked is ErrUnavailable and no loss.

// RenewAll implements backend.BatchRenewer: one statement renews up to 1,000 grants. It blocks
// until it has all answers, or ctx ends. So the grants in rosters that are locked come at the end,
// with three quarters of the time that is left.
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

// renewBatch renews grants with one statement. renewRest answers the renewals that it left out.
func (d *driver) renewBatch(ctx context.Context, gs []*backend.Grant, answers []backend.Renewal) {
	keys, owners := make([][]byte, len(gs)), make([]string, len(gs))
	ttls, fences := make([]int64, len(gs)), make([]int64, len(gs))
	for i, g := range gs {
		keys[i], owners[i] = name(g.Key), g.Owner
		ttls[i], fences[i] = roster.Micros(g.TTL), int64(g.Fence)
	}
	renewed, err := d.execAll(ctx, d.renewals, len(gs), d.sql.renewAll, keys, owners, ttls, fences)
	if err != nil {
		for i := range answers {
			answers[i].Err = err
		}
		return
	}
	d.renewRest(ctx, gs, answers, renewed)
}

// renewRest answers the renewals that one statement could not execute: the grant is gone, it is in
// a roster, or its row is locked. It renews the grants in one roster with one change. It waits for
// locked rosters at the end, so that they delay no renewal of another one.
func (d *driver) renewRest(
	ctx context.Context, gs []*backend.Grant, answers []backend.Renewal, renewed []int64,
) {
	rest := make(map[string][]int) // positions by name
	for i, g := range gs {
		if renewed[i] == 0 {
			rest[g.Key] = append(rest[g.Key], i)
		}
	}
	if len(rest) == 0 {
		return
	}
	rows, err := d.readShort(ctx, d.renewals, slices.Collect(maps.Keys(rest)))
	for key, positions := range rest {
		if row := rows[key]; err != nil || row == nil || row.roster == nil {
			delete(rest, key)
			for _, i := range positions {
				answers[i].Err = cmp.Or(err, row.whyNot(gs[i]))
			}
		}
	}
	d.renewRosters(ctx, d.editHastily, rest, gs, answers)
	for key, positions := range rest {
		if !errors.Is(answers[positions[0]].Err, errLocked) {
			delete(rest, key)
		}
	}
	d.renewRosters(ctx, d.editPatiently, rest, gs, answers)
}

// renewRosters renews the grants at the positions of each name, which are in its roster.
func (d *driver) renewRosters(
	ctx context.Context, edit editor, rest map[string][]int, gs []*backend.Grant,
	answers []backend.Renewal,
) {
	var edits sync.WaitGroup
	slots := make(chan struct{}, maxEdits)
	for key, positions := range rest {
		slots <- struct{}{}
		edits.Go(func() {
			renewNamed(ctx, edit, key, positions, gs, answers)
			<-slots
		})
	}
	edits.Wait()
}

// renewNamed renews the grants at some positions, which are in the roster of one name.
func renewNamed(
	ctx context.Context, edit editor, key string, positions []int, gs []*backend.Grant,
	answers []backend.Renewal,
) {
	named := make([]*backend.Grant, len(positions))
	for n, i := range positions {
		named[n] = gs[i]
	}
	for n, err := range renewEntries(ctx, edit, key, named) {
		answers[positions[n]].Err = err
	}
}

// editor is editHastily or editPatiently.
type editor func(ctx context.Context, key string, alter change) error

// editHastily is edit for a renewal. It waits for no row.
func (d *driver) editHastily(ctx context.Context, key string, alter change) error {
	return d.edit(ctx, d.renewals, key, alter)
}

// editPatiently is edit for a renewal that has found its row locked. A row that many clients change
// passes from one statement to the next: only a statement that waits gets its turn. It waits for
// half of the time, see rowWait, and for the answer half as long again. It leaves the rest, because
// RenewAll ends with its slowest answer.
func (d *driver) editPatiently(ctx context.Context, key string, alter change) error {
	bounded := ctx
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(ctx, time.Until(end)*3/4)
		defer cancel()
	}
	err := d.edit(bounded, d.patient, key, alter)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = errNoAnswer
	}
	return err
}

// renewEntries renews grants of one name that may be in its roster, with one change.
func renewEntries(
	ctx context.Context, edit editor, key string, gs []*backend.Grant,
) []error {
	answers := make([]error, len(gs))
	err := edit(ctx, key, func(entries *roster.Roster, _ uint64, now int64) error {
		for i, g := range gs {
			answers[i] = renewEntry(*entries, g, now)
		}
		return nil
	})
	if err != nil {
		return slices.Repeat([]error{err}, len(gs))
	}
	return answers
}

func renewEntry(entries roster.Roster, g *backend.Grant, now int64) error {
	if isOther(entries.Find(g.Owner), g) {
		return backend.ErrLost
	}
	return entries.Renew(g.Owner, g.TTL, now)
}

// isOther reports whether e is another grant of the owner of g, which a late request made after a
// break. A grant that was rebuilt may have no fence.
func isOther(e *roster.Entry, g *backend.Grant) bool {
	return e != nil && e.Granted && g.Fence > 0 && e.Fence != g.Fence
}

// whyNot returns why a statement has not renewed g. The row has no roster, or r is nil.
func (r *row) whyNot(g *backend.Grant) error {
	if r != nil && r.isOf(g) {
		return errLocked
	}
	return backend.ErrLost
}

// isOf reports whether g is the grant of a row without a roster.
func (r *row) isOf(g *backend.Grant) bool {
	return r.owner == g.Owner && (g.Fence == 0 || r.fence == int64(g.Fence))
}

// readShort reads the rows of keys. A roster may be cut. A key without a row is not in the map.
func (d *driver) readShort(
	ctx context.Context, l *lane, keys []string,
) (map[string]*row, error) {
	return call(ctx, d, l,
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
				if r.found {
					found[string(key)] = r
				}
			}
			return found, rows.Err()
		})
}
