package redisbackend

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestLateMessageOfABreak checks that a message about a broken grant does not end a newer grant of
// its owner.
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
	raw.WantIs(t, "the loss", <-lost, backend.ErrLost)
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

// TestLateMessageOfABreakInTheCore checks the same through the core. A callback of another
// acquisition blocks, so the messages come late.
func TestLateMessageOfABreakInTheCore(t *testing.T) {
	t.Parallel()
	s := testenv.Redis(t)
	d, err := testenv.Open(t.Context(), s.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := func(c *dlock.Client, err error) *dlock.Client {
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	c, other := client(dlock.New(d)), client(dlock.Open(t.Context(), s.URL))
	name := t.Name() + "/name"
	lock := func(c *dlock.Client, name string) *dlock.Lease {
		l, err := c.Lock(t.Context(), name, dlock.WithTTL(9*time.Second), dlock.WithFair())
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	blocked, resumed := make(chan struct{}), make(chan struct{})
	resume := sync.OnceFunc(func() { close(resumed) })
	t.Cleanup(resume) // before c is closed
	slow := raw.Request(t, longTerm)
	slow.Key += "/slow"
	slow.Lost = func(error) {
		close(blocked)
		<-resumed
	}
	raw.Acquire(t, d, slow)
	first := lock(other, name)
	got := make(chan *dlock.Lease)
	go func() { got <- lock(c, name) }()
	for { // until the waiter is in the queue
		info, err := other.Inspect(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if info.Waiters > 0 {
			break
		}
	}
	if err := other.Break(t.Context(), slow.Key, slow.Owner); err != nil {
		t.Fatal(err)
	}
	<-blocked // from now on d reads no message
	if err := first.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	// This breaks the waiter's grant, before the waiter has detected the grant.
	if err := other.Break(t.Context(), name, ""); err != nil {
		t.Fatal(err)
	}
	lease := <-got // by a poll
	fence := lease.Fence()
	resume()
	select {
	case <-lease.Lost():
		info, err := other.Inspect(t.Context(), name)
		t.Errorf("the lease with fence %d was lost: %v; the server has %+v, %v",
			fence, lease.Err(), info.Holders, err)
	case <-time.After(time.Second):
		_ = lease.Unlock(t.Context())
		return
	}
	began := time.Now()
	lock(other, name)
	t.Errorf("the lock was free %v later", time.Since(began))
}

func openThrough(t *testing.T, url string, network dial) *driver {
	t.Helper()
	d, err := raw.Target(t, parseTarget, url).open(t.Context(), network)
	if err != nil {
		t.Fatal(err)
	}
	return d.(*driver)
}

// TestCloseWhileTheLinkConnects checks that Close does not wait for a silent server while the link
// is reconnected.
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
	dialSwitched := func(ctx context.Context, network, addr string) (net.Conn, error) {
		if switched.Load() {
			addr = silent.addr
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	d := openThrough(t, s.URL+"?timeout=1m", dialSwitched)
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

// TestErrorsShowNoQuotedCredentials uses passwords with characters that are escaped in a quoted
// text.
func TestErrorsShowNoQuotedCredentials(t *testing.T) {
	t.Parallel()
	const password = "a\"\\s3cret"
	escaped := url.QueryEscape(password)
	for _, text := range []string{"-ERR wrong number of arguments: %s\r\n", "%s\r\n"} {
		s := newImpostor(t, func(conn net.Conn, read func() ([]string, error)) {
			for words, err := read(); err == nil; words, err = read() {
				_, _ = fmt.Fprintf(conn, text, strings.Join(words, " "))
			}
		})
		for _, u := range []string{
			"redis://joe:" + escaped + "@" + s.addr,
			"redis+sentinel://" + s.addr + "/m?sentinel-user=joe&sentinel-password=" + escaped,
		} {
			_, err := testenv.Open(t.Context(), u)
			wantNoSecret(t, u, err)
		}
	}
}
