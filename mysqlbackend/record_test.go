package mysqlbackend

import (
	"math"
	"testing"
	"time"
)

// TestCeilMicros checks that terms are rounded up, and that the longest one does not wrap.
func TestCeilMicros(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]int64{
		time.Microsecond: 1, time.Microsecond + 1: 2, math.MaxInt64: math.MaxInt64 / 1000,
	} {
		if got := ceilMicros(d); got != want {
			t.Errorf("ceilMicros(%d) is %d, want %d", d, got, want)
		}
	}
}
