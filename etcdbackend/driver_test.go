package etcdbackend_test

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/conformance"
	_ "github.com/dlock-go/dlock/etcdbackend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/failover"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestConformance(t *testing.T) {
	conformance.Run(t, func(t conformance.TB) conformance.Harness { return testenv.NewHarness(t, testenv.Etcd(t)) })
}

func TestConformanceEnsemble(t *testing.T) {
	conformance.Run(t, func(t conformance.TB) conformance.Harness {
		return testenv.NewEnsembleHarness(t, testenv.EtcdEnsemble(t))
	})
}

func TestFailover(t *testing.T) {
	failover.Suite{Ensemble: testenv.EtcdEnsemble(t), Query: "?ttl=5s", TTL: 5 * time.Second}.Run(t)
}

func BenchmarkConformance(b *testing.B) {
	conformance.Bench(b, func(t conformance.TB) conformance.Harness {
		return testenv.Direct{URL: testenv.Etcd(t).URL}
	})
}
