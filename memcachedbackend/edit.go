package memcachedbackend

import (
	"errors"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/dlock-go/dlock/backend"
)

// maxRewrites is how often rewrite reads a value again that changed before it was written. Only the
// holder, an adopter and a Break change a value.
const maxRewrites = 3

// edit is a change of a record on the server. It returns the new value and its expiry, and may
// change r.
type edit func(r *record) (value []byte, expiry int32)

// remove is the edit that removes the record. The protocol has no conditional delete, so it writes
// a value that expires at once. The value is empty: a server that is full of locks has room for it.
func remove(*record) ([]byte, int32) { return nil, expired }

// prolong returns the edit that begins another term.
func prolong(ttl time.Duration) edit {
	return func(r *record) ([]byte, int32) {
		r.until = time.Now().Add(grantedTTL(ttl))
		return r.encode(), expiry(ttl)
	}
}

// storeFence returns the edit that replaces the foreseen fence by the drawn one, and begins another
// term.
func storeFence(fence uint64, ttl time.Duration) edit {
	begin := prolong(ttl)
	return func(r *record) ([]byte, int32) {
		r.fence = fence
		return begin(r)
	}
}

// storeTicket returns the edit that makes a record exported, and begins another term.
func storeTicket(secret string, ttl time.Duration) edit {
	begin := prolong(ttl)
	return func(r *record) ([]byte, int32) {
		r.ticket = secret
		return begin(r)
	}
}

// ownedBy returns a function that reports whether a record belongs to owner.
func ownedBy(owner string) func(*record) bool {
	return func(r *record) bool { return r.owner == owner }
}

// isGrants returns a function that reports whether a record is the one that g was granted with.
// Another record of its owner is from an add that was executed late, after the loss of g: g must
// not live on with it, because its fence may be lower than the fence of a holder in between. since
// identifies the add or the adoption, and no other edit changes it. A grant without its State has
// only its owner.
func isGrants(g *backend.Grant) func(*record) bool {
	since, ok := g.State.(int64)
	return func(r *record) bool {
		return r.owner == g.Owner && (!ok || r.since.UnixMicro() == since)
	}
}

// ownedByAny reports whether a record belongs to any owner.
func ownedByAny(*record) bool { return true }

// rewrite applies e to the record under lock. It returns errGone, and writes nothing, if there is
// no record or if it is not owned. It returns errContended if the value keeps changing.
//
// rewrite reads and writes the value on one connection. It never writes over a value that changed
// in between. sent is the time before the gets whose value was replaced, as Term.Sent requires.
func rewrite(
	c *memcache.Client, lock string, owned func(*record) bool, e edit,
) (sent time.Time, err error) {
	for range maxRewrites {
		sent = time.Now()
		item, err := c.Get(lock)
		if errors.Is(err, memcache.ErrCacheMiss) {
			return sent, errGone
		}
		if err != nil {
			return sent, err
		}
		if err = swap(c, item, owned, e); !errors.Is(err, memcache.ErrCASConflict) {
			return sent, err
		}
	}
	return sent, errContended
}

// swap is the second half of rewrite. The item must come from the same connection: a restarted
// server assigns the same CAS ids to other values. swap returns memcache.ErrCASConflict if the
// value has changed since.
func swap(c *memcache.Client, item *memcache.Item, owned func(*record) bool, e edit) error {
	r, ok := decode(item.Value)
	if !ok || !owned(r) {
		return errGone
	}
	item.Value, item.Expiration = e(r)
	err := c.CompareAndSwap(item)
	if errors.Is(err, memcache.ErrCacheMiss) || errors.Is(err, memcache.ErrNotStored) {
		return errGone
	}
	return err
}
