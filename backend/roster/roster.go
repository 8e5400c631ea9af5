// Package roster has the holders and the waiters of one name as a document, for drivers whose
// server has no sets and no queues.
//
// A driver reads the document, removes what has expired, changes it by one of the methods, and
// stores it unless another client has changed it meanwhile. Package kind has the rules:
// entries stand in the order of their arrival, and an entry holds the lock as soon as no entry in
// front of it excludes it. Such an entry becomes a grant when its owner tries again, or by Grant.
//
// All times are on the clock of the store, in µs since 1970. Methods are not safe for concurrent
// use.
package roster

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/kind"
)

// MaxPlace is how long the entry of a waiter keeps its place after an attempt, if the TTL is not
// shorter. So a waiter that has died delays those behind it for no longer. A waiter repeats its
// attempt after a third of this time at the latest.
const MaxPlace = 10 * time.Second

// fenceShift is the number of bits that the core appends to a raw fence.
const fenceShift = 12

// Roster has the entries of a name in the order of their arrival.
type Roster []Entry

// Entry is one holder or waiter.
type Entry struct {
	Word    kind.Kind `json:"kind"`
	Owner   string    `json:"owner"`
	Meta    string    `json:"meta,omitempty"`
	Granted bool      `json:"granted,omitempty"` // a holder with a term
	Fence   uint64    `json:"fence,omitempty"`   // of a holder
	Since   int64     `json:"since"`             // when it came, or was granted
	Expires int64     `json:"expires"`
	Secret  string    `json:"secret,omitempty"` // of the ticket, if the grant was exported
	Bell    string    `json:"bell,omitempty"`   // of the driver with the waiter, to wake it
}

// Kind implements kind.Entry.
func (e Entry) Kind() kind.Kind { return e.Word }

// Writer returns the roster of a lock that has one writer, for stores that write such a lock in
// another form.
func Writer(owner, meta string, fence uint64, since, expires int64) Roster {
	return Roster{{
		Word: kind.Writer, Owner: owner, Meta: meta, Granted: true,
		Fence: fence, Since: since, Expires: expires,
	}}
}

// Parse is the inverse of Roster.Text.
func Parse(text []byte) (r Roster, err error) { return r, json.Unmarshal(text, &r) }

// Text returns the document. Other processes read it, also of other versions: fields are
// never renamed.
func (r Roster) Text() []byte {
	text, err := json.Marshal(r)
	if err != nil { // it consists of strings and numbers
		panic(err)
	}
	return text
}

// Find returns the entry of an owner, or nil.
func (r Roster) Find(owner string) *Entry {
	i := slices.IndexFunc(r, func(e Entry) bool { return e.Owner == owner })
	if i < 0 {
		return nil
	}
	return &r[i]
}

// End returns when the last of the entries expires, and 0 if there are none.
func (r Roster) End() (end int64) {
	for _, e := range r {
		end = max(end, e.Expires)
	}
	return end
}

// Expire removes the entries whose terms are over at now, and the waiters whose places end so late
// that the clock was set back since. It reports whether there were any. A waiter that has died
// would otherwise keep a free lock taken until its place ends.
func (r *Roster) Expire(now int64) bool {
	latest := now + Micros(2*MaxPlace) // a smaller step of the clock costs no waiter its place
	return r.remove(func(e Entry) bool {
		return e.Expires <= now || !e.Granted && e.Expires > latest
	})
}

// remove removes entries and reports whether there were any. The document may share its array with
// nothing else, so it stays in place.
func (r *Roster) remove(isGone func(Entry) bool) bool {
	n := len(*r)
	*r = slices.DeleteFunc(*r, isGone)
	return len(*r) < n
}

// Acquire makes one attempt for req at now, and returns the grant or the refusal. A new grant
// has this fence. The document may have changed in either case: a refused request that waits has an
// entry. An attempt of a holder that is repeated prolongs its term, and an attempt of a waiter its
// entry. It returns ErrConflict if the name is in use by another kind of lock. A late request of a
// writer that has become a reader is refused.
func (r *Roster) Acquire(req *backend.Request, fence uint64, now int64) (*Entry, error) {
	word := kind.Of(req)
	if err := kind.Conflict(word, *r); err != nil {
		return nil, err
	}
	at := slices.IndexFunc(*r, func(e Entry) bool { return e.Owner == req.Owner })
	front := *r
	if at >= 0 {
		if front[at].Word != word {
			return nil, refusal(req, front[at:at+1], now)
		}
		front = front[:at]
	}
	blockers := kind.Blockers(word, front)
	if len(blockers) > 0 && at < 0 && !req.Queue {
		return nil, refusal(req, blockers, now)
	}
	if at < 0 {
		at = len(*r)
		*r = append(*r, Entry{Word: word, Owner: req.Owner, Meta: req.Meta, Since: now})
	}
	e := &(*r)[at]
	if len(blockers) > 0 {
		e.keepPlace(req.TTL, now)
		return nil, refusal(req, blockers, now)
	}
	if !e.Granted {
		e.Granted, e.Fence, e.Since = true, fence, now
	}
	e.prolong(req.TTL, now)
	return e, nil
}

// Grant makes the waiter of owner a holder at now, without an attempt of its own, if it holds the
// lock. It reports whether it did so. The grant has this fence. Its term is the rest of the place,
// so a waiter that has died delays those behind it until the end of its place.
func (r Roster) Grant(owner string, fence uint64, now int64) bool {
	e := r.Find(owner)
	if e == nil || e.Granted || r.Distance(owner) > 0 {
		return false
	}
	e.Granted, e.Fence, e.Since = true, fence, now
	return true
}

// Reached returns the bells of the waiters that hold the lock, and did not hold it in before.
func (r Roster) Reached(before Roster) (bells []string) {
	held := kind.Holders(before)
	for _, e := range kind.Holders(r) {
		isOwner := func(h Entry) bool { return h.Owner == e.Owner }
		if !e.Granted && e.Bell != "" && !slices.ContainsFunc(held, isOwner) &&
			!slices.Contains(bells, e.Bell) {
			bells = append(bells, e.Bell)
		}
	}
	return bells
}

// Place returns for how long the entry of a waiter keeps its place after an attempt.
func Place(ttl time.Duration) time.Duration { return min(ttl, MaxPlace) }

// keepPlace prolongs the entry of a waiter, unless most of its time is left: otherwise each attempt
// of each waiter would change the document, and so disturb all other waiters.
func (e *Entry) keepPlace(ttl time.Duration, now int64) {
	place := Micros(Place(ttl))
	if e.Expires-now < place*3/4 {
		e.Expires = now + place
	}
}

// Distance returns how many entries must leave before the entry of owner holds the lock. It is 0 if
// owner has no entry: then an attempt shows what has become of it.
func (r Roster) Distance(owner string) int {
	at := slices.IndexFunc(r, func(e Entry) bool { return e.Owner == owner })
	if at < 0 {
		return 0
	}
	word := r[at].Word
	return max(0, len(kind.Blockers(word, r[:at]))-max(0, word.Limit()-1))
}

// refusal returns the answer to a request that waits for the ends of blockers. A request with an
// entry is repeated in time to keep its place, also by a core that polls.
func refusal(req *backend.Request, blockers []Entry, now int64) *backend.Busy {
	holder, end := blockers[0], blockers[0].Expires
	for _, e := range blockers[1:] {
		if (e.Expires < end) == (req.Mode == backend.Permit) {
			end = e.Expires
		}
	}
	left := time.Duration(end-now) * time.Microsecond
	if req.Queue {
		left = min(left, Place(req.TTL)/3)
	}
	return &backend.Busy{
		Holder: cmp.Or(holder.Meta, holder.Owner), RetryAfter: left, Queued: req.Queue,
		Fence: holder.Fence,
	}
}

// prolong makes the term at least ttl, rounded up, after now. It never shortens it: of two requests
// of one owner the earlier may be executed later.
func (e *Entry) prolong(ttl time.Duration, now int64) {
	e.Expires = max(e.Expires, now+Micros(ttl))
}

// Micros returns d in µs, rounded up. The longest durations are rounded down, because the sum would
// wrap.
func Micros(d time.Duration) int64 {
	d = min(d, math.MaxInt64-time.Microsecond)
	return int64((d + time.Microsecond - 1) / time.Microsecond)
}

// Renew prolongs the grant of owner. It returns ErrLost if owner has none.
func (r Roster) Renew(owner string, ttl time.Duration, now int64) error {
	e := r.holder(owner)
	if e == nil {
		return backend.ErrLost
	}
	e.prolong(ttl, now)
	return nil
}

// holder returns the grant of owner, or nil.
func (r Roster) holder(owner string) *Entry {
	if e := r.Find(owner); e != nil && e.Granted {
		return e
	}
	return nil
}

// Remove removes the grant or the entry of owner. It returns ErrNotHeld if there was none.
func (r *Roster) Remove(owner string) error {
	if !r.remove(func(e Entry) bool { return e.Owner == owner }) {
		return backend.ErrNotHeld
	}
	return nil
}

// Break removes the grant of owner, or all grants if owner is empty. Waiters keep their places. It
// returns ErrNotHeld if there was none.
func (r *Roster) Break(owner string) error {
	if !r.remove(func(e Entry) bool { return e.Granted && (owner == "" || e.Owner == owner) }) {
		return backend.ErrNotHeld
	}
	return nil
}

// Downgrade makes the writer a reader with the same fence and a new term. A repetition finds a
// reader, and only prolongs its term. It returns ErrLost if owner has neither.
func (r Roster) Downgrade(owner string, ttl time.Duration, now int64) error {
	e := r.holder(owner)
	if e == nil || e.Word.Limit() > 0 {
		return backend.ErrLost
	}
	e.Word = kind.Reader
	e.prolong(ttl, now)
	return nil
}

// Export prolongs the grant of owner and gives it a secret, which its ticket shows. It returns
// ErrLost if owner has none.
func (r Roster) Export(owner, secret string, ttl time.Duration, now int64) error {
	e := r.holder(owner)
	if e == nil {
		return backend.ErrLost
	}
	e.Secret = secret
	e.prolong(ttl, now)
	return nil
}

// Adopt makes req.Owner the holder instead of former, with the same fence, and returns the grant.
// A repetition prolongs the term. It returns ErrLost if former has no grant with this secret, and
// ErrConflict if req is for another kind of lock.
func (r Roster) Adopt(former, secret string, req *backend.Request, now int64) (*Entry, error) {
	if err := kind.Conflict(kind.Of(req), r); err != nil {
		return nil, err
	}
	e := r.holder(req.Owner)
	if e == nil {
		e = r.holder(former)
		if e == nil || e.Secret == "" || e.Secret != secret || e.Word != kind.Of(req) {
			return nil, backend.ErrLost
		}
	}
	e.Owner, e.Meta, e.Secret = req.Owner, req.Meta, ""
	e.prolong(req.TTL, now)
	return e, nil
}

// Info describes the lock at now. Without holders it is free, and has the mode of a mutex.
func (r Roster) Info(key string, now int64) *backend.Info {
	info := &backend.Info{Key: key, Mode: backend.Exclusive}
	for _, e := range r {
		switch {
		case e.Expires <= now:
		case !e.Granted:
			info.Waiters++
		default:
			info.Mode, info.Limit = e.Word.Mode(), e.Word.Limit()
			info.Holders = append(info.Holders, backend.Holder{
				Owner: e.Owner, Meta: e.Meta, Fence: e.Fence << fenceShift,
				Since: time.UnixMicro(e.Since),
				TTL:   time.Duration(e.Expires-now) * time.Microsecond,
			})
		}
	}
	return info
}
