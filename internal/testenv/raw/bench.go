package raw

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/bench"
)

// Bench runs a workload of package bench as the sub-benchmark id, so that its caller runs once and
// starts a server once.
func Bench(b *testing.B, id string, config bench.Config, subjects ...bench.Subject) {
	b.Helper()
	w, ok := bench.Find(id)
	if !ok {
		b.Fatalf("there is no workload %s", id)
	}
	b.Run(id, func(b *testing.B) { bench.Benchmark(b, b.N, w, config, subjects...) })
}

// PairOverFloor runs W1 without the core: a pair of Acquire and Release in turns with the floor of
// the driver. Its metrics have the latency and the allocations of both, and the ratio.
func PairOverFloor(b *testing.B, url string) {
	b.Helper()
	Bench(b, "W1", bench.Config{}, Subject("driver", url, ByServer))
}

// renewed is the number of locks that RenewAll renews. With a TTL of 30 s the core renews them
// every ten seconds.
const renewed = 10_000

// Grants acquires 10,000 locks, for RenewAll.
func Grants(b *testing.B, d backend.Driver) []*backend.Grant {
	b.Helper()
	const workers = 8
	prefix, grants := "bench/"+NewOwner()+"/", make([]*backend.Grant, renewed)
	var running sync.WaitGroup
	for worker := range workers {
		running.Go(func() {
			for i := worker; i < renewed; i += workers {
				req := Request(b, time.Minute)
				req.Key = fmt.Sprint(prefix, i)
				var err error
				if grants[i], err = Lock(b.Context(), d, req, nil, ByServer); err != nil {
					b.Errorf("Acquire: %v", err)
					return
				}
			}
		})
	}
	running.Wait()
	if b.Failed() {
		b.FailNow()
	}
	return grants
}

// RenewAll measures the renewal of grants in batches.
func RenewAll(b *testing.B, d backend.BatchRenewer, grants []*backend.Grant) {
	b.Helper()
	b.ReportAllocs()
	for b.Loop() {
		for _, r := range d.RenewAll(b.Context(), grants) {
			if r.Err != nil {
				b.Fatal(r.Err)
			}
		}
	}
}

// renewers is how many renewals RenewEach has under way at a time, as the core has.
const renewers = 16

// RenewEach measures the renewal of grants one by one, as the core renews the grants of a driver
// that is no BatchRenewer.
func RenewEach(b *testing.B, d backend.Driver, grants []*backend.Grant) {
	b.Helper()
	b.ReportAllocs()
	for b.Loop() {
		renewEach(b, d, grants)
	}
}

// renewEach renews each grant once.
func renewEach(b *testing.B, d backend.Driver, grants []*backend.Grant) {
	b.Helper()
	queue := make(chan *backend.Grant)
	var running sync.WaitGroup
	for range renewers {
		running.Go(func() {
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
	running.Wait()
}
