package session

import (
	"net"
	"syscall"
	"testing"
	"time"
)

// layer is a connection over another one.
type layer struct{ net.Conn }

func (l layer) NetConn() net.Conn { return l.Conn }

// TestKeepAliveOutlastsTheTTL reads when the kernel ends a silent connection, also if a request is
// not acknowledged: not before the TTL, and not much later unless Go would do so, too.
func TestKeepAliveOutlastsTheTTL(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for _, ttl := range []time.Duration{
		time.Second, 30 * time.Second, 10 * time.Minute, time.Hour, 596 * time.Hour,
	} {
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		l := NewLink(layer{conn}, ttl)
		defer l.Close()
		first := option(t, conn, syscall.TCP_KEEPIDLE)
		rest := option(t, conn, syscall.TCP_KEEPINTVL) * option(t, conn, syscall.TCP_KEEPCNT)
		silence := time.Duration(first+rest) * time.Second
		if most := max(150*time.Second, ttl+ttl/20); silence < ttl || silence > most {
			t.Errorf("with a TTL of %v the connection ends after %v, want at most %v",
				ttl, silence, most)
		}
		unanswered := time.Duration(option(t, conn, userTimeout)) * time.Millisecond
		if unanswered != max(defaultSilence, ttl) {
			t.Errorf("with a TTL of %v an unanswered request ends the connection after %v",
				ttl, unanswered)
		}
		if first > 15 {
			t.Errorf("with a TTL of %v a firewall sees nothing for %d s", ttl, first)
		}
	}
}

// option returns an option of a TCP connection.
func option(t *testing.T, conn net.Conn, name int) (value int) {
	t.Helper()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		value, failed = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, name)
	})
	if err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	return value
}
