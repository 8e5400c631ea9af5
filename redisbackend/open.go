package redisbackend

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/tlsfile"
)

func init() {
	for _, scheme := range []string{"redis", "rediss"} {
		for _, kind := range []string{"", "+cluster", "+sentinel"} {
			backend.Register(scheme+kind, open)
		}
	}
}

// openTimeout bounds an opening whose context has no earlier end.
const openTimeout = 8 * time.Second

const (
	// controlConns is the size of the pool for renewals and releases.
	controlConns = 8
	// bufferSize is that of each buffer of a connection. Requests and answers are some
	// hundred bytes, but for a batch of renewals; go-redis would take 64 KiB for each
	// connection.
	bufferSize = 4 << 10
)

// New makes a driver of a client that the caller has and keeps: Close leaves it
// open. It asks the server, for at most eight seconds, what it is and what
// it permits. The client is a *redis.Client, one for Sentinel among them, or a
// *redis.ClusterClient; any other is ErrUnsupported, and so is Options.Wait
// with a *redis.ClusterClient, which only a URL gives.
//
// These options of the client matter:
//
//   - PoolSize: acquiring, renewing and releasing share the client's pool with
//     everything else that uses it. When it is exhausted for a TTL, locks are lost. A
//     driver opened by URL has a pool of its own for renewals and releases.
//   - ContextTimeoutEnabled: without it a request whose context has ended still returns
//     at once, but holds its connection until ReadTimeout.
//   - ReadTimeout, WriteTimeout: at most Options.Timeout.
//   - PipelinePoolSize: what many goroutines ask for at once goes in pipelines, unless the client
//     is a *redis.ClusterClient. Hooks see them as such.
func New(client redis.UniversalClient, opts *Options) (backend.Driver, error) {
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	conn := connection{main: client, control: client}
	settings := opts.withDefaults()
	var timeout time.Duration
	switch c := client.(type) {
	case nil:
		return nil, errors.New("dlock: redisbackend.New needs a client")
	case *redis.Client:
		timeout = c.Options().ReadTimeout
		conn.secrets = newSecrets(c.Options().Username, c.Options().Password)
	case *redis.ClusterClient:
		timeout = c.Options().ReadTimeout
		conn.secrets = newSecrets(c.Options().Username, c.Options().Password)
		if settings.Wait > 0 {
			return nil, fmt.Errorf("%w: Options.Wait with a %T", backend.ErrUnsupported, client)
		}
	default:
		return nil, fmt.Errorf("%w: redisbackend.New with a %T", backend.ErrUnsupported, client)
	}
	if timeout > 0 && (opts == nil || opts.Timeout == 0) {
		settings.Timeout = timeout
	}
	return opened(newDriver(ctx, conn, settings))
}

func open(ctx context.Context, u *backend.URL) (backend.Driver, error) {
	t, err := parseTarget(u)
	if err != nil {
		return nil, err
	}
	return t.open(ctx, new(net.Dialer).DialContext)
}

func (t *target) open(ctx context.Context, network dial) (backend.Driver, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	conn, err := connect(t, network)
	if err != nil {
		return nil, err
	}
	return opened(newDriver(ctx, conn, t.Options))
}

// opened makes a plain nil of what could not be opened, and leaves nothing open.
func opened(d *driver, err error) (backend.Driver, error) {
	if err != nil {
		_ = d.Close()
		return nil, err
	}
	return d, nil
}

// connection is what a driver stands on.
type connection struct {
	main      redis.UniversalClient // acquires, looks, listens
	control   redis.UniversalClient // renews and releases
	owned     bool                  // Close closes both, and nobody else uses them
	sentinels *sentinels            // that both ask; nil where there are none
	dials     *dials                // of both; nil if they are lent, or of a cluster
	secrets   secrets
}

func (c connection) close() error {
	if !c.owned {
		return nil
	}
	err := errors.Join(c.main.Close(), c.control.Close())
	if c.sentinels != nil {
		c.sentinels.close()
	}
	return err
}

// connect makes the clients for a target. Nothing is dialled yet. There are two
// so that no number of acquirers can keep a renewal from getting a connection.
func connect(t *target, network dial) (connection, error) {
	config, err := t.tls.Config("")
	if err != nil {
		return connection{}, err
	}
	d := dialer{dial: network, timeout: t.Timeout, tls: config}
	opts := t.clientOptions()
	opts.Dialer = d.connect
	conn := connection{
		owned:   true,
		secrets: newSecrets(t.user, t.password, t.sentinelUser, t.sentinelPassword),
	}
	if t.shape == cluster {
		conn.main, conn.control = newCluster(t, opts), newCluster(t, withControlPool(opts))
		return conn, nil
	}
	if t.shape == sentinel {
		conn.sentinels = newSentinels(t, d)
		opts.Dialer, opts.OnConnect = conn.sentinels.connect, checkRole
	}
	conn.dials = newDials()
	opts.Dialer = conn.dials.announced(opts.Dialer)
	control := withControlPool(opts)
	conn.main, conn.control = redis.NewClient(&opts), redis.NewClient(&control)
	return conn, nil
}

func (t *target) clientOptions() redis.Options {
	return redis.Options{
		Network:               t.network,
		Addr:                  t.addrs[0],
		Username:              t.user,
		Password:              t.password,
		DB:                    t.database,
		IdentitySuffix:        "dlock",
		MaxRetries:            -1, // the core repeats, and knows what it means
		DialerRetries:         1,
		DialTimeout:           t.Timeout,
		ReadTimeout:           t.Timeout,
		WriteTimeout:          t.Timeout,
		PoolTimeout:           t.Timeout,
		PipelinePoolSize:      -1, // pipelines use the same pool
		ReadBufferSize:        bufferSize,
		WriteBufferSize:       bufferSize,
		ContextTimeoutEnabled: true,
		MaintNotificationsConfig: &maintnotifications.Config{
			Mode: maintnotifications.ModeDisabled,
		},
	}
}

func withControlPool(opts redis.Options) redis.Options {
	opts.PoolSize = controlConns
	return opts
}

// dial is what net.Dialer.DialContext is.
type dial = func(ctx context.Context, network, addr string) (net.Conn, error)

// dialer dials for go-redis. Whatever fails here fails before a request was sent.
type dialer struct {
	dial    dial
	timeout time.Duration
	tls     *tls.Config // without the name of the host, which differs from node to node
}

func (d dialer) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := d.handshake(ctx, network, addr)
	if err != nil {
		return failedConn{fmt.Errorf("%w: %w", backend.ErrUnavailable, err)}, nil
	}
	return bounded(conn), nil
}

// failedConn stands for a connection that could not be opened: its first use returns the reason.
// go-redis 9.23 writes each error of a Dialer to standard error, whatever the client's options.
// After some of them it also stops dialling for up to a second.
type failedConn struct{ err error }

func (c failedConn) Read([]byte) (int, error)       { return 0, c.err }
func (c failedConn) Write([]byte) (int, error)      { return 0, c.err }
func (failedConn) Close() error                     { return nil }
func (failedConn) LocalAddr() net.Addr              { return new(net.TCPAddr) }
func (failedConn) RemoteAddr() net.Addr             { return new(net.TCPAddr) }
func (failedConn) SetDeadline(time.Time) error      { return nil }
func (failedConn) SetReadDeadline(time.Time) error  { return nil }
func (failedConn) SetWriteDeadline(time.Time) error { return nil }

func (d dialer) handshake(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	life, _ := ctx.Value(lifeKey{}).(context.Context)
	conn, err := d.dial(ctx, network, addr)
	if err == nil && life != nil {
		context.AfterFunc(life, func() { _ = conn.Close() })
	}
	if err != nil || d.tls == nil {
		return conn, err
	}
	secure := tls.Client(conn, tlsfile.For(addr, d.tls))
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("TLS handshake with %s: %w", addr, err)
	}
	return secure, nil
}

// probe finds out whether the server can serve locks: that it answers and lets us
// in, that scripts run on our keys, that it is not too old and of the right shape.
func (d *driver) probe(ctx context.Context) error {
	lock := lockKey(d.hub.client)
	info, err := backend.Call(ctx, func(ctx context.Context) (string, error) {
		node, err := d.main.node(ctx, lock)
		if err != nil {
			return "", err
		}
		return node.Info(ctx, "server").Result()
	})
	if err != nil && !redis.IsPermissionError(err) {
		return d.main.interpret(ctx, err)
	}
	if err := checkServer(info, d.main.cluster != nil); err != nil {
		return err
	}
	_, err = d.inspect(ctx, []string{lock})
	return err
}

// infoFields parses the answer of INFO.
func infoFields(info string) map[string]string {
	fields := make(map[string]string)
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

// checkServer judges the server section of INFO.
func checkServer(info string, cluster bool) error {
	fields := infoFields(info)
	if fields["redis_mode"] == "cluster" && !cluster {
		return fmt.Errorf("%w: the server is a node of a cluster, whose URL is redis+cluster://", backend.ErrUnsupported)
	}
	if fields["redis_mode"] == "sentinel" {
		return fmt.Errorf("%w: the server is a sentinel, whose URL is redis+sentinel://", backend.ErrUnsupported)
	}
	var major, minor int
	version := fields["redis_version"] // Valkey tells here which Redis it is like
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); n == 2 && (major < 6 || major == 6 && minor < 2) {
		return fmt.Errorf("%w: Redis %s, at least 6.2 is needed", backend.ErrUnsupported, version)
	}
	return nil
}
