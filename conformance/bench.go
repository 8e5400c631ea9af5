package conformance

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
)

// Bench runs the same benchmarks for every driver. Times are of one machine;
// what lasts are ratios and counts.
func Bench(b *testing.B, mk HarnessMaker) {
	b.Helper()
	b.Run("Pair", func(b *testing.B) { newBench(b, mk).pair() })
	b.Run("Keys", func(b *testing.B) { newBench(b, mk).keys() })
	for _, contention := range []struct {
		name                string
		clients, goroutines int
		handoff             int
	}{
		{"Contention/OneClient", 1, 16, 16},
		{"Contention/OneClientWithoutHandoff", 1, 16, 0},
		{"Contention/Clients", 8, 1, 0},
		{"Contention/ClientsWithHandoff", 4, 8, 16},
	} {
		b.Run(contention.name, func(b *testing.B) {
			newBench(b, mk).contention(contention.clients, contention.goroutines, contention.handoff)
		})
	}
	b.Run("Waiting", func(b *testing.B) { newBench(b, mk).waiting(1000) })
	b.Run("Holding", func(b *testing.B) { newBench(b, mk).holding(10_000) })
}

// bench is what one benchmark works with.
type bench struct {
	*testing.B
	harness Harness
	ctx     context.Context
	name    string
}

func newBench(b *testing.B, mk HarnessMaker) *bench {
	b.Helper()
	h := mk(b)
	b.Cleanup(h.Close)
	ctx := context.Background() //nolint:usetesting // a context that can end costs time and memory of its own
	return &bench{B: b, harness: h, ctx: ctx, name: "bench-" + newOwner()[:8]}
}

// client opens a client, which is closed before the harness.
func (b *bench) client(opts ...dlock.Option) *dlock.Client {
	d, err := b.harness.Driver(b.ctx)
	if err != nil {
		b.Fatalf("Driver: %v", err)
	}
	c, err := dlock.New(d, opts...)
	if err != nil {
		b.Fatalf("New: %v", err)
	}
	b.Cleanup(func() { _ = c.Close() })
	return c
}

// visit locks and unlocks once.
func (b *bench) visit(m dlock.Mutex) bool {
	lease, err := m.Lock(b.ctx)
	if err == nil {
		err = lease.Unlock(b.ctx)
	}
	if err != nil {
		b.Errorf("Lock and Unlock: %v", err)
	}
	return err == nil
}

func (b *bench) mutex(c *dlock.Client, name string) dlock.Mutex {
	m, err := c.Mutex(name)
	if err != nil {
		b.Fatalf("Mutex: %v", err)
	}
	return m
}

// pair is one goroutine on one name that nobody else wants.
func (b *bench) pair() {
	m := b.mutex(b.client(), b.name)
	b.ReportAllocs()
	for b.Loop() {
		if !b.visit(m) {
			return
		}
	}
}

// keys is 64 goroutines on 10,000 names of which none is contended.
func (b *bench) keys() {
	const goroutines, names = 64, 10_000
	c := b.client()
	mutexes := make([]dlock.Mutex, names)
	for i := range mutexes {
		mutexes[i] = b.mutex(c, fmt.Sprintf("%s/%d", b.name, i))
	}
	b.ReportAllocs()
	b.share(goroutines, func(worker int, next func() bool) {
		for i := worker; next(); i += goroutines {
			if !b.visit(mutexes[i%names]) {
				return
			}
		}
	})
}

// share has goroutines do b.N rounds in all: each while next is true.
func (b *bench) share(goroutines int, work func(worker int, next func() bool)) {
	left := atomic.Int64{}
	left.Store(int64(b.N))
	b.ResetTimer()
	var wg sync.WaitGroup
	for worker := range goroutines {
		wg.Go(func() { work(worker, func() bool { return left.Add(-1) >= 0 }) })
	}
	wg.Wait()
	b.StopTimer()
}

// contention is many goroutines of some clients on one name, which they hold for no
// time. Besides the rate it reports how even the shares are: Jain's index, 1
// being perfectly.
func (b *bench) contention(clients, goroutines, handoff int) {
	mutexes := make([]dlock.Mutex, clients)
	for i := range mutexes {
		mutexes[i] = b.mutex(b.client(dlock.WithLocalHandoff(handoff)), b.name)
	}
	shares := make([]float64, clients*goroutines)
	b.share(len(shares), func(worker int, next func() bool) {
		for next() && b.visit(mutexes[worker%clients]) {
			shares[worker]++
		}
	})
	var sum, squares float64
	for _, n := range shares {
		sum, squares = sum+n, squares+n*n
	}
	if squares > 0 {
		b.ReportMetric(sum*sum/(squares*float64(len(shares))), "jain")
	}
}

// usage is what the process has in use.
type usage struct{ bytes, goroutines float64 }

func (b *bench) usage() usage {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return usage{float64(m.HeapAlloc + m.StackInuse), float64(runtime.NumGoroutine())}
}

// report reports what n of something cost since before.
func (b *bench) report(before usage, n int, what string) {
	after := b.usage()
	b.ReportMetric((after.bytes-before.bytes)/float64(n), "B/"+what)
	b.ReportMetric((after.goroutines-before.goroutines)/float64(n), "goroutines/"+what)
}

// waiting has n goroutines of one client wait for a name that another holds, and
// reports what each costs, its own goroutine included. The time is that of the drain:
// from the release until the last one has had the lock.
func (b *bench) waiting(n int) {
	holder, c := b.client(), b.client()
	m := b.mutex(c, b.name)
	for b.Loop() {
		b.StopTimer()
		lease, err := holder.Lock(b.ctx, b.name)
		if err != nil {
			b.Fatalf("Lock: %v", err)
		}
		before := b.usage()
		var waiters sync.WaitGroup
		var begun atomic.Int64
		for range n {
			waiters.Go(func() {
				begun.Add(1)
				b.visit(m)
			})
		}
		for begun.Load() < int64(n) {
			time.Sleep(nap)
		}
		time.Sleep(10 * nap) // so that the last ones stand in the queue
		b.report(before, n, "waiter")
		b.StartTimer()
		if err := lease.Unlock(b.ctx); err != nil {
			b.Fatalf("Unlock: %v", err)
		}
		waiters.Wait()
	}
}

// holding has one client hold n locks, and reports what each costs. The time is
// that of locking and unlocking them all, 64 at a time.
func (b *bench) holding(n int) {
	c := b.client()
	leases := make([]*dlock.Lease, n)
	each := func(fn func(i int) error) {
		var failed atomic.Pointer[error]
		parallel(64, func(worker int) {
			for i := worker; i < n && failed.Load() == nil; i += 64 {
				if err := fn(i); err != nil {
					failed.Store(&err)
				}
			}
		})
		if err := failed.Load(); err != nil {
			b.Fatalf("%v", *err)
		}
	}
	for b.Loop() {
		b.StopTimer()
		before := b.usage()
		b.StartTimer()
		each(func(i int) (err error) {
			leases[i], err = c.Lock(b.ctx, fmt.Sprintf("%s/%d", b.name, i))
			return err
		})
		b.StopTimer()
		b.report(before, n, "lock")
		b.StartTimer()
		each(func(i int) error {
			err := leases[i].Unlock(b.ctx)
			leases[i] = nil
			if errors.Is(err, dlock.ErrUncertain) {
				err = nil // released behind us
			}
			return err
		})
	}
}
