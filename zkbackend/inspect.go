package zkbackend

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/key"
)

// maxLooks is how often in a row Inspect finds that the holder has left while it looked.
const maxLooks = 8

// Inspect implements backend.Inspector.
func (d *driver) Inspect(ctx context.Context, name string) (*backend.Info, error) {
	s, err := d.live(ctx)
	if err != nil {
		return nil, err
	}
	return ask(ctx, s, func() (*backend.Info, error) {
		if _, err := s.conn.Sync(d.path(name)); err != nil {
			return nil, interpretError(err)
		}
		if err := s.checkLock(d.path(name), name); err != nil && !errors.Is(err, zk.ErrNoNode) {
			return nil, interpretError(err)
		}
		return s.inspect(d.queue(name), name)
	})
}

// List implements backend.Inspector. It asks for each lock in turn.
func (d *driver) List(ctx context.Context, prefix string) iter.Seq2[*backend.Info, error] {
	return func(yield func(*backend.Info, error) bool) {
		s, names, err := d.names(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		encoded := key.Encode(prefix, maxKey) // of a prefix: a prefix of the encoding
		for _, name := range names {
			if !strings.HasPrefix(name, encoded) {
				continue
			}
			info, err := ask(ctx, s, func() (*backend.Info, error) { return d.show(s, name) })
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

// names lists the nodes of all locks, also of free ones that the server has not removed yet.
func (d *driver) names(ctx context.Context) (*session, []string, error) {
	s, err := d.live(ctx)
	if err != nil {
		return nil, nil, err
	}
	names, err := ask(ctx, s, func() ([]string, error) {
		if _, err := s.conn.Sync(d.settings.root); err != nil {
			return nil, err
		}
		names, _, err := s.conn.Children(d.settings.root)
		if errors.Is(err, zk.ErrNoNode) {
			return nil, nil
		}
		return names, err
	})
	return s, names, interpretError(err)
}

// show is inspect for a node; nil for one that is free or not a lock's.
func (d *driver) show(s *session, name string) (*backend.Info, error) {
	path := d.settings.root + "/" + name
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

// inspect shows one lock. How much time its holder has left is not to be known: that is
// the session's matter.
func (s *session) inspect(parent, name string) (*backend.Info, error) {
	info := &backend.Info{Key: name, Mode: backend.Exclusive}
	for range maxLooks {
		members, err := s.members(parent)
		if err != nil {
			return nil, interpretError(err)
		}
		if len(members) == 0 {
			return info, nil
		}
		meta, stat, err := s.conn.Get(parent + "/" + members[0].name)
		if errors.Is(err, zk.ErrNoNode) {
			continue
		}
		if err != nil {
			return nil, interpretError(err)
		}
		info.Waiters = len(members) - 1
		info.Holders = []backend.Holder{{
			Owner: members[0].owner, Meta: string(meta), Fence: uint64(stat.Czxid) << 12,
			Since: time.UnixMilli(stat.Ctime), TTL: -1,
		}}
		return info, nil
	}
	return nil, fmt.Errorf("%w: the lock changes its holder too fast to be looked at", backend.ErrUnavailable)
}

// Break implements backend.Breaker. The holder watches its node, and so is told at once.
func (d *driver) Break(ctx context.Context, name, owner string) error {
	s, err := d.live(ctx)
	if err != nil {
		return err
	}
	_, err = ask(ctx, s, func() (any, error) { return nil, d.breakFirst(s, d.queue(name), owner) })
	return interpretError(err)
}

// breakFirst deletes the node of the holder, unless that is another than owner.
func (d *driver) breakFirst(s *session, parent, owner string) error {
	if _, err := s.conn.Sync(parent); err != nil {
		return err
	}
	members, err := s.members(parent)
	if err != nil {
		return err
	}
	if len(members) == 0 || owner != "" && members[0].owner != owner {
		return backend.ErrNotHeld
	}
	return d.remove(s, parent, parent+"/"+members[0].name)
}
