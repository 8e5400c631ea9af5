package redisbackend

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// pingInterval keeps the connection in use, so that a dead one is detected.
	pingInterval = 10 * time.Second
	// silence is how long a connection with pings may receive nothing. go-redis itself would read
	// from a dead peer until the kernel gives up.
	silence = 2*pingInterval + 5*time.Second
	// minBackoff and maxBackoff limit the delay between attempts to connect.
	minBackoff, maxBackoff = 10 * time.Millisecond, time.Second
)

// link is a connection for pub/sub, with the client's channel. When it breaks, another link
// replaces it. In a cluster it may lead to any node, because the nodes forward messages to each
// other. A node that has left the cluster answers pings, too. So there the link also requests
// echoes, which another node may send.
//
// Two goroutines run as long as a link: receive reads, and write subscribes and sends pings.
// Neither ever waits for a waiter.
type link struct {
	hub    *hub
	pubsub *redis.PubSub
	ctx    context.Context // ends with the link
	cancel context.CancelFunc
	echoed chan struct{} // of one element: an echo has arrived

	// hub.mu must be held for the following fields.
	state linkState
	// backoff is the delay before the link ends after a failure. A failure in linkListening resets
	// it to minBackoff, which limits the rate at which a server can make the driver connect. The
	// successor begins with twice as much.
	backoff time.Duration
}

// linkState is the state of a link:
//
//	state       acknowledged  failed  delay over
//	connecting  listening     broken  .
//	listening   .             broken  .
//	broken      .             .       ended
//	ended       .             .       .
//
// "acknowledged" is the server's answer to the subscription; it shows that the connection works.
// "failed" is an error of the connection, and "delay over" comes after the backoff.
type linkState int

const (
	linkConnecting linkState = iota // go-redis dials with the subscription
	linkListening                   // messages arrive
	linkBroken                      // no message will arrive
	linkEnded                       // replaced, and soon without goroutines
)

// newLink returns a link that is connecting, and is not in the hub yet: see open. Its context
// carries itself as the life of the connection that is dialed with it; see lifeKey.
func (h *hub) newLink() *link {
	l := &link{hub: h, backoff: minBackoff, echoed: make(chan struct{}, 1)}
	l.ctx, l.cancel = context.WithCancel(h.ctx)
	l.ctx = context.WithValue(l.ctx, lifeKey{}, l.ctx)
	l.pubsub = h.lane.client.Subscribe(l.ctx)
	return l
}

// subscribe requests the client's channel.
func (l *link) subscribe(ctx context.Context) error {
	return l.pubsub.Subscribe(ctx, clientPrefix+l.hub.client)
}

// open adds a link to the hub and starts its goroutines. h.mu must be held.
func (h *hub) open(l *link) {
	if h.closed {
		l.cancel()
		return
	}
	h.link = l
	h.running.Go(l.receive)
	h.running.Go(l.write)
}

// acknowledge is the event that the server has acknowledged the subscription. l.hub.mu must be
// held.
func (l *link) acknowledge() {
	if l.state == linkConnecting {
		l.state = linkListening
	}
}

// write subscribes, unless that is done, and sends pings until the link ends. After a failure
// receive gets an error, too.
func (l *link) write() {
	if l.isConnecting() {
		_ = l.subscribe(l.ctx)
	}
	ping := time.NewTicker(l.hub.ping)
	defer ping.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-ping.C:
			_ = l.pubsub.Ping(l.ctx)
			if l.isDeaf() {
				_ = l.pubsub.Close() // receive gets an error
			}
		}
	}
}

// isDeaf reports whether the cluster has sent an echo that the link does not receive. It blocks for
// two ping intervals at most. Without a cluster the pings are enough.
func (l *link) isDeaf() bool {
	if l.hub.lane.cluster == nil {
		return false
	}
	select {
	case <-l.echoed: // late, of an earlier request
	default:
	}
	if l.hub.requestEcho() != nil {
		return false
	}
	select {
	case <-l.echoed:
		return false
	case <-l.ctx.Done():
		return false
	case <-time.After(l.hub.ping):
		return true
	}
}

// requestEcho makes a node of the cluster send an echo to the client's channel. It blocks for a
// ping interval at most.
func (h *hub) requestEcho() error {
	ctx, cancel := context.WithTimeout(h.ctx, h.ping)
	defer cancel()
	args := []any{nil, nil, 1, lockKey(h.client), clientPrefix + h.client}
	_, err := h.lane.runSeparately(ctx, echoScript, args)
	return err
}

func (l *link) isConnecting() bool {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	return l.state == linkConnecting
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

// fail ends a link whose connection has failed, after a delay, and opens another one in the same
// step.
func (l *link) fail() {
	l.hub.lane.resetIdle()
	l.hub.lane.reload()
	select {
	case <-time.After(l.breakOff()):
	case <-l.ctx.Done():
	}
	l.hub.replace(l)
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

// replace ends a link, and opens another one instead. Waiters need no notice of it: the
// acknowledgement of the new subscription makes them attempt again.
func (h *hub) replace(old *link) {
	h.mu.Lock()
	defer h.mu.Unlock()
	old.state = linkEnded
	old.cancel()
	l := h.newLink()
	l.backoff = min(maxBackoff, 2*old.backoff)
	h.open(l)
}
