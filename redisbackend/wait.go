package redisbackend

import (
	"context"
	"errors"
	"maps"
	"slices"
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
	// minBackoff and maxBackoff bound the pause between attempts to connect again.
	minBackoff, maxBackoff = 10 * time.Millisecond, time.Second
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
// to an older attempt has been missed, and may be over; and whether replicas have it, only
// another Acquire tells.
func (d *driver) awaitGrant(ctx context.Context, req *backend.Request, p *place) (*backend.Grant, error) {
	select {
	case n := <-p.granted:
		if n.fence == 0 || n.attempt < p.attempt || d.opts.Wait > 0 {
			return nil, nil
		}
		return p.grant(req, n.fence), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// hub knows who waits and who holds, and tells them what the server says.
type hub struct {
	lane    *lane
	client  string // names this client to others: its channel is clientPrefix + client
	ping    time.Duration
	silence time.Duration
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu           sync.Mutex
	closed       bool
	attempts     int64                           // numbers all attempts of fair waiters; never goes back
	links        map[redis.UniversalClient]*link // by what they connect through; never without the home link
	topics       map[string]*topic               // by the lock's key
	acquisitions map[string]*acquisition         // by owner: held, queued or under way
}

// topic is the channel of one lock.
type topic struct {
	link       *link
	changed    chan struct{} // closed, and replaced, when those who wait shall look again
	subscribed bool          // the server has acknowledged, and the connection still stands
	waiting    int
	idleSince  time.Time
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

// start connects and awaits the acknowledgement for the client's own channel. So it is
// known from the beginning whether the server permits pub/sub, and no break can
// come before the holder listens. It reports whether it listens now.
func (h *hub) start(ctx context.Context) (bool, error) {
	home := h.newLink(h.lane.client)
	_, err := backend.Call(ctx, func(ctx context.Context) (any, error) {
		if err := home.pubsub.Subscribe(ctx, clientPrefix+h.client); err != nil {
			return nil, err
		}
		return home.pubsub.Receive(ctx)
	})
	if err != nil {
		h.cancel()
		err = errors.Join(h.lane.interpret(ctx, err), home.pubsub.Close())
		if replied(err, "") {
			return false, nil
		}
		return false, err
	}
	home.acknowledged = true
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open(home)
	return true, nil
}

func (h *hub) close() {
	h.mu.Lock()
	h.closed = true
	links := slices.Collect(maps.Values(h.links))
	h.mu.Unlock()
	h.cancel() // ends dialling
	for _, l := range links {
		_ = l.pubsub.Close() // ends receiving; fails only where it is closed already
	}
	h.running.Wait()
}

// admit registers an acquisition before its request is sent, so that no message about it can come
// too early. The place that it returns marks from where on news count. The hub numbers the
// attempts, not the acquisition: a refused acquisition is forgotten, and its next attempt must
// not get a number that an older message carries.
func (h *hub) admit(req *backend.Request, lock string) place {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.acquisitions[req.Owner]
	if a == nil || a.name != req.Key {
		a = newAcquisition(req)
		h.acquisitions[req.Owner] = a
	}
	p := place{acquisition: a, lock: lock}
	if a.granted != nil {
		h.attempts++
		p.attempt = h.attempts
	} else if t := h.topics[lock]; t != nil && t.subscribed {
		p.changed = t.changed
	}
	return p
}

// dismiss forgets an acquisition: messages about it concern nobody any more.
func (h *hub) dismiss(owner string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.acquisitions, owner)
}

// awaitRelease returns nil when p's lock is worth another look.
func (h *hub) awaitRelease(ctx context.Context, p *place) error {
	server, err := h.lane.node(ctx, p.lock)
	if err != nil { // not known now: the caller's timer tells when to look again
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

// join counts a waiter in, on the connection to the lock's server. The channel that it returns is
// closed with the next news since p's last look, at once where news may have been missed.
func (h *hub) join(p *place, server redis.UniversalClient) (*topic, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[p.lock]
	if t != nil && t.link.server != server { // the lock has moved
		h.drop(p.lock)
		t = nil
	}
	if t == nil {
		t = &topic{link: h.linkTo(server), changed: make(chan struct{})}
		h.topics[p.lock] = t
		t.link.want(p.lock + freeSuffix)
	}
	t.waiting++
	switch {
	case p.changed != nil:
		return t, p.changed
	case t.subscribed:
		missed := make(chan struct{})
		close(missed)
		return t, missed
	}
	return t, t.changed // the acknowledgement closes it
}

func (h *hub) leave(t *topic) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.waiting--; t.waiting == 0 {
		t.idleSince = time.Now()
		t.link.nudge()
	}
}

// drop sends those who wait for a lock to look again, and to another topic. It is called with mu held.
func (h *hub) drop(lock string) {
	close(h.topics[lock].changed)
	delete(h.topics, lock)
}

// news wakes those who wait for a topic.
func (t *topic) news() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// dispatch handles one message. It never blocks.
func (h *hub) dispatch(l *link, message any) {
	switch m := message.(type) {
	case *redis.Subscription:
		h.subscription(l, m)
	case *redis.Message:
		if lock, ok := strings.CutSuffix(m.Channel, freeSuffix); ok {
			h.released(lock)
			return
		}
		switch lines := strings.Split(m.Payload, "\n"); {
		case len(lines) == 4 && lines[0] == "granted":
			h.granted(lines[1], lines[2], lines[3])
		case len(lines) == 3 && lines[0] == "lost":
			h.lost(lines[1], lines[2])
		}
	}
}

// subscription: where it begins, the server listens for us from now on. What it said before is lost,
// so everybody concerned looks again. A sharded one ends by itself where the lock moves to
// another server.
func (h *hub) subscription(l *link, m *redis.Subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m.Channel == clientPrefix+h.client {
		l.acknowledged = true
		for _, a := range h.acquisitions {
			a.tell(notice{})
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
		l.acknowledged = true
		t.subscribed = true
		t.news()
	case "sunsubscribe":
		if t.subscribed { // else it acknowledges that an earlier topic was unsubscribed
			h.drop(lock)
		}
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
// noticed is void. A grant newer than the one that was broken stands.
func (h *hub) lost(owner, fence string) {
	f, err := parseFence(fence)
	if err != nil {
		return
	}
	h.mu.Lock()
	a := h.acquisitions[owner]
	if a != nil && a.fence.Load() > f {
		h.mu.Unlock()
		return
	}
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
