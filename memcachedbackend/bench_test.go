package memcachedbackend

import (
	"testing"

	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/testenv/raw"
)

func BenchmarkPairOverFloor(b *testing.B) { raw.PairOverFloor(b, testenv.Memcached(b).DirectURL()) }

// BenchmarkRenewAll renews 10,000 locks together, and one by one, as the core would do without
// RenewAll.
func BenchmarkRenewAll(b *testing.B) {
	d := openURL(b, testenv.Memcached(b).DirectURL())
	grants := raw.Grants(b, d)
	b.Run("together", func(b *testing.B) { raw.RenewAll(b, d, grants) })
	b.Run("singly", func(b *testing.B) { raw.RenewEach(b, d, grants) })
}
