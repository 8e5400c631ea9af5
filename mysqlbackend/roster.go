package mysqlbackend

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
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
	// maxRoster limits the bytes of a roster, so that an answer has room for it; see maxAnswer.
	maxRoster = 4 << 20
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

// edition is a change of the roster of a key, and how the server makes it.
type edition struct {
	key    string
	q      querier
	change editor
	// skipsLocked makes edit return errRowLocked instead of waiting for the row. The server does
	// not distinguish a locked row from a missing one.
	skipsLocked bool
	// removes means that the change only removes entries. A read-only server executes it for a user
	// with SUPER, like release.sql.
	removes bool
}

// errRowLocked means that a row is locked, or does not exist.
var errRowLocked = fmt.Errorf("%w: the row is locked", backend.ErrUnavailable)

// edit makes e, and returns the error of its change. It stores the roster also after an error,
// because a refused request may have left an entry. Any other error means what it means for a
// statement.
func (d *driver) edit(ctx context.Context, e *edition) error {
	for longest := time.Millisecond; ; longest = min(2*longest, maxEditPause) {
		row, err := d.readRoster(ctx, e)
		if err != nil {
			return err
		}
		r, err := row.entries()
		if err != nil {
			return err
		}
		before := r.Text()
		answer := e.change(&r, row)
		text := r.Text()
		if bytes.Equal(text, before) {
			return answer
		}
		isFull := len(r) > maxEntries || len(text) > maxRoster
		if isFull && len(text) > len(before) {
			return fmt.Errorf("%w: there is no room for another holder or waiter of the name",
				backend.ErrUnavailable)
		}
		stored, err := d.writeRoster(ctx, e, row, r, text)
		switch {
		case err != nil:
			return err
		case stored:
			return answer
		}
		if err := pause(ctx, rand.N(longest)); err != nil {
			return err
		}
	}
}

// readRoster returns the row of a key.
func (d *driver) readRoster(ctx context.Context, e *edition) (*rosterRow, error) {
	row, text := &rosterRow{sent: time.Now()}, d.text.rosterRead
	if e.skipsLocked {
		text = d.text.rosterReadFree
	}
	rows, err := query(ctx, e.q, func(rows *sql.Rows) (_ any, err error) {
		return nil, rows.Scan(&row.owner, &row.token, &row.since, &row.expires, &row.now,
			&row.readOnly, &row.meta, &row.text)
	}, text, []byte(e.key))
	switch {
	case err != nil:
		return nil, err
	case row.readOnly && !e.removes:
		return nil, errReadOnly
	case len(rows) == 0 && e.skipsLocked:
		return nil, errRowLocked
	}
	row.missing = len(rows) == 0
	return row, nil
}

// writeRoster stores r, whose text is given, unless another client has changed the row since it was
// read as row. It makes a missing row, but does not write into it: that needs the server's time.
func (d *driver) writeRoster(
	ctx context.Context, e *edition, row *rosterRow, r roster.Roster, text []byte,
) (stored bool, err error) {
	was := []any{[]byte(e.key), []byte(row.owner), row.token, row.expires}
	switch {
	case row.missing:
		_, err := exec(ctx, e.q, d.text.rosterRow, []byte(e.key))
		return false, err
	case len(r) == 0:
		args := append([]any{d.keys.signal(e.key), reserve.Microseconds()}, was...)
		out, err := exec(ctx, e.q, d.text.rosterClear, args...)
		d.wakeLater(out)
		return out.changed > 0, err
	}
	args := append([]any{row.nextToken(), row.now, r.End(), text}, was...)
	out, err := exec(ctx, e.q, d.text.rosterWrite, append(args, e.removes)...)
	return out.changed > 0, err
}

// enter makes one attempt to become a holder in the roster of a key. An owner that was the first
// waiter for the row gives its signal away afterwards: the next waiter then enters the roster, too,
// behind it.
func (d *driver) enter(ctx context.Context, req *backend.Request) (g *backend.Grant, err error) {
	change := func(r *roster.Roster, row *rosterRow) error {
		e, err := r.Acquire(req, uint64(row.nextToken()), row.now)
		if err == nil {
			g = grantOf(req, e, row.sent)
		}
		return err
	}
	err = d.edit(ctx, &edition{key: req.Key, q: d.pools.main, change: change})
	b, isBusy := errors.AsType[*backend.Busy](err)
	if err != nil && !isBusy {
		return nil, err
	}
	if w := d.acquisitions.take(req.Owner); w != nil {
		d.giveBackLater(w)
	}
	if isBusy {
		if req.Queue {
			b.State = inRoster{}
			d.acquisitions.admit(req.Owner)
		}
		return nil, err
	}
	d.passSignalLater(req.Owner)
	d.sweepSometimes()
	return g, nil
}

// grantOf returns the grant of an entry whose term counts from a statement after sent.
func grantOf(req *backend.Request, e *roster.Entry, sent time.Time) *backend.Grant {
	return &backend.Grant{
		Request: *req, Term: termOf(sent, ceilMicros(req.TTL)), Fence: e.Fence, State: inRoster{},
	}
}

// isPlain reports whether g was granted as the owner of a row.
func isPlain(g *backend.Grant) bool { return g.Mode == backend.Exclusive && g.State == nil }

// renewEntries renews the grants at indices, which stand in the roster of one key, on q. It returns
// an error that concerns all of them.
func (d *driver) renewEntries(
	ctx context.Context, q querier, skipsLocked bool, all *renewals, indices []int,
) error {
	change := func(r *roster.Roster, row *rosterRow) error {
		for _, i := range indices {
			g := all.grants[i]
			answer := backend.Renewal{Err: r.Renew(g.Owner, g.TTL, row.now)}
			if answer.Err == nil {
				answer.Term = termOf(row.sent, ceilMicros(g.TTL))
			}
			all.answers[i] = answer
		}
		return nil
	}
	key := all.grants[indices[0]].Key
	err := d.edit(ctx, &edition{key: key, q: q, change: change, skipsLocked: skipsLocked})
	if hasNumber(err, errNoColumn) { // a table of an earlier build has no rosters
		err = backend.ErrLost
	}
	if err != nil {
		for _, i := range indices {
			all.answers[i] = backend.Renewal{Err: err}
		}
	}
	return err
}

// leave removes entries of a key by remove, which returns ErrNotHeld if there are none.
func (d *driver) leave(ctx context.Context, key string, remove func(*roster.Roster) error) error {
	change := func(r *roster.Roster, _ *rosterRow) error { return remove(r) }
	err := d.edit(ctx, &edition{key: key, q: d.pools.control, change: change, removes: true})
	if hasNumber(err, errNoColumn) { // a table of an earlier build has no rosters
		err = backend.ErrNotHeld
	}
	return err
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
