package zkbackend

import (
	"testing"

	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// TestDowngradeLetsNoWriterIn checks a writer that waits behind a writer that becomes a reader. The
// waiter is woken, but it gets the lock only when the reader leaves. The server may report the
// Downgrade only after a reconnection, and then reports no more than the end of the node.
func TestDowngradeLetsNoWriterIn(t *testing.T) {
	t.Parallel()
	s := testenv.ZooKeeper(t)
	for name, reconnects := range map[string]bool{"connected": false, "reconnected": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			holder := openURL(t, s.URL)
			waiter, p := isolated(t, s, "")
			g := raw.Acquire(t, holder, raw.Request(t, patience))
			req := raw.Request(t, patience)
			place := raw.Busy(t, waiter, req).State.(*position)
			heal := func() {}
			if reconnects {
				heal = p.Cut(t)
			}
			shared, err := holder.Downgrade(t.Context(), g)
			must(t, err)
			if reconnects {
				p.Reset(t)
			}
			heal()
			within(t, "the waiter is woken", place.ahead.fired)
			again := raw.Busy(t, waiter, req)
			raw.Release(t, holder, shared)
			_, err = waiter.Wait(t.Context(), req, again)
			must(t, err)
			raw.Release(t, waiter, raw.Acquire(t, waiter, req))
		})
	}
}
