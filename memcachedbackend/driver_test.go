package memcachedbackend_test

import (
	"testing"

	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/internal/testenv"
	_ "github.com/dlock-go/dlock/memcachedbackend"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestConformance(t *testing.T) {
	conformance.Run(t, func(t conformance.TB) conformance.Harness { return testenv.NewHarness(t, testenv.Memcached(t)) })
}

func BenchmarkConformance(b *testing.B) {
	conformance.Bench(b, func(t conformance.TB) conformance.Harness {
		return testenv.Direct{URL: testenv.Memcached(t).URL}
	})
}
