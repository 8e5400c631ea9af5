package background

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestClose checks that Close waits for the work, and that no work begins after it.
func TestClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g Group
		var done atomic.Bool
		if !g.Go(func() { time.Sleep(time.Second); done.Store(true) }) {
			t.Error("Go does nothing")
		}
		g.Close()
		if !done.Load() {
			t.Error("Close has not waited")
		}
		if g.Go(func() { t.Error("work has begun after Close") }) {
			t.Error("Go reports work after Close")
		}
		g.Close()
	})
}

// TestGoWhileCloseWaits checks that Go may be called while Close waits.
func TestGoWhileCloseWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g Group
		g.Go(func() {
			time.Sleep(time.Second)
			if g.Go(func() {}) {
				t.Error("work has begun while Close waits")
			}
		})
		g.Close()
	})
}
