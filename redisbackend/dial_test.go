package redisbackend

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestClosedConnectionSendsNothing checks Capabilities.Late.
func TestClosedConnectionSendsNothing(t *testing.T) {
	t.Parallel()
	d := dialer{ctx: t.Context(), dial: new(net.Dialer).DialContext, timeout: time.Minute}
	t.Run("server", func(t *testing.T) {
		t.Parallel()
		raw.Discards(t, true, func(addr string) (net.Conn, error) {
			return d.connect(t.Context(), "tcp", addr)
		})
	})
	t.Run("sentinel", func(t *testing.T) {
		t.Parallel()
		raw.Discards(t, true, func(addr string) (net.Conn, error) {
			_, url := newFakeSentinels(t, 1, addr, 1)
			s := newSentinels(raw.Target(t, parseTarget, url), d)
			t.Cleanup(s.close)
			return s.connect(t.Context(), "tcp", "")
		})
	})
}

// TestCloseEndsDials checks that Close ends the dials under way, which go-redis does not.
func TestCloseEndsDials(t *testing.T) {
	t.Parallel()
	for url, conns := range map[string]int{
		"rediss://%s?timeout=1h":                1,
		"redis+sentinel://%s/master?timeout=1h": 2, // to find the master, and to follow it
	} {
		t.Run(strings.SplitN(url, ":", 2)[0], func(t *testing.T) {
			t.Parallel()
			greeted, gone := make(chan struct{}, conns), make(chan struct{}, conns)
			silent := newImpostor(t, func(conn net.Conn, _ func() ([]string, error)) {
				_, _ = conn.Read(make([]byte, 1))
				greeted <- struct{}{}
				_, _ = io.Copy(io.Discard, conn)
				gone <- struct{}{}
			})
			target := raw.Target(t, parseTarget, fmt.Sprintf(url, silent.addr))
			c, err := connect(target, new(net.Dialer).DialContext)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			requested := make(chan error)
			go func() { requested <- c.main.Ping(ctx).Err() }()
			for range conns {
				<-greeted
			}
			cancel()
			raw.WantIs(t, "Ping", <-requested, context.Canceled)
			wantEnd(t, func() {
				_ = c.close()
				for range conns {
					<-gone
				}
			})
		})
	}
}

// TestSilentConnectionsAreNotTriedSingly has idle connections that the network does not serve any
// more. A renewal that tries one after the other takes eight times the timeout.
func TestSilentConnectionsAreNotTriedSingly(t *testing.T) {
	t.Parallel()
	h := testenv.NewHarness[testenv.TB](t, testenv.Redis(t))
	d := openURL(t, h.URL())
	g := raw.Acquire(t, d, raw.Request(t, time.Minute))
	client := d.control.client.(*redis.Client)
	conns := make([]*redis.Conn, controlConns)
	for i := range conns {
		conns[i] = client.Conn()
		if err := conns[i].Ping(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range conns {
		_ = c.Close()
	}
	h.Delay(t)
	time.Sleep(idleTime)
	ctx, cancel := context.WithTimeout(t.Context(), 2*DefaultTimeout)
	defer cancel()
	if _, err := d.Renew(ctx, g); err != nil {
		t.Errorf("Renew: %v", err)
	}
	raw.Release(t, d, g)
}
