package testenv

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// Forwarder connects each connection that a listener accepts to a server. With a listener of
// package tls it ends TLS. With a listener of a unix socket it replaces the server's own socket.
// Its methods may be called from several goroutines.
type Forwarder struct {
	upstream string
	listener net.Listener
	received atomic.Int64
	wg       sync.WaitGroup // the accept loop and the connections
}

// Forward forwards the connections of l to the address upstream. It is closed at the end of the
// test.
func Forward(tb TB, l net.Listener, upstream string) *Forwarder {
	tb.Helper()
	f := &Forwarder{upstream: upstream, listener: l}
	f.wg.Go(f.accept)
	tb.Cleanup(func() { f.Close() })
	return f
}

// Addr returns the address of the listener.
func (f *Forwarder) Addr() string { return f.listener.Addr().String() }

// Close accepts no more connections and waits until the clients have closed theirs. It returns the
// number of bytes that the clients have sent to the server. A second Close returns the same number.
func (f *Forwarder) Close() (received int64) {
	_ = f.listener.Close()
	f.wg.Wait()
	return f.received.Load()
}

func (f *Forwarder) accept() {
	for {
		conn, err := f.listener.Accept()
		if err != nil {
			return
		}
		f.wg.Go(func() { f.forward(conn) })
	}
}

func (f *Forwarder) forward(conn net.Conn) {
	defer conn.Close()
	server, err := net.Dial("tcp", f.upstream)
	if err != nil {
		return
	}
	defer server.Close()
	var back sync.WaitGroup
	back.Go(func() { _, _ = io.Copy(conn, server) })
	n, _ := io.Copy(server, conn)
	f.received.Add(n)
	_ = server.Close()
	back.Wait()
}
