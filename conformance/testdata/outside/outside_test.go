package outside

import (
	"context"
	"sync"
	"testing"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/conformance/broken"
	"github.com/dlock-go/dlock/conformance/faultproxy"
)

// harness reaches the server through a proxy. Two harnesses have two proxies.
type harness struct {
	server *server
	proxy  *faultproxy.Proxy
	wrap   func(backend.Driver) backend.Driver
}

var _ interface {
	conformance.Harness
	conformance.Faults
	conformance.Apart
	conformance.Delayer
} = (*harness)(nil)

func newHarness(
	t conformance.TB, s *server, wrap func(backend.Driver) backend.Driver,
) conformance.Harness {
	p, err := faultproxy.New(s.listener.Addr().String())
	if err != nil {
		t.Fatalf("%v", err)
	}
	return &harness{s, p, wrap}
}

func (h *harness) Driver(ctx context.Context) (backend.Driver, error) {
	d, err := open(ctx, h.proxy.Addrs()[0])
	if err == nil && h.wrap != nil {
		d = h.wrap(d)
	}
	return d, err
}

func (h *harness) Close()                                { h.proxy.Close() }
func (h *harness) Cut(conformance.TB) (heal func())      { return h.proxy.Cut() }
func (h *harness) DropReply(_ conformance.TB, nth int)   { h.proxy.DropReply(nth) }
func (h *harness) Delay(conformance.TB) (deliver func()) { return h.proxy.Delay() }
func (h *harness) Restart(conformance.TB)                { h.server.restart() }

func (h *harness) Apart(t conformance.TB) conformance.Harness {
	return newHarness(t, h.server, h.wrap)
}

func (h *harness) Pause(conformance.TB) (resume func()) {
	h.server.gate.Lock()
	return sync.OnceFunc(h.server.gate.Unlock)
}

func start(t *testing.T) *server {
	s, err := newServer(t.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s
}

// inapplicable are the cases that do not apply, and the only ones that may be skipped.
var inapplicable = conformance.Inapplicable(
	// The core polls.
	"CancelledWaitsLeaveNoMemory", "NextRequestFollowsARelease", "ReleaseBeforeWaitIsNotMissed",
	"ReleaseDuringWaitIsNotMissed", "WaitEndsWithItsContext",
	"WaitersOfOneConnectionMissNoRelease",
	// The server has no queue.
	"BrokenLockGoesToTheQueue", "ExpiredLockGoesToTheQueue", "FairTryDoesNotOvertake",
	"FairWaitersAreServedInOrder", "LeavingTheQueueOfAFreeLockWakesTheNext",
	"OneHolderAtATimeFair", "RefreshKeepsThePlace", "ShortTermShortensNoOtherEntry",
	// The driver has none of the interfaces for benchmarks.
	"CountersCount", "FloorIsNoLock", "SweepSparesHeldLocks",
	// The harness has none of these abilities.
	"ForeignValueIsAConflict", "FreeNamesAreForgotten", "LockedEntryCostsNoOtherLease",
	"OpeningAClosedPortIsUnavailable", "SecretsStayOutOfErrors",
)

func TestConformance(t *testing.T) {
	s := start(t)
	conformance.Run(t, func(t conformance.TB) conformance.Harness {
		return newHarness(t, s, nil)
	}, inapplicable)
}

// TestNoticesBugs runs one row of the table, as an example.
func TestNoticesBugs(t *testing.T) {
	s := start(t)
	for _, row := range broken.Table() {
		if row.Bug.Name == "no-prolonging" {
			wrap := row.Bug.Wrapper()
			broken.MustNotice(t, row.Case, func(t conformance.TB) conformance.Harness {
				return newHarness(t, s, wrap)
			})
		}
	}
}
