package memcachedbackend

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/bound"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

// benchBound is what the core gives a request of whose caller's context cannot end.
const benchBound = 5 * time.Second

// pair is one acquisition and its release, as the core makes them without contention.
func pair(b *testing.B, d *driver, owner string) {
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

func floor(b *testing.B, d *driver, owner string) {
	b.Helper()
	if err := d.Floor(context.Background(), "bench", owner); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkPair allocates three times on behalf of the core: a request and two contexts.
func BenchmarkPair(b *testing.B) {
	d, owner := openURL(b, testenv.Memcached(b).DirectURL()), raw.NewOwner()
	b.ReportAllocs()
	for b.Loop() {
		pair(b, d, owner)
	}
}

func BenchmarkFloor(b *testing.B) {
	d, owner := openURL(b, testenv.Memcached(b).DirectURL()), raw.NewOwner()
	b.ReportAllocs()
	for b.Loop() {
		floor(b, d, owner)
	}
}

// BenchmarkPairOverFloor takes turns between the two, so that a busy machine slows down both.
func BenchmarkPairOverFloor(b *testing.B) {
	d, owner := openURL(b, testenv.Memcached(b).DirectURL()), raw.NewOwner()
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
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// BenchmarkRenewAll renews 10,000 locks, as is due every ten seconds with a TTL of 30 s: together,
// and one by one, sixteen at a time, as the core would have to do it.
func BenchmarkRenewAll(b *testing.B) {
	d := openURL(b, testenv.Memcached(b).DirectURL())
	grants := make([]*backend.Grant, 10_000)
	for i := range grants {
		req := raw.Request(b, time.Minute)
		req.Key = fmt.Sprint("bench", i)
		grants[i] = raw.Acquire(b, d, req)
	}
	b.Run("together", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for _, r := range d.RenewAll(b.Context(), grants) {
				if r.Err != nil {
					b.Fatal(r.Err)
				}
			}
		}
	})
	b.Run("singly", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			renewEach(b, d, grants)
		}
	})
}

func renewEach(b *testing.B, d *driver, grants []*backend.Grant) {
	b.Helper()
	queue := make(chan *backend.Grant)
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() {
			for g := range queue {
				if _, err := d.Renew(b.Context(), g); err != nil {
					b.Errorf("Renew: %v", err)
				}
			}
		})
	}
	for _, g := range grants {
		queue <- g
	}
	close(queue)
	workers.Wait()
}
