package engine

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
)

// TestUntilFree checks that a pause that is longer than the holder's term ends just after the term.
// It does not shorten other pauses, and none is shorter than 1 ms.
func TestUntilFree(t *testing.T) {
	t.Parallel()
	const jitter = 20 * time.Millisecond
	for _, test := range []struct{ free, pause, shortest, longest time.Duration }{
		{0, time.Second, time.Second, time.Second},
		{0, 0, time.Millisecond, time.Millisecond},
		{time.Second - 1, time.Second, time.Second - 1, time.Second + jitter},
		{time.Second, time.Second, time.Second, time.Second},
		{time.Minute, time.Second, time.Second, time.Second},
		{1, time.Second, 1, jitter},
	} {
		for range 100 {
			got := untilFree(&backend.Busy{RetryAfter: test.free}, test.pause)
			if got < test.shortest || got > test.longest {
				t.Errorf("free after %v: a pause of %v becomes %v, want %v to %v",
					test.free, test.pause, got, test.shortest, test.longest)
				break
			}
		}
	}
}
