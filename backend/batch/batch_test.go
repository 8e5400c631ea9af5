package batch

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

type answer = Answer[int]

// echo answers each request with the request itself. With a channel it waits for a value before
// each batch.
type echo struct {
	sizes  []int
	bounds []time.Duration
	answer chan struct{} // nil: answer at once
}

func (f *echo) send(ctx context.Context, requests []int, report func(int, answer)) {
	end, _ := ctx.Deadline()
	f.sizes, f.bounds = append(f.sizes, len(requests)), append(f.bounds, time.Until(end))
	if f.answer != nil {
		select {
		case <-f.answer:
		case <-ctx.Done():
			for i := range requests {
				report(i, answer{Err: ctx.Err()})
			}
			return
		}
	}
	for i, r := range requests {
		report(i, answer{Reply: r})
	}
}

func newBatcher(limit int, e *echo) *Batcher[int, int] {
	return New(Options[int, int]{Send: e.send, Timeout: time.Minute, MaxUnderWay: limit})
}

func wantIs(t *testing.T, what string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s: %v, want %v", what, err, target)
	}
}

// ask makes a request that must enter the queue.
func ask(ctx context.Context, t *testing.T, b *Batcher[int, int], request int) <-chan answer {
	t.Helper()
	q := b.Enter(ctx, request)
	if q == nil {
		t.Fatal("the request does not enter the queue")
	}
	done := make(chan answer, 1)
	go func() {
		reply, err := q.Await()
		done <- answer{reply, err}
	}()
	return done
}

// fill makes n single requests, which do not enter the queue.
func fill(t *testing.T, b *Batcher[int, int], n int) {
	t.Helper()
	for range n {
		if b.Enter(t.Context(), 0) != nil {
			t.Fatal("a request enters the queue although few requests are under way")
		}
	}
}

func TestEachOfABatchHasItsOwnAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &echo{}
		b := newBatcher(0, f)
		fill(t, b, MaxSingles)
		answers := make([]<-chan answer, MaxSize+10)
		for i := range answers {
			answers[i] = ask(t.Context(), t, b, i)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if len(f.sizes) > 0 {
			t.Error("a batch was sent although all connections are in use")
		}
		b.Leave()
		for i, done := range answers {
			if a := <-done; a.Reply != i || a.Err != nil {
				t.Errorf("request %d was answered with %v, %v", i, a.Reply, a.Err)
			}
		}
		synctest.Wait()
		if want := []int{MaxSize, 10}; !slices.Equal(f.sizes, want) || f.bounds[0] != time.Minute {
			t.Errorf("batches of %v within %v, want %v within a minute", f.sizes, f.bounds, want)
		}
		b.Leave()
		fill(t, b, MaxSingles) // as at the start
		b.Close()
	})
}

func TestContextsInABatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &echo{answer: make(chan struct{})}
		b := newBatcher(0, f)
		fill(t, b, MaxSingles)
		early, leaveEarly := context.WithCancel(t.Context())
		late, leaveLate := context.WithCancel(t.Context())
		queued, sent, other := ask(early, t, b, 1), ask(late, t, b, 2), ask(t.Context(), t, b, 3)
		leaveEarly()
		left := (<-queued).Err
		wantIs(t, "a request in the queue", left, context.Canceled)
		wantIs(t, "a request in the queue", left, ErrUnsent)
		if n := b.Len(); n != 2 {
			t.Errorf("%d requests are in the queue, want 2", n)
		}
		b.Leave()
		synctest.Wait()
		leaveLate()
		unknown := (<-sent).Err
		wantIs(t, "a request under way", unknown, context.Canceled)
		if errors.Is(unknown, ErrUnsent) {
			t.Errorf("a request under way: %v", unknown)
		}
		f.answer <- struct{}{}
		if a := <-other; a.Reply != 3 || a.Err != nil {
			t.Errorf("the remaining request was answered with %v, %v", a.Reply, a.Err)
		}
		if !slices.Equal(f.sizes, []int{2}) {
			t.Errorf("batches of %v, want one batch without the cancelled request", f.sizes)
		}
		b.Close()
	})
}

// TestQueueIsNotDelayed checks that requests which hang do not delay the queue while connections
// are free. The number of batches under way is still limited.
func TestQueueIsNotDelayed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &echo{answer: make(chan struct{})}
		b := newBatcher(MaxSingles+1, f)
		fill(t, b, MaxSingles)
		time.Sleep(time.Second) // until the timer of New has fired
		start := time.Now()
		first := ask(t.Context(), t, b, 1)
		f.answer <- struct{}{}
		<-first
		if waited := time.Since(start); waited != MaxQueued {
			t.Errorf("the queue waited for %v, want %v", waited, MaxQueued)
		}
		ask(t.Context(), t, b, 2)
		time.Sleep(2 * MaxQueued)
		last := ask(t.Context(), t, b, 3)
		time.Sleep(time.Second)
		synctest.Wait()
		if !slices.Equal(f.sizes, []int{1, 1}) {
			t.Errorf("batches of %v, want no third batch while all connections are in use", f.sizes)
		}
		f.answer <- struct{}{}
		f.answer <- struct{}{}
		<-last
		b.Close()
	})
}

// TestEndOfABatch checks that a batch ends with the last deadline of its requests, or at its own
// timeout if that is earlier.
func TestEndOfABatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &echo{answer: make(chan struct{})}
		b := newBatcher(0, f)
		fill(t, b, MaxSingles)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		longer, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		first, second := ask(short, t, b, 1), ask(longer, t, b, 2)
		b.Leave()
		wantIs(t, "the first", (<-first).Err, context.DeadlineExceeded)
		<-second
		synctest.Wait()
		if underWay := b.underWay; underWay != MaxSingles-1 || f.bounds[0] != 2*time.Second {
			t.Errorf("%d under way, the batches had the timeouts %v", underWay, f.bounds)
		}
		fill(t, b, 1)
		forever := ask(t.Context(), t, b, 3)
		b.Leave()
		wantIs(t, "the request without a deadline", (<-forever).Err, ErrNoAnswer)
		if f.bounds[1] != time.Minute {
			t.Errorf("a batch had the timeout %v", f.bounds[1])
		}
		b.Close()
	})
}

func TestCloseOfABatcher(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &echo{answer: make(chan struct{})}
		b := newBatcher(0, f)
		fill(t, b, MaxSingles)
		sent := ask(t.Context(), t, b, 1)
		b.Leave()
		synctest.Wait()
		queued := ask(t.Context(), t, b, 2)
		start := time.Now()
		b.Close()
		wantIs(t, "a request in the queue", (<-queued).Err, ErrUnsent)
		wantIs(t, "a request under way", (<-sent).Err, ErrNoAnswer)
		if took := time.Since(start); took > 0 {
			t.Errorf("Close took %v", took)
		}
		fill(t, b, 10) // a closed Batcher has no queue
	})
}

// TestCloseWaitsForBatches checks that Close waits for a Send that returns some time after its
// context has ended.
func TestCloseWaitsForBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const slow = 300 * time.Millisecond
		b := New(Options[int, int]{
			Timeout: time.Minute,
			Send: func(ctx context.Context, _ []int, _ func(int, answer)) {
				<-ctx.Done()
				time.Sleep(slow)
			},
		})
		fill(t, b, MaxSingles)
		sent := ask(t.Context(), t, b, 1)
		b.Leave()
		synctest.Wait()
		start := time.Now()
		b.Close()
		if took := time.Since(start); took != slow {
			t.Errorf("Close took %v, the batch took %v", took, slow)
		}
		wantIs(t, "a request under way", (<-sent).Err, ErrNoAnswer)
	})
}

// TestAllOfTheQueueIsSent checks that a long queue waits for no answer if its batches may be under
// way at the same time.
func TestAllOfTheQueueIsSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := New(Options[int, int]{
			Timeout: time.Minute, MaxUnderWay: 10,
			Send: func(_ context.Context, requests []int, report func(int, answer)) {
				time.Sleep(time.Second)
				for i := range requests {
					report(i, answer{})
				}
			},
		})
		fill(t, b, MaxSingles) // they hang
		time.Sleep(time.Second)
		start := time.Now()
		var answers []<-chan answer
		for i := range 200 {
			answers = append(answers, ask(t.Context(), t, b, i))
		}
		for _, done := range answers {
			<-done
		}
		if waited := time.Since(start) - time.Second; waited != MaxQueued {
			t.Errorf("the queue waited for %v, want %v", waited, MaxQueued)
		}
		b.Close()
	})
}

// TestAnswersDoNotWaitForEachOther checks that an answer reaches its caller while another request
// of its batch hangs, and that later answers to the same request are dropped.
func TestAnswersDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := New(Options[int, int]{
			Timeout: time.Minute,
			Send: func(ctx context.Context, _ []int, report func(int, answer)) {
				report(1, answer{Reply: 5})
				report(1, answer{Reply: 6})
				<-ctx.Done()
				go func() {
					time.Sleep(time.Second)
					report(0, answer{Reply: 7})
				}()
			},
		})
		fill(t, b, MaxSingles)
		start := time.Now()
		slow, quick := ask(t.Context(), t, b, 0), ask(t.Context(), t, b, 1)
		b.Leave()
		if a := <-quick; a.Reply != 5 || a.Err != nil || time.Since(start) > 0 {
			t.Errorf("the answer was %v, %v after %v", a.Reply, a.Err, time.Since(start))
		}
		wantIs(t, "the request that hangs", (<-slow).Err, ErrNoAnswer)
		time.Sleep(2 * time.Second) // for the answer that comes later
		b.Close()
	})
}

// TestSendThatPanics checks that each request of a batch gets an error if its Send ends with a
// panic or with its goroutine. The Batcher then serves other requests.
func TestSendThatPanics(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(){
		"panic": func() { panic("on purpose") }, "exit": runtime.Goexit,
	} {
		synctest.Test(t, func(t *testing.T) {
			b := New(Options[int, int]{
				Timeout: time.Minute,
				Send: func(_ context.Context, requests []int, report func(int, answer)) {
					report(0, answer{Reply: requests[0]})
					if len(requests) > 1 {
						end()
					}
				},
			})
			fill(t, b, MaxSingles)
			answers := make([]<-chan answer, 3)
			for i := range answers {
				answers[i] = ask(t.Context(), t, b, i)
			}
			b.Leave()
			if a := <-answers[0]; a.Err != nil {
				t.Errorf("%s: a request that was answered before: %v", name, a.Err)
			}
			for _, done := range answers[1:] {
				if a := <-done; a.Err == nil || errors.Is(a.Err, ErrUnsent) {
					t.Errorf("%s: %v, want an unknown outcome", name, a.Err)
				}
			}
			synctest.Wait()
			fill(t, b, 1)
			later := ask(t.Context(), t, b, 7)
			b.Leave()
			if a := <-later; a.Reply != 7 || a.Err != nil {
				t.Errorf("%s: a later request was answered with %v, %v", name, a.Reply, a.Err)
			}
			b.Close()
		})
	}
}

// stuckContext is a context of a user whose Err and Deadline block once it is in a batch.
type stuckContext struct {
	context.Context
	stuck chan struct{} // nil: they return
}

func (c *stuckContext) wait() {
	if c.stuck != nil {
		<-c.stuck
	}
}

func (c *stuckContext) Err() error {
	c.wait()
	return c.Context.Err()
}

func (c *stuckContext) Deadline() (time.Time, bool) {
	c.wait()
	return c.Context.Deadline()
}

// TestStuckContextInABatch checks that a context whose methods block holds up neither the other
// requests of its batch nor Close.
func TestStuckContextInABatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBatcher(0, &echo{})
		fill(t, b, MaxSingles)
		stuck := &stuckContext{Context: t.Context()}
		first := ask(stuck, t, b, 1)
		stuck.stuck = make(chan struct{})
		second := ask(t.Context(), t, b, 2)
		b.Leave()
		for _, done := range []<-chan answer{first, second} {
			if a := <-done; a.Err != nil {
				t.Errorf("the batch with a stuck context: %v", a.Err)
			}
		}
		b.Close()
	})
}

// TestLateRequestsAreNotSent checks that a request is not sent after its deadline, although its
// caller has not left yet: all timers of a process that was stopped fire together.
func TestLateRequestsAreNotSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &echo{}
		b := newBatcher(0, f)
		fill(t, b, MaxSingles)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		late := b.Enter(ctx, 1)
		other := ask(t.Context(), t, b, 2)
		time.Sleep(time.Second)
		b.Leave()
		<-other
		_, err := late.Await()
		wantIs(t, "a request after its deadline", err, ErrUnsent)
		if !slices.Equal(f.sizes, []int{1}) {
			t.Errorf("batches of %v, want one without the late request", f.sizes)
		}
		b.Close()
	})
}

// TestHold checks that every request enters the queue during a Hold. All of them go in one batch.
func TestHold(t *testing.T) {
	t.Parallel()
	const requests = 5
	for _, limit := range []int{0, MaxSingles + 3} {
		synctest.Test(t, func(t *testing.T) {
			f := &echo{}
			b := newBatcher(limit, f)
			for range 2 { // the second time, the batch may still be under way
				release := b.Hold()
				answers := make([]<-chan answer, requests)
				for i := range answers {
					answers[i] = ask(t.Context(), t, b, i)
				}
				time.Sleep(time.Second)
				if n := b.Len(); n != requests {
					t.Errorf("%d requests are in the queue, batches of %v were sent", n, f.sizes)
				}
				release()
				for i, done := range answers {
					if a := <-done; a.Reply != i || a.Err != nil {
						t.Errorf("request %d was answered with %v, %v", i, a.Reply, a.Err)
					}
				}
			}
			synctest.Wait()
			if !slices.Equal(f.sizes, []int{requests, requests}) || b.underWay != 0 {
				t.Errorf("batches of %v, then %d under way", f.sizes, b.underWay)
			}
			b.Close()
		})
	}
}
