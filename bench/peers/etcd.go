package main

import (
	"context"
	"errors"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/bench"
)

const etcdPort = "2379"

// errOneSession is a mistake that concurrency.Mutex does not report. A session is one owner: if two
// goroutines of one session lock the same name, both have the lock.
var errOneSession = errors.New(
	"goroutines that share a session do not exclude each other: two would hold the lock")

// etcdClient makes sessions. Their TTL is the requested TTL in whole seconds, or the default of
// package concurrency, which is 60 s.
type etcdClient struct {
	*clientv3.Client
	options []concurrency.SessionOption
}

func newEtcdClient(u *backend.URL, s bench.Settings) (*etcdClient, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints: u.HostsWithPort(etcdPort), Username: u.User, Password: u.Password,
		DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, err
	}
	c := &etcdClient{Client: client}
	if s.TTL > 0 {
		c.options = []concurrency.SessionOption{concurrency.WithTTL(seconds(s.TTL))}
	}
	return c, nil
}

func (c *etcdClient) session() (*concurrency.Session, error) {
	return concurrency.NewSession(c.Client, c.options...)
}

// lockEtcd locks a concurrency.Mutex of a session.
func lockEtcd(ctx context.Context, session *concurrency.Session, name string) (lease, error) {
	m := concurrency.NewMutex(session, name)
	if err := m.Lock(ctx); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		select {
		case <-session.Done():
			return errLost
		default:
			return m.Unlock(ctx)
		}
	}, nil
}

// openEtcdShared uses one session for a process, which makes its locks as cheap as possible. A lock
// that is contended inside the process fails.
func openEtcdShared(_ context.Context, u *backend.URL, s bench.Settings) (bench.Process, error) {
	client, err := newEtcdClient(u, s)
	if err != nil {
		return nil, err
	}
	session, err := client.session()
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	var held sync.Map
	return process{
		mutex: func(name string) mutex {
			return func(ctx context.Context) (lease, error) {
				if _, taken := held.LoadOrStore(name, true); taken {
					return nil, errOneSession
				}
				unlock, err := lockEtcd(ctx, session, name)
				if err != nil {
					held.Delete(name)
					return nil, err
				}
				return func(ctx context.Context) error {
					defer held.Delete(name)
					return unlock(ctx)
				}, nil
			}
		},
		close: func() error { return errors.Join(session.Close(), client.Close()) },
	}, nil
}

// openEtcdEach uses a session for each contender's mutex. The first Lock begins it.
func openEtcdEach(_ context.Context, u *backend.URL, s bench.Settings) (bench.Process, error) {
	client, err := newEtcdClient(u, s)
	if err != nil {
		return nil, err
	}
	return process{
		mutex: func(name string) mutex {
			var session *concurrency.Session
			return func(ctx context.Context) (lease, error) {
				if session == nil {
					var err error
					if session, err = client.session(); err != nil {
						return nil, err
					}
				}
				return lockEtcd(ctx, session, name)
			}
		},
		close: client.Close,
	}, nil
}

// openNewEtcd uses a new session for each lock. Unlock ends it.
func openNewEtcd(_ context.Context, u *backend.URL, s bench.Settings) (bench.Process, error) {
	client, err := newEtcdClient(u, s)
	if err != nil {
		return nil, err
	}
	return process{
		mutex: func(name string) mutex {
			return func(ctx context.Context) (lease, error) {
				session, err := client.session()
				if err != nil {
					return nil, err
				}
				unlock, err := lockEtcd(ctx, session, name)
				if err != nil {
					return nil, errors.Join(err, session.Close())
				}
				return func(ctx context.Context) error {
					return errors.Join(unlock(ctx), session.Close())
				}, nil
			}
		},
		close: client.Close,
	}, nil
}
