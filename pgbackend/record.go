package pgbackend

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/kind"
	"github.com/dlock-go/dlock/backend/roster"
)

// row is what a statement has read of a name. A row without a roster is free, or has one writer.
// Any other holders, and all waiters, are in the roster, and the row has no owner.
type row struct {
	sent  time.Time // on the client's clock, before read sent the statement
	now   time.Time // on the server's clock, when the statement read the row
	found bool      // a name without a row is free
	// isAlone means that the server waits for no standby. Otherwise a row that can be read proves
	// nothing: an operator can have cancelled the wait of its commit.
	isAlone bool

	version        int64 // of the row, greater after each change
	fence          int64 // of the last grant
	owner          string
	meta           []byte
	since, expires time.Time // of the owner; of a free row, expires is when it became free
	roster         []byte    // nil if there is none

	before *row // the row as it was read; nil if this row is
}

// columns are what scan reads. The first one is the server's time. The last but one is true on a
// standby or a read-only server. A standby can be behind, so its rows are no reason for any answer.
const columns = plainColumns + `, l.roster` + serverColumns

// shortColumns are columns for a statement that returns many rows. A roster of more than 8 kB is
// empty in its answer, which therefore stays below maxAnswer; see row.isCut.
const shortColumns = plainColumns +
	`, CASE WHEN length(l.roster) > 8192 THEN '' ELSE l.roster END` + serverColumns

const (
	plainColumns = `clock_timestamp(),
	l.version, l.fence, l.owner, l.meta, l.since, l.expires`
	serverColumns = `,
	current_setting('transaction_read_only') = 'on',
	current_setting('synchronous_standby_names') = ''`
)

// isCut reports whether the roster of r was too long for shortColumns. No roster is empty.
func (r *row) isCut() bool { return r.roster != nil && len(r.roster) == 0 }

// scan reads the columns of a row, after those for first. On a standby it returns errReadOnly. A
// name without a row begins with the server's time as its fence and version, because a row that was
// deleted had lower ones.
func (r *row) scan(from pgx.Row, first ...any) error {
	var version, fence *int64
	var owner *string
	var since, expires *time.Time
	var readOnly bool
	err := from.Scan(append(first,
		&r.now, &version, &fence, &owner, &r.meta, &since, &expires, &r.roster,
		&readOnly, &r.isAlone)...)
	switch {
	case err != nil:
		return err
	case readOnly:
		return errReadOnly
	}
	if r.found = version != nil; !r.found {
		r.fence = max(1, r.now.UnixMicro()-backend.FenceEpoch) // a clock can be wrong by years
		r.version = r.fence
		return nil
	}
	r.version, r.fence, r.owner, r.since, r.expires = *version, *fence, *owner, *since, *expires
	return nil
}

// entries returns the holders and the waiters.
func (r *row) entries() (roster.Roster, error) {
	switch {
	case r.roster != nil:
		entries, err := roster.Parse(r.roster)
		if err != nil {
			return nil, fmt.Errorf("%w: the row has no roster: %w", backend.ErrConflict, err)
		}
		return entries, nil
	case r.owner == "":
		return nil, nil
	}
	return roster.Writer(r.owner, string(r.meta), uint64(r.fence),
		r.since.UnixMicro(), r.expires.UnixMicro()), nil
}

// with returns the row with other holders and waiters. fence belongs to the last grant. The new row
// keeps the version that was read: the statement that stores it compares the version, and adds 1.
// The statement also compares the rest of before, see isUnchanged.
func (r *row) with(entries roster.Roster, fence uint64) *row {
	next := &row{
		now: r.now, found: r.found, version: r.version, fence: int64(fence),
		meta: []byte{}, since: r.now, expires: r.now, before: r,
	}
	switch {
	case len(entries) == 0:
	case len(entries) == 1 && next.isPlain(entries[0]):
		e := entries[0]
		next.owner, next.meta = e.Owner, []byte(e.Meta)
		next.since, next.expires = time.UnixMicro(e.Since), time.UnixMicro(e.Expires)
	default:
		next.roster, next.expires = entries.Text(), time.UnixMicro(entries.End())
		if r.roster != nil && r.since.After(r.now) { // see insistSQL
			next.since = r.since
		}
	}
	return next
}

// args returns the parameters of insertSQL.
func (r *row) args(key string) []any {
	return []any{name(key), r.version, r.fence, r.owner, r.meta, r.since, r.expires, r.roster}
}

// updateArgs returns the parameters of updateSQL.
func (r *row) updateArgs(key string) []any {
	read := r.read()
	return append(r.args(key), read.fence, read.owner, read.expires, digest(read.roster))
}

// read returns the row as it was read.
func (r *row) read() *row { return cmp.Or(r.before, r) }

// digest returns sha256 of a roster, or nil if there is none. A roster can be long, so a statement
// compares its digest.
func digest(roster []byte) []byte {
	if roster == nil {
		return nil
	}
	sum := sha256.Sum256(roster)
	return sum[:]
}

// isPlain reports whether e needs no roster if it is the only entry.
func (r *row) isPlain(e roster.Entry) bool {
	return e.Granted && e.Word == kind.Writer && e.Secret == "" && int64(e.Fence) == r.fence
}

// change is a change of the entries at now, on the server's clock. A new grant gets fence. It may
// be called several times, each time with the entries of another reading, and on another goroutine
// than its caller's. It must not block. Its error is the answer to its caller only.
type change func(entries *roster.Roster, fence uint64, now int64) error

// edited returns the row after the changes of callers, which then have their answers, and the
// owners of the waiters that the changes let in. These have their grants already, because a change
// of their own would be another commit. If nothing has to be stored, next is nil; with a standby a
// change that succeeds is always stored. The changes are
// made in the order of callers, each of them in the result of the former ones. A grant that a later
// change breaks has been answered, so its fence is stored. err is about the row, and not about a
// change: then no caller has an answer.
func (r *row) edited(callers []*caller) (next *row, woken []string, err error) {
	before, err := r.entries()
	if err != nil {
		return nil, nil, err
	}
	entries, now, last := slices.Clone(before), r.now.UnixMicro(), uint64(r.fence)
	entries.Expire(now)
	changed, succeeded := false, false
	for _, m := range callers {
		m.answer = m.alter(&entries, last+1, now)
		changed, succeeded = changed || !isFinal(m.answer), succeeded || m.answer == nil
		for _, e := range entries {
			last = max(last, e.Fence)
		}
	}
	isProven := r.isAlone || !succeeded // else the standby may lack the commit that made the row
	if !changed || isProven && last == uint64(r.fence) && slices.Equal(before, entries) {
		return nil, nil, nil
	}
	for _, e := range entries {
		if !e.Granted && entries.Distance(e.Owner) == 0 && before.Distance(e.Owner) > 0 {
			woken = append(woken, e.Owner)
		}
	}
	for _, owner := range woken {
		if entries.Grant(owner, last+1, now) {
			last++
		}
	}
	return r.with(entries, last), woken, nil
}

// isFinal reports whether err is the answer to a change that is not stored. A waiter that is
// refused has a new entry.
func isFinal(err error) bool { return err != nil && !errors.Is(err, backend.ErrNotAcquired) }

// acquired returns the row with the grant of req, and its fence. A request that is refused leaves
// nothing.
func (r *row) acquired(req *backend.Request) (next *row, fence uint64, err error) {
	m := &caller{alter: func(entries *roster.Roster, number uint64, now int64) error {
		e, err := entries.Acquire(req, number, now)
		if err == nil {
			fence = e.Fence
		}
		return err
	}}
	next, _, err = r.edited([]*caller{m})
	if next == nil { // the grant has a longer term already
		next = r
	}
	return next, fence, cmp.Or(err, m.answer)
}
