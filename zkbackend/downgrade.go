package zkbackend

import (
	"context"
	"errors"

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
			return nil, err // never ErrUnavailable: a is a reader already
		}
		shared := *g
		shared.Mode, shared.Term = backend.Shared, a.session.term(g.TTL)
		return &shared, nil
	})
}

// downgrade makes a a reader. It returns ErrLost and forgets a if its node is gone. a.turn must be
// taken.
func (d *driver) downgrade(a *acquisition, meta string) error {
	if a.state != held {
		return errNotOfSession
	}
	err := a.settleMove()
	if err == nil && a.kind != kind.Reader && a.gone() == nil {
		err = d.replaceNode(a, meta)
	}
	if gone := a.gone(); gone != nil {
		d.forget(a)
		return gone
	}
	if err != nil && a.moving.Load() {
		return uncertain(err) // this request, or an earlier one, may be executed
	}
	return err
}

// replaceNode replaces the node of a by a node of a reader. If the request has no answer, or finds
// no node, an earlier one may have been executed. The data of the new node has the fence, which
// stays the same. a.turn must be taken.
//
// The first part of the transaction is for the waiters that watch the writer's node. It uses up
// their watches, so that the server reports a write to them and not the deletion. A waiter that
// detects the deletion of the only node in front takes the lock without a request: see isFirst.
func (d *driver) replaceNode(a *acquisition, meta string) error {
	wasMoving := a.moving.Swap(true)
	_, err := a.session.conn.Multi(
		&zk.SetDataRequest{Path: a.node, Data: []byte(meta), Version: -1},
		&zk.DeleteRequest{Path: a.node, Version: -1},
		&zk.CreateRequest{
			Path: a.readerNode(), Data: encodeRecord(a.fence.Load(), meta),
			Acl: d.settings.acl, Flags: zk.FlagEphemeral,
		})
	switch {
	case err == nil:
		a.markReader()
		return nil
	case isDefinite(err) && !errors.Is(err, zk.ErrNoNode):
		a.moving.Store(wasMoving) // an earlier request may still be executed
		return err
	}
	if failure := a.settleMove(); failure != nil || a.moving.Load() {
		return err
	}
	return nil
}

// settleMove searches the queue for the outcome of a Downgrade that had no answer. The search
// leaves it open if the node of the writer still exists, because the server may execute the request
// later. It stays open until a search finds another outcome, or until the release. a.turn must be
// taken.
func (a *acquisition) settleMove() error {
	if !a.moving.Load() {
		return nil
	}
	entries, err := a.session.syncedEntries(a.queue)
	switch {
	case err != nil:
		return err
	case a.indexOf(a.readerNode(), entries) >= 0:
		a.markReader()
	case a.indexOf(a.node, entries) < 0:
		a.own.Store(deletedWatch())
		a.moving.Store(false)
	}
	return nil
}

// markReader is for a node of a reader that has replaced the node of a. a.turn must be taken.
func (a *acquisition) markReader() {
	a.node, a.kind = a.readerNode(), kind.Reader
	own := a.session.watchInBackground(a.node)
	_ = a.session.onGone(own, a.onLoss) // the caller checks gone
	a.own.Store(own)
	a.moving.Store(false)
}

// readerNode returns the path of the node of a after a Downgrade. a.turn must be taken.
func (a *acquisition) readerNode() string {
	return a.queue + "/" + nodeName(a.owner, kind.Reader) + numberOf(a.node)
}
