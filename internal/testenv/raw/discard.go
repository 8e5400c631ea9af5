package raw

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"
)

// Discards closes a connection that dial makes while its kernel has more to send than the peer
// reads, and checks whether the kernel discards the rest. Otherwise a server could execute a
// request long after its client has given it up.
func Discards(t *testing.T, want bool, dial func(addr string) (net.Conn, error)) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := dial(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	peer, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
	for err == nil { // until all buffers are full
		_, err = conn.Write(make([]byte, 1<<20))
	}
	_ = conn.Close()
	_, err = io.Copy(io.Discard, peer)
	if errors.Is(err, syscall.ECONNRESET) != want {
		t.Errorf("the peer reads until %v, want a reset: %t", err, want)
	}
}
