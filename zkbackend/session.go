package zkbackend

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
)

const (
	// sendBuffer holds the largest request: the client library renews watches in requests of 128 KiB.
	sendBuffer = 160 << 10
	// minPatience is the least time that one server has to accept a connection, or to answer.
	minPatience = time.Second
	// openPatience is minPatience for the first connection, of which nothing depends yet.
	openPatience = 3 * time.Second
	// minPing is the shortest pause between two pings.
	minPing = 10 * time.Millisecond
	// noNode is never made. No lock's node has a tilde.
	noNode = "/~none"
	// farewell is how long a session that ends waits for its server.
	farewell = time.Second
)

var (
	errExpired = fmt.Errorf("%w: the server has ended the session", backend.ErrLost)
	errDeleted = fmt.Errorf("%w: its node was deleted", backend.ErrLost)
)

// session is one session on the servers, with the one connection that carries it. When the
// server has ended it, it is over for good: there is a new session, with a client of the library
// of its own, and what was made in the old one is nobody's.
type session struct {
	settings    *settings
	conn        *zk.Conn
	patience    time.Duration
	established func()          // the first connection stands
	ready       <-chan struct{} // closed by established
	vain        chan struct{}   // closed when all servers have been tried without success
	ctx         context.Context // ends with the session; the cause says why
	cancel      context.CancelCauseFunc
	proof       proof
	behind      sync.WaitGroup // goroutines of inBackground; added to with mu held

	mu      sync.Mutex
	wire    *wire     // the present connection
	wires   int       // how many there have been
	heard   time.Time // when the last connection before it brought something
	failure error     // why the last attempt to connect failed
	refused bool      // a server has closed a connection without a word, as one without a leader does
	watches map[string]*watch
	deletes map[string]func() // to be called when the request to delete a node is sent
	asking  int               // how many wait for an answer
	silence *time.Timer       // of the server, then
}

// watch is the server's promise to tell of the next change of a node. All who want to know
// of one node share one: the server counts them, and there is no way to take one back.
type watch struct {
	path  string
	wire  int           // number of the connection of its request
	armed chan struct{} // closed when the server has answered; then err and stat are there
	err   error
	stat  *zk.Stat

	fired chan struct{} // closed when the node has changed, or the session is over
	gone  error         // why there is no such node any more; nil if it has merely changed
	lost  func(error)   // to be called with gone
}

// closed is a channel that is.
var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// newSession begins a session, on the server first if that is not "". The caller must start run in a
// goroutine, once, and wait for its return.
func newSession(servers []string, opts *settings, first string) (*session, error) {
	ready := make(chan struct{})
	s := &session{
		settings: opts, patience: max(opts.wanted()/6, minPatience),
		established: sync.OnceFunc(func() { close(ready) }), ready: ready,
		vain: make(chan struct{}), watches: make(map[string]*watch), deletes: make(map[string]func()),
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.silence = time.AfterFunc(math.MaxInt64, s.doubt)
	var err error
	s.conn, _, err = zk.Connect(servers, opts.timeout,
		zk.WithDialer(s.dial), zk.WithHostProvider(&hosts{first: first, vain: sync.OnceFunc(func() { close(s.vain) })}), zk.WithEventCallback(s.event),
		zk.WithLogger(silent{}), zk.WithLogInfo(false), zk.WithMaxConnBufferSize(sendBuffer))
	if err != nil {
		s.cancel(err)
		return nil, err
	}
	return s, nil
}

// run is the session's goroutine. It returns when the session is over, and its connection closed.
func (s *session) run() {
	s.keepAlive()
	if w := s.present(); w == nil || !w.shaken.Load() {
		s.hangUp() // there is nothing to wait for
	}
	s.bid()
	if w := s.swap(nil); w != nil {
		_ = w.Close() // the library would listen to a dead one for as long as the session
	}
	s.behind.Wait()
}

// bid asks the server to end the session, and waits for the answer, for farewell at most. The
// library waits for longer where requests that it cannot send fill its queue: it puts the
// farewell behind them, and gives up after twice its time-out for connecting.
func (s *session) bid() {
	closed := make(chan struct{})
	go func() { // for as long as the library waits
		defer close(closed)
		s.conn.Close()
	}()
	select {
	case <-closed:
	case <-time.After(farewell):
	}
}

// keepAlive pings the server until the session ends.
func (s *session) keepAlive() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(s.settings.ping(s.proof.granted())):
		}
		if w := s.present(); w != nil && w.shaken.Load() {
			w.ping()
		}
	}
}

// present returns the present connection, nil if there is none.
func (s *session) present() *wire {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wire
}

// hangUp closes the present connection.
func (s *session) hangUp() {
	if w := s.present(); w != nil {
		_ = w.Close()
	}
}

// await returns when requests may be made, or when no server could be reached.
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
	case <-s.vain:
		return s.unreachable(zk.ErrNoServer)
	case <-ctx.Done():
		return s.unreachable(ctx.Err())
	}
}

// unreachable is err with the reason why there is no connection.
func (s *session) unreachable(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure != nil {
		err = fmt.Errorf("%w: %w", err, s.failure)
	}
	if s.refused {
		err = &leaderlessError{err}
	}
	return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
}

// event is called by the library, in the order in which the server's messages come: what has happened to a node is
// known here before the answer to any request that was sent later, on one connection. On the next one the library
// asks for all watches anew, in an order of its own, and other requests may be answered before.
func (s *session) event(e zk.Event) {
	switch {
	case e.Type == zk.EventSession && e.State == zk.StateHasSession:
		s.established()
	case e.Type == zk.EventSession && e.State == zk.StateExpired:
		s.end(errExpired)
	case e.Type == zk.EventNodeDeleted:
		s.fire(e.Path, errDeleted)
	case e.Type == zk.EventNodeDataChanged:
		s.fire(e.Path, nil)
	}
}

// end makes the session one that is over, and tells everybody whom that concerns.
func (s *session) end(cause error) {
	s.cancel(cause)
	time.AfterFunc(farewell, s.hangUp) // the library would wait for longer where its requests pile up
	s.mu.Lock()
	paths := make([]string, 0, len(s.watches))
	for path := range s.watches {
		paths = append(paths, path)
	}
	s.mu.Unlock()
	for _, path := range paths {
		s.fire(path, cause)
	}
}

// userRefused reports whether the session is over because a server refused its user. On the servers it lives on for its
// timeout, with its nodes.
func (s *session) userRefused() bool { return errors.Is(context.Cause(s.ctx), zk.ErrAuthFailed) }

// fire tells of a change of the node; gone is set where there is no such node any more.
func (s *session) fire(path string, gone error) {
	s.mu.Lock()
	w := s.watches[path]
	delete(s.watches, path)
	s.mu.Unlock()
	if w != nil {
		s.tell(w, gone)
	}
}

// tell is fire for a watch that is registered no more.
func (s *session) tell(w *watch, gone error) {
	s.mu.Lock()
	lost := w.lost
	w.gone = gone
	close(w.fired)
	s.mu.Unlock()
	if gone != nil && lost != nil {
		lost(gone)
	}
}

// watch asks to be told of the next change of the node, unless that was done before. It is
// zk.ErrNoNode where there is none.
func (s *session) watch(path string) (*watch, error) {
	w, mine := s.register(path)
	if mine {
		s.arm(w)
		return w, w.err
	}
	return w, s.armed(w)
}

// armed returns when the server has answered the request for w.
func (s *session) armed(w *watch) error {
	select {
	case <-w.armed:
		return w.err
	case <-s.ctx.Done():
		return zk.ErrSessionExpired
	}
}

// watchBehind is watch of a node that this session has just made: the answer is not waited for.
func (s *session) watchBehind(path string) *watch {
	w, mine := s.register(path)
	if mine {
		s.inBackground(func() { s.arm(w) }) // or end has it fire
	}
	return w
}

// inBackground runs fn in a goroutine of the session, unless that is over.
func (s *session) inBackground(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() == nil {
		s.behind.Go(fn)
	}
}

// arm requests what was registered before, so that no event is missed. If the request fails, the watch fires: for an
// acquisition that shares it, it would otherwise be one that never does. It fires as that of a deleted node if there is none, else
// to be renewed.
func (s *session) arm(w *watch) {
	defer close(w.armed)
	if _, w.stat, _, w.err = s.conn.GetW(w.path); w.err == nil || !s.unregister(w) {
		return
	}
	if errors.Is(w.err, zk.ErrNoNode) {
		s.tell(w, errDeleted)
	} else {
		s.tell(w, nil)
	}
}

// unregister reports whether w was still registered: otherwise it has fired.
func (s *session) unregister(w *watch) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watches[w.path] != w {
		return false
	}
	delete(s.watches, w.path)
	return true
}

// register returns the watch of the node, and whether the caller has to arm it.
func (s *session) register(path string) (w *watch, mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.watches[path]; w != nil {
		return w, false
	}
	w = &watch{path: path, wire: s.wires, armed: make(chan struct{}), fired: make(chan struct{})}
	if s.ctx.Err() == nil {
		s.watches[path] = w
		return w, true
	}
	w.err = zk.ErrSessionExpired
	close(w.armed)
	return w, false
}

// guard has lost called when the node of w is gone; nil lets it go. It returns why the node is gone
// already, if it is.
func (s *session) guard(w *watch, lost func(error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.lost = lost
	return w.gone
}

// inherit has w do for the holder what old did until it fired.
func (s *session) inherit(w, old *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.lost = old.lost
}

// gone tells why the node of w is gone, if it is.
func (s *session) gone(w *watch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return w.gone
}

// inOrder tells that what has happened to the nodes of watches was told in the order in which it has happened: they were asked
// for on the present connection.
func (s *session) inOrder(watches ...*watch) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.ContainsFunc(watches, func(w *watch) bool { return w.wire != s.wires })
}

// stale tells that w has fired and its node may exist all the same.
func (s *session) stale(w *watch) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-w.fired:
		return w.gone == nil
	default:
		return false
	}
}

// prove sees to a proof of the session that is younger than age. The request is a write, although it
// changes nothing: a majority takes part in the answer. A sync goes through the leader alone, and a leader that the others have left
// answers it for some ticks, while another one counts the session's timeout from its own beginning.
func (s *session) prove(age time.Duration) error {
	m := s.begin()
	if m.sent.Sub(s.proof.get().Sent) < age {
		return nil
	}
	if err := s.conn.Delete(s.settings.root+noNode, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	s.proof.add(m)
	return nil
}

// begin returns the present moment, for a request that begins now.
func (s *session) begin() moment {
	w, now := s.present(), time.Now()
	if w == nil {
		return moment{sent: now, touched: now} // the connect request will be later
	}
	return moment{sent: now, touched: w.touches.before(now, s.settings.report())}
}

// ask runs fn, which asks the server, and returns when ctx ends. Meanwhile a server that falls
// silent is given up.
func ask[T any](ctx context.Context, s *session, fn func() (T, error)) (T, error) {
	return backend.Call(ctx, func(context.Context) (T, error) {
		s.expect(1)
		defer s.expect(-1)
		return fn()
	})
}

// expect counts those who wait for an answer. While there are any the silence of the server is watched.
func (s *session) expect(more int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.asking
	s.asking += more
	switch {
	case before == 0:
		s.silence.Reset(s.maxSilence())
	case s.asking == 0:
		s.silence.Stop()
	}
}

func (s *session) maxSilence() time.Duration { return max(s.settings.wanted()/8, minPatience) }

// whenDeleted has sent called when a request to delete the node is on its way, until stop is called.
func (s *session) whenDeleted(node string, sent func()) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deletes[node] = sent
	return func() { s.takeDeleted(node) }
}

// takeDeleted returns what is to be called then, once; nil if there is nothing.
func (s *session) takeDeleted(node string) (sent func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent = s.deletes[node]
	delete(s.deletes, node)
	return sent
}

// doubt gives up a connection that has brought nothing for a while, although something was asked. The
// library would do that only after two thirds of the session's timeout, which can be too late for
// another server to save the leases, or for those who wait.
func (s *session) doubt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asking == 0 {
		return
	}
	if s.wire != nil && s.wire.silentSince(time.Now().Add(-s.maxSilence())) {
		_ = s.wire.Close()
	}
	s.silence.Reset(s.maxSilence())
}

// term is what the proof is worth to a lock.
func (s *session) term(ttl time.Duration) backend.Term {
	term := s.proof.get()
	term.TTL = min(term.TTL, ttl)
	return term
}

func (s *session) negotiated(timeout time.Duration) { s.proof.negotiated(timeout) }

// failed takes why there is no connection; refused tells that the server has closed it without a word.
func (s *session) failed(err error, refused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure, s.refused = err, s.refused || refused
}

// watching reports whether there is a watch that the library may have to ask for again.
func (s *session) watching() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watches) > 0
}

// swap takes the new connection and returns the old one.
func (s *session) swap(w *wire) (old *wire) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, s.wire = s.wire, w
	s.wires++
	if old != nil && old.shaken.Load() {
		s.heard = old.lastHeard()
	}
	return old
}

// outlived reports whether no lease can be left of what former connections have brought: every term begins before an
// answer, and is no longer than the session. It counts two ticks more. The leader then has ended the session, unless it has
// changed meanwhile, and its members have caught up with all that the session has seen. So this client does not
// need them to prove that they have.
func (s *session) outlived(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.heard.IsZero() && now.Sub(s.heard) >= s.proof.granted()+2*s.settings.tick
}
