package membackend_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/internal/memnet"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/membackend"
)

// inapplicable are the cases that do not apply.
var inapplicable = conformance.Inapplicable(
	"CountersCount",                   // no commands are sent
	"FloorIsNoLock",                   // no commands are sent
	"NextRequestFollowsARelease",      // the driver promises no order of requests
	"OpeningAClosedPortIsUnavailable", // a URL has no host
	"SecretsStayOutOfErrors",          // a URL has no password
	"SweepSparesHeldLocks",            // the driver keeps nothing of a free lock
)

func TestConformance(t *testing.T) {
	conformance.Run(t, newHarness, inapplicable)
}

func BenchmarkConformance(b *testing.B) {
	conformance.Bench(b, func(conformance.TB) conformance.Harness { return plain{} })
}

func newHarness(t conformance.TB) conformance.Harness {
	testenv.Announce(t, "mem", "process", "mem "+runtime.Version())
	return harness{memnet.New(t)}
}

// harness counts the entries of the space in memory.
type harness struct{ *memnet.Harness }

// Kept implements conformance.Keeper. The driver keeps nothing of a free lock for any time.
func (harness) Kept(_ conformance.TB, prefix string) int {
	return membackend.Entries(membackend.New(nil), prefix)
}

// plain is a harness without a network.
type plain struct{}

func (plain) Driver(context.Context) (backend.Driver, error) { return membackend.New(nil), nil }
func (plain) Close()                                         {}
