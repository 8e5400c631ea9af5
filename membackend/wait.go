package membackend

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// Wait implements backend.Waiter. The State of the *Busy is a channel that is closed when the
// waiter's queue entry is granted or removed, or when it is the first and the holders have changed.
// The timer covers the end of the holders' terms: expired holders stay in the space until a request
// finds them. The core limits ctx to about a third of the TTL, and then repeats its Acquire.
func (d *driver) Wait(
	ctx context.Context, req *backend.Request, b *backend.Busy,
) (*backend.Grant, error) {
	if err := d.checkOpen(); err != nil {
		return nil, err
	}
	expired := time.NewTimer(b.RetryAfter)
	defer expired.Stop()
	changed, _ := b.State.(chan struct{})
	select {
	case <-changed:
	case <-expired.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return d.space.grantOf(req), nil
}

// grantOf returns the grant that req received from the queue, with the term of its queue entry. It
// returns nil if req does not hold the lock: another Acquire is necessary. It does not prolong the
// term: that began with the waiter's last Acquire, as the contract of Wait requires.
func (s *space) grantOf(req *backend.Request) *backend.Grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.current(req.Key, time.Now())
	if l == nil {
		return nil
	}
	if a := find(l.holders, req.Owner); a != nil {
		return &a.grant
	}
	return nil
}
