package zkbackend

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/kind"
)

// id names an acquisition.
type id struct{ key, owner string }

// state is what the server's answers have shown of the node of an acquisition. The table has the
// events, and a dot for those that cannot happen.
//
//	          create  silence  find    miss    grant  drop      end
//	absent    queued  unknown  .       .       .      .         released
//	unknown   .       .        queued  absent  .      .         released
//	queued    .       unknown  .       .       held   absent    released
//	held      .       .        .       .       held   released  released
//	released  .       .        .       .       .      .         released
//
// The events are:
//
//	create   a create was answered (markQueued)
//	silence  a create had no answer, or the removal by an attempt that steps back (markUnknown)
//	find     a search has found the node of that create (markQueued)
//	miss     a search has found no node (markAbsent)
//	grant    no other node is in front, and the session is proven (markHeld)
//	drop     an attempt has found the node deleted, or steps back (markAbsent, markReleased)
//	end      a release was answered, or an attempt without a sweep has left nothing (markReleased)
//
// A node can be gone in any state before an attempt finds that out: see gone. A ghost can exist in
// any state, because a create without an answer may be executed after the search: see sweepLater.
type state uint8

const (
	absent   state = iota // no node: before the create, or at the end of a failed attempt
	unknown               // a create or a removal had no answer, so there is one node or none
	queued                // a node in the queue
	held                  // a node that was the first of the queue; the lock was granted
	released              // it is over; the next attempt makes another acquisition
)

// acquisition is what the driver keeps of one (Key, Owner), in one session.
type acquisition struct {
	id
	session *session
	queue   string        // path of the queue
	turn    chan struct{} // full while a request of the acquisition is under way: one at a time

	// a.turn must be taken for these.
	kind    kind.Kind // only Downgrade changes it
	state   state
	node    string // path of the node, or of the last one if released; "": none is known
	created uint64 // number of the transaction that created node; 0: to be read from own
	alone   bool   // the queue was empty before node was created
	// isFirstUse means that the driver has not used the queue recently.
	isFirstUse bool
	swept      bool // sweepLater was called

	// removing means that a removal of a node had no answer. The server may still execute it. So a
	// node that a search has found is not granted.
	removing bool

	ahead *watch // on the only node in front of node; nil: several, or not known
	tail  string // a node that was in the queue before this one; "": none is known

	onLoss func(error) // to be called when node is gone; nil: never held

	// Written with a.turn taken, and read also without it. Once fence is not 0, own stays not nil.
	own    atomic.Pointer[watch] // on node
	fence  atomic.Uint64         // 0: never held
	moving atomic.Bool           // Downgrade replaces node, or had no answer: see settleMove
}

// markQueued is for a node that exists in the queue. a.turn must be taken.
func (a *acquisition) markQueued(node string) { a.state, a.node = queued, node }

// markUnknown is for a create or a removal without an answer. a.turn must be taken.
func (a *acquisition) markUnknown() { a.state = unknown }

// markAbsent is for an acquisition without a node, which was never held. What was learned of a
// former node is dropped. a.turn must be taken.
func (a *acquisition) markAbsent() {
	a.state = absent
	a.node, a.created, a.alone, a.ahead = "", 0, false, nil
	a.own.Store(nil)
}

// markHeld is for a node that is the first of the queue. It drops the watch on the former holder,
// which would stay in memory as long as the lock. a.turn must be taken.
func (a *acquisition) markHeld() {
	a.state = held
	a.ahead, a.tail = nil, ""
	a.fence.Store(a.created)
}

// markReleased is for an acquisition that is over. It keeps its watch and its fence for a renewal
// that runs at the same time. a.turn must be taken.
func (a *acquisition) markReleased() { a.state = released }

// dropNode is for a node that is gone for the given reason, and returns the error of the attempt.
// For a holder that is the loss; it keeps its watch, in which a renewal finds the reason. A waiter
// needs another node. a.turn must be taken.
func (a *acquisition) dropNode(gone error) error {
	if a.state == held {
		return gone
	}
	a.markAbsent()
	return errEntryDeleted
}

// wasHeld reports whether the session has granted a. It stays true after a release. Any goroutine
// may call it.
func (a *acquisition) wasHeld() bool { return a.fence.Load() != 0 }

// gone returns the reason if the node of a no longer exists, and nil otherwise. The end of a node
// that a Downgrade replaces is no loss. It sends no request. Any goroutine may call it.
func (a *acquisition) gone() error {
	if a.session.ctx.Err() != nil {
		return errExpired
	}
	for {
		w := a.own.Load()
		if w == nil {
			return nil
		}
		gone := a.session.gone(w)
		if gone == nil || a.moving.Load() {
			return nil
		}
		if a.own.Load() == w { // otherwise a Downgrade has ended in between
			return gone
		}
	}
}

// indexOf returns the index of the node with that path, or -1.
func (a *acquisition) indexOf(node string, entries []entry) int {
	return slices.IndexFunc(entries, func(e entry) bool { return a.queue+"/"+e.name == node })
}

// searchNode searches the queue for the node of a create without an answer. It syncs first: the
// library's CreateProtected lists without a sync, and can miss a node that is being created. a.turn
// must be taken.
func (a *acquisition) searchNode() error {
	entries, err := a.session.syncedEntries(a.queue)
	if err != nil {
		return err
	}
	a.markAbsent()
	for _, e := range entries {
		if e.owner == a.owner { // the last one, if former sessions have left some
			a.markQueued(a.queue + "/" + e.name)
		}
	}
	return nil
}

// ensureWatch watches the node of a if no watch is in force. A node that another session created is
// not the node of a, although it has the same owner: its session is over, but its nodes are not
// removed yet. a.turn must be taken.
func (a *acquisition) ensureWatch() error {
	if err := a.settleMove(); err != nil {
		return err
	}
	s, old := a.session, a.own.Load()
	if old != nil && !s.isStale(old) {
		err := s.awaitArmed(old)
		if errors.Is(err, zk.ErrNoNode) {
			return nil // old has fired, and has the reason
		}
		return err
	}
	w, err := s.watch(a.node)
	if err == nil && w.stat.EphemeralOwner != s.conn.SessionID() {
		err = zk.ErrNoNode
	}
	if errors.Is(err, zk.ErrNoNode) {
		w = deletedWatch()
	} else if err != nil {
		return err
	}
	if old != nil && s.gone(w) == nil {
		s.moveOnGone(old, w)
	}
	a.own.Store(w)
	return nil
}

// tryEnsureWatch is ensureWatch for a renewal of a held lock, which does not have the turn. It does
// not wait for a request that has the turn: that request renews the watch, or releases the lock.
func (a *acquisition) tryEnsureWatch() error {
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
		return a.ensureWatch()
	default:
	}
	if a.own.Load().hasFired() { // if it is a loss, renewal finds it
		return errUnwatched
	}
	return nil
}

// inTurn runs fn, which sends requests of a, after all earlier requests of a are answered. So
// nothing of an acquisition is executed after its release. It returns when fn has returned, or when
// ctx ends.
func inTurn[T any](ctx context.Context, a *acquisition, fn func() (T, error)) (T, error) {
	return call(ctx, a.session, func() (T, error) {
		select {
		case a.turn <- struct{}{}:
			defer func() { <-a.turn }()
			if err := ctx.Err(); err != nil { // select may choose either case
				return *new(T), err
			}
			return fn()
		case <-ctx.Done():
			return *new(T), ctx.Err()
		}
	})
}

// admit returns the acquisition with that name in the session s. It registers a new one, before any
// request of it is sent. An acquisition of a session that is already over is not registered.
func (d *driver) admit(s *session, name id, k kind.Kind) *acquisition {
	d.mu.Lock()
	defer d.mu.Unlock()
	if a := d.acquisitions[name]; a != nil && a.session == s {
		return a
	}
	queue := d.queue(name.key)
	a := &acquisition{
		id: name, session: s, queue: queue, turn: make(chan struct{}, 1), kind: k,
		isFirstUse: !d.used.note(queue, time.Now()),
	}
	if k == kind.Writer {
		a.tail = d.tails[queue]
	}
	if d.session == s {
		d.acquisitions[name] = a
	}
	return a
}

// use notes a use of the queue.
func (d *driver) use(queue string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.used.note(queue, time.Now())
}

// maxUsed limits how many names a generation of uses has.
const maxUsed = 8192

// uses remembers when names were used last, for at least the last maxUsed names.
type uses struct{ young, old map[string]time.Time }

// note notes a use of name, and reports whether the last one was a short time ago.
func (u *uses) note(name string, now time.Time) (isRecent bool) {
	last, isKnown := u.young[name]
	if !isKnown {
		last = u.old[name]
		if len(u.young) >= maxUsed || u.young == nil {
			u.young, u.old = make(map[string]time.Time), u.young
		}
	}
	u.young[name] = now
	return now.Sub(last) < recently
}

// find returns the acquisition of g, or nil if the present session has none.
func (d *driver) find(g *backend.Grant) *acquisition {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.acquisitions[id{g.Key, g.Owner}]
}

// forget removes a from the registry, unless another acquisition has its place there.
func (d *driver) forget(a *acquisition) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.tails, a.queue)
	if d.acquisitions[a.id] == a {
		delete(d.acquisitions, a.id)
	}
}
