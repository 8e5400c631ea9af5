package redisbackend

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// linger is how long a topic without waiters keeps its subscription. So repeated waits for a
	// contended lock need one subscription.
	linger = 250 * time.Millisecond
	// pingInterval keeps the connection in use, so that a dead one is detected.
	pingInterval = 10 * time.Second
	// silence is how long a connection with pings may receive nothing. go-redis itself would read
	// from a dead peer until the kernel gives up.
	silence = 2*pingInterval + 5*time.Second
	// minBackoff and maxBackoff limit the delay between attempts to connect.
	minBackoff, maxBackoff = 10 * time.Millisecond, time.Second
)

// link is a connection for pub/sub. The home link has the client's own channel and, except in a
// cluster, all topics. It is replaced when it breaks. In a cluster there is another link to each
// master with topics, which ends when it breaks, or when it has no topics at a ping. A link that
// ends drops its topics: their waiters attempt again, and subscribe at the server that has the lock
// then.
//
// Two goroutines run as long as a link: receive reads, and manage writes subscriptions and pings.
// Neither ever waits for a waiter.
type link struct {
	hub    *hub
	server redis.UniversalClient // the client that it uses
	pubsub *redis.PubSub
	work   chan struct{}   // signals manage that there is a channel to subscribe, or an idle topic
	ctx    context.Context // ends with the link
	cancel context.CancelFunc

	// hub.mu must be held for the following fields.
	state linkState
	// backoff is the delay before the link ends after a failure. A failure in linkListening resets
	// it to minBackoff, which limits the rate at which a server can make the driver connect. The
	// successor begins with twice as much.
	backoff time.Duration
	// sharded is whether the topics are sharded channels. It is independent of the state, because
	// the server shows only by its answers whether it has them.
	sharded  bool
	channels []string // of new topics, which manage has not subscribed yet
}

// linkState is the state of a link:
//
//	state       acknowledged  failed     delay over  no topics
//	connecting  listening     broken     .           ended
//	listening   .             broken     .           ended
//	broken      .             .          ended       ended
//	ended       .             .          .           .
//
// "acknowledged" is the server's answer to any subscription; it shows that the connection works.
// "failed" is an error of the connection, and "delay over" comes after the backoff. "no topics" is
// a link other than the home link that has no topics at a ping.
type linkState int

const (
	linkConnecting linkState = iota // go-redis dials with the first subscription
	linkListening                   // messages arrive
	linkBroken                      // no message will arrive; topics may still be added
	linkEnded                       // not in the hub, without topics and soon without goroutines
)

// newLink returns a link that is connecting, and is not in the hub yet: see open.
func (h *hub) newLink(server redis.UniversalClient) *link {
	l := &link{hub: h, server: server, work: make(chan struct{}, 1), backoff: minBackoff}
	l.ctx, l.cancel = context.WithCancel(h.ctx)
	l.ctx = context.WithValue(l.ctx, lifeKey{}, l.ctx)
	l.pubsub = server.Subscribe(l.ctx)
	return l
}

// open adds a link to the hub and starts its goroutines. h.mu must be held.
func (h *hub) open(l *link) {
	if h.closed {
		l.cancel()
		return
	}
	h.links[l.server] = l
	h.running.Go(l.receive)
	h.running.Go(l.manage)
}

// linkTo returns the link to a server, and opens one if there is none. h.mu must be held.
func (h *hub) linkTo(server redis.UniversalClient) *link {
	l := h.links[server]
	if l == nil {
		l = h.newLink(server)
		l.sharded, l.backoff = true, maxBackoff
		h.open(l)
	}
	return l
}

// isHome reports whether l is the home link.
func (l *link) isHome() bool { return l.server == l.hub.lane.client }

// addChannel makes manage subscribe a channel. l.hub.mu must be held.
func (l *link) addChannel(channel string) {
	l.channels = append(l.channels, channel)
	l.signal()
}

// signal makes manage check for work. It does not block.
func (l *link) signal() {
	select {
	case l.work <- struct{}{}:
	default:
	}
}

// acknowledge is the event that the server has acknowledged a subscription. l.hub.mu must be held.
func (l *link) acknowledge() {
	if l.state == linkConnecting {
		l.state = linkListening
	}
}

// manage writes to the connection until the link ends. After each signal it drops idle topics when
// linger is over, as long as there are topics without waiters.
func (l *link) manage() {
	ping := time.NewTicker(l.hub.ping)
	defer ping.Stop()
	sweep := time.NewTimer(linger)
	defer sweep.Stop()
	sweeping := true
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-ping.C:
			if l.endWithoutTopics() {
				_ = l.pubsub.Close() // ends receive
				return
			}
			_ = l.pubsub.Ping(l.ctx) // after a failure receive gets an error, too
		case <-l.work:
			l.subscribe()
		case <-sweep.C:
			sweeping = false
			if !l.unsubscribe() {
				continue
			}
		}
		if !sweeping {
			sweep.Reset(linger)
			sweeping = true
		}
	}
}

// subscribe requests the channels of new topics. After a failure receive gets an error, too.
// Sharded channels go one by one, because one command may only have channels of one slot.
func (l *link) subscribe() {
	l.hub.mu.Lock()
	channels, sharded := l.channels, l.sharded
	l.channels = nil
	l.hub.mu.Unlock()
	switch {
	case len(channels) == 0:
	case sharded:
		for _, channel := range channels {
			_ = l.pubsub.SSubscribe(l.ctx, channel)
		}
	default:
		_ = l.pubsub.Subscribe(l.ctx, channels...)
	}
}

// unsubscribe ends the subscriptions of idle topics. It returns whether there are other topics
// without waiters, which become idle later.
func (l *link) unsubscribe() (more bool) {
	channels, sharded, more := l.dropIdleTopics()
	switch {
	case len(channels) == 0:
	case sharded:
		for _, channel := range channels {
			_ = l.pubsub.SUnsubscribe(l.ctx, channel)
		}
	default:
		_ = l.pubsub.Unsubscribe(l.ctx, channels...)
	}
	return more
}

// dropIdleTopics drops the topics of l that have had no waiter for linger, and returns their
// channels.
func (l *link) dropIdleTopics() (channels []string, sharded, more bool) {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	for lock, t := range l.hub.topics {
		switch {
		case t.link != l || t.waiting > 0:
		case time.Since(t.idleSince) < linger:
			more = true
		default:
			// A waiter may have the topic's channel in its position, and join later.
			l.hub.dropTopic(lock)
			channels = append(channels, lock+freeSuffix)
		}
	}
	return channels, l.sharded, more
}

// endWithoutTopics ends a link that has no topics, and returns whether it has done so. The home
// link never ends in this way.
func (l *link) endWithoutTopics() bool {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	if l.isHome() {
		return false
	}
	for _, t := range l.hub.topics {
		if t.link == l {
			return false
		}
	}
	l.end()
	return true
}

// receive reads from the connection until it fails or the link ends.
func (l *link) receive() {
	for {
		message, err := l.next(l.ctx, l.hub.silence)
		switch {
		case err == nil:
			l.hub.dispatch(l, message)
		case l.ctx.Err() != nil:
			return
		case l.tolerate(err): // the server refuses a channel, and the connection still works
		default:
			l.fail()
			return
		}
	}
}

// next waits for the next message, for timeout at most unless that is 0. go-redis panics at a
// message whose elements have unexpected types.
func (l *link) next(ctx context.Context, timeout time.Duration) (message any, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("%w: %v", errNotReply, reason)
		}
	}()
	return l.pubsub.ReceiveTimeout(ctx, timeout)
}

// tolerate handles an error of receive that is the server's answer to a subscription, and returns
// whether the link goes on.
//
// A server before Redis 7 has no SSUBSCRIBE: then the topics of the link become plain channels. The
// next link tries SSUBSCRIBE first, because the server may have been upgraded. Any other refusal of
// a sharded channel may mean that the lock is on another server, and ends the link.
func (l *link) tolerate(err error) bool {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	if !l.isHome() && isReply(err, "unknown command") {
		if l.sharded {
			l.sharded = false
			l.addAllChannels()
		}
		return true
	}
	return !l.sharded && isReply(err, "NOPERM")
}

// addAllChannels makes manage subscribe the channels of all topics again. l.hub.mu must be held.
func (l *link) addAllChannels() {
	for lock, t := range l.hub.topics {
		if t.link == l {
			l.addChannel(lock + freeSuffix)
		}
	}
}

// fail ends a link whose connection has failed, after a delay. The home link gets a successor in
// the same step, so that the hub always has one.
func (l *link) fail() {
	l.hub.lane.resetIdle()
	l.hub.lane.reload()
	select {
	case <-time.After(l.breakOff()):
	case <-l.ctx.Done():
	}
	l.hub.mu.Lock()
	l.end()
	if l.isHome() {
		l.hub.replace(l)
	}
	l.hub.mu.Unlock()
	_ = l.pubsub.Close()
}

// breakOff is the event that the connection has failed. It returns the delay before the link ends.
func (l *link) breakOff() time.Duration {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	switch l.state {
	case linkConnecting:
		l.state = linkBroken
	case linkListening:
		l.state, l.backoff = linkBroken, minBackoff
	}
	return l.backoff
}

// replace opens another home link instead of old. h.mu must be held.
func (h *hub) replace(old *link) {
	l := h.newLink(old.server)
	l.backoff = min(maxBackoff, 2*old.backoff)
	h.open(l)
	l.addChannel(clientPrefix + h.client)
}

// end removes a link from the hub, drops its topics and stops its goroutines. Before receive ends,
// the connection must be closed as well, which may take a while. l.hub.mu must be held.
func (l *link) end() {
	if l.state == linkEnded {
		return
	}
	l.state = linkEnded
	delete(l.hub.links, l.server)
	for lock, t := range l.hub.topics {
		if t.link == l {
			l.hub.dropTopic(lock)
		}
	}
	l.cancel()
}
