package mysqlbackend

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/kind"
	"github.com/dlock-go/dlock/backend/roster"
)

// Most changes of a roster are simple: all its entries are holders of one kind, some of them leave,
// and a further holder comes. The server makes such a change in one statement, by its functions for
// JSON, also if other clients keep changing the row. All other changes are editions; see roster.go.

// maxLeaving limits the holders that leave in one statement.
const maxLeaving = 8

// swap is a simple change: owners leave, and one request may be granted in their place.
type swap struct {
	leaving []string
	coming  *change // has a request; nil: there is none
}

// swapOf returns the simple change that cs make together, or false if there is none.
func swapOf(cs []*change) (s swap, ok bool) {
	for _, c := range cs {
		switch {
		case c.leaves != "" && isPlainWord(c.leaves) && len(s.leaving) < maxLeaving &&
			!slices.Contains(s.leaving, c.leaves): // the path of a second entry would be NULL
			s.leaving = append(s.leaving, c.leaves)
		case c.req != nil && c.req.Mode != backend.Exclusive && isPlainWord(c.req.Owner) &&
			s.coming == nil:
			s.coming = c
		default:
			return s, false
		}
	}
	return s, len(cs) > 0
}

// isPlainWord reports whether s contains no wildcards of JSON_SEARCH.
func isPlainWord(s string) bool { return !strings.ContainsAny(s, `%_\`) }

// trySwap makes cs in one statement, and returns false if that is not possible. Then nothing was
// changed. A roster with waiters is not simple, and a watcher means that it probably has some: then
// the statement would be in vain.
func (d *driver) trySwap(ctx context.Context, e *edition) (done bool, err error) {
	cs, ctx, end := d.changes.attempt(ctx, e.changes)
	defer end()
	s, ok := swapOf(cs)
	if !ok || d.turns.isWatched(e.key) {
		return false, nil
	}
	sent := time.Now()
	var out outcome
	if s.coming != nil {
		out, err = exec(ctx, e.q, d.text.take(len(s.leaving)), d.takeArgs(e.key, &s)...)
	} else {
		out, err = exec(ctx, e.q, d.text.drop(len(s.leaving)), d.dropArgs(e.key, &s)...)
	}
	switch {
	case isUnreadable(err):
		return false, nil
	case err != nil || out.changed == 0:
		return false, err
	}
	for _, c := range cs {
		c.answer = nil
	}
	if s.coming == nil {
		d.wakeLater(out)
	} else {
		s.coming.grant = grantOf(s.coming.req, &roster.Entry{Fence: uint64(out.id)}, sent)
	}
	return true, nil
}

// takeArgs returns the parameters of roster-take.sql.
func (d *driver) takeArgs(key string, s *swap) (args []any) {
	req := s.coming.req
	word, limit := kind.Of(req), req.Limit
	if limit == 0 || limit > maxEntries {
		limit = maxEntries
	}
	entry := entryText(roster.Entry{Word: word, Owner: req.Owner, Meta: req.Meta, Granted: true})
	ttl := ceilMicros(req.TTL)
	args = append(s.owners(), entry, ttl, ttl, []byte(key), string(word), len(s.leaving), limit,
		d.maxRoster/2, req.Owner)
	return append(args, s.owners()...)
}

// insist makes progress with e after another client was faster: one of cs changes the row in one
// statement, which no other client can overtake. Without it, a client on a slow network could never
// write a roster that other clients keep changing. was is the roster that the overtaken write
// expected.
func (d *driver) insist(ctx context.Context, e *edition, was roster.Roster, cs []*change) error {
	for _, c := range cs {
		send := d.nextChange(was, c)
		if send == nil {
			continue
		}
		if err := send(ctx, e, c); !isUnreadable(err) {
			return err
		}
		return nil // the next round of e may be in time
	}
	return nil
}

// nextChange returns the statement that insist makes for c, or nil if there is none.
func (d *driver) nextChange(
	was roster.Roster, c *change,
) func(context.Context, *edition, *change) error {
	switch {
	case was.Find(c.leaves) != nil && isPlainWord(c.leaves):
		return d.dropNow
	case !c.mayQueue():
	case was.Find(c.req.Owner) == nil:
		return d.waitNow
	case was.Find(c.req.Owner).Granted:
	case was.Distance(c.req.Owner) == 0:
		return d.grantNow
	default:
		return d.keepNow
	}
	return nil
}

// waitNow makes an entry for the request of c behind all others. The next round of e answers it.
func (d *driver) waitNow(ctx context.Context, e *edition, c *change) error {
	out, err := exec(ctx, e.q, d.text.rosterWait, d.waitArgs(c.req)...)
	if out.changed > 0 {
		c.isQueued, c.token = true, out.id
	}
	return err
}

// keepNow prolongs the place of a waiter. The next round of e answers its request.
func (d *driver) keepNow(ctx context.Context, e *edition, c *change) error {
	_, err := exec(ctx, e.q, d.text.rosterKeep,
		renewArgs(c.req.Key, c.req.Owner, 0, roster.Micros(roster.Place(c.req.TTL)))...)
	return err
}

// grantNow makes c, whose request has reached the front of the roster, unless another entry
// excludes it.
func (d *driver) grantNow(ctx context.Context, e *edition, c *change) error {
	sent := time.Now()
	out, err := exec(ctx, e.q, d.text.rosterGrant, grantArgs(c.req)...)
	if err != nil || out.changed == 0 {
		return err
	}
	c.grant = grantOf(c.req, &roster.Entry{Fence: uint64(out.id)}, sent)
	e.remove(c)
	return nil
}

// grantArgs returns the parameters of roster-grant.sql.
func grantArgs(req *backend.Request) []any {
	front := 0 // entries in front that do not exclude it
	switch req.Mode {
	case backend.Permit:
		front = req.Limit - 1
	case backend.Shared:
		front = maxEntries
	}
	ttl, owner := ceilMicros(req.TTL), req.Owner
	return []any{
		ttl, owner, owner, owner, owner, owner, ttl, []byte(req.Key),
		owner, front, owner, owner, owner,
	}
}

// remove takes c, which is made, out of e.
func (e *edition) remove(c *change) {
	c.isMade, c.answer = true, nil
	e.changes = slices.DeleteFunc(slices.Clone(e.changes), func(o *change) bool { return o == c })
}

// dropNow makes c, which removes one entry, whatever the other entries are.
func (d *driver) dropNow(ctx context.Context, e *edition, c *change) error {
	args := d.dropArgs(e.key, &swap{leaving: []string{c.leaves}})
	out, err := exec(ctx, e.q, d.text.dropAny, args...)
	if err != nil || out.changed == 0 {
		return err
	}
	e.remove(c)
	d.wakeLater(out)
	d.background.Go(func() { d.passOnNow(e.key) })
	return nil
}

// mayQueue reports whether the owner of c may have an entry in the roster before it has the lock.
func (c *change) mayQueue() bool {
	return c.req != nil && c.req.Queue && isPlainWord(c.req.Owner) &&
		(c.answer == nil || errors.Is(c.answer, backend.ErrNotAcquired))
}

// waitArgs returns the parameters of roster-wait.sql.
func (d *driver) waitArgs(req *backend.Request) []any {
	word := kind.Of(req)
	first, second := word, word
	if req.Mode != backend.Permit {
		first, second = kind.Writer, kind.Reader
	}
	entry := entryText(roster.Entry{Word: word, Owner: req.Owner, Meta: req.Meta, Bell: d.bell})
	place := roster.Micros(roster.Place(req.TTL))
	return []any{
		entry, place, place, []byte(req.Key), string(first), string(second), maxEntries,
		d.maxRoster / 2, req.Owner,
	}
}

// entryText returns the document of one entry.
func entryText(e roster.Entry) []byte {
	text, err := json.Marshal(e)
	if err != nil { // it consists of strings and numbers
		panic(err)
	}
	return text
}

// dropArgs returns the parameters of roster-drop.sql.
func (d *driver) dropArgs(key string, s *swap) []any {
	args := append(s.owners(), d.keys.signal(key), reserve.Microseconds(), []byte(key))
	return append(args, s.owners()...)
}

// owners returns the owners that leave, as parameters.
func (s *swap) owners() (args []any) {
	for _, owner := range s.leaving {
		args = append(args, owner)
	}
	return args
}

const (
	// rosterDoc is the roster as text.
	rosterDoc = "CONVERT(roster USING utf8mb4)"
	// ownerPath is the path of the entry of an owner.
	ownerPath = "JSON_SEARCH(" + rosterDoc + ", 'one', ?, NULL, '$[*].owner')"
	// removeOwner removes the entry of an owner, and ownerIsPresent reports whether there is one.
	removeOwner = "roster = JSON_REMOVE(" + rosterDoc +
		", REPLACE(JSON_UNQUOTE(" + ownerPath + "), '.owner', '')),"
	ownerIsPresent = " AND " + ownerPath + " IS NOT NULL"
)

const (
	// isHolder and isWaiter are conditions for the member "granted" of an entry.
	isHolder = "= TRUE"
	isWaiter = "IS NULL"
)

// withEntry completes roster-renew.sql or roster-grant.sql.
func withEntry(text, isWanted string) string {
	field := func(name string) string {
		return "JSON_UNQUOTE(REPLACE(" + ownerPath + ", '.owner', '." + name + "'))"
	}
	index := "CAST(REPLACE(REPLACE(JSON_UNQUOTE(" + ownerPath +
		"), '$[', ''), '].owner', '') AS UNSIGNED)"
	return strings.NewReplacer(
		"{doc}", rosterDoc, "{expires}", field("expires"), "{granted}", field("granted"),
		"{fence}", field("fence"), "{since}", field("since"), "{index}", index,
		"{isWanted}", isWanted,
	).Replace(text)
}

// renewArgs returns the parameters of roster-renew.sql.
func renewArgs(key, owner string, fence, micros int64) []any {
	return []any{micros, owner, owner, micros, []byte(key), owner, fence, owner, fence, owner}
}

// renewEntry renews g, which stands in a roster, on q. It returns false if that is not possible in
// one statement: then the roster shows whether the grant is gone.
func (d *driver) renewEntry(
	ctx context.Context, q querier, g *backend.Grant,
) (a backend.Renewal, done bool) {
	if !isPlainWord(g.Owner) {
		return a, false
	}
	ttl, sent := ceilMicros(g.TTL), time.Now()
	out, err := exec(ctx, q, d.text.rosterRenew, renewArgs(g.Key, g.Owner, int64(g.Fence), ttl)...)
	if isUnreadable(err) {
		return a, false
	}
	if err != nil {
		return backend.Renewal{Err: err}, true
	}
	return backend.Renewal{Term: termOf(sent, ttl)}, out.changed > 0
}

// withWaiters completes roster-drop.sql for a roster that may have waiters, or has none.
func withWaiters(text string, mayHaveWaiters bool) string {
	word := strings.ToUpper(strconv.FormatBool(mayHaveWaiters))
	return strings.ReplaceAll(text, "{mayHaveWaiters}", word)
}

// withLeaving completes roster-take.sql or roster-drop.sql for n holders that leave.
func withLeaving(text string, n int) string {
	isFree := "TRUE"
	if n > 0 {
		isFree = "FALSE"
	}
	return strings.NewReplacer(
		"{doc}", rosterDoc, "{removed}", strings.Repeat(removeOwner, n),
		"{present}", strings.Repeat(ownerIsPresent, n), "{isFree}", isFree,
	).Replace(text)
}
