package mysqlbackend

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/roster"
)

// Readers and permits have no room in a row with one owner. So the row of a name that has any
// contains a roster of all its holders and waiters, writers included, and the owner '*'. A writer
// without readers stays a plain row, which costs one statement: a reader that waits for it, or a
// writer with Fair, turns the row into a roster, and the release of the last entry turns it back.

const (
	// maxEntries limits the holders and waiters of a name. Each change writes the whole roster.
	maxEntries = 5000
	// maxRoster limits the bytes of a roster, so that an answer has room for it; see maxAnswer. A
	// statement with a roster has at most twice as many, and needs room in a packet of the server:
	// driver.maxRoster is a quarter of a packet at most.
	maxRoster = 4 << 20
	// maxEditPause is the longest pause before an edition is repeated because another client was
	// faster. The first repetition has no pause, and the pauses then grow from minEditPause.
	minEditPause, maxEditPause = time.Millisecond, 8 * time.Millisecond
)

// inRoster is the State of a grant or a waiter that stands in a roster. A grant without it may do
// so as well, if a reader has come since.
type inRoster struct {
	token int64 // of the row that contains the waiter
}

// rosterRow is a row as roster-read.sql returns it. Times are in µs since 1970.
type rosterRow struct {
	sent                       time.Time // before the statement that has read it
	owner, meta                string
	token, since, expires, now int64
	drawn                      int64 // the last number that draw has returned
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

// isKept reports whether the lock is free, but kept for the first waiter; see acquire.sql.
func (row *rosterRow) isKept() bool {
	return row.owner == "" && row.now < row.expires &&
		row.expires <= row.now+time.Minute.Microseconds()
}

// isPlain reports whether the lock has a writer as the owner of its row.
func (row *rosterRow) isPlain() bool { return row.owner != "" && row.owner != rosterOwner }

// draw returns a new fence: it is higher than all earlier ones, and never below the clock. Each
// call returns another number, so no two changes of one edition share a fence.
func (row *rosterRow) draw() int64 {
	row.drawn = max(row.drawn+1, row.token+1, row.now-backend.FenceEpoch)
	return row.drawn
}

// edition is a set of changes of the roster of a key, which the server makes at once.
type edition struct {
	key     string
	q       querier
	changes []*change
	// skipsLocked makes edit return errRowLocked instead of waiting for the row, or if another
	// client was faster. The server does not distinguish a locked row from a missing one.
	skipsLocked bool
}

// errRowLocked means that a row is locked, or does not exist.
var errRowLocked = fmt.Errorf("%w: the row is locked", backend.ErrUnavailable)

// edit makes e. Each of its changes then has its answer. An error concerns all of them, and means
// what it means for a statement. It is repeated as long as other clients are faster, and ends with
// ctx at the latest.
func (d *driver) edit(ctx context.Context, e *edition) error {
	for longest := time.Duration(0); ; longest = min(2*longest+minEditPause, maxEditPause) {
		row, err := d.readRoster(ctx, e)
		if err != nil {
			return err
		}
		done, err := d.editRow(ctx, e, row)
		switch {
		case done || err != nil || len(e.changes) == 0:
			return err
		case e.skipsLocked:
			return errRowLocked
		}
		if err := pause(ctx, rand.N(longest+1)); err != nil {
			return err
		}
	}
}

// editRow makes e in row, and returns false if another client was faster. The write compares owner,
// token and term of the row with what was read, so it never overwrites another client's change.
func (d *driver) editRow(ctx context.Context, e *edition, row *rosterRow) (done bool, err error) {
	r, err := row.entries()
	if err != nil {
		return false, err
	}
	live, ctx, end := d.changes.attempt(ctx, e.changes)
	defer end()
	before := newVersion(r, row.token)
	onlyRemoves := applyAll(&r, row, live)
	after := newVersion(r, row.draw())
	if bytes.Equal(after.text, before.text) {
		setToken(live, before.token)
		return true, nil
	}
	isFull := len(r) > maxEntries || len(after.text) > d.maxRoster
	if isFull && len(after.text) > len(before.text) {
		return true, d.editAlone(ctx, e, live)
	}
	stored, err := d.writeRoster(ctx, e, row, after, onlyRemoves)
	if stored {
		setToken(live, after.token)
		d.passOn(e.key, before, after)
		if row.isPlain() {
			d.wakeFirstLater(e.key) // so that writers enter the roster before further readers
		}
	}
	if err != nil || stored || e.skipsLocked {
		return stored, err
	}
	return false, d.insist(ctx, e, before.roster, live)
}

// applyAll applies cs to r. It reports whether a read-only server may store the result.
func applyAll(r *roster.Roster, row *rosterRow, cs []*change) (onlyRemoves bool) {
	onlyRemoves = true
	slices.SortStableFunc(cs, func(a, b *change) int { // a waiter may take what a holder frees
		return cmp.Compare(rank(a), rank(b))
	})
	for _, c := range cs {
		if row.readOnly && !c.removes {
			c.answer = errReadOnly
			continue
		}
		onlyRemoves = onlyRemoves && c.removes
		c.answer = c.apply(r, row)
	}
	return onlyRemoves
}

// rank returns the order of changes in an edition.
func rank(c *change) int {
	if c.removes {
		return 0
	}
	return 1
}

// editAlone makes each of cs alone, because the row has no room for all of them.
func (d *driver) editAlone(ctx context.Context, e *edition, cs []*change) error {
	if len(cs) == 1 {
		return fmt.Errorf("%w: there is no room for another holder or waiter of the name",
			backend.ErrUnavailable)
	}
	for _, c := range cs {
		err := d.edit(ctx, &edition{key: e.key, q: e.q, changes: []*change{c}})
		if err != nil {
			c.answer = err
		}
	}
	return nil
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
	case len(rows) == 0 && e.skipsLocked:
		return nil, errRowLocked
	}
	row.missing = len(rows) == 0
	return row, nil
}

// writeRoster stores v unless another client has changed the row since it was read as row. It makes
// a missing row, but does not write into it: that needs the server's time. The caller then reads
// the row again.
func (d *driver) writeRoster(
	ctx context.Context, e *edition, row *rosterRow, v *version, onlyRemoves bool,
) (stored bool, err error) {
	was := []any{[]byte(e.key), []byte(row.owner), row.token, row.expires}
	switch {
	case row.missing:
		_, err := exec(ctx, e.q, d.text.rosterRow, []byte(e.key))
		return false, err
	case len(v.roster) == 0:
		args := append([]any{d.keys.signal(e.key), reserve.Microseconds()}, was...)
		out, err := exec(ctx, e.q, d.text.rosterClear, args...)
		d.wakeLater(out)
		return out.changed > 0, err
	}
	args := append([]any{v.token, row.now, v.roster.End(), v.text}, was...)
	out, err := exec(ctx, e.q, d.text.rosterWrite, append(args, onlyRemoves)...)
	return out.changed > 0, err
}

// enter makes one attempt to become a holder in the roster of a key. An owner that was the first
// waiter for the row gives its signal away afterwards: the next waiter then enters the roster, too,
// behind it. A Busy about an entry has the token of the row with the entry: a watcher that has read
// an older row reads it again before it wakes the waiter.
//
// A lock that is kept for the first waiter refuses all other owners, without an entry. They wait in
// the queue of the signal, whatever kind of lock they request.
func (d *driver) enter(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
	c := &change{q: d.pools.main.of(req.Key), req: req}
	c.apply = func(r *roster.Roster, row *rosterRow) error {
		c.hasEntry = false
		if len(*r) == 0 && row.isKept() && !d.acquisitions.isFirst(req.Owner) {
			return d.busy(req, 0)
		}
		e, err := r.Acquire(req, uint64(row.draw()), row.now)
		if err == nil {
			c.grant = grantOf(req, e, row.sent)
		} else if e := r.Find(req.Owner); e != nil {
			e.Bell, c.hasEntry = d.bell, true
		}
		return err
	}
	err := d.change(ctx, req.Key, c)
	b, isBusy := errors.AsType[*backend.Busy](err)
	if err != nil && !isBusy {
		return nil, err
	}
	if w := d.acquisitions.take(req.Owner); w != nil {
		d.giveBackLater(w)
	}
	if isBusy {
		if req.Queue && (c.hasEntry || c.isQueued) {
			b.State = inRoster{c.token}
			d.acquisitions.admit(req.Owner)
		}
		return nil, err
	}
	d.passSignalLater(req.Owner)
	d.sweepSometimes()
	return c.grant, nil
}

// grantOf returns the grant of an entry whose term counts from a statement after sent.
func grantOf(req *backend.Request, e *roster.Entry, sent time.Time) *backend.Grant {
	return &backend.Grant{
		Request: *req, Term: termOf(sent, ceilMicros(req.TTL)), Fence: e.Fence, State: inRoster{},
	}
}

// isPlain reports whether g was granted as the owner of a row. Its row may have become a roster
// since.
func isPlain(g *backend.Grant) bool { return g.Mode == backend.Exclusive && g.State == nil }

// isOther reports whether e is another grant of the owner of g, which a late statement made after a
// break. A grant that was rebuilt may have no fence.
func isOther(e *roster.Entry, g *backend.Grant) bool {
	return e != nil && e.Granted && g.Fence > 0 && e.Fence != g.Fence
}

// renewEntries renews the grants at indices, which stand in the roster of one key, on q. It returns
// an error that concerns all of them.
func (d *driver) renewEntries(
	ctx context.Context, q querier, skipsLocked bool, all *renewals, indices []int,
) error {
	if !skipsLocked {
		var err error
		if indices, err = d.renewEach(ctx, q, all, indices); len(indices) == 0 {
			return err
		}
	}
	apply := func(r *roster.Roster, row *rosterRow) error {
		for _, i := range indices {
			g := all.grants[i]
			answer := backend.Renewal{Err: backend.ErrLost}
			if !isOther(r.Find(g.Owner), g) {
				answer.Err = r.Renew(g.Owner, g.TTL, row.now)
			}
			if answer.Err == nil {
				answer.Term = termOf(row.sent, ceilMicros(g.TTL))
			}
			all.answers[i] = answer
		}
		return nil
	}
	key := all.grants[indices[0]].Key
	c := &change{apply: apply}
	err := d.edit(ctx, &edition{
		key: key, q: q, changes: []*change{c}, skipsLocked: skipsLocked,
	})
	err = cmp.Or(err, c.answer)
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

// renewEach renews grants in a roster by a statement for each, and returns the indices of those for
// which this is not possible, and the last error.
func (d *driver) renewEach(
	ctx context.Context, q querier, all *renewals, indices []int,
) (others []int, err error) {
	for _, i := range indices {
		a, done := d.renewEntry(ctx, q, all.grants[i])
		all.answers[i], err = a, cmp.Or(a.Err, err)
		if !done {
			others = append(others, i)
		}
	}
	return others, err
}

// leave removes entries of a key by remove, which returns ErrNotHeld if there are none.
// owner is the owner of the only one of them, if it is known.
func (d *driver) leave(
	ctx context.Context, key, owner string, remove func(*roster.Roster) error,
) error {
	err := d.change(ctx, key, &change{
		q: d.pools.control.of(key), removes: true, leaves: owner,
		apply: func(r *roster.Roster, _ *rosterRow) error { return remove(r) },
	})
	if hasNumber(err, errNoColumn) { // a table of an earlier build has no rosters
		err = backend.ErrNotHeld
	}
	return err
}

// scanLook reads a row of roster-look.sql. It returns errReadOnly for a read-only server.
func scanLook(rows *sql.Rows) (row rosterRow, err error) {
	err = rows.Scan(&row.owner, &row.token, &row.now, &row.readOnly, &row.text)
	if err == nil && row.readOnly {
		err = errReadOnly
	}
	return row, err
}
