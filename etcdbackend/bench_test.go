package etcdbackend

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
)

// pair is one acquisition and its release, as the core makes them without contention.
func pair(b *testing.B, d *driver, owner string) {
	b.Helper()
	req := &backend.Request{
		Key: "bench", Owner: owner, TTL: 30 * time.Second, Mode: backend.Exclusive, Queue: true, Meta: "bench@host:1",
	}
	ctx := context.Background()
	g, err := d.Acquire(ctx, req)
	if err != nil {
		b.Fatal(err)
	}
	if err := d.Release(ctx, g); err != nil {
		b.Fatal(err)
	}
}

func floor(b *testing.B, d *driver) {
	b.Helper()
	if err := d.Floor(context.Background(), "bench", ""); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkPair(b *testing.B) {
	d, owner := openURL(b, testenv.Etcd(b).URL), newOwner()
	b.ReportAllocs()
	for b.Loop() {
		pair(b, d, owner)
	}
}

func BenchmarkFloor(b *testing.B) {
	d := openURL(b, testenv.Etcd(b).URL)
	b.ReportAllocs()
	for b.Loop() {
		floor(b, d)
	}
}

// BenchmarkPairOverFloor takes turns between the two, so that a busy machine slows down both.
func BenchmarkPairOverFloor(b *testing.B) {
	d, owner := openURL(b, testenv.Etcd(b).URL), newOwner()
	var pairs, floors []time.Duration
	for b.Loop() {
		start := time.Now()
		pair(b, d, owner)
		middle := time.Now()
		floor(b, d)
		pairs, floors = append(pairs, middle.Sub(start)), append(floors, time.Since(middle))
	}
	p, f := quantile(pairs, 50), quantile(floors, 50)
	b.ReportMetric(float64(p), "pair-p50-ns")
	b.ReportMetric(float64(f), "floor-p50-ns")
	b.ReportMetric(float64(p)/float64(f), "ratio")
}

func quantile(d []time.Duration, percent int) time.Duration {
	slices.Sort(d)
	return d[(len(d)-1)*percent/100]
}

// BenchmarkOwners is sixteen processes that contend for one name and hold it for no time: how often it
// changes hands, and how long that takes from the release on; beside it the same with etcd's own Mutex.
func BenchmarkOwners(b *testing.B) {
	const contenders = 16
	b.Run("dlock", func(b *testing.B) {
		drivers := make([]*driver, contenders)
		for i := range drivers {
			drivers[i] = openURL(b, testenv.Etcd(b).URL)
		}
		contend(b, contenders, func(i int, granted, releasing func()) error {
			req := &backend.Request{
				Key: b.Name(), Owner: newOwner(), TTL: 30 * time.Second, Mode: backend.Exclusive, Queue: true,
			}
			g, err := wait(drivers[i], req, nil)
			if err != nil {
				return err
			}
			granted()
			releasing()
			return drivers[i].Release(context.Background(), g)
		})
	})
	b.Run("concurrency.Mutex", func(b *testing.B) {
		mutexes := make([]*concurrency.Mutex, contenders)
		for i := range mutexes {
			session, err := concurrency.NewSession(openURL(b, testenv.Etcd(b).URL).client, concurrency.WithTTL(30))
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = session.Close() })
			mutexes[i] = concurrency.NewMutex(session, "/bench/"+strings.ReplaceAll(b.Name(), "/", "-"))
		}
		contend(b, contenders, func(i int, granted, releasing func()) error {
			ctx := context.Background()
			if err := mutexes[i].Lock(ctx); err != nil {
				return err
			}
			granted()
			releasing()
			return mutexes[i].Unlock(ctx)
		})
	})
}

// wait is the core's loop, which goes on whatever happens to its requests. answer is that of an
// attempt already made, or nil.
func wait(d *driver, req *backend.Request, answer *backend.Busy) (*backend.Grant, error) {
	ctx := context.Background()
	for {
		var g *backend.Grant
		var err error
		if answer != nil {
			g, err = d.Wait(ctx, req, answer)
		}
		if g == nil && err == nil {
			g, err = d.Acquire(ctx, req)
		}
		var busy bool
		answer, busy = errors.AsType[*backend.Busy](err)
		switch {
		case g != nil:
			return g, nil
		case errors.Is(err, backend.ErrConflict), errors.Is(err, backend.ErrLost), errors.Is(err, backend.ErrUnsupported):
			return nil, err
		case !busy:
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// contend shares b.N visits among n goroutines.
func contend(b *testing.B, n int, visit func(i int, granted, releasing func()) error) {
	b.Helper()
	var left atomic.Int64
	left.Store(int64(b.N))
	var released atomic.Int64
	began := time.Now()
	handOvers := make([][]time.Duration, n)
	b.ResetTimer()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := visit(i, func() {
					now := time.Since(began)
					handOvers[i] = append(handOvers[i], now-time.Duration(released.Load()))
				}, func() { released.Store(int64(time.Since(began))) }); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "owners/s")
	all := slices.Concat(handOvers...)
	b.ReportMetric(float64(quantile(all, 50)), "hand-over-p50-ns")
	b.ReportMetric(float64(quantile(all, 99)), "hand-over-p99-ns")
}
