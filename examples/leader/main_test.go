package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/examples/leader/leaderelection"
	"github.com/dlock-go/dlock/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// servers are the URLs of a backend without a server and of a real server.
var servers = map[string]func(tb testenv.TB) string{
	"mem":   func(tb testenv.TB) string { return "mem:" + filepath.Base(tb.TempDir()) },
	"redis": func(tb testenv.TB) string { return testenv.Redis(tb).URL },
}

// patience limits the wait for an event.
const patience = 30 * time.Second

// event is a call of OnStartedLeading or OnStoppedLeading.
type event struct {
	identity string
	started  bool
	fence    uint64 // of a start
}

// election is several candidates in one process, each with its own client.
type election struct {
	t      *testing.T
	url    string
	name   string
	events chan event
	all    sync.WaitGroup

	mu      sync.Mutex
	working string // the leader whose OnStartedLeading runs
	overlap bool   // there were two
}

func newElection(t *testing.T, url string) *election {
	t.Helper()
	return &election{t: t, url: url, name: t.Name(), events: make(chan event, 100)}
}

// candidate is one of them.
type candidate struct {
	identity string
	client   *dlock.Client
	cancel   context.CancelFunc
	leaders  chan string // the calls of OnNewLeader
}

// stand starts a candidate, which stands again after each loss.
func (e *election) stand(identity string, opts ...dlock.Option) *candidate {
	e.t.Helper()
	client, err := dlock.Open(e.t.Context(), e.url, opts...)
	if err != nil {
		e.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(e.t.Context())
	c := &candidate{identity, client, cancel, make(chan string, 100)}
	config := leaderelection.LeaderElectionConfig{
		Client: client, Name: e.name, Identity: identity, LeaseDuration: time.Minute,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { e.work(ctx, identity) },
			OnStoppedLeading: func() { e.events <- event{identity: identity} },
			OnNewLeader:      func(leader string) { c.leaders <- leader },
		},
	}
	e.all.Go(func() {
		defer client.Close()
		for ctx.Err() == nil {
			err := leaderelection.Run(ctx, config)
			if err != nil && !errors.Is(err, context.Canceled) {
				e.t.Errorf("%s: %v", identity, err)
				return
			}
		}
	})
	return c
}

// work is the work of a leader.
func (e *election) work(ctx context.Context, identity string) {
	e.swap("", identity)
	e.events <- event{identity, true, leaderelection.Fence(ctx)}
	<-ctx.Done()
	e.swap(identity, "")
}

func (e *election) swap(from, to string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.overlap = e.overlap || e.working != from
	e.working = to
}

// next returns the next event.
func (e *election) next() event { e.t.Helper(); return await(e.t, e.events) }

// await receives from ch.
func await[T any](t *testing.T, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(patience):
		t.Fatal("nothing happened")
	}
	return v
}

// awaitLeader waits until c has observed leader.
func (e *election) awaitLeader(c *candidate, leader string) {
	e.t.Helper()
	for observed := ""; observed != leader; {
		observed = await(e.t, c.leaders)
	}
}

// end cancels the candidates, and checks that at most one led at a time.
func (e *election) end(candidates ...*candidate) {
	e.t.Helper()
	for _, c := range candidates {
		c.cancel()
	}
	e.all.Wait()
	if e.overlap {
		e.t.Error("two leaders worked at the same time")
	}
}

// TestCancelledLeaders cancels each leader, until each candidate has led.
func TestCancelledLeaders(t *testing.T) {
	t.Parallel()
	for scheme, url := range servers {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			e := newElection(t, url(t))
			standing := []*candidate{e.stand("a"), e.stand("b"), e.stand("c")}
			defer e.end(standing...)
			for fence := uint64(0); len(standing) > 0; {
				start := e.next()
				if !start.started || start.fence <= fence {
					t.Fatalf("%+v after the fence %d, want a start with a higher one", start, fence)
				}
				fence = start.fence
				for _, c := range standing {
					e.awaitLeader(c, start.identity)
				}
				i := slices.IndexFunc(standing, func(c *candidate) bool {
					return c.identity == start.identity
				})
				if i < 0 {
					t.Fatalf("%s leads after it was cancelled", start.identity)
				}
				standing[i].cancel()
				standing = slices.Delete(slices.Clone(standing), i, i+1)
				if stop := e.next(); stop.started || stop.identity != start.identity {
					t.Fatalf("%+v, want the stop of %s", stop, start.identity)
				}
			}
		})
	}
}

// TestLostLeases ends each lease, as lost, after a while. The lock is free when the leader has
// stopped, so each start follows the stop before it.
func TestLostLeases(t *testing.T) {
	t.Parallel()
	for scheme, url := range servers {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			e := newElection(t, url(t))
			var candidates []*candidate
			for _, identity := range []string{"a", "b", "c"} {
				c := e.stand(identity, dlock.WithMaxHold(200*time.Millisecond))
				candidates = append(candidates, c)
			}
			defer e.end(candidates...)
			for range 5 {
				start, stop := e.next(), e.next()
				if !start.started || stop.started || start.identity != stop.identity {
					t.Fatalf("%+v and %+v, want a start and its stop", start, stop)
				}
			}
		})
	}
}

// TestBrokenLock takes the lock from a leader, which stops before it leads again.
func TestBrokenLock(t *testing.T) {
	t.Parallel()
	for scheme, url := range servers {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			e := newElection(t, url(t))
			a := e.stand("a")
			defer a.cancel()
			if start := e.next(); start.identity != "a" || !start.started {
				t.Fatalf("%+v, want the start of a", start)
			}
			if err := a.client.Break(t.Context(), e.name, ""); err != nil {
				t.Fatal(err)
			}
			stop, again := e.next(), e.next()
			if stop.started || !again.started {
				t.Errorf("%+v and %+v, want the stop and another start", stop, again)
			}
			e.end(a)
		})
	}
}

// TestBadConfig checks that Run reports a missing callback, and the error of a closed client.
func TestBadConfig(t *testing.T) {
	t.Parallel()
	client, err := dlock.Open(t.Context(), "mem:"+t.Name())
	if err != nil {
		t.Fatal(err)
	}
	config := leaderelection.LeaderElectionConfig{Client: client, Name: "n"}
	if err := leaderelection.Run(t.Context(), config); err == nil {
		t.Error("Run without callbacks returned nil")
	}
	config.Callbacks.OnStartedLeading = func(context.Context) { t.Error("it leads") }
	config.Callbacks.OnStoppedLeading = func() { t.Error("it stops") }
	client.Close()
	if err := leaderelection.Run(t.Context(), config); !errors.Is(err, dlock.ErrClosed) {
		t.Errorf("Run with a closed client returned %v, want ErrClosed", err)
	}
}

// TestRun checks what the command prints.
func TestRun(t *testing.T) {
	t.Parallel()
	in, out := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = out.CloseWithError(run(ctx, "mem:"+t.Name(), "a", out)) })
	defer running.Wait()
	defer cancel()
	lines := bufio.NewScanner(in)
	var got []string
	for lines.Scan() {
		got = append(got, strings.TrimRight(lines.Text(), "0123456789")) // without the fence
		if len(got) == 2 {
			cancel()
		}
	}
	want := []string{
		"a: started leading with the fence ", "a: stopped leading", "a: the leader is a",
	}
	if slices.Sort(got); lines.Err() != nil || !slices.Equal(got, want) {
		t.Errorf("got %q and %v, want %q", got, lines.Err(), want)
	}
}
