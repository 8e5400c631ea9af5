package bench

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Result is one row: what one workload has shown of one subject. Times are in nanoseconds in
// JSON. A nil pointer is what is unknown or does not apply.
type Result struct {
	Workload string `json:"workload"`
	Subject  string `json:"subject"`
	// Contenders are the goroutines that lock, over all processes.
	Contenders int `json:"contenders"`
	// Processes is how many they are spread over, and Separate whether these were
	// operating-system processes, or connections of this one.
	Processes int  `json:"processes"`
	Separate  bool `json:"separate"`
	// Handoff says whether locks were passed on inside of a process.
	Handoff bool `json:"handoff"`
	// Locks is how many locks there were, and TTL the TTL that was asked for; 0 is the default. Where
	// the lock tells for how long it is good, the TTL of a recovery is that.
	Locks int           `json:"locks"`
	TTL   time.Duration `json:"ttl_ns"`

	// Elapsed is the time that was measured, and Operations what was done in it: pairs of lock and
	// unlock (W1 to W4), waiters (W5), held locks (W6), kills (recovery).
	Elapsed    time.Duration `json:"elapsed_ns"`
	Operations int64         `json:"operations"`
	// PerSecond is pairs per second (W1 to W4), and Changes how many of them went to another
	// contender than the one before (W3, W4).
	PerSecond *float64 `json:"per_second,omitempty"`
	Changes   *float64 `json:"changes_per_second,omitempty"`
	// Latency is that of a pair (W1, W2), of a hand-off from the beginning of one contender's
	// Unlock until another has the lock (W3, W4), or of a recovery.
	Latency *Latency `json:"latency,omitempty"`
	// Jain is Jain's index of how evenly the contenders were served (W3, W4): 1 is evenly, 1/n
	// all for one.
	Jain *float64 `json:"jain,omitempty"`
	// Allocs is heap allocations per pair (W1).
	Allocs *float64 `json:"allocs,omitempty"`
	// Floor is the floor of the same client library, measured in turns with the subject.
	Floor *FloorResult `json:"floor,omitempty"`

	// Commands is what the server was asked per second while nothing was locked or unlocked
	// (W5, W6), and Connections those that the waiting or holding process had open.
	Commands    *float64 `json:"commands_per_second,omitempty"`
	Connections *float64 `json:"connections,omitempty"`
	// Bytes and Goroutines are per waiter (W5) or per held lock (W6).
	Bytes      *float64 `json:"bytes,omitempty"`
	Goroutines *float64 `json:"goroutines,omitempty"`
	// Drain is the time from the holder's Unlock until every waiter has had its turn (W5).
	Drain time.Duration `json:"drain_ns,omitempty"`
	// Lost is how many held locks were lost (W6).
	Lost *int64 `json:"lost,omitempty"`

	// Error says why there is no more, or nothing at all.
	Error string `json:"error,omitempty"`
}

// FloorResult is what a floor has shown beside its subject.
type FloorResult struct {
	PerSecond float64  `json:"per_second"`
	Latency   *Latency `json:"latency"`
	Allocs    *float64 `json:"allocs,omitempty"`
	// Ratio is the subject's cost in floors: its median over the floor's (W1), or the floor's rate
	// over its own (W2). 1 is the floor's cost, 2 is twice as slow.
	Ratio float64 `json:"ratio"`
}

// Latency is a distribution of durations. A percentile that no sample lies beyond is left out: of
// 365 samples there is no P99.9, and P99 is 0 for fewer than 100.
type Latency struct {
	Count     int64         `json:"count"`
	Mean      time.Duration `json:"mean_ns"`
	P50       time.Duration `json:"p50_ns"`
	P99       time.Duration `json:"p99_ns,omitempty"`
	Max       time.Duration `json:"max_ns"`
	Quantiles []Quantile    `json:"quantiles"` // rising
}

// Quantile says that a share of Percent in a hundred took no longer than Value.
type Quantile struct {
	Percent float64       `json:"percent"`
	Value   time.Duration `json:"value_ns"`
}

// percents are those of Latency.Quantiles.
var percents = []float64{0, 1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9, 99.99, 100}

// longest bounds what histograms can keep; what takes longer counts as this.
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
	l := &Latency{Count: h.TotalCount(), Mean: time.Duration(h.Mean()), P50: at(50), Max: time.Duration(h.Max())}
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

// shows reports whether a percentile of so many samples has at least one beyond it. The median and
// the extremes need none.
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
