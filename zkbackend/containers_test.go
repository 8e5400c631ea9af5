package zkbackend

import (
	"encoding/binary"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestServerWithoutContainers checks a server without container nodes. The last client to leave
// removes the lock's node, also if another client has created it.
func TestServerWithoutContainers(t *testing.T) {
	t.Parallel()
	s := testenv.ZooKeeper(t)
	url := "zk://" + withoutContainers(t, s.Addr)
	d, other, conn := openURL(t, url), openURL(t, url), admin(t, s.Addr)
	g, req := raw.Acquire(t, d, raw.Request(t, patience)), raw.Request(t, patience)
	b := raw.Busy(t, other, req)
	raw.Release(t, d, g)
	if _, err := other.Wait(t.Context(), req, b); err != nil {
		t.Fatal(err)
	}
	raw.Release(t, other, raw.Acquire(t, other, req))
	if exists, _, err := conn.Exists(d.path(req.Key)); exists || err != nil {
		t.Errorf("the lock's node still exists: %t, %v", exists, err)
	}
}

// withoutContainers starts a front of the server at addr that has no container nodes.
func withoutContainers(t *testing.T, addr string) (front string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { relayWithoutContainers(client, addr) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); running.Wait() })
	return l.Addr().String()
}

// relayWithoutContainers relays a connection to the server at addr, until either of them ends it.
// It answers requests for containers itself.
func relayWithoutContainers(client net.Conn, addr string) {
	const createContainer = 19
	unimplemented := strings.Repeat("\x00", 8) + "\xff\xff\xff\xfa" // -6, after a transaction
	defer client.Close()
	server, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer server.Close()
	var writing sync.Mutex // to the client
	answer := func(message string) {
		writing.Lock()
		defer writing.Unlock()
		write(client, message, 0)
	}
	go func() {
		defer client.Close()
		for message, err := read(server); err == nil; message, err = read(server) {
			answer(string(message))
		}
	}()
	for isConnect := true; ; isConnect = false {
		request, err := read(client)
		switch {
		case err != nil:
			return
		case !isConnect && binary.BigEndian.Uint32(request[4:]) == createContainer:
			answer(string(request[:4]) + unimplemented)
		default:
			write(server, string(request), 0)
		}
	}
}
