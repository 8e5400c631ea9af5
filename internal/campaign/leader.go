//go:build unix

package campaign

import (
	"context"
	"errors"

	"github.com/dlock-go/dlock"
)

var errResigned = errors.New("campaign: resigned")

// candidate is one call of Elect in the background, so that a leader can be used like any other
// holder. It leads once.
type candidate struct {
	cancel  context.CancelFunc // of Elect
	leading chan *holding
	resign  chan struct{}
	done    chan error // the result of Elect
}

// leader stands for election until it leads or ctx ends.
func leader(
	ctx context.Context, l *loop, names []string, opts []dlock.Option,
) (*holding, error) {
	standing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	elected := context.AfterFunc(ctx, cancel) // ctx limits the wait, and not the leadership
	c := &candidate{cancel, make(chan *holding), make(chan struct{}), make(chan error, 1)}
	go func() { c.done <- l.client.Elect(standing, names[0], c.lead, opts...) }()
	select {
	case err := <-c.done:
		cancel()
		return nil, err
	case h := <-c.leading:
		elected()
		return h, nil
	}
}

// lead is the function of Elect. It returns when the candidate resigns.
func (c *candidate) lead(ctx context.Context, lease *dlock.Lease) error {
	h := &holding{leases: []*dlock.Lease{lease}, lost: ctx.Done(), err: lease.Err}
	h.unlock = func(ctx context.Context) error { return c.unlock(ctx, lease) }
	select {
	case c.leading <- h:
		<-c.resign
	case <-c.resign: // a second term, which the history does not have
	}
	if errors.Is(lease.Err(), dlock.ErrLost) {
		c.cancel() // otherwise Elect stands again
	}
	return errResigned
}

// unlock resigns. Of the errors of its own Unlock, Elect returns ErrLost only.
func (c *candidate) unlock(ctx context.Context, lease *dlock.Lease) error {
	defer context.AfterFunc(ctx, c.cancel)()
	close(c.resign)
	err := <-c.done
	c.cancel()
	if lost := lease.Err(); errors.Is(lost, dlock.ErrLost) {
		return lost
	}
	return err
}
