package abort

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"
)

// TestClose has more to send than its peer reads.
func TestClose(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(net.Conn){
		"Close":        func(c net.Conn) { _ = Close(c) },
		"Close of TLS": func(c net.Conn) { _ = Close(tls.Client(c, &tls.Config{})) },
		"OnClose":      func(c net.Conn) { OnClose(c); _ = c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, peer := connected(t)
			_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
			for err := error(nil); err == nil; { // until all buffers are full
				_, err = conn.Write(make([]byte, 1<<20))
			}
			end(conn)
			if _, err := io.Copy(io.Discard, peer); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the peer reads until %v", err)
			}
		})
	}
}

// TestOther closes a connection that is not TCP.
func TestOther(t *testing.T) {
	t.Parallel()
	conn, peer := net.Pipe()
	OnClose(conn)
	if err := Close(conn); err != nil {
		t.Errorf("Close: %v", err)
	}
	if _, err := peer.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the peer reads until %v", err)
	}
}

// connected returns both ends of a connection.
func connected(t *testing.T) (conn, peer net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if conn, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if peer, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(); _ = peer.Close() })
	return conn, peer
}
