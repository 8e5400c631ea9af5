package conformance

import (
	"testing"

	"github.com/dlock-go/dlock/bench"
)

// Bench runs the workloads of package bench for a driver, W1 to W10, as sub-benchmarks. All of them
// use the server of one Harness. If the driver implements the interfaces of package
// backend/measure, the figures include the floor and the server's own counts. A workload has no
// figures if the driver lacks the kind of lock. The leaders of W10 stop their renewals, because a
// Harness has no processes to kill.
//
// The same workloads measure other backends with the command dlock bench, and other libraries.
// Times depend on the machine; ratios and counts hardly do.
func Bench(b *testing.B, mk HarnessMaker) {
	b.Helper()
	h := mk(b)
	b.Cleanup(h.Close)
	subject := bench.Driver(b.Name(), h.Driver)
	config := bench.Config{
		Prefix:     prefixOf(h) + "bench-" + newOwner()[:8] + "/",
		Contenders: []int{16},
	}
	for _, w := range bench.Workloads() {
		if w.ID == "recovery" {
			continue // it kills processes, and a Harness has none
		}
		b.Run(w.ID, func(b *testing.B) { bench.Benchmark(b, b.N, w, config, subject) })
	}
}
