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

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
)

// benchBound is what the core gives a request of whose caller's context cannot end.
const benchBound = 5 * time.Second

// durable starts a server that waits for the disk at every commit, as it does by default.
func durable(b *testing.B, start func(testenv.TB, ...string) *testenv.Server) (url string) {
	b.Helper()
	return start(b, "--innodb-flush-log-at-trx-commit=1").URL
}

// pair is one acquisition and its release, as the core makes them without contention.
func pair(b *testing.B, d *lockDriver, owner string) {
	b.Helper()
	req := &backend.Request{
		Key: "bench", Owner: owner, TTL: 30 * time.Second, Mode: backend.Exclusive, Queue: true, Meta: "bench@host:1",
	}
	ctx := backend.NewBound(context.Background(), benchBound)
	g, err := d.Acquire(ctx, req)
	ctx.Cancel()
	if err != nil {
		b.Fatal(err)
	}
	ctx = backend.NewBound(context.Background(), benchBound)
	err = d.Release(ctx, g)
	ctx.Cancel()
	if err != nil {
		b.Fatal(err)
	}
}

// floor is the least that a lock as a row can be: two commits, one by primary key each, through the same
// pools. No fence, no meta, nobody woken.
func floor(b *testing.B, d *lockDriver, owner string) {
	b.Helper()
	ctx := context.Background()
	_, err := d.conn.main.ExecContext(ctx, "INSERT INTO bench_floor (name, owner, expires) VALUES ('bench', ?, UTC_TIMESTAMP(6)) "+
		"ON DUPLICATE KEY UPDATE owner = ?, expires = UTC_TIMESTAMP(6)", owner, owner)
	if err != nil {
		b.Fatal(err)
	}
	_, err = d.conn.control.ExecContext(ctx, "UPDATE bench_floor SET owner = '' WHERE name = 'bench' AND owner = ?", owner)
	if err != nil {
		b.Fatal(err)
	}
}

func makeFloor(b *testing.B, d *lockDriver) {
	b.Helper()
	_, err := d.conn.main.ExecContext(b.Context(), "CREATE TABLE IF NOT EXISTS bench_floor "+
		"(name VARBINARY(512) PRIMARY KEY, owner VARBINARY(64), expires DATETIME(6)) ENGINE=InnoDB")
	if err != nil {
		b.Fatal(err)
	}
}

// BenchmarkPair allocates three times on behalf of the core: a request and two contexts.
func BenchmarkPair(b *testing.B) {
	for name, start := range starters {
		b.Run(name, func(b *testing.B) {
			url := durable(b, start)
			d, owner := openURL(b, url), newOwner()
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
			url := durable(b, start)
			d, owner := openURL(b, url), newOwner()
			makeFloor(b, d)
			b.ReportAllocs()
			for b.Loop() {
				floor(b, d, owner)
			}
		})
	}
}

// BenchmarkPairOverFloor takes turns between the two, so that a busy machine slows down both.
func BenchmarkPairOverFloor(b *testing.B) {
	for name, start := range starters {
		b.Run(name, func(b *testing.B) {
			url := durable(b, start)
			d, owner := openURL(b, url), newOwner()
			makeFloor(b, d)
			var pairs, floors []time.Duration
			for b.Loop() {
				start := time.Now()
				pair(b, d, owner)
				middle := time.Now()
				floor(b, d, owner)
				pairs, floors = append(pairs, middle.Sub(start)), append(floors, time.Since(middle))
			}
			p, f := median(pairs), median(floors)
			b.ReportMetric(float64(p), "pair-p50-ns")
			b.ReportMetric(float64(f), "floor-p50-ns")
			b.ReportMetric(float64(p)/float64(f), "ratio")
		})
	}
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
	g := acquire(b, holder, request(b, time.Minute))
	granted := make(chan *backend.Grant, 1)
	var end time.Time
	go func() {
		g := lock(b, waiter, request(b, time.Minute), how)
		end = time.Now()
		granted <- g
	}()
	time.Sleep(50*time.Millisecond + rand.N(50*time.Millisecond)) // let it wait, and pollers lose step
	start := time.Now()
	release(b, holder, g)
	release(b, waiter, <-granted)
	return end.Sub(start)
}

// BenchmarkContenders counts the changes of owner among processes that all want one lock, with no hand-off inside
// of a process. An iteration is one critical section.
func BenchmarkContenders(b *testing.B) {
	for name, start := range starters {
		b.Run(name, func(b *testing.B) {
			url := durable(b, start)
			for _, n := range []int{2, 16} {
				for how := range waiters {
					b.Run(fmt.Sprintf("%d/%s", n, how), func(b *testing.B) { contend(b, url, n, how) })
				}
			}
		})
	}
}

func contend(b *testing.B, url string, n int, how string) {
	b.Helper()
	drivers := make([]*lockDriver, n)
	for i := range drivers {
		drivers[i] = openURL(b, url)
	}
	var left, changes atomic.Int64
	var last atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	var wg sync.WaitGroup
	for i, d := range drivers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				g := lock(b, d, request(b, time.Minute), how)
				if last.Swap(int64(i)) != int64(i) {
					changes.Add(1)
				}
				release(b, d, g)
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(changes.Load())/b.Elapsed().Seconds(), "changes/s")
}

// BenchmarkRenewAll renews 10,000 locks, as is due every ten seconds with a TTL of 30 s.
func BenchmarkRenewAll(b *testing.B) {
	for name, start := range starters {
		b.Run(name, func(b *testing.B) {
			url := durable(b, start)
			d := openURL(b, url)
			grants := make([]*backend.Grant, 10_000)
			for i := range grants {
				req := request(b, time.Minute)
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
