package zkbackend

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/dlock-go/dlock/backend/tlsfile"
	"github.com/dlock-go/dlock/internal/abort"
)

// redialPause is the minimum time between two connections, of which the first was established. The
// library does not pause there. It allocates 1.5 MiB for each established connection.
const redialPause = 100 * time.Millisecond

// dial connects for the client library, whose own timeout is fixed. It resolves names each time.
// After the end of the session it refuses, so that the library cannot begin another session in its
// place.
func (s *session) dial(network, addr string, _ time.Duration) (net.Conn, error) {
	timeout := s.serverTimeout
	if s.proof.granted() == 0 {
		timeout = max(timeout, firstServerTimeout)
	}
	s.pauseRedial()
	deadline := time.Now().Add(timeout)
	ctx, cancel := context.WithDeadline(s.ctx, deadline)
	defer cancel()
	conn, err := dialServer(ctx, network, addr, s.settings.TLS)
	if err != nil {
		s.failed(err)
		return nil, err
	}
	w := &wire{Conn: conn, session: s, deadline: deadline, dialled: time.Now()}
	if s.watching() {
		w.rewatch = make(chan struct{}, 1)
	}
	if old := s.swap(w); old != nil {
		_ = old.Close() // the library leaves the connection of an expired session open
	}
	return w, nil
}

// pauseRedial waits until redialPause has passed since the last connection, if that was
// established. It returns when the session ends.
func (s *session) pauseRedial() {
	last := s.connection()
	if last == nil || !last.isReady() {
		return
	}
	select {
	case <-time.After(time.Until(last.dialled.Add(redialPause))):
	case <-s.ctx.Done():
	}
}

// dialServer connects to addr, over TLS unless config is nil.
func dialServer(ctx context.Context, network, addr string, config *tls.Config) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err == nil {
		abort.OnClose(conn) // what is not sent must not reach the session later
	}
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

// hosts is a zk.HostProvider that returns the servers in turn. The client library calls it from one
// goroutine. The library pauses only after a round in which it has reached no server. With its own
// list of a single server it would pause after every loss of the connection.
type hosts struct {
	first     string // the server to begin with; "": any
	exhausted func() // called after each round without success
	servers   []string
	next      int // index of the next server, modulo their number
	tried     int // number of servers since the last success
}

// Init implements zk.HostProvider. The library has shuffled the servers.
func (h *hosts) Init(servers []string) error {
	h.servers = servers
	h.next = max(slices.Index(servers, h.first), 0)
	return nil
}

// Len implements zk.HostProvider.
func (h *hosts) Len() int { return len(h.servers) }

// Next implements zk.HostProvider. retryStart makes the library pause.
func (h *hosts) Next() (server string, retryStart bool) {
	server = h.servers[h.next%len(h.servers)]
	retryStart = h.tried > 0 && h.tried%len(h.servers) == 0
	h.next++
	h.tried++
	if retryStart {
		h.exhausted()
	}
	return server, retryStart
}

// Connected implements zk.HostProvider.
func (h *hosts) Connected() { h.tried = 0 }

// silent is a logger for the client library, whose own logger writes to standard error.
type silent struct{}

// Printf implements zk.Logger.
func (silent) Printf(string, ...any) {}
