package memcachedbackend

import (
	"sync"
	"testing"

	"github.com/dlock-go/dlock/backend"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

func BenchmarkPairOverFloor(b *testing.B) { raw.PairOverFloor(b, testenv.Memcached(b).DirectURL()) }

// BenchmarkRenewAll renews 10,000 locks together, and one by one, sixteen at a time, as the core
// would do without RenewAll.
func BenchmarkRenewAll(b *testing.B) {
	d := openURL(b, testenv.Memcached(b).DirectURL())
	grants := raw.Grants(b, d)
	b.Run("together", func(b *testing.B) { raw.RenewAll(b, d, grants) })
	b.Run("singly", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			renewEach(b, d, grants)
		}
	})
}

func renewEach(b *testing.B, d backend.Driver, grants []*backend.Grant) {
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
