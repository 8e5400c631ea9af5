package zkbackend

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/tlsfile"
)

const (
	// minHandshake is the least length of a server's answer to a connect request: the version of the protocol, the
	// session timeout in ms, the session, and the length of its password, of four, four, eight and four bytes.
	minHandshake = 20
	// maxHandshake bounds that length, and that of the answer to the credentials: the client
	// library would allocate whatever a server of another kind happens to send.
	maxHandshake = 1 << 10
	// settleSteps of settleStep each are how long nothing is read on a later connection of a session, if the library
	// has no watches to request there. Where the process stands still, one step takes longer, and the library has its
	// turn in the next ones.
	settleSteps = 20
	settleStep  = time.Millisecond
)

// Kinds of requests.
const (
	opCreate     = 1
	opDelete     = 2
	opGetData    = 4
	opSetData    = 5
	opPing       = 11
	opChildren   = 12
	opMulti      = 14
	opSetAuth    = 100
	opSetWatches = 101
	opError      = 1<<32 - 1 // of a result only
)

// Numbers of requests that are not the client library's.
const (
	xidPing = -2 // the library drops the answer
	xidAuth = -4
)

// wire is one connection. It reads in passing what the client library keeps to itself, the
// session timeout that the server granted, and bounds the time of the handshake, for which the
// library would wait almost seven session timeouts, and try no other server. The handshake
// includes the credentials: the library would send them later, in the time in which nothing may
// be read because of settle.
type wire struct {
	net.Conn
	session  *session
	deadline time.Time // of the handshake
	head     []byte    // what was read of the handshake
	settled  bool      // this and head are used by the one goroutine that reads
	shaken   atomic.Bool
	rewatch  chan struct{} // gets a value when the watches are requested again; nil where there are none
	dialled  time.Time
	heard    atomic.Int64 // when something was read last, after dialled
	touches  touches
	answers  answers
}

func (w *wire) Read(p []byte) (int, error) {
	shaken := w.shaken.Load()
	if shaken && !w.settled {
		w.settle()
	}
	n, err := w.Conn.Read(p)
	if n > 0 {
		w.heard.Store(int64(time.Since(w.dialled)))
	}
	if shaken {
		pings, bad := w.answers.take(p[:n])
		w.touches.heard(pings, time.Now(), w.session.settings.report())
		if bad != nil {
			return 0, fmt.Errorf("%s: %w", w.RemoteAddr(), bad) // not n, or a caller that has what it wants may drop it
		}
		return n, err
	}
	refused := errors.Is(err, io.EOF)
	if err != nil {
		err = fmt.Errorf("no answer from %s: %w", w.RemoteAddr(), err)
	} else {
		err = w.shake(p[:n])
	}
	if err != nil {
		w.session.failed(err, refused)
		return 0, err // not n, or a caller that has what it wants may drop err
	}
	return n, nil
}

// shake takes a part of the server's answer to the connect request. With the last one it
// authenticates the connection, before the library can send anything on it.
func (w *wire) shake(part []byte) error {
	w.head = append(w.head, part...)
	if len(w.head) < sizeField {
		return nil
	}
	if n := w.length(); n < minHandshake || n > maxHandshake {
		return w.notZooKeeper()
	}
	if len(w.head) < sizeField+w.length() {
		return nil
	}
	timeout, ok := granted(w.head[sizeField:])
	if !ok {
		return w.notZooKeeper()
	}
	w.session.negotiated(timeout)
	if timeout > 0 && w.session.settings.User != "" { // an expired session is granted none
		if err := w.authenticate(); err != nil {
			return err
		}
	}
	w.shaken.Store(true)
	return nil
}

// granted returns the session timeout of a complete answer to a connect request, which is 0 for an expired session. It is not
// ok where the client library would end the process, by a ticker without an interval, or allocate a password
// that is not there.
func granted(answer []byte) (timeout time.Duration, ok bool) {
	ms := int32(binary.BigEndian.Uint32(answer[4:]))
	session := binary.BigEndian.Uint64(answer[8:])
	password := int(binary.BigEndian.Uint32(answer[16:]))
	ok = ms >= 0 && (ms > 0 || session == 0) && password <= len(answer)-minHandshake
	return time.Duration(ms) * time.Millisecond, ok
}

// length returns that of the answer, without the four bytes in which it stands.
func (w *wire) length() int { return int(binary.BigEndian.Uint32(w.head)) }

func (w *wire) notZooKeeper() error {
	return fmt.Errorf("%s is not a ZooKeeper server", w.RemoteAddr())
}

// authenticate sends the credentials and reads the answer, which is the first on the connection.
func (w *wire) authenticate() error {
	const head = 16 // number, transaction and error of an answer
	if _, err := w.Write(w.session.settings.credentials()); err != nil {
		return fmt.Errorf("credentials to %s: %w", w.RemoteAddr(), err)
	}
	var size [4]byte
	_, err := io.ReadFull(w.Conn, size[:])
	n := binary.BigEndian.Uint32(size[:])
	if err == nil && (n < head || n > maxHandshake) {
		return w.notZooKeeper()
	}
	answer := make([]byte, n)
	if err == nil {
		_, err = io.ReadFull(w.Conn, answer)
	}
	if err != nil {
		return fmt.Errorf("no answer to the credentials from %s: %w", w.RemoteAddr(), err)
	}
	if code := int32(binary.BigEndian.Uint32(answer[head-4:])); code != 0 {
		w.session.end(zk.ErrAuthFailed)
		return fmt.Errorf("%s: %w", w.RemoteAddr(), zk.ErrAuthFailed)
	}
	return nil
}

// credentials is the request that authenticates a connection by the scheme digest.
func (s *settings) credentials() []byte {
	p := binary.BigEndian.AppendUint32(nil, 0) // the length
	for _, n := range []int32{xidAuth, opSetAuth, 0} {
		p = binary.BigEndian.AppendUint32(p, uint32(n))
	}
	for _, text := range []string{"digest", s.User + ":" + s.Password} {
		p = append(binary.BigEndian.AppendUint32(p, uint32(len(text))), text...)
	}
	binary.BigEndian.PutUint32(p, uint32(len(p)-4))
	return p
}

// ping is a request that only shows the server that the session lives.
func (w *wire) ping() {
	p := binary.BigEndian.AppendUint32(nil, 8)
	for _, n := range []int32{xidPing, opPing} {
		p = binary.BigEndian.AppendUint32(p, uint32(n))
	}
	_, _ = w.Write(p) // an error is the library's matter, which writes and reads too
}

// settle waits for the request for watches: the library's sendSetWatches reads what its receiving goroutine writes with
// the first answer.
func (w *wire) settle() {
	w.settled = true
	if w.rewatch == nil {
		return
	}
	for range settleSteps {
		select {
		case <-w.rewatch:
			return
		case <-time.After(settleStep):
		}
	}
}

// Write tells when a request to delete a node was sent, of which the library tells nothing before it is answered. What comes
// after it is executed after it.
func (w *wire) Write(p []byte) (int, error) {
	if first := w.touches.send(time.Now(), kind(p) == opPing); first && w.session.outlived(time.Now()) {
		p = withoutHistory(p)
	}
	w.answers.expect(p)
	n, err := w.Conn.Write(p)
	if err != nil && !w.shaken.Load() {
		w.session.failed(fmt.Errorf("request to %s: %w", w.RemoteAddr(), err), false)
	}
	if kind(p[:n]) == opSetWatches {
		select {
		case w.rewatch <- struct{}{}:
		default:
		}
	}
	if node, ok := deleted(p[:n]); ok {
		if sent := w.session.takeDeleted(node); sent != nil {
			sent()
		}
	}
	return n, err
}

// withoutHistory returns a connect request without the number of the last transaction that the client has seen. A server
// that has made fewer transactions closes the connection without an answer, also when it has lost its data and
// will never make as many. The library would ask it for ever. Asked without the number, the server decides
// whether the session lives.
func withoutHistory(connect []byte) []byte {
	const at, end = 8, 16 // behind the length and the version of the protocol
	if len(connect) < end {
		return connect
	}
	connect = slices.Clone(connect) // it is the library's
	clear(connect[at:end])
	return connect
}

// deleted returns the node that a request is to delete. A request is its length, its number and its kind; that of a deletion goes
// on with the length of a path, each of these four bytes, the path, and a version.
func deleted(request []byte) (node string, ok bool) {
	const head = 16
	if len(request) < head || kind(request) != opDelete {
		return "", false
	}
	size, path := binary.BigEndian.Uint32(request[head-4:]), request[head:]
	if uint64(size) > uint64(len(path)) {
		return "", false
	}
	return string(path[:size]), true
}

// kind returns that of a request, 0 if it is none.
func kind(request []byte) uint32 {
	const at = 8
	if len(request) < at+4 {
		return 0
	}
	return binary.BigEndian.Uint32(request[at:])
}

// silentSince tells that nothing was read after t, and that there was time to.
func (w *wire) silentSince(t time.Time) bool {
	return w.lastHeard().Before(t)
}

// lastHeard returns when something was read last, or when the connection was made.
func (w *wire) lastHeard() time.Time { return w.dialled.Add(time.Duration(w.heard.Load())) }

// SetReadDeadline does not move that of the handshake.
func (w *wire) SetReadDeadline(t time.Time) error {
	if !w.shaken.Load() {
		t = w.deadline
	}
	return w.Conn.SetReadDeadline(t)
}

// dial connects for the client library, whose own timeout is fixed. Names are resolved each time.
// A session that is over dials no more, so that the library cannot begin another in its place.
func (s *session) dial(network, addr string, _ time.Duration) (net.Conn, error) {
	patience := s.patience
	if s.proof.granted() == 0 {
		patience = max(patience, openPatience)
	}
	deadline := time.Now().Add(patience)
	ctx, cancel := context.WithDeadline(s.ctx, deadline)
	defer cancel()
	conn, err := connect(ctx, network, addr, s.settings.TLS)
	if err != nil {
		s.failed(err, false)
		return nil, err
	}
	w := &wire{Conn: conn, session: s, deadline: deadline, dialled: time.Now()}
	if s.watching() {
		w.rewatch = make(chan struct{}, 1)
	}
	if old := s.swap(w); old != nil {
		_ = old.Close() // the library leaves some open
	}
	return w, nil
}

func connect(ctx context.Context, network, addr string, config *tls.Config) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil || config == nil {
		return conn, err
	}
	secure := tls.Client(conn, tlsfile.For(addr, config))
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("TLS handshake with %s: %w", addr, err)
	}
	return secure, nil
}

// hosts are the servers in turn. The client library asks for the next one from one goroutine. It
// pauses when it has been round them all in vain, not before: its own list of a single server
// would have it pause after every loss of the connection.
type hosts struct {
	first       string // the one to begin with; "": any
	vain        func() // called after each round in vain
	servers     []string
	next, tried int
}

// Init implements zk.HostProvider; the library has shuffled the servers.
func (h *hosts) Init(servers []string) error {
	h.servers = servers
	h.next = max(slices.Index(servers, h.first), 0)
	return nil
}

// Len implements zk.HostProvider.
func (h *hosts) Len() int { return len(h.servers) }

// Next implements zk.HostProvider.
func (h *hosts) Next() (server string, retryStart bool) {
	server = h.servers[h.next%len(h.servers)]
	retryStart = h.tried > 0 && h.tried%len(h.servers) == 0
	h.next++
	h.tried++
	if retryStart {
		h.vain()
	}
	return server, retryStart
}

// Connected implements zk.HostProvider.
func (h *hosts) Connected() { h.tried = 0 }

// silent is a logger for the client library, whose own writes to standard error.
type silent struct{}

func (silent) Printf(string, ...any) {}

// touches are the requests that postpone the end of the session, but not at once: see [proof]. They are
// the connect request, and the pings that were answered.
type touches struct {
	sync.Mutex
	times   []touch     // in their order, the connect request first; few, since older ones are dropped
	pending []time.Time // when the pings were sent that are not answered yet
}

// touch is when a request was sent, and when the server is known to have read it.
type touch struct{ sent, read time.Time }

// send takes a request, and reports whether it is the first one, the connect request.
func (t *touches) send(now time.Time, ping bool) (first bool) {
	t.Lock()
	defer t.Unlock()
	first = len(t.times) == 0
	switch {
	case first:
		t.times = append(t.times, touch{sent: now})
	case ping:
		t.pending = append(t.pending, now)
	}
	return first
}

// heard takes the answers to n pings. They come in the order of the pings.
func (t *touches) heard(n int, now time.Time, report time.Duration) {
	if n == 0 {
		return
	}
	t.Lock()
	defer t.Unlock()
	for len(t.times) > 1 && now.Sub(t.times[1].read) >= report {
		t.times = t.times[1:]
	}
	n = min(n, len(t.pending))
	for _, sent := range t.pending[:n] {
		t.times = append(t.times, touch{sent: sent, read: now})
	}
	t.pending = t.pending[n:]
}

// before returns the last one that the leader knows of when it answers a request that is sent now.
func (t *touches) before(now time.Time, report time.Duration) time.Time {
	t.Lock()
	defer t.Unlock()
	last := now // where the connect request was not sent yet
	for i, touch := range t.times {
		if i == 0 || now.Sub(touch.read) >= report {
			last = touch.sent
		}
	}
	return last
}

// proof is what an answer of the leader proves: how long the session lives from a request on.
//
// Only the leader ends sessions. Of a request that is sent to another member it learns in time for
// the answer, but that the session lives it learns from that member's next heartbeat, within half
// a tick. If the member fails before that, the session's timeout counts from an earlier request.
// So a proof counts from the last ping whose answer came early enough before the request that was
// answered: what was sent may have been kept back by the network, or by a member that stood still. The connect request is early enough at any time: the leader itself handles it.
type proof struct {
	sync.Mutex
	timeout time.Duration // as last negotiated
	sent    time.Time     // of the newest request that was answered
	ttl     time.Duration // of the session, from then on
}

// moment is when a request was begun, and the last touch that its answer proves.
type moment struct{ sent, touched time.Time }

// negotiated takes the timeout that the server granted; an expired session is granted none.
func (p *proof) negotiated(timeout time.Duration) {
	p.Lock()
	defer p.Unlock()
	if timeout > 0 {
		p.timeout = timeout
	}
}

// granted returns the timeout that the server granted last.
func (p *proof) granted() time.Duration {
	p.Lock()
	defer p.Unlock()
	return p.timeout
}

// add takes the answer to a request.
func (p *proof) add(m moment) {
	p.Lock()
	defer p.Unlock()
	if m.sent.After(p.sent) {
		p.sent, p.ttl = m.sent, p.timeout-m.sent.Sub(m.touched)
	}
}

// get returns the newest.
func (p *proof) get() backend.Term {
	p.Lock()
	defer p.Unlock()
	return backend.Term{Sent: p.sent, TTL: p.ttl}
}
