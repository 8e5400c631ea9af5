package zkbackend

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/kind"
)

// position is where a waiter stands in the queue. It has a watch on one node in front of the
// waiter's own, so that a release wakes one waiter and not all. The waiters of a semaphore watch
// the whole queue, because any holder may be the next to leave.
type position struct {
	session    *session
	own, ahead *watch
}

// Wait implements backend.Waiter. It returns when a node has changed that the waiter watches, or
// when the session is over. It sends no request and needs no goroutine. A *Busy without a position
// comes from an attempt that left no node; then only ctx ends the wait.
func (d *driver) Wait(
	ctx context.Context, _ *backend.Request, b *backend.Busy,
) (*backend.Grant, error) {
	p, ok := b.State.(*position)
	if !ok {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	select {
	case <-p.ahead.fired:
	case <-p.own.fired:
	case <-p.session.ctx.Done():
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return nil, nil
}

// rememberTail keeps the last node of a queue for the next acquisition of the same lock in this
// process. The holder lists the queue, so its successor can watch that node without a list of its
// own. Between processes a lock changes hands 8 % more often with it; inside a process there is no
// difference. forget drops it.
func (d *driver) rememberTail(a *acquisition, entries []entry) {
	last := entries[len(entries)-1]
	if a.kind != kind.Writer || len(entries) == 1 || last.kind.Limit() > 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tails[a.queue] = a.queue + "/" + last.name
}

// followTail watches the remembered node, once, without a list of the queue. In most cases it is
// the nearest. It returns nil if there is no such node. When that node is gone, other nodes may
// still be in front, so a.ahead stays nil and the queue has to be listed. a.turn must be taken.
func (a *acquisition) followTail() *watch {
	tail := a.tail
	if a.tail = ""; tail == "" {
		return nil
	}
	w, err := a.session.watch(tail)
	if err != nil {
		return nil
	}
	return w
}

// waitBehind returns *Busy with a watch on the nearest of the nodes for whose end a waits. A permit
// waits for the end of any of them, so it watches the queue. a.turn must be taken.
func (a *acquisition) waitBehind(front []entry) error {
	if a.kind.Limit() > 0 {
		return a.waitForPermit(front[0].owner)
	}
	w, err := a.session.watch(a.queue + "/" + front[len(front)-1].name)
	if errors.Is(err, zk.ErrNoNode) {
		w = deletedWatch() // the waiter lists the queue again at once
	} else if err != nil {
		return err
	}
	a.ahead = nil
	if len(front) == 1 {
		a.ahead = w
	}
	return a.busyBehind(front[0].owner, w)
}

// waitForPermit returns *Busy with a watch on the queue. The list that came with the watch may have
// changed since the list of the attempt: then the waiter lists the queue again at once.
func (a *acquisition) waitForPermit(holder string) error {
	w, err := a.session.watch(a.queue + children)
	if err != nil {
		return err
	}
	entries := parseEntries(w.children)
	i := a.indexOf(a.node, entries)
	if i < 0 || len(kind.Blockers(a.kind, entries[:i])) == 0 {
		w = deletedWatch()
	}
	return a.busyBehind(holder, w)
}

// busyBehind returns *Busy for a waiter that watches the node of ahead.
func (a *acquisition) busyBehind(holder string, ahead *watch) error {
	return &backend.Busy{
		Holder: holder,
		Queued: true,
		State:  &position{session: a.session, own: a.own.Load(), ahead: ahead},
	}
}

// isFirst reports, without a request, whether no other node is in front of the node of a: there was
// none when it was created, or the only one was deleted. Nodes that were created since are behind
// it. The order of the messages must be certain, because the node of a could have been deleted
// before the other one. On a later connection a deletion may also be a Downgrade, of which the
// server then reports only the end of the writer's node. a.turn must be taken.
func (a *acquisition) isFirst() bool {
	s, own := a.session, a.own.Load()
	if a.alone {
		return s.inOrder(own)
	}
	return a.ahead != nil && errors.Is(s.gone(a.ahead), errDeleted) && s.inOrder(own, a.ahead)
}
