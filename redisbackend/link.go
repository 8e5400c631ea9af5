package redisbackend

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// link is a connection for pub/sub. The home link carries the client's own channel and, but in a cluster,
// all topics; it is replaced when it breaks. In a cluster there is one more to each master that
// has topics; it ends when it breaks, or has had none for a while. A link takes its topics with it: whoever
// waits looks again, and subscribes where the lock is by then.
//
// Two goroutines live as long as a link: one receives, one writes subscriptions and
// pings. Neither ever waits for a waiter.
type link struct {
	hub    *hub
	server redis.UniversalClient // what it connects through
	pubsub *redis.PubSub
	kick   chan struct{} // there is something to subscribe, or to unsubscribe later
	ctx    context.Context
	cancel context.CancelFunc

	pause time.Duration // after a failure before anything was acknowledged

	// Guarded by the hub.
	sharded      bool     // its channels are of shards, as far as the server has them
	wanted       []string // channels of new topics, to be subscribed
	acknowledged bool     // any channel: it works
}

// lifeKey finds, in the context of a dial, the context with which the connection ends: go-redis keeps a
// lock while it prepares a connection for pub/sub, and so cannot close it.
type lifeKey struct{}

func (h *hub) newLink(server redis.UniversalClient) *link {
	l := &link{hub: h, server: server, kick: make(chan struct{}, 1), pause: minBackoff}
	l.ctx, l.cancel = context.WithCancel(h.ctx)
	l.ctx = context.WithValue(l.ctx, lifeKey{}, l.ctx)
	l.pubsub = server.Subscribe(l.ctx)
	return l
}

// open starts a link. It is called with mu held.
func (h *hub) open(l *link) {
	if h.closed {
		l.cancel()
		return
	}
	h.links[l.server] = l
	h.running.Go(l.receive)
	h.running.Go(l.manage)
}

// linkTo returns the link to a server. It is called with mu held.
func (h *hub) linkTo(server redis.UniversalClient) *link {
	l := h.links[server]
	if l == nil {
		l = h.newLink(server)
		l.sharded, l.pause = true, maxBackoff
		h.open(l)
	}
	return l
}

// home reports whether l is the home link.
func (l *link) home() bool { return l.server == l.hub.lane.client }

// want subscribes a channel. It is called with mu held.
func (l *link) want(channel string) {
	l.wanted = append(l.wanted, channel)
	l.nudge()
}

func (l *link) nudge() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// manage writes to the connection.
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
			if l.idle() {
				_ = l.pubsub.Close() // ends receive
				return
			}
			_ = l.pubsub.Ping(l.ctx) // receive learns of the failure
		case <-l.kick:
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

// subscribe asks for the topics that are new. Where that fails, receive learns of it too. Of
// sharded channels those of one slot alone could go together.
func (l *link) subscribe() {
	l.hub.mu.Lock()
	channels, sharded := l.wanted, l.sharded
	l.wanted = nil
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

// unsubscribe drops the topics that nobody has waited for since a while, and reports
// whether there are more that nobody waits for.
func (l *link) unsubscribe() (more bool) {
	channels, sharded, more := l.sweepTopics()
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

func (l *link) sweepTopics() (channels []string, sharded, more bool) {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	for lock, t := range l.hub.topics {
		switch {
		case t.link != l || t.waiting > 0:
		case time.Since(t.idleSince) < linger:
			more = true
		default:
			l.hub.drop(lock) // for who has seen it and is yet to come
			channels = append(channels, lock+freeSuffix)
		}
	}
	return channels, l.sharded, more
}

// idle ends a link without topics, and reports that it has.
func (l *link) idle() bool {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	if l.home() {
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

// receive reads from the connection until it breaks.
func (l *link) receive() {
	for {
		message, err := l.pubsub.ReceiveTimeout(l.ctx, l.hub.silence)
		switch {
		case err == nil:
			l.hub.dispatch(l, message)
		case l.ctx.Err() != nil:
			return
		case l.refused(err): // a channel; the connection stands
		default:
			l.broken()
			return
		}
	}
}

// refused reports whether an error is the server's answer to a subscription, and the connection
// stands. A server before Redis 7 does not have SSUBSCRIBE: then its topics become plain ones. The
// next connection tries SSUBSCRIBE first, as the server may have been upgraded. Any other refusal of
// a sharded channel may mean that the lock is elsewhere, and ends the link.
func (l *link) refused(err error) bool {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	if !l.home() && replied(err, "unknown command") {
		if l.sharded {
			l.sharded = false
			l.wantAll()
		}
		return true
	}
	return !l.sharded && replied(err, "NOPERM")
}

// wantAll subscribes the channels of all topics again. The hub's mu must be held.
func (l *link) wantAll() {
	for lock, t := range l.hub.topics {
		if t.link == l {
			l.want(lock + freeSuffix)
		}
	}
}

// broken ends a link whose connection has failed, after a pause if it has never worked.
func (l *link) broken() {
	l.hub.lane.forget()
	l.hub.lane.reload()
	if pause := l.failed(); pause > 0 {
		select {
		case <-time.After(pause):
		case <-l.ctx.Done():
		}
	}
	l.hub.mu.Lock()
	l.end()
	if l.home() {
		l.hub.replace(l)
	}
	l.hub.mu.Unlock()
	_ = l.pubsub.Close()
}

// failed returns how long to pause.
func (l *link) failed() time.Duration {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	if l.acknowledged {
		return 0
	}
	return l.pause
}

// replace opens a new home link. It is called with mu held.
func (h *hub) replace(old *link) {
	l := h.newLink(old.server)
	if !old.acknowledged {
		l.pause = min(maxBackoff, 2*old.pause)
	}
	h.open(l)
	l.want(clientPrefix + h.client)
}

// end drops the topics of a link and stops its goroutines; receive also needs its connection
// closed, which may take a while. It is called with mu held.
func (l *link) end() {
	delete(l.hub.links, l.server)
	for lock, t := range l.hub.topics {
		if t.link == l {
			l.hub.drop(lock)
		}
	}
	l.cancel()
}
