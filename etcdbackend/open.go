package etcdbackend

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/dlock-go/dlock/backend"
)

func init() {
	backend.Register("etcd", open)
	backend.Register("etcds", open)
}

const (
	// A dead connection is detected after pingTime and pingTimeout. By default servers refuse
	// clients that ping more often than every 5 s.
	pingTime    = 10 * time.Second
	pingTimeout = 3 * time.Second
	// maxReconnect limits the backoff between attempts to connect again.
	maxReconnect = time.Second
	// maxMessage limits an answer in bytes: the queue of one lock, with some hundred bytes for each
	// waiting client, or a page of a listing. gRPC would accept 2 GB.
	maxMessage = 16 << 20
	// maxEntry limits a lock's part of the keys of a lease in bytes, without the root.
	maxEntry = maxKey + 100
	// maxSend is the client's limit of a request in bytes. The limit of a server is lower.
	maxSend = 2 << 20
)

// New makes a driver of a client of the caller. Close does not close this client. New checks that
// the server answers and grants the necessary permissions, and blocks for 8 s at most.
//
// These options of the client matter:
//
//   - DialKeepAliveTime and DialKeepAliveTimeout: without them a dead connection is detected only
//     after minutes. 10 s and 3 s are good values.
//   - Logger: without one the client writes to standard error.
//   - DialTimeout: with a user and a password it limits the request for a token.
//   - MaxCallRecvMsgSize: it limits the memory for an answer, which can otherwise take 2 GB. A
//     renewal reads the keys of all locks with its TTL. 16 MB are enough for 10,000 locks with the
//     longest names.
//
// Only a driver that was opened by URL returns ErrUnavailable at once if the server is unreachable.
// A client of the caller waits for the server until Options.Timeout, and does not report whether it
// has sent the request. It goes on to send each third request to a member of three whose process is
// stopped, until its connection is found dead. A driver that was opened by URL leaves that member
// out after the first request.
func New(client *clientv3.Client, opts *Options) (backend.Driver, error) {
	if client == nil {
		return nil, errors.New("dlock: etcdbackend.New needs a client")
	}
	if client.ActiveConnection() == nil {
		return nil, fmt.Errorf("%w: the client has no connection of its own, which renewals need",
			backend.ErrUnsupported)
	}
	options := opts.withDefaults()
	if err := options.check(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), backend.OpenTimeout, errTimeout)
	defer cancel()
	return start(ctx, newDriver(client, lent, options))
}

// open is the backend.Opener of the package. It blocks for backend.OpenTimeout at most.
func open(ctx context.Context, u *backend.URL) (backend.Driver, error) {
	t, err := parseTarget(u)
	if err != nil {
		return nil, err
	}
	config, err := t.config()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, backend.OpenTimeout, errTimeout)
	defer cancel()
	var client *clientv3.Client
	err = retryTransient(ctx, func() (err error) {
		client, err = connect(ctx, config)
		return err
	})
	if err != nil {
		return nil, err
	}
	return start(ctx, newDriver(client, owned, t.Options))
}

// start probes the server and opens the inbox of d. It repeats both after transient failures until
// ctx ends. If that fails, it closes d.
func start(ctx context.Context, d *driver) (backend.Driver, error) {
	err := retryTransient(ctx, func() error { return d.probe(ctx) })
	if err == nil {
		err = retryTransient(ctx, func() error { return d.openInbox(ctx) })
	}
	return opened(d, err)
}

// opened returns a plain nil for a driver that could not be opened, and closes that driver.
func opened(d *driver, err error) (backend.Driver, error) {
	if err != nil {
		_ = d.Close()
		return nil, err
	}
	return d, nil
}

// retryTransient repeats attempt until it succeeds, fails for good, or ctx ends. A transient
// failure may end with another member, or when the cluster has a leader again.
func retryTransient(ctx context.Context, attempt func() error) error {
	var last error
	for {
		err := attempt()
		switch {
		case err != nil && last != nil && errors.Is(context.Cause(ctx), errTimeout):
			return last // more useful than the end of backend.OpenTimeout
		case err == nil || !isTransient(err):
			return err
		}
		last = err
		select {
		case <-time.After(retryDelay):
		case <-ctx.Done():
			return err
		}
	}
}

// connect makes a client. It sends a request only if there is a password: for a token.
//
// The client outlives ctx, which limits only this call. New of the client library blocks until it
// has a token, and ends only with the context in its configuration. So connect ends that context
// with ctx, and detaches it from ctx once the client is made.
func connect(ctx context.Context, config clientv3.Config) (*clientv3.Client, error) {
	life, end := context.WithCancel(context.Background())
	config.Context = life
	stop := context.AfterFunc(ctx, end)
	client, err := clientv3.New(config)
	if err == nil && !stop() {
		_ = client.Close()
		err = ctx.Err()
	}
	if err != nil {
		end()
		if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) { // of DialTimeout
			err = errTimeout
		}
		return nil, asUnavailable(ctx, err)
	}
	return client, nil //nolint:govet // Close of the client ends what life has begun
}

// config returns the configuration of a client for t.
func (t *target) config() (clientv3.Config, error) {
	config := clientv3.Config{
		Endpoints:            t.endpoints,
		Username:             t.user,
		Password:             t.password,
		DialTimeout:          t.Timeout,
		DialKeepAliveTime:    pingTime,
		DialKeepAliveTimeout: pingTimeout,
		MaxUnaryRetries:      2, // the second one follows the renewal of an expired token
		MaxCallSendMsgSize:   maxSend,
		MaxCallRecvMsgSize:   maxMessage,
		Logger:               zap.NewNop(), // the default logger writes to standard error
		DialOptions: append(balanced(),
			grpc.WithChainUnaryInterceptor(failFast),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff: backoff.Config{
					BaseDelay:  50 * time.Millisecond,
					Multiplier: 1.6,
					Jitter:     0.2,
					MaxDelay:   maxReconnect,
				},
				MinConnectTimeout: t.Timeout, // of one attempt to connect
			}),
		),
	}
	var err error
	if config.TLS, err = t.tls.Config(""); err != nil {
		return clientv3.Config{}, err
	}
	if config.TLS != nil && config.TLS.ServerName != "" {
		// Otherwise gRPC would check the name of each host in addition.
		authority := grpc.WithAuthority(config.TLS.ServerName)
		config.DialOptions = append(config.DialOptions, authority)
	}
	return config, nil
}

// usualMinTTL is the minimum TTL of a server with the default election timeout.
const usualMinTTL = 2 * time.Second

// probe checks that the server answers, accepts the user, and lets the user read and write under
// the root. It reads the server's minimum TTL. A full server must be accessible, too, because an
// operator may have to free its locks: probe then only reads.
func (d *driver) probe(ctx context.Context) error {
	ctx, cancel := d.bound(ctx)
	defer cancel()
	read := clientv3.OpGet(d.root+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	err := d.checkAccess(ctx, clientv3.OpPut(d.inbox, ""), read)
	if isFull(err) {
		err = d.checkAccess(ctx, read)
	}
	if err != nil {
		return err
	}
	return d.readMinTTL(ctx)
}

// checkAccess checks that the user has the permissions for the operations, and executes none. The
// server checks the permissions even though the condition is never true.
func (d *driver) checkAccess(ctx context.Context, ops ...clientv3.Op) error {
	never := clientv3.Compare(clientv3.Version(d.inbox), "<", 0)
	_, err := d.client.Txn(ctx).If(never).Then(ops...).Commit()
	if isDenied(err) {
		return fmt.Errorf("%w: the user needs permission to read and write under %s/: %w",
			backend.ErrUnavailable, d.root, err)
	}
	if err != nil {
		return asUnavailable(ctx, err)
	}
	return nil
}

// readMinTTL reads the server's minimum TTL, for which the server has to grant the shortest lease.
// A full server grants none. If its minimum is longer than usual, it will prolong shorter leases.
func (d *driver) readMinTTL(ctx context.Context) error {
	shortest, err := d.client.Grant(ctx, 1)
	if isFull(err) {
		d.caps.MinTTL = usualMinTTL
		return nil
	}
	if err != nil {
		return asUnavailable(ctx, err)
	}
	d.caps.MinTTL = time.Duration(shortest.TTL) * time.Second
	if _, err = d.client.Revoke(ctx, shortest.ID); err != nil {
		return asUnavailable(ctx, err)
	}
	return nil
}
