package memcachedbackend

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
)

// benchBound is what the core gives a request of whose caller's context cannot end.
const benchBound = 5 * time.Second

// pair is one acquisition and its release, as the core makes them without contention.
func pair(b *testing.B, d *driver, owner string) {
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

// floor is the same four commands through a bare client: add, incr, gets, cas.
func floor(b *testing.B, c *memcache.Client, value []byte) {
	b.Helper()
	if err := c.Add(&memcache.Item{Key: "bench-floor", Value: value, Expiration: 31}); err != nil {
		b.Fatal(err)
	}
	if _, err := c.Increment("bench-counter", 1); err != nil {
		b.Fatal(err)
	}
	item, err := c.Get("bench-floor")
	if err != nil {
		b.Fatal(err)
	}
	item.Expiration = -1
	if err := c.CompareAndSwap(item); err != nil {
		b.Fatal(err)
	}
}

// floorClient returns a bare client and a value as long as that of a lock.
func floorClient(b *testing.B, s *testenv.Server, owner string) (*memcache.Client, []byte) {
	b.Helper()
	c := memcache.New(s.Addr)
	b.Cleanup(func() { _ = c.Close() })
	counter := &memcache.Item{Key: "bench-counter", Value: strconv.AppendInt(nil, time.Now().UnixMicro(), 10)}
	if err := c.Set(counter); err != nil {
		b.Fatal(err)
	}
	req := &backend.Request{Key: "bench", Owner: owner, TTL: 30 * time.Second, Meta: "bench@host:1"}
	return c, newRecord(req, 1, time.Now()).encode()
}

// BenchmarkPair allocates three times on behalf of the core: a request and two contexts.
func BenchmarkPair(b *testing.B) {
	d, owner := openURL(b, testenv.Memcached(b).URL), newOwner()
	b.ReportAllocs()
	for b.Loop() {
		pair(b, d, owner)
	}
}

func BenchmarkFloor(b *testing.B) {
	c, value := floorClient(b, testenv.Memcached(b), newOwner())
	b.ReportAllocs()
	for b.Loop() {
		floor(b, c, value)
	}
}

// BenchmarkPairOverFloor takes turns between the two, so that a busy machine slows down both.
func BenchmarkPairOverFloor(b *testing.B) {
	s, owner := testenv.Memcached(b), newOwner()
	d := openURL(b, s.URL)
	c, value := floorClient(b, s, owner)
	var pairs, floors []time.Duration
	for b.Loop() {
		start := time.Now()
		pair(b, d, owner)
		middle := time.Now()
		floor(b, c, value)
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
	d := openURL(b, testenv.Memcached(b).URL)
	grants := make([]*backend.Grant, 10_000)
	for i := range grants {
		req := request(b, time.Minute)
		req.Key = fmt.Sprint("bench", i)
		grants[i] = acquire(b, d, req)
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
