package runner

import (
	"net"
	"strconv"
	"testing"
)

// TestPortIsReserved checks that no other process of the tests chooses a port while its server does
// not listen.
func TestPortIsReserved(t *testing.T) {
	t.Parallel()
	port, err := FreePort()
	if err != nil {
		t.Fatal(err)
	}
	addr := net.JoinHostPort(loopback, strconv.Itoa(port))
	if err := reserve(addr); err == nil {
		t.Error("another process can reserve the port")
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatalf("the server cannot listen: %v", err)
	}
	_ = l.Close()
}
