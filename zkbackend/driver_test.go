package zkbackend_test

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/failover"
	_ "github.com/dlock-go/dlock/zkbackend"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestConformance(t *testing.T) { conformance.Run(t, newHarness) }

func TestConformanceEnsemble(t *testing.T) {
	conformance.Run(t, func(t conformance.TB) conformance.Harness {
		return testenv.NewEnsembleHarness(t, testenv.ZooKeeperEnsemble(t))
	})
}

func TestFailover(t *testing.T) {
	failover.Suite{Ensemble: testenv.ZooKeeperEnsemble(t), Query: "?session=12s&ttl=8s", TTL: 8 * time.Second}.Run(t)
}

func BenchmarkConformance(b *testing.B) { conformance.Bench(b, newHarness) }

func newHarness(t conformance.TB) conformance.Harness {
	return testenv.NewHarness(t, testenv.ZooKeeper(t))
}
