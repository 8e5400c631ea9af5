package faultproxy_test

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestDelay(t *testing.T) {
	t.Parallel()
	e := newEcho(t)
	p := newProxy(t, e.addr())
	staying, leaving := dial(t, p.Addrs()[0]), dial(t, p.Addrs()[0])
	roundTrip(t, staying, "before")
	roundTrip(t, leaving, "before")
	<-e.got
	<-e.got

	deliver := p.Delay()
	send(t, leaving, "given up")
	if got, err := receive(leaving, silence); !isTimeout(err) {
		t.Errorf("a delayed connection received %q, %v", got, err)
	}
	_ = leaving.Close()
	send(t, staying, "kept back")
	e.silent(t)
	roundTrip(t, dial(t, p.Addrs()[0]), "later connections pass")
	<-e.got

	begun := time.Now()
	deliver()
	if took := time.Since(begun); took > 4*time.Second {
		t.Errorf("deliver returned after %v", took)
	}
	got := map[string]bool{<-e.got: true, <-e.got: true}
	if !got["given up"] || !got["kept back"] {
		t.Errorf("the server got %v", got)
	}
	if err := <-e.closed; err == nil {
		t.Error("the connection of the client that left did not end")
	}
	if got, err := receive(staying, 5*time.Second); err != nil || got != "kept back" {
		t.Errorf("the client that stayed received %q, %v", got, err)
	}
	roundTrip(t, staying, "after")
	deliver()
}

// TestDeliverToASilentServer checks that deliver blocks no longer than its timeout if the server
// does not answer several connections, or does not read them.
func TestDeliverToASilentServer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		serve func(net.Conn)
		bytes int
	}{
		{"no answer", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }, 100},
		{"no reading", func(net.Conn) {}, 16 << 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := newProxy(t, newSilent(t, c.serve))
			clients := make([]net.Conn, 3)
			for i := range clients {
				clients[i] = dial(t, p.Addrs()[0])
				if got, err := receive(clients[i], 5*time.Second); err != nil {
					t.Fatalf("received %q, %v", got, err)
				}
			}
			deliver := p.Delay()
			for _, client := range clients {
				send(t, client, strings.Repeat("x", c.bytes))
			}
			time.Sleep(silence)
			done := make(chan struct{})
			go func() { defer close(done); deliver() }()
			select {
			case <-done:
			case <-time.After(10 * time.Second):
				t.Error("deliver has not returned after 10 s")
			}
		})
	}
}

// newSilent starts a server that greets each client and then calls f for it. It returns the address
// of the server.
func newSilent(t *testing.T, f func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var conns []net.Conn
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				break
			}
			conns = append(conns, c)
			_, _ = c.Write([]byte("hello"))
			wg.Go(func() { f(c) })
		}
		for _, c := range conns {
			_ = c.Close()
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return l.Addr().String()
}

func TestCloseDuringDelay(t *testing.T) {
	t.Parallel()
	e := newEcho(t)
	p := newProxy(t, e.addr())
	staying, leaving := dial(t, p.Addrs()[0]), dial(t, p.Addrs()[0])
	roundTrip(t, staying, "before")
	roundTrip(t, leaving, "before")
	p.Delay()
	send(t, leaving, "dropped")
	_ = leaving.Close()
	time.Sleep(silence)
	p.Close() // waits for the goroutines of delayed connections
	if got, err := receive(staying, 5*time.Second); err == nil || isTimeout(err) {
		t.Errorf("after Close received %q, %v", got, err)
	}
}
