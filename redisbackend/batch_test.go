package redisbackend

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestBatchOnAServer checks that each request of a batch gets the same answer as a single request.
// The server has forgotten the scripts, and the batch contains a taken lock, a foreign value and
// free locks.
func TestBatchOnAServer(t *testing.T) {
	t.Parallel()
	s := testenv.NewRedis(t)
	d, c := openURL(t, s.URL), admin(t, s)
	reqs := make([]*backend.Request, 6)
	for i := range reqs {
		reqs[i] = raw.Request(t, longTerm)
		reqs[i].Key += fmt.Sprint(i)
	}
	taken := raw.Request(t, longTerm)
	taken.Key = reqs[0].Key
	raw.Acquire(t, d, taken)
	do(t, c, "rpush", newKeys(reqs[1].Key).lock, "foreign")
	do(t, c, "script", "flush")

	grants, errs := make([]*backend.Grant, len(reqs)), make([]error, len(reqs))
	raw.Together(t, d.main.batcher, len(reqs), func(i int) {
		grants[i], errs[i] = d.Acquire(t.Context(), reqs[i])
	})
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
	raw.Together(t, d.control.batcher, 4, func(i int) {
		errs[i+2] = d.Release(t.Context(), grants[i+2])
	})
	raw.WantIs(t, "a lock that is not held", errs[2], backend.ErrNotHeld)
	if err := errors.Join(errs[3:]...); err != nil {
		t.Errorf("Release: %v", err)
	}
}

// TestBatchWithoutAnAnswer checks that each request of a batch has an unknown outcome if the answer
// to the batch is lost. The client repeats none of them.
func TestBatchWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	s := testenv.Redis(t)
	proxy := testenv.NewProxy(t, s.Addr)
	c := redis.NewClient(&redis.Options{Addr: proxy.Addr()}) // by default with three retries
	defer c.Close()
	lent, err := New(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer lent.Close()
	d := lent.(*driver)
	grants, errs := make([]*backend.Grant, 3), make([]error, 3)
	// Another lock loads the script, and a batch opens the connection.
	raw.Release(t, d, raw.Acquire(t, d, raw.Request(t, longTerm)))
	raw.Together(t, d.main.batcher, 3, func(i int) {
		req := raw.Request(t, longTerm)
		req.Key += fmt.Sprint(i)
		grants[i], errs[i] = d.Acquire(t.Context(), req)
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	proxy.DropReply(t, 1)
	raw.Together(t, d.control.batcher, 3, func(i int) {
		errs[i] = d.Release(t.Context(), grants[i])
	})
	for i, err := range errs {
		if err == nil || isDefinite(err) || errors.Is(err, backend.ErrNotHeld) {
			t.Errorf("Release whose answer is lost: %v, want an unknown outcome", err)
		}
		raw.WantIs(t, "the second Release", d.Release(t.Context(), grants[i]), backend.ErrNotHeld)
	}
}

// TestBatchOverARefusedConnection checks that a refused connection is reported to each request of a
// batch. A single request and a request that waits for replicas report it, too.
func TestBatchOverARefusedConnection(t *testing.T) {
	t.Parallel()
	s := testenv.NewRedis(t, "--requirepass", "right")
	d, c := openURL(t, s.URL), redis.NewClient(&redis.Options{Addr: s.Addr, Password: "right"})
	defer c.Close()
	waits := openURL(t, s.URL+"?wait=1")
	do(t, c, "config", "set", "requirepass", "another")
	killOthers(t, c)
	errs := make([]error, 3)
	raw.Together(t, d.main.batcher, len(errs), func(i int) {
		req := raw.Request(t, longTerm)
		req.Key += fmt.Sprint(i)
		_, errs[i] = d.Acquire(t.Context(), req)
	})
	_, alone := d.Acquire(t.Context(), raw.Request(t, longTerm))
	_, replicated := waits.Acquire(t.Context(), raw.Request(t, longTerm))
	for _, err := range append(errs, alone, replicated) {
		raw.WantIs(t, "Acquire", err, backend.ErrUnavailable)
		if !strings.Contains(fmt.Sprint(err), "WRONGPASS") {
			t.Errorf("Acquire: %v, want an error that mentions the password", err)
		}
	}
}

// TestCloseWhileABatchIsUnderWay checks that an unanswered batch does not delay Close.
func TestCloseWhileABatchIsUnderWay(t *testing.T) {
	t.Parallel()
	proxy := testenv.NewProxy(t, testenv.Redis(t).Addr)
	d, err := testenv.Open(t.Context(), "redis://"+proxy.Addr()+"?timeout=1m")
	if err != nil {
		t.Fatal(err)
	}
	proxy.Cut(t)
	errs := make(chan error, 2)
	main := d.(*driver).main
	raw.Together(t, main.batcher, cap(errs), func(i int) {
		req := raw.Request(t, longTerm)
		req.Key += fmt.Sprint(i)
		go func() {
			_, err := d.Acquire(t.Context(), req)
			errs <- err
		}()
	})
	eventually(t, "the batch has its connection", func() bool {
		stats := main.client.PoolStats()
		return stats.TotalConns > stats.IdleConns
	})
	start := time.Now()
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	for range cap(errs) {
		if err := <-errs; err == nil || errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("Acquire: %v, want an unknown outcome", err)
		}
	}
	if took := time.Since(start); took > patience {
		t.Errorf("Close took %v", took)
	}
}

func TestCloseWhileRequestsQueue(t *testing.T) {
	t.Parallel()
	d, err := testenv.Open(t.Context(), testenv.Redis(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	b := d.(*driver).main.batcher
	b.Hold()
	done := make(chan error, 1)
	go func() {
		_, err := d.Acquire(t.Context(), raw.Request(t, longTerm))
		done <- err
	}()
	raw.AwaitQueue(t, b, 1)
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	raw.WantIs(t, "a request in the queue", <-done, backend.ErrUnavailable)
}

// TestAnswerWaitsForNoScript checks that a request of a batch gets its answer while the server does
// not answer to the script of another one, which it has forgotten.
func TestAnswerWaitsForNoScript(t *testing.T) {
	t.Parallel()
	loaded := make(chan struct{})
	load := sync.OnceFunc(func() { close(loaded) })
	var sent atomic.Int32
	fake := newFakeServer(t, func(command string) string {
		switch {
		case command == "eval":
			<-loaded
		case command != "evalsha":
			return ""
		case sent.Add(1) == 1:
			return "-NOSCRIPT No matching script.\r\n"
		}
		return ":1\r\n"
	})
	defer load()
	l := connection{}.lane(fake.client(t), Options{Timeout: patience})
	defer l.close()
	d, errs := &driver{keys: newKeys}, make(chan error, 2)
	raw.Together(t, l.batcher, cap(errs), func(i int) {
		go func() {
			_, err := l.run(t.Context(), breakScript, d.newRequest(fmt.Sprint(i), "owner").with())
			errs <- err
		}()
	})
	if err := <-errs; err != nil {
		t.Errorf("the request whose script the server has: %v", err)
	}
	load()
	if err := <-errs; err != nil {
		t.Errorf("the request whose script the server has forgotten: %v", err)
	}
}

// panicHook is a hook of a lent client that panics at each pipeline.
type panicHook struct{}

func (panicHook) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (panicHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (panicHook) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(context.Context, []redis.Cmder) error { panic("on purpose") }
}

// TestPanicOfAHook checks that a hook that panics makes requests fail and does not end the process.
func TestPanicOfAHook(t *testing.T) {
	t.Parallel()
	c := redis.NewClient(&redis.Options{})
	defer c.Close()
	c.AddHook(panicHook{})
	l, d := connection{}.lane(c, Options{Timeout: patience}), &driver{keys: newKeys}
	defer l.close()
	calls := make([]call, 2)
	for i := range calls {
		r := d.newRequest(fmt.Sprint(i), "owner")
		calls[i] = call{breakScript, r.with().args, r.keys.lock}
	}
	for _, a := range l.runEach(t.Context(), calls) {
		if a.Err == nil || isDefinite(a.Err) {
			t.Errorf("a request whose hook panics: %v, want an unknown outcome", a.Err)
		}
	}
}

// TestRenewalsDoNotQueue checks that renewals use separate connections, so that no number of other
// requests delays them.
func TestRenewalsDoNotQueue(t *testing.T) {
	t.Parallel()
	d := openURL(t, testenv.Redis(t).URL)
	g := raw.Acquire(t, d, raw.Request(t, longTerm))
	freeMain, freeControl := d.main.batcher.Hold(), d.control.batcher.Hold()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := d.Renew(ctx, g); err != nil {
		t.Errorf("Renew: %v", err)
	}
	freeMain()
	freeControl()
	raw.Release(t, d, g)
}
