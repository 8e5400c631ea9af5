package redisbackend

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
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
