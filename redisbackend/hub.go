package redisbackend

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
)

// clientPrefix stands before the name of a client in the name of its channel. The server publishes
// there what concerns that client alone. A channel is common to all databases of a server.
const clientPrefix = "dlock:client:"

// hub receives the server's messages and passes them to waiters and holders. All of them share its
// connection. Neither a waiter nor a held lock costs a goroutine. mu must not be held while a
// request is sent, or while code of the core runs.
type hub struct {
	lane    *lane
	client  string // the name of this driver; its channel is clientPrefix + client
	ping    time.Duration
	silence time.Duration
	ctx     context.Context // ends with close
	cancel  context.CancelFunc
	running sync.WaitGroup // goroutines of the link

	mu       sync.Mutex
	closed   bool
	attempts int64 // the number of the last attempt of any waiter; never decreases
	link     *link // the connection; nil if the server refuses pub/sub
	// acquisitions are all acquisitions that are held, queued or under way, by owner. A message to
	// this client alone is about one owner.
	acquisitions map[string]*acquisition
}

func newHub(l *lane, client string) *hub {
	h := &hub{
		lane: l, client: client, ping: pingInterval, silence: silence,
		acquisitions: make(map[string]*acquisition),
	}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h
}

// start opens the link and waits until the server has acknowledged the client's channel.
// So the driver detects at opening whether the server permits pub/sub, and receives every break of
// its locks. start returns false if the server refuses pub/sub. A refusal that may end, as while
// the server loads its data, is an error: the driver would poll for the rest of its life. start
// blocks for some round trips, or until ctx ends.
func (h *hub) start(ctx context.Context) (bool, error) {
	l := h.newLink()
	_, err := backend.Call(ctx, func(ctx context.Context) (any, error) {
		if err := l.subscribe(ctx); err != nil {
			return nil, err
		}
		return l.next(ctx, 0)
	})
	if err != nil {
		h.cancel()
		atMost(closeTimeout, func() { _ = l.pubsub.Close() })
		err = h.lane.interpret(ctx, err)
		if isReply(err, "NOPERM") || isReply(err, "") && !isRefusal(err) {
			return false, nil
		}
		return false, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	l.acknowledge()
	h.open(l)
	return true, nil
}

// close closes the link and waits until its goroutines have ended, but for closeTimeout at most.
func (h *hub) close() {
	h.mu.Lock()
	h.closed = true
	l := h.link
	h.mu.Unlock()
	h.cancel() // ends dialing
	atMost(closeTimeout, func() {
		if l != nil {
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

// dispatch handles one message, which l has received. It blocks only if Request.Lost does. It
// ignores a message that it cannot read: a waiter makes another attempt anyway, and a holder
// detects its loss at the next renewal.
func (h *hub) dispatch(l *link, message any) {
	switch m := message.(type) {
	case *redis.Subscription:
		h.handleSubscription(l)
	case *redis.Message:
		switch lines := strings.Split(m.Payload, "\n"); {
		case m.Payload == "echo":
			signal(l.echoed)
		case len(lines) == 4 && lines[0] == "granted":
			h.handleGrant(lines[1], lines[2], lines[3])
		case len(lines) == 3 && lines[0] == "lost":
			h.handleLoss(lines[1], lines[2])
		}
	}
}

// handleSubscription handles the beginning of a subscription. From now on the server sends messages
// to this client. Earlier messages are lost, so all waiters attempt again. That includes waiters
// that have missed nothing: only the server's answer shows that.
func (h *hub) handleSubscription(l *link) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l.acknowledge()
	for _, a := range h.acquisitions {
		a.notify(notice{})
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
