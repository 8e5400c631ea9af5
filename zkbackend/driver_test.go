package zkbackend_test

import (
	"testing"

	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/internal/testenv"
	_ "github.com/dlock-go/dlock/zkbackend"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestConformance(t *testing.T) { conformance.Run(t, newHarness) }

func TestConformanceEnsemble(t *testing.T) {
	conformance.Run(t, func(t conformance.TB) conformance.Harness {
		return testenv.NewEnsembleHarness(t, testenv.ZooKeeperEnsemble(t))
	})
}

func BenchmarkConformance(b *testing.B) { conformance.Bench(b, newHarness) }

func newHarness(t conformance.TB) conformance.Harness {
	return testenv.NewHarness(t, testenv.ZooKeeper(t))
}
