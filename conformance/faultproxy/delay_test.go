package faultproxy_test

import (
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
	p.Close() // would not return if a goroutine of a delayed connection stayed
	if got, err := receive(staying, 5*time.Second); err == nil || isTimeout(err) {
		t.Errorf("after Close received %q, %v", got, err)
	}
}
