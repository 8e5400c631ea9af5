package conformance

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/bench"
)

// Bench runs the workloads of package bench for a driver, W1 to W10, as sub-benchmarks. All of them
// use the server of one Harness. If the driver implements the interfaces of package
// backend/measure, the figures include the floor and the server's own counts. A workload has no
// figures if the driver lacks the kind of lock. The leaders of W10 stop their renewals, because a
// Harness has no processes to kill.
//
// The last sub-benchmark, opposite, lets two clients lock three names in opposite orders. With
// -benchtime 10000x it proves that 10,000 sets of each client do not deadlock and leave nothing.
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
	b.Run("opposite", func(b *testing.B) { benchmarkOpposite(b, h) })
}

// benchmarkOpposite lets two clients lock the same names in opposite orders, b.N times each. It
// fails if a call takes longer than prompt, or if a name is locked afterwards. It reports the
// longest call.
func benchmarkOpposite(b *testing.B, h Harness) {
	b.Helper()
	prefix := prefixOf(h) + "bench-" + newOwner()[:8] + "/"
	names := []string{prefix + "a", prefix + "b", prefix + "c"}
	orders := [][]string{names, {names[2], names[1], names[0]}}
	clients := []*dlock.Client{benchClient(b, h), benchClient(b, h)}
	longest := make([]time.Duration, len(clients))
	b.ResetTimer()
	var both sync.WaitGroup
	for i, c := range clients {
		both.Go(func() {
			for range b.N {
				took, err := lockSet(b.Context(), c, orders[i])
				if err != nil {
					b.Errorf("%v", err)
					return
				}
				longest[i] = max(longest[i], took)
			}
		})
	}
	both.Wait()
	b.StopTimer()
	for _, name := range names {
		lease, err := clients[0].TryLock(b.Context(), name)
		if err == nil {
			err = lease.Unlock(b.Context())
		}
		if err != nil {
			b.Errorf("a name that must be free: %v", err)
		}
	}
	b.ReportMetric(float64(slices.Max(longest)), "max-ns")
}

// benchClient opens a client over a new connection.
func benchClient(b *testing.B, h Harness) *dlock.Client {
	b.Helper()
	d, err := h.Driver(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	c, err := dlock.New(d)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
	return c
}

// lockSet locks and unlocks all names, and returns the time that the LockAll took.
func lockSet(ctx context.Context, c *dlock.Client, names []string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, prompt)
	defer cancel()
	began := time.Now()
	m, err := c.LockAll(ctx, names)
	if err != nil {
		return 0, err
	}
	return time.Since(began), m.Unlock(ctx)
}
