package etcdbackend

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
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
	d, owner := openURL(b, testenv.Etcd(b).DirectURL()), raw.NewOwner()
	b.ReportAllocs()
	for b.Loop() {
		pair(b, d, owner)
	}
}

func BenchmarkFloor(b *testing.B) {
	d := openURL(b, testenv.Etcd(b).DirectURL())
	b.ReportAllocs()
	for b.Loop() {
		floor(b, d)
	}
}

// BenchmarkPairOverFloor takes turns between the two, so that a busy machine slows down both.
func BenchmarkPairOverFloor(b *testing.B) {
	d, owner := openURL(b, testenv.Etcd(b).DirectURL()), raw.NewOwner()
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

const (
	contenders = 16
	visits     = 50 * contenders // of one turn
)

// BenchmarkOwners is sixteen processes that contend for one name and hold it for no time: how often it changes hands,
// and how long that takes from the release on; beside it the same with etcd's own Mutex. They take turns, so
// that a busy machine slows down both.
func BenchmarkOwners(b *testing.B) {
	s := testenv.Etcd(b)
	drivers, mutexes := make([]*driver, contenders), make([]*concurrency.Mutex, contenders)
	for i := range contenders {
		drivers[i] = openURL(b, s.DirectURL())
		session, err := concurrency.NewSession(openURL(b, s.DirectURL()).client, concurrency.WithTTL(30))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = session.Close() })
		mutexes[i] = concurrency.NewMutex(session, "/bench/owners")
	}
	var ours, theirs contention
	for b.Loop() {
		ours.turn(b, func(i int, granted, releasing func()) error {
			req := &backend.Request{
				Key: b.Name(), Owner: raw.NewOwner(), TTL: 30 * time.Second, Mode: backend.Exclusive, Queue: true,
			}
			g, err := wait(drivers[i], req, nil)
			if err != nil {
				return err
			}
			granted()
			releasing()
			return drivers[i].Release(context.Background(), g)
		})
		theirs.turn(b, func(i int, granted, releasing func()) error {
			ctx := context.Background()
			if err := mutexes[i].Lock(ctx); err != nil {
				return err
			}
			granted()
			releasing()
			return mutexes[i].Unlock(ctx)
		})
	}
	ours.report(b, "")
	theirs.report(b, "Mutex-")
	b.ReportMetric(theirs.took.Seconds()/ours.took.Seconds(), "ratio")
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

// contention is what the turns of one of the two have shown.
type contention struct {
	visits    int
	took      time.Duration
	handOvers []time.Duration
}

// turn shares visits among the contenders.
func (c *contention) turn(b *testing.B, visit func(i int, granted, releasing func()) error) {
	b.Helper()
	var left, released atomic.Int64
	left.Store(visits)
	began := time.Now()
	handOvers := make([][]time.Duration, contenders)
	var wg sync.WaitGroup
	for i := range contenders {
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
	c.visits += visits
	c.took += time.Since(began)
	c.handOvers = slices.Concat(append(handOvers, c.handOvers)...)
}

func (c *contention) report(b *testing.B, whose string) {
	b.Helper()
	b.ReportMetric(float64(c.visits)/c.took.Seconds(), whose+"owners/s")
	b.ReportMetric(float64(quantile(c.handOvers, 50)), whose+"hand-over-p50-ns")
	b.ReportMetric(float64(quantile(c.handOvers, 99)), whose+"hand-over-p99-ns")
}
