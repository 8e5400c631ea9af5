package mysqlbackend

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/bound"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// benchBound is what the core gives a request of whose caller's context cannot end.
const benchBound = 5 * time.Second

// durable starts a server that waits for the disk at every commit, as it does by default, and returns its URL.
func durable(b *testing.B, start func(testenv.TB, ...string) *testenv.Server) string {
	b.Helper()
	return start(b, "--innodb-flush-log-at-trx-commit=1").DirectURL()
}

// pair is one acquisition and its release, as the core makes them without contention.
func pair(b *testing.B, d *lockDriver, owner string) {
	b.Helper()
	req := &backend.Request{
		Key: "bench", Owner: owner, TTL: 30 * time.Second, Mode: backend.Exclusive, Queue: true, Meta: "bench@host:1",
	}
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

func floor(b *testing.B, d *lockDriver, owner string) {
	b.Helper()
	if err := d.Floor(context.Background(), "bench", owner); err != nil {
		b.Fatal(err)
	}
}

// floorsPerSecond is how many floors one client alone makes.
func floorsPerSecond(b *testing.B, d *lockDriver) float64 {
	b.Helper()
	n, start := 0, time.Now()
	for ; time.Since(start) < turn; n++ {
		floor(b, d, "bench")
	}
	return float64(n) / time.Since(start).Seconds()
}

// BenchmarkPair allocates three times on behalf of the core: a request and two contexts.
func BenchmarkPair(b *testing.B) {
	for name, start := range starters {
		b.Run(name, func(b *testing.B) {
			d, owner := openURL(b, durable(b, start)), raw.NewOwner()
			b.ReportAllocs()
			for b.Loop() {
				pair(b, d, owner)
			}
		})
	}
}

func BenchmarkFloor(b *testing.B) {
	for name, start := range starters {
		b.Run(name, func(b *testing.B) {
			d := openURL(b, durable(b, start))
			b.ReportAllocs()
			for b.Loop() {
				floor(b, d, "bench")
			}
		})
	}
}

// BenchmarkPairOverFloor takes turns between the two, so that a busy machine slows down both; an iteration is a turn of
// each.
func BenchmarkPairOverFloor(b *testing.B) {
	for name, start := range starters {
		b.Run(name, func(b *testing.B) {
			d, owner := openURL(b, durable(b, start)), raw.NewOwner()
			var pairs, floors []time.Duration
			for b.Loop() {
				pairs = append(pairs, timed(func() { pair(b, d, owner) })...)
				floors = append(floors, timed(func() { floor(b, d, owner) })...)
			}
			ours, least := median(pairs), median(floors)
			b.ReportMetric(float64(ours), "pair-p50-ns")
			b.ReportMetric(float64(least), "floor-p50-ns")
			b.ReportMetric(float64(ours)/float64(least), "ratio")
		})
	}
}

// timed runs fn many times. It is as warm as its turn is long, and so it is in both cases.
func timed(fn func()) []time.Duration {
	times := make([]time.Duration, 50)
	for i := range times {
		start := time.Now()
		fn()
		times[i] = time.Since(start)
	}
	return times
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// waiters are the ways to wait: woken, as the core polls where the server does not wake, and as many poll.
var waiters = map[string]func(context.Context, *lockDriver, *backend.Request, *backend.Busy, int) error{
	"lock": func(ctx context.Context, d *lockDriver, req *backend.Request, answer *backend.Busy, _ int) error {
		_, err := d.Wait(ctx, req, answer)
		return err
	},
	"poll": func(ctx context.Context, _ *lockDriver, _ *backend.Request, _ *backend.Busy, n int) error {
		return pause(ctx, 5*time.Millisecond+rand.N(min(245*time.Millisecond, 5*time.Millisecond<<min(n, 6))))
	},
	"poll10ms": func(ctx context.Context, _ *lockDriver, _ *backend.Request, _ *backend.Busy, _ int) error {
		return pause(ctx, 10*time.Millisecond)
	},
}

// lock is the core's loop.
func lock(b *testing.B, d *lockDriver, req *backend.Request, how string) *backend.Grant {
	b.Helper()
	for n := 0; ; n++ {
		g, err := d.Acquire(b.Context(), req)
		if err == nil {
			return g
		}
		answer, ok := errors.AsType[*backend.Busy](err)
		if ok {
			err = waiters[how](b.Context(), d, req, answer, n)
		}
		if err != nil && !errors.Is(err, backend.ErrUnavailable) {
			b.Error(err)
			return nil
		}
	}
}

// BenchmarkHandOver is the time from the beginning of a release to the grant of a waiter in another process.
func BenchmarkHandOver(b *testing.B) {
	for name, start := range starters {
		b.Run(name, func(b *testing.B) {
			url := durable(b, start)
			for how := range waiters {
				b.Run(how, func(b *testing.B) {
					holder, waiter := openURL(b, url), openURL(b, url)
					var times []time.Duration
					for b.Loop() {
						times = append(times, handOver(b, holder, waiter, how))
					}
					b.ReportMetric(float64(median(times)), "p50-ns")
				})
			}
		})
	}
}

func handOver(b *testing.B, holder, waiter *lockDriver, how string) time.Duration {
	b.Helper()
	g := acquire(b, holder, raw.Request(b, time.Minute))
	granted := make(chan *backend.Grant, 1)
	var end time.Time
	go func() {
		g := lock(b, waiter, raw.Request(b, time.Minute), how)
		end = time.Now()
		granted <- g
	}()
	time.Sleep(50*time.Millisecond + rand.N(50*time.Millisecond)) // let it wait, and pollers lose step
	start := time.Now()
	raw.Release(b, holder, g)
	raw.Release(b, waiter, <-granted)
	return end.Sub(start)
}

// turn is how long one way to wait is used before it is another one's turn.
const turn = 300 * time.Millisecond

// BenchmarkContenders counts the changes of owner among processes that all want one lock and hold it for no time, with
// no hand-off inside of a process. Poll10ms is the yardstick: the same row, asked for every 10 ms. The ways take turns,
// so that a busy machine slows down all of them; an iteration is a turn of each.
func BenchmarkContenders(b *testing.B) {
	for name, start := range starters {
		b.Run(name, func(b *testing.B) {
			url := durable(b, start)
			for _, n := range []int{2, 16} {
				b.Run(fmt.Sprint(n), func(b *testing.B) { compare(b, url, n) })
			}
		})
	}
}

func compare(b *testing.B, url string, n int) {
	b.Helper()
	drivers := make([]*lockDriver, n)
	for i := range drivers {
		drivers[i] = openURL(b, url)
	}
	alone := openURL(b, url)
	rates := make(map[string][]float64)
	for b.Loop() {
		for how := range waiters {
			rates[how] = append(rates[how], contend(b, drivers, how))
		}
		rates["floor"] = append(rates["floor"], floorsPerSecond(b, alone))
	}
	for how, r := range rates {
		slices.Sort(r)
		rates[how] = r[len(r)/2:]
		b.ReportMetric(rates[how][0], how+"/s")
	}
	b.ReportMetric(rates["lock"][0]/rates["poll10ms"][0], "ratio")
}

// contend returns the changes of owner in a second.
func contend(b *testing.B, drivers []*lockDriver, how string) float64 {
	b.Helper()
	var changes, last atomic.Int64
	start := time.Now()
	var wg sync.WaitGroup
	for i, d := range drivers {
		wg.Go(func() {
			for time.Since(start) < turn {
				g := lock(b, d, raw.Request(b, time.Minute), how)
				if last.Swap(int64(i)) != int64(i) {
					changes.Add(1)
				}
				raw.Release(b, d, g)
			}
		})
	}
	wg.Wait()
	return float64(changes.Load()) / time.Since(start).Seconds()
}

// BenchmarkRenewAll renews 10,000 locks, as is due every ten seconds with a TTL of 30 s.
func BenchmarkRenewAll(b *testing.B) {
	for name, start := range starters {
		b.Run(name, func(b *testing.B) {
			d := openURL(b, durable(b, start))
			grants := make([]*backend.Grant, 10_000)
			for i := range grants {
				req := raw.Request(b, time.Minute)
				req.Key = fmt.Sprint("bench", i)
				grants[i] = &backend.Grant{Request: *req}
			}
			var wg sync.WaitGroup
			for batch := range slices.Chunk(grants, len(grants)/mainConns) {
				wg.Go(func() {
					for _, g := range batch {
						acquire(b, d, &g.Request)
					}
				})
			}
			wg.Wait()
			b.ReportAllocs()
			for b.Loop() {
				for _, r := range d.RenewAll(b.Context(), grants) {
					if r.Err != nil {
						b.Fatal(r.Err)
					}
				}
			}
		})
	}
}

// BenchmarkHeld counts what 10,000 held locks cost the server while their leases are renewed. An iteration is a
// third of a TTL; a renewal of all is due in each.
func BenchmarkHeld(b *testing.B) {
	for name, start := range starters {
		b.Run(name, func(b *testing.B) {
			s := start(b)
			client, err := dlock.New(openURL(b, s.URL))
			if err != nil {
				b.Fatal(err)
			}
			defer client.Close()
			leases := hold(b, client, 10_000)
			db := database(b, s, "")
			before := status(b, db, "Questions")
			for b.Loop() {
				time.Sleep(10 * time.Second)
			}
			b.ReportMetric(float64(status(b, db, "Questions")-before)/b.Elapsed().Seconds(), "statements/s")
			for _, l := range leases {
				if l.Err() != nil {
					b.Errorf("%s: %v", l.Name(), l.Err())
				}
			}
		})
	}
}

// hold locks n names, with the default TTL of 30 s.
func hold(b *testing.B, client *dlock.Client, n int) []*dlock.Lease {
	b.Helper()
	leases := make([]*dlock.Lease, n)
	var wg sync.WaitGroup
	for worker := range mainConns {
		wg.Go(func() {
			for i := worker; i < n; i += mainConns {
				var err error
				if leases[i], err = client.Lock(b.Context(), fmt.Sprint("bench", i)); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if b.Failed() {
		b.FailNow()
	}
	return leases
}
