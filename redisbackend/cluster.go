package redisbackend

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// newCluster makes a client for a cluster. go-redis follows MOVED and ASK, which say that nothing
// has been done; what else it would repeat is not repeated, as our commands are [once].
func newCluster(t *target, opts redis.Options) *redis.ClusterClient {
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:                    t.addrs,
		Username:                 opts.Username,
		Password:                 opts.Password,
		Dialer:                   opts.Dialer,
		IdentitySuffix:           opts.IdentitySuffix,
		DisableRoutingPolicies:   true, // scripts go by their first key
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

// node returns the client of the server that key is on, as far as is known.
func (l *lane) node(ctx context.Context, key string) (redis.UniversalClient, error) {
	if l.cluster == nil {
		return l.client, nil
	}
	return l.cluster.MasterForKey(ctx, key)
}

// masters returns a client for each server that has keys of its own, after a look at which those are.
func (l *lane) masters(ctx context.Context) ([]redis.UniversalClient, error) {
	if l.cluster == nil {
		return []redis.UniversalClient{l.client}, nil
	}
	var mu sync.Mutex
	var masters []redis.UniversalClient
	err := l.cluster.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		masters = append(masters, master)
		return nil
	})
	return masters, err
}

// reload looks again, behind the caller and a few times a second at most, who the masters are. go-redis
// does so when it is sent elsewhere, but a master that has died sends nobody.
func (l *lane) reload() {
	if l.cluster != nil {
		l.cluster.ReloadState(context.Background())
	}
}
