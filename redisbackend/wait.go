package redisbackend

import (
	"context"

	"github.com/dlock-go/dlock/backend"
)

// Wait implements backend.Waiter: it waits for the message that the server has granted the queue
// entry of req. Without pub/sub only ctx ends the wait.
//
// The server granted the entry after it had answered the last Acquire, and for the remaining time
// of the entry that this Acquire left.
//
// Two kinds of grants need another Acquire. A grant to an older attempt was missed at first, and
// its term may have ended. With Options.Wait, only an Acquire shows whether replicas have the
// grant.
//
// It sends nothing and has no goroutine. The core waits for one owner at a time, and makes another
// Acquire after nil, nil.
func (d *driver) Wait(
	ctx context.Context, req *backend.Request, b *backend.Busy,
) (*backend.Grant, error) {
	p, ok := b.State.(*position)
	if !ok || !b.Queued || !d.caps.Notify {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	n, err := d.hub.await(ctx, p.acquisition)
	switch {
	case err != nil:
		return nil, err
	case n.fence == 0 || n.attempt < p.attempt || d.opts.Wait > 0:
		return nil, nil
	}
	return p.grant(req, n.fence, min(req.TTL, entryTerm)), nil
}
