package redisbackend

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
)

// The names of channels. They do not contain the number of a database, and channels are common to
// all databases. A lock of the same name in another database costs its listeners one attempt per
// message. Two clients that disagreed about the number would miss each other's messages.
const (
	freeSuffix   = ":free"         // after the key of a lock: it was released
	clientPrefix = "dlock:client:" // before the name of a client: messages for that client alone
)

// hub receives the server's messages and passes them to waiters and holders. All of them share its
// connections. Neither a waiter nor a held lock costs a goroutine.
type hub struct {
	lane    *lane
	client  string // the name of this driver; its channel is clientPrefix + client
	ping    time.Duration
	silence time.Duration
	ctx     context.Context // ends with close
	cancel  context.CancelFunc
	running sync.WaitGroup // goroutines of the links

	mu       sync.Mutex
	closed   bool
	attempts int64 // the number of the last attempt of any fair waiter; never decreases

	// links are the connections, by the client that they use. The home link is always among them.
	links map[redis.UniversalClient]*link
	// topics are the channels of locks with waiters that are not fair, by the lock's key. A message
	// on a channel is about a lock, and is for all waiters of that lock.
	topics map[string]*topic
	// acquisitions are all acquisitions that are held, queued or under way, by owner. A message to
	// this client alone is about one owner.
	acquisitions map[string]*acquisition
}

func newHub(l *lane, client string) *hub {
	h := &hub{
		lane: l, client: client, ping: pingInterval, silence: silence,
		links:        make(map[redis.UniversalClient]*link),
		topics:       make(map[string]*topic),
		acquisitions: make(map[string]*acquisition),
	}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h
}

// start opens the home link and waits until the server has acknowledged the client's own channel.
// So the driver detects at opening whether the server permits pub/sub, and receives every break of
// its locks. start returns false if the server refuses pub/sub. A refusal that may end, as while
// the server loads its data, is an error: the driver would poll for the rest of its life. start
// blocks for some round trips, or until ctx ends.
func (h *hub) start(ctx context.Context) (bool, error) {
	home := h.newLink(h.lane.client)
	_, err := backend.Call(ctx, func(ctx context.Context) (any, error) {
		if err := home.pubsub.Subscribe(ctx, clientPrefix+h.client); err != nil {
			return nil, err
		}
		return home.next(ctx, 0)
	})
	if err != nil {
		h.cancel()
		atMost(closeTimeout, func() { _ = home.pubsub.Close() })
		err = h.lane.interpret(ctx, err)
		if isReply(err, "NOPERM") || isReply(err, "") && !isRefusal(err) {
			return false, nil
		}
		return false, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	home.acknowledge()
	h.open(home)
	return true, nil
}

// close closes all links and waits until their goroutines have ended, but for closeTimeout at most.
func (h *hub) close() {
	h.mu.Lock()
	h.closed = true
	links := slices.Collect(maps.Values(h.links))
	h.mu.Unlock()
	h.cancel() // ends dialing
	atMost(closeTimeout, func() {
		for _, l := range links {
			_ = l.pubsub.Close() // ends receive; fails only if it is closed already
		}
		h.running.Wait()
	})
}

// closeTimeout limits the wait for a link of a lent client. While the client connects, it may wait
// for a silent server until its own ReadTimeout, and PubSub.Close waits for that. The driver's own
// clients do not need the limit: see lifeKey.
const closeTimeout = time.Second

// atMost returns when f has returned, or after a time limit. Then f continues in the background.
func atMost(limit time.Duration, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(limit):
	}
}

// dispatch handles one message, which l has received. It blocks only if Request.Lost does.
func (h *hub) dispatch(l *link, message any) {
	switch m := message.(type) {
	case *redis.Subscription:
		h.handleSubscription(l, m)
	case *redis.Message:
		if lock, ok := strings.CutSuffix(m.Channel, freeSuffix); ok {
			h.handleRelease(lock)
			return
		}
		switch lines := strings.Split(m.Payload, "\n"); {
		case len(lines) == 4 && lines[0] == "granted":
			h.handleGrant(lines[1], lines[2], lines[3])
		case len(lines) == 3 && lines[0] == "lost":
			h.handleLoss(lines[1], lines[2])
		}
	}
}

// handleSubscription handles the beginning or the end of a subscription. From its beginning on the
// server sends messages to this client. Earlier messages are lost, so the affected waiters attempt
// again. The server ends a sharded subscription by itself when the lock moves to another server.
func (h *hub) handleSubscription(l *link, m *redis.Subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m.Channel == clientPrefix+h.client {
		l.acknowledge()
		for _, a := range h.acquisitions {
			a.notify(notice{})
		}
		return
	}
	lock := strings.TrimSuffix(m.Channel, freeSuffix)
	t := h.topics[lock]
	if t == nil || t.link != l {
		return
	}
	switch m.Kind {
	case "subscribe", "ssubscribe":
		l.acknowledge()
		t.acknowledge()
	case "sunsubscribe":
		// In topicRequested, the message acknowledges the unsubscription of an earlier topic.
		if t.state == topicSubscribed {
			h.dropTopic(lock)
		}
	}
}

// handleRelease handles the message that a lock was released and has no queue.
func (h *hub) handleRelease(lock string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.topics[lock]; t != nil {
		t.wake()
	}
}

// handleGrant handles the message that the server has granted the queue entry of owner.
func (h *hub) handleGrant(owner, fence, attempt string) {
	f, err1 := parseFence(fence)
	n, err2 := strconv.ParseInt(attempt, 10, 64)
	if err1 != nil || err2 != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if a := h.acquisitions[owner]; a != nil {
		a.notify(notice{fence: f, attempt: n})
	}
}

// handleLoss handles the message that the grant of owner with a fence was broken.
func (h *hub) handleLoss(owner, fence string) {
	if f, err := parseFence(fence); err == nil {
		h.lose(owner, f)
	}
}
