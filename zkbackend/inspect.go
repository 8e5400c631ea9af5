package zkbackend

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/key"
	"github.com/dlock-go/dlock/backend/kind"
)

// maxReads limits how often a request lists a queue whose holders all leave between the list and
// the next request for their nodes.
const maxReads = 8

// Inspect implements backend.Inspector. A foreign node in the place of the lock is ErrConflict.
func (d *driver) Inspect(ctx context.Context, name string) (*backend.Info, error) {
	s, err := d.liveSession(ctx)
	if err != nil {
		return nil, err
	}
	return call(ctx, s, func() (*backend.Info, error) {
		if _, err := s.conn.Sync(d.path(name)); err != nil {
			return nil, interpretError(err)
		}
		_, err := s.checkLock(d.path(name), name)
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return nil, interpretError(err)
		}
		return s.inspect(d.queue(name), name)
	})
}

// inspect returns the state of one lock. The time that its holder has left is unknown: it depends
// on the holder's session.
func (s *session) inspect(queue, name string) (*backend.Info, error) {
	for range maxReads {
		entries, err := s.entries(queue)
		if err != nil {
			return nil, interpretError(err)
		}
		info := &backend.Info{Key: name, Mode: backend.Exclusive}
		if len(entries) == 0 {
			return info, nil
		}
		k, held := entries[0].kind, kind.Holders(entries)
		info.Mode, info.Limit, info.Waiters = k.Mode(), k.Limit(), len(entries)-len(held)
		info.Holders, err = s.readHolders(queue, held)
		if err != nil || len(info.Holders) > 0 {
			return info, interpretError(err)
		}
	}
	return nil, errTooFast
}

// readHolders reads the nodes of holders. It skips those that have left.
func (s *session) readHolders(queue string, held []entry) (all []backend.Holder, _ error) {
	for _, e := range held {
		data, stat, err := s.conn.Get(queue + "/" + e.name)
		if errors.Is(err, zk.ErrNoNode) {
			continue // it has left
		}
		if err != nil {
			return nil, err
		}
		fence, meta := parseRecord(data, uint64(stat.Czxid))
		all = append(all, backend.Holder{
			Owner: e.owner, Meta: meta, Fence: fence << 12,
			Since: time.UnixMilli(stat.Ctime), TTL: -1,
		})
	}
	return all, nil
}

// List implements backend.Inspector. It sends requests for each lock in turn.
func (d *driver) List(ctx context.Context, prefix string) iter.Seq2[*backend.Info, error] {
	return func(yield func(*backend.Info, error) bool) {
		s, nodes, err := d.lockNodes(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		encoded := key.Encode(prefix, maxKey) // a prefix of the encoded names
		for _, node := range nodes {
			if !strings.HasPrefix(node, encoded) {
				continue
			}
			info, err := call(ctx, s, func() (*backend.Info, error) {
				return d.inspectNode(s, node)
			})
			if err != nil {
				yield(nil, err)
				return
			}
			if info != nil && !yield(info, nil) {
				return
			}
		}
	}
}

// lockNodes lists the nodes of all locks, including free locks that the server has not removed yet.
func (d *driver) lockNodes(ctx context.Context) (*session, []string, error) {
	s, err := d.liveSession(ctx)
	if err != nil {
		return nil, nil, err
	}
	nodes, err := call(ctx, s, func() ([]string, error) {
		if _, err := s.conn.Sync(d.settings.root); err != nil {
			return nil, err
		}
		nodes, _, err := s.conn.Children(d.settings.root)
		if errors.Is(err, zk.ErrNoNode) {
			return nil, nil
		}
		return nodes, err
	})
	return s, nodes, interpretError(err)
}

// inspectNode is inspect for a node of the directory. It returns nil for a free lock and for a node
// that is not a lock.
func (d *driver) inspectNode(s *session, node string) (*backend.Info, error) {
	path := d.settings.root + "/" + node
	data, stat, err := s.conn.Get(path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, interpretError(err)
	}
	if stat.NumChildren == 0 || d.path(string(data)) != path {
		return nil, nil
	}
	info, err := s.inspect(path+queueNode, string(data))
	if err != nil || len(info.Holders) == 0 {
		return nil, err
	}
	return info, nil
}

// Break implements backend.Breaker. The holder watches its node, so its driver reports the loss at
// once.
func (d *driver) Break(ctx context.Context, name, owner string) error {
	s, err := d.liveSession(ctx)
	if err != nil {
		return err
	}
	_, err = call(ctx, s, func() (any, error) {
		return nil, d.removeHolders(ctx, s, d.queue(name), owner)
	})
	return interpretError(err)
}

// removeHolders deletes the nodes of the holders, or of one of them if owner is not empty. It
// returns ErrNotHeld if there is none. It deletes nothing after the end of ctx: by then there can
// be another holder.
func (d *driver) removeHolders(
	ctx context.Context, s *session, queue, owner string,
) error {
	return d.removeEntries(ctx, s, queue, func(entries []entry) []entry {
		return slices.DeleteFunc(kind.Holders(entries), func(e entry) bool {
			return owner != "" && e.owner != owner
		})
	})
}
