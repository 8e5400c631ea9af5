package conformance_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/internal/memnet"
)

// runCase runs the case with this name as a subtest.
func runCase(t *testing.T, name string, mk conformance.HarnessMaker) {
	t.Helper()
	i := slices.IndexFunc(conformance.Cases(), func(c conformance.Case) bool {
		return c.Name == name
	})
	if i < 0 {
		t.Fatalf("there is no case %s", name)
	}
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		conformance.Cases()[i].Run(t, mk)
	})
}

// modest is a driver that claims less than it has methods for, like a driver whose present server
// cannot do it.
type modest struct {
	backend.Driver
	backend.Mover
	backend.Downgrader
}

func (m modest) Capabilities() backend.Capabilities {
	caps := m.Driver.Capabilities()
	return backend.Capabilities{
		Modes: backend.Exclusive, Fencing: backend.FenceVolatile, MinTTL: caps.MinTTL,
		Late: caps.Late,
	}
}

// TestUnclaimed runs the cases about what a driver does not claim. Each driver of this module that
// needs no server claims most of it.
func TestUnclaimed(t *testing.T) {
	t.Parallel()
	mk := func(t conformance.TB) conformance.Harness {
		h := memnet.New(t)
		h.Wrap = func(d backend.Driver) backend.Driver {
			return modest{d, d.(backend.Mover), d.(backend.Downgrader)}
		}
		return h
	}
	for _, name := range []string{
		"UnclaimedMovesAreRefused", "UnclaimedFairnessIsRefused", "RequireIsAMinimum",
	} {
		runCase(t, name, mk)
	}
}

// TestOpeners runs the cases that fail before a driver is open, with an opener that works.
func TestOpeners(t *testing.T) {
	t.Parallel()
	backend.Register("closed", func(_ context.Context, u *backend.URL) (backend.Driver, error) {
		return nil, fmt.Errorf("%w: %s refuses connections", backend.ErrUnavailable, u.Hosts)
	})
	mk := func(t conformance.TB) conformance.Harness {
		return opening{memnet.New(t), "closed://user:pa55w0rd@127.0.0.1:1/x"}
	}
	for _, name := range []string{
		"SecretsStayOutOfErrors", "OpeningAClosedPortIsUnavailable",
		"OpeningReturnsFromABlackHole",
	} {
		runCase(t, name, mk)
	}
}
