package membackend

import (
	"context"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// fenceShift is the number of bits that the core appends to a raw fence, to count hand-offs. The
// contract of backend.Holder requires the shifted fence, so that users can compare it with a lease.
const fenceShift = 12

// Inspect implements backend.Inspector. It removes what has expired, as each request does, so it
// never shows a holder with an expired term.
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

// Break implements backend.Breaker. The holders are notified at once, on the goroutine of the
// caller. By then a waiter may have the lock: the work of the former holder can overlap with it.
func (d *driver) Break(_ context.Context, key, owner string) error {
	if err := d.checkOpen(); err != nil {
		return err
	}
	broken := d.space.breakHolders(key, owner)
	if len(broken) == 0 {
		return backend.ErrNotHeld
	}
	for _, a := range broken {
		a.lose(errBroken)
	}
	d.space.endBreak(broken)
	return nil
}

// list returns the held locks with a prefix, in no particular order.
func (s *space) list(prefix string) []*backend.Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	var infos []*backend.Info
	for key := range s.locks {
		if !strings.HasPrefix(key, prefix) {
			continue
		}
		if info := s.info(key, now); len(info.Holders) > 0 {
			infos = append(infos, info)
		}
	}
	return infos
}

// info describes one lock. s.mu must be held.
func (s *space) info(key string, now time.Time) *backend.Info {
	info := &backend.Info{Key: key, Mode: backend.Exclusive}
	l := s.current(key, now)
	if l == nil {
		return info
	}
	info.Mode, info.Limit, info.Waiters = l.mode(), l.holders[0].grant.Limit, len(l.queue)
	for _, a := range l.holders {
		info.Holders = append(info.Holders, backend.Holder{
			Owner: a.grant.Owner,
			Meta:  a.grant.Meta,
			Fence: a.grant.Fence << fenceShift,
			Since: time.Unix(0, a.since),
			TTL:   a.expires.Sub(now),
		})
	}
	return info
}

// breakHolders removes the grant of owner, or all grants if owner is empty, and returns them. It
// leaves the entries of waiters, even an entry of that owner: Break is about holders.
func (s *space) breakHolders(key, owner string) (broken []*acquisition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	l := s.current(key, now)
	if l == nil {
		return nil
	}
	for _, a := range l.holders {
		if owner == "" || owner == a.grant.Owner {
			broken = append(broken, a)
		}
	}
	for _, a := range broken {
		l.remove(a.grant.Owner)
	}
	s.broken = append(s.broken, broken...)
	s.settle(l, now)
	return broken
}

// endBreak follows the notification of the holders that a Break has removed.
func (s *space) endBreak(broken []*acquisition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = slices.DeleteFunc(s.broken, func(a *acquisition) bool {
		return slices.Contains(broken, a)
	})
}

// isBroken reports whether a Break has removed the grant of req's owner, but may not have called
// its Lost yet. A new grant of that owner would be taken for the one that is lost. s.mu must be
// held.
func (s *space) isBroken(req *backend.Request) bool {
	return slices.ContainsFunc(s.broken, func(a *acquisition) bool {
		return a.grant.Key == req.Key && a.grant.Owner == req.Owner
	})
}
