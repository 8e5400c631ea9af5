package membackend

import (
	"context"
	"iter"
	"strings"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// fenceShift is the number of bits that the core appends to a raw fence.
const fenceShift = 12

// Inspect implements backend.Inspector. It counts all waiters, with and without a queue entry.
func (d *driver) Inspect(_ context.Context, key string) (*backend.Info, error) {
	if err := d.checkOpen(); err != nil {
		return nil, err
	}
	d.space.mu.Lock()
	defer d.space.mu.Unlock()
	return d.space.info(key, time.Now()), nil
}

// List implements backend.Inspector. It collects all locks before it yields the first one, so that
// the body of the loop may lock and unlock.
func (d *driver) List(ctx context.Context, prefix string) iter.Seq2[*backend.Info, error] {
	return func(yield func(*backend.Info, error) bool) {
		if err := d.checkOpen(); err != nil {
			yield(nil, err)
			return
		}
		for _, info := range d.space.list(prefix) {
			if err := ctx.Err(); err != nil {
				yield(nil, err)
				return
			}
			if !yield(info, nil) {
				return
			}
		}
	}
}

// Break implements backend.Breaker. The holder is notified at once.
func (d *driver) Break(_ context.Context, key, owner string) error {
	if err := d.checkOpen(); err != nil {
		return err
	}
	broken, err := d.space.breakHolder(key, owner)
	if err != nil {
		return err
	}
	broken.lose(errBroken)
	return nil
}

// list returns the held locks with a prefix, in no particular order.
func (s *space) list(prefix string) []*backend.Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	var infos []*backend.Info
	for key := range s.holders {
		if !strings.HasPrefix(key, prefix) {
			continue
		}
		if info := s.info(key, now); len(info.Holders) > 0 {
			infos = append(infos, info)
		}
	}
	return infos
}

// info describes one lock. It removes expired queue entries first, because their waiters may be
// gone. s.mu must be held.
func (s *space) info(key string, now time.Time) *backend.Info {
	info := &backend.Info{Key: key, Mode: backend.Exclusive}
	holder := s.currentHolder(key, now)
	if holder == nil {
		return info
	}
	holder.removeExpiredEntries(now)
	info.Waiters = len(holder.queue) + holder.waiters
	info.Holders = []backend.Holder{{
		Owner: holder.grant.Owner,
		Meta:  holder.grant.Meta,
		Fence: holder.grant.Fence << fenceShift,
		Since: holder.since,
		TTL:   holder.expires.Sub(now),
	}}
	return info
}

// breakHolder removes the grant of owner, or of any owner if owner is empty, and returns it.
func (s *space) breakHolder(key, owner string) (*acquisition, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	holder := s.currentHolder(key, now)
	if holder == nil || owner != "" && owner != holder.grant.Owner {
		return nil, backend.ErrNotHeld
	}
	s.removeHolder(holder, now)
	return holder, nil
}
