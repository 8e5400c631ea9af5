package etcdbackend

import (
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/backend/kind"
)

// state is the state of an acquisition. Each event is one function, and no other code changes a
// state. A dot means that the state stays:
//
//	event         requested   queued      granted     releasing
//	admit         .           .           .           requested
//	setKey        .           .           requested   .          (only for another key)
//	joinQueue     queued      queued      .           .          (requested if the copy has ended)
//	leaveQueue    .           requested   .           .
//	grant         granted     granted     granted     .
//	startRelease  releasing   releasing   releasing   .
//	markRemoved   . (wakes)   . (wakes)   forgotten   .
//	endLease      . (wakes)   . (wakes)   forgotten   .
//
// An acquisition is created in the state requested, and an Export forgets it. After it was
// forgotten, an attempt that is under way may still have its pointer. The state then has no
// meaning, because no message finds it.
type state uint8

const (
	// requested: an attempt is under way, or the core has to make another one.
	requested state = iota
	// queued: the acquisition waits in a copy of the queue, which wakes it when it is the first.
	queued
	// granted: its key was the first, so the driver has returned a grant.
	granted
	// releasing: the core has begun to release it. Losses are not reported any more.
	releasing
)

// acquisition is what the driver keeps of one (Key, Owner), from before its first request until the
// answer to its release, or until its loss. d.mu guards the fields from state on; the others are
// constant.
type acquisition struct {
	keys              // its key has the name of another owner if the grant was adopted
	name, owner, meta string
	kind              kind.Kind     // of its requests
	lost              func(error)   // Request.Lost; may be nil
	news              chan struct{} // wakes Wait; keeps one wake-up for a later Wait

	state state
	queue *queue // in which it waits; nil unless it is queued
	lease *lease // of the newest attempt, which reads it without d.mu: only admit writes it

	// created is the create revision of its key, and 0 if that is unknown. removed is the revision
	// at which another client removed a key of it, or 0. Answers and messages of watches arrive in
	// any order: a key that was created after removed still exists.
	created, removed int64

	// mayHaveGhost means that an attempt had no answer. The server may execute that attempt at any
	// time, even after a grant, so this is independent of the state.
	mayHaveGhost bool

	// mayBeRemoved means that an attempt has sent a removal of its key that had no answer. The
	// server may execute the removal at any time, so no key of this owner is granted any more.
	mayBeRemoved bool
}

// admit registers the acquisition of req before its request is sent. So no message about it comes
// too early, and its key is not taken for a ghost. l is the lease of this attempt: a repeated
// attempt has another lease if the earlier one is gone. creator is the owner that creates its key:
// the owner of req, except in an Adopt.
func (d *driver) admit(req *backend.Request, l *lease, creator string) *acquisition {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.acquisitions[req.Owner]
	if a == nil || a.name != req.Key {
		a = &acquisition{
			keys: newKeys(d.root, req.Key, creator),
			name: req.Key, owner: req.Owner, meta: req.Meta, kind: kind.Of(req),
			lost: req.Lost, news: make(chan struct{}, 1),
		}
		d.acquisitions[req.Owner] = a
		if creator != req.Owner {
			d.adopted[creator]++
		}
	}
	a.lease = l
	if a.state == releasing {
		a.state = requested
	}
	return a
}

// forget removes an acquisition from the registry. From then on its key counts as a ghost. It sends
// nothing: if the key still exists, a sweep of its lease removes it. If a later attempt has
// registered the owner again, that acquisition stays. d.mu must be held.
func (d *driver) forget(a *acquisition) {
	d.leaveQueue(a)
	if d.acquisitions[a.owner] != a {
		return
	}
	delete(d.acquisitions, a.owner)
	if creator := a.creator(); creator != a.owner {
		if d.adopted[creator]--; d.adopted[creator] == 0 {
			delete(d.adopted, creator)
		}
	}
}

// creator returns the owner that created the key of a.
func (a *acquisition) creator() string { return a.key[len(a.prefix):] }

// find returns the acquisition of an owner, or nil.
func (d *driver) find(owner string) *acquisition {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.acquisitions[owner]
}

// isKnown reports whether the owner has an acquisition.
func (d *driver) isKnown(owner string) bool { return d.find(owner) != nil }

// forgetLost forgets the acquisition of an owner whose key is gone. The core does not release it,
// unless a release has begun already: finishRelease then forgets it. The caller returns the loss,
// so Request.Lost is not called.
func (d *driver) forgetLost(owner string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if a := d.acquisitions[owner]; a != nil && a.state != releasing {
		d.forget(a)
	}
}

// setKey records the create revision of the key of a. If a granted acquisition has another key, the
// granted key was removed and a late attempt created the other one. That key is a queue entry, and
// proves no grant before it is the first one. d.mu must be held.
func (a *acquisition) setKey(created int64) {
	if a.state == granted && a.created != created {
		a.state = requested
	}
	a.created = created
}

// grant makes a the holder. The term of the grant is the newest proof of its lease, which may have
// been sent before the attempt. d.mu must be held.
func (d *driver) grant(a *acquisition, req *backend.Request) *backend.Grant {
	d.leaveQueue(a)
	if a.state != releasing {
		a.state = granted
	}
	return &backend.Grant{
		Request: *req,
		Term:    a.lease.term(),
		Fence:   uint64(a.created), // the core refuses a fence that is not below backend.MaxFence
	}
}

// startRelease begins the release of an owner. From now on the removal of its key is no loss. It
// returns the acquisition, or nil.
func (d *driver) startRelease(owner string) *acquisition {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.acquisitions[owner]
	if a != nil {
		d.leaveQueue(a)
		a.state = releasing
	}
	return a
}

// finishRelease forgets the acquisition of an owner after the answer to its release. If another
// attempt of the owner has begun meanwhile, the acquisition stays.
func (d *driver) finishRelease(owner string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if a := d.acquisitions[owner]; a != nil && a.state == releasing {
		d.forget(a)
	}
}

// markRemoved records that another client removed a key of the owner at a revision. A waiter is
// woken, so that it queues again. A holder is forgotten; markRemoved then returns its Request.Lost,
// which the caller passes to lose after unlocking d.mu. An older message than the present key has
// no effect. d.mu must be held.
func (d *driver) markRemoved(owner string, revision int64) (lost func(error)) {
	a := d.acquisitions[owner]
	if a == nil || a.state == releasing || revision <= a.created {
		return nil
	}
	a.removed = max(a.removed, revision) // the inbox and the watch report in any order
	if a.state != granted {
		a.signal()
		return nil
	}
	d.forget(a)
	return a.lost
}

// isLost reports whether the key of a with a create revision is gone, with its lease or by itself,
// or may be removed by an earlier request. d.mu must be held.
func (a *acquisition) isLost(created int64) bool {
	return a.lease.state == gone || a.removed > created || a.mayBeRemoved
}

// expectRemoval records that an attempt may remove the key of an acquisition later.
func (d *driver) expectRemoval(a *acquisition) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a.mayBeRemoved = true
}

// signal wakes the Wait of a, or lets its next Wait return at once. It does not block.
func (a *acquisition) signal() {
	select {
	case a.news <- struct{}{}:
	default:
	}
}

// lose reports a loss through Request.Lost to each of the holders. d.mu must not be held, because
// Lost calls the core.
func lose(holders []func(error), reason error) {
	for _, lost := range holders {
		if lost != nil {
			lost(reason)
		}
	}
}
