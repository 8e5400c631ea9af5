package mysqlbackend

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/roster"
)

// Readers and permits have no room in a row with one owner. So the row of a name that has any
// contains a roster of all its holders and waiters, writers included, and the owner '*'. A writer
// without readers stays a plain row, which costs one statement: a reader that waits for it turns
// the row into a roster, and the release of the last entry turns it back.

const (
	// maxEntries limits the holders and waiters of a name. Each change writes the whole roster.
	maxEntries = 5000
	// maxEditPause is the longest pause before a change of a roster is repeated because another
	// client was faster.
	maxEditPause = 8 * time.Millisecond
	// maxTurnPoll is the longest pause of a waiter that is far from the front of a roster.
	maxTurnPoll = 500 * time.Millisecond
)

// inRoster is the State of a grant that stands in a roster. A grant without it may do so as well,
// if a reader has come since.
type inRoster struct{}

// rosterRow is a row as roster-read.sql returns it. Times are in µs since 1970.
type rosterRow struct {
	sent                       time.Time // before the statement that has read it
	owner, meta                string
	token, since, expires, now int64
	readOnly, missing          bool
	text                       []byte // the roster
}

// entries returns the roster of the row without the expired entries. A plain grant is a writer.
func (row *rosterRow) entries() (r roster.Roster, err error) {
	switch row.owner {
	case rosterOwner:
		if r, err = roster.Parse(row.text); err != nil {
			return nil, fmt.Errorf("%w: the roster cannot be read: %w", backend.ErrConflict, err)
		}
	case "":
	default:
		r = roster.Writer(row.owner, row.meta, uint64(row.token), row.since, row.expires)
	}
	r.Expire(row.now)
	return r, nil
}

// nextToken returns the token of the row after a change: the fence of a new grant.
func (row *rosterRow) nextToken() int64 { return max(row.token+1, row.now-backend.FenceEpoch) }

// editor is a change of a roster. It is called again if another client was faster.
type editor func(r *roster.Roster, row *rosterRow) error

// edit changes the roster of a key by change, and returns its error. It stores the roster also
// after an error, because a refused request may have left an entry. Any other error means what it
// means for a statement.
func (d *driver) edit(ctx context.Context, p *pool, key string, change editor) error {
	for longest := time.Millisecond; ; longest = min(2*longest, maxEditPause) {
		row, err := d.readRoster(ctx, p, key)
		if err != nil {
			return err
		}
		r, err := row.entries()
		if err != nil {
			return err
		}
		before := string(r.Text())
		answer := change(&r, row)
		if text := r.Text(); string(text) != before {
			stored, err := d.writeRoster(ctx, p, key, row, r, text)
			if err != nil {
				return err
			}
			if !stored {
				if err := pause(ctx, rand.N(longest)); err != nil {
					return err
				}
				continue
			}
		}
		return answer
	}
}

// readRoster returns the row of a key.
func (d *driver) readRoster(ctx context.Context, p *pool, key string) (*rosterRow, error) {
	row := &rosterRow{sent: time.Now()}
	rows, err := query(ctx, p, func(rows *sql.Rows) (_ any, err error) {
		return nil, rows.Scan(&row.owner, &row.token, &row.since, &row.expires, &row.now,
			&row.readOnly, &row.meta, &row.text)
	}, d.text.rosterRead, []byte(key))
	switch {
	case err != nil:
		return nil, err
	case row.readOnly:
		return nil, fmt.Errorf("%w: the server is read-only", backend.ErrUnavailable)
	}
	row.missing = len(rows) == 0
	return row, nil
}

// writeRoster stores r, whose text is given, unless another client has changed the row since it was
// read as row. It makes a missing row, but does not write into it: that needs the server's time.
func (d *driver) writeRoster(
	ctx context.Context, p *pool, key string, row *rosterRow, r roster.Roster, text []byte,
) (stored bool, err error) {
	was := []any{[]byte(key), []byte(row.owner), row.token, row.expires}
	switch {
	case len(r) > maxEntries:
		return false, fmt.Errorf("%w: the name has %d holders and waiters already",
			backend.ErrUnavailable, maxEntries)
	case row.missing:
		_, err := exec(ctx, p, d.text.rosterRow, []byte(key))
		return false, err
	case len(r) == 0:
		args := append([]any{d.keys.signal(key), reserve.Microseconds()}, was...)
		out, err := exec(ctx, p, d.text.rosterClear, args...)
		d.wakeLater(out)
		return out.changed > 0, err
	}
	out, err := exec(ctx, p, d.text.rosterWrite,
		append([]any{row.nextToken(), row.now, r.End(), text}, was...)...)
	return out.changed > 0, err
}

// enter makes one attempt to become a holder in the roster of a key.
func (d *driver) enter(ctx context.Context, req *backend.Request) (g *backend.Grant, err error) {
	err = d.edit(ctx, d.pools.main, req.Key, func(r *roster.Roster, row *rosterRow) error {
		e, err := r.Acquire(req, uint64(row.nextToken()), row.now)
		if err == nil {
			g = grantOf(req, e, row.sent)
		}
		return err
	})
	if err == nil {
		d.passSignalLater(req.Owner)
		d.sweepSometimes()
		return g, nil
	}
	if b, ok := errors.AsType[*backend.Busy](err); ok && req.Queue {
		b.State = inRoster{}
		d.acquisitions.admit(req.Owner)
	}
	return nil, err
}

// grantOf returns the grant of an entry whose term counts from a statement after sent.
func grantOf(req *backend.Request, e *roster.Entry, sent time.Time) *backend.Grant {
	return &backend.Grant{
		Request: *req, Term: termOf(sent, ceilMicros(req.TTL)), Fence: e.Fence, State: inRoster{},
	}
}

// isPlain reports whether g was granted as the owner of a row.
func isPlain(g *backend.Grant) bool { return g.Mode == backend.Exclusive && g.State == nil }

// renewRoster renews grants of one key. It returns the answers in the same order.
func (d *driver) renewRoster(ctx context.Context, gs ...*backend.Grant) []backend.Renewal {
	answers := make([]backend.Renewal, len(gs))
	err := d.edit(ctx, d.pools.control, gs[0].Key, func(r *roster.Roster, row *rosterRow) error {
		for i, g := range gs {
			answers[i] = backend.Renewal{
				Term: termOf(row.sent, ceilMicros(g.TTL)), Err: r.Renew(g.Owner, g.TTL, row.now),
			}
		}
		return nil
	})
	for i := range answers {
		if err != nil {
			answers[i].Err = err
		}
		if answers[i].Err != nil {
			answers[i].Term = backend.Term{}
		}
	}
	return answers
}

// renewRosters renews the grants at indices that stand in rosters, those of a key together, by as
// many connections as may wait for locked rows.
func (d *driver) renewRosters(ctx context.Context, all *renewals, indices []int) {
	byKey := make(map[string][]int)
	for _, i := range indices {
		key := all.grants[i].Key
		byKey[key] = append(byKey[key], i)
	}
	free := make(chan struct{}, maxRowWaiters)
	var wg sync.WaitGroup
	for _, of := range byKey {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			var gs []*backend.Grant
			for _, i := range of {
				gs = append(gs, all.grants[i])
			}
			for at, answer := range d.renewRoster(ctx, gs...) {
				all.answers[of[at]] = answer
			}
		})
	}
	wg.Wait()
}

// leave removes the entry of a grant, or of an attempt.
func (d *driver) leave(ctx context.Context, g *backend.Grant) error {
	return d.edit(ctx, d.pools.control, g.Key, func(r *roster.Roster, _ *rosterRow) error {
		return r.Remove(g.Owner)
	})
}

// awaitTurn reads the roster until owner may hold the lock, or until it must refresh its entry. It
// reads the more rarely, the more entries are in front.
func (d *driver) awaitTurn(ctx context.Context, req *backend.Request, bound time.Duration) error {
	end := time.Now().Add(min(bound, roster.Place(req.TTL)/3))
	var r roster.Roster
	token := int64(-1) // none
	for p := minRowPoll; ; p *= 2 {
		rows, err := query(ctx, d.pools.main, scanLook, d.text.rosterLook, token, []byte(req.Key))
		if err != nil || len(rows) == 0 || rows[0].owner != rosterOwner {
			return err
		}
		if row := rows[0]; row.token != token {
			token = row.token
			if r, err = row.entries(); err != nil {
				return err
			}
		} else {
			r.Expire(row.now)
		}
		distance, left := r.Distance(req.Owner), time.Until(end)
		if distance == 0 || left <= 0 {
			return nil
		}
		p = min(p, maxRowPoll*time.Duration(distance), maxTurnPoll)
		if err := pause(ctx, min(p, left)); err != nil {
			return err
		}
	}
}

// scanLook reads a row of roster-look.sql.
func scanLook(rows *sql.Rows) (row rosterRow, err error) {
	return row, rows.Scan(&row.owner, &row.token, &row.now, &row.text)
}
