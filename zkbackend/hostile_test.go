package zkbackend

import (
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

// The parts of an answer to a connect request.
const (
	zero      = "\x00\x00\x00\x00"
	sessionID = "\x00\x00\x00\x00\x00\x00\x00\x07"
	connected = zero + "\x00\x00\x27\x10" + sessionID // without the password
)

// TestHostileServer checks that a program which listens on a server's address neither crashes the
// process nor makes it allocate more than 64 MiB.
func TestHostileServer(t *testing.T) {
	const (
		negative  = "\xff\xff\xff\xff"
		ok, event = zero, negative
		list      = "\x7f\xff\xff\xff"
	)
	asks := map[uint32]func(*zk.Conn) error{
		opGetData:  func(c *zk.Conn) error { _, _, err := c.Get("/a"); return err },
		opChildren: func(c *zk.Conn) error { _, _, err := c.Children("/a"); return err },
		opMulti: func(c *zk.Conn) error {
			_, err := c.Multi(&zk.DeleteRequest{Path: "/a"})
			return err
		},
	}
	transaction := strings.Repeat("\x00", 8)
	for name, tt := range map[string]struct {
		handshake string // "" means a correct handshake
		number    string // number of the answer; "" means the number of the request
		answer    string // answer after its number
		size      uint32 // length of the answer; 0 means the real length
		op        uint32 // operation of the request
	}{
		"no session timeout":      {handshake: zero + zero + sessionID + zero, op: opGetData},
		"a negative timeout":      {handshake: zero + negative + sessionID + zero, op: opGetData},
		"a password of 2 GB":      {handshake: connected + list, op: opGetData},
		"an event without a head": {number: event, answer: ok, op: opGetData},
		"an answer of 4 GB":       {answer: transaction + ok, size: 1<<32 - 1, op: opGetData},
		"data of 2 GB":            {answer: transaction + ok + list, op: opGetData},
		"a list of 2^31 nodes":    {answer: transaction + ok + list, op: opChildren},
		"half of a result":        {answer: transaction + ok + "\x00\x00\x00\x02", op: opMulti},
	} {
		t.Run(name, func(t *testing.T) {
			if passesOn(tt.op, tt.handshake, tt.number+tt.answer, tt.size) {
				t.Fatal("the client library receives the answer, which can crash the process")
			}
			var before, after runtime.MemStats
			addr := oneConnection(t, func(conn net.Conn) {
				_, _ = read(conn)
				handshake := tt.handshake
				if handshake == "" {
					handshake = connected + zero
				}
				write(conn, handshake, 0)
				if request, err := read(conn); err == nil {
					number := tt.number
					if number == "" {
						number = string(request[:4])
					}
					write(conn, number+tt.answer, tt.size)
				}
			})
			opts, err := (&Options{Session: 10 * time.Second}).settings()
			must(t, err)
			s, err := newSession([]string{addr}, opts, "")
			must(t, err)
			var running sync.WaitGroup
			running.Go(s.run)
			runtime.ReadMemStats(&before)
			if err := asks[tt.op](s.conn); err == nil {
				t.Error("the answer was accepted")
			}
			runtime.ReadMemStats(&after)
			if taken := after.TotalAlloc - before.TotalAlloc; taken > 64<<20 {
				t.Errorf("the answer allocated %d MiB", taken>>20)
			}
			s.end(errExpired)
			running.Wait()
		})
	}
}

// TestConnectionsThatEndAtOnce checks that the driver pauses between connections that a server
// closes after the handshake.
func TestConnectionsThatEndAtOnce(t *testing.T) {
	t.Parallel()
	const connections = 4
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	opts, err := (&Options{Session: 10 * time.Second}).settings()
	must(t, err)
	begun := time.Now()
	s, err := newSession([]string{l.Addr().String()}, opts, "")
	must(t, err)
	var running sync.WaitGroup
	running.Go(s.run)
	for range connections {
		conn, err := l.Accept()
		must(t, err)
		_, err = read(conn)
		must(t, err)
		write(conn, connected+zero, 0)
		must(t, conn.Close())
	}
	if took := time.Since(begun); took < (connections-1)*redialPause {
		t.Errorf("%d connections within %v", connections, took)
	}
	s.end(errExpired)
	running.Wait()
}

// passesOn reports whether an answer to a request passes the driver's checks.
func passesOn(op uint32, handshake, answer string, size uint32) bool {
	if handshake != "" {
		_, ok := granted([]byte(handshake))
		return ok
	}
	const number = "\x00\x00\x00\x01"
	if answer[0] == 0 { // the answer begins with the transaction
		answer = number + answer
	}
	if size == 0 {
		size = uint32(len(answer))
	}
	var a answers
	a.expect(binary.BigEndian.AppendUint32([]byte("\x00\x00\x00\x0c"+number), op))
	_, err := a.take(append(binary.BigEndian.AppendUint32(nil, size), answer...))
	return err == nil
}

// oneConnection starts a server that serves one connection and then stops listening.
func oneConnection(t *testing.T, serve func(net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	var served sync.WaitGroup
	served.Go(func() {
		conn, err := l.Accept()
		_ = l.Close()
		if err != nil {
			return
		}
		defer conn.Close()
		serve(conn)
		_, _ = io.Copy(io.Discard, conn)
	})
	t.Cleanup(func() { _ = l.Close(); served.Wait() })
	return l.Addr().String()
}

// read reads one message.
func read(conn net.Conn) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, err
	}
	message := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err := io.ReadFull(conn, message)
	return message, err
}

// write writes one message, with a length that may be wrong.
func write(conn net.Conn, message string, size uint32) {
	if size == 0 {
		size = uint32(len(message))
	}
	_, _ = conn.Write(append(binary.BigEndian.AppendUint32(nil, size), message...))
}
