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
	const ttl, jitter = 15 * time.Second, 20 * time.Millisecond
	const shortTTL = 50 * time.Millisecond
	for _, test := range []struct{ ttl, free, pause, shortest, longest time.Duration }{
		{ttl, 0, time.Second, time.Second, time.Second},
		{ttl, 0, 0, time.Millisecond, time.Millisecond},
		{ttl, time.Second - 1, time.Second, time.Second - 1, time.Second + jitter},
		{ttl, time.Second, time.Second, time.Second, time.Second},
		{ttl, time.Minute, time.Second, time.Second, time.Second},
		{ttl, 1, time.Second, 1, jitter},
		{shortTTL, 1, time.Second, 1, shortTTL / 10},
	} {
		for range 100 {
			got := untilFree(&backend.Busy{RetryAfter: test.free}, test.pause, test.ttl)
			if got < test.shortest || got > test.longest {
				t.Errorf("free after %v: a pause of %v becomes %v, want %v to %v",
					test.free, test.pause, got, test.shortest, test.longest)
				break
			}
		}
	}
}
