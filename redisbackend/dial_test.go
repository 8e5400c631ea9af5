package redisbackend

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestClosedConnectionSendsNothing checks Capabilities.Late.
func TestClosedConnectionSendsNothing(t *testing.T) {
	t.Parallel()
	raw.Discards(t, true, func(addr string) (net.Conn, error) {
		d := dialer{dial: new(net.Dialer).DialContext, timeout: time.Minute}
		return d.connect(t.Context(), "tcp", addr)
	})
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
