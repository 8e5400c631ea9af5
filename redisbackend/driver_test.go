package redisbackend_test

import (
	"testing"

	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/internal/testenv"
	_ "github.com/dlock-go/dlock/redisbackend"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestConformance(t *testing.T) {
	conformance.Run(t, func(t conformance.TB) conformance.Harness { return testenv.NewHarness(t, testenv.Redis(t)) })
}

func TestConformanceValkey(t *testing.T) {
	conformance.Run(t, func(t conformance.TB) conformance.Harness { return testenv.NewHarness(t, testenv.Valkey(t)) })
}

func BenchmarkConformance(b *testing.B) {
	conformance.Bench(b, func(t conformance.TB) conformance.Harness {
		s := testenv.NewRedis(t, "--appendonly", "no") // the disk is not what is measured
		return testenv.Direct{URL: s.URL}
	})
}
