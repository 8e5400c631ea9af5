package dlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend/key"
)

const (
	// closeTimeout bounds Close, once the minimum holds are over.
	closeTimeout = 5 * time.Second
	// releasers is how many releases run at once behind the callers.
	releasers = 64
)

var errNilContext = errors.New("the context is nil")

// lifecycle is what ends a client in order: no more calls, no more waiting, no
// more leases, no more goroutines, no more connection.
type lifecycle struct {
	closing context.Context // ends when Close begins, with cause ErrClosed
	begin   context.CancelCauseFunc
	running context.Context // ends when Close needs the scheduler no more
	end     context.CancelFunc
	working context.Context // ends when Close gives up what runs behind
	abandon context.CancelFunc

	calls  atomic.Int64  // under way, and closed once Close has begun
	idle   chan struct{} // closed when the last call has returned
	behind sync.WaitGroup
	slots  chan struct{}

	once, idleOnce sync.Once
}

func (lc *lifecycle) start(c *Client) {
	lc.closing, lc.begin = context.WithCancelCause(context.Background())
	lc.running, lc.end = context.WithCancel(context.Background())
	lc.working, lc.abandon = context.WithCancel(context.Background())
	lc.idle, lc.slots = make(chan struct{}), make(chan struct{}, releasers)
	lc.behind.Go(func() { c.scheduler.run(lc.running) })
}

// closed is the bit of calls that Close sets.
const closed = 1 << 62

// enter begins a call of the user's that may ask the driver; if it returns nil,
// leave ends the call.
func (lc *lifecycle) enter() error {
	if lc.calls.Add(1) > closed {
		lc.leave()
		return ErrClosed
	}
	return nil
}

func (lc *lifecycle) leave() {
	if lc.calls.Add(-1) == closed {
		lc.idleOnce.Do(func() { close(lc.idle) })
	}
}

// beginClose lets no further call in and wakes all that wait.
func (lc *lifecycle) beginClose() {
	lc.begin(ErrClosed)
	lc.calls.Add(closed + 1)
	lc.leave()
}

// goBehind runs f behind the callers, not too many at once. It counts as a call
// under way: Close waits for it before it looks what is left to do, and ends its
// context when it gives up.
func (lc *lifecycle) goBehind(f func(context.Context)) {
	lc.calls.Add(1)
	lc.behind.Go(func() {
		defer lc.leave()
		select {
		case lc.slots <- struct{}{}:
			defer func() { <-lc.slots }()
			f(lc.working)
		case <-lc.working.Done():
		}
	})
}

// whileOpen returns a context that ends with ctx or when Close begins.
func (lc *lifecycle) whileOpen(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(lc.closing, func() { cancel(ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// enter begins a call of the user's; if it returns nil, leave ends the call.
func (c *Client) enter(ctx context.Context) error {
	if ctx == nil {
		return errNilContext
	}
	if ctx.Err() != nil {
		return endOf(ctx)
	}
	return c.lifecycle.enter()
}

func (c *Client) leave() { c.lifecycle.leave() }

// validate checks a name that a caller gave.
func validate(name string) error {
	if err := key.Validate(name); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidName, err)
	}
	return nil
}

// Close ends every lease (their Err is ErrClosed), wakes those who wait, with
// ErrClosed, and releases the locks; then it closes the driver. It waits for minimum
// holds, and for no more than 5 s beyond them: what the server did not
// answer by then is freed by its TTL. Called again it returns nil.
func (c *Client) Close() error {
	var err error
	c.lifecycle.once.Do(func() { err = c.close() })
	return err
}

func (c *Client) close() error {
	c.lifecycle.beginClose()
	held := c.endLeases()
	deadline := time.Now().Add(closeTimeout)
	c.releaseAll(deadline)
	sleepUntil(held)
	deadline = later(deadline, held.Add(closeTimeout))
	waitUntil(deadline, c.lifecycle.idle)
	c.releaseAll(deadline) // what was kept, or granted meanwhile
	sleepUntil(earlier(c.scheduler.lastRepetition(), deadline))
	c.lifecycle.join(deadline)
	c.releaseAll(deadline) // the last repetitions, none of which is under way any more
	return c.wrap("close", "", c.driver.Close())
}

// join ends the goroutines behind: the scheduler at once, requests at the
// deadline. Drivers honour contexts, so that little more can pass.
func (lc *lifecycle) join(deadline time.Time) {
	lc.end()
	joined := make(chan struct{})
	go func() {
		lc.behind.Wait()
		close(joined)
	}()
	waitUntil(deadline, joined)
	lc.abandon()
	waitUntil(time.Now().Add(time.Second), joined)
}

// waitUntil returns when done is closed, at the deadline at the latest.
func waitUntil(deadline time.Time, done <-chan struct{}) {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}
