package pgbackend

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/kind"
	"github.com/dlock-go/dlock/backend/roster"
)

// Most changes of a roster are simple: all its entries are holders of one kind, some of them leave,
// and a further holder comes. The server makes such a change in one statement, by its functions for
// JSON, also if other clients keep changing the row. An edition tries this only if there are such
// clients: otherwise to read and to store is as fast.
//
// A simple change wakes no waiter, because swapSQL changes no roster that has one.

// swap makes e in one statement, and returns false if that is not possible. Then nothing was
// changed. A lane that skips locked rows has no such statement, because swapSQL waits for the row.
// An error of swap is the outcome of all callers, and can be unknown.
func (e *edition) swap() (done bool, err error) {
	if !e.contended || e.lane.skips {
		return false, nil
	}
	for {
		e.served = e.present()
		leaving, coming, ok := swapOf(e.served)
		if !ok {
			return false, nil
		}
		fence, err := e.exec(e.d.sql.swap, swapArgs(e.key, leaving, coming)...)
		switch {
		case errors.Is(err, errGone):
			continue
		case isUnreadable(err):
			return false, nil
		case err != nil || fence == 0:
			return false, err
		}
		for _, m := range e.served {
			m.answer = nil
		}
		if coming != nil {
			coming.fence = uint64(fence)
		}
		return true, nil
	}
}

// isSwappable reports whether other clients may change the row in one statement. Only then does it
// help to insist: it has no effect on clients that read and store the roster.
func (r *row) isSwappable() bool {
	entries, err := r.entries()
	isOther := func(e roster.Entry) bool { return !e.Granted || e.Word == kind.Writer }
	return r.roster != nil && err == nil && !slices.ContainsFunc(entries, isOther)
}

const (
	// maxOvertaken is how often an edition is overtaken before it insists.
	maxOvertaken = 3
	// insistence is for how long clients then read and store the roster again.
	insistence = 100 * time.Millisecond
)

// insist makes progress with e after other clients were faster: for a moment, they cannot change
// the roster in one statement, which no other client can overtake. Otherwise a renewal, or a
// waiter, could never change a roster that other clients keep changing.
//
// insist does not change the version, so it makes no other client begin again. A client that has
// read the row before can therefore store its own since, and end the moment early; e then insists
// again after maxOvertaken more conflicts.
func (e *edition) insist() error {
	_, err := e.exec(e.d.sql.insist, name(e.key), insistence.Microseconds())
	if errors.Is(err, errGone) {
		return nil // the next statement is for the other callers
	}
	return err
}

// swapOf returns the owners that leave, and the caller that comes, or false if the changes are not
// simple. Writers are never simple: their rows may have no roster. At most one caller can come,
// because swapSQL adds one entry.
func swapOf(callers []*caller) (leaving []string, coming *caller, ok bool) {
	leaving = []string{}
	for _, m := range callers {
		switch {
		case m.leaves != "" && m.mode != backend.Exclusive && !slices.Contains(leaving, m.leaves):
			leaving = append(leaving, m.leaves)
		case m.req != nil && m.req.Mode != backend.Exclusive && coming == nil:
			coming = m
		default:
			return nil, nil, false
		}
	}
	return leaving, coming, len(callers) > 0
}

// swapArgs returns the parameters of swapSQL.
func swapArgs(key string, leaving []string, coming *caller) []any {
	if coming == nil {
		return []any{name(key), leaving, nil, "", 0, "", math.MaxInt32}
	}
	req := coming.req
	word, limit := kind.Of(req), req.Limit
	if limit == 0 {
		limit = math.MaxInt32
	}
	entry, err := json.Marshal(roster.Entry{
		Word: word, Owner: req.Owner, Meta: req.Meta, Granted: true,
	})
	if err != nil { // it consists of strings
		panic(err)
	}
	return []any{
		name(key), leaving, string(entry), req.Owner, roster.Micros(req.TTL), string(word), limit,
	}
}

// isUnreadable reports whether a statement has failed because of the text of a roster or an entry,
// which JSON of PostgreSQL cannot have, for example a zero byte in the Meta of a holder. The codes
// of class 22 are errors of data. The server has rolled the statement back, so the roster can still
// be read and stored as bytes.
func isUnreadable(err error) bool {
	answer, ok := errors.AsType[*pgconn.PgError](err)
	return ok && strings.HasPrefix(answer.Code, "22")
}
