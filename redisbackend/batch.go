package redisbackend

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// maxSingles is how many requests are under way, each on its own, before others queue up.
	maxSingles = 2
	// maxQueued is how long a request is kept back while there are connections for it, however slow the
	// network is, and even if what is under way hangs.
	maxQueued = 250 * time.Microsecond
	// maxBatch bounds how long one batch keeps the server from others: less than a millisecond.
	maxBatch = 64
)

// batcher puts requests together where there are many at once: alone each of them costs client and server
// a system call to write and one to read. As long as few are under way it lets them pass. Others
// queue up until one of those is answered, and then go together, in one pipeline over one connection.
type batcher struct {
	send    func(context.Context, []call) []answer
	timeout time.Duration // of a batch
	most    int           // under way at once

	mu       sync.Mutex
	closed   bool
	underWay int // single requests and batches
	queue    []*queued
	overdue  *time.Timer // runs while there is a queue
	running  sync.WaitGroup
}

// queued is a request in the queue, or in a batch.
type queued struct {
	call
	ctx    context.Context
	answer chan answer
}

// newBatcher leaves half of the connections to renewals, which do not queue.
func newBatcher(connections int, timeout time.Duration, send func(context.Context, []call) []answer) *batcher {
	b := &batcher{send: send, timeout: timeout, most: max(connections/2, maxSingles)}
	b.overdue = time.AfterFunc(maxQueued, b.hurry)
	return b
}

// enter returns nil for a request that is to be sent alone, and left after that. Any other
// is sent by b.
func (b *batcher) enter(ctx context.Context, s *script, args []any) *queued {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.underWay < maxSingles || b.closed {
		b.underWay++
		return nil
	}
	q := &queued{call{s, args}, ctx, make(chan answer, 1)}
	b.queue = append(b.queue, q)
	if len(b.queue) == 1 {
		b.overdue.Reset(maxQueued)
	}
	return q
}

// await returns when q is answered or its context ends. Then it may still be executed.
func (q *queued) await() (any, error) {
	select {
	case a := <-q.answer:
		return a.reply, a.err
	case <-q.ctx.Done():
		return nil, q.ctx.Err()
	}
}

// leave is called when a single request or a batch has ended. The next batch takes its place.
func (b *batcher) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.underWay--
	b.start()
}

// hurry is called when the queue has waited for long enough.
func (b *batcher) hurry() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.underWay < b.most {
		b.start()
	}
}

// start sends what is in the queue. It is called with mu held.
func (b *batcher) start() {
	if len(b.queue) == 0 {
		return
	}
	n := min(len(b.queue), maxBatch)
	batch := b.queue[:n:n]
	if b.queue = b.queue[n:]; len(b.queue) == 0 {
		b.queue = nil
		b.overdue.Stop()
	} else {
		b.overdue.Reset(maxQueued)
	}
	b.underWay++
	b.running.Go(func() { b.run(batch) })
}

// run sends a batch and gives each request its own answer. Those that nobody waits for any more are not sent. The
// end of one context is not that of the others' requests.
func (b *batcher) run(batch []*queued) {
	defer b.leave()
	batch = slices.DeleteFunc(batch, func(q *queued) bool { return q.ctx.Err() != nil })
	if len(batch) == 0 {
		return
	}
	calls := make([]call, len(batch))
	for i, q := range batch {
		calls[i] = q.call
	}
	ctx, cancel := context.WithTimeout(context.Background(), b.timeout)
	defer cancel()
	for i, a := range b.send(ctx, calls) {
		batch[i].answer <- a
	}
}

// close ends the batches, once their connections are closed: what is in the queue is not sent.
func (b *batcher) close() {
	b.mu.Lock()
	b.closed = true
	b.overdue.Stop()
	for _, q := range b.queue {
		q.answer <- answer{err: redis.ErrClosed}
	}
	b.queue = nil
	b.mu.Unlock()
	b.running.Wait()
}
