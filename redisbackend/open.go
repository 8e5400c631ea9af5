package redisbackend

import (
	"context"
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
	for _, scheme := range []string{"redis", "rediss"} {
		for _, kind := range []shape{single, "+" + cluster, "+" + sentinel} {
			backend.Register(scheme+string(kind), open)
		}
	}
}

const (
	// idleTime is how long an idle connection for renewals and releases is kept. If a firewall has
	// forgotten the connections of a client, a renewal has no time to try one after the other.
	idleTime = 10 * time.Second
	// controlConns is the size of the pool for renewals and releases.
	controlConns = 8
	// bufferSize is the size of each buffer of a connection, in bytes. Requests and replies have
	// some hundred bytes, except batches of renewals. go-redis would allocate 64 KiB for each
	// connection.
	bufferSize = 4 << 10
)

// New returns a driver that uses a client of the caller. The caller keeps the client, so Close
// leaves it open. New blocks until the server has answered what it is and what it permits, for 8 s
// at most.
//
// The client is a *redis.Client, which may be one for Sentinel, or a *redis.ClusterClient. New
// returns ErrUnsupported for any other type, and for Options.Wait with a *redis.ClusterClient,
// which only a URL supports.
//
// These options of the client matter:
//
//   - PoolSize: acquisitions, renewals and releases share the client's pool with all its other
//     users. If the pool is exhausted for a TTL, locks are lost. A driver that is opened by URL has
//     a separate pool for renewals and releases.
//   - ContextTimeoutEnabled: without it, a request whose context has ended still returns at once,
//     but occupies its connection until ReadTimeout.
//   - ReadTimeout, WriteTimeout: at most Options.Timeout. 3 s are better than the 5 s that are the
//     default of go-redis: see Options.Timeout.
//   - Dialer: with the default, the kernel may send a request that was given up, and its connection
//     closed, later than Capabilities.Late. Such a request can take a lock for a TTL. A Dialer that
//     calls SetLinger(0) of each *net.TCPConn prevents this, as the driver does for a URL.
//   - PipelinePoolSize: concurrent requests of many goroutines go in pipelines, unless the client
//     is a *redis.ClusterClient. Hooks receive them as pipelines.
func New(client redis.UniversalClient, opts *Options) (backend.Driver, error) {
	ctx, cancel := context.WithTimeout(context.Background(), backend.OpenTimeout)
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

// open is the backend.Opener of all schemes.
func open(ctx context.Context, u *backend.URL) (backend.Driver, error) {
	t, err := parseTarget(u)
	if err != nil {
		return nil, err
	}
	return t.open(ctx, new(net.Dialer).DialContext)
}

// open opens a driver over a network. Tests have their own network.
func (t *target) open(ctx context.Context, network dial) (backend.Driver, error) {
	ctx, cancel := context.WithTimeout(ctx, backend.OpenTimeout)
	defer cancel()
	conn, err := connect(t, network)
	if err != nil {
		return nil, err
	}
	return opened(newDriver(ctx, conn, t.Options))
}

// opened returns a plain nil for a driver that could not be opened, and closes the driver. A nil
// *driver in the interface would not be equal to nil.
func opened(d *driver, err error) (backend.Driver, error) {
	if err != nil {
		_ = d.Close()
		return nil, err
	}
	return d, nil
}

// connection is how a driver reaches its servers: by two clients with separate pools, so that no
// number of acquisitions can keep a renewal from a connection. For a lent client both are equal.
type connection struct {
	main      redis.UniversalClient // acquires, inspects, listens
	control   redis.UniversalClient // renews and releases
	owned     bool                  // no other code uses the clients, and Close closes them
	sentinels *sentinels            // of both clients; nil without sentinels
	dials     *dials                // of both clients; nil if they are lent, or of a cluster
	end       context.CancelFunc    // ends the dials of the driver's own clients
	secrets   secrets               // that errors must not contain
}

// close ends the dials and closes the clients if they are the driver's own. Then it stops following
// the sentinels.
func (c connection) close() error {
	if !c.owned {
		return nil
	}
	c.end()
	err := errors.Join(c.main.Close(), c.control.Close())
	if c.sentinels != nil {
		c.sentinels.close()
	}
	return err
}

// connect makes the clients for a target. It does not dial yet.
func connect(t *target, network dial) (connection, error) {
	config, err := t.tls.Config("")
	if err != nil {
		return connection{}, err
	}
	ctx, end := context.WithCancel(context.Background())
	d := dialer{ctx: ctx, dial: network, timeout: t.Timeout, tls: config}
	opts := t.clientOptions()
	opts.Dialer = d.connect
	conn := connection{
		owned:   true,
		end:     end,
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

// clientOptions returns the options of a client for t, except its Dialer. A dial is tried once,
// like a request. With ContextTimeoutEnabled the deadline of a context limits reads and writes. Its
// cancellation does not end them; see lane.runAlone.
func (t *target) clientOptions() redis.Options {
	return redis.Options{
		Network:               t.network,
		Addr:                  t.addrs[0],
		Username:              t.user,
		Password:              t.password,
		DB:                    t.database,
		IdentitySuffix:        "dlock",
		MaxRetries:            -1, // only the core can decide whether to repeat a request
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

// withControlPool returns the options of the client for renewals and releases.
func withControlPool(opts redis.Options) redis.Options {
	opts.PoolSize, opts.ConnMaxIdleTime = controlConns, idleTime
	return opts
}

// probe checks whether the server can serve locks: it answers, accepts the credentials, executes
// scripts on the driver's keys, is not too old, has the shape of the URL, and waits for replicas if
// it has to. It changes nothing on the server. A server that does not permit INFO passes without a
// check of its version.
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
	if _, err = d.inspect(ctx, []string{lock}); err == nil && d.opts.Wait > 0 {
		err = d.probeWait(ctx, lock)
	}
	return err
}

// probeWait checks whether the server permits WAIT. Otherwise the driver would release each lock
// that the server grants. A wait for no replica is answered at once.
func (d *driver) probeWait(ctx context.Context, lock string) error {
	_, err := backend.Call(ctx, func(ctx context.Context) (any, error) {
		node, err := d.main.node(ctx, lock)
		if err != nil {
			return nil, err
		}
		return node.Do(ctx, "wait", 0, 0).Result()
	})
	if redis.IsPermissionError(err) {
		return fmt.Errorf("%w: the user has no right to wait for replicas: %w",
			backend.ErrUnsupported, d.main.secrets.redact(err))
	}
	return d.main.interpret(ctx, err)
}

// loadMasters lets the client for renewals and releases load the masters of a cluster. Otherwise
// its first request would do so, from a random node, and a silent node would delay it.
func (d *driver) loadMasters(ctx context.Context) error {
	_, err := backend.Call(ctx, func(ctx context.Context) (redis.UniversalClient, error) {
		return d.control.node(ctx, lockKey(d.hub.client))
	})
	return d.control.interpret(ctx, err)
}

// infoFields parses the reply to INFO into its fields.
func infoFields(info string) map[string]string {
	fields := make(map[string]string)
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

// checkServer checks the server section of INFO. cluster is whether the driver expects the node of
// a cluster. A missing field passes.
func checkServer(info string, cluster bool) error {
	fields := infoFields(info)
	if fields["redis_mode"] == "cluster" && !cluster {
		return fmt.Errorf("%w: the server is a node of a cluster, whose URL is redis+cluster://",
			backend.ErrUnsupported)
	}
	if fields["redis_mode"] == "sentinel" {
		return fmt.Errorf("%w: the server is a sentinel, whose URL is redis+sentinel://",
			backend.ErrUnsupported)
	}
	var major, minor int
	// Valkey reports here the version of Redis that it is compatible with.
	version := fields["redis_version"]
	n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor)
	if n == 2 && (major < 6 || major == 6 && minor < 2) {
		return fmt.Errorf("%w: Redis %s, at least 6.2 is needed", backend.ErrUnsupported, version)
	}
	return nil
}
