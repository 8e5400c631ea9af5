package membackend

import (
	"context"
	"iter"
	"strings"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// fenceShift turns a raw fence into that of a lease.
const fenceShift = 12

func (d *driver) Inspect(_ context.Context, key string) (*backend.Info, error) {
	if err := d.usable(); err != nil {
		return nil, err
	}
	d.space.mu.Lock()
	defer d.space.mu.Unlock()
	return d.space.info(key, time.Now()), nil
}

// List takes its picture before it yields, so that the loop may lock and unlock.
func (d *driver) List(ctx context.Context, prefix string) iter.Seq2[*backend.Info, error] {
	return func(yield func(*backend.Info, error) bool) {
		if err := d.usable(); err != nil {
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

func (s *space) list(prefix string) []*backend.Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	var infos []*backend.Info
	for key := range s.holds {
		if !strings.HasPrefix(key, prefix) {
			continue
		}
		if info := s.info(key, now); len(info.Holders) > 0 {
			infos = append(infos, info)
		}
	}
	return infos
}

func (s *space) info(key string, now time.Time) *backend.Info {
	info := &backend.Info{Key: key, Mode: backend.Exclusive}
	h := s.current(key, now)
	if h == nil {
		return info
	}
	h.expireEntries(now)
	info.Waiters = len(h.queue) + h.waiting
	info.Holders = []backend.Holder{{
		Owner: h.grant.Owner,
		Meta:  h.grant.Meta,
		Fence: h.grant.Fence << fenceShift,
		Since: h.since,
		TTL:   h.expires.Sub(now),
	}}
	return info
}
