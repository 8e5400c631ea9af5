package zkbackend

import (
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestServerWithoutContainers checks a server without container nodes. The last client to leave
// removes the lock's node, also if another client has created it.
func TestServerWithoutContainers(t *testing.T) {
	t.Parallel()
	s := testenv.ZooKeeper(t)
	const createContainer = 19
	noContainers := func(kind uint32) bool { return kind == createContainer }
	url := "zk://" + refusing(t, s.Addr, noContainers, -6)
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

// TestQuotaLeavesNothing checks an attempt whose node the server refuses, because it would exceed a
// quota. The driver does not search for that node.
func TestQuotaLeavesNothing(t *testing.T) {
	t.Parallel()
	s := testenv.ZooKeeper(t)
	holder := openURL(t, s.URL) // keeps the lock's node
	g, req := raw.Acquire(t, holder, raw.Request(t, patience)), raw.Request(t, patience)
	var full atomic.Bool
	quota := func(kind uint32) bool { return kind == opMulti && full.Load() }
	d := openURL(t, "zk://"+refusing(t, s.Addr, quota, -125))
	full.Store(true)
	_, err := d.Acquire(t.Context(), req)
	raw.WantIs(t, "Acquire", err, backend.ErrUnavailable)
	if d.find(&backend.Grant{Request: *req}) != nil {
		t.Error("the driver keeps the acquisition")
	}
	raw.Release(t, holder, g)
}

// refusing starts a front of the server at addr that refuses requests of some kinds with a code.
func refusing(
	t *testing.T, addr string, refuses func(kind uint32) bool, code int32,
) (front string) {
	t.Helper()
	return testenv.NewImpostor(t, func(client net.Conn) {
		relay(client, addr, refuses, code)
	}).Addr()
}

// relay relays a connection to the server at addr, until either of them ends it. It answers the
// requests of some kinds with a code.
func relay(client net.Conn, addr string, refuses func(kind uint32) bool, code int32) {
	refusal := make([]byte, 8) // a transaction
	refusal = binary.BigEndian.AppendUint32(refusal, uint32(code))
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
		case !isConnect && refuses(binary.BigEndian.Uint32(request[4:])):
			answer(string(request[:4]) + string(refusal))
		default:
			write(server, string(request), 0)
		}
	}
}
