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

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
)

const (
	// switchMaster is the channel on which a sentinel announces a new master.
	switchMaster = "+switch-master"
	// maxSentinelReply bounds a whole reply of anything that claims to be a sentinel.
	maxSentinelReply = 64 << 10
	// sentinelGrace is how long a new connection waits for the last sentinels after a majority has
	// answered. A sentinel that answers later is heard all the same: each is followed.
	sentinelGrace = 100 * time.Millisecond
)

// view is what a sentinel reports as the master. Each failover has a greater epoch than the one
// before it.
type view struct {
	master string
	epoch  uint64
	asked  time.Time // when the request was sent
}

// sentinels finds the master, and closes connections to former masters.
//
// It believes the view with the highest epoch that any sentinel has ever reported. A sentinel that
// lags, or that a partition separates from the majority, has a lower one. The exception is an
// operator that removes the master from all sentinels and adds it again, which resets the epochs:
// a lower epoch counts if it is the last word of every sentinel.
//
// go-redis has a client for this. It believes the first sentinel that answers, leaves pub/sub with
// the former master, and writes to standard error. Its SentinelClient allocates whatever length a
// reply announces, and reads nested replies by recursion, so that a wrong server under a
// sentinel's address could end the process. The few commands here need flat replies only.
type sentinels struct {
	master         string
	addrs          []string
	user, password string
	dialer         dialer

	once    sync.Once // starts following with the first connection
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	believed view
	views    map[string]view        // the last word of each sentinel, by its address
	masters  map[*masterConn]string // the open connections, and their addresses as the sentinels report them
}

func newSentinels(t *target, d dialer) *sentinels {
	s := &sentinels{
		master: t.master, addrs: t.addrs, user: t.sentinelUser, password: t.sentinelPassword, dialer: d,
		views: make(map[string]view), masters: make(map[*masterConn]string),
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
		return failedConn{fmt.Errorf("%w: %w", backend.ErrUnavailable, err)}, nil
	}
	d := s.dialer
	d.dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := s.dialer.dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return s.track(conn, addr)
	}
	return d.connect(ctx, network, addr)
}

// masterConn is a connection to a master. It is a syscall.Conn, because go-redis uses that to check
// whether the peer has closed the connection.
type masterConn struct {
	*net.TCPConn
	sentinels *sentinels
}

// track registers a new connection. It returns an error if another master has been announced while
// it was dialled.
func (s *sentinels) track(conn net.Conn, addr string) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.believed.master != addr {
		_ = conn.Close()
		return nil, fmt.Errorf("%s is not the master any more", addr)
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return conn, nil
	}
	c := &masterConn{TCPConn: tcp, sentinels: s}
	s.masters[c] = addr
	return c, nil
}

// Close implements net.Conn.
func (c *masterConn) Close() error {
	c.sentinels.mu.Lock()
	delete(c.sentinels.masters, c)
	c.sentinels.mu.Unlock()
	return c.TCPConn.Close()
}

// learn records the word of a sentinel. An answer to a request that is older than its last word
// is dropped.
func (s *sentinels) learn(sentinel string, v view) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v.asked.Before(s.views[sentinel].asked) {
		return
	}
	s.views[sentinel] = v
	switch {
	case s.believed.master == "", v.epoch > s.believed.epoch:
		s.believe(v)
	case v.master != s.believed.master && s.unanimous(v.master):
		s.believe(v)
	}
}

// unanimous reports whether master is the last word of every sentinel. s.mu must be held.
func (s *sentinels) unanimous(master string) bool {
	for _, addr := range s.addrs {
		if v, ok := s.views[addr]; !ok || v.master != master {
			return false
		}
	}
	return true
}

// believe closes the connections to other masters: they may still answer, but a lock there excludes
// no client of the new master. s.mu must be held.
func (s *sentinels) believe(v view) {
	s.believed = v
	for c, addr := range s.masters {
		if addr != v.master {
			_ = c.TCPConn.Close()
		}
	}
}

// find returns the master after asking all sentinels at once.
func (s *sentinels) find(ctx context.Context) (string, error) {
	var asking sync.WaitGroup
	defer asking.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the requests that are left
	results := make(chan error, len(s.addrs))
	for _, addr := range s.addrs {
		asking.Go(func() { results <- s.ask(ctx, addr) })
	}
	if err := s.await(results); err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.believed.master, nil
}

// await returns when all sentinels have answered or failed, or soon after a majority has answered.
func (s *sentinels) await(results <-chan error) error {
	failed := fmt.Errorf("no sentinel names the master %q", s.master)
	answered := 0
	var grace <-chan time.Time
	for range s.addrs {
		select {
		case err := <-results:
			if err != nil {
				failed = fmt.Errorf("%w; %w", failed, err)
				continue
			}
			if answered++; answered == len(s.addrs)/2+1 {
				grace = time.After(sentinelGrace)
			}
		case <-grace:
			return nil
		}
	}
	if answered == 0 {
		return failed
	}
	return nil
}

// ask learns the view of one sentinel. Its epoch is requested first: a failover between the two
// commands then yields the new master with the old epoch, and never the reverse. The leader of a
// failover reports the new epoch together with the former master in SENTINEL MASTER, so the
// address comes from the other command.
func (s *sentinels) ask(ctx context.Context, addr string) error {
	c, err := s.open(ctx, addr)
	if err != nil {
		return err
	}
	defer c.close()
	asked := time.Now()
	state, err := c.do("SENTINEL", "MASTER", s.master)
	if err != nil {
		return fmt.Errorf("%s: %w", addr, err)
	}
	master, err := c.do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.master)
	if err != nil {
		return fmt.Errorf("%s: %w", addr, err)
	}
	epoch, err := configEpoch(state)
	if err != nil || len(master) != 2 {
		return fmt.Errorf("%s: not the answer of a sentinel that has the master %q", addr, s.master)
	}
	s.learn(addr, view{master: net.JoinHostPort(master[0], master[1]), epoch: epoch, asked: asked})
	return nil
}

// configEpoch finds the epoch among the names and values that describe a master.
func configEpoch(state []string) (uint64, error) {
	for pair := range slices.Chunk(state, 2) {
		if len(pair) == 2 && pair[0] == "config-epoch" {
			return strconv.ParseUint(pair[1], 10, 64)
		}
	}
	return 0, errors.New("no config-epoch")
}

// listen begins to follow the sentinels.
func (s *sentinels) listen() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	for _, addr := range s.addrs {
		s.running.Go(func() {
			for s.ctx.Err() == nil {
				s.follow(addr)
				select {
				case <-time.After(maxBackoff):
				case <-s.ctx.Done():
				}
			}
		})
	}
}

// follow listens to a sentinel until an error. It asks after each subscription and after each
// announcement.
func (s *sentinels) follow(addr string) {
	c, err := s.open(s.ctx, addr)
	if err != nil {
		return
	}
	defer c.close()
	message, err := c.do("SUBSCRIBE", switchMaster)
	changed := true
	for err == nil {
		if s.heard(addr, message) || changed {
			_ = s.ask(s.ctx, addr)
		}
		changed = false
		message, err = c.next()
	}
}

// heard handles "message", the channel, and name, old host, old port, new host, new port. It reports
// whether that was an announcement. The announcement has no epoch. A sentinel raises its own with
// each switch, so that one more than its last is a lower bound.
func (s *sentinels) heard(sentinel string, message []string) bool {
	if len(message) != 3 || message[1] != switchMaster {
		return false
	}
	words := strings.Fields(message[2])
	if len(words) != 5 || words[0] != s.master {
		return false
	}
	master := net.JoinHostPort(words[3], words[4])
	s.mu.Lock()
	last := s.views[sentinel]
	s.mu.Unlock()
	if last.master != master {
		s.learn(sentinel, view{master: master, epoch: last.epoch + 1, asked: time.Now()})
	}
	return true
}

// checkRole refuses a new connection to a server that has been demoted. It costs one request for
// each connection and none for a lock. A server that does not permit ROLE passes.
func checkRole(ctx context.Context, conn *redis.Conn) error {
	role, err := conn.Do(ctx, "role").Slice()
	if err != nil || len(role) == 0 || role[0] == "master" {
		if err == nil || replied(err, "") {
			return nil
		}
		return err
	}
	return fmt.Errorf("%w: %w", backend.ErrUnavailable, errNotMaster)
}

var errNotMaster = errors.New("the server that the sentinels name is not a master")

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

// next waits for a message. It pings a sentinel that has been silent for a while.
func (c *sentinelConn) next() ([]string, error) {
	_ = c.conn.SetDeadline(time.Now().Add(pingInterval))
	if _, err := c.reader.Peek(1); errors.Is(err, os.ErrDeadlineExceeded) {
		return c.do("PING")
	}
	_ = c.conn.SetDeadline(time.Now().Add(c.timeout))
	return c.read()
}

// read returns the strings of a reply in their order, however they are nested; nil is none. It
// neither recurses nor allocates more than maxSentinelReply.
func (c *sentinelConn) read() ([]string, error) {
	var words []string
	budget := maxSentinelReply
	for open := 1; open > 0; open-- {
		line, err := c.line()
		if err != nil {
			return nil, err
		}
		n := 0
		switch line[0] {
		case '-':
			return nil, fmt.Errorf("it answers %q", cutArguments(line[1:]))
		case '+', ':':
			words = append(words, line[1:])
		case '*', '$':
			if n, err = strconv.Atoi(line[1:]); err != nil {
				return nil, errNotRedis
			}
		default:
			return nil, errNotRedis
		}
		if budget -= len(line) + max(n, 0); budget < 0 {
			return nil, errors.New("its answer is too long for a sentinel")
		}
		switch {
		case line[0] == '*' && n > 0:
			open += n
		case line[0] == '$' && n >= 0:
			text := make([]byte, n+len("\r\n"))
			if _, err := io.ReadFull(c.reader, text); err != nil {
				return nil, err
			}
			words = append(words, string(text[:n]))
		}
	}
	return words, nil
}

var errNotRedis = errors.New("its answer is not Redis's protocol")

// line reads a line of at least one character, and at most the size of the buffer.
func (c *sentinelConn) line() (string, error) {
	line, err := c.reader.ReadSlice('\n')
	text := strings.TrimSpace(string(line))
	if err == nil && text == "" {
		err = errors.New("it answers an empty line")
	}
	return text, err
}
