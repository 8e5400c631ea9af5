package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/measure"
	"github.com/dlock-go/dlock/internal/bound"
)

const (
	ttl   = 10 * time.Second
	limit = 3 * time.Second
)

// script is a server with one lock after the other: its connections answer as a test wants. It
// checks the order of requests, not a promise about servers.
type script struct {
	mu     sync.Mutex
	dial   time.Duration           // how long connecting takes
	delay  time.Duration           // of each answer
	refuse func(what string) error // the answers; nil: success
	closed func()                  // called before the driver closes a connection
	free   bool                    // the answers of IsFree
	conns  []*scripted
	log    []string
}

type scripted struct {
	script *script
	ended  chan struct{}
	close  func()
}

func (s *script) connect(context.Context) (Conn, error) {
	time.Sleep(s.dial)
	c := &scripted{script: s, ended: make(chan struct{})}
	c.close = sync.OnceFunc(func() { close(c.ended) })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = append(s.conns, c)
	return c, nil
}

func (c *scripted) answer(what, id string) error {
	c.script.mu.Lock()
	c.script.log = append(c.script.log, what+id)
	delay, err := c.script.delay, error(nil)
	if c.script.refuse != nil {
		err = c.script.refuse(what)
	}
	c.script.mu.Unlock()
	select {
	case <-time.After(delay):
		return err
	case <-c.ended:
		return errors.New("closed")
	}
}

func (c *scripted) Lock(id string) (uint64, error) { return 7, c.answer("lock ", id) }
func (c *scripted) Unlock(id string) error         { return c.answer("unlock ", id) }
func (c *scripted) IsFree(id string) (bool, error) { return c.script.free, c.answer("free ", id) }
func (c *scripted) Prove() error                   { return c.answer("prove", "") }
func (c *scripted) Ended() <-chan struct{}         { return c.ended }

func (c *scripted) TryLock(id string) (bool, error) { return true, c.answer("try ", id) }

func (c *scripted) Count() (measure.Counts, error) {
	return measure.Counts{}, c.answer("count", "")
}

func (c *scripted) Close() {
	if c.script.closed != nil {
		c.script.closed()
	}
	c.close()
}

// on opens a driver over a script, in a bubble.
func on(t *testing.T, test func(t *testing.T, d *Driver, s *script)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		d := opened(t, s)
		test(t, d, s)
		if err := d.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		synctest.Wait()
	})
}

func opened(t *testing.T, s *script) *Driver {
	t.Helper()
	d, err := Open(t.Context(), Server{
		Connect: s.connect, TTL: ttl, MinTTL: time.Millisecond, Timeout: limit,
		ID: func(key string) string { return key[:1] }, // so that keys can collide
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func request(key, owner string) *backend.Request {
	return &backend.Request{Key: key, Owner: owner, TTL: ttl, Mode: backend.Exclusive}
}

// acquired acquires a lock, and returns its grant and the channel with its loss.
func acquired(t *testing.T, d *Driver, key, owner string) (*backend.Grant, chan error) {
	t.Helper()
	lost := make(chan error, 1)
	req := request(key, owner)
	req.Lost = func(err error) { lost <- err }
	g, err := d.Acquire(t.Context(), req)
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	return g, lost
}

func wantIs(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// TestCollisionsAreRefused has two keys with the same hash.
func TestCollisionsAreRefused(t *testing.T) {
	on(t, func(t *testing.T, d *Driver, s *script) {
		t.Helper()
		g, _ := acquired(t, d, "a1", "x")
		_, err := d.Acquire(t.Context(), request("a2", "y"))
		wantIs(t, "Acquire of another key with the same hash", err, backend.ErrConflict)
		other := &backend.Grant{Request: *request("a2", "x")}
		wantIs(t, "Release of another key with the same hash",
			d.Release(t.Context(), other), backend.ErrNotHeld)
		if _, err := d.Renew(t.Context(), other); !errors.Is(err, backend.ErrLost) {
			t.Errorf("Renew of another key with the same hash: %v", err)
		}
		if err := d.Release(t.Context(), g); err != nil {
			t.Errorf("Release: %v", err)
		}
	})
}

// TestHeldLockIsNotRequested checks that a server, which would grant a lock of this connection once
// more, is not asked.
func TestHeldLockIsNotRequested(t *testing.T) {
	on(t, func(t *testing.T, d *Driver, s *script) {
		t.Helper()
		acquired(t, d, "a", "x")
		_, err := d.Acquire(t.Context(), request("a", "y"))
		wantIs(t, "Acquire of a held lock", err, backend.ErrNotAcquired)
		other := &backend.Grant{Request: *request("a", "y")}
		wantIs(t, "Release by another owner", d.Release(t.Context(), other), backend.ErrNotHeld)
		if len(s.log) != 1 {
			t.Errorf("requests %q", s.log)
		}
	})
}

// TestEndOfAConnectionLosesAllLocks also checks that the next request makes another connection.
func TestEndOfAConnectionLosesAllLocks(t *testing.T) {
	on(t, func(t *testing.T, d *Driver, s *script) {
		t.Helper()
		g, first := acquired(t, d, "a", "x")
		_, second := acquired(t, d, "b", "x")
		s.conns[0].close()
		for _, lost := range []chan error{first, second} {
			if err := <-lost; !errors.Is(err, backend.ErrLost) {
				t.Errorf("the loss is %v", err)
			}
		}
		if _, err := d.Renew(t.Context(), g); !errors.Is(err, backend.ErrLost) {
			t.Errorf("Renew: %v", err)
		}
		if err := d.Release(t.Context(), g); !errors.Is(err, backend.ErrNotHeld) {
			t.Errorf("Release: %v", err)
		}
		acquired(t, d, "a", "y")
		if len(s.conns) != 2 {
			t.Errorf("%d connections", len(s.conns))
		}
	})
}

// TestLossesAreReportedBeforeTheConnectionEnds ends a connection for two causes at the same time.
// The server frees its locks after that.
func TestLossesAreReportedBeforeTheConnectionEnds(t *testing.T) {
	on(t, func(t *testing.T, d *Driver, s *script) {
		t.Helper()
		reported := make(chan error, 2)
		for _, key := range []string{"a", "b"} {
			req := request(key, "x")
			req.Lost = func(err error) {
				time.Sleep(time.Second)
				reported <- err
			}
			if _, err := d.Acquire(t.Context(), req); err != nil {
				t.Fatal(err)
			}
		}
		s.closed = func() {
			if len(reported) < 2 {
				t.Errorf("the connection is closed when %d losses are reported", len(reported))
			}
		}
		begun, present := time.Now(), d.present
		var failures sync.WaitGroup
		for range 2 {
			failures.Go(func() { _ = d.end(present, errNoAnswer) })
		}
		failures.Wait()
		if took := time.Since(begun); took > time.Second {
			t.Errorf("the reports took %v", took)
		}
	})
}

// TestReleaseOrders has an Acquire that was given up while the server executes it. Its release is
// executed after it, and finds the lock.
func TestReleaseOrders(t *testing.T) {
	on(t, func(t *testing.T, d *Driver, s *script) {
		t.Helper()
		s.delay = 2 * time.Second
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		req := request("a", "x")
		if _, err := d.Acquire(ctx, req); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Acquire: %v", err)
		}
		if err := d.Release(t.Context(), &backend.Grant{Request: *req}); err != nil {
			t.Errorf("Release: %v", err)
		}
	})
}

// quiet is a context without a signal of its end, such as backend.DeadlineOnly returns.
type quiet struct{ context.Context }

func (quiet) Done() <-chan struct{} { return nil }

// TestRequestThatWasGivenUpIsNotSent gives up requests that wait for the connection.
func TestRequestThatWasGivenUpIsNotSent(t *testing.T) {
	on(t, func(t *testing.T, d *Driver, s *script) {
		t.Helper()
		g, _ := acquired(t, d, "a", "x")
		s.delay = 2 * time.Second
		go func() { _, _ = d.Acquire(context.Background(), request("b", "x")) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		acquire := func(ctx context.Context) error {
			_, err := d.Acquire(ctx, request("c", "x"))
			return err
		}
		release := func(ctx context.Context) error { return d.Release(ctx, g) }
		var requests sync.WaitGroup
		for what, send := range map[string]func(context.Context) error{
			"Acquire": acquire, "Release": release,
		} {
			for _, ctx := range []context.Context{ctx, quiet{ctx}} {
				requests.Go(func() { wantNotBegun(t, what, send(ctx)) })
			}
		}
		requests.Wait()
		time.Sleep(time.Hour)
		synctest.Wait()
		if want := []string{"lock a", "lock b"}; !slices.Equal(s.log, want) {
			t.Errorf("requests %q, want %q", s.log, want)
		}
	})
}

// TestRequestIsGivenUpWhileItConnects gives up requests while the first of them makes a connection.
func TestRequestIsGivenUpWhileItConnects(t *testing.T) {
	on(t, func(t *testing.T, d *Driver, s *script) {
		t.Helper()
		s.conns[0].close()
		synctest.Wait()
		s.dial = 2 * time.Second
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var requests sync.WaitGroup
		for range 2 {
			requests.Go(func() {
				_, err := d.Acquire(ctx, request("a", "x"))
				wantNotBegun(t, "Acquire", err)
			})
		}
		requests.Wait()
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(s.log) != 0 || len(s.conns) != 2 {
			t.Errorf("%d connections, requests %q", len(s.conns), s.log)
		}
	})
}

// TestReleaseDoesNotWaitForAConnection releases a lock whose connection has ended, while another
// request makes the next connection.
func TestReleaseDoesNotWaitForAConnection(t *testing.T) {
	on(t, func(t *testing.T, d *Driver, s *script) {
		t.Helper()
		g, _ := acquired(t, d, "a", "x")
		s.conns[0].close()
		synctest.Wait()
		s.dial = 8 * time.Second
		go func() { _, _ = d.Acquire(context.Background(), request("b", "x")) }()
		synctest.Wait()
		begun := time.Now()
		wantIs(t, "Release", d.Release(t.Context(), g), backend.ErrNotHeld)
		if took := time.Since(begun); took > 0 {
			t.Errorf("Release took %v", took)
		}
	})
}

// wantNotBegun checks the error of a request whose deadline was over before it began.
func wantNotBegun(t *testing.T, what string, err error) {
	t.Helper()
	wantIs(t, what, err, backend.ErrUnavailable)
	wantIs(t, what, err, context.DeadlineExceeded)
}

// stopped is a context whose second call of Err has its answer, and returns it later.
type stopped struct {
	context.Context
	calls atomic.Int32
	goOn  chan struct{}
}

func (s *stopped) Err() error {
	err := s.Context.Err()
	if s.calls.Add(1) == 2 {
		<-s.goOn
	}
	return err
}

// TestRequestBeginsOrIsGivenUp gives up an Acquire while it begins: it has just read that its
// context lives.
func TestRequestBeginsOrIsGivenUp(t *testing.T) {
	on(t, func(t *testing.T, d *Driver, s *script) {
		t.Helper()
		parent, cancel := context.WithCancel(t.Context())
		defer cancel()
		ctx := &stopped{Context: parent, goOn: make(chan struct{})}
		failed := make(chan error, 1)
		go func() {
			_, err := d.Acquire(ctx, request("a", "x"))
			failed <- err
		}()
		synctest.Wait()
		cancel()
		wantIs(t, "Acquire", <-failed, backend.ErrUnavailable)
		close(ctx.goOn)
		synctest.Wait()
		if len(s.log) != 0 {
			t.Errorf("requests %q", s.log)
		}
	})
}

// TestIdleConnectionIsReplaced acquires a lock after pauses, also in place. Without a lock, the
// server may be about to end a connection that was idle for long.
func TestIdleConnectionIsReplaced(t *testing.T) {
	for what, ctxOf := range map[string]func(t *testing.T) context.Context{
		"cancellable": (*testing.T).Context,
		"in place":    func(*testing.T) context.Context { return context.Background() },
	} {
		t.Run(what, func(t *testing.T) {
			on(t, func(t *testing.T, d *Driver, s *script) {
				t.Helper()
				checkIdle(ctxOf(t), t, d, s)
			})
		})
	}
}

func checkIdle(ctx context.Context, t *testing.T, d *Driver, s *script) {
	t.Helper()
	acquire := func(key string) *backend.Grant {
		g, err := d.Acquire(ctx, request(key, "x"))
		if err != nil {
			t.Fatalf("Acquire: %v", err)
		}
		return g
	}
	for idle, conns := range []int{1, 2} {
		time.Sleep(ttl/2 + time.Duration(idle))
		g := acquire("a")
		if len(s.conns) != conns {
			t.Errorf("%d connections, want %d", len(s.conns), conns)
		}
		if err := d.Release(ctx, g); err != nil {
			t.Errorf("Release: %v", err)
		}
	}
	acquire("a")
	time.Sleep(ttl - 1)
	acquire("b")
	if len(s.conns) != 2 {
		t.Errorf("with a lock there are %d connections, want 2", len(s.conns))
	}
}

// TestRequestInPlaceEndsInTime makes requests without a cancellation on a server that does not
// answer. A statement that may take longer than its request has must not be executed on the
// goroutine of the caller, and goes on when the caller has returned.
func TestRequestInPlaceEndsInTime(t *testing.T) {
	for what, c := range map[string]struct {
		held, limit, want time.Duration
	}{
		"the statement ends first":       {0, 4 * time.Second, limit},
		"the request ends first":         {0, 2 * time.Second, 2 * time.Second},
		"a held lock needs patience":     {ttl, 4 * time.Second, 4 * time.Second},
		"a held lock is of a short term": {time.Second, 4 * time.Second, limit},
	} {
		t.Run(what, func(t *testing.T) {
			on(t, func(t *testing.T, d *Driver, s *script) {
				t.Helper()
				g, _ := acquired(t, d, "a", "x")
				if c.held > 0 {
					req := request("b", "x")
					req.TTL = c.held
					if _, err := d.Acquire(t.Context(), req); err != nil {
						t.Fatal(err)
					}
				}
				s.delay = time.Hour
				b := bound.New(context.Background(), c.limit)
				defer b.Cancel()
				wantWait(t, c.want, func() { _ = d.Release(b, g) })
				if ended := d.present == nil; ended != (c.want == limit) {
					t.Errorf("the connection has ended: %v", ended)
				}
			})
		})
	}
}

// TestRequestInPlaceIsGivenUp has a context that has ended, and makes no request. The next request
// has the turn.
func TestRequestInPlaceIsGivenUp(t *testing.T) {
	on(t, func(t *testing.T, d *Driver, s *script) {
		t.Helper()
		b := bound.New(context.Background(), limit+time.Second)
		b.Cancel()
		_, err := d.Acquire(b, request("a", "x"))
		wantIs(t, "Acquire", err, context.Canceled)
		wantIs(t, "Acquire", err, backend.ErrUnavailable)
		if _, err := d.Acquire(context.Background(), request("b", "x")); err != nil {
			t.Errorf("Acquire: %v", err)
		}
		if want := []string{"lock b"}; !slices.Equal(s.log, want) {
			t.Errorf("requests %q, want %q", s.log, want)
		}
	})
}

// TestSuspendMakesAProofOld has a proof from before a suspend, in which the monotonic clock stood
// still. No function of package time can make such a time: the first word of a time.Time has the
// seconds of the wall clock above 30 bits of nanoseconds. The clock of testing/synctest has no
// monotonic reading, so this test runs in real time.
func TestSuspendMakesAProofOld(t *testing.T) {
	t.Parallel()
	s := &script{}
	d := opened(t, s)
	defer d.Close()
	g, _ := acquired(t, d, "a", "x")
	d.mu.Lock()
	*(*uint64)(unsafe.Pointer(&d.present.proved)) -= uint64(ttl/time.Second) << 30
	d.mu.Unlock()
	answers := d.RenewAll(t.Context(), []*backend.Grant{g})
	if want := []string{"lock a", "prove"}; answers[0].Err != nil || !slices.Equal(s.log, want) {
		t.Errorf("%+v, requests %q, want %q", answers[0], s.log, want)
	}
}

// TestTermsCountFromSending checks the terms of a grant, of a renewal, and of a proof by another
// request.
func TestTermsCountFromSending(t *testing.T) {
	on(t, func(t *testing.T, d *Driver, s *script) {
		t.Helper()
		s.delay = time.Second
		begun := time.Now()
		g, _ := acquired(t, d, "a", "x")
		if !g.Term.Sent.Equal(begun) || g.Term.TTL != ttl {
			t.Errorf("the term of the grant begins %v after it was sent", g.Term.Sent.Sub(begun))
		}
		time.Sleep(ttl / 2)
		begun = time.Now()
		acquired(t, d, "b", "x")
		requests := len(s.log)
		answers := d.RenewAll(t.Context(), []*backend.Grant{g})
		if !answers[0].Term.Sent.Equal(begun) || len(s.log) != requests {
			t.Errorf("a fresh proof: %+v, requests %q", answers[0], s.log)
		}
		time.Sleep(ttl / 2)
		begun = time.Now()
		answers = d.RenewAll(t.Context(), []*backend.Grant{g})
		if !answers[0].Term.Sent.Equal(begun) || len(s.log) != requests+1 {
			t.Errorf("an old proof: %+v, requests %q", answers[0], s.log)
		}
	})
}

// TestSlowServerCostsNoLock has a server that answers only just before it could end the connection,
// and then not at all.
func TestSlowServerCostsNoLock(t *testing.T) {
	on(t, func(t *testing.T, d *Driver, s *script) {
		t.Helper()
		g, lost := acquired(t, d, "a", "x")
		s.delay = ttl - 1
		if _, err := d.Renew(t.Context(), g); err != nil {
			t.Errorf("Renew: %v", err)
		}
		s.delay = time.Hour
		begun := time.Now()
		_, _ = d.Renew(t.Context(), g)
		if took := time.Since(begun); took > ttl {
			t.Errorf("the driver waited %v for a server that must have ended the connection", took)
		}
		wantIs(t, "the loss", <-lost, backend.ErrLost)
		wantWait(t, limit, func() { _, _ = d.Acquire(t.Context(), request("a", "y")) })
	})
}

// TestShortTermsNeedNoPatience has a lock with a short term on a connection that would last for
// longer. A lock with a longer term was released meanwhile. When the short term is over, the
// connection is not worth waiting for.
func TestShortTermsNeedNoPatience(t *testing.T) {
	on(t, func(t *testing.T, d *Driver, s *script) {
		t.Helper()
		g := acquiredShort(t, d)
		long, _ := acquired(t, d, "b", "x")
		if err := d.Release(t.Context(), long); err != nil {
			t.Fatal(err)
		}
		s.delay = time.Hour
		wantWait(t, ttl/2, func() { _, _ = d.Renew(t.Context(), g) })
	})
}

// TestLongerTermsNeedPatience prolongs a short term, by a renewal or by another Acquire.
func TestLongerTermsNeedPatience(t *testing.T) {
	for what, prolong := range map[string]func(d *Driver, g *backend.Grant) error{
		"Renew": func(d *Driver, g *backend.Grant) error {
			_, err := d.Renew(context.Background(), g)
			return err
		},
		"Acquire": func(d *Driver, g *backend.Grant) error {
			_, err := d.Acquire(context.Background(), &g.Request)
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			on(t, func(t *testing.T, d *Driver, s *script) {
				t.Helper()
				g := acquiredShort(t, d)
				g.TTL = ttl
				if err := prolong(d, g); err != nil {
					t.Fatal(err)
				}
				s.delay = time.Hour
				wantWait(t, ttl, func() { _, _ = d.Renew(t.Context(), g) })
			})
		})
	}
}

// TestReleaseNeedsNoPatience has a release without an answer. The end of the connection frees the
// lock, too.
func TestReleaseNeedsNoPatience(t *testing.T) {
	on(t, func(t *testing.T, d *Driver, s *script) {
		t.Helper()
		g, _ := acquired(t, d, "a", "x")
		s.delay = time.Hour
		wantWait(t, limit, func() { _ = d.Release(t.Context(), g) })
	})
}

// acquiredShort acquires a lock with half of the usual term.
func acquiredShort(t *testing.T, d *Driver) *backend.Grant {
	t.Helper()
	req := request("a", "x")
	req.TTL = ttl / 2
	g, err := d.Acquire(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// wantWait checks how long a request waits for an answer.
func wantWait(t *testing.T, want time.Duration, request func()) {
	t.Helper()
	begun := time.Now()
	request()
	if took := time.Since(begun); took != want {
		t.Errorf("the driver waited for %v, want %v", took, want)
	}
}

// TestRefusalCostsNoLock has a server that refuses a request and keeps the connection.
func TestRefusalCostsNoLock(t *testing.T) {
	on(t, func(t *testing.T, d *Driver, s *script) {
		t.Helper()
		g, _ := acquired(t, d, "a", "x")
		s.refuse = func(what string) error {
			if what == "lock " {
				return backend.ErrUnavailable
			}
			return nil
		}
		_, err := d.Acquire(t.Context(), request("b", "x"))
		wantIs(t, "Acquire", err, backend.ErrUnavailable)
		if _, err := d.Renew(t.Context(), g); err != nil {
			t.Errorf("Renew: %v", err)
		}
	})
}

// TestWhatProvesNothing makes requests whose outcome proves no lock. The next renewal sends one.
func TestWhatProvesNothing(t *testing.T) {
	on(t, func(t *testing.T, d *Driver, s *script) {
		t.Helper()
		g, _ := acquired(t, d, "a", "x")
		s.refuse = func(what string) error {
			if what == "lock " {
				return backend.ErrUnavailable
			}
			return nil
		}
		for what, send := range map[string]func(){
			"a floor":   func() { _ = d.Floor(t.Context(), "b", "x") },
			"counters":  func() { _, _ = d.Counters(t.Context()) },
			"a refusal": func() { _, _ = d.Acquire(t.Context(), request("b", "x")) },
		} {
			time.Sleep(ttl / 2)
			send()
			requests := len(s.log)
			answers := d.RenewAll(t.Context(), []*backend.Grant{g})
			if answers[0].Err != nil || len(s.log) != requests+1 {
				t.Errorf("after %s: %+v, requests %q", what, answers[0], s.log)
			}
		}
	})
}

// TestReleasesPassAcquisitions has many requests for locks that wait for the connection. A release
// and a renewal pass all of them, except the request that is under way.
func TestReleasesPassAcquisitions(t *testing.T) {
	on(t, func(t *testing.T, d *Driver, s *script) {
		t.Helper()
		released, _ := acquired(t, d, "a", "x")
		renewed, _ := acquired(t, d, "b", "x")
		s.delay = time.Second
		for key := 'c'; key <= 'z'; key++ {
			go func() { _, _ = d.Acquire(context.Background(), request(string(key), "x")) }()
		}
		synctest.Wait()
		begun := time.Now()
		var both sync.WaitGroup
		both.Go(func() {
			if err := d.Release(t.Context(), released); err != nil {
				t.Errorf("Release: %v", err)
			}
		})
		both.Go(func() {
			if _, err := d.Renew(t.Context(), renewed); err != nil {
				t.Errorf("Renew: %v", err)
			}
		})
		both.Wait()
		if took := time.Since(begun); took > 3*s.delay {
			t.Errorf("both took %v, requests %q", took, s.log)
		}
	})
}

// TestFloorHasALockOfItsOwn measures the floor of a lock that is held.
func TestFloorHasALockOfItsOwn(t *testing.T) {
	on(t, func(t *testing.T, d *Driver, s *script) {
		t.Helper()
		acquired(t, d, "a", "x")
		if err := d.Floor(t.Context(), "a", "y"); err != nil {
			t.Errorf("Floor: %v", err)
		}
		if want := []string{"lock a", "try \x00", "unlock \x00"}; !slices.Equal(s.log, want) {
			t.Errorf("requests %q, want %q", s.log, want)
		}
	})
}

// TestFloorThatWasGivenUpLeavesNoLock gives up a Floor during its first statement.
func TestFloorThatWasGivenUpLeavesNoLock(t *testing.T) {
	on(t, func(t *testing.T, d *Driver, s *script) {
		t.Helper()
		s.delay = 2 * time.Second
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantIs(t, "Floor", d.Floor(ctx, "a", "x"), context.DeadlineExceeded)
		time.Sleep(time.Hour)
		synctest.Wait()
		if want := []string{"try \x00", "unlock \x00"}; !slices.Equal(s.log, want) {
			t.Errorf("requests %q, want %q", s.log, want)
		}
	})
}

// TestUnlockThatEndsTheConnectionIsNoLoss loses the connection during an Unlock. Nothing shows
// whether the server had ended it before, so that another client could get the lock.
func TestUnlockThatEndsTheConnectionIsNoLoss(t *testing.T) {
	on(t, func(t *testing.T, d *Driver, s *script) {
		t.Helper()
		g, lost := acquired(t, d, "a", "x")
		_, other := acquired(t, d, "b", "x")
		s.refuse = func(string) error { return errors.New("reset") }
		if err := d.Release(t.Context(), g); err == nil || errors.Is(err, backend.ErrNotHeld) {
			t.Errorf("Release: %v", err)
		}
		wantIs(t, "the loss of the other lock", <-other, backend.ErrLost)
		select {
		case err := <-lost:
			t.Errorf("the lock that was released is reported: %v", err)
		default:
		}
		wantUnknown(t, d.Release(t.Context(), g))
	})
}

// TestUnlockWithoutAnAnswerStaysUnknown repeats a Release whose Unlock the server has not answered.
// The server may not have received it, and keeps the lock until it notices the end of the
// connection.
func TestUnlockWithoutAnAnswerStaysUnknown(t *testing.T) {
	on(t, func(t *testing.T, d *Driver, s *script) {
		t.Helper()
		sent := time.Now()
		g := inDoubt(t, d, s)
		for _, other := range []*backend.Request{request("a", "y"), request("a2", "x")} {
			wantIs(t, "Release of another lock",
				d.Release(t.Context(), &backend.Grant{Request: *other}), backend.ErrNotHeld)
		}
		time.Sleep(time.Until(sent.Add(ttl - 1)))
		wantUnknown(t, d.Release(t.Context(), g))
		time.Sleep(time.Nanosecond)
		wantIs(t, "Release after the term", d.Release(t.Context(), g), backend.ErrNotHeld)
		if want := []string{"lock a", "unlock a", "free a"}; !slices.Equal(s.log, want) {
			t.Errorf("requests %q, want %q", s.log, want)
		}
	})
}

// TestFreeLockEndsADoubt repeats a Release when the lock is free. Until its Unlock has returned, it
// is unknown nevertheless: another client could have had the lock before the Unlock.
func TestFreeLockEndsADoubt(t *testing.T) {
	on(t, func(t *testing.T, d *Driver, s *script) {
		t.Helper()
		s.free = true
		sent := time.Now()
		g := inDoubt(t, d, s)
		time.Sleep(time.Until(sent.Add(unlockLimit - 1)))
		wantUnknown(t, d.Release(t.Context(), g))
		time.Sleep(time.Nanosecond)
		for range 2 {
			wantIs(t, "Release of a free lock", d.Release(t.Context(), g), backend.ErrNotHeld)
		}
		if want := []string{"lock a", "unlock a", "free a"}; !slices.Equal(s.log, want) {
			t.Errorf("requests %q, want %q", s.log, want)
		}
	})
}

// TestReleaseWaitsForAnUnlock repeats a Release that was given up, while its Unlock is under way.
func TestReleaseWaitsForAnUnlock(t *testing.T) {
	on(t, func(t *testing.T, d *Driver, s *script) {
		t.Helper()
		g, _ := acquired(t, d, "a", "x")
		s.delay = time.Hour
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantIs(t, "Release", d.Release(ctx, g), context.DeadlineExceeded)
		wantUnknown(t, d.Release(t.Context(), g))
		if d.present != nil {
			t.Error("the connection has not ended")
		}
	})
}

// TestLockEndsDoubts acquires a lock after an Unlock without an answer. So that lock was free.
func TestLockEndsDoubts(t *testing.T) {
	on(t, func(t *testing.T, d *Driver, s *script) {
		t.Helper()
		g := inDoubt(t, d, s)
		next, _ := acquired(t, d, "a", "y")
		wantIs(t, "Release", d.Release(t.Context(), g), backend.ErrNotHeld)
		if err := d.Release(t.Context(), next); err != nil {
			t.Errorf("Release of the next holder: %v", err)
		}
	})
}

// TestSettleKeepsALaterDoubt settles the doubt of an owner after a later owner has left one.
func TestSettleKeepsALaterDoubt(t *testing.T) {
	on(t, func(t *testing.T, d *Driver, s *script) {
		t.Helper()
		former := d.doubts[inDoubt(t, d, s).Key]
		later := former
		later.owner = "y"
		d.doubts[later.id] = later
		d.settle(former)
		if u := d.doubts[later.id]; u.owner != later.owner {
			t.Errorf("the doubt is %v, want %v", u, later)
		}
		d.settle(later)
		if len(d.doubts) > 0 {
			t.Errorf("the driver has %v", d.doubts)
		}
	})
}

// TestOldDoubtsAreDropped makes a connection when the term of an Unlock without an answer is over.
func TestOldDoubtsAreDropped(t *testing.T) {
	on(t, func(t *testing.T, d *Driver, s *script) {
		t.Helper()
		inDoubt(t, d, s)
		time.Sleep(ttl)
		acquired(t, d, "b", "x")
		if len(d.doubts) > 0 {
			t.Errorf("the driver has %v", d.doubts)
		}
	})
}

// inDoubt acquires a lock, and releases it while the server does not answer.
func inDoubt(t *testing.T, d *Driver, s *script) *backend.Grant {
	t.Helper()
	g, _ := acquired(t, d, "a", "x")
	s.delay = time.Hour
	wantUnknown(t, d.Release(t.Context(), g))
	wantUnknown(t, d.Release(t.Context(), g))
	s.delay = 0
	return g
}

// wantUnknown checks that the outcome of a Release is unknown.
func wantUnknown(t *testing.T, err error) {
	t.Helper()
	if err == nil || errors.Is(err, backend.ErrNotHeld) || errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("Release: %v, want an unknown outcome", err)
	}
}

// TestUnlockDetectsAReader has a server that frees a lock, and whose locks exclude no client any
// more.
func TestUnlockDetectsAReader(t *testing.T) {
	on(t, func(t *testing.T, d *Driver, s *script) {
		t.Helper()
		g, _ := acquired(t, d, "a", "x")
		other, lost := acquired(t, d, "b", "x")
		s.refuse = func(string) error { return fmt.Errorf("a reader: %w", ErrFreed) }
		if err := d.Release(t.Context(), g); err != nil {
			t.Errorf("Release: %v", err)
		}
		wantIs(t, "the loss of the other lock", <-lost, backend.ErrLost)
		answers := d.RenewAll(t.Context(), []*backend.Grant{other})
		wantIs(t, "RenewAll of the other lock", answers[0].Err, backend.ErrLost)
		wantIs(t, "a second Release", d.Release(t.Context(), g), backend.ErrNotHeld)
	})
}

// TestCloseDuringARequest closes the driver while the server does not answer.
func TestCloseDuringARequest(t *testing.T) {
	on(t, func(t *testing.T, d *Driver, s *script) {
		t.Helper()
		s.delay = time.Minute
		failed := make(chan error, 1)
		go func() {
			_, err := d.Acquire(context.Background(), request("a", "x"))
			failed <- err
		}()
		synctest.Wait()
		begun := time.Now()
		_ = d.Close()
		if err := <-failed; err == nil || time.Since(begun) > 0 {
			t.Errorf("Acquire: %v after %v", err, time.Since(begun))
		}
		_, err := d.Acquire(t.Context(), request("b", "x"))
		wantIs(t, "Acquire after Close", err, backend.ErrClosed)
		time.Sleep(time.Hour)
	})
}
