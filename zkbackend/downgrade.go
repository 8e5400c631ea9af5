package zkbackend

import (
	"context"
	"errors"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/kind"
)

// Downgrade implements backend.Downgrader. In one transaction the node of a reader replaces the
// node of the writer, with the same number, and so in the same place of the queue.
func (d *driver) Downgrade(ctx context.Context, g *backend.Grant) (*backend.Grant, error) {
	a := d.find(g)
	if a == nil {
		return nil, errNotOfSession
	}
	return inTurn(ctx, a, func() (*backend.Grant, error) {
		if err := d.downgrade(a, g.Meta); err != nil {
			return nil, interpretError(err)
		}
		if err := a.session.prove(g.TTL / 6); err != nil {
			return nil, interpretError(err)
		}
		shared := *g
		shared.Mode, shared.Term = backend.Shared, a.session.term(g.TTL)
		return &shared, nil
	})
}

// downgrade replaces the node of a. The end of the former node is no loss meanwhile. a.turn must be
// taken.
func (d *driver) downgrade(a *acquisition, meta string) error {
	if gone := a.gone(); gone != nil || a.state != held {
		return errors.Join(backend.ErrLost, gone)
	}
	if a.kind == kind.Reader {
		return nil
	}
	s, own := a.session, a.own.Load()
	node := a.queue + "/" + nodeName(a.owner, kind.Reader) + numberOf(a.node)
	a.moving.Store(true)
	defer a.moving.Store(false)
	report := s.takeOnGone(own)
	err := d.replaceNode(a, node, meta)
	if err == nil {
		own = s.watchInBackground(node)
		a.own.Store(own)
		a.node, a.kind = node, kind.Reader
	}
	if gone := s.onGone(own, report); gone != nil {
		return gone
	}
	return err
}

// replaceNode replaces the node of a by a node of a reader. If the request has no answer, or finds
// no node, an earlier one may have been executed. a.turn must be taken.
//
// The first part of the transaction is for the waiters that watch the writer's node. It uses up
// their watches, so that the server reports a write to them and not the deletion. A waiter that
// detects the deletion of the only node in front takes the lock without a request: see isFirst.
func (d *driver) replaceNode(a *acquisition, node, meta string) error {
	_, err := a.session.conn.Multi(
		&zk.SetDataRequest{Path: a.node, Data: []byte(meta), Version: -1},
		&zk.DeleteRequest{Path: a.node, Version: -1},
		&zk.CreateRequest{
			Path: node, Data: []byte(meta), Acl: d.settings.acl, Flags: zk.FlagEphemeral,
		})
	switch {
	case errors.Is(err, zk.ErrNoNode):
		if err = a.searchReplacement(err, node); errors.Is(err, zk.ErrNoNode) {
			return errDeleted
		}
	case err != nil && !isDefinite(err):
		if err = a.searchReplacement(err, node); err != nil {
			d.sweepLater(a) // or the reader's node would stay if the writer's is gone
		}
	}
	return err
}

// searchReplacement returns nil if node has replaced the node of a, and zk.ErrNoNode if both are
// gone. Otherwise it returns err, the error of the request. a.turn must be taken.
func (a *acquisition) searchReplacement(err error, node string) error {
	entries, failure := a.session.syncedEntries(a.queue)
	if failure != nil {
		return err
	}
	result := zk.ErrNoNode
	for _, e := range entries {
		switch a.queue + "/" + e.name {
		case node:
			return nil
		case a.node:
			result = err
		}
	}
	return result
}

// numberOf returns the number at the end of the path of a node.
func numberOf(node string) string {
	name := node[strings.LastIndex(node, "/")+1:]
	_, rest, _ := strings.Cut(name, "-")
	_, number, _ := strings.Cut(rest, "-")
	return number
}
