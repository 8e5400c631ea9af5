package zkbackend

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

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

func floor(b *testing.B, d *driver) {
	b.Helper()
	if err := d.Floor(context.Background(), "bench", ""); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkPair(b *testing.B) {
	d, owner := openURL(b, testenv.ZooKeeper(b).DirectURL()), raw.NewOwner()
	b.ReportAllocs()
	for b.Loop() {
		pair(b, d, owner)
	}
}

func BenchmarkFloor(b *testing.B) {
	d := openURL(b, testenv.ZooKeeper(b).DirectURL())
	b.ReportAllocs()
	for b.Loop() {
		floor(b, d)
	}
}

// BenchmarkPairOverFloor takes turns between the two, so that a busy machine slows down both.
func BenchmarkPairOverFloor(b *testing.B) {
	d, owner := openURL(b, testenv.ZooKeeper(b).DirectURL()), raw.NewOwner()
	var pairs, floors []time.Duration
	for b.Loop() {
		start := time.Now()
		pair(b, d, owner)
		middle := time.Now()
		floor(b, d)
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

const (
	contenders = 16
	visits     = 50 * contenders // of one turn
)

// BenchmarkOwners is how often a lock changes its owner among 16 contenders with a connection each, by us
// and by the client library's own lock. They take turns, so that a busy machine slows down both.
func BenchmarkOwners(b *testing.B) {
	s := testenv.ZooKeeper(b)
	drivers, conns := make([]*driver, contenders), make([]*zk.Conn, contenders)
	for i := range contenders {
		drivers[i], conns[i] = openURL(b, s.URL), admin(b, s.Addr)
	}
	var ours, theirs time.Duration
	turns := 0
	for b.Loop() {
		turns++
		ours += contend(b, func(i int) error { return visit(b.Context(), drivers[i]) })
		theirs += contend(b, func(i int) error {
			l := zk.NewLock(conns[i], "/bench-lock", zk.WorldACL(zk.PermAll))
			if err := l.Lock(); err != nil {
				return err
			}
			return l.Unlock()
		})
	}
	b.ReportMetric(float64(turns*visits)/ours.Seconds(), "owners/s")
	b.ReportMetric(float64(turns*visits)/theirs.Seconds(), "zk.Lock-owners/s")
	b.ReportMetric(theirs.Seconds()/ours.Seconds(), "ratio")
}

// visit is the core's loop.
func visit(ctx context.Context, d *driver) error {
	req := &backend.Request{
		Key: "owners", Owner: raw.NewOwner(), TTL: 30 * time.Second, Mode: backend.Exclusive, Queue: true, Meta: "bench@host:1",
	}
	for {
		g, err := d.Acquire(ctx, req)
		if err == nil {
			return d.Release(ctx, g)
		}
		answer, ok := errors.AsType[*backend.Busy](err)
		if !ok {
			return err
		}
		if _, err := d.Wait(ctx, req, answer); err != nil {
			return err
		}
	}
}

// contend shares the visits of one turn among the contenders, and returns how long they took.
func contend(b *testing.B, visit func(i int) error) time.Duration {
	b.Helper()
	var left atomic.Int64
	left.Store(visits)
	began := time.Now()
	var wg sync.WaitGroup
	for i := range contenders {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := visit(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(began)
}
