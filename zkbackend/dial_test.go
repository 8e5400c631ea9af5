package zkbackend

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/backend"
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

// TestBreakOfAPartIsUncertain checks the error of a Break of several holders of which the server
// refuses the second: the first is removed.
func TestBreakOfAPartIsUncertain(t *testing.T) {
	t.Parallel()
	s := testenv.ZooKeeper(t)
	d, conn := openURL(t, s.URL), admin(t, s.Addr)
	g := raw.Acquire(t, d, raw.Request(t, patience))
	guarded := d.queue(g.Key) + "/guarded"
	_, err := conn.Create(guarded, nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll&^zk.PermDelete))
	must(t, err)
	_, err = conn.Create(guarded+"/x", nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll))
	must(t, err)
	defer func() {
		_, _ = conn.SetACL(guarded, zk.WorldACL(zk.PermAll), -1)
		must(t, conn.Delete(guarded+"/x", -1))
		must(t, conn.Delete(guarded, -1))
	}()
	refused := entry{name: "guarded/x"}
	for _, also := range []bool{false, true} {
		err := d.removeEntries(t.Context(), d.session, d.queue(g.Key), func(all []entry) []entry {
			if also {
				return append(all, refused)
			}
			return []entry{refused}
		})
		if err == nil || errors.Is(interpretError(err), backend.ErrUnavailable) == also {
			t.Errorf("a Break of which a part is executed (%t): %v", also, err)
		}
	}
}
