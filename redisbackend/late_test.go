package redisbackend

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestLateAcquireRevivesNoGrant checks that a grant which was taken away stays lost. A late
// acquisition of its owner has made another grant. Between the two grants the lock had another
// holder, with a greater fence.
func TestLateAcquireRevivesNoGrant(t *testing.T) {
	t.Parallel()
	s := testenv.Redis(t)
	d, other := openURL(t, s.URL), openURL(t, s.URL)
	req := raw.Request(t, longTerm)
	first := raw.Acquire(t, d, req)
	do(t, admin(t, s), "del", lockKey(req.Key))
	raw.Release(t, other, raw.Acquire(t, other, raw.Request(t, longTerm)))
	second := raw.Acquire(t, d, req)
	_, err := d.Renew(t.Context(), first)
	raw.WantIs(t, "Renew of the grant that was taken away", err, backend.ErrLost)
	if _, err := d.Renew(t.Context(), second); err != nil {
		t.Errorf("Renew of the new grant: %v", err)
	}
	raw.Release(t, d, second)
}

// TestLongestTermIsRenewed checks that the longest term of a reader or a permit can be renewed. It
// ends at a time with more digits than the present time.
func TestLongestTermIsRenewed(t *testing.T) {
	t.Parallel()
	d := openURL(t, testenv.NewRedis(t).URL)
	for mode, limit := range modes {
		req := raw.Request(t, math.MaxInt64)
		req.Key += mode.String()
		req.Mode, req.Limit = mode, limit
		g := raw.Acquire(t, d, req)
		for range 2 {
			if _, err := d.Renew(t.Context(), g); err != nil {
				t.Errorf("%v: Renew: %v", mode, err)
			}
		}
		raw.Release(t, d, g)
	}
}

// TestMalformedRenewalIsNoLoss checks that only the answer 0 is a loss. After another wrong answer
// the core renews the grant again.
func TestMalformedRenewalIsNoLoss(t *testing.T) {
	t.Parallel()
	d := &driver{hub: newHub(connection{}.lane(nil, Options{}), "me")}
	gs := make([]*backend.Grant, 4)
	for i := range gs {
		gs[i] = &backend.Grant{Request: *raw.Request(t, longTerm)}
	}
	renewals := make([]backend.Renewal, len(gs))
	reply := []any{int64(1), int64(0), "1", nil}
	d.decodeRenewals(gs, answer{Reply: reply}, time.Now(), renewals)
	raw.WantIs(t, "the answer 1", renewals[0].Err, nil)
	raw.WantIs(t, "the answer 0", renewals[1].Err, backend.ErrLost)
	for _, r := range renewals[2:] {
		if r.Err == nil || errors.Is(r.Err, backend.ErrLost) {
			t.Errorf("a malformed answer: %v, want an unknown outcome", r.Err)
		}
	}
}

// TestNothingIsSentAfterTheContext checks that a request is not sent if its context ends while a
// new connection is prepared, which takes several round trips. If it were executed that late, it
// could break the lock of the next holder, or leave a grant that is not released.
func TestNothingIsSentAfterTheContext(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]func(addr string) redis.UniversalClient{
		"lent": func(addr string) redis.UniversalClient {
			return redis.NewClient(&redis.Options{Addr: addr})
		},
		"single": func(addr string) redis.UniversalClient {
			_, opts := optionsFor(addr)
			return redis.NewClient(&opts)
		},
		"cluster": func(addr string) redis.UniversalClient { return newCluster(optionsFor(addr)) },
	} {
		for what, request := range lateRequests {
			t.Run(name+"/"+what, func(t *testing.T) {
				t.Parallel()
				node, words, answer := newSlowServer(t)
				c := client(node.addr)
				if name == "cluster" {
					c = client(newClusterSeed(t, node.addr).addr)
				}
				defer c.Close()
				l := connection{}.lane(c, Options{})
				d := &driver{main: l, control: l, keys: newKeys, hub: newHub(l, "client")}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error)
				go func() { done <- request(ctx, d) }()
				<-words
				cancel()
				raw.WantIs(t, what, <-done, context.Canceled)
				close(answer)
				wantNotSent(t, words)
			})
		}
	}
}

// lateRequests are requests of a driver that must not be executed late.
var lateRequests = map[string]func(ctx context.Context, d *driver) error{
	"Break": func(ctx context.Context, d *driver) error { return d.Break(ctx, "name", "") },
	"Export": func(ctx context.Context, d *driver) error {
		_, err := d.Export(ctx, &backend.Grant{
			Request: backend.Request{Key: "name", Owner: "owner", TTL: time.Minute},
		})
		return err
	},
	"Adopt": func(ctx context.Context, d *driver) error {
		_, err := d.Adopt(ctx, "former.secret", &backend.Request{
			Key: "name", Owner: "owner", TTL: time.Minute, Mode: backend.Exclusive,
		})
		return err
	},
}

// wantNotSent fails the test if a script is among the commands of a connection.
func wantNotSent(t *testing.T, words <-chan string) {
	t.Helper()
	for word := range words {
		if strings.EqualFold(word, "evalsha") {
			t.Error("the request was sent after the end of its context")
			return
		}
	}
}

// TestNoBatchIsSentAfterItsContext checks the same for a batch of requests.
func TestNoBatchIsSentAfterItsContext(t *testing.T) {
	t.Parallel()
	node, words, resume := newSlowServer(t)
	c := redis.NewClient(&redis.Options{Addr: node.addr})
	defer c.Close()
	l := connection{}.lane(c, Options{Timeout: time.Minute})
	d := &driver{keys: newKeys}
	calls := make([]call, 2)
	for i := range calls {
		r := d.newRequest(fmt.Sprint(i), "owner")
		calls[i] = call{breakScript, r.with().args, r.keys.lock}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan []answer)
	go func() { done <- l.sendBatch(ctx, calls, func(int, answer) {}) }()
	<-words
	cancel()
	for _, a := range <-done {
		raw.WantIs(t, "a request of the batch", a.Err, context.Canceled)
	}
	close(resume)
	wantNotSent(t, words)
}

// optionsFor returns the settings of a URL with an address.
func optionsFor(addr string) (*target, redis.Options) {
	t := &target{network: "tcp", addrs: []string{addr}, Options: Options{Timeout: time.Minute}}
	opts := t.clientOptions()
	opts.Dialer = new(net.Dialer).DialContext
	return t, opts
}

// newSlowServer starts a server that answers HELLO when the test allows it. It reports the commands
// of the first connection.
func newSlowServer(t *testing.T) (s *impostor, words <-chan string, answer chan<- struct{}) {
	t.Helper()
	read, greeted := make(chan string, 10), make(chan struct{})
	first := make(chan struct{}, 1)
	first <- struct{}{}
	return newImpostor(t, func(conn net.Conn, next func() ([]string, error)) {
		select {
		case <-first:
		default:
			return
		}
		defer close(read)
		for command, err := next(); err == nil; command, err = next() {
			read <- command[0]
			reply := "+OK\r\n"
			if strings.EqualFold(command[0], "hello") {
				<-greeted
				reply = "*0\r\n"
			}
			_, _ = fmt.Fprint(conn, reply)
		}
	}), read, greeted
}

// clusterSlots returns the reply to CLUSTER SLOTS of a cluster with one node.
func clusterSlots(t *testing.T, master string) string {
	t.Helper()
	host, port, err := net.SplitHostPort(master)
	if err != nil {
		t.Fatal(err)
	}
	const reply = "*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$%d\r\n%s\r\n:%s\r\n$1\r\na\r\n"
	return fmt.Sprintf(reply, len(host), host, port)
}

// newClusterSeed starts a node of a cluster whose slots are all on another node.
func newClusterSeed(t *testing.T, master string) *impostor {
	t.Helper()
	slots := clusterSlots(t, master)
	return newImpostor(t, func(conn net.Conn, next func() ([]string, error)) {
		for command, err := next(); err == nil; command, err = next() {
			reply := "+OK\r\n"
			switch strings.ToLower(command[0]) {
			case "hello":
				reply = "*0\r\n"
			case "cluster":
				reply = slots
			}
			_, _ = fmt.Fprint(conn, reply)
		}
	})
}
