package zkbackend

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestClosedConnectionSendsNothing checks that a session gets nothing after its end.
func TestClosedConnectionSendsNothing(t *testing.T) {
	t.Parallel()
	raw.Discards(t, true, func(addr string) (net.Conn, error) {
		return dialServer(t.Context(), "tcp", addr, nil)
	})
}

// TestBreakThatWasGivenUpRemovesNothing ends the context of a Break before its requests.
func TestBreakThatWasGivenUpRemovesNothing(t *testing.T) {
	t.Parallel()
	d := openURL(t, testenv.ZooKeeper(t).URL)
	g := raw.Acquire(t, d, raw.Request(t, time.Minute))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := d.removeHolders(ctx, d.session, d.queue(g.Key), "")
	raw.WantIs(t, "Break", err, context.Canceled)
	raw.Release(t, d, g)
}
