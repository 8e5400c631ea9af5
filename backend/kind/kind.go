// Package kind has the kinds of locks as drivers write them on their servers, and the rules by
// which the entries of one queue hold a lock or wait for it.
package kind

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dlock-go/dlock/backend"
)

// Kind is a mode with its limit, as a word for keys, names of nodes and records: Writer, Reader, or
// "p8" for one of the permits of a semaphore of 8.
type Kind string

// The kinds of locks for writers and readers.
const (
	Writer Kind = "w" // excludes every other
	Reader Kind = "r"

	permit = "p" // before the limit
)

// Of returns the kind of a request.
func Of(req *backend.Request) Kind {
	switch req.Mode {
	case backend.Shared:
		return Reader
	case backend.Permit:
		return Kind(permit + strconv.Itoa(req.Limit))
	}
	return Writer
}

// Valid reports whether k is the kind of a request.
func (k Kind) Valid() bool { return k == Writer || k == Reader || k.Limit() > 0 }

// Limit returns the limit of a semaphore, and 0 for any other kind.
func (k Kind) Limit() int {
	digits, isPermit := strings.CutPrefix(string(k), permit)
	if !isPermit {
		return 0
	}
	limit, err := strconv.Atoi(digits)
	if err != nil || strconv.Itoa(limit) != digits {
		return 0
	}
	return limit
}

// Mode returns the mode of a request of this kind.
func (k Kind) Mode() backend.Mode {
	switch {
	case k == Reader:
		return backend.Shared
	case k.Limit() > 0:
		return backend.Permit
	}
	return backend.Exclusive
}

// String returns the kind in words.
func (k Kind) String() string {
	if limit := k.Limit(); limit > 0 {
		return fmt.Sprintf("a semaphore with the limit %d", limit)
	}
	return "a lock"
}

// Conflict returns an error that wraps backend.ErrConflict if present, the kind of another entry of
// the same name, does not fit k: a semaphore is no lock for writers and readers, and has one limit.
func (k Kind) Conflict(present Kind) error {
	if present == k || present.Limit() == 0 && k.Limit() == 0 {
		return nil
	}
	return fmt.Errorf("%w: the name is in use by %v, not by %v", backend.ErrConflict, present, k)
}

// Entry is an entry of a queue, in which holders and waiters stand in the order of their arrival.
type Entry interface{ Kind() Kind }

// Conflict returns the error of the first entry of a queue if it does not fit k. Any other entry
// that does not fit the first one belongs to an attempt that is about to fail, or to a client that
// has died. It concerns no other attempt: see Blockers.
func Conflict[E Entry](k Kind, entries []E) error {
	if len(entries) == 0 {
		return nil
	}
	return k.Conflict(entries[0].Kind())
}

// Blockers returns the entries for whose end an entry of kind k waits. front are all entries in
// front of it. A writer waits for all of them, and a reader for all but the readers. A permit waits
// for one of them, whichever it is, if they are as many as the limit. It also waits for entries
// that do not fit it.
func Blockers[E Entry](k Kind, front []E) []E {
	differs := func(e E) bool { return e.Kind() != k }
	switch k.Mode() {
	case backend.Shared:
		var others []E
		for _, e := range front {
			if differs(e) {
				others = append(others, e)
			}
		}
		return others
	case backend.Permit:
		if len(front) < k.Limit() && !slices.ContainsFunc(front, differs) {
			return nil
		}
	}
	return front
}

// Holders returns the entries at the beginning of a queue that hold the lock, because they wait for
// no other entry.
func Holders[E Entry](entries []E) []E {
	for i, e := range entries {
		if len(Blockers(e.Kind(), entries[:i])) > 0 {
			return entries[:i]
		}
	}
	return entries
}
