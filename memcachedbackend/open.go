package memcachedbackend

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/tlsfile"
	"github.com/dlock-go/dlock/internal/abort"
)

func init() { backend.Register("memcached", open) }

// New makes a driver for a list of servers. Each of them is host:port or the absolute path of a
// unix socket.
//
// New checks whether each server can keep locks, and blocks for at most eight seconds. It fails if
// a server cannot keep locks, or if none can be reached. It does not take a *memcache.Client: such
// a client decides itself how many connections it opens and which server has a name, and it
// supports no contexts.
func New(servers []string, opts *Options) (backend.Driver, error) {
	t := &target{Options: opts.withDefaults(), servers: servers}
	return t.open(context.Background())
}

// open is the backend.Opener of memcached URLs.
func open(ctx context.Context, u *backend.URL) (backend.Driver, error) {
	t, err := parseTarget(u)
	if err != nil {
		return nil, err
	}
	return t.open(ctx)
}

// open makes the driver and checks its servers. A bad setting is an error before any connection.
func (t *target) open(ctx context.Context) (backend.Driver, error) {
	ctx, cancel := context.WithTimeout(ctx, backend.OpenTimeout)
	defer cancel()
	servers, err := normalise(t.servers)
	if err != nil {
		return nil, err
	}
	if err := t.check(); err != nil {
		return nil, err
	}
	d := newDriver(servers, t.Options)
	return opened(d, d.probe(ctx))
}

// opened returns d. If err is not nil, it closes d instead and returns a plain nil.
func opened(d *driver, err error) (backend.Driver, error) {
	if err != nil {
		_ = d.Close()
		return nil, err
	}
	return d, nil
}

// connect makes a connection that is ready for requests. It also returns the socket under its TLS.
// Without TLS the two are the same. If connect fails, no request was sent and nothing stays open.
//
// connect ends when the Done channel of ctx is closed. A deadline without a Done channel does not
// end name resolution, the TLS handshake or the authentication.
func connect(
	ctx context.Context, network, addr string, opts *Options,
) (socket, open net.Conn, err error) {
	socket, err = new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, nil, err
	}
	abort.OnClose(socket) // no request is executed after Capabilities.Late
	open = socket
	if opts.TLS != nil {
		secure := tls.Client(socket, tlsfile.For(addr, opts.TLS))
		if err = secure.HandshakeContext(ctx); err != nil {
			err = fmt.Errorf("TLS handshake with %s: %w", addr, err)
		}
		open = secure
	}
	if err == nil && opts.User+opts.Password != "" {
		err = authenticate(ctx, open, opts.User, opts.Password)
	}
	if err != nil {
		_ = socket.Close()
		return nil, nil, err
	}
	return socket, open, nil
}

const (
	// maxAuthAnswer is the maximum length of an answer to authenticate, in bytes.
	maxAuthAnswer = 100
	// unauthenticated is the answer of a server with an auth file to a client without a password.
	unauthenticated = "CLIENT_ERROR unauthenticated"
)

// authenticate sends user and password to a server with an auth file. The protocol requires them in
// a set of any key. A server without an auth file would store them under this key, where each of
// its clients can read them. So they are sent only after the server has demanded them.
func authenticate(ctx context.Context, c net.Conn, user, password string) error {
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(past) })
	defer stop()
	answer, err := requestLine(c, "version\r\n")
	if err != nil {
		return err
	}
	if strings.HasPrefix(answer, "VERSION ") {
		return errors.New("authentication: the server has no auth file (-Y); " +
			"the password was not sent")
	}
	if answer == unauthenticated+"\r\n" {
		answer, err = requestLine(c, fmt.Sprintf("set dlock 0 0 %d\r\n%s %s\r\n",
			len(user)+1+len(password), user, password))
	}
	if err == nil && answer != "STORED\r\n" {
		err = fmt.Errorf("authentication: the server answered %q", answer)
	}
	return err
}

// requestLine sends a request and returns the line that answers it. It reads byte by byte: a buffer
// could contain bytes that belong to the next answer.
func requestLine(c net.Conn, request string) (string, error) {
	_, err := io.WriteString(c, request)
	if err != nil {
		return "", fmt.Errorf("authentication: %w", err)
	}
	var line []byte
	for b := make([]byte, 1); len(line) < maxAuthAnswer && b[0] != '\n'; line = append(line, b[0]) {
		if _, err := c.Read(b); err != nil {
			return "", fmt.Errorf("authentication: %w", err)
		}
	}
	return string(line), nil
}

// probe checks all servers at the same time. It fails if a server that answers is unfit, or if no
// server answers. Some servers may be dead: their names cannot be locked, but a client can still
// use the other servers.
func (d *driver) probe(ctx context.Context) error {
	errs := make([]error, len(d.servers))
	var wg sync.WaitGroup
	for i, s := range d.servers {
		wg.Go(func() {
			if err := s.main.do(ctx, probe); err != nil {
				errs[i] = fmt.Errorf("dlock: memcached at %s: %w", s.pool.address, probeError(err))
			}
		})
	}
	wg.Wait()
	// A cancelled request fails like a request to a silent server.
	if err := ctx.Err(); errors.Is(err, context.Canceled) {
		return fmt.Errorf("dlock: memcached: %w", err)
	}
	// A nil error is of a server that answered, so it stays in living.
	if living := slices.DeleteFunc(slices.Clone(errs), isUnreachable); len(living) > 0 {
		return errors.Join(living...)
	}
	return errors.Join(errs...)
}

// isUnreachable reports whether err means that a server does not answer: it refuses or closes the
// connection, or is silent. A server that answers with a refusal is not unreachable.
func isUnreachable(err error) bool {
	if failed, ok := errors.AsType[*net.OpError](err); ok &&
		slices.Contains([]string{"dial", "write", "read"}, failed.Op) { // others are alerts of TLS
		return true
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, context.DeadlineExceeded)
}

// probe adds and removes a lock with a key that no other client uses. It checks that the server
// accepts this client, has room for a lock, and supports cas.
func probe(c *memcache.Client) error {
	req := &backend.Request{Key: "probe", Owner: rand.Text(), TTL: minTTL, Meta: "dlock"}
	lock := probePrefix + req.Owner
	// The first request has one line: a server of another protocol may answer each line of an add.
	if _, err := c.Get(lock); !errors.Is(err, memcache.ErrCacheMiss) {
		return err
	}
	err := c.Add(&memcache.Item{
		Key:        lock,
		Value:      newRecord(req, "", 0, time.Now()).encode(),
		Expiration: expiry(req.TTL),
	})
	if err != nil {
		return err
	}
	_, err = rewrite(c, lock, ownedBy(req.Owner), remove)
	if errors.Is(err, errContended) {
		return fmt.Errorf("%w: compare and swap is turned off", backend.ErrUnsupported)
	}
	if err != nil {
		return err
	}
	if _, err = c.Get(lock); !errors.Is(err, memcache.ErrCacheMiss) {
		return fmt.Errorf("%w: an expiry in the past frees no lock", backend.ErrUnsupported)
	}
	return nil
}
