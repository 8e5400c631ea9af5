package redisbackend

import (
	"sync/atomic"
	"testing"
	"time"

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
