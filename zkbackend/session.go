package zkbackend

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
)

const (
	// sendBuffer is enough for the largest request of the client library: it requests watches again
	// in requests of 128 KiB.
	sendBuffer = 160 << 10

	// minServerTimeout is the minimum time that one server has to accept a connection, or to
	// answer.
	minServerTimeout = time.Second

	// firstServerTimeout replaces minServerTimeout for the first connection of a session. No lease
	// depends on that connection yet.
	firstServerTimeout = 3 * time.Second

	// minPing is the minimum pause between two pings.
	minPing = 10 * time.Millisecond

	// closeTimeout limits how long a session that ends waits for its server.
	closeTimeout = time.Second
)

// session is one session on the servers, with the connection that carries it. It begins without a
// connection, and lives until the servers, the driver or refused credentials end it. Then it is
// over for good: a next session has its own client of the library, and has none of the nodes.
//
// Its state is in channels, so that goroutines can wait for it: ready, unreachable, and ctx. The
// library may lose and replace the connection at any time in between; wire is the present one.
type session struct {
	settings      *settings
	conn          *zk.Conn
	serverTimeout time.Duration // of one server, for the connection and the handshake

	established func()          // closes ready; may be called repeatedly
	ready       <-chan struct{} // closed when the first connection can carry requests
	unreachable chan struct{}   // closed when all servers have been tried without success
	ctx         context.Context // ends with the session; its cause is the reason
	cancel      context.CancelCauseFunc

	proof      proof
	background sync.WaitGroup // of inBackground; mu must be held to add to it

	mu         sync.Mutex
	wire       *wire             // the present connection; nil: none
	wires      int               // number of connections so far
	heard      time.Time         // the last answer on an earlier connection; zero: none yet
	failure    error             // of the last attempt to connect
	leaderless bool              // a server closed a connection unanswered, as without a leader
	watches    map[string]*watch // by path; those that have not fired
	sends      map[action]func() // see onSent
	pending    int               // number of callers that wait for answers
	silence    *time.Timer       // of dropSilent; it runs while pending is not 0
}

// newSession begins a session. It connects in the background, to the server first if that is not
// "". The caller must start run in a goroutine, once, and wait for its return.
func newSession(servers []string, opts *settings, first string) (*session, error) {
	ready := make(chan struct{})
	s := &session{
		settings:      opts,
		serverTimeout: max(opts.planned()/6, minServerTimeout),
		established:   sync.OnceFunc(func() { close(ready) }),
		ready:         ready,
		unreachable:   make(chan struct{}),
		watches:       make(map[string]*watch),
		sends:         make(map[action]func()),
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.silence = time.AfterFunc(math.MaxInt64, s.dropSilent)
	s.silence.Stop() // a timer that runs would keep the session in memory
	provider := &hosts{first: first, exhausted: sync.OnceFunc(func() { close(s.unreachable) })}
	var err error
	s.conn, _, err = zk.Connect(servers, opts.timeout,
		zk.WithDialer(s.dial), zk.WithHostProvider(provider), zk.WithEventCallback(s.event),
		zk.WithLogger(silent{}), zk.WithLogInfo(false), zk.WithMaxConnBufferSize(sendBuffer))
	if err != nil {
		s.cancel(err)
		return nil, err
	}
	return s, nil
}

// run is the goroutine of the session. It returns when the session is over, its connection is
// closed and its background work has ended.
func (s *session) run() {
	s.keepAlive()
	if w := s.connection(); w == nil || !w.isReady() {
		s.dropConnection() // no answer can come
	}
	s.close()
	if w := s.swap(nil); w != nil {
		_ = w.Close() // or the library would read from it for a whole session timeout
	}
	s.background.Wait()
}

// keepAlive pings the server until the session ends.
func (s *session) keepAlive() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(s.settings.ping(s.proof.granted())):
		}
		if w := s.connection(); w != nil && w.isReady() {
			w.ping()
		}
	}
}

// close requests the end of the session and waits for the answer, for at most closeTimeout. The
// library waits for longer if requests that it cannot send fill its queue: it puts this request
// behind them, and gives up after twice its timeout for connecting.
func (s *session) close() {
	closed := make(chan struct{})
	go func() { // for as long as the library waits
		defer close(closed)
		s.conn.Close()
	}()
	select {
	case <-closed:
	case <-time.After(closeTimeout):
	}
}

// inBackground runs fn in a goroutine that run waits for. It does nothing if the session is over.
func (s *session) inBackground(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() == nil {
		s.background.Go(fn)
	}
}

// end ends the session for the given reason, and fires all of its watches. It does not wait for
// run.
func (s *session) end(reason error) {
	s.cancel(reason)
	time.AfterFunc(closeTimeout, s.dropConnection) // the library would wait for longer
	s.mu.Lock()
	paths := make([]string, 0, len(s.watches))
	for path := range s.watches {
		paths = append(paths, path)
	}
	s.mu.Unlock()
	for _, path := range paths {
		s.fire(path, reason)
	}
}

// userRefused reports whether the session is over because a server refused its user. On the servers
// such a session lives on for its timeout, with its nodes.
func (s *session) userRefused() bool {
	return errors.Is(context.Cause(s.ctx), zk.ErrAuthFailed)
}

// event is called by the library in the order in which the server's messages arrive. On one
// connection, a change of a node is processed here before the answer to any request that was sent
// after it. On the next connection the library requests all watches again, in an order of its own,
// and other requests may be answered earlier.
func (s *session) event(e zk.Event) {
	switch {
	case e.Type == zk.EventSession && e.State == zk.StateHasSession:
		s.established()
	case e.Type == zk.EventSession && e.State == zk.StateExpired:
		s.end(errExpired)
	case e.Type == zk.EventNodeDeleted:
		s.fire(e.Path, errDeleted)
		s.fire(e.Path+children, errDeleted)
	case e.Type == zk.EventNodeChildrenChanged:
		s.fire(e.Path+children, nil)
	case e.Type == zk.EventNodeDataChanged:
		s.fire(e.Path, nil)
	}
}

// await blocks until requests can be made. It returns ErrUnavailable if the session is over, if no
// server could be reached, or if ctx ends.
func (s *session) await(ctx context.Context) error {
	select {
	case <-s.ready:
		return nil
	default:
	}
	select {
	case <-s.ready:
		return nil
	case <-s.ctx.Done():
		return fmt.Errorf("%w: %w", backend.ErrUnavailable, context.Cause(s.ctx))
	case <-s.unreachable:
		return s.explain(zk.ErrNoServer)
	case <-ctx.Done():
		return s.explain(ctx.Err())
	}
}

// explain returns err with the reason why there is no connection, as ErrUnavailable.
func (s *session) explain(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure != nil {
		err = fmt.Errorf("%w: %w", err, s.failure)
	}
	if s.leaderless {
		err = &leaderlessError{err}
	}
	return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
}

// failed keeps the reason why an attempt to connect failed.
func (s *session) failed(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure = reason
}

// failedUnanswered is failed for a server that closed the connection without an answer.
func (s *session) failedUnanswered(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure, s.leaderless = reason, true
}

// call runs fn, which sends requests in the session, and returns its result, or ctx's error as soon
// as ctx ends. In the meantime a server that becomes silent loses its connection, see dropSilent.
func call[T any](ctx context.Context, s *session, fn func() (T, error)) (T, error) {
	return backend.Call(ctx, func(context.Context) (T, error) {
		s.addPending(1)
		defer s.addPending(-1)
		return fn()
	})
}

// addPending counts the callers that wait for answers. While there are any, the silence of the
// server is limited.
func (s *session) addPending(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.pending
	s.pending += n
	switch {
	case before == 0:
		s.silence.Reset(s.maxSilence())
	case s.pending == 0:
		s.silence.Stop()
	}
}

// maxSilence returns the maximum silence of a server while a caller waits for an answer.
func (s *session) maxSilence() time.Duration {
	return max(s.settings.planned()/8, minServerTimeout)
}

// dropSilent closes a connection that was silent for maxSilence although a caller waits. The
// library would close it only after two thirds of the session's timeout. That can be too late for
// another server to save the leases, and for waiters.
func (s *session) dropSilent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending == 0 {
		return
	}
	if s.wire != nil && s.wire.lastHeard().Before(time.Now().Add(-s.maxSilence())) {
		_ = s.wire.Close()
	}
	s.silence.Reset(s.maxSilence())
}

// connection returns the present connection, or nil if there is none.
func (s *session) connection() *wire {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wire
}

// dropConnection closes the present connection. The library connects again, unless the session is
// over.
func (s *session) dropConnection() {
	if w := s.connection(); w != nil {
		_ = w.Close()
	}
}

// swap makes w the present connection and returns the former one, for the caller to close.
func (s *session) swap(w *wire) (old *wire) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, s.wire = s.wire, w
	s.wires++
	if old != nil && old.isReady() {
		s.heard = old.lastHeard()
	}
	return old
}

// isOutlived reports whether every lease is over that an answer on a former connection has proven.
// A term begins before its answer and is not longer than the session. isOutlived waits two ticks
// more: by then the leader has ended the session, unless the leader has changed. The other servers
// then have all transactions that the session has seen. So this client need not check that they
// have them.
func (s *session) isOutlived(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.heard.IsZero() && now.Sub(s.heard) >= s.proof.granted()+2*s.settings.tick
}

// onSent calls sent, once, when a request for that action is written to the connection. The caller
// must call stop afterwards. A later call for the same action replaces this one, and either stop
// ends it.
func (s *session) onSent(a action, sent func()) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sends[a] = sent
	return func() { s.takeSent(a) }
}

// takeSent returns the function of onSent for a, and nil the next time.
func (s *session) takeSent(a action) (sent func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent = s.sends[a]
	delete(s.sends, a)
	return sent
}
