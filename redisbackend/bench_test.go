package redisbackend

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/bound"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// benchBound is what the core gives a request of whose caller's context cannot end.
const benchBound = 5 * time.Second

// benchRequest is an uncontended acquisition as the core makes it.
func benchRequest(owner string) *backend.Request {
	return &backend.Request{
		Key: "bench", Owner: owner, TTL: 30 * time.Second, Mode: backend.Exclusive, Queue: true, Meta: "bench@host:1",
	}
}

// benchURL is a server that writes no file, as the disk is not what is measured.
func benchURL(b *testing.B) string {
	b.Helper()
	return testenv.NewRedis(b, "--appendonly", "no").DirectURL()
}

// pair is one acquisition and its release, as the core makes them without contention.
func pair(b *testing.B, d *driver, req *backend.Request) {
	b.Helper()
	ctx := bound.New(context.Background(), benchBound)
	g, err := d.Acquire(ctx, req)
	ctx.Cancel()
	if err != nil {
		b.Fatal(err)
	}
	ctx = bound.New(context.Background(), benchBound)
	err = d.Release(ctx, g)
	ctx.Cancel()
	if err != nil {
		b.Fatal(err)
	}
}

func floor(b *testing.B, d *driver, owner string) {
	b.Helper()
	if err := d.Floor(context.Background(), "bench", owner); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkPair allocates three times on behalf of the core: a request and two contexts.
func BenchmarkPair(b *testing.B) {
	d, owner := openURL(b, benchURL(b)), raw.NewOwner()
	b.ReportAllocs()
	for b.Loop() {
		pair(b, d, benchRequest(owner))
	}
}

func BenchmarkFloor(b *testing.B) {
	d, owner := openURL(b, benchURL(b)), raw.NewOwner()
	b.ReportAllocs()
	for b.Loop() {
		floor(b, d, owner)
	}
}

// BenchmarkPairOverFloor takes turns between the two, so that a busy machine slows down both.
func BenchmarkPairOverFloor(b *testing.B) {
	d, owner := openURL(b, benchURL(b)), raw.NewOwner()
	var pairs, floors []time.Duration
	for b.Loop() {
		start := time.Now()
		pair(b, d, benchRequest(owner))
		middle := time.Now()
		floor(b, d, owner)
		pairs, floors = append(pairs, middle.Sub(start)), append(floors, time.Since(middle))
	}
	p, f := median(pairs), median(floors)
	b.ReportMetric(float64(p), "pair-p50-ns")
	b.ReportMetric(float64(f), "floor-p50-ns")
	b.ReportMetric(float64(p)/float64(f), "ratio")
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// BenchmarkServerTime reports the server's time for an uncontended pair, fair and not. Minima of many
// rounds depend little on what else the machine does.
func BenchmarkServerTime(b *testing.B) {
	const pairs = 500
	s := testenv.NewRedis(b, "--appendonly", "no")
	d, c := openURL(b, s.DirectURL()), admin(b, s)
	unfair, fair := benchRequest(raw.NewOwner()), benchRequest(raw.NewOwner())
	fair.Fair = true
	least := map[bool]float64{false: math.MaxFloat64, true: math.MaxFloat64}
	for b.Loop() {
		for _, req := range []*backend.Request{unfair, fair} {
			do(b, c, "config", "resetstat")
			for range pairs {
				pair(b, d, req)
			}
			least[req.Fair] = min(least[req.Fair], evalTime(b, c)/pairs)
		}
	}
	b.ReportMetric(least[false], "unfair-µs")
	b.ReportMetric(least[true], "fair-µs")
	b.ReportMetric(least[true]/least[false], "ratio")
}

// evalTime returns how many µs the server has spent in scripts since its statistics were reset.
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

// BenchmarkHandOver is the time from the beginning of a release to the grant of a waiter in
// another process.
func BenchmarkHandOver(b *testing.B) {
	for _, fair := range []bool{false, true} {
		b.Run(fmt.Sprintf("fair=%v", fair), func(b *testing.B) {
			url := benchURL(b)
			holder, waiter := openURL(b, url), openURL(b, url)
			var times []time.Duration
			for b.Loop() {
				times = append(times, handOver(b, holder, waiter, fair))
			}
			b.ReportMetric(float64(median(times)), "p50-ns")
		})
	}
}

func handOver(b *testing.B, holder, waiter *driver, fair bool) time.Duration {
	b.Helper()
	g := raw.Acquire(b, holder, raw.Request(b, time.Minute))
	req := raw.Request(b, time.Minute)
	req.Fair = fair
	first := raw.Busy(b, waiter, req)
	granted := make(chan *backend.Grant, 1)
	var end time.Time
	go func() {
		g := await(b, waiter, req, first)
		end = time.Now()
		granted <- g
	}()
	time.Sleep(200 * time.Microsecond) // let it wait
	start := time.Now()
	raw.Release(b, holder, g)
	raw.Release(b, waiter, <-granted)
	return end.Sub(start)
}

// await is the core's loop.
func await(b *testing.B, d *driver, req *backend.Request, answer *backend.Busy) *backend.Grant {
	b.Helper()
	for {
		if g, err := d.Wait(b.Context(), req, answer); err != nil {
			b.Error(err)
			return nil
		} else if g != nil {
			return g
		}
		g, err := d.Acquire(b.Context(), req)
		if err == nil {
			return g
		}
		var ok bool
		if answer, ok = errors.AsType[*backend.Busy](err); !ok {
			b.Error(err)
			return nil
		}
	}
}

// BenchmarkRenewAll renews 10,000 locks, as is due every ten seconds with a TTL of 30 s.
func BenchmarkRenewAll(b *testing.B) {
	d := openURL(b, benchURL(b))
	grants := make([]*backend.Grant, 10_000)
	for i := range grants {
		req := raw.Request(b, time.Minute)
		req.Key = fmt.Sprint("bench", i)
		grants[i] = raw.Acquire(b, d, req)
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, r := range d.RenewAll(b.Context(), grants) {
			if r.Err != nil {
				b.Fatal(r.Err)
			}
		}
	}
}
