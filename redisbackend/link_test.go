package redisbackend

import (
	"context"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestMalformedMessage checks that a message with wrong elements does not end the process. It fails
// the opening, and later it ends only the connection.
func TestMalformedMessage(t *testing.T) {
	t.Parallel()
	const malformed = "*3\r\n:1\r\n:2\r\n:3\r\n"
	var bad atomic.Value // the command that the server answers with a malformed message
	bad.Store("subscribe")
	fake := newFakeServer(t, func(command string) string {
		if command == bad.Load() {
			return malformed
		}
		return ""
	})
	start := func() (*hub, error) {
		h := newHub(connection{}.lane(fake.client(t), Options{}), "me")
		t.Cleanup(h.close)
		h.ping = time.Millisecond
		_, err := h.start(t.Context())
		return h, err
	}
	_, err := start()
	raw.WantIs(t, "start", err, errNotReply)
	bad.Store("ping")
	if _, err := start(); err != nil {
		t.Fatal(err)
	}
	const subscribe = "subscribe " + clientPrefix + "me"
	for range 3 { // two openings, and the connection that replaces the second one
		fake.next(t, subscribe)
	}
}

// TestNodeWithoutClusterIsLeft checks that a refusal of a node that has left the cluster makes the
// driver load the masters again. Otherwise a third of the names would be unavailable for a minute.
func TestNodeWithoutClusterIsLeft(t *testing.T) {
	t.Parallel()
	fake, c := newFakeNode(t, "-CLUSTERDOWN Hash slot not served\r\n")
	l := connection{}.lane(c, Options{})
	r := (&driver{keys: newKeys}).newRequest("name", "owner").with()
	_, err := l.run(t.Context(), releaseScript, r)
	raw.WantIs(t, "a request", err, backend.ErrUnavailable)
	for range 2 { // before the request, and after it
		fake.next(t, "cluster slots")
	}
}

// newFakeNode starts the only node of a cluster, and returns a client of it. It answers all scripts
// with reply.
func newFakeNode(t *testing.T, reply string) (*fakeServer, *redis.ClusterClient) {
	t.Helper()
	var addr atomic.Value
	fake := newFakeServer(t, func(command string) string {
		switch command {
		case "cluster":
			return clusterSlots(t, addr.Load().(string))
		case "evalsha":
			return reply
		}
		return ""
	})
	addr.Store(fake.listener.Addr().String())
	c := newCluster(optionsFor(fake.listener.Addr().String()))
	t.Cleanup(func() { _ = c.Close() })
	return fake, c
}

// TestDeafLinkIsReplaced checks that a link is replaced if the cluster sends a message that it does
// not receive. Its node answers pings.
func TestDeafLinkIsReplaced(t *testing.T) {
	t.Parallel()
	fake, c := newFakeNode(t, ":1\r\n")
	h := newHub(connection{}.lane(c, Options{}), "me")
	t.Cleanup(h.close)
	h.ping = time.Millisecond
	if _, err := h.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the opening, and the replacement
		fake.next(t, "subscribe "+clientPrefix+"me")
	}
}

// TestLinkLeavesANodeWithoutCluster checks that the driver listens to another node if its node has
// left the cluster. That node answers pings, but gets no messages of the other nodes.
func TestLinkLeavesANodeWithoutCluster(t *testing.T) {
	t.Parallel()
	g := testenv.Alone(t, testenv.RedisCluster)
	g.Await(t)
	h := newHub(openURL(t, g.URL).main, raw.NewOwner())
	t.Cleanup(h.close)
	h.ping = time.Second
	if _, err := h.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	var nodes []*redis.Client
	for _, s := range g.Nodes {
		nodes = append(nodes, admin(t, s))
	}
	listens := func(c *redis.Client) bool {
		channels := do(t, c, "pubsub", "channels", clientPrefix+h.client)
		return len(channels.([]any)) > 0
	}
	left := slices.IndexFunc(nodes, listens)
	rest := slices.Delete(slices.Clone(nodes), left, left+1)
	giveSlotsAway(t, nodes[left], rest)
	do(t, nodes[left], "cluster", "reset", "hard")
	for end := time.Now().Add(failoverPatience); !slices.ContainsFunc(rest, listens); {
		if pause(t, 10*time.Millisecond); time.Now().After(end) {
			t.Fatal("the driver still listens to the node that has left")
		}
	}
}

// giveSlotsAway gives all slots of a master to another master, and waits until all nodes agree.
func giveSlotsAway(t *testing.T, from *redis.Client, rest []*redis.Client) {
	t.Helper()
	masters := slices.DeleteFunc(slices.Clone(rest), func(c *redis.Client) bool {
		return do(t, c, "role").([]any)[0] != "master"
	})
	fromID, toID := do(t, from, "cluster", "myid"), do(t, masters[0], "cluster", "myid")
	all, err := from.ClusterSlots(t.Context()).Result() //nolint:staticcheck // see hasSlots
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range append([]*redis.Client{from}, masters...) {
		pipe := c.Pipeline()
		for _, part := range all {
			for slot := part.Start; part.Nodes[0].ID == fromID && slot <= part.End; slot++ {
				pipe.Do(t.Context(), "cluster", "setslot", slot, "node", toID)
			}
		}
		if _, err := pipe.Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	do(t, masters[0], "cluster", "bumpepoch") // so that no replica keeps the former owner
	eventually(t, "the new owner of the slots", func() bool {
		return !slices.ContainsFunc(rest, func(c *redis.Client) bool { return hasSlots(c, fromID) })
	})
}

// hasSlots reports whether a master has slots, as a node reports it. Of each part, CLUSTER SLOTS
// reports the master first; CLUSTER SHARDS has no such order.
func hasSlots(reporter *redis.Client, master any) bool {
	//nolint:staticcheck // see above
	slots, err := reporter.ClusterSlots(context.Background()).Result()
	return err != nil || slices.ContainsFunc(slots, func(part redis.ClusterSlot) bool {
		return part.Nodes[0].ID == master
	})
}

// TestOpeningWithoutPubSub checks that only a lasting refusal turns pub/sub off. After any other
// refusal the driver cannot be opened.
func TestOpeningWithoutPubSub(t *testing.T) {
	t.Parallel()
	for refusal, want := range map[string]error{
		"ERR unknown command 'subscribe'":        nil,
		"NOPERM no permissions to access":        nil,
		"LOADING Redis is loading the dataset":   backend.ErrUnavailable,
		"ERR max number of clients reached":      backend.ErrUnavailable,
		"MASTERDOWN Link with MASTER is down":    backend.ErrUnavailable,
		"CLUSTERDOWN Hash slot not served":       backend.ErrUnavailable,
		"BUSY Redis is busy running a script.":   backend.ErrUnavailable,
		"WRONGPASS invalid username or password": backend.ErrUnavailable,
	} {
		fake := newFakeServer(t, func(command string) string {
			if command == "subscribe" {
				return "-" + refusal + "\r\n"
			}
			return ""
		})
		h := newHub(connection{}.lane(fake.client(t), Options{}), "me")
		notify, err := h.start(t.Context())
		if notify {
			t.Errorf("%s: pub/sub works", refusal)
		}
		raw.WantIs(t, refusal, err, want)
		h.close()
	}
}

// TestCloseOfASilentLentClient checks that neither Close nor a failed opening waits until a lent
// client gives up a silent server. The client holds a lock meanwhile, which PubSub.Close needs.
func TestCloseOfASilentLentClient(t *testing.T) {
	t.Parallel()
	greeted := make(chan struct{}, 100)
	silent := newImpostor(t, func(_ net.Conn, read func() ([]string, error)) {
		for _, err := read(); err == nil; _, err = read() {
			greeted <- struct{}{}
		}
	})
	newLentHub := func() *hub {
		c := redis.NewClient(&redis.Options{Addr: silent.addr, ReadTimeout: time.Hour})
		t.Cleanup(func() { _ = c.Close() })
		return newHub(connection{}.lane(c, Options{}), "me")
	}
	t.Run("Close", func(t *testing.T) {
		h := newLentHub()
		h.mu.Lock()
		h.open(h.newLink())
		h.mu.Unlock()
		<-greeted
		wantEnd(t, h.close)
	})
	t.Run("start", func(t *testing.T) {
		h := newLentHub()
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-greeted; cancel() }()
		wantEnd(t, func() {
			_, err := h.start(ctx)
			raw.WantIs(t, "start", err, context.Canceled)
		})
		wantEnd(t, h.close)
	})
}

// wantEnd fails the test if f does not return.
func wantEnd(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("the call waits for the server")
	}
}

// TestBackoff checks that there is a delay after each failure of a connection, even if it has
// worked. Otherwise a server that cuts each connection would keep the driver and itself busy.
func TestBackoff(t *testing.T) {
	t.Parallel()
	h := newHub(connection{}.lane(nil, Options{}), "me")
	for state, want := range map[linkState]time.Duration{
		linkConnecting: maxBackoff, linkListening: minBackoff,
	} {
		l := &link{hub: h, state: state, backoff: maxBackoff}
		if got := l.breakOff(); got != want {
			t.Errorf("state %d: a delay of %v, want %v", state, got, want)
		}
	}
}
