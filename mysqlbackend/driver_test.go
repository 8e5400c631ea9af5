package mysqlbackend_test

import (
	"testing"

	"github.com/dlock-go/dlock/conformance"
	"github.com/dlock-go/dlock/internal/testenv"
	_ "github.com/dlock-go/dlock/mysqlbackend"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestConformance(t *testing.T) {
	conformance.Run(t, func(t conformance.TB) conformance.Harness { return testenv.NewHarness(t, testenv.MySQL(t)) })
}

func TestConformanceMariaDB(t *testing.T) {
	conformance.Run(t, func(t conformance.TB) conformance.Harness { return testenv.NewHarness(t, testenv.MariaDB(t)) })
}

func BenchmarkConformance(b *testing.B) {
	conformance.Bench(b, func(t conformance.TB) conformance.Harness { return testenv.NewHarness(t, testenv.MySQL(t)) })
}

func BenchmarkConformanceMariaDB(b *testing.B) {
	conformance.Bench(b, func(t conformance.TB) conformance.Harness { return testenv.NewHarness(t, testenv.MariaDB(t)) })
}
