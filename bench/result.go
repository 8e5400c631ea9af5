package bench

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Result is one row: the figures of one workload for one subject. In JSON, times are in
// nanoseconds. A nil pointer means that the figure is unknown or does not apply.
type Result struct {
	Workload string `json:"workload"`
	Subject  string `json:"subject"`
	// Contenders is the number of goroutines that lock, in all processes.
	Contenders int `json:"contenders"`
	// Processes is the number of processes that share the contenders. Separate is true if they were
	// operating-system processes, and false if they were connections of this process.
	Processes int  `json:"processes"`
	Separate  bool `json:"separate"`
	// Handoff is true if hand-offs inside a process were permitted.
	Handoff bool `json:"handoff"`
	// Locks is the number of locks. TTL is the requested TTL; 0 means the default. In a recovery it
	// is the term of the lock, if the lock reports it.
	Locks int           `json:"locks"`
	TTL   time.Duration `json:"ttl_ns"`

	// Elapsed is the time of the measurement. Operations is the number of operations in it: pairs
	// of lock and unlock (W1 to W4, W7 to W9), waiters (W5), held locks (W6), kills (W10,
	// recovery).
	Elapsed    time.Duration `json:"elapsed_ns"`
	Operations int64         `json:"operations"`
	// PerSecond is pairs per second (W1 to W4, W7 to W9). Changes is how many of them, per second,
	// went to another contender than the pair before (W3, W4, W8).
	PerSecond *float64 `json:"per_second,omitempty"`
	Changes   *float64 `json:"changes_per_second,omitempty"`
	// Latency is the time of a pair (W1, W2, W7, W9), of a hand-off (W3, W4, W8), or of a recovery
	// (W10, recovery). A hand-off lasts from the beginning of one contender's Unlock until another
	// contender has the lock, or the permit.
	Latency *Latency `json:"latency,omitempty"`
	// Jain is Jain's index of fairness between the contenders (W3, W4, W8): 1 means that all had
	// the same share, 1/n that one contender had everything.
	Jain *float64 `json:"jain,omitempty"`
	// Allocs is the number of heap allocations per pair, and PairCommands the number of commands
	// that the server received for it (Allocs: W1, W9; PairCommands: W9).
	Allocs       *float64 `json:"allocs,omitempty"`
	PairCommands *float64 `json:"commands_per_pair,omitempty"`
	// Floor is the floor of the same client library, measured in turns with the subject.
	Floor *FloorResult `json:"floor,omitempty"`
	// Mutex is the mutex without hand-offs, with the same contenders, measured in turns with the
	// subject (W7 to W9).
	Mutex *FloorResult `json:"mutex,omitempty"`
	// Writer is how long a writer among the readers waits (W7).
	Writer *Latency `json:"writer,omitempty"`

	// Commands is the number of commands per second that the server received while nothing
	// was locked or unlocked (W5, W6). Connections is the number of connections of the
	// waiting or holding process.
	Commands    *float64 `json:"commands_per_second,omitempty"`
	Connections *float64 `json:"connections,omitempty"`
	// Bytes and Goroutines are per waiter (W5) or per held lock (W6).
	Bytes      *float64 `json:"bytes,omitempty"`
	Goroutines *float64 `json:"goroutines,omitempty"`
	// Drain is the time from the holder's Unlock until every waiter has had its turn (W5).
	Drain time.Duration `json:"drain_ns,omitempty"`
	// Lost is the number of held locks that were lost (W6).
	Lost *int64 `json:"lost,omitempty"`

	// Unsupported is true if the subject has no locks of the workload's kind. The row then has no
	// figures.
	Unsupported bool `json:"unsupported,omitempty"`
	// Error is the reason why the row is incomplete or empty. It is empty if nothing failed.
	Error string `json:"error,omitempty"`
}

// FloorResult has the figures of a floor or of a mutex, which took turns with its subject.
type FloorResult struct {
	PerSecond float64  `json:"per_second"`
	Changes   *float64 `json:"changes_per_second,omitempty"`
	Latency   *Latency `json:"latency"`
	Allocs    *float64 `json:"allocs,omitempty"`
	// Ratio is the subject's cost in floors: its median over the floor's median (W1, W9), or the
	// floor's rate over its own rate, of pairs (W2, W7) or of changes (W8). 1 is the cost of the
	// floor, 2 is twice as slow.
	Ratio float64 `json:"ratio"`
}

// Latency is a distribution of durations. A percentile other than the median is left out if no
// sample is beyond it: 365 samples have no P99.9, and P99 is 0 for fewer than 100 samples.
type Latency struct {
	Count     int64         `json:"count"`
	Mean      time.Duration `json:"mean_ns"`
	P50       time.Duration `json:"p50_ns"`
	P99       time.Duration `json:"p99_ns,omitempty"`
	Max       time.Duration `json:"max_ns"`
	Quantiles []Quantile    `json:"quantiles"` // in rising order
}

// Quantile is one point of a distribution: Percent of a hundred durations
// were no longer than Value.
type Quantile struct {
	Percent float64       `json:"percent"`
	Value   time.Duration `json:"value_ns"`
}

// percents are the percentiles of Latency.Quantiles.
var percents = []float64{0, 1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9, 99.99, 100}

// longest is the longest duration that a histogram can keep. A longer one counts as this.
const longest = 5 * time.Minute

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, int64(longest), 3) }

func record(h *hdrhistogram.Histogram, d int64) {
	_ = h.RecordValue(min(max(d, 1), int64(longest))) // fails for values out of range
}

// latencyOf returns nil for a histogram that is empty.
func latencyOf(h *hdrhistogram.Histogram) *Latency {
	if h.TotalCount() == 0 {
		return nil
	}
	at := func(percent float64) time.Duration { return time.Duration(h.ValueAtQuantile(percent)) }
	l := &Latency{
		Count: h.TotalCount(), Mean: time.Duration(h.Mean()),
		P50: at(50), Max: time.Duration(h.Max()),
	}
	for _, percent := range percents {
		if !shows(l.Count, percent) {
			continue
		}
		l.Quantiles = append(l.Quantiles, Quantile{percent, at(percent)})
		if percent == 99 {
			l.P99 = at(percent)
		}
	}
	return l
}

// shows reports whether so many samples have at least one beyond a percentile. The median
// and the extremes need none.
func shows(count int64, percent float64) bool {
	beyond := min(percent, 100-percent)
	return beyond == 0 || beyond == 50 || float64(count)*beyond >= 100-1e-6
}

// jain is Jain's index of fairness.
func jain(shares []int64) *float64 {
	var sum, squares float64
	for _, n := range shares {
		sum, squares = sum+float64(n), squares+float64(n)*float64(n)
	}
	if squares == 0 {
		return nil
	}
	return new(sum * sum / (squares * float64(len(shares))))
}
