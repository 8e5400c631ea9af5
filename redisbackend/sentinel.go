package redisbackend

import (
	"context"
	"errors"
	"fmt"
	"net"
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
	// sentinelGrace is how long a new connection waits for the remaining sentinels after a majority
	// has answered. A later answer still counts, because each sentinel is followed.
	sentinelGrace = 100 * time.Millisecond
)

// view is the master that a sentinel reports. Each failover has a greater epoch than the one before
// it.
type view struct {
	master string // its address
	epoch  uint64
	sent   time.Time // when the request for it was sent
}

// sentinels finds the master, and closes connections to former masters.
//
// It accepts the view with the highest epoch that any sentinel has ever reported. A sentinel that
// lags, or that a partition separates from the majority, has a lower one. There is one exception:
// an operator resets the epochs by removing the master from all sentinels and adding it again. So a
// lower epoch counts if all sentinels have reported it last.
//
// go-redis has a client for this. It accepts the first sentinel that answers, leaves pub/sub with
// the former master, and writes to standard error. Its SentinelClient allocates whatever length a
// reply announces, and reads nested replies by recursion, so that a wrong server at a sentinel's
// address could end the process. The few commands here need flat replies only.
type sentinels struct {
	master         string // its name
	addrs          []string
	user, password string
	dialer         dialer

	once    sync.Once       // starts following with the first connection
	ctx     context.Context // ends with close
	cancel  context.CancelFunc
	running sync.WaitGroup // goroutines that follow sentinels

	mu       sync.Mutex
	closed   bool
	accepted view
	views    map[string]view        // the last view of each sentinel, by its address
	masters  map[*masterConn]string // the open connections, with the addresses that were dialed
}

func newSentinels(t *target, d dialer) *sentinels {
	s := &sentinels{
		master: t.master, addrs: t.addrs, user: t.sentinelUser, password: t.sentinelPassword,
		dialer: d, views: make(map[string]view), masters: make(map[*masterConn]string),
	}
	s.ctx, s.cancel = context.WithCancel(d.ctx)
	return s
}

// close stops following the sentinels. The connections to masters must be closed before.
func (s *sentinels) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.running.Wait()
}

// connect dials the master, and ignores the address. It is a redis.Options.Dialer. Each new
// connection queries the sentinels, and no request does.
func (s *sentinels) connect(ctx context.Context, network, _ string) (net.Conn, error) {
	s.once.Do(s.followAll)
	addr, err := s.findMaster(ctx)
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

// track registers a new connection, so that accept can close it. It returns an error if another
// master was announced while the connection was dialed.
func (s *sentinels) track(conn net.Conn, addr string) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.accepted.master != addr {
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

// NetConn returns the socket, for package abort.
func (c *masterConn) NetConn() net.Conn { return c.TCPConn }

// Close implements net.Conn.
func (c *masterConn) Close() error {
	c.sentinels.mu.Lock()
	delete(c.sentinels.masters, c)
	c.sentinels.mu.Unlock()
	return c.TCPConn.Close()
}

// update stores the view of a sentinel, and accepts it if it is the newest. The answer to a request
// that is older than the sentinel's last view is dropped.
func (s *sentinels) update(sentinel string, v view) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v.sent.Before(s.views[sentinel].sent) {
		return
	}
	s.views[sentinel] = v
	switch {
	case s.accepted.master == "", v.epoch > s.accepted.epoch:
		s.accept(v)
	case v.master != s.accepted.master && s.isUnanimous(v.master):
		s.accept(v)
	}
}

// isUnanimous reports whether every sentinel has reported master last. s.mu must be held.
func (s *sentinels) isUnanimous(master string) bool {
	for _, addr := range s.addrs {
		if v, ok := s.views[addr]; !ok || v.master != master {
			return false
		}
	}
	return true
}

// accept makes v the accepted view, and closes the connections to other masters. Those may still
// answer, but a lock there excludes no client of the new master. s.mu must be held. It closes the
// TCP connection itself, because masterConn.Close locks s.mu.
func (s *sentinels) accept(v view) {
	s.accepted = v
	for c, addr := range s.masters {
		if addr != v.master {
			_ = c.TCPConn.Close()
		}
	}
}

// findMaster queries all sentinels at once and returns the address of the master. It blocks until
// all have answered or failed, or a majority has answered and sentinelGrace is over. No query
// outlives the call: cancel closes their connections before it waits for them. It returns an error
// when s.ctx ends.
func (s *sentinels) findMaster(ctx context.Context) (string, error) {
	var queries sync.WaitGroup
	defer queries.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the remaining queries
	defer context.AfterFunc(s.ctx, cancel)()
	results := make(chan error, len(s.addrs))
	for _, addr := range s.addrs {
		queries.Go(func() { results <- s.query(ctx, addr) })
	}
	if err := s.awaitAnswers(results); err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted.master, nil
}

// awaitAnswers returns when all sentinels have answered or failed, or soon after a majority has
// answered. It returns an error if none has answered.
func (s *sentinels) awaitAnswers(results <-chan error) error {
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

// query requests the view of one sentinel. It requests the epoch first: a failover between the two
// commands then yields the new master with the old epoch, and never the reverse. The leader of a
// failover reports the new epoch together with the former master in SENTINEL MASTER, so the address
// comes from the other command.
func (s *sentinels) query(ctx context.Context, addr string) error {
	c, err := s.open(ctx, addr)
	if err != nil {
		return err
	}
	defer c.close()
	sent := time.Now()
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
	s.update(addr, view{master: net.JoinHostPort(master[0], master[1]), epoch: epoch, sent: sent})
	return nil
}

// configEpoch returns the epoch among the names and values that describe a master.
func configEpoch(state []string) (uint64, error) {
	for pair := range slices.Chunk(state, 2) {
		if len(pair) == 2 && pair[0] == "config-epoch" {
			return strconv.ParseUint(pair[1], 10, 64)
		}
	}
	return 0, errors.New("no config-epoch")
}

// followAll starts to follow all sentinels, each in its own goroutine. After an error it connects
// again, maxBackoff later.
func (s *sentinels) followAll() {
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

// follow listens to a sentinel until an error. It queries the sentinel after the subscription and
// after each announcement.
//
// An announcement by itself proves nothing: it has no epoch, and after a stall of this process it
// may be older than the accepted view. If the sentinel fails before it answers the query, the
// remaining sentinels announce the same switch, or another one, as soon as they accept it.
func (s *sentinels) follow(addr string) {
	c, err := s.open(s.ctx, addr)
	if err != nil {
		return
	}
	defer c.close()
	message, err := c.do("SUBSCRIBE", switchMaster)
	subscribed := true
	for err == nil {
		if subscribed || s.isAnnouncement(message) {
			_ = s.query(s.ctx, addr)
		}
		subscribed = false
		message, err = c.next()
	}
}

// isAnnouncement reports whether a message of a sentinel announces a new master. Such a message has
// "message", the channel, and a text that begins with the name of the master.
func (s *sentinels) isAnnouncement(message []string) bool {
	return len(message) == 3 && message[1] == switchMaster &&
		strings.HasPrefix(message[2], s.master+" ")
}

// checkRole refuses a new connection to a server that has been demoted. It costs one request for
// each connection and none for a lock. A server that does not permit ROLE passes. It is a
// redis.Options.OnConnect.
func checkRole(ctx context.Context, conn *redis.Conn) error {
	role, err := conn.Do(ctx, "role").Slice()
	if err != nil || len(role) == 0 || role[0] == "master" {
		if err == nil || isReply(err, "") {
			return nil
		}
		return err
	}
	return fmt.Errorf("%w: %w", backend.ErrUnavailable, errNotMaster)
}
