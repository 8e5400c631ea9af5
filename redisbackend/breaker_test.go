package redisbackend

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// A message about a grant that was broken must not end a newer grant of its owner.
func TestLateMessageOfABreak(t *testing.T) {
	t.Parallel()
	s := testenv.Redis(t)
	d, breaker := openURL(t, s.URL), openURL(t, s.URL)
	listener := admin(t, s).Subscribe(t.Context(), clientPrefix+d.hub.client)
	defer listener.Close()
	if _, err := listener.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	lost := make(chan error, 2)
	req := raw.Request(t, longTerm)
	req.Lost = func(err error) { lost <- err }
	raw.Acquire(t, d, req)
	if err := breaker.Break(t.Context(), req.Key, req.Owner); err != nil {
		t.Fatal(err)
	}
	message, err := listener.ReceiveMessage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	<-lost
	raw.Acquire(t, d, req)
	d.hub.dispatch(nil, message)
	if len(lost) > 0 {
		t.Error("the message about the first grant has ended the second")
	}
	if err := breaker.Break(t.Context(), req.Key, req.Owner); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-lost:
		t.Logf("lost: %v", err)
	case <-time.After(patience):
		t.Error("the message about the second grant has not ended it")
	}
}

// The same through the core: a slow callback keeps the messages back.
func TestLateMessageOfABreakInTheCore(t *testing.T) {
	t.Parallel()
	s := testenv.Redis(t)
	const ttl = 9 * time.Second
	blocked, resume := make(chan struct{}), make(chan struct{})
	slow := t.Name() + "/slow"
	name := t.Name() + "/name"
	observer := &dlock.Observer{Ended: func(e dlock.Event) {
		if e.Name == slow {
			close(blocked)
			<-resume
		}
	}}
	open := func(opts ...dlock.Option) *dlock.Client {
		c, err := dlock.Open(t.Context(), s.URL, opts...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	lock := func(c *dlock.Client, name string) *dlock.Lease {
		l, err := c.Lock(t.Context(), name, dlock.WithTTL(ttl), dlock.WithFair())
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	c, other := open(dlock.WithObserver(observer)), open()
	first := lock(other, name)
	slowLease := lock(c, slow)
	got := make(chan *dlock.Lease)
	go func() { got <- lock(c, name) }()
	for { // the waiter is in the queue
		info, err := other.Inspect(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if info.Waiters > 0 {
			break
		}
	}
	if err := other.Break(t.Context(), slow, slowLease.Owner()); err != nil {
		t.Fatal(err)
	}
	<-blocked // c reads no message any more
	if err := first.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := other.Break(t.Context(), name, ""); err != nil { // the waiter's grant, that it has not noticed
		t.Fatal(err)
	}
	lease := <-got // by a poll
	fence := lease.Fence()
	close(resume)
	select {
	case <-lease.Lost():
		info, err := other.Inspect(t.Context(), name)
		t.Errorf("the lease with fence %d was lost: %v; the server has %+v, %v", fence, lease.Err(), info.Holders, err)
	case <-time.After(time.Second):
		_ = lease.Unlock(t.Context())
		return
	}
	began := time.Now()
	lock(other, name)
	t.Errorf("the lock was free %v later", time.Since(began))
}

func openThrough(t *testing.T, raw string, network dial) *driver {
	t.Helper()
	u, err := backend.ParseURL(raw)
	if err != nil {
		t.Fatal(err)
	}
	target, err := parseTarget(u)
	if err != nil {
		t.Fatal(err)
	}
	d, err := target.open(t.Context(), network)
	if err != nil {
		t.Fatal(err)
	}
	return d.(*driver)
}

// A connection is prepared in several round trips. The request that it is for is not sent if its
// context has ended meanwhile.
func TestNothingIsSentAfterTheContext(t *testing.T) {
	t.Parallel()
	words, answer := make(chan string, 10), make(chan struct{})
	s := newImpostor(t, func(conn net.Conn, read func() ([]string, error)) {
		defer close(words)
		for command, err := read(); err == nil; command, err = read() {
			words <- command[0]
			reply := "+OK\r\n"
			if strings.EqualFold(command[0], "hello") {
				<-answer
				reply = "*0\r\n"
			}
			_, _ = fmt.Fprint(conn, reply)
		}
	})
	conn, err := connect(&target{network: "tcp", addrs: []string{s.addr}, Options: Options{Timeout: time.Minute}}, new(net.Dialer).DialContext)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.close()
	l := conn.lane(conn.main, Options{Timeout: time.Minute})
	defer l.close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := l.runAside(ctx, singleScripts.inspect, []any{nil, nil, 1, "key"})
		done <- err
	}()
	if first := <-words; !strings.EqualFold(first, "hello") {
		t.Fatalf("the first command is %q", first)
	}
	cancel()
	raw.WantIs(t, "the request", <-done, context.Canceled)
	close(answer)
	for word := range words {
		if strings.EqualFold(word, "evalsha") {
			t.Error("the request was sent after the end of its context")
			break
		}
	}
}

// Close does not wait for a server that is silent while the link is connected again.
func TestCloseWhileTheLinkConnects(t *testing.T) {
	t.Parallel()
	s := testenv.NewRedis(t)
	greeted := make(chan struct{}, 100)
	silent := newImpostor(t, func(_ net.Conn, read func() ([]string, error)) {
		for _, err := read(); err == nil; _, err = read() {
			greeted <- struct{}{}
		}
	})
	var switched atomic.Bool
	d := openThrough(t, s.URL+"?timeout=1m", func(ctx context.Context, network, addr string) (net.Conn, error) {
		if switched.Load() {
			addr = silent.addr
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	})
	switched.Store(true)
	do(t, admin(t, s), "client", "kill", "type", "pubsub")
	<-greeted
	closed := make(chan struct{})
	go func() { defer close(closed); _ = d.Close() }()
	select {
	case <-closed:
	case <-time.After(patience):
		t.Error("Close waits for the server")
		<-closed
	}
}

// Passwords with characters that a quoted text escapes.
func TestErrorsShowNoQuotedCredentials(t *testing.T) {
	t.Parallel()
	const password = "a\"\\s3cret"
	for _, text := range []string{"-ERR wrong number of arguments: %s\r\n", "%s\r\n"} {
		s := newImpostor(t, func(conn net.Conn, read func() ([]string, error)) {
			for words, err := read(); err == nil; words, err = read() {
				_, _ = fmt.Fprintf(conn, text, strings.Join(words, " "))
			}
		})
		for _, u := range []string{
			"redis://joe:" + url.QueryEscape(password) + "@" + s.addr,
			"redis+sentinel://" + s.addr + "/m?sentinel-user=joe&sentinel-password=" + url.QueryEscape(password),
		} {
			_, err := testenv.Open(t.Context(), u)
			wantNoSecret(t, u, err)
		}
	}
}
