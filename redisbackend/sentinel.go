package redisbackend

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/backend"
)

const (
	// switchMaster is the channel on which a sentinel tells who is the master from now on.
	switchMaster = "+switch-master"
	// maxSentinelReply bounds what is read of anything that claims to be a sentinel.
	maxSentinelReply = 4096
)

// sentinels know who the master is. go-redis has a client that asks them, but it writes about each master that
// it finds to standard error, and leaves pub/sub with the old one.
type sentinels struct {
	master         string
	addrs          []string
	user, password string
	dialer         dialer

	once    sync.Once // starts listening with the first connection
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	masters map[*masterConn]string // the connections that are open, and their addresses as the sentinels told them
}

func newSentinels(t *target, d dialer) *sentinels {
	s := &sentinels{
		master: t.master, addrs: t.addrs, user: t.sentinelUser, password: t.sentinelPassword, dialer: d,
		masters: make(map[*masterConn]string),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// close is called when the connections to masters are closed.
func (s *sentinels) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.running.Wait()
}

// connect dials the master for go-redis, whatever the address.
func (s *sentinels) connect(ctx context.Context, network, _ string) (net.Conn, error) {
	s.once.Do(s.listen)
	addr, err := s.find(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	d := s.dialer
	d.dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := s.dialer.dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return s.track(conn, addr), nil
	}
	return d.connect(ctx, network, addr)
}

// masterConn is a connection to a master. It is what go-redis looks at to see whether the other side has
// closed it: so it is a syscall.Conn.
type masterConn struct {
	*net.TCPConn
	sentinels *sentinels
}

func (s *sentinels) track(conn net.Conn, addr string) net.Conn {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return conn
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &masterConn{TCPConn: tcp, sentinels: s}
	s.masters[c] = addr
	return c
}

// Close implements net.Conn.
func (c *masterConn) Close() error {
	c.sentinels.mu.Lock()
	delete(c.sentinels.masters, c)
	c.sentinels.mu.Unlock()
	return c.TCPConn.Close()
}

// retire closes the connections to other masters than this one: they may still answer, but what they
// grant is nothing.
func (s *sentinels) retire(master string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c, addr := range s.masters {
		if addr != master {
			_ = c.TCPConn.Close()
		}
	}
}

// find asks all sentinels at once who the master is, and takes the first answer.
func (s *sentinels) find(ctx context.Context) (string, error) {
	var asking sync.WaitGroup
	defer asking.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends what the others are doing
	type result struct {
		master string
		err    error
	}
	results := make(chan result, len(s.addrs))
	for _, addr := range s.addrs {
		asking.Go(func() {
			master, err := s.ask(ctx, addr)
			results <- result{master, err}
		})
	}
	err := fmt.Errorf("no sentinel names the master %q", s.master)
	for range s.addrs {
		r := <-results
		if r.err == nil {
			return r.master, nil
		}
		err = fmt.Errorf("%w; %w", err, r.err)
	}
	return "", err
}

// ask asks one sentinel.
func (s *sentinels) ask(ctx context.Context, addr string) (string, error) {
	c, err := s.open(ctx, addr)
	if err != nil {
		return "", err
	}
	defer c.close()
	reply, err := c.do("SENTINEL", "get-master-addr-by-name", s.master)
	if err != nil {
		return "", fmt.Errorf("%s: %w", addr, err)
	}
	if len(reply) != 2 {
		return "", fmt.Errorf("%s knows no such master", addr)
	}
	return net.JoinHostPort(reply[0], reply[1]), nil
}

// listen begins to follow the sentinels.
func (s *sentinels) listen() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.running.Go(func() {
		for s.ctx.Err() == nil {
			s.follow()
			select {
			case <-time.After(maxBackoff):
			case <-s.ctx.Done():
			}
		}
	})
}

// follow listens to a sentinel until that fails.
func (s *sentinels) follow() {
	c, err := s.openAny()
	if err != nil {
		return
	}
	defer c.close()
	message, err := c.do("SUBSCRIBE", switchMaster)
	if err != nil {
		return
	}
	s.check() // what was said before
	for err == nil {
		s.heard(message)
		message, err = c.next()
	}
}

// heard handles "message", the channel, and name, old host, old port, new host, new port.
func (s *sentinels) heard(message []string) {
	if len(message) != 3 || message[1] != switchMaster {
		return
	}
	if words := strings.Fields(message[2]); len(words) == 5 && words[0] == s.master {
		s.retire(net.JoinHostPort(words[3], words[4]))
	}
}

// openAny connects to the first sentinel that can be reached.
func (s *sentinels) openAny() (c *sentinelConn, err error) {
	for _, addr := range s.addrs {
		if c, err = s.open(s.ctx, addr); err == nil {
			return c, nil
		}
	}
	return nil, err
}

func (s *sentinels) check() {
	if master, err := s.find(s.ctx); err == nil {
		s.retire(master)
	}
}

// sentinelConn is a connection to a sentinel, in as much of the protocol as is needed.
type sentinelConn struct {
	conn    net.Conn
	reader  *bufio.Reader
	timeout time.Duration
	release func() bool
}

// open connects to a sentinel. The connection is closed when ctx ends.
func (s *sentinels) open(ctx context.Context, addr string) (*sentinelConn, error) {
	conn, err := s.dialer.handshake(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &sentinelConn{conn: conn, reader: bufio.NewReader(conn), timeout: s.dialer.timeout}
	c.release = context.AfterFunc(ctx, func() { _ = conn.Close() })
	if s.password != "" {
		auth := []string{"AUTH", s.user, s.password}
		if _, err := c.do(slices.DeleteFunc(auth, func(word string) bool { return word == "" })...); err != nil {
			c.close()
			return nil, fmt.Errorf("%s: %w", addr, err)
		}
	}
	return c, nil
}

func (c *sentinelConn) close() {
	c.release()
	_ = c.conn.Close()
}

// do sends a command and returns the strings of its reply.
func (c *sentinelConn) do(words ...string) ([]string, error) {
	_ = c.conn.SetDeadline(time.Now().Add(c.timeout))
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, word := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(word), word)
	}
	if _, err := io.WriteString(c.conn, b.String()); err != nil {
		return nil, err
	}
	return c.read()
}

// next waits for a message. It asks a sentinel that has been silent for a while whether it is still there.
func (c *sentinelConn) next() ([]string, error) {
	_ = c.conn.SetDeadline(time.Now().Add(pingInterval))
	if _, err := c.reader.Peek(1); errors.Is(err, os.ErrDeadlineExceeded) {
		return c.do("PING")
	}
	return c.read()
}

// read reads a reply: what is neither a string nor an array of strings is an error, but nil is empty.
func (c *sentinelConn) read() ([]string, error) {
	line, err := c.line()
	if err != nil {
		return nil, err
	}
	switch line[0] {
	case '-':
		return nil, fmt.Errorf("it answers %q", line[1:])
	case '+', ':':
		return []string{line[1:]}, nil
	}
	n, err := strconv.Atoi(line[1:])
	switch {
	case err != nil || n > maxSentinelReply || line[0] != '$' && line[0] != '*':
		return nil, fmt.Errorf("it answers %q, which is not Redis's protocol", line)
	case n < 0:
		return nil, nil
	case line[0] == '*':
		return c.array(n)
	}
	text := make([]byte, n+2)
	_, err = io.ReadFull(c.reader, text)
	return []string{string(text[:n])}, err
}

func (c *sentinelConn) array(n int) (all []string, err error) {
	for range n {
		element, err := c.read()
		if err != nil {
			return nil, err
		}
		all = append(all, element...)
	}
	return all, nil
}

// line reads a line of at least one character.
func (c *sentinelConn) line() (string, error) {
	line, err := c.reader.ReadSlice('\n')
	text := strings.TrimSpace(string(line))
	if err == nil && text == "" {
		err = errors.New("it answers an empty line")
	}
	return text, err
}
