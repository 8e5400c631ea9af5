package etcdbackend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/api/v3/version"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/dlock-go/dlock/backend"
)

func init() {
	backend.Register("etcd", open)
	backend.Register("etcds", open)
}

const (
	// openTimeout bounds an opening whose context has no earlier end.
	openTimeout = 8 * time.Second
	// pingTime and pingTimeout tell after how long a dead connection is noticed. Servers
	// refuse clients that ping more often.
	pingTime    = 10 * time.Second
	pingTimeout = 3 * time.Second
	// maxReconnect bounds the pause between attempts to connect again.
	maxReconnect = time.Second
	// maxMessage bounds an answer: the queue of one lock, with some hundred bytes for each client that
	// waits, or a page of a listing. gRPC would take 2 GB.
	maxMessage = 16 << 20
	// maxSend is the client's own bound of a request. A server takes less.
	maxSend = 2 << 20
)

// New makes a driver of a client that the caller has and keeps: Close leaves it
// open. It asks the server, for at most eight seconds, whether it permits what
// is needed.
//
// These options of the client matter:
//
//   - DialKeepAliveTime and DialKeepAliveTimeout: without them a dead connection is noticed
//     after minutes. 10 s and 3 s are good.
//   - Logger: without one the client writes to standard error.
//   - DialTimeout: with a user and a password, what bounds getting a token.
//   - MaxCallRecvMsgSize: bounds the memory for an answer, which may otherwise take 2 GB. 16 MB are plenty.
//
// An unreachable server is ErrUnavailable at once only for drivers that were opened
// by URL: a lent client waits for the server until Options.Timeout, and does not tell
// whether it has sent the request.
func New(client *clientv3.Client, opts *Options) (backend.Driver, error) {
	if client == nil {
		return nil, errors.New("dlock: etcdbackend.New needs a client")
	}
	options := opts.withDefaults()
	if err := options.checkRoot(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), openTimeout, errTimeout)
	defer cancel()
	return opened(newDriver(ctx, client, false, options))
}

func open(ctx context.Context, u *backend.URL) (backend.Driver, error) {
	t, err := parseTarget(u)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, openTimeout, errTimeout)
	defer cancel()
	var client *clientv3.Client
	if err := patiently(ctx, func() (err error) { client, err = connect(ctx, t); return err }); err != nil {
		return nil, err
	}
	return opened(newDriver(ctx, client, true, t.Options))
}

// opened makes a plain nil of what could not be opened, and leaves nothing open.
func opened(d *driver, err error) (backend.Driver, error) {
	if err != nil {
		_ = d.Close()
		return nil, err
	}
	return d, nil
}

// patiently repeats what may succeed with another member, or when there is a leader again, for as long as ctx lasts.
func patiently(ctx context.Context, try func() error) error {
	var last error
	for {
		err := try()
		switch {
		case err != nil && last != nil && errors.Is(context.Cause(ctx), errTimeout):
			return last // which says more than that our own time was over
		case err == nil || !isPassing(err):
			return err
		}
		last = err
		select {
		case <-time.After(rewatch):
		case <-ctx.Done():
			return err
		}
	}
}

// connect makes a client. Only a password makes it talk to the server already.
func connect(ctx context.Context, t *target) (*clientv3.Client, error) {
	config := clientv3.Config{
		Endpoints:            t.endpoints,
		Username:             t.user,
		Password:             t.password,
		DialTimeout:          t.Timeout,
		DialKeepAliveTime:    pingTime,
		DialKeepAliveTimeout: pingTimeout,
		MaxUnaryRetries:      2, // the second is for a token that has expired
		MaxCallSendMsgSize:   maxSend,
		MaxCallRecvMsgSize:   maxMessage,
		Logger:               zap.NewNop(),
		DialOptions: []grpc.DialOption{
			grpc.WithChainUnaryInterceptor(failFast),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff: backoff.Config{
					BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxReconnect,
				},
				MinConnectTimeout: t.Timeout,
			}),
		},
	}
	var err error
	if config.TLS, err = t.tls.Config(""); err != nil {
		return nil, err
	}
	if config.TLS != nil && config.TLS.ServerName != "" { // or gRPC would check the name of each host all the same
		config.DialOptions = append(config.DialOptions, grpc.WithAuthority(config.TLS.ServerName))
	}
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
		if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) { // that of DialTimeout
			err = errTimeout
		}
		return nil, unavailable(ctx, err)
	}
	return client, nil //nolint:govet // Close of the client ends what life has begun
}

// failFast is an interceptor below those of the client, which lets requests wait for a connection
// as long as their contexts last. It marks the errors of what was not sent.
func failFast(
	ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
	opts ...grpc.CallOption,
) error {
	s := &sending{Context: ctx}
	if ctx.Value(wantsLeader{}) != nil {
		ctx = s
	}
	err := invoke(ctx, method, req, reply, conn, append(opts, grpc.WaitForReady(false), grpc.Peer(&s.to))...)
	if err != nil && s.to.Addr == nil {
		return &unsentError{err}
	}
	return err
}

// wantsLeader is the key of a value that tells failFast to send the metadata of
// clientv3.WithRequireLeader. If it is in the context before, the client copies it three times to add
// its own: seven more allocations for a pair.
type wantsLeader struct{}

// sending is a request that is sent, and its context: with that metadata, and with what the client
// itself adds.
type sending struct {
	context.Context
	to peer.Peer
}

var ledMetadata = metadata.NewOutgoingContext(context.Background(), metadata.Pairs(
	rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader,
	rpctypes.MetadataClientAPIVersionKey, version.APIVersion,
))

func (s *sending) Value(key any) any {
	if v := ledMetadata.Value(key); v != nil {
		return v
	}
	return s.Context.Value(key)
}

// begin finds out whether the server can serve locks, and starts listening.
func (d *driver) begin(ctx context.Context) error {
	if err := patiently(ctx, func() error { return d.probe(ctx) }); err != nil {
		return err
	}
	return patiently(ctx, func() error { return d.listen(ctx) })
}

// probe asks the server that it answers and lets us in, that we may read and write under the root, and how short
// a lease it grants.
func (d *driver) probe(ctx context.Context) error {
	ctx, cancel := d.bound(ctx)
	defer cancel()
	never := clientv3.Compare(clientv3.Version(d.inbox), "<", 0)
	_, err := d.client.Txn(ctx).If(never).Then(
		clientv3.OpPut(d.inbox, ""),
		clientv3.OpGet(d.root+"/", clientv3.WithPrefix(), clientv3.WithCountOnly()),
	).Commit()
	if isDenied(err) {
		return fmt.Errorf("%w: the user needs permission to read and write under %s/: %w", backend.ErrUnavailable, d.root, err)
	}
	if err != nil {
		return unavailable(ctx, err)
	}
	shortest, err := d.client.Grant(ctx, 1)
	if err != nil {
		return unavailable(ctx, err)
	}
	d.caps.MinTTL = time.Duration(shortest.TTL) * time.Second
	if _, err = d.client.Revoke(ctx, shortest.ID); err != nil {
		return unavailable(ctx, err)
	}
	return nil
}
