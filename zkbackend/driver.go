package zkbackend

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/key"
)

const (
	// minTTL leaves room for three renewals and for the core's margin of 10 ms and 1 %.
	minTTL = 100 * time.Millisecond
	// late is for what was written to a connection just before it was lost: the server may read
	// it a little after the session has gone on over the next one.
	late = time.Second
	// maxKey is never exceeded by a valid name, of which each byte takes three at most:
	// names are never hashed here, and can be listed by their prefix.
	maxKey = 3 * key.MaxName
	// queueNode is the node of a lock in which its queue stands. A lock's own node holds its name,
	// and the queue is made only after the name was checked: so a node that is not dlock's has no
	// queue, and an attempt fails before it writes anything.
	queueNode = "/~queue"
	// maxQueues is how often in a row an attempt makes the queue, which the server may remove as
	// an empty one before the attempt's node is in it.
	maxQueues = 4
)

var (
	_ backend.Driver       = (*driver)(nil)
	_ backend.Waiter       = (*driver)(nil)
	_ backend.Pipeliner    = (*driver)(nil)
	_ backend.BatchRenewer = (*driver)(nil)
	_ backend.Inspector    = (*driver)(nil)
	_ backend.Breaker      = (*driver)(nil)
)

type driver struct {
	servers  []string
	settings *settings
	caps     backend.Capabilities
	running  sync.WaitGroup // sessions

	measuredAt string      // the server that answered first; "" once the driver is open
	plain      atomic.Bool // the server has no containers

	mu      sync.Mutex
	session *session // nil: none yet
	entries map[id]*entry
	tails   map[string]string // of locks that are held here: the last that stood in the queue at its last look
	closed  bool
}

// id names an acquisition.
type id struct{ key, owner string }

// entry is one acquisition, in one session.
type entry struct {
	id
	session *session
	parent  string        // path of the queue
	turn    chan struct{} // full while a request of this acquisition is under way: one at a time

	// Guarded by turn.
	node      string // path of its node; "" if none is known
	created   uint64 // number of the transaction that made the node; 0: to be read from it
	uncertain bool   // there may be one that is not known
	alone     bool   // nobody stood before it when it was made
	ahead     *watch // of the one before it, if that was the first of all
	tail      string // node of one that stood in the queue before it came; "" if none is known
	left      bool   // released

	// Written with turn taken, read without it. Where fence is not 0, own is not nil, and stays so.
	own   atomic.Pointer[watch] // of its node
	fence atomic.Uint64         // 0: not held
}

func newDriver(servers []string, opts *settings) *driver {
	return &driver{
		servers: servers, settings: opts, entries: make(map[id]*entry), tails: make(map[string]string),
		caps: backend.Capabilities{
			Modes: backend.Exclusive, Fair: backend.FairAlways, Fencing: backend.FenceDurable, Session: true,
			Inspect: true, List: true, Break: true, Notify: true,
			MinTTL: minTTL, Late: late,
		},
	}
}

// Capabilities implements backend.Driver.
func (d *driver) Capabilities() backend.Capabilities { return d.caps }

// Acquire implements backend.Driver.
func (d *driver) Acquire(ctx context.Context, req *backend.Request) (*backend.Grant, error) {
	if req.Mode != backend.Exclusive {
		return nil, errMode
	}
	s, err := d.live(ctx)
	if err != nil {
		return nil, err
	}
	e := d.enter(s, id{req.Key, req.Owner})
	return inTurn(ctx, e, func() (*backend.Grant, error) {
		g, err := d.attempt(e, req)
		lost := errors.Is(err, backend.ErrLost)
		if err == nil || !lost && (e.node != "" || e.uncertain) {
			return g, err
		}
		e.left = true // there is nothing on the server
		d.leave(e)
		if lost || errors.Is(err, backend.ErrNotAcquired) || errors.Is(err, backend.ErrConflict) {
			return nil, err
		}
		return nil, fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	})
}

// Renew implements backend.Driver. It asks the server in any case.
func (d *driver) Renew(ctx context.Context, g *backend.Grant) (backend.Term, error) {
	answer := d.renew(ctx, []*backend.Grant{g}, 0)[0]
	return answer.Term, answer.Err
}

// RenewAll implements backend.BatchRenewer: one request for all, or none if there was one lately.
func (d *driver) RenewAll(ctx context.Context, gs []*backend.Grant) []backend.Renewal {
	if len(gs) == 0 {
		return nil
	}
	age := gs[0].TTL / 6
	for _, g := range gs {
		age = min(age, g.TTL/6)
	}
	return d.renew(ctx, gs, age)
}

// renew proves the session. That the nodes still are there is known without asking: the server would have told of a
// deletion before it answered, or tells of it as soon as it has connected again.
func (d *driver) renew(ctx context.Context, gs []*backend.Grant, age time.Duration) []backend.Renewal {
	answers := make([]backend.Renewal, len(gs))
	entries := make([]*entry, len(gs))
	var s *session
	for i, g := range gs {
		if entries[i] = d.entry(g); entries[i] != nil {
			s = entries[i].session // all are of the present one
		}
	}
	var err error
	if s != nil {
		_, err = ask(ctx, s, func() (any, error) {
			if err := s.prove(age); err != nil {
				return nil, err
			}
			return nil, rewatch(s, entries)
		})
	}
	for i, e := range entries {
		switch {
		case e == nil || e.fence.Load() == 0:
			answers[i].Err = fmt.Errorf("%w: this session does not hold it", backend.ErrLost)
		case e.gone() != nil:
			answers[i].Err = e.gone()
			d.leave(e)
		case err != nil:
			answers[i].Err = interpretError(err)
		default:
			answers[i].Term = s.term(gs[i].TTL)
		}
	}
	return answers
}

// rewatch renews the watches of held nodes that were used up by a write to the node.
func rewatch(s *session, entries []*entry) error {
	for _, e := range entries {
		if e == nil || e.session != s || e.fence.Load() == 0 {
			continue
		}
		if err := e.rewatchBeside(); err != nil {
			return err
		}
	}
	return nil
}

// Release implements backend.Driver.
func (d *driver) Release(ctx context.Context, g *backend.Grant) error {
	return d.ReleaseThen(ctx, g, func() {})
}

// ReleaseThen implements backend.Pipeliner.
func (d *driver) ReleaseThen(ctx context.Context, g *backend.Grant, sent func()) error {
	e := d.entry(g)
	if e == nil || e.session.userRefused() {
		s, err := d.live(ctx)
		if err != nil {
			return err
		}
		_, err = ask(ctx, s, func() (any, error) { return nil, d.withdraw(s, d.queue(g.Key), g.Owner, "") })
		return err
	}
	_, err := inTurn(ctx, e, func() (any, error) {
		if e.node != "" {
			defer e.session.whenDeleted(e.node, sent)()
		}
		err := d.end(e)
		if err == nil || errors.Is(err, backend.ErrNotHeld) {
			e.left = true
			d.leave(e)
		}
		return nil, interpretError(err)
	})
	return err
}

// Close implements backend.Driver. It waits for the server for a second, so that the locks are free
// at once and not when the session's time is over.
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

// live returns the present session when requests may be made in it, and begins another if that
// is over.
func (d *driver) live(ctx context.Context) (*session, error) {
	s, err := d.present()
	if err != nil {
		return nil, err
	}
	return s, s.await(ctx)
}

func (d *driver) present() (*session, error) {
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
	clear(d.entries) // what they had ended with their session
	clear(d.tails)
	d.running.Go(s.run)
	return s, nil
}

// attempt makes e the holder, or takes its place in the queue. e.turn is taken.
func (d *driver) attempt(e *entry, req *backend.Request) (*backend.Grant, error) {
	if e.left {
		return nil, errReleased
	}
	if err := d.stand(e, req); err != nil {
		return nil, err
	}
	if e.fence.Load() == 0 && !e.first() {
		if err := d.look(e, req); err != nil {
			return nil, err
		}
	}
	return d.grant(e, req)
}

// stand sees to e's node, watched.
func (d *driver) stand(e *entry, req *backend.Request) (err error) {
	if e.node == "" && e.uncertain {
		if err = e.find(); err != nil {
			return err
		}
		if e.node == "" {
			d.sweepLater(e)
		}
	}
	if e.node == "" {
		err = d.enqueue(e, req)
	} else {
		err = e.rewatch(e.node)
	}
	if err != nil {
		return err
	}
	if gone := e.gone(); gone != nil {
		return e.vanish(gone)
	}
	return nil
}

// vanish is for a node that is gone. It is a loss for a holder, whose watch stays where a renewal
// finds it; a waiter takes another place.
func (e *entry) vanish(gone error) error {
	if e.fence.Load() != 0 {
		return gone
	}
	e.node, e.created, e.ahead = "", 0, nil
	e.own.Store(nil)
	return errVanished
}

// find looks for the node of a request that was not answered. The library's own order, first the list
// and no synchronisation, can miss a node that is being made.
func (e *entry) find() error {
	s := e.session
	if _, err := s.conn.Sync(e.parent); err != nil {
		return err
	}
	members, err := s.members(e.parent)
	if err != nil {
		return err
	}
	e.uncertain = false
	for _, m := range members {
		if m.owner == e.owner { // the last one, if there are others of former sessions
			e.node = e.parent + "/" + m.name
		}
	}
	return nil
}

// enqueue makes e's node. Who does not want to wait looks first.
func (d *driver) enqueue(e *entry, req *backend.Request) error {
	begun := e.session.begin()
	if !req.Queue {
		if err := d.peek(e); err != nil {
			return err
		}
	}
	err := d.create(e, req.Meta, begun)
	for made := 0; errors.Is(err, zk.ErrNoNode) && made < maxQueues; made++ {
		if err = d.makeQueue(e.session, e.key); err == nil {
			err = d.create(e, req.Meta, begun)
		}
	}
	return err
}

// peek is *Busy if there is somebody. The server that was asked may lag behind, so it is asked
// again before that is said.
func (d *driver) peek(e *entry) error {
	s := e.session
	members, err := s.members(e.parent)
	if err == nil && len(members) > 0 {
		if _, err = s.conn.Sync(e.parent); err != nil {
			return err
		}
		members, err = s.members(e.parent)
	}
	if err == nil && len(members) > 0 {
		return &backend.Busy{Holder: members[0].owner}
	}
	return err
}

// create makes a node behind all that are there. Writing to the queue in the same step makes the
// server report how many there are: the only one needs no further request.
func (d *driver) create(e *entry, meta string, begun moment) error {
	results, err := e.session.conn.Multi(
		&zk.CreateRequest{
			Path: e.parent + "/" + e.owner + mark, Data: []byte(meta), Acl: d.settings.acl, Flags: zk.FlagEphemeralSequential,
		},
		&zk.SetDataRequest{Path: e.parent, Version: -1})
	e.uncertain = err != nil && !answered(err)
	if err != nil {
		return err
	}
	if len(results) != 2 || results[1].Stat == nil {
		e.uncertain = true
		return errors.New("unexpected answer")
	}
	stat := results[1].Stat
	e.node, e.alone, e.created = results[0].String, stat.NumChildren == 1, uint64(stat.Mzxid)
	e.own.Store(e.session.watchBehind(e.node))
	e.session.proof.add(begun)
	return nil
}

// makeQueue makes the queue of a lock, and first the node of the lock, which holds its name.
func (d *driver) makeQueue(s *session, name string) error {
	err := d.makeLock(s, name)
	if err == nil {
		err = d.makeContainer(s, d.queue(name), nil)
	}
	if errors.Is(err, zk.ErrNodeExists) {
		return nil
	}
	return err
}

// makeLock makes the node of a lock. It returns ErrConflict if another node is in its place.
func (d *driver) makeLock(s *session, name string) error {
	path := d.path(name)
	err := d.makeContainer(s, path, []byte(name))
	if errors.Is(err, zk.ErrNoNode) {
		if err := d.makeRoot(s); err != nil {
			return err
		}
		err = d.makeContainer(s, path, []byte(name))
	}
	if !errors.Is(err, zk.ErrNodeExists) {
		return err
	}
	return s.checkLock(path, name)
}

// checkLock returns ErrConflict if the node is not that lock's.
func (s *session) checkLock(path, name string) error {
	data, _, err := s.conn.Get(path)
	if err == nil && string(data) != name {
		return errForeign
	}
	return err
}

// makeContainer makes a node that the server removes when it is empty, as far as the server can.
func (d *driver) makeContainer(s *session, path string, data []byte) error {
	if !d.plain.Load() {
		_, err := s.conn.CreateContainer(path, data, zk.FlagContainer, d.settings.acl)
		if !isUnimplemented(err) {
			return err
		}
		d.plain.Store(true)
	}
	_, err := s.conn.Create(path, data, zk.FlagPersistent, d.settings.acl)
	return err
}

// rewatch watches e's node if nothing does yet, or any more. A node of a former session with the same owner is
// not e's: that session is over, although its nodes are not gone yet.
func (e *entry) rewatch(node string) error {
	s, old := e.session, e.own.Load()
	if old != nil && !s.stale(old) {
		if err := s.armed(old); !errors.Is(err, zk.ErrNoNode) { // or else old tells that it is gone
			return err
		}
		return nil
	}
	w, err := s.watch(node)
	if err == nil && w.stat.EphemeralOwner != s.conn.SessionID() {
		err = zk.ErrNoNode
	}
	if errors.Is(err, zk.ErrNoNode) {
		w = &watch{gone: errDeleted, armed: closed, fired: closed}
	} else if err != nil {
		return err
	}
	if old != nil && w.gone == nil {
		s.inherit(w, old)
	}
	e.own.Store(w)
	return nil
}

// rewatchBeside is rewatch for a held entry whose turn may be taken. It does not wait for a request
// that has the turn: that one renews the watch, or releases the lock.
func (e *entry) rewatchBeside() error {
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
		return e.rewatch(e.own.Load().path)
	default:
	}
	if e.session.stale(e.own.Load()) {
		return errUnwatched
	}
	return nil
}

// gone tells why e's node is gone, if it is.
func (e *entry) gone() error {
	if e.session.ctx.Err() != nil {
		return errExpired
	}
	if w := e.own.Load(); w != nil {
		return e.session.gone(w)
	}
	return nil
}

// look is *Busy if somebody stands before e.
func (d *driver) look(e *entry, req *backend.Request) error {
	if req.Queue {
		if w := e.follow(); w != nil {
			return e.busyBehind("", w)
		}
	}
	members, err := e.session.members(e.parent)
	if err != nil {
		return err
	}
	place := -1
	for i, m := range members {
		if e.parent+"/"+m.name == e.node {
			place = i
		}
	}
	switch {
	case place < 0:
		return errVanished // as the watch is about to tell
	case place == 0:
		d.remember(e.parent, members)
		return nil
	case !req.Queue:
		return d.stepBack(e, members[0].owner)
	}
	return e.waitBehind(members[:place])
}

// stepBack leaves nothing of an attempt that did not succeed.
func (d *driver) stepBack(e *entry, holder string) error {
	if err := d.end(e); err != nil && !errors.Is(err, backend.ErrNotHeld) {
		return err
	}
	e.node, e.created = "", 0
	return &backend.Busy{Holder: holder}
}

// grant makes e the holder, or tells again that it is.
func (d *driver) grant(e *entry, req *backend.Request) (*backend.Grant, error) {
	s, own := e.session, e.own.Load()
	if err := s.prove(req.TTL / 6); err != nil {
		return nil, err
	}
	if gone := s.guard(own, d.lose(e, req.Lost)); gone != nil {
		return nil, e.vanish(gone)
	}
	if e.created == 0 {
		e.created = uint64(own.stat.Czxid)
	}
	e.fence.Store(e.created)
	return &backend.Grant{Request: *req, Term: s.term(req.TTL), Fence: e.fence.Load()}, nil
}

// lose tells who holds e of its loss, after which nobody releases it.
func (d *driver) lose(e *entry, tell func(error)) func(error) {
	return func(err error) {
		d.leave(e)
		if tell != nil {
			tell(err)
		}
	}
}

// end deletes what e has. e.turn is taken.
func (d *driver) end(e *entry) error {
	own := e.own.Load()
	if own != nil {
		_ = e.session.guard(own, nil) // what comes now is no loss
	}
	switch {
	case e.session.userRefused():
		return context.Cause(e.session.ctx)
	case e.left || e.gone() != nil:
		return backend.ErrNotHeld
	case e.node != "":
		return d.remove(e.session, e.parent, e.node)
	case e.uncertain:
		return d.withdraw(e.session, e.parent, e.owner, "")
	}
	return backend.ErrNotHeld
}

// withdraw deletes what an owner has, on whichever connection it was made, but for the node except.
func (d *driver) withdraw(s *session, parent, owner, except string) error {
	if _, err := s.conn.Sync(parent); err != nil {
		return interpretError(err)
	}
	members, err := s.members(parent)
	if err != nil {
		return interpretError(err)
	}
	result := backend.ErrNotHeld
	for _, m := range members {
		if m.owner != owner || parent+"/"+m.name == except {
			continue
		}
		switch err := d.remove(s, parent, parent+"/"+m.name); {
		case err == nil:
			result = nil
		case !errors.Is(err, backend.ErrNotHeld):
			return interpretError(err)
		}
	}
	return result
}

// sweepLater removes what the server makes of a request that was not found, and that it executes
// nevertheless: a node that no release would remove, and behind which e itself might stand.
func (d *driver) sweepLater(e *entry) {
	s := e.session
	s.inBackground(func() {
		for {
			select {
			case <-time.After(late):
			case <-s.ctx.Done():
				return
			}
			if d.sweep(e) == nil {
				return
			}
		}
	})
}

// sweep removes the nodes of e's owner, but for the one that e has.
func (d *driver) sweep(e *entry) error {
	s := e.session
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	case <-s.ctx.Done():
		return nil
	}
	mine := e.node
	if e.left {
		mine = ""
	}
	if err := d.withdraw(s, e.parent, e.owner, mine); !errors.Is(err, backend.ErrNotHeld) {
		return err
	}
	return nil
}

// remove deletes a node. The successor, which watches it, is woken by the server.
func (d *driver) remove(s *session, parent, node string) error {
	err := s.conn.Delete(node, -1)
	if errors.Is(err, zk.ErrNoNode) {
		return backend.ErrNotHeld
	}
	if err == nil && d.plain.Load() { // in one step, or the lock's node may be another's by then; refused while they have nodes
		_, _ = s.conn.Multi(
			&zk.DeleteRequest{Path: parent, Version: -1},
			&zk.DeleteRequest{Path: strings.TrimSuffix(parent, queueNode), Version: -1})
	}
	return err
}

// enter returns the entry of an acquisition, and makes it if it is new to the session.
func (d *driver) enter(s *session, name id) *entry {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.entries[name]
	if e == nil || e.session != s {
		parent := d.queue(name.key)
		e = &entry{id: name, session: s, parent: parent, turn: make(chan struct{}, 1), tail: d.tails[parent]}
		if d.session == s {
			d.entries[name] = e
		}
	}
	return e
}

// entry returns the entry of g, or nil.
func (d *driver) entry(g *backend.Grant) *entry {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.entries[id{g.Key, g.Owner}]
}

// remember keeps the last of those in the queue for who comes next in this process.
func (d *driver) remember(parent string, members []member) {
	if len(members) == 1 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tails[parent] = parent + "/" + members[len(members)-1].name
}

// leave ends e.
func (d *driver) leave(e *entry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.tails, e.parent)
	if d.entries[e.id] == e {
		delete(d.entries, e.id)
	}
}

// path returns the path of the node of a lock.
func (d *driver) path(name string) string { return d.settings.root + "/" + key.Encode(name, maxKey) }

// queue returns the path of the queue of a lock.
func (d *driver) queue(name string) string { return d.path(name) + queueNode }

// inTurn runs fn, which asks the server, after all that e has asked before: so nothing of an
// acquisition is executed after its release.
func inTurn[T any](ctx context.Context, e *entry, fn func() (T, error)) (T, error) {
	return ask(ctx, e.session, func() (T, error) {
		select {
		case e.turn <- struct{}{}:
			defer func() { <-e.turn }()
			return fn()
		case <-ctx.Done():
			return *new(T), ctx.Err()
		}
	})
}
