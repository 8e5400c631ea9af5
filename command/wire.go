package command

import (
	"io"
	"strconv"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// lockJSON is how --json shows a lock. A free lock has an empty list of holders.
type lockJSON struct {
	Name    string       `json:"name"`
	Mode    backend.Mode `json:"mode"` // as text
	Limit   int          `json:"limit"`
	Holders []holderJSON `json:"holders"`
	Waiters int          `json:"waiters"` // -1 if unknown
}

// holderJSON is how --json shows a holder. The fence is a string, because it has more
// digits than a JSON number keeps.
type holderJSON struct {
	Owner string    `json:"owner"`
	Meta  string    `json:"meta"`
	Fence string    `json:"fence"`
	Since time.Time `json:"since"`
	TTL   int64     `json:"ttl_ms"` // -1 if unknown
}

// shownTime returns t in UTC. A year that JSON cannot show is of a damaged record, which must not
// hide the other locks: it becomes the nearest year.
func shownTime(t time.Time) time.Time {
	first, last := time.Time{}, time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC)
	switch t = t.UTC(); {
	case t.Before(first):
		return first
	case t.After(last):
		return last
	}
	return t
}

// writeLock writes a lock as JSON on one line.
func writeLock(w io.Writer, info *backend.Info) error {
	lock := lockJSON{
		Name: info.Key, Mode: info.Mode, Limit: info.Limit, Waiters: info.Waiters,
		Holders: []holderJSON{},
	}
	for _, h := range info.Holders {
		ttl := h.TTL.Milliseconds()
		if h.TTL < 0 {
			ttl = -1
		}
		lock.Holders = append(lock.Holders, holderJSON{
			Owner: h.Owner, Meta: h.Meta, Fence: strconv.FormatUint(h.Fence, 10),
			Since: shownTime(h.Since), TTL: ttl,
		})
	}
	return writeJSON(w, lock)
}
