package zkbackend

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/kind"
)

const (
	// minTTL leaves time for three renewals and for the core's margin of 10 ms and 1 %.
	minTTL = 100 * time.Millisecond

	// late is Capabilities.Late. The server may read what was written to a connection just before
	// its loss. It may do so shortly after the session has continued on the next connection.
	late = time.Second

	// maxQueues limits how often in a row an attempt creates the queue. The server may remove the
	// empty queue before the attempt's node is in it.
	maxQueues = 4

	// recently is how long a queue is expected to exist after its use. The servers remove an empty
	// queue within a minute. A read that was not needed takes about a third of a write in vain.
	recently = 15 * time.Second
)

// driver has one session at a time, with one connection for all requests, watches and pings. All
// acquisitions live in that session.
type driver struct {
	servers  []string
	settings *settings            // constant once the driver is open
	caps     backend.Capabilities // constant once the driver is open
	running  sync.WaitGroup       // the goroutines of the sessions

	measuredAt   string      // the server that measured the tick; "" once the driver is open
	noContainers atomic.Bool // the server is too old for container nodes
	makesLocks   atomic.Bool // the last lock whose node was to be made did not exist

	mu           sync.Mutex
	session      *session            // the newest; nil: none yet
	acquisitions map[id]*acquisition // of the newest session
	tails        map[string]string   // by path of the queue; see rememberTail
	used         uses                // of the queues, by their paths
	closed       bool
}

var (
	_ backend.Driver       = (*driver)(nil)
	_ backend.Waiter       = (*driver)(nil)
	_ backend.Pipeliner    = (*driver)(nil)
	_ backend.BatchRenewer = (*driver)(nil)
	_ backend.Inspector    = (*driver)(nil)
	_ backend.Breaker      = (*driver)(nil)
	_ backend.Downgrader   = (*driver)(nil)
	_ backend.Watcher      = (*driver)(nil)
)

// newDriver makes a driver without a session. The first request begins one.
func newDriver(servers []string, opts *settings) *driver {
	return &driver{
		servers:      servers,
		settings:     opts,
		acquisitions: make(map[id]*acquisition),
		tails:        make(map[string]string),
		caps: backend.Capabilities{
			Modes:   backend.Exclusive | backend.Shared | backend.Permit,
			Fair:    backend.FairAlways,
			Fencing: backend.FenceDurable, Session: true,
			Inspect: true, List: true, Break: true, Notify: true,
			MinTTL: minTTL, Late: late,
		},
	}
}

// Acquire implements backend.Driver. An attempt creates the node of the acquisition, or finds the
// node of an earlier attempt. Then it checks that no other node is in front of it.
func (d *driver) Acquire(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
	s, err := d.liveSession(ctx)
	if err != nil {
		return nil, err
	}
	a := d.admit(s, id{req.Key, req.Owner}, kind.Of(req))
	return inTurn(ctx, a, func() (*backend.Grant, error) {
		if a.state == released {
			return nil, errReleased
		}
		g, err := d.attempt(a, req)
		if err != nil {
			return nil, d.failed(a, err)
		}
		return g, nil
	})
}

// failed returns the error of a failed attempt in the terms of the contract. It ends an acquisition
// that is lost, or that has nothing on the server. If it has a sweep, it stays for the next attempt
// of the owner, so that the sweep spares the node of that attempt. a.turn must be taken.
func (d *driver) failed(a *acquisition, err error) error {
	isLost := errors.Is(err, backend.ErrLost)
	if a.state != absent && !isLost {
		return err // the server has a node, or may have one
	}
	if !a.swept || isLost {
		a.markReleased()
		d.forget(a)
	}
	if isLost || errors.Is(err, backend.ErrNotAcquired) || errors.Is(err, backend.ErrConflict) {
		return err
	}
	return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
}

// attempt makes a the holder, or leaves it in the queue and returns *Busy. a.turn must be taken.
func (d *driver) attempt(a *acquisition, req *backend.Request) (*backend.Grant, error) {
	if err := d.ensureNode(a, req); err != nil {
		return nil, err
	}
	if a.state != held && !a.isFirst() {
		if err := d.checkQueue(a, req); err != nil {
			return nil, err
		}
	}
	return d.grant(a, req)
}

// ensureNode returns nil if a has a node and a watch on it.
func (d *driver) ensureNode(a *acquisition, req *backend.Request) (err error) {
	if a.state == unknown {
		if err = a.searchNode(); err != nil {
			return err
		}
		d.sweepLater(a) // even if there is a node: a former session may have left it
		if a.state == queued && a.removing {
			return errRemoving
		}
	}
	if a.state == absent {
		err = d.enqueue(a, req)
	} else {
		err = a.ensureWatch()
	}
	if err != nil {
		return err
	}
	if gone := a.gone(); gone != nil {
		return a.dropNode(gone)
	}
	return nil
}

// enqueue creates the node of a. An attempt of a caller that does not wait lists the queue first.
// Any other attempt at a queue that the driver has not used recently expects what the last one
// found. If that lock was new, it creates the lock's node. Otherwise it reads whether there is a
// queue, because a write that fails takes the servers as long as any write.
func (d *driver) enqueue(a *acquisition, req *backend.Request) (err error) {
	begun := a.session.beginRequest()
	switch {
	case !req.Queue:
		err = a.checkRoom()
	case a.isFirstUse && d.makesLocks.Load():
		err = zk.ErrNoNode
	case a.isFirstUse || d.noContainers.Load(): // where each last release deletes the queue
		err = a.checkQueueExists()
	}
	if err == nil {
		err = d.createNode(a, req.Meta, begun)
	}
	for made := 0; errors.Is(err, zk.ErrNoNode) && made < maxQueues; made++ {
		var hasQueue bool
		hasQueue, err = d.makeLock(a.session, a.key)
		switch {
		case err != nil:
		case hasQueue && made == 0:
			err = d.createNode(a, req.Meta, begun)
		default:
			err = d.createWithQueue(a, req.Meta, begun)
		}
	}
	return err
}

// checkQueue returns *Busy if there are nodes in front of the node of a for whose end it waits. An
// attempt of a caller that does not wait then leaves nothing, and neither does a conflict.
func (d *driver) checkQueue(a *acquisition, req *backend.Request) error {
	ordered := isOrdered(a.node)
	if req.Queue && ordered {
		if w := a.followTail(); w != nil {
			return a.busyBehind("", w)
		}
	}
	entries, err := a.session.entries(a.queue)
	if err != nil {
		return err
	}
	i := a.indexOf(a.node, entries)
	if i < 0 {
		return errEntryDeleted // the watch is about to report it, too
	}
	if !ordered {
		return d.checkAlone(a, entries)
	}
	if err := kind.Conflict(a.kind, entries[:i]); err != nil {
		return d.stepBack(a, err)
	}
	blockers := kind.Blockers(a.kind, entries[:i])
	switch {
	case len(blockers) == 0:
		d.rememberTail(a, entries)
		return nil
	case !req.Queue:
		return d.stepBack(a, &backend.Busy{Holder: entries[0].owner})
	}
	return a.waitBehind(blockers)
}

// checkAlone is checkQueue for a node whose number does not show its place. The node must be the
// only one: of two such nodes, the one that was created later finds the other. Otherwise the
// attempt leaves the queue, and polls. So the queue drains, and its numbers restart: see remove.
func (d *driver) checkAlone(a *acquisition, entries []entry) error {
	if len(entries) == 1 {
		return nil
	}
	return d.stepBack(a, &backend.Busy{})
}

// stepBack removes the node of an attempt that fails with answer, and returns answer. After a
// removal without an answer the outcome is unknown, and the next attempt searches for the node.
func (d *driver) stepBack(a *acquisition, answer error) error {
	err := d.release(a)
	switch {
	case err == nil || errors.Is(err, backend.ErrNotHeld):
		a.markAbsent()
		return answer
	case !isDefinite(err):
		a.markAbsent() // which drops what was learned of the node
		a.markUnknown()
		a.removing = true
	}
	return err
}

// grant makes a the holder, or grants its lock again. From here on the end of its node is a loss.
func (d *driver) grant(a *acquisition, req *backend.Request) (*backend.Grant, error) {
	s, own := a.session, a.own.Load()
	if err := s.prove(req.TTL / 6); err != nil {
		return nil, err
	}
	report := req.Lost // without req, which would stay in memory as long as the lock
	a.onLoss = func(reason error) { d.lose(a, report, reason) }
	if gone := s.onGone(own, a.onLoss); gone != nil && a.gone() != nil {
		return nil, a.dropNode(gone)
	}
	if a.created == 0 {
		a.created = uint64(own.stat.Czxid)
	}
	a.markHeld()
	term := s.term(req.TTL)
	return &backend.Grant{Request: *req, Term: term, Fence: a.fence.Load()}, nil
}

// lose reports the loss of a by report, which is Request.Lost or nil. The core does not release a
// lost lock, so the driver forgets it here. The end of a node that a Downgrade replaces is no loss.
func (d *driver) lose(a *acquisition, report func(error), reason error) {
	if a.gone() == nil {
		return
	}
	d.forget(a)
	if report != nil {
		report(reason)
	}
}

// Renew implements backend.Driver. It always sends a request.
func (d *driver) Renew(ctx context.Context, g *backend.Grant) (backend.Term, error) {
	renewal := d.renew(ctx, []*backend.Grant{g}, 0)[0]
	return renewal.Term, renewal.Err
}

// Release implements backend.Driver.
func (d *driver) Release(ctx context.Context, g *backend.Grant) error {
	return d.ReleaseThen(ctx, g, func() {})
}

// ReleaseThen implements backend.Pipeliner. It calls sent when the request to delete the node is
// written to the connection: the server executes later requests after it.
func (d *driver) ReleaseThen(ctx context.Context, g *backend.Grant, sent func()) error {
	a := d.find(g)
	if a == nil || a.session.userRefused() {
		return d.releaseByOwner(ctx, g)
	}
	d.use(a.queue)
	_, err := inTurn(ctx, a, func() (any, error) {
		if a.node != "" {
			defer a.session.onSent(action{opDelete, a.node}, sent)()
		}
		err := d.release(a)
		if err == nil || errors.Is(err, backend.ErrNotHeld) {
			a.markReleased()
			d.forget(a)
		}
		return nil, interpretError(err)
	})
	return err
}

// releaseByOwner removes the nodes of an owner that has no acquisition in the present session.
func (d *driver) releaseByOwner(ctx context.Context, g *backend.Grant) error {
	s, err := d.liveSession(ctx)
	if err != nil {
		return err
	}
	_, err = call(ctx, s, func() (any, error) {
		return nil, d.removeOwner(s, d.queue(g.Key), g.Owner)
	})
	return err
}

// release removes what a has on the server. It returns ErrNotHeld if there is nothing. a.turn must
// be taken.
func (d *driver) release(a *acquisition) error {
	if own := a.own.Load(); own != nil {
		_ = a.session.onGone(own, nil) // from here on the end of the node is no loss
	}
	switch {
	case a.session.userRefused():
		return context.Cause(a.session.ctx)
	case a.state == released || a.gone() != nil:
		return backend.ErrNotHeld
	case a.state == unknown || a.moving.Load():
		return d.removeOwner(a.session, a.queue, a.owner)
	case a.state == queued || a.state == held:
		return d.remove(a.session, a.queue, a.node)
	}
	return backend.ErrNotHeld
}

// Capabilities implements backend.Driver.
func (d *driver) Capabilities() backend.Capabilities { return d.caps }

// Close implements backend.Driver. It waits for the server for at most a second, so that the locks
// are free at once and not only when the session expires.
func (d *driver) Close() error {
	d.mu.Lock()
	d.closed = true
	s := d.session
	d.mu.Unlock()
	if s != nil {
		s.end(backend.ErrClosed)
	}
	d.running.Wait()
	return nil
}

// liveSession returns a session in which requests can be made: the present one, or another if it is
// over. It blocks until the session has a connection, until no server could be reached, or until
// ctx ends. Then it returns ErrUnavailable.
func (d *driver) liveSession(ctx context.Context) (*session, error) {
	s, err := d.ensureSession()
	if err != nil {
		return nil, err
	}
	return s, s.await(ctx)
}

// ensureSession returns the present session, or begins another if it is over. What the driver keeps
// of the former session is dropped: its nodes ended with it.
func (d *driver) ensureSession() (*session, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, backend.ErrClosed
	}
	if d.session != nil && d.session.ctx.Err() == nil {
		return d.session, nil
	}
	s, err := newSession(d.servers, d.settings, d.measuredAt)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	d.session = s
	clear(d.acquisitions)
	clear(d.tails)
	d.running.Go(s.run)
	return s, nil
}
