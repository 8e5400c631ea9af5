package bench_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/bench"
	"github.com/dlock-go/dlock/membackend"
)

// recorder is a bench.B that keeps the metrics and the errors.
type recorder struct {
	*testing.T
	metrics map[string]float64
	errors  []string
}

func newRecorder(t *testing.T) *recorder {
	t.Helper()
	return &recorder{T: t, metrics: make(map[string]float64)}
}

func (r *recorder) ResetTimer() {}

func (r *recorder) ReportMetric(n float64, unit string) { r.metrics[unit] = n }

func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

// driverSubject returns a Subject of a driver in memory, with a floor.
func driverSubject() bench.Subject {
	s := bench.Driver("driver", func(context.Context) (backend.Driver, error) {
		return membackend.New(nil), nil
	})
	s.Server = newCountingServer
	return s
}

// TestBenchmarkMetrics checks that the figures of each workload are metrics with their units.
func TestBenchmarkMetrics(t *testing.T) {
	t.Parallel()
	config := tiny
	config.Prefix = "benchmark/"
	for id, units := range map[string][]string{
		"W1": {
			"pairs/s", "p50-ns", "p99-ns", "allocs/pair",
			"floor-pairs/s", "floor-p50-ns", "floor-allocs/pair", "ratio",
		},
		"W2": {"pairs/s", "p50-ns", "p99-ns", "floor-pairs/s", "floor-p50-ns", "ratio"},
		"W3": {"changes/s", "pairs/s", "jain", "p50-ns", "local-changes/s", "local-jain"},
		"W4": {"changes/s", "pairs/s", "jain", "p50-ns", "local-changes/s", "local-jain"},
		"W5": {"drain-ns", "B/waiter", "goroutines/waiter", "commands/s", "connections"},
		"W7": {
			"pairs/s", "p50-ns", "mutex-pairs/s", "mutex-ratio", "writer-p50-ns", "writer-max-ns",
		},
		"W8":  {"changes/s", "pairs/s", "jain", "p50-ns", "mutex-changes/s", "mutex-ratio"},
		"W9":  {"pairs/s", "p50-ns", "allocs/pair", "commands/pair", "mutex-p50-ns", "mutex-ratio"},
		"W10": {"p50-ns"},
		"W6":  {"lost", "B/lock", "goroutines/lock", "commands/s", "connections"},
	} {
		b := newRecorder(t)
		bench.Benchmark(b, 1, find(t, id), config, driverSubject())
		for _, unit := range append(units, "ns/op") {
			if _, ok := b.metrics[unit]; !ok {
				t.Errorf("%s has no %s: %v", id, unit, b.metrics)
			}
		}
		if b.metrics["ns/op"] != 0 || len(b.errors) != 0 {
			t.Errorf("%s: %v ns/op, errors %q", id, b.metrics["ns/op"], b.errors)
		}
	}
}

// TestBenchmarkFails checks that a row that fails is an error of the benchmark, and that the
// metrics of the other subjects begin with their names.
func TestBenchmarkFails(t *testing.T) {
	t.Parallel()
	bad := wrap(driverSubject(), "bad", func(context.Context, bench.Mutex) (bench.Lease, error) {
		return nil, errBroken
	})
	good := driverSubject()
	good.Name = "the good one"
	b := newRecorder(t)
	bench.Benchmark(b, 1, find(t, "W1"), tiny, bad, good)
	if want := []string{"W1 of bad: it is broken"}; !slices.Equal(b.errors, want) {
		t.Errorf("errors %q, want %q", b.errors, want)
	}
	if b.metrics["the-good-one-pairs/s"] <= 0 {
		t.Errorf("metrics %v", b.metrics)
	}
}
