package membackend

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// Wait stands at the place that the *Busy named: at the hold that was in force
// at that answer, so that its end cannot be missed, or at the queue entry.
func (d *driver) Wait(ctx context.Context, req *backend.Request, b *backend.Busy) (*backend.Grant, error) {
	if err := d.usable(); err != nil {
		return nil, err
	}
	expired := time.NewTimer(b.RetryAfter)
	defer expired.Stop()
	select {
	case <-d.space.enter(b.State):
	case <-expired.C:
	case <-ctx.Done():
		d.space.leave(b.State)
		return nil, ctx.Err()
	}
	d.space.leave(b.State)
	return d.space.granted(req), nil
}

// enter returns the channel of a place and counts who stands at a hold.
func (s *space) enter(place any) <-chan struct{} {
	switch place := place.(type) {
	case *hold:
		s.mu.Lock()
		defer s.mu.Unlock()
		place.waiting++
		return place.over
	case *entry:
		return place.called
	}
	return nil
}

func (s *space) leave(place any) {
	if h, ok := place.(*hold); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		h.waiting--
	}
}

// granted returns the grant that req got by being the next in the queue, with the
// term that it got it with; nil if another Acquire has to tell.
func (s *space) granted(req *backend.Request) *backend.Grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.current(req.Key, time.Now()); h != nil && h.grant.Owner == req.Owner {
		return &h.grant
	}
	return nil
}
