package dlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dlock-go/dlock/internal/key"
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
	running context.Context // ends when Close is done with the server
	end     context.CancelFunc

	mu     sync.Mutex
	calls  int
	idle   chan struct{} // made by Close, closed when the last call has returned
	behind sync.WaitGroup
	slots  chan struct{}

	once sync.Once
}

func (lc *lifecycle) start(c *Client) {
	lc.closing, lc.begin = context.WithCancelCause(context.Background())
	lc.running, lc.end = context.WithCancel(context.Background())
	lc.slots = make(chan struct{}, releasers)
	lc.behind.Go(func() { c.scheduler.run(lc.running) })
}

// enter begins a call of the user's that may ask the driver; leave ends it.
func (lc *lifecycle) enter() error {
	lc.mu.Lock()
	defer lc.mu.Unlock()
	if lc.closing.Err() != nil {
		return ErrClosed
	}
	lc.calls++
	return nil
}

func (lc *lifecycle) leave() {
	lc.mu.Lock()
	defer lc.mu.Unlock()
	lc.calls--
	if lc.calls == 0 && lc.idle != nil {
		close(lc.idle)
	}
}

// beginClose lets no further call in, wakes all that wait, and returns what is
// closed when the calls under way have returned.
func (lc *lifecycle) beginClose() <-chan struct{} {
	lc.mu.Lock()
	defer lc.mu.Unlock()
	lc.begin(ErrClosed)
	lc.idle = make(chan struct{})
	if lc.calls == 0 {
		close(lc.idle)
	}
	return lc.idle
}

// goBehind runs f behind the callers, not too many at once; Close waits for it.
func (lc *lifecycle) goBehind(f func()) {
	lc.behind.Go(func() {
		lc.slots <- struct{}{}
		defer func() { <-lc.slots }()
		f()
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
	idle := c.lifecycle.beginClose()
	sleepUntil(c.endLeases())
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	c.releaseAll(ctx)
	select {
	case <-idle:
	case <-ctx.Done():
	}
	c.releaseAll(ctx) // of those that were granted meanwhile
	c.lifecycle.end()
	behind := make(chan struct{})
	go func() {
		c.lifecycle.behind.Wait()
		close(behind)
	}()
	select {
	case <-behind:
	case <-ctx.Done():
	}
	return c.wrap("close", "", c.driver.Close())
}
