package bench

import (
	"slices"
	"testing"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// A percentile is shown only if at least one sample is beyond it.
func TestPercentilesNeedSamples(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		samples int
		percent float64
		shown   bool
	}{
		{1, 50, true},
		{1, 100, true},
		{1, 99, false},
		{99, 99, false},
		{100, 99, true},
		{99, 1, false},
		{100, 1, true},
		{999, 99.9, false},
		{1000, 99.9, true},
	} {
		h := hdrhistogram.New(1, 1000, 3)
		for range row.samples {
			_ = h.RecordValue(5)
		}
		l := latencyOf(h)
		has := slices.ContainsFunc(l.Quantiles, func(q Quantile) bool {
			return q.Percent == row.percent
		})
		if has != row.shown || l.Count != int64(row.samples) {
			t.Errorf("%d samples: %v has percentile %v: %v", row.samples, l.Count, row.percent, has)
		}
		if p99 := l.P99 != 0; row.percent == 99 && p99 != row.shown {
			t.Errorf("%d samples: P99 = %v", row.samples, l.P99)
		}
	}
}
