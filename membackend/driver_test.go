package membackend_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/membackend"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, newHarness)
}

func BenchmarkConformance(b *testing.B) {
	conformance.Bench(b, func(conformance.TB) conformance.Harness { return plain{} })
}

func newHarness(t conformance.TB) conformance.Harness {
	testenv.Announce(t, "mem", "process", "mem "+runtime.Version())
	return &harness{network: newNetwork()}
}

// harness puts between a case and the space a network that can be broken.
type harness struct{ *network }

func (h *harness) Driver(context.Context) (backend.Driver, error) {
	return &remote{local: membackend.New(nil).(local), network: h.network}, nil
}

func (h *harness) Close() {}

// plain is a harness without a network.
type plain struct{}

func (plain) Driver(context.Context) (backend.Driver, error) { return membackend.New(nil), nil }
func (plain) Close()                                         {}
