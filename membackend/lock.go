package membackend

import (
	"cmp"
	"slices"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/kind"
)

// lock is what the space keeps of a key while it is held: one holder, several readers, or up to
// limit holders of permits, and the queue of their waiters. space.mu guards it, and must be held
// for every method.
type lock struct {
	holders []*acquisition // in the order of their grants
	queue   []*acquisition // the entries of waiters, in the order of their arrival
	// Most locks have one holder: first and one save 2 of 11 allocations of an uncontended pair of
	// Lock and Unlock.
	first acquisition
	one   [1]*acquisition
}

// key returns the key of l. The first acquisition keeps it also when it is gone.
func (l *lock) key() string { return l.first.grant.Key }

// mode returns the mode of the holders. There must be one.
func (l *lock) mode() backend.Mode { return l.holders[0].grant.Mode }

// admits reports whether the holders of l leave room for one more in this mode. It does not regard
// the queue: the caller checks that no entry is in front. The modes of a semaphore and of a lock
// never meet here, because conflict has refused such a request.
func (l *lock) admits(mode backend.Mode) bool {
	switch {
	case len(l.holders) == 0:
		return true
	case mode == backend.Permit:
		return len(l.holders) < l.holders[0].grant.Limit
	}
	return mode == backend.Shared && l.mode() == backend.Shared
}

// conflict returns an error if l is of another kind than req. Most requests have the mode of l.
func (l *lock) conflict(req *backend.Request) error {
	holder := &l.holders[0].grant.Request
	if holder.Mode == req.Mode && holder.Limit == req.Limit {
		return nil
	}
	return kind.Of(req).Conflict(kind.Of(holder))
}

// enqueue appends an entry for req to the queue, or refreshes the entry of its owner. It returns
// the entry.
func (l *lock) enqueue(req *backend.Request, now time.Time) *acquisition {
	entry := find(l.queue, req.Owner)
	if entry == nil {
		entry = newAcquisition(req, now)
		entry.become(queued)
		l.queue = append(l.queue, entry)
	} else {
		entry.refresh(req, now)
	}
	return entry
}

// busy returns the answer to a request that does not get l. entry is its queue entry, or nil. The
// channel of the answer is made here, under space.mu, so a grant right after the answer closes it:
// a Wait that begins later does not miss that grant.
func (l *lock) busy(entry *acquisition, mode backend.Mode, now time.Time) *backend.Busy {
	holder := l.holders[0]
	end := l.nextEnd(mode)
	if entry != nil {
		end = l.endInFront(entry, end)
	}
	b := &backend.Busy{
		Holder:     cmp.Or(holder.grant.Meta, holder.grant.Owner),
		RetryAfter: end.Sub(now),
	}
	if entry != nil {
		if entry.changed == nil {
			entry.changed = make(chan struct{})
		}
		b.Queued, b.State = true, entry.changed
	}
	return b
}

// nextEnd returns the time at which a waiter should try again, if no release comes first. It is
// when the terms of the holders leave room for one more: the first of them for a permit, and all of
// them otherwise.
func (l *lock) nextEnd(mode backend.Mode) time.Time {
	end := l.holders[0].expires
	for _, a := range l.holders[1:] {
		if a.expires.Before(end) == (mode == backend.Permit) {
			end = a.expires
		}
	}
	return end
}

// endInFront returns end, or the end of the first term among the entries in front of entry if that
// is earlier. Only the entry of a waiter that has died lasts until then, and nothing else wakes the
// waiters behind it.
func (l *lock) endInFront(entry *acquisition, end time.Time) time.Time {
	for _, a := range l.queue {
		if a == entry {
			break
		}
		if a.expires.Before(end) {
			end = a.expires
		}
	}
	return end
}

// remove removes the grant or the queue entry of an owner, and wakes its waiter. It reports whether
// there was one.
func (l *lock) remove(owner string) bool {
	isOwners := func(a *acquisition) bool {
		if a.grant.Owner != owner {
			return false
		}
		a.become(gone)
		return true
	}
	n := len(l.holders) + len(l.queue)
	l.holders = slices.DeleteFunc(l.holders, isOwners)
	l.queue = slices.DeleteFunc(l.queue, isOwners)
	return len(l.holders)+len(l.queue) < n
}

// removeExpired removes the holders and the queue entries whose terms are over at now. A waiter
// that still waits at such an entry wakes up, and gets a new entry with its next Acquire. It
// reports whether it has removed any.
func (l *lock) removeExpired(now time.Time) bool {
	isExpired := func(a *acquisition) bool { return a.isExpired(now) }
	if !slices.ContainsFunc(l.holders, isExpired) && !slices.ContainsFunc(l.queue, isExpired) {
		return false
	}
	remove := func(a *acquisition) bool {
		if !a.isExpired(now) {
			return false
		}
		a.become(gone)
		return true
	}
	l.holders = slices.DeleteFunc(l.holders, remove)
	l.queue = slices.DeleteFunc(l.queue, remove)
	return true
}

// find returns the acquisition of an owner, or nil.
func find(all []*acquisition, owner string) *acquisition {
	for _, a := range all {
		if a.grant.Owner == owner {
			return a
		}
	}
	return nil
}
