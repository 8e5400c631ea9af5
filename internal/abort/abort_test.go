package abort_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/dlock-go/dlock/internal/abort"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// ended is a connection with another Close.
type ended struct {
	net.Conn
	end func() error
}

func (c ended) Close() error { return c.end() }

func TestClose(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(net.Conn) error{
		"Close":        abort.Close,
		"Close of TLS": func(c net.Conn) error { return abort.Close(tls.Client(c, &tls.Config{})) },
		"OnClose":      func(c net.Conn) error { abort.OnClose(c); return c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			raw.Discards(t, true, func(addr string) (net.Conn, error) {
				conn, err := net.Dial("tcp", addr)
				return ended{conn, func() error { return end(conn) }}, err
			})
		})
	}
}

// TestOther closes a connection that is not TCP.
func TestOther(t *testing.T) {
	t.Parallel()
	conn, peer := net.Pipe()
	abort.OnClose(conn)
	if err := abort.Close(conn); err != nil {
		t.Errorf("Close: %v", err)
	}
	if _, err := peer.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the peer reads until %v", err)
	}
}
