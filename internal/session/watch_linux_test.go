package session

import (
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// TestSocketNoticesItsEnd closes the other side without a reader, in order and by a reset. What
// came before does not end the Link, and is still read unless the connection was reset.
func TestSocketNoticesItsEnd(t *testing.T) {
	t.Parallel()
	for network, addr := range map[string]string{
		"tcp": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "socket"),
	} {
		for _, isReset := range []bool{false, true} {
			checkEnd(t, network, addr, isReset)
		}
	}
}

func checkEnd(t *testing.T, network, addr string, isReset bool) {
	t.Helper()
	l, far := sockets(t, network, addr)
	defer l.Close()
	if l.watch == nil {
		t.Fatalf("%s: a goroutine reads ahead", network)
	}
	if _, err := far.Write([]byte("bye")); err != nil {
		t.Fatal(err)
	}
	first := make([]byte, 1)
	if _, err := l.Read(first); err != nil {
		t.Fatalf("%s: %v", network, err)
	}
	select {
	case <-l.Ended():
		t.Fatalf("%s: ended while the other side is open", network)
	default:
	}
	if tcp, ok := far.(*net.TCPConn); ok && isReset {
		_ = tcp.SetLinger(0)
	}
	_ = far.Close()
	wantEnded(t, l)
	rest, err := io.ReadAll(l)
	if text := string(first) + string(rest); !isReset && (text != "bye" || err != nil) {
		t.Errorf("%s: read %q, %v", network, text, err)
	}
}

// wantEnded waits for the end of a Link.
func wantEnded(t *testing.T, l *Link) {
	t.Helper()
	select {
	case <-l.Ended():
	case <-time.After(30 * time.Second):
		t.Fatal("the end is not noticed")
	}
}

// TestSocketIsClosed closes a Link while a goroutine reads.
func TestSocketIsClosed(t *testing.T) {
	t.Parallel()
	l, _ := sockets(t, "tcp", "127.0.0.1:0")
	failed := make(chan error, 1)
	go func() {
		_, err := l.Read(make([]byte, 1))
		failed <- err
	}()
	go l.Close()
	wantEnded(t, l)
	if err := <-failed; err == nil {
		t.Error("Read: nil")
	}
}

// sockets returns a Link over a socket, and the other side of its connection.
func sockets(t *testing.T, network, addr string) (*Link, net.Conn) {
	t.Helper()
	listener, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	near, err := net.Dial(network, listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	l := NewLink(near, time.Hour)
	t.Cleanup(func() { _, _ = l.Conn.Close(), far.Close() })
	return l, far
}
