package bench

import (
	"context"
	"strings"
	"time"
)

// B is the part of a *testing.B that [Benchmark] needs.
type B interface {
	Helper()
	Context() context.Context
	ResetTimer()
	ReportMetric(n float64, unit string)
	Errorf(format string, args ...any)
}

// iteration is the time that one iteration of a benchmark adds to each row.
const iteration = 100 * time.Millisecond

// Benchmark runs a workload as a benchmark of go test. n is the N of b: each row is measured for n
// tenths of a second, whatever config.Duration is.
//
// The figures of a row are metrics of b, for example p50-ns and allocs/pair. There is no ns/op,
// because an iteration is a length of time. The metrics of a row with hand-offs begin with
// "local-". With several subjects, metrics begin with the subject's name. A row that fails is an
// error of b.
func Benchmark(b B, n int, w Workload, config Config, subjects ...Subject) {
	b.Helper()
	config.Duration = time.Duration(n) * iteration
	b.ResetTimer() // the caller may have started a server
	results := Run(b.Context(), config, []Workload{w}, subjects...)
	b.ReportMetric(0, "ns/op") // 0 hides it
	for _, r := range results {
		if r.Error != "" {
			b.Errorf("%s of %s: %s", r.Workload, r.Subject, r.Error)
			continue
		}
		prefix := ""
		if len(subjects) > 1 {
			prefix = strings.Join(strings.Fields(r.Subject), "-") + "-" // a unit has no spaces
		}
		if r.Handoff && r.Changes != nil {
			prefix += "local-"
		}
		for _, m := range r.metrics() {
			if m.value != nil {
				b.ReportMetric(*m.value, prefix+m.unit)
			}
		}
	}
}

// metric is a figure and its unit for go test. A nil value means that the figure is unknown or does
// not apply.
type metric struct {
	unit  string
	value *float64
}

// metrics returns the figures of a row.
func (r *Result) metrics() []metric {
	each := "lock"
	if r.Workload == "W5" {
		each = "waiter"
	}
	all := []metric{
		{"pairs/s", r.PerSecond},
		{"changes/s", r.Changes},
		{"jain", r.Jain},
		{"allocs/pair", r.Allocs},
		{"commands/s", r.Commands},
		{"connections", r.Connections},
		{"B/" + each, r.Bytes},
		{"goroutines/" + each, r.Goroutines},
		{"drain-ns", positive(r.Drain)},
	}
	if r.Lost != nil {
		all = append(all, metric{"lost", new(float64(*r.Lost))})
	}
	if l := r.Latency; l != nil {
		all = append(all, metric{"p50-ns", positive(l.P50)}, metric{"p99-ns", positive(l.P99)})
	}
	if f := r.Floor; f != nil {
		all = append(all,
			metric{"floor-pairs/s", &f.PerSecond},
			metric{"floor-p50-ns", positive(f.Latency.P50)},
			metric{"floor-allocs/pair", f.Allocs},
			metric{"ratio", &f.Ratio})
	}
	return append(all, r.kindMetrics()...)
}

// kindMetrics returns the figures of W7 to W9.
func (r *Result) kindMetrics() (all []metric) {
	if m := r.Mutex; m != nil {
		all = append(all,
			metric{"mutex-pairs/s", &m.PerSecond},
			metric{"mutex-changes/s", m.Changes},
			metric{"mutex-p50-ns", positive(m.Latency.P50)},
			metric{"mutex-ratio", &m.Ratio})
	}
	if l := r.Writer; l != nil {
		all = append(all, metric{"writer-p50-ns", positive(l.P50)},
			metric{"writer-max-ns", positive(l.Max)})
	}
	return append(all, metric{"commands/pair", r.PairCommands})
}

// positive returns d in nanoseconds, and nil for 0, which means unknown.
func positive(d time.Duration) *float64 {
	if d == 0 {
		return nil
	}
	return new(float64(d))
}
