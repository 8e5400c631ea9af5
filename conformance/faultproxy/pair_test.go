package faultproxy_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// TestLatencyKeepsOrder checks that replies wait together, and not one after the other, and that a
// reply after remove does not overtake them.
func TestLatencyKeepsOrder(t *testing.T) {
	const replies = 200 // one after the other, they would take longer than patience
	e := newEcho(t)
	p := newProxy(t, e.addr())
	c := dial(t, p.Addrs()[0])
	remove := slow(t, p, 200*time.Millisecond)
	var want strings.Builder
	exchange := func(s string) {
		send(t, c, s)
		<-e.got
		want.WriteString(s)
	}
	for i := range replies {
		exchange(fmt.Sprintf("%d,", i))
	}
	remove()
	exchange("last")

	got := make([]byte, want.Len())
	_ = c.SetReadDeadline(time.Now().Add(patience))
	if n, err := io.ReadFull(c, got); err != nil || string(got) != want.String() {
		t.Errorf("received %q, %v, want %q", got[:n], err, want.String())
	}
}

func TestLatenciesAddUp(t *testing.T) {
	const delay = 50 * time.Millisecond
	e := newEcho(t)
	p := newProxy(t, e.addr())
	c := dial(t, p.Addrs()[0])
	slow(t, p, delay)
	remove := slow(t, p, delay)
	for want := 2 * delay; want > 0; want -= delay {
		start := time.Now()
		roundTrip(t, c, "slow")
		if took := time.Since(start); took < want {
			t.Errorf("a round trip took %v, want at least %v", took, want)
		}
		remove()
	}
}

// TestCutSwallowsDelayedReplies checks that no reply leaves a cut because it waited in the proxy
// when the cut began.
func TestCutSwallowsDelayedReplies(t *testing.T) {
	const delay = 300 * time.Millisecond
	e := newEcho(t)
	p := newProxy(t, e.addr())
	c := dial(t, p.Addrs()[0])
	slow(t, p, delay)
	start := time.Now()
	send(t, c, "swallowed")
	<-e.got
	p.Cut()
	if time.Since(start) >= delay {
		t.Log("void: the cut came too late")
		return
	}
	if got, err := receive(c, 2*delay); !isTimeout(err) {
		t.Errorf("during the cut received %q, %v", got, err)
	}
}

func TestCloseDuringLatency(t *testing.T) {
	e := newEcho(t)
	p := newProxy(t, e.addr())
	c := dial(t, p.Addrs()[0])
	slow(t, p, time.Hour)
	send(t, c, "never answered")
	<-e.got
	p.Close()
	if got, err := receive(c, patience); err == nil || isTimeout(err) {
		t.Errorf("after Close received %q, %v", got, err)
	}
}

// TestSlowReader checks that the proxy keeps a bounded number of bytes for a side that does not
// read, and loses none of them. Close ends the blocked connection.
func TestSlowReader(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	p := newProxy(t, l.Addr().String())
	client := dial(t, p.Addrs()[0])
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	for _, side := range []struct {
		name     string
		from, to net.Conn
	}{{"requests", client, server}, {"replies", server, client}} {
		sent := fill(t, side.from)
		_ = side.to.SetReadDeadline(time.Now().Add(patience))
		if n, err := io.CopyN(io.Discard, side.to, sent); err != nil {
			t.Errorf("%s: received %d of %d bytes, %v", side.name, n, sent, err)
		}
		fill(t, side.from)
	}
	p.Close()
}

// fill writes until no more bytes are accepted, and returns their number.
func fill(t *testing.T, c net.Conn) (sent int64) {
	t.Helper()
	const limit = 128 << 20 // far more than the queue and the buffers of the system
	b := make([]byte, 1<<20)
	for sent < limit {
		_ = c.SetWriteDeadline(time.Now().Add(silence))
		n, err := c.Write(b)
		sent += int64(n)
		if err != nil {
			return sent
		}
	}
	t.Errorf("a side that does not read was sent %d bytes", sent)
	return sent
}
