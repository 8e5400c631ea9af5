package redisbackend

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
)

// Wait implements backend.Waiter. A fair waiter waits for the message that the server has granted
// its queue entry. Other waiters wait for a release of the lock, and then compete for it. Without
// pub/sub only ctx ends the wait.
func (d *driver) Wait(
	ctx context.Context, req *backend.Request, b *backend.Busy,
) (*backend.Grant, error) {
	p, ok := b.State.(*position)
	switch {
	case !ok || !d.caps.Notify:
		<-ctx.Done()
		return nil, ctx.Err()
	case b.Queued:
		return d.awaitGrant(ctx, req, p)
	}
	return nil, d.hub.awaitRelease(ctx, p)
}

// awaitGrant waits for the message that the server has made req the holder. The server did so after
// it had answered the last Acquire, and for the remaining time of the entry that this Acquire left.
//
// Two kinds of grants need another Acquire. A grant to an older attempt was missed at first, and
// its term may have ended. With Options.Wait, only an Acquire shows whether replicas have the
// grant.
func (d *driver) awaitGrant(
	ctx context.Context, req *backend.Request, p *position,
) (*backend.Grant, error) {
	select {
	case n := <-p.notices:
		if n.fence == 0 || n.attempt < p.attempt || d.opts.Wait > 0 {
			return nil, nil
		}
		return p.grant(req, n.fence), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// awaitRelease returns nil when another Acquire of p's lock may succeed.
func (h *hub) awaitRelease(ctx context.Context, p *position) error {
	server, err := h.lane.node(ctx, p.lock)
	if err != nil { // the node is unknown at present; the core's timer ends the wait
		<-ctx.Done()
		return ctx.Err()
	}
	t, changed := h.join(p, server)
	defer h.leave(t)
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// topic is the channel of one lock, with its waiters that are not fair. The server publishes each
// release on it. The hub's mu must be held for all fields.
type topic struct {
	link    *link
	state   topicState
	changed chan struct{} // closed when the waiters must make another attempt, and replaced
	// waiting is the number of waiters, and idleSince is when the last one left. Both are
	// independent of the state: a topic without waiters lingers, so that the next waiter need not
	// subscribe.
	waiting   int
	idleSince time.Time
}

// topicState is the state of a topic:
//
//	state       acknowledged        moved, broken or idle
//	requested   subscribed, wakes   dropped, wakes
//	subscribed  subscribed, wakes   dropped, wakes
//	dropped     .                   .
//
// "acknowledged" is the server's answer to the subscription. "moved" means that the lock is on
// another server, "broken" that the connection has failed, and "idle" that no waiter has come for a
// while. "wakes" means that the present waiters make another attempt, because they may have missed
// a message.
type topicState int

const (
	topicRequested  topicState = iota // the server does not send messages yet
	topicSubscribed                   // each release from now on closes changed
	topicDropped                      // not in the hub; the next waiter makes another topic
)

// join adds a waiter to the topic of p's lock, on the connection to the lock's server. The returned
// channel is closed by the first message after p's Acquire, and at once if a message may have been
// missed. The caller must call leave.
func (h *hub) join(p *position, server redis.UniversalClient) (*topic, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[p.lock]
	if t != nil && t.link.server != server { // the lock has moved
		h.dropTopic(p.lock)
		t = nil
	}
	if t == nil {
		t = &topic{link: h.linkTo(server), changed: make(chan struct{})}
		h.topics[p.lock] = t
		t.link.addChannel(p.lock + freeSuffix)
	}
	t.waiting++
	switch {
	case p.changed != nil:
		return t, p.changed
	case t.state == topicSubscribed: // since p's Acquire was sent
		missed := make(chan struct{})
		close(missed)
		return t, missed
	}
	return t, t.changed // the acknowledgement closes it
}

// leave removes a waiter from its topic.
func (h *hub) leave(t *topic) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.waiting--; t.waiting == 0 {
		t.idleSince = time.Now()
		t.link.signal()
	}
}

// acknowledge is the event that the server sends messages of t from now on. Earlier messages are
// lost. The hub's mu must be held.
func (t *topic) acknowledge() {
	t.state = topicSubscribed
	t.wake()
}

// wake makes the waiters of t attempt again. The hub's mu must be held.
func (t *topic) wake() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// dropTopic removes the topic of a lock. Its waiters make another attempt, and join another topic
// if they must wait again. h.mu must be held.
func (h *hub) dropTopic(lock string) {
	t := h.topics[lock]
	t.state = topicDropped
	close(t.changed)
	delete(h.topics, lock)
}
