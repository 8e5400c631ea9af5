package redisbackend

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// benchServer starts a server that writes no file, because the benchmarks do not measure the disk.
func benchServer(b *testing.B) *testenv.Server {
	b.Helper()
	return testenv.NewRedis(b, "--appendonly", "no")
}

func BenchmarkPairOverFloor(b *testing.B) { raw.PairOverFloor(b, benchServer(b).DirectURL()) }

// BenchmarkServerTime reports the server's time for an uncontended pair, with a caller that would
// wait and without. Minima over many rounds depend little on other work of the machine.
func BenchmarkServerTime(b *testing.B) {
	const pairs = 500
	s := benchServer(b)
	d, c := openURL(b, s.DirectURL()), admin(b, s)
	try, wait := raw.Request(b, time.Minute), raw.Request(b, time.Minute)
	try.Queue = false
	shortest := map[bool]float64{false: math.MaxFloat64, true: math.MaxFloat64}
	for b.Loop() {
		for _, req := range []*backend.Request{try, wait} {
			do(b, c, "config", "resetstat")
			for range pairs {
				raw.Release(b, d, raw.Acquire(b, d, req))
			}
			shortest[req.Queue] = min(shortest[req.Queue], evalTime(b, c)/pairs)
		}
	}
	b.ReportMetric(shortest[false], "try-µs")
	b.ReportMetric(shortest[true], "wait-µs")
	b.ReportMetric(shortest[true]/shortest[false], "ratio")
}

// evalTime returns the time in µs that the server has spent in scripts since the last reset of its
// statistics.
func evalTime(b *testing.B, c *redis.Client) float64 {
	b.Helper()
	info, err := c.Info(b.Context(), "commandstats").Result()
	if err != nil {
		b.Fatal(err)
	}
	_, stat, _ := strings.Cut(info, "cmdstat_evalsha:")
	var calls, usec float64
	if _, err := fmt.Sscanf(stat, "calls=%f,usec=%f", &calls, &usec); err != nil {
		b.Fatalf("%v in %q", err, info)
	}
	return usec
}

// BenchmarkRenewAll renews 10,000 locks, with a script for each batch.
func BenchmarkRenewAll(b *testing.B) {
	d := openURL(b, benchServer(b).DirectURL())
	raw.RenewAll(b, d, raw.Grants(b, d))
}
