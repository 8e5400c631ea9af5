// Package batch sends requests together where there are many at once.
package batch

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

const (
	// MaxSingles is how many requests are under way, each on its own, before others queue up.
	MaxSingles = 2
	// MaxQueued is how long a request is kept back while more may be under way, however slow the
	// network is, and even if what is under way hangs.
	MaxQueued = 250 * time.Microsecond
	// MaxSize bounds how long one batch keeps the server from others: a millisecond or less.
	MaxSize = 64
)

// ErrNoAnswer is the answer to those who still wait when their batch ends without one: what they asked for may have been
// executed, or may be later.
var ErrNoAnswer = errors.New("no answer in time")

// Options are what a Batcher is made of. All are needed.
type Options[Request, Reply any] struct {
	// Send is what is done with a batch: it returns the answer to each request, in their order. When ctx ends it
	// returns at once, with the error of that for those that have no other.
	Send func(ctx context.Context, batch []Request) []Answer[Reply]
	// Timeout bounds a batch, and so do the deadlines of its requests: it ends with the last of them.
	Timeout time.Duration
	// Most is how many single requests and batches are under way at once; MaxSingles always are.
	Most int
	// Closed is the answer to a request that was in the queue when the Batcher was closed.
	Closed error
}

// Answer is that to one request.
type Answer[Reply any] struct {
	Reply Reply
	Err   error
}

// Batcher puts requests together where there are many at once: alone each of them costs client and server
// a system call to write and one to read, at least. As long as few are under way it lets them pass. Others
// queue up until one of those is answered, and then go together. It is safe for concurrent use.
type Batcher[Request, Reply any] struct {
	opts Options[Request, Reply]
	life context.Context // of the batches
	end  context.CancelFunc

	mu       sync.Mutex
	closed   bool
	underWay int // single requests and batches
	queue    []*Queued[Request, Reply]
	overdue  *time.Timer // runs while there is a queue, and once in the beginning
	running  sync.WaitGroup
}

// Queued is a request in the queue, or in a batch.
type Queued[Request, Reply any] struct {
	request Request
	ctx     context.Context
	answer  chan Answer[Reply]
}

// New returns a Batcher, which is to be closed.
func New[Request, Reply any](opts Options[Request, Reply]) *Batcher[Request, Reply] {
	b := &Batcher[Request, Reply]{opts: opts}
	b.life, b.end = context.WithCancel(context.Background())
	b.overdue = time.AfterFunc(MaxQueued, b.hurry)
	return b
}

// Enter returns nil for a request that its caller has to send by itself, and to Leave after that. Any other
// is sent by b, and answered to Await.
func (b *Batcher[Request, Reply]) Enter(ctx context.Context, request Request) *Queued[Request, Reply] {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.underWay < MaxSingles || b.closed {
		b.underWay++
		return nil
	}
	q := &Queued[Request, Reply]{request, ctx, make(chan Answer[Reply], 1)}
	b.queue = append(b.queue, q)
	if len(b.queue) == 1 {
		b.overdue.Reset(MaxQueued)
	}
	return q
}

// Await returns when q is answered or its context ends, with the error of that. Then it may still be executed.
func (q *Queued[Request, Reply]) Await() (Reply, error) {
	select {
	case a := <-q.answer:
		return a.Reply, a.Err
	case <-q.ctx.Done():
		var none Reply
		return none, q.ctx.Err()
	}
}

// Leave is called when a single request has ended. The next batch takes its place.
func (b *Batcher[Request, Reply]) Leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.underWay--
	b.start()
}

// hurry is called when the queue has waited for long enough.
func (b *Batcher[Request, Reply]) hurry() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.underWay < b.opts.Most {
		b.start()
	}
}

// start sends what is in the queue. It is called with mu held.
func (b *Batcher[Request, Reply]) start() {
	if len(b.queue) == 0 {
		return
	}
	n := min(len(b.queue), MaxSize)
	batch := b.queue[:n:n]
	if b.queue = b.queue[n:]; len(b.queue) == 0 {
		b.queue = nil
		b.overdue.Stop()
	} else {
		b.overdue.Reset(MaxQueued)
	}
	b.underWay++
	b.running.Go(func() { b.run(batch) })
}

// run sends a batch and gives each request its own answer. Those that nobody waits for any more are not sent. The
// end of one context is not that of the others' requests.
func (b *Batcher[Request, Reply]) run(batch []*Queued[Request, Reply]) {
	defer b.Leave()
	batch = slices.DeleteFunc(batch, func(q *Queued[Request, Reply]) bool { return q.ctx.Err() != nil })
	if len(batch) == 0 {
		return
	}
	requests := make([]Request, len(batch))
	for i, q := range batch {
		requests[i] = q.request
	}
	ctx, cancel := context.WithDeadline(b.life, b.deadline(batch))
	defer cancel()
	for i, a := range b.opts.Send(ctx, requests) {
		if ended := ctx.Err(); ended != nil && errors.Is(a.Err, ended) {
			a.Err = ErrNoAnswer
		}
		batch[i].answer <- a
	}
}

// deadline is when nobody waits for the batch any more, or its timeout.
func (b *Batcher[Request, Reply]) deadline(batch []*Queued[Request, Reply]) time.Time {
	var last time.Time
	timeout := time.Now().Add(b.opts.Timeout)
	for _, q := range batch {
		end, ok := q.ctx.Deadline()
		if !ok || end.After(timeout) {
			return timeout
		}
		if end.After(last) {
			last = end
		}
	}
	return last
}

// Close ends what is under way in batches, and returns when it has ended. What is in the queue is not sent. Requests that
// come later are sent alone.
func (b *Batcher[Request, Reply]) Close() {
	b.mu.Lock()
	b.closed = true
	b.overdue.Stop()
	for _, q := range b.queue {
		q.answer <- Answer[Reply]{Err: b.opts.Closed}
	}
	b.queue = nil
	b.mu.Unlock()
	b.end()
	b.running.Wait()
}
