package faultproxy_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/conformance/faultproxy"
	"github.com/dlock-go/dlock/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

const (
	silence  = 100 * time.Millisecond // longer than a reply on loopback takes
	patience = 30 * time.Second       // the limit for what happens at once on a fast machine
)

// echo is a server that counts and returns what it reads.
type echo struct {
	listener net.Listener
	got      chan string
	closed   chan error // the read error with which each connection ended
	wg       sync.WaitGroup
}

func newEcho(t *testing.T) *echo {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &echo{listener: l, got: make(chan string, 100), closed: make(chan error, 100)}
	e.wg.Go(e.accept)
	t.Cleanup(func() {
		_ = l.Close()
		e.wg.Wait()
	})
	return e
}

func (e *echo) addr() string { return e.listener.Addr().String() }

func (e *echo) accept() {
	for {
		c, err := e.listener.Accept()
		if err != nil {
			return
		}
		e.wg.Go(func() { e.serve(c) })
	}
}

func (e *echo) serve(c net.Conn) {
	defer c.Close()
	buf := make([]byte, 1024)
	for {
		n, err := c.Read(buf)
		if err != nil {
			e.closed <- err
			return
		}
		e.got <- string(buf[:n])
		_, _ = c.Write(buf[:n])
	}
}

func (e *echo) silent(t *testing.T) {
	t.Helper()
	select {
	case s := <-e.got:
		t.Errorf("the server got %q", s)
	case err := <-e.closed:
		t.Errorf("the server detected the end of a connection: %v", err)
	case <-time.After(silence):
	}
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func send(t *testing.T, c net.Conn, s string) {
	t.Helper()
	if _, err := c.Write([]byte(s)); err != nil {
		t.Fatalf("send %q: %v", s, err)
	}
}

// receive reads once, for at most d.
func receive(c net.Conn, d time.Duration) (string, error) {
	_ = c.SetReadDeadline(time.Now().Add(d))
	buf := make([]byte, 1024)
	n, err := c.Read(buf)
	return string(buf[:n]), err
}

// roundTrip checks that the server returns s.
func roundTrip(t *testing.T, c net.Conn, s string) {
	t.Helper()
	send(t, c, s)
	if got, err := receive(c, patience); err != nil || got != s {
		t.Fatalf("sent %q, received %q, %v", s, got, err)
	}
}

// dead checks that c receives nothing and does not end.
func dead(t *testing.T, c net.Conn) {
	t.Helper()
	if got, err := receive(c, silence); !isTimeout(err) {
		t.Errorf("a dead connection received %q, %v", got, err)
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

func newProxy(t *testing.T, upstreams ...string) *faultproxy.Proxy {
	t.Helper()
	p, err := faultproxy.New(upstreams...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// slow delays replies until remove is called.
func slow(t *testing.T, p *faultproxy.Proxy, d time.Duration) (remove func()) {
	t.Helper()
	end, err := p.Latency(d)
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	}
}

func TestCut(t *testing.T) {
	e := newEcho(t)
	p := newProxy(t, e.addr())
	old := dial(t, p.Addrs()[0])
	roundTrip(t, old, "before")
	<-e.got

	heal := p.Cut()
	send(t, old, "lost")
	dead(t, old)
	fresh := dial(t, p.Addrs()[0])
	send(t, fresh, "lost too")
	dead(t, fresh)
	e.silent(t)

	heal()
	for _, c := range []net.Conn{old, fresh} {
		if got, err := receive(c, patience); err == nil || isTimeout(err) {
			t.Errorf("after heal a dead connection received %q, %v", got, err)
		}
	}
	roundTrip(t, dial(t, p.Addrs()[0]), "after")
}

// TestCutHidesEnd checks that the end of a connection does not pass a cut.
func TestCutHidesEnd(t *testing.T) {
	e := newEcho(t)
	p := newProxy(t, e.addr())
	c := dial(t, p.Addrs()[0])
	roundTrip(t, c, "before")
	<-e.got

	heal := p.Cut()
	_ = c.Close()
	e.silent(t)
	heal()
	if err := <-e.closed; err == nil {
		t.Error("the server's connection did not end after heal")
	}
}

func TestCloseDuringCut(t *testing.T) {
	e := newEcho(t)
	p := newProxy(t, e.addr())
	c := dial(t, p.Addrs()[0])
	roundTrip(t, c, "before")
	p.Cut()
	send(t, c, "lost")
	dial(t, p.Addrs()[0])
	p.Close()
	if got, err := receive(c, patience); err == nil || isTimeout(err) {
		t.Errorf("after Close received %q, %v", got, err)
	}
}

func TestDropReply(t *testing.T) {
	e := newEcho(t)
	p := newProxy(t, e.addr())
	first, second := dial(t, p.Addrs()[0]), dial(t, p.Addrs()[0])
	roundTrip(t, first, "not counted")
	<-e.got

	p.DropReply(2)
	roundTrip(t, first, "one")
	<-e.got
	send(t, second, "two")
	if got := <-e.got; got != "two" {
		t.Errorf("the server got %q", got)
	}
	if got, err := receive(second, patience); err == nil || isTimeout(err) {
		t.Errorf("the client received %q, %v, want the end of the connection", got, err)
	}
	if err := <-e.closed; err == nil {
		t.Error("the server's connection did not end")
	}
	roundTrip(t, first, "three")
	roundTrip(t, dial(t, p.Addrs()[0]), "four")
}

// TestMembers checks that the members of one server share one network, so that DropReply counts the
// replies of all members.
func TestMembers(t *testing.T) {
	first, second := newEcho(t), newEcho(t)
	p := newProxy(t, first.addr(), second.addr())
	one, two := dial(t, p.Addrs()[0]), dial(t, p.Addrs()[1])
	p.DropReply(2)
	roundTrip(t, one, "to the first")
	send(t, two, "to the second")
	if got, err := receive(two, patience); err == nil || isTimeout(err) {
		t.Errorf("the client received %q, %v, want the end of the connection", got, err)
	}
	if one, two := <-first.got, <-second.got; one != "to the first" || two != "to the second" {
		t.Errorf("the servers got %q and %q", one, two)
	}

	heal := p.Cut()
	send(t, one, "lost")
	first.silent(t)
	heal()
	for _, addr := range p.Addrs() {
		roundTrip(t, dial(t, addr), "after")
	}
}

func TestReset(t *testing.T) {
	e := newEcho(t)
	p := newProxy(t, e.addr())
	c := dial(t, p.Addrs()[0])
	roundTrip(t, c, "before")

	p.Reset()
	if _, err := receive(c, patience); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client got %v, want a reset", err)
	}
	if err := <-e.closed; !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the server got %v, want a reset", err)
	}
	roundTrip(t, dial(t, p.Addrs()[0]), "after")
}

func TestLatency(t *testing.T) {
	const delay = 150 * time.Millisecond
	e := newEcho(t)
	p := newProxy(t, e.addr())
	c := dial(t, p.Addrs()[0])
	roundTrip(t, c, "before")

	remove := slow(t, p, delay)
	for _, c := range []net.Conn{c, dial(t, p.Addrs()[0])} {
		start := time.Now()
		roundTrip(t, c, "slow")
		if took := time.Since(start); took < delay {
			t.Errorf("a round trip took %v, want at least %v", took, delay)
		}
	}
	remove()
	slow(t, p, time.Minute)()
	send(t, c, "fast")
	if got, err := receive(c, patience); err != nil || got != "fast" {
		t.Errorf("after remove received %q, %v", got, err)
	}
}

// TestAbandoned checks that a client that disconnects before it receives its replies leaves no
// goroutines; testenv.Main counts them.
func TestAbandoned(t *testing.T) {
	e := newEcho(t)
	p := newProxy(t, e.addr())
	slow(t, p, 20*time.Millisecond)
	for range 20 {
		c := dial(t, p.Addrs()[0])
		for range 5 {
			send(t, c, "never read")
		}
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
}

func TestEnd(t *testing.T) {
	e := newEcho(t)
	p := newProxy(t, e.addr())
	c := dial(t, p.Addrs()[0])
	roundTrip(t, c, "before")
	_ = c.Close()
	if err := <-e.closed; !errors.Is(err, io.EOF) {
		t.Errorf("the server got %v, want EOF", err)
	}
	p.Close()
	if c, err := net.Dial("tcp", p.Addrs()[0]); err == nil {
		_ = c.Close()
		t.Error("a closed proxy accepts connections")
	}
}

func newClient(t *testing.T, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{
		Addr: addr, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience,
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestRedis checks each fault in front of a real server.
func TestRedis(t *testing.T) {
	s := testenv.Redis(t)
	p := newProxy(t, s.Addr)
	direct, proxied := newClient(t, s.Addr), newClient(t, p.Addrs()[0])
	ctx, key := t.Context(), t.Name()
	incr := func(limit time.Duration) error {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		return proxied.Incr(ctx, key).Err()
	}
	count := func(want int) {
		t.Helper()
		if got, err := direct.Get(ctx, key).Int(); err != nil || got != want {
			t.Fatalf("the server counts %d, %v, want %d", got, err, want)
		}
	}
	if err := direct.Del(ctx, key).Err(); err != nil {
		t.Fatal(err)
	}

	if err := incr(patience); err != nil {
		t.Fatal(err)
	}
	p.DropReply(1)
	if err := incr(patience); err == nil {
		t.Error("the reply was not dropped")
	}
	count(2)

	sub := proxied.Subscribe(ctx, key)
	defer sub.Close()
	if _, err := sub.Receive(ctx); err != nil {
		t.Fatal(err)
	}
	p.Reset()
	if _, err := sub.Receive(ctx); err == nil {
		t.Error("the connection was not reset")
	}

	heal := p.Cut()
	if err := incr(time.Second); err == nil {
		t.Error("the network was not cut")
	}
	count(2)
	heal()
	if err := incr(patience); err != nil {
		t.Errorf("after heal: %v", err)
	}
	count(3)
}
