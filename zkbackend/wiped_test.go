package zkbackend

import (
	"bytes"
	"context"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestWipedServer checks a server that has lost its data. It refuses a client that has seen more
// transactions than the server has. The client continues with a new session after its leases are
// over.
func TestWipedServer(t *testing.T) {
	t.Parallel()
	s := testenv.NewZooKeeper(t, fastTick)
	d := openURL(t, s.URL+"?session=5s")
	for range 20 { // more transactions than an empty server has made
		lockOnce(t, d, "before")
	}
	s.Wipe(t)
	lockOnce(t, d, "on the empty server")
}

// lockOnce repeats pairs of Acquire and Release until one succeeds. A slow server can end a session
// meanwhile.
func lockOnce(t *testing.T, d *driver, when string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		g, err := d.Acquire(ctx, raw.Request(t, time.Second))
		if err == nil {
			err = d.Release(ctx, g)
		}
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("a pair of Acquire and Release %s: %v", when, err)
		}
	}
}

// TestConnectRequestNamesTheLastTransaction checks that a connect request carries the number of the
// last transaction that the session has seen. This lasts until the session and all leases in it
// must be over. Otherwise a server that lags behind could serve the session with data older than
// the session has already seen.
func TestConnectRequestNamesTheLastTransaction(t *testing.T) {
	t.Parallel()
	const timeout, tick = 10 * time.Second, time.Second
	const over = timeout + 2*tick
	head, tail := "\x00\x00\x00\x2c\x00\x00\x00\x00", "\x00\x00\x27\x10"
	request := []byte(head + "\x00\x00\x00\x03\x00\x00\x00\x05" + tail)
	without := []byte(head + "\x00\x00\x00\x00\x00\x00\x00\x00" + tail)
	for silence, want := range map[time.Duration][]byte{over - 1: request, over: without} {
		synctest.Test(t, func(t *testing.T) {
			s := &session{settings: &settings{tick: tick}}
			s.proof.negotiated(timeout)
			first := &wire{session: s, dialled: time.Now()}
			first.setState(settling)
			first.heard.Store(int64(time.Minute)) // the last answer, a minute after the dial
			s.swap(first)
			s.swap(&wire{session: s, dialled: time.Now()}) // its server does not answer
			time.Sleep(time.Minute + silence)
			var sent recorder
			w := &wire{Conn: &sent, session: s, dialled: time.Now()}
			s.swap(w)
			mine := slices.Clone(request)
			for range 2 { // the second one represents any other request
				_, err := w.Write(mine)
				must(t, err)
			}
			if !bytes.Equal(sent.all, slices.Concat(want, request)) || !bytes.Equal(mine, request) {
				t.Errorf("after %v without an answer: sent %q, of %q", silence, sent.all, mine)
			}
		})
	}
}

// recorder is a connection that keeps all written bytes.
type recorder struct {
	net.Conn
	all []byte
}

func (r *recorder) Write(p []byte) (int, error) {
	r.all = append(r.all, p...)
	return len(p), nil
}
