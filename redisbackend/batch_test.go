package redisbackend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// fakeLane answers each call with its first argument, when it is told to.
type fakeLane struct {
	sizes  []int
	bounds []time.Duration
	answer chan struct{} // nil: at once
}

func (f *fakeLane) send(ctx context.Context, calls []call) []answer {
	end, _ := ctx.Deadline()
	f.sizes, f.bounds = append(f.sizes, len(calls)), append(f.bounds, time.Until(end))
	if f.answer != nil {
		<-f.answer
	}
	answers := make([]answer, len(calls))
	for i, c := range calls {
		answers[i].reply = c.args[0]
	}
	return answers
}

// ask makes a request that has to queue.
func ask(ctx context.Context, t *testing.T, b *batcher, arg any) <-chan answer {
	t.Helper()
	q := b.enter(ctx, nil, []any{arg})
	if q == nil {
		t.Fatal("the request is to be sent alone")
	}
	done := make(chan answer, 1)
	go func() {
		reply, err := q.await()
		done <- answer{reply, err}
	}()
	return done
}

// fill has as many requests under way as can be without a queue, or with one that may not be sent either.
func fill(t *testing.T, b *batcher, n int) {
	t.Helper()
	for range n {
		if b.enter(t.Context(), nil, nil) != nil {
			t.Fatal("a request queues up while few are under way")
		}
	}
}

func TestEachOfABatchHasItsOwnAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fakeLane{}
		b := newBatcher(0, time.Minute, f.send)
		fill(t, b, maxSingles)
		answers := make([]<-chan answer, maxBatch+10)
		for i := range answers {
			answers[i] = ask(t.Context(), t, b, i)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if len(f.sizes) > 0 {
			t.Error("a batch was sent although all connections are in use")
		}
		b.leave()
		for i, done := range answers {
			if a := <-done; a.reply != i || a.err != nil {
				t.Errorf("request %d was answered with %v, %v", i, a.reply, a.err)
			}
		}
		synctest.Wait()
		if want := []int{maxBatch, 10}; !slices.Equal(f.sizes, want) || f.bounds[0] != time.Minute {
			t.Errorf("batches of %v within %v, want %v within a minute", f.sizes, f.bounds, want)
		}
		b.leave()
		fill(t, b, maxSingles) // as in the beginning
		b.close()
	})
}

func TestContextsInABatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fakeLane{answer: make(chan struct{})}
		b := newBatcher(0, time.Minute, f.send)
		fill(t, b, maxSingles)
		early, leaveEarly := context.WithCancel(t.Context())
		late, leaveLate := context.WithCancel(t.Context())
		queued, sent, other := ask(early, t, b, 1), ask(late, t, b, 2), ask(t.Context(), t, b, 3)
		leaveEarly()
		raw.WantIs(t, "a request in the queue", (<-queued).err, context.Canceled)
		b.leave()
		synctest.Wait()
		leaveLate()
		raw.WantIs(t, "a request under way", (<-sent).err, context.Canceled)
		f.answer <- struct{}{}
		if a := <-other; a.reply != 3 || a.err != nil {
			t.Errorf("who stayed was answered with %v, %v", a.reply, a.err)
		}
		if !slices.Equal(f.sizes, []int{2}) {
			t.Errorf("batches of %v, want one without the request that nobody waits for", f.sizes)
		}
		b.close()
	})
}

// What is under way may hang. While there are connections others do not wait for it, but some are left free.
func TestQueueIsNotHeldUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fakeLane{answer: make(chan struct{})}
		b := newBatcher(2*(maxSingles+1), time.Minute, f.send)
		fill(t, b, maxSingles)
		start := time.Now()
		first := ask(t.Context(), t, b, 1)
		f.answer <- struct{}{}
		<-first
		if waited := time.Since(start); waited != maxQueued {
			t.Errorf("the queue waited for %v, want %v", waited, maxQueued)
		}
		ask(t.Context(), t, b, 2)
		time.Sleep(2 * maxQueued)
		last := ask(t.Context(), t, b, 3)
		time.Sleep(time.Second)
		synctest.Wait()
		if !slices.Equal(f.sizes, []int{1, 1}) {
			t.Errorf("batches of %v, want no third while all connections are in use", f.sizes)
		}
		f.answer <- struct{}{}
		f.answer <- struct{}{}
		<-last
		b.close()
	})
}

func TestCloseOfABatcher(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fakeLane{answer: make(chan struct{})}
		b := newBatcher(0, time.Minute, f.send)
		fill(t, b, maxSingles)
		sent := ask(t.Context(), t, b, 1)
		b.leave()
		synctest.Wait()
		queued := ask(t.Context(), t, b, 2)
		closed := make(chan struct{})
		go func() {
			b.close()
			close(closed)
		}()
		raw.WantIs(t, "a request in the queue", (<-queued).err, redis.ErrClosed)
		synctest.Wait()
		select {
		case <-closed:
			t.Error("a batch is under way after close")
		default:
		}
		f.answer <- struct{}{}
		if a := <-sent; a.reply != 1 {
			t.Errorf("a batch under way was answered with %v, %v", a.reply, a.err)
		}
		<-closed
		fill(t, b, 10) // their connections are closed
	})
}

// occupy has every request queue up until one batch may go.
func occupy(b *batcher) (free func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.underWay += b.most
	return func() {
		b.mu.Lock()
		b.underWay -= b.most - 1
		b.mu.Unlock()
		b.leave()
	}
}

// inBatch runs n requests at once so that they go in one batch.
func inBatch(t *testing.T, b *batcher, n int, request func(i int)) {
	t.Helper()
	free := occupy(b)
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() { request(i) })
	}
	awaitQueue(t, b, n)
	free()
	running.Wait()
}

func awaitQueue(t *testing.T, b *batcher, n int) {
	t.Helper()
	queued := func() int {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.queue)
	}
	for end := time.Now().Add(patience); queued() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d requests in the queue, want %d", queued(), n)
		}
	}
}

// A server that has forgotten the scripts, a lock that is taken, a foreign value, and a lock that is
// free: each request of a batch has the answer that it would have alone.
func TestBatchOnAServer(t *testing.T) {
	t.Parallel()
	s := testenv.NewRedis(t)
	d, c := openURL(t, s.URL), admin(t, s)
	reqs := make([]*backend.Request, 6)
	for i := range reqs {
		reqs[i] = raw.Request(t, time.Minute)
		reqs[i].Key += fmt.Sprint(i)
	}
	taken := raw.Request(t, time.Minute)
	taken.Key = reqs[0].Key
	raw.Acquire(t, d, taken)
	do(t, c, "rpush", newKeys(reqs[1].Key).lock, "foreign")
	do(t, c, "script", "flush")

	grants, errs := make([]*backend.Grant, len(reqs)), make([]error, len(reqs))
	inBatch(t, d.main.batcher, len(reqs), func(i int) { grants[i], errs[i] = d.Acquire(t.Context(), reqs[i]) })
	if _, ok := errors.AsType[*backend.Busy](errs[0]); !ok {
		t.Errorf("a lock that is taken: %v, want *Busy", errs[0])
	}
	raw.WantIs(t, "a foreign value", errs[1], backend.ErrConflict)
	for i := 2; i < len(reqs); i++ {
		if errs[i] != nil || grants[i].Owner != reqs[i].Owner {
			t.Fatalf("a free lock: %+v, %v", grants[i], errs[i])
		}
	}
	raw.Release(t, d, grants[2])
	do(t, c, "script", "flush")
	inBatch(t, d.control.batcher, 4, func(i int) { errs[i+2] = d.Release(t.Context(), grants[i+2]) })
	raw.WantIs(t, "a lock that is not held", errs[2], backend.ErrNotHeld)
	if err := errors.Join(errs[3:]...); err != nil {
		t.Errorf("Release: %v", err)
	}
}

// When the answer to a batch is lost each of its requests has an unknown outcome, and none is repeated.
func TestBatchWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	s := testenv.Redis(t)
	proxy := testenv.NewProxy(t, s.Addr)
	c := redis.NewClient(&redis.Options{Addr: proxy.Addr()}) // three retries: the default
	defer c.Close()
	lent, err := New(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer lent.Close()
	d := lent.(*driver)
	grants, errs := make([]*backend.Grant, 3), make([]error, 3)
	// Another lock tells the server the script, and a batch opens the connection.
	raw.Release(t, d, raw.Acquire(t, d, raw.Request(t, time.Minute)))
	inBatch(t, d.main.batcher, 3, func(i int) {
		req := raw.Request(t, time.Minute)
		req.Key += fmt.Sprint(i)
		grants[i], errs[i] = d.Acquire(t.Context(), req)
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	proxy.DropReply(t, 1)
	inBatch(t, d.control.batcher, 3, func(i int) { errs[i] = d.Release(t.Context(), grants[i]) })
	for i, err := range errs {
		if err == nil || definite(err) || errors.Is(err, backend.ErrNotHeld) {
			t.Errorf("Release whose answer is lost: %v, want an unknown outcome", err)
		}
		raw.WantIs(t, "asked once more", d.Release(t.Context(), grants[i]), backend.ErrNotHeld)
	}
}

func TestCloseWhileRequestsQueue(t *testing.T) {
	t.Parallel()
	d, err := testenv.Open(t.Context(), testenv.Redis(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	b := d.(*driver).main.batcher
	occupy(b)
	done := make(chan error, 1)
	go func() {
		_, err := d.Acquire(t.Context(), raw.Request(t, time.Minute))
		done <- err
	}()
	awaitQueue(t, b, 1)
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	raw.WantIs(t, "a request in the queue", <-done, backend.ErrUnavailable)
}

// Renewals have connections of their own: no number of other requests is in their way.
func TestRenewalsDoNotQueue(t *testing.T) {
	t.Parallel()
	d := openURL(t, testenv.Redis(t).URL)
	g := raw.Acquire(t, d, raw.Request(t, time.Minute))
	freeMain, freeControl := occupy(d.main.batcher), occupy(d.control.batcher)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := d.Renew(ctx, g); err != nil {
		t.Errorf("Renew: %v", err)
	}
	freeMain()
	freeControl()
	raw.Release(t, d, g)
}
