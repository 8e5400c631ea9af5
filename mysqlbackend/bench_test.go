package mysqlbackend

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/bench"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// onBoth runs a benchmark on MySQL and on MariaDB. The server waits for the disk at every commit,
// as servers do by default. It has more connections than the default, one pool for each contender.
func onBoth(b *testing.B, run func(b *testing.B, url string)) {
	b.Helper()
	for name, waits := range map[string]string{
		"mysql": "--innodb-flush-method=O_DIRECT", "mariadb": "--skip-debug-no-sync",
	} {
		b.Run(name, func(b *testing.B) {
			run(b, starters[name](b, waits, "--max-connections=1000").DirectURL())
		})
	}
}

func BenchmarkPairOverFloor(b *testing.B) { onBoth(b, raw.PairOverFloor) }

// BenchmarkSessionOverFloor compares a pair with the floor, for locks of a session.
func BenchmarkSessionOverFloor(b *testing.B) {
	onBoth(b, func(b *testing.B, url string) {
		b.Helper()
		raw.PairOverFloor(b, url+"&lock=session")
	})
}

// BenchmarkContenders compares ways to wait, among connections that contend for one lock without
// hand-offs inside a process. "lock" is the driver's own: the server wakes the waiter. "poll" polls
// as the core does without wake-ups. "poll10ms" is the reference: it polls the same row at a fixed
// interval, as many programs do.
func BenchmarkContenders(b *testing.B) {
	onBoth(b, func(b *testing.B, url string) {
		b.Helper()
		ways := []bench.Subject{
			raw.Subject("lock", url, raw.ByServer),
			raw.Subject("poll", url, polling(backoff)),
			raw.Subject("poll10ms", url, polling(func(int) time.Duration {
				return 10 * time.Millisecond
			})),
		}
		for _, n := range []int{2, 16} {
			b.Run(fmt.Sprint(n), func(b *testing.B) {
				raw.Bench(b, "W3", bench.Config{Contenders: []int{n}}, ways...)
			})
		}
	})
}

// backoff is the core's pause between two polls, with jitter.
func backoff(n int) time.Duration {
	const shortest, longest = 5 * time.Millisecond, 250 * time.Millisecond
	return shortest + rand.N(min(longest-shortest, shortest<<min(n, 6)))
}

// polling waits for an interval that depends on the number of earlier waits.
func polling(interval func(n int) time.Duration) raw.Waiting {
	return func(
		_ context.Context, _ backend.Driver, _ *backend.Request, _ *backend.Busy, n int,
	) (*backend.Grant, error) {
		time.Sleep(interval(n))
		return nil, nil
	}
}

// BenchmarkRenewAll renews 10,000 locks, with a statement for each batch of rows.
func BenchmarkRenewAll(b *testing.B) {
	onBoth(b, func(b *testing.B, url string) {
		b.Helper()
		d := openURL(b, url)
		raw.RenewAll(b, d, raw.Grants(b, d))
	})
}
