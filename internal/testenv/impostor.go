package testenv

import (
	"context"
	"net"
	"sync"
)

// Impostor is a server on the loopback interface that a test serves itself. It shows what a driver
// does with a peer that no real server would be: silent, hostile, or a proxy.
type Impostor struct {
	listener net.Listener
	running  sync.WaitGroup // the accept loop and the connections
}

// NewImpostor starts a server that calls serve with each connection, in a goroutine of its own, and
// closes the connection after serve. At the end of the test it closes all connections, and waits
// until serve has returned for each of them.
func NewImpostor(tb TB, serve func(net.Conn)) *Impostor {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("%v", err)
	}
	i := &Impostor{listener: l}
	ended, end := context.WithCancel(context.Background())
	i.running.Go(func() { i.accept(ended, serve) })
	tb.Cleanup(func() {
		i.Refuse()
		end()
		i.running.Wait()
	})
	return i
}

// Addr returns the address of the server.
func (i *Impostor) Addr() string { return i.listener.Addr().String() }

// Refuse ends the listener: the system refuses further connections. The present ones stay.
func (i *Impostor) Refuse() { _ = i.listener.Close() }

func (i *Impostor) accept(ended context.Context, serve func(net.Conn)) {
	for {
		conn, err := i.listener.Accept()
		if err != nil {
			return
		}
		stop := context.AfterFunc(ended, func() { _ = conn.Close() })
		i.running.Go(func() {
			defer stop()
			defer conn.Close()
			serve(conn)
		})
	}
}
