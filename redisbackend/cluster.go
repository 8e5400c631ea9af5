package redisbackend

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// newCluster makes a client for a cluster. go-redis follows MOVED and ASK, with which a node
// reports that it has not executed the request. go-redis repeats nothing else, because each command
// of the driver is [once].
func newCluster(t *target, opts redis.Options) *redis.ClusterClient {
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:                    t.addrs,
		Username:                 opts.Username,
		Password:                 opts.Password,
		Dialer:                   opts.Dialer,
		IdentitySuffix:           opts.IdentitySuffix,
		DisableRoutingPolicies:   true, // the first key of a script selects its node
		DialerRetries:            opts.DialerRetries,
		DialTimeout:              opts.DialTimeout,
		ReadTimeout:              opts.ReadTimeout,
		WriteTimeout:             opts.WriteTimeout,
		PoolSize:                 opts.PoolSize,
		PoolTimeout:              opts.PoolTimeout,
		PipelinePoolSize:         opts.PipelinePoolSize,
		ReadBufferSize:           opts.ReadBufferSize,
		WriteBufferSize:          opts.WriteBufferSize,
		ContextTimeoutEnabled:    opts.ContextTimeoutEnabled,
		MaintNotificationsConfig: opts.MaintNotificationsConfig,
	})
	if t.Wait > 0 {
		client.OnNewNode(func(node *redis.Client) { node.AddHook(replication{}) })
	}
	return client
}

// node returns the client of the server that has key, by the last loaded state of the cluster. It
// may load the state first, and so block for a round trip.
func (l *lane) node(ctx context.Context, key string) (redis.UniversalClient, error) {
	if l.cluster == nil {
		return l.client, nil
	}
	return l.cluster.MasterForKey(ctx, key)
}

// masters returns a client for each server that has keys of its own. It loads the state of the
// cluster first, and so blocks for a round trip.
func (l *lane) masters(ctx context.Context) ([]redis.UniversalClient, error) {
	if l.cluster == nil {
		return []redis.UniversalClient{l.client}, nil
	}
	var mu sync.Mutex // go-redis calls the function concurrently
	var masters []redis.UniversalClient
	err := l.cluster.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		masters = append(masters, master)
		return nil
	})
	return masters, err
}

// reload makes go-redis load the masters of the cluster again, in the background and a few times a
// second at most. By itself go-redis does this when a node redirects it, but a master that has died
// or left redirects no request.
func (l *lane) reload() {
	if l.cluster != nil {
		l.cluster.ReloadState(context.Background())
	}
}
