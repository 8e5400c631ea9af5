package redisbackend

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
)

const (
	// linger is how long a channel is listened to after the last wait on it. Who waits for a
	// contended lock again and again need not subscribe each time.
	linger = 250 * time.Millisecond
	// pingInterval keeps the connection in use, so that a dead one is noticed.
	pingInterval = 10 * time.Second
	// silence is how long a connection that is pinged may bring nothing. go-redis
	// itself would listen to a dead peer until the kernel gives up.
	silence = 2*pingInterval + 5*time.Second
	// maxBackoff bounds the pause between attempts to connect again.
	maxBackoff = time.Second
)

// Names of channels. They carry no number of a database, although pub/sub knows no
// databases: a message of another one's lock of the same name costs its listeners one
// look, while two clients of different opinion on the number would miss each other's.
const (
	freeSuffix   = ":free"
	clientPrefix = "dlock:client:"
)

// Wait implements backend.Waiter.
func (d *driver) Wait(ctx context.Context, req *backend.Request, b *backend.Busy) (*backend.Grant, error) {
	p, ok := b.State.(*place)
	switch {
	case !ok || !d.caps.Notify:
		<-ctx.Done()
		return nil, ctx.Err()
	case b.Queued:
		return d.awaitGrant(ctx, req, p)
	}
	return nil, d.hub.awaitRelease(ctx, p)
}

// notice is the server's message that it has granted an entry, and which attempt had
// last refreshed that; the zero notice: look again.
type notice struct {
	fence   uint64
	attempt int64
}

// awaitGrant waits for the message that the server has made req the holder. It did so after
// it had answered the last Acquire, and for what the entry had left from that one on. A grant
// to an older attempt has been missed, and may be over.
func (d *driver) awaitGrant(ctx context.Context, req *backend.Request, p *place) (*backend.Grant, error) {
	select {
	case n := <-p.granted:
		if n.fence == 0 || n.attempt < p.attempt {
			return nil, nil
		}
		return p.grant(req, p.sent, n.fence), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// hub is the one pub/sub connection of a driver. Two goroutines live as long as it:
// one receives, one writes subscriptions and pings. Neither ever waits for a waiter.
type hub struct {
	rdb     redis.UniversalClient
	client  string // names this client to others: its channel is clientPrefix + client
	dropped func() // called when the connection is lost
	ping    time.Duration
	silence time.Duration
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
	kick    chan struct{} // there is something to subscribe, or to unsubscribe later

	mu           sync.Mutex
	pubsub       *redis.PubSub
	topics       map[string]*topic       // by the lock's key
	wanted       []string                // channels of new topics, to be subscribed
	acquisitions map[string]*acquisition // by owner: held, queued or under way
}

// topic is the channel of one lock.
type topic struct {
	changed    chan struct{} // closed, and replaced, when those who wait shall look again
	subscribed bool          // the server has acknowledged, and the connection still stands
	waiting    int
	idleSince  time.Time
}

func newHub(rdb redis.UniversalClient, client string, dropped func()) *hub {
	h := &hub{
		rdb: rdb, client: client, dropped: dropped, ping: pingInterval, silence: silence,
		kick:         make(chan struct{}, 1),
		topics:       make(map[string]*topic),
		acquisitions: make(map[string]*acquisition),
	}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h
}

// start connects and awaits the acknowledgement for the client's own channel. So it is
// known from the beginning whether the server permits pub/sub, and no break can
// come before the holder listens. It reports whether it listens now.
func (h *hub) start(ctx context.Context) (bool, error) {
	pubsub := h.rdb.Subscribe(h.ctx)
	_, err := backend.Call(ctx, func(ctx context.Context) (any, error) {
		if err := pubsub.Subscribe(ctx, clientPrefix+h.client); err != nil {
			return nil, err
		}
		return pubsub.Receive(ctx)
	})
	if err != nil {
		h.cancel()
		err = errors.Join(interpretError(ctx, err), pubsub.Close())
		if replied(err, "") {
			return false, nil
		}
		return false, err
	}
	h.pubsub = pubsub
	h.running.Go(h.receive)
	h.running.Go(h.manage)
	return true, nil
}

func (h *hub) close() {
	h.cancel()    // ends dialling
	for range 2 { // the second time for a connection that was just being replaced
		if pubsub := h.connection(); pubsub != nil {
			_ = pubsub.Close() // ends receiving; fails only where it is closed already
		}
		h.running.Wait()
	}
}

// admit registers an acquisition before its request is sent, so that no message
// about it can come too early. The place that it returns knows from where on news count.
func (h *hub) admit(req *backend.Request) place {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.acquisitions[req.Owner]
	if a == nil || a.name != req.Key {
		a = newAcquisition(req)
		h.acquisitions[req.Owner] = a
	}
	p := place{acquisition: a}
	if a.granted != nil {
		a.attempts++
		p.attempt = a.attempts
	} else if t := h.topics[a.keys.lock]; t != nil && t.subscribed {
		p.changed = t.changed
	}
	return p
}

// dismiss forgets an acquisition: messages about it concern nobody any more.
func (h *hub) dismiss(a *acquisition) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.acquisitions, a.owner)
}

// awaitRelease returns nil when p's lock is worth another look.
func (h *hub) awaitRelease(ctx context.Context, p *place) error {
	changed := h.join(p)
	defer h.leave(p.keys.lock)
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// join counts a waiter in. The channel that it returns is closed with the next
// news since p's last look, at once where news may have been missed.
func (h *hub) join(p *place) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[p.keys.lock]
	if t == nil {
		t = &topic{changed: make(chan struct{})}
		h.topics[p.keys.lock] = t
		h.wanted = append(h.wanted, p.keys.lock+freeSuffix)
		h.nudge()
	}
	t.waiting++
	switch {
	case p.changed != nil:
		return p.changed
	case t.subscribed:
		missed := make(chan struct{})
		close(missed)
		return missed
	}
	return t.changed // the acknowledgement closes it
}

func (h *hub) leave(lock string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[lock]
	if t.waiting--; t.waiting == 0 {
		t.idleSince = time.Now()
		h.nudge()
	}
}

func (h *hub) nudge() {
	select {
	case h.kick <- struct{}{}:
	default:
	}
}

// news wakes those who wait for a topic.
func (t *topic) news() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// manage writes to the connection.
func (h *hub) manage() {
	ping := time.NewTicker(h.ping)
	defer ping.Stop()
	sweep := time.NewTimer(linger)
	defer sweep.Stop()
	sweeping := true
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-ping.C:
			_ = h.connection().Ping(h.ctx) // receive learns of the failure
		case <-h.kick:
			h.subscribe()
		case <-sweep.C:
			sweeping = false
			if !h.unsubscribe() {
				continue
			}
		}
		if !sweeping {
			sweep.Reset(linger)
			sweeping = true
		}
	}
}

func (h *hub) connection() *redis.PubSub {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pubsub
}

// subscribe asks for the topics that are new. Where that fails, go-redis asks again
// when it has connected again.
func (h *hub) subscribe() {
	h.mu.Lock()
	channels := h.wanted
	h.wanted = nil
	pubsub := h.pubsub
	h.mu.Unlock()
	if len(channels) > 0 {
		_ = pubsub.Subscribe(h.ctx, channels...)
	}
}

// unsubscribe drops the topics that nobody has waited for since a while, and reports
// whether there are more that nobody waits for.
func (h *hub) unsubscribe() (more bool) {
	h.mu.Lock()
	var channels []string
	for lock, t := range h.topics {
		switch {
		case t.waiting > 0:
		case time.Since(t.idleSince) < linger:
			more = true
		default:
			close(t.changed) // for who has seen it and is yet to come
			delete(h.topics, lock)
			channels = append(channels, lock+freeSuffix)
		}
	}
	pubsub := h.pubsub
	h.mu.Unlock()
	if len(channels) > 0 {
		_ = pubsub.Unsubscribe(h.ctx, channels...)
	}
	return more
}

// receive reads from the connection. go-redis connects again after an error, and
// asks for all channels again: their acknowledgements come in as messages.
func (h *hub) receive() {
	pause := time.Duration(0)
	for {
		message, err := h.connection().ReceiveTimeout(h.ctx, h.silence)
		if h.ctx.Err() != nil {
			return
		}
		if err == nil {
			pause = 0
			h.dispatch(message)
			continue
		}
		if replied(err, "") { // a channel was refused, the connection stands
			continue
		}
		h.disconnected()
		if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
			h.reconnect()
		}
		select {
		case <-time.After(pause):
			pause = min(maxBackoff, 2*pause+10*time.Millisecond)
		case <-h.ctx.Done():
			return
		}
	}
}

func (h *hub) disconnected() {
	h.dropped()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.topics {
		t.subscribed = false
	}
}

// reconnect replaces a connection that has gone silent.
func (h *hub) reconnect() {
	h.mu.Lock()
	silent := h.pubsub
	h.pubsub = h.rdb.Subscribe(h.ctx)
	channels := []string{clientPrefix + h.client}
	h.wanted = nil
	for lock := range h.topics {
		channels = append(channels, lock+freeSuffix)
	}
	pubsub := h.pubsub
	h.mu.Unlock()
	_ = silent.Close()
	_ = pubsub.Subscribe(h.ctx, channels...)
}

// dispatch handles one message. It never blocks.
func (h *hub) dispatch(message any) {
	switch m := message.(type) {
	case *redis.Subscription:
		if m.Kind == "subscribe" {
			h.acknowledged(m.Channel)
		}
	case *redis.Message:
		if lock, ok := strings.CutSuffix(m.Channel, freeSuffix); ok {
			h.released(lock)
			return
		}
		switch lines := strings.Split(m.Payload, "\n"); {
		case len(lines) == 4 && lines[0] == "granted":
			h.granted(lines[1], lines[2], lines[3])
		case len(lines) == 2 && lines[0] == "lost":
			h.lost(lines[1])
		}
	}
}

// acknowledged: the server listens for us from now on. What it said before is lost, so
// everybody concerned looks again.
func (h *hub) acknowledged(channel string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if channel == clientPrefix+h.client {
		for _, a := range h.acquisitions {
			a.tell(notice{})
		}
		return
	}
	if t := h.topics[strings.TrimSuffix(channel, freeSuffix)]; t != nil {
		t.subscribed = true
		t.news()
	}
}

func (h *hub) released(lock string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.topics[lock]; t != nil {
		t.news()
	}
}

func (h *hub) granted(owner, fence, attempt string) {
	f, err1 := parseFence(fence)
	n, err2 := strconv.ParseInt(attempt, 10, 64)
	if err1 != nil || err2 != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if a := h.acquisitions[owner]; a != nil {
		a.tell(notice{fence: f, attempt: n})
	}
}

// lost tells the holder that its lock was broken. A grant that it has not yet
// noticed is void.
func (h *hub) lost(owner string) {
	h.mu.Lock()
	a := h.acquisitions[owner]
	delete(h.acquisitions, owner)
	if a != nil {
		a.tell(notice{})
	}
	h.mu.Unlock()
	if a != nil && a.lost != nil {
		a.lost(backend.ErrLost)
	}
}

// tell leaves a fair waiter the newest there is to know; only the hub calls it, under its lock.
func (a *acquisition) tell(n notice) {
	if a.granted == nil {
		return
	}
	select {
	case <-a.granted:
	default:
	}
	a.granted <- n
}
