package zkbackend

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/tlsfile"
)

const (
	// handshakeHead is what a server's answer to a connect request begins with: its length, the
	// version of the protocol and the session timeout in ms, four bytes each.
	handshakeHead = 12
	// maxHandshake bounds that length: the client library would allocate whatever a server of
	// another kind happens to say.
	maxHandshake = 1 << 10
	// maxSettle is how long nothing is read on a later connection of a session, if the library has no watches to ask for
	// anew there.
	maxSettle = 20 * time.Millisecond
)

// Kinds of requests.
const (
	opDelete     = 2
	opSetWatches = 101
)

// wire is one connection. It reads in passing what the client library keeps to itself, the
// session timeout that the server granted, and bounds the time of the handshake, for which the
// library would wait almost seven session timeouts, and try no other server.
type wire struct {
	net.Conn
	session  *session
	deadline time.Time // of the handshake
	head     []byte
	shaken   bool
	settled  bool          // these three are used by the one goroutine that reads
	rewatch  chan struct{} // gets a value when the watches are asked for anew; nil on the first connection
	dialled  time.Time
	heard    atomic.Int64 // when something was read last, after dialled
}

func (w *wire) Read(p []byte) (int, error) {
	if w.shaken && !w.settled {
		w.settle()
	}
	n, err := w.Conn.Read(p)
	if n > 0 {
		w.heard.Store(int64(time.Since(w.dialled)))
	}
	if w.shaken {
		return n, err
	}
	if err != nil {
		w.session.failed(fmt.Errorf("no answer from %s: %w", w.RemoteAddr(), err), errors.Is(err, io.EOF))
		return n, err
	}
	w.head = append(w.head, p[:n]...)
	if len(w.head) >= 4 && binary.BigEndian.Uint32(w.head) > maxHandshake {
		err = fmt.Errorf("%s is not a ZooKeeper server", w.RemoteAddr())
		w.session.failed(err, false)
		return 0, err
	}
	if len(w.head) >= handshakeHead {
		w.shaken = true
		w.session.negotiated(time.Duration(binary.BigEndian.Uint32(w.head[8:])) * time.Millisecond)
	}
	return n, nil
}

// settle waits for the request for watches: the library's sendSetWatches reads what its receiving goroutine writes with
// the first answer.
func (w *wire) settle() {
	w.settled = true
	if w.rewatch == nil {
		return
	}
	select {
	case <-w.rewatch:
	case <-time.After(maxSettle):
	}
}

// Write tells when a request to delete a node was sent, of which the library tells nothing before it is answered. What comes
// after it is executed after it.
func (w *wire) Write(p []byte) (int, error) {
	n, err := w.Conn.Write(p)
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
	return w.dialled.Add(time.Duration(w.heard.Load())).Before(t)
}

// SetReadDeadline does not move that of the handshake.
func (w *wire) SetReadDeadline(t time.Time) error {
	if !w.shaken {
		t = w.deadline
	}
	return w.Conn.SetReadDeadline(t)
}

// dial connects for the client library, whose own timeout is fixed. Names are resolved each time.
// A session that is over dials no more, so that the library cannot begin another in its place.
func (s *session) dial(network, addr string, _ time.Duration) (net.Conn, error) {
	deadline := time.Now().Add(s.patience)
	ctx, cancel := context.WithDeadline(s.ctx, deadline)
	defer cancel()
	conn, err := connect(ctx, network, addr, s.settings.TLS)
	if err != nil {
		s.failed(err, false)
		return nil, err
	}
	w := &wire{Conn: conn, session: s, deadline: deadline, dialled: time.Now()}
	if old := s.swap(w); old != nil {
		w.rewatch = make(chan struct{}, 1)
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
	vain        func() // called after each round in vain
	servers     []string
	next, tried int
}

// Init implements zk.HostProvider; the library has shuffled the servers.
func (h *hosts) Init(servers []string) error {
	h.servers = servers
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

// proof is what an answer proves: that the session lives for TTL from Sent on.
type proof struct {
	sync.Mutex
	term    backend.Term
	timeout time.Duration // as last negotiated
}

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

// add takes the answer to a request that was handed over for sending at sent.
func (p *proof) add(sent time.Time) {
	p.Lock()
	defer p.Unlock()
	if sent.After(p.term.Sent) {
		p.term = backend.Term{Sent: sent, TTL: p.timeout}
	}
}

// get returns the newest.
func (p *proof) get() backend.Term {
	p.Lock()
	defer p.Unlock()
	return p.term
}
