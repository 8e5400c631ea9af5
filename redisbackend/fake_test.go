package redisbackend

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// fakeServer speaks the protocol of Redis. It answers subscriptions as Redis does, and other
// commands with OK, unless the test answers them.
type fakeServer struct {
	answer   func(command string) string // returns "" for the usual answer
	listener net.Listener
	commands chan string // the first two words of each command
	running  sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
}

func newFakeServer(t *testing.T, answer func(command string) string) *fakeServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeServer{answer: answer, listener: l, commands: make(chan string, 1000)}
	f.running.Go(f.accept)
	t.Cleanup(func() {
		_ = l.Close()
		f.disconnect()
		f.running.Wait()
	})
	return f
}

func (f *fakeServer) accept() {
	for {
		conn, err := f.listener.Accept()
		if err != nil {
			return
		}
		f.mu.Lock()
		f.conns = append(f.conns, conn)
		f.mu.Unlock()
		f.running.Go(func() { f.serve(conn) })
	}
}

// client returns a client of the server.
func (f *fakeServer) client(t *testing.T) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{
		MaxRetries: -1, DialerRetries: 1, ReadTimeout: time.Minute,
		Protocol: 2, DisableIdentity: true,
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", f.listener.Addr().String())
		},
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// disconnect closes all connections.
func (f *fakeServer) disconnect() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		_ = c.Close()
	}
	f.conns = nil
}

// next returns the next command that the server has read and that is in wanted.
func (f *fakeServer) next(t *testing.T, wanted ...string) string {
	t.Helper()
	end := time.After(patience)
	for {
		select {
		case command := <-f.commands:
			if slices.Contains(wanted, command) {
				return command
			}
		case <-end:
			t.Fatalf("none of %q was sent", wanted)
		}
	}
}

func (f *fakeServer) serve(conn net.Conn) {
	r := bufio.NewReader(conn)
	for {
		args, err := readCommand(r)
		if err != nil {
			return
		}
		command := strings.ToLower(args[0])
		f.commands <- strings.Join(args[:min(2, len(args))], " ")
		answer := f.answer(command)
		if answer == "" {
			answer = usualAnswer(command, args[1:])
		}
		if _, err := io.WriteString(conn, answer); err != nil {
			return
		}
	}
}

func usualAnswer(command string, args []string) (answer string) {
	if command == "hello" {
		return "*0\r\n"
	}
	if !strings.HasSuffix(command, "subscribe") {
		return "+OK\r\n"
	}
	for i, channel := range args {
		answer += fmt.Sprintf("*3\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n:%d\r\n",
			len(command), command, len(channel), channel, i+1)
	}
	return answer
}

// readCommand reads an array of strings.
func readCommand(r *bufio.Reader) ([]string, error) {
	var n int
	if _, err := fmt.Fscanf(r, "*%d\r\n", &n); err != nil {
		return nil, err
	}
	args := make([]string, n)
	for i := range args {
		var size int
		if _, err := fmt.Fscanf(r, "$%d\r\n", &size); err != nil {
			return nil, err
		}
		text := make([]byte, size+2)
		if _, err := io.ReadFull(r, text); err != nil {
			return nil, err
		}
		args[i] = string(text[:size])
	}
	return args, nil
}
