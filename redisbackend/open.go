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
)

func init() {
	backend.Register("redis", open)
	backend.Register("rediss", open)
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
// it permits.
//
// These options of the client matter:
//
//   - PoolSize: acquiring, renewing and releasing share the client's pool with
//     everything else that uses it. When it is exhausted for a TTL, locks are lost. A
//     driver opened by URL has a pool of its own for renewals and releases.
//   - ContextTimeoutEnabled: without it a request whose context has ended still returns
//     at once, but holds its connection until ReadTimeout.
//   - MaxRetries: requests are safe to repeat, but a repeated release cannot
//     tell that it was the first try that succeeded, so the driver asks once
//     more where it finds nothing to release. -1 is best.
//   - ReadTimeout, WriteTimeout: at most Options.Timeout.
//
// A *redis.ClusterClient and a *redis.Ring are ErrUnsupported.
func New(client redis.UniversalClient, opts *Options) (backend.Driver, error) {
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	conn := connection{main: client, control: client, retries: true}
	settings := opts.withDefaults()
	switch c := client.(type) {
	case nil:
		return nil, errors.New("dlock: redisbackend.New needs a client")
	case *redis.ClusterClient, *redis.Ring:
		return nil, fmt.Errorf("%w: redisbackend.New with a %T", backend.ErrUnsupported, client)
	case *redis.Client:
		conn.retries = c.Options().MaxRetries > 0
		if timeout := c.Options().ReadTimeout; timeout > 0 && (opts == nil || opts.Timeout == 0) {
			settings.Timeout = timeout
		}
	}
	return opened(newDriver(ctx, conn, settings))
}

func open(ctx context.Context, u *backend.URL) (backend.Driver, error) {
	t, err := parseTarget(u)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	conn, err := connect(t)
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

// connection is what a driver stands on. Further schemes make other ones.
type connection struct {
	main    redis.UniversalClient // acquires, looks, listens
	control redis.UniversalClient // renews and releases
	owned   bool                  // Close closes both, and nobody else uses them
	retries bool                  // requests may be repeated behind our back
}

func (c connection) close() error {
	if !c.owned {
		return nil
	}
	return errors.Join(c.main.Close(), c.control.Close())
}

// connect makes the clients for one server. Nothing is dialled yet. There are two
// so that no number of acquirers can keep a renewal from getting a connection.
func connect(t *target) (connection, error) {
	opts := &redis.Options{
		Network:               t.network,
		Addr:                  t.addr,
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
		ReadBufferSize:        bufferSize,
		WriteBufferSize:       bufferSize,
		ContextTimeoutEnabled: true,
		MaintNotificationsConfig: &maintnotifications.Config{
			Mode: maintnotifications.ModeDisabled,
		},
	}
	config, err := t.tls.Config(t.addr)
	if err != nil {
		return connection{}, err
	}
	opts.Dialer = dialer{timeout: t.Timeout, tls: config}.dial
	control := *opts
	control.PoolSize = controlConns
	return connection{
		main: redis.NewClient(opts), control: redis.NewClient(&control), owned: true,
	}, nil
}

// dialer dials for go-redis. Whatever fails here fails before a request was sent.
type dialer struct {
	timeout time.Duration
	tls     *tls.Config
}

func (d dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := d.connect(ctx, network, addr)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	return conn, nil
}

func (d dialer) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil || d.tls == nil {
		return conn, err
	}
	secure := tls.Client(conn, d.tls)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("TLS handshake with %s: %w", addr, err)
	}
	return secure, nil
}

// probe finds out whether the server can serve locks: that it answers and lets us
// in, that scripts run on our keys, that it is not too old or a cluster.
func (d *driver) probe(ctx context.Context) error {
	if _, err := d.inspect(ctx, []string{newKeys(d.hub.client).lock}); err != nil {
		return err
	}
	info, err := backend.Call(ctx, func(ctx context.Context) (string, error) {
		return d.main.client.Info(ctx, "server").Result()
	})
	if redis.IsPermissionError(err) {
		return nil
	}
	if err != nil {
		return interpretError(ctx, err)
	}
	return checkServer(info)
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
func checkServer(info string) error {
	fields := infoFields(info)
	if fields["redis_mode"] == "cluster" {
		return fmt.Errorf("%w: the server is a node of a cluster", backend.ErrUnsupported)
	}
	var major, minor int
	version := fields["redis_version"] // Valkey tells here which Redis it is like
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); n == 2 && (major < 6 || major == 6 && minor < 2) {
		return fmt.Errorf("%w: Redis %s, at least 6.2 is needed", backend.ErrUnsupported, version)
	}
	return nil
}
