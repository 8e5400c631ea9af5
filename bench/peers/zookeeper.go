package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/bench"
)

const (
	zkPort    = "2181"
	zkTimeout = 10 * time.Second // of a session, as in the client's examples
	zkClose   = 5 * time.Second  // time to remove the parent nodes of locks
	zkBatch   = 500
)

// zkProcess has the locks of one session.
type zkProcess struct {
	conn   *zk.Conn
	mu     sync.Mutex
	parent []string // the parent node of each lock, which zk.Lock does not remove
}

// openZKLock uses zk.NewLock with one session for a process. Its Lock takes no context: the end of
// the connection wakes a waiter.
func openZKLock(ctx context.Context, u *backend.URL, s bench.Settings) (bench.Process, error) {
	conn, events, err := zk.Connect(u.HostsWithPort(zkPort), cmp.Or(s.TTL, zkTimeout),
		zk.WithLogger(zkSilence{}))
	if err != nil {
		return nil, err
	}
	for conn.State() != zk.StateHasSession {
		select {
		case <-events:
		case <-ctx.Done():
			conn.Close()
			return nil, fmt.Errorf("no session: %w", ctx.Err())
		}
	}
	p := &zkProcess{conn: conn}
	return process{
		mutex: func(name string) mutex {
			path := u.Path + "/" + strings.ReplaceAll(name, "/", "-")
			p.mu.Lock()
			defer p.mu.Unlock()
			p.parent = append(p.parent, path)
			lock := zk.NewLock(conn, path, zk.WorldACL(zk.PermAll))
			return func(context.Context) (lease, error) {
				if err := lock.Lock(); err != nil {
					return nil, err
				}
				return func(context.Context) error { return lock.Unlock() }, nil
			}
		},
		close: p.close,
	}, nil
}

// close removes the parent nodes of the locks. The server keeps a node that
// other processes still use.
func (p *zkProcess) close() error {
	bound := time.AfterFunc(zkClose, p.conn.Close)
	defer bound.Stop()
	defer p.conn.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	slices.Sort(p.parent)
	for paths := range slices.Chunk(slices.Compact(p.parent), zkBatch) {
		var requests []any
		for _, path := range paths {
			requests = append(requests, &zk.DeleteRequest{Path: path, Version: -1})
		}
		_, _ = p.conn.Multi(requests...)
	}
	return nil
}

// zkSilence is a logger that drops all messages.
type zkSilence struct{}

func (zkSilence) Printf(string, ...any) {}
